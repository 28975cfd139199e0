from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.integrations.shopfront.interface import (
    InvalidTask,
    TaskResult,
    TaskResultDoesNotExist,
    TaskResultMismatch,
    TaskResultStatus,
    default_task_backend,
    task_backends,
    task_enqueued,
    task_finished,
    task_started,
)
from windlass import Program, Windlass
from windlass.errors import ConfigError
from windlass.integrations.django._backend import Backend
from windlass.integrations.django._worker_tasks import adopt

pytestmark = pytest.mark.usefixtures("shop")

Work = Callable[..., None]


@pytest.fixture
def signals(shop: Any) -> Iterator[list[tuple[str, str]]]:
    """What the signals said of what is enqueued meanwhile, in order: others may have left jobs."""
    told: list[tuple[str, str]] = []
    ours: set[str] = set()

    def receiver(name: str) -> Callable[..., None]:
        def hear(sender: object, task_result: TaskResult[..., Any], **_: object) -> None:
            if name == "enqueued":
                ours.add(task_result.id)
            if task_result.id in ours:
                told.append((name, task_result.status))

        return hear

    every = {"enqueued": task_enqueued, "started": task_started, "finished": task_finished}
    receivers = {name: receiver(name) for name in every}
    for name, one in every.items():
        one.connect(receivers[name])
    yield told
    for name, one in every.items():
        one.disconnect(receivers[name])


def test_the_backend_supports_everything_the_interface_knows() -> None:
    backend = task_backends["default"]
    assert isinstance(backend, Backend)
    assert backend.supports_defer
    assert backend.supports_async_task
    assert backend.supports_get_result
    assert backend.supports_priority


def test_a_task_is_enqueued_run_and_its_result_read(shop: Any, work: Work) -> None:
    result = shop.add.enqueue(2, b=3)
    assert (result.status, result.args, result.kwargs) == (TaskResultStatus.READY, [2], {"b": 3})
    again = shop.add.get_result(result.id)
    assert (again.status, again.attempts, again.is_finished) == (TaskResultStatus.READY, 0, False)
    work(result.id)
    result.refresh()
    assert (result.status, result.return_value) == (TaskResultStatus.SUCCESSFUL, 5)
    assert result.attempts == 1
    assert result.enqueued_at <= result.started_at <= result.finished_at
    assert result.errors == []


def test_the_result_says_what_is_stored_and_may_be_read_inside_a_coroutine(shop: Any) -> None:
    result = shop.add.using(queue_name="mail", priority=7).enqueue(2)
    assert shop.add.get_result(result.id) == result

    async def in_a_coroutine() -> None:
        result.refresh()
        assert shop.add.get_result(result.id) == result

    asyncio.run(in_a_coroutine())


def test_a_coroutine_runs_too(shop: Any, work: Work) -> None:
    result = shop.add_later.enqueue(2, 3)
    work(result.id)
    result.refresh()
    assert result.return_value == 5


def test_secrets_are_whole_for_the_project_and_masked_for_people(
    app: Windlass, shop: Any, work: Work
) -> None:
    """Also where they are given by position, or only annotated."""
    for asked, value in (
        (shop.sign_in.enqueue("ada", "canary"), {"user": "ada", "token": "yranac"}),
        (shop.sign_in.enqueue("ada", password="canary"), {"user": "ada", "token": "yranac"}),
        (shop.pay.enqueue(5, "canary"), "canary"),
        (shop.pay.enqueue(amount=5, card="canary"), "canary"),
    ):
        work(asked.id)
        result = shop.pay.get_backend().get_result(asked.id)
        assert (result.args, result.kwargs) == (asked.args, asked.kwargs)
        assert result.return_value == value
        shown = str(app.blocking.run(app.admin.jobs.get(asked.id)))
        assert "canary" not in shown
        assert "yranac" not in shown


def test_from_async_code_it_is_the_same(shop: Any, work: Work) -> None:
    result = asyncio.run(shop.add.aenqueue(1))
    work(result.id)
    assert asyncio.run(shop.add.aget_result(result.id)).return_value == 2


