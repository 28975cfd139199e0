"""``app.enqueue(name, …)``: producers that do not have the code of a task."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from windlass import Limit, Unique, Windlass
from windlass.errors import IdConflict, InvalidArgument, JobFailed, PayloadError, PayloadTooLarge
from windlass.testing import VirtualClock, enqueued, isolated


@pytest.fixture
async def worker_app(tmp_path: Path) -> AsyncIterator[Windlass]:
    """The app of the workers, on the file of the producer: it has the code."""
    async with Windlass(f"sqlite:///{tmp_path}/jobs.db") as app:
        yield app


@pytest.fixture
async def producer(tmp_path: Path) -> AsyncIterator[Windlass]:
    async with Windlass(f"sqlite:///{tmp_path}/jobs.db") as app:
        yield app


async def test_a_worker_with_the_code_runs_what_was_enqueued_by_name(
    producer: Windlass, worker_app: Windlass
) -> None:
    @worker_app.task(name="shop.charge")
    async def charge(order: int, *, note: str = "none") -> dict[str, Any]:
        return {"order": order, "note": note}

    job = await producer.enqueue("shop.charge", {"order": 7})
    other = await producer.enqueue("shop.charge", {"order": 8, "note": "gift"})
    async with worker_app.worker(until_empty=True):
        assert await job.result(timeout=20) == {"order": 7, "note": "none"}
        assert await other.result(timeout=20) == {"order": 8, "note": "gift"}


async def test_a_worker_checks_the_arguments(producer: Windlass, worker_app: Windlass) -> None:
    @worker_app.task(name="shop.charge")
    async def charge(order: int) -> None: ...

    job = await producer.enqueue("shop.charge", {"order": "seven"})
    async with worker_app.worker():
        # No other worker has other code, so the job does not wait for one.
        with pytest.raises(JobFailed, match="Expected `int`, got `str`"):
            await job.result(timeout=20)


async def test_the_options_of_a_call_are_stored(app: Windlass, clock: VirtualClock) -> None:
    job = await app.enqueue(
        "shop.charge",
        {"order": 7},
        queue="payments",
        delay="5m",
        priority=-1,
        tags=["vip"],
        key="order-7",
        max_attempts=2,
    )
    record = await job.refresh()
    assert (record.task, record.queue, record.priority) == ("shop.charge", "payments", -1)
    assert (record.tags, record.max_attempts) == (("vip",), 2)
    assert record.due == clock.now() + timedelta(minutes=5)
    assert msgspec.json.decode(record.payload) == {"order": 7}
    assert not (await app.enqueue("shop.charge", {"order": 7}, key="order-7")).created


async def test_without_options_the_settings_of_the_app_hold(app: Windlass) -> None:
    record = await (await app.enqueue("shop.charge")).refresh()
    assert (record.queue, record.max_attempts, record.payload) == ("default", 5, b"{}")


async def test_a_key_meets_the_key_of_the_same_task_enqueued_with_code(
    producer: Windlass, worker_app: Windlass
) -> None:
    @worker_app.task(name="shop.charge")
    async def charge(order: int) -> None: ...

    first = await charge.options(key="order-7").enqueue(7)
    second = await producer.enqueue("shop.charge", {"order": 7}, key="order-7")
    assert second.id == first.id
    assert not second.created


async def test_a_task_that_is_registered_here_is_enqueued_with_its_own_options(
    app: Windlass,
) -> None:
    @app.task(name="shop.charge", queue="payments", limits=Limit("bank", concurrency=2))
    async def charge(order: int, /, *rest: int, note: str = "") -> None: ...

    record = await (await app.enqueue("shop.charge", {"order": 7, "rest": [1, 2]})).refresh()
    assert (record.queue, [use.name for use in record.limits]) == ("payments", ["bank"])
    assert record.payload == (await (await charge.enqueue(7, 1, 2)).refresh()).payload


async def test_the_unique_rule_of_a_registered_task_holds(app: Windlass) -> None:
    @app.task(name="shop.charge", unique=Unique(key="{order}"))
    async def charge(order: int) -> None: ...

    first = await charge.enqueue(7)
    assert (await app.enqueue("shop.charge", {"order": 7})).id == first.id


async def test_the_arguments_of_a_registered_task_are_checked_at_once(app: Windlass) -> None:
    @app.task(name="shop.charge")
    async def charge(order: int) -> None: ...

    with pytest.raises(PayloadError, match="Expected `int`, got `str`"):
        await app.enqueue("shop.charge", {"order": "seven"})
    with pytest.raises(PayloadError, match="unknown field `oder`"):
        await app.enqueue("shop.charge", {"oder": 7})


async def test_many_calls_by_name_are_stored_together(app: Windlass) -> None:
    calls = [app.call("shop.charge", {"order": number}, priority=3) for number in range(5)]
    jobs = await app.enqueue_many(calls)
    stored = [await job.refresh() for job in jobs]
    assert [msgspec.json.decode(job.payload)["order"] for job in stored] == [0, 1, 2, 3, 4]
    assert {job.priority for job in stored} == {3}


async def test_principal_and_correlation_are_read_from_the_arguments(app: Windlass) -> None:
    job = await app.enqueue("shop.charge", {"user_id": 5, "request_id": "r-1"})
    record = await job.refresh()
    assert (record.principal, record.correlation_id) == ("5", "r-1")


async def test_the_current_tenant_is_stored(app: Windlass) -> None:
    app.current_tenant(lambda: "acme")
    assert (await (await app.enqueue("shop.charge")).refresh()).tenant == "acme"


async def test_an_id_makes_a_repeated_call_one_job(app: Windlass) -> None:
    chosen = uuid.uuid4()
    first = await app.enqueue("shop.charge", {"order": 7}, id=chosen)
    again = await app.enqueue("shop.charge", {"order": 7}, id=chosen)
    assert again.id == first.id
    with pytest.raises(IdConflict):
        await app.enqueue("shop.charge", {"order": 8}, id=chosen)
    with pytest.raises(InvalidArgument, match=r"app.enqueue_many\(calls, ids="):
        app.call("shop.charge", id=chosen)


async def test_values_that_json_knows_in_another_form_are_stored(app: Windlass) -> None:
    when = datetime(2026, 1, 2, tzinfo=UTC)
    record = await (await app.enqueue("shop.charge", {"when": when})).refresh()
    assert record.payload == b'{"when":"2026-01-02T00:00:00Z"}'


async def test_wrong_calls_say_what_to_write(app: Windlass) -> None:
    @app.task(name="known")
    async def known() -> None: ...

    with pytest.raises(InvalidArgument, match=r"await known.enqueue\(…\)"):
        await app.enqueue(cast("str", known))
    with pytest.raises(InvalidArgument, match=r"such as 'shop\.charge', got 5"):
        await app.enqueue(cast("str", 5))
    with pytest.raises(InvalidArgument, match=r"such as \{'order': 7\}, got \[7\]"):
        await app.enqueue("shop.charge", cast("dict[str, Any]", [7]))
    with pytest.raises(InvalidArgument, match=r"'dealy' is no option of a call\. Did you mean"):
        await app.enqueue("shop.charge", {}, dealy=5)  # type: ignore[call-arg]
    with pytest.raises(InvalidArgument, match="must not contain '/'"):
        await app.enqueue("shop/charge")
    with pytest.raises(InvalidArgument, match="give key=, too"):
        await app.enqueue("shop.charge", unique="until_started")
    with pytest.raises(PayloadError, match=r"the arguments of shop\.charge cannot be stored"):
        await app.enqueue("shop.charge", {"order": object()})
    with pytest.raises(PayloadTooLarge):
        await app.enqueue("shop.charge", {"text": "x" * 2_000_000})


def test_blocking_code_enqueues_by_name() -> None:
    app = Windlass("memory://")
    with isolated(app):
        job = app.blocking.enqueue("shop.charge", {"order": 7}, queue="payments")
        assert app.blocking.refresh(job).queue == "payments"


async def test_tests_see_the_arguments_of_tasks_whose_code_is_elsewhere(app: Windlass) -> None:
    await app.enqueue("shop.charge", {"order": 7})
    (job,) = await enqueued(app)
    assert (job.task, job.arguments) == ("shop.charge", {"order": 7})
