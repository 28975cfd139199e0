"""What is stored when a task is enqueued."""

from __future__ import annotations

import dataclasses
import enum
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, cast

import msgspec
import pydantic
import pytest

from windlass import Backoff, Context, Task, Windlass
from windlass._core.job.event import Event, JobCoalesced, JobEnqueued
from windlass._core.job.state import State
from windlass.errors import InvalidArgument, KeyConflict, PayloadError
from windlass.testing import VirtualClock


async def test_a_job_waits_with_the_defaults_of_its_app(app: Windlass, clock: VirtualClock) -> None:
    @app.task
    async def work(name: str) -> None: ...

    handle = await work.enqueue("ada")
    job = await handle.refresh()
    assert handle.created
    assert (job.id, job.task, job.queue, job.state) == (
        handle.id,
        f"{__name__}.{work.function.__qualname__}",
        "default",
        State.WAITING,
    )
    assert (job.attempt, job.max_attempts, job.priority) == (0, 5, 0)
    assert job.due == job.created_at == clock.now()
    assert msgspec.json.decode(job.payload) == {"name": "ada"}


async def test_the_tasks_options_are_followed(app: Windlass, clock: VirtualClock) -> None:
    @app.task(
        name="mail.send",
        queue="mail",
        max_attempts=2,
        timeout=timedelta(seconds=7),
        priority=-3,
        tags=["letter"],
        expires=60,
    )
    async def work() -> None: ...

    job = await (await work.enqueue()).refresh()
    assert (job.task, job.queue, job.max_attempts) == ("mail.send", "mail", 2)
    assert (job.timeout, job.priority, job.tags) == (timedelta(seconds=7), -3, ("letter",))
    assert job.expires_at == clock.now() + timedelta(seconds=60)


async def test_a_calls_options_come_before_the_tasks(app: Windlass, clock: VirtualClock) -> None:
    @app.task(queue="mail", max_attempts=2, timeout=7, priority=-3, tags=["letter"], expires=60)
    async def work() -> None: ...

    backoff = Backoff.fixed(3)
    asked = work.options(
        delay=90,
        priority=0,
        queue="urgent",
        max_attempts=9,
        timeout=1.5,
        backoff=backoff,
        tags=[],
        expires=timedelta(hours=1),
        correlation_id="request-1",
        principal="ada",
        tenant="acme",
    )
    job = await (await asked.enqueue()).refresh()
    assert job.due == clock.now() + timedelta(seconds=90)
    assert (job.priority, job.queue, job.max_attempts, job.tags) == (0, "urgent", 9, ())
    assert (job.timeout, job.backoff) == (timedelta(seconds=1.5), backoff)
    assert job.expires_at == clock.now() + timedelta(hours=1)
    assert (job.correlation_id, job.principal, job.tenant) == ("request-1", "ada", "acme")


async def test_the_apps_settings_are_the_last_resort() -> None:
    app = Windlass("memory://", default_queue="main", max_attempts=3, timeout=9)

    @app.task
    async def work() -> None: ...

    job = await (await work.enqueue()).refresh()
    assert (job.queue, job.max_attempts, job.timeout) == ("main", 3, timedelta(seconds=9))


async def test_an_instant_may_be_in_any_time_zone(app: Windlass) -> None:
    @app.task
    async def work() -> None: ...

    nine = datetime.fromisoformat("2031-03-01T09:00:00+02:00")
    job = await (await work.options(at=nine).enqueue()).refresh()
    assert job.due == datetime(2031, 3, 1, 7, tzinfo=UTC)


async def test_the_principal_is_read_from_the_arguments(app: Windlass) -> None:
    @app.task
    async def work(user_id: int, request_id: str = "") -> None: ...

    job = await (await work.enqueue(42, request_id="r-1")).refresh()
    assert (job.principal, job.correlation_id) == ("42", "r-1")
    asked = work.options(principal="somebody else")
    job = await (await asked.enqueue(42)).refresh()
    assert (job.principal, job.correlation_id) == ("somebody else", None)


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Address:
    street: str
    number: int


class Order(msgspec.Struct):
    lines: list[str]