def test_queue_priority_and_time_reach_the_job(app: Windlass, shop: Any) -> None:
    later = datetime.now(UTC) + timedelta(days=1)
    result = shop.add_later.using(queue_name="reports", priority=-5, run_after=later).enqueue(1, 2)
    job = app.blocking.run(app.admin.jobs.get(result.id))
    # Higher comes first there, lower comes first here.
    assert (job.queue, job.priority, job.due) == ("reports", 5, later)
    plain = app.blocking.run(app.admin.jobs.get(shop.add_later.enqueue(1, 2).id))
    assert (plain.queue, plain.priority, plain.task) == (
        "mail",
        -10,
        "tests.integrations.shopfront.shop.tasks.add_later",
    )


def test_a_task_may_ask_for_its_context(shop: Any, work: Work) -> None:
    result = shop.seen.enqueue()
    work(result.id)
    result.refresh()
    assert result.return_value == [result.id, 1, "RUNNING"]


def test_a_failed_attempt_is_followed_by_another(
    shop: Any, work: Work, signals: list[tuple[str, str]]
) -> None:
    result = shop.at_the_second.enqueue()
    work(result.id)
    result.refresh()
    assert result.return_value == "after ConnectionError"
    assert (result.attempts, len(result.errors)) == (2, 1)
    assert result.errors[0].exception_class is ConnectionError
    assert "not yet" in result.errors[0].traceback
    # An attempt that is followed by another one finishes nothing.
    assert signals == [
        ("enqueued", "READY"),
        ("started", "RUNNING"),
        ("started", "RUNNING"),
        ("finished", "SUCCESSFUL"),
    ]


@pytest.mark.parametrize(
    "expected",
    [("broken", 1, "GiveUp"), ("unstorable", 2, "TypeError"), ("leaving", 1, "SystemExit")],
)
def test_the_end_of_a_failed_task_is_signalled_once(
    shop: Any,
    work: Work,
    signals: list[tuple[str, str]],
    expected: tuple[str, int, str],
) -> None:
    name, attempts, error = expected
    result = getattr(shop, name).enqueue()
    work(result.id)
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.FAILED, attempts)
    assert result.errors[-1].exception_class.__name__ == error
    assert signals[-1] == ("finished", "FAILED")
    assert [told for told, _ in signals].count("finished") == 1
    with pytest.raises(ValueError, match="Task failed"):
        _ = result.return_value


def test_a_receiver_that_raises_costs_no_second_run(shop: Any, work: Work) -> None:
    def refuse(**_: object) -> None:
        message = "the receiver broke"
        raise RuntimeError(message)

    task_finished.connect(refuse)
    try:
        result = shop.add.enqueue(1)
        work(result.id)
    finally:
        task_finished.disconnect(refuse)
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.SUCCESSFUL, 1)


def test_a_cancelled_task_has_failed(app: Windlass, shop: Any) -> None:
    result = shop.add.enqueue(1)
    app.blocking.cancel(app.job(result.id))
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 0)


def test_results_that_do_not_exist_are_told_from_those_of_another_task(shop: Any) -> None:
    ours = shop.receipt.enqueue_sync(1)
    for unknown in ("nothing", "0" * 32, ours.id):
        with pytest.raises(TaskResultDoesNotExist):
            default_task_backend.get_result(unknown)
    with pytest.raises(TaskResultMismatch):
        shop.broken.get_result(shop.add.enqueue(1).id)


def test_arguments_that_are_no_json_are_refused_and_nothing_is_stored(
    app: Windlass, shop: Any
) -> None:
    before = len(app.blocking.run(app.admin.jobs.find(limit=1000)))
    with pytest.raises(TypeError):
        shop.add.enqueue(object())
    assert len(app.blocking.run(app.admin.jobs.find(limit=1000))) == before


def test_a_queue_that_the_settings_do_not_name_is_refused(shop: Any) -> None:
    with pytest.raises(InvalidTask, match="'other'"):
        shop.add.using(queue_name="other")


def test_options_that_cannot_work_are_refused(app: Windlass, shop: Any) -> None:
    for run_in in ("process", Program(["./add"])):
        with pytest.raises(ConfigError, match="leave run_in out"):
            adopt(app, shop.add, shop.add.get_backend(), {"run_in": run_in})