class Customer(pydantic.BaseModel):
    name: str
    born: date


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Address, Address("High Street", 1)),
        (Order, Order(["milk", "bread"])),
        (Customer, Customer(name="Ada", born=date(1815, 12, 10))),
        (Colour, Colour.RED),
        (datetime, datetime(2030, 1, 1, tzinfo=UTC)),
        (timedelta, timedelta(minutes=5)),
        (Decimal, Decimal("1.10")),
        (uuid.UUID, uuid.UUID(int=7)),
        (bytes, b"\x00\xff"),
        (dict[str, list[int]], {"a": [1, 2]}),
        (int | None, None),
    ],
)
async def test_arguments_and_results_come_back_as_what_they_were(
    app: Windlass, kind: type, value: object
) -> None:
    got: list[object] = []

    def echo(thing: object) -> object:
        got.append(thing)
        return thing

    echo.__annotations__ = {"thing": kind, "return": kind}
    # Cast for the type checker, who takes an argument that may be anything for the context.
    task = cast("Task[[object], object]", app.task(echo))
    async with app.worker():
        job = await task.enqueue(value)
        assert await job.result(timeout=30) == value
    assert got == [value]


async def test_a_default_that_was_not_given_is_the_functions_own(app: Windlass) -> None:
    @app.task
    async def work(first: int, second: int = 2, *, third: int = 3) -> list[int]:
        return [first, second, third]

    async with app.worker():
        jobs = await app.enqueue_many([work.call(1), work.call(1, 5), work.call(1, third=7)])
        results = [await job.result(timeout=30) for job in jobs]
    assert results == [[1, 2, 3], [1, 5, 3], [1, 2, 7]]


async def test_a_key_that_is_held_gives_the_job_that_holds_it(app: Windlass) -> None:
    @app.task
    async def work(name: str) -> None: ...

    first = await work.options(key="k").enqueue("first")
    second = await work.options(key="k").enqueue("second")
    other = await work.options(key="another").enqueue("third")
    assert (first.created, second.created, other.created) == (True, False, True)
    assert second == first
    assert other != first
    assert msgspec.json.decode((await second.refresh()).payload) == {"name": "first"}


async def test_two_tasks_may_use_the_same_key(app: Windlass) -> None:
    @app.task
    async def one() -> None: ...

    @app.task
    async def two() -> None: ...

    assert (await one.options(key="k").enqueue()).created
    assert (await two.options(key="k").enqueue()).created


async def test_a_key_is_free_again_when_its_job_has_ended(app: Windlass) -> None:
    @app.task
    async def work() -> None: ...

    first = await work.options(key="k").enqueue()
    await first.cancel()
    assert (await work.options(key="k").enqueue()).created


async def test_a_key_held_for_a_time_outlives_its_job(app: Windlass, clock: VirtualClock) -> None:
    @app.task
    async def work() -> None: ...

    await (await work.options(key="k", unique_for=60).enqueue()).cancel()
    clock.advance(59)
    assert not (await work.options(key="k", unique_for=60).enqueue()).created
    clock.advance(1)
    assert (await work.options(key="k", unique_for=60).enqueue()).created


async def test_many_are_stored_in_order(app: Windlass) -> None:
    @app.task
    async def work(number: int) -> None: ...

    jobs = await app.enqueue_many([work.call(n) for n in range(50)])
    records = [await job.refresh() for job in jobs]
    assert [msgspec.json.decode(record.payload)["number"] for record in records] == [*range(50)]
    assert [record.seq for record in records] == sorted(record.seq for record in records)
    assert await app.enqueue_many([]) == []


async def test_many_may_mix_tasks_and_options(app: Windlass) -> None:
    @app.task
    async def one() -> None: ...

    @app.task(queue="other")
    async def two(name: str) -> None: ...

    jobs = await app.enqueue_many(
        [one.call(), two.options(key="k").call("first"), two.options(key="k").call("second")]
    )
    assert [job.created for job in jobs] == [True, True, False]
    assert jobs[2] == jobs[1]


async def test_a_call_that_does_not_fit_stores_none_of_its_neighbours(app: Windlass) -> None:
    @app.task
    async def work(number: int) -> None: ...

    with pytest.raises(PayloadError):
        await app.enqueue_many([work.call(1), work.call("two")])  # type: ignore[arg-type]
    assert await app.admin.jobs.find() == []


async def test_a_follow_up_remembers_where_it_came_from(app: Windlass) -> None:
    @app.task
    async def child() -> None: ...

    @app.task
    async def parent(ctx: Context) -> str:
        job = await ctx.enqueue(child.call())
        return str(job.id)

    async with app.worker():
        asked = parent.options(correlation_id="request-1", tenant="acme")
        job = await asked.enqueue()
        follow_up = await app.admin.jobs.get(await job.result(timeout=30))
    assert (follow_up.parent, follow_up.correlation_id, follow_up.tenant) == (
        job.id,
        "request-1",
        "acme",
    )


async def test_listeners_hear_of_new_jobs_and_of_reused_ones(app: Windlass) -> None:
    heard: list[Event] = []
    app.on_transition(heard.append)

    @app.task(queue="mail")
    async def work() -> None: ...

    job = await work.options(key="k").enqueue()
    await work.options(key="k").enqueue()
    await work.options(key="k", on_conflict="replace").enqueue()
    new, reused, replaced = heard
    assert isinstance(new, JobEnqueued)
    assert (new.job, new.task, new.queue) == (job.id, work.name, "mail")
    told = JobCoalesced(job=job.id, task=work.name, queue="mail")
    assert (reused, replaced) == (told, msgspec.structs.replace(told, replaced=True))


async def test_a_refused_batch_stores_nothing_and_emits_no_event(app: Windlass) -> None:
    @app.task
    async def work() -> None: ...

    holder = await work.options(key="k").enqueue()
    heard: list[Event] = []
    app.on_transition(heard.append)
    twice = work.options(key="k", on_conflict="raise")
    with pytest.raises(KeyConflict):
        await app.enqueue_many([work.call(), twice.call(), work.call()])
    assert heard == []
    assert [job.id for job in await app.admin.jobs.find()] == [holder.id]


async def test_a_task_stays_callable_as_the_plain_function(app: Windlass) -> None:
    @app.task
    def double(number: int) -> int:
        """Twice as much."""
        return number * 2

    assert double(4) == 8
    assert double.__doc__ == "Twice as much."
    assert await app.admin.jobs.find() == []


async def test_three_hundred_single_enqueues_are_all_stored(app: Windlass) -> None:
    """A7, without its timing, which `make bench` measures."""

    @app.task
    async def work(number: int) -> None: ...

    jobs = [await work.enqueue(number) for number in range(300)]
    assert len({job.id for job in jobs}) == 300
    (counts,) = await app.admin.queues.counts()
    assert counts.ready == 300


async def test_many_calls_may_come_from_a_generator(app: Windlass) -> None:
    @app.task
    async def work(number: int) -> None: ...

    jobs = await app.enqueue_many(work.call(number) for number in range(3))
    assert [(await job.refresh()).payload for job in jobs] == [
        work.call(number).payload for number in range(3)
    ]


@pytest.mark.parametrize("wrong", [None, 5, "work", ("work", 1)])
async def test_a_value_that_is_no_call_is_refused_and_nothing_is_stored(
    app: Windlass, wrong: Any
) -> None:
    @app.task
    async def work() -> None: ...

    with pytest.raises(InvalidArgument, match=r"calls made by task\.call\("):
        await app.enqueue_many([work.call(), wrong])
    assert await app.admin.jobs.find() == []


async def test_more_calls_than_one_transaction_should_hold_are_refused(app: Windlass) -> None:
    @app.task
    async def work() -> None: ...

    with pytest.raises(InvalidArgument, match="in slices of at most 100,000"):
        await app.enqueue_many([work.call()] * 100_001)
    assert await app.admin.jobs.find() == []


async def test_an_identity_read_from_an_argument_is_cut_to_what_may_be_given(
    app: Windlass,
) -> None:
    @app.task
    async def child() -> None: ...

    @app.task
    async def parent(ctx: Context, request_id: str) -> str:
        return str((await ctx.enqueue(child.call())).id)

    job = await parent.enqueue("x" * 1000)
    assert (await job.refresh()).correlation_id == "x" * 256
    async with app.worker():
        inherited = await job.result(timeout=30)
    assert (await app.job(inherited).refresh()).correlation_id == "x" * 256


@pytest.mark.parametrize("tag", ["plugin:billing", "secret:to", "schedule:nightly"])
def test_tags_that_say_whose_a_job_is_or_what_is_hidden_are_set_by_us_alone(tag: str) -> None:
    app = Windlass("memory://")

    @app.task(name="send")
    async def send(to: str) -> None: ...

    async def other() -> None: ...

    with pytest.raises(InvalidArgument, match="set by Windlass alone"):
        send.options(tags=["vip", tag])
    with pytest.raises(InvalidArgument, match="set by Windlass alone"):
        app.task(name="other", tags=[tag])(other)
    assert send.options(tags=["secretly", "plugin"]).call("a") is not None
