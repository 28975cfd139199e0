"""Throttled: the job waits for free, its queue rests for everybody, and one hit is told once."""

from __future__ import annotations

import asyncio
import math
from datetime import timedelta
from typing import Any

import pytest

from tests.worker.fixtures import Bench, World, bench, simulate, working
from windlass import Backoff, Limit, Rate, Retry, Snooze, Throttled
from windlass._core.job.event import Event, JobMoved, QueueCooled
from windlass._core.job.job import JobRecord
from windlass._core.job.state import State, Verb
from windlass._tasks.task import Task

SECOND = timedelta(seconds=1)


def throttled(it: Bench, error: Throttled, **options: Any) -> Task[[], None]:
    @it.app.task(name="job", **options)
    async def job() -> None:
        raise error

    return job


def cooled(events: list[Event]) -> list[QueueCooled]:
    return [event for event in events if isinstance(event, QueueCooled)]


async def cool_until(it: Bench) -> timedelta | None:
    until = (await it.app.admin.queues.get("default")).cool_until
    return None if until is None else until - it.clock.now()


# --- what a handler says -------------------------------------------------------------------------


def test_without_a_queue_that_rests_and_without_a_time_a_minute_is_waited() -> None:
    assert Throttled(cool_queue=False).after == 60 * SECOND
    assert Throttled(3, cool_queue=False).after == 3 * SECOND
    assert Throttled().after is None


def short(after: object) -> str:
    return repr(after)[:30]


NONSENSE: list[Any] = [-1, -math.inf, math.nan, timedelta(seconds=-1), "soon", True, -(10**400)]
TOO_LONG: list[Any] = [math.inf, 1e300, 1_790_000_000, timedelta.max, 3601, 10**400]


@pytest.mark.parametrize("cool_queue", [True, False])
@pytest.mark.parametrize("after", NONSENSE, ids=short)
async def test_a_wait_that_makes_no_sense_is_a_minute_and_costs_no_attempt(
    caplog: pytest.LogCaptureFixture, after: Any, *, cool_queue: bool
) -> None:
    async with bench() as it:
        task = throttled(it, Throttled(after, cool_queue=cool_queue), max_attempts=1)
        job = await it.run(task.call())
        assert (job.state, job.attempt, job.error) == (State.WAITING, 0, None)
        assert job.due - it.clock.now() == 60 * SECOND
        assert await cool_until(it) == (60 * SECOND if cool_queue else None)
        await it.again(job, 60)
        told = [line.getMessage() for line in caplog.records if "Throttled" in line.getMessage()]
        assert len(told) == 1
        assert "invalid wait" in told[0]


@pytest.mark.parametrize("after", TOO_LONG, ids=short)
async def test_a_wait_that_is_too_long_is_cut_to_the_longest_allowed(
    caplog: pytest.LogCaptureFixture, after: Any
) -> None:
    async with bench() as it:
        job = await it.run(throttled(it, Throttled(after), max_attempts=1).call())
        assert (job.state, job.attempt) == (State.WAITING, 0)
        assert await cool_until(it) == job.due - it.clock.now() == 3600 * SECOND
        await it.again(job, 3600)
        told = [line.getMessage() for line in caplog.records if "Throttled" in line.getMessage()]
        assert len(told) == 1
        assert "max_throttle" in told[0]


async def test_the_longest_allowed_wait_is_a_setting() -> None:
    async with bench(max_throttle="2m") as it:
        job = await it.run(throttled(it, Throttled(119)).call())
        assert job.due - it.clock.now() == 119 * SECOND
        job = await it.again(job, 119)
        assert job.due - it.clock.now() == 119 * SECOND
    async with bench(max_throttle="2m") as it:
        job = await it.run(throttled(it, Throttled(121)).call())
        assert job.due - it.clock.now() == 120 * SECOND


PAST = timedelta(seconds=-5)


@pytest.mark.parametrize(
    "error",
    [
        Throttled(),
        Throttled(0),
        Throttled(0, cool_queue=False),
        Snooze(0),
        Snooze(-5),
        Snooze(PAST),
    ],
)
async def test_a_job_that_is_put_back_for_free_never_runs_in_a_circle(error: Exception) -> None:
    async with bench() as it:
        await it.app.admin.queues.set("default", cool_down=Backoff.none())

        @it.app.task(name="job")
        async def job() -> None:
            raise error

        record = await it.run(job.call())
        assert record.due - it.clock.now() == SECOND / 10


async def test_a_snooze_of_nan_is_a_minute_and_a_retry_of_nan_follows_the_backoff() -> None:
    async with bench() as it:

        @it.app.task(backoff=Backoff.fixed(7))
        async def job(*, retry: bool) -> None:
            raise Retry(after=math.nan) if retry else Snooze(math.nan)

        waits = [await it.run(job.call(retry=retry)) for retry in (False, True)]
        assert [wait.due - it.clock.now() for wait in waits] == [60 * SECOND, 7 * SECOND]
        assert [wait.attempt for wait in waits] == [0, 1]


@pytest.mark.parametrize("after", [timedelta(seconds=-5), -5, -(10**400)], ids=short)
def test_a_retry_after_a_time_that_has_passed_is_at_once(after: Any) -> None:
    assert Retry(after=after).after == 0 * SECOND


async def test_without_a_time_the_queue_s_curve_decides_and_rises_with_every_hit() -> None:
    async with bench() as it:
        job = await it.run(throttled(it, Throttled(), max_attempts=1).call())
        for wait in (1, 2, 4, 8):
            assert (job.state, job.attempt, job.error) == (State.WAITING, 0, None)
            assert await cool_until(it) == job.due - it.clock.now() == wait * SECOND
            job = await it.again(job, wait)
        assert job.throttled == 5


async def test_the_longer_of_the_handler_s_time_and_the_curve_holds() -> None:
    async with bench() as it:
        await it.app.admin.queues.set("default", cool_down=Backoff.fixed(30))
        job = await it.run(throttled(it, Throttled(5)).call())
        assert job.due - it.clock.now() == 30 * SECOND
    async with bench() as it:
        await it.app.admin.queues.set("default", cool_down=Backoff.fixed(30))
        job = await it.run(throttled(it, Throttled(90)).call())
        assert job.due - it.clock.now() == 90 * SECOND


async def test_one_job_alone_waits_when_its_handler_says_so() -> None:
    async with bench() as it:
        events: list[Event] = []
        it.app.on_transition(events.append)
        job = await it.run(throttled(it, Throttled(60, cool_queue=False)).call())
        assert job.due - it.clock.now() == 60 * SECOND
        assert await cool_until(it) is None
        assert cooled(events) == []


@pytest.mark.parametrize("drain", [True, False])
async def test_the_rates_of_the_job_are_spent_unless_its_handler_says_otherwise(
    *, drain: bool
) -> None:
    async with bench() as it:
        api = Limit("api", rate=Rate(1, per=10, burst=5))
        error = Throttled(1, drain=drain)
        await it.run(throttled(it, error, limits=[api]).call())
        (report,) = await it.app.admin.limits.list()
        (budget,) = report.budgets
        assert budget.spent_until is not None
        owed = budget.spent_until - it.clock.now()
        assert owed == (50 if drain else 10) * SECOND


# --- what is told --------------------------------------------------------------------------------


async def test_many_who_hit_one_limiter_are_one_event() -> None:
    async with bench() as it:
        events: list[Event] = []
        it.app.on_transition(events.append)
        task = throttled(it, Throttled(20))
        jobs = await it.app.enqueue_many([task.call() for _ in range(10)])
        await it.engine.step()
        (event,) = cooled(events)
        assert (event.queue, event.task) == ("default", "job")
        assert event.worker == it.engine.identity.id
        assert event.job in {job.id for job in jobs}
        assert event.until - event.at == 20 * SECOND
        assert (await it.app.admin.queues.get("default")).cool_downs == 1
        records: list[JobRecord] = [await job.refresh() for job in jobs]
        assert {record.due for record in records} == {event.until}


async def test_the_event_of_the_job_says_what_really_holds() -> None:
    async with bench() as it:
        await it.app.admin.queues.set("default", cool_down=Backoff.fixed(30))
        events: list[Event] = []
        it.app.on_transition(events.append)
        await it.run(throttled(it, Throttled(5)).call())
        (moved,) = [e for e in events if isinstance(e, JobMoved) and e.verb is Verb.THROTTLE]
        assert moved.delay == 30 * SECOND


async def test_a_cancelled_run_cools_nothing() -> None:
    async with bench() as it:
        events: list[Event] = []
        it.app.on_transition(events.append)

        @it.app.task(name="job")
        async def job() -> None:
            await it.app.admin.jobs.cancel(handle.id)
            raise Throttled

        handle = await job.enqueue()
        await it.engine.step()
        assert (await handle.refresh()).state is State.CANCELLED
        assert await cool_until(it) is None
        assert cooled(events) == []


# --- in a worker ---------------------------------------------------------------------------------


def test_a_worker_sleeps_out_a_cool_down_and_other_queues_go_on() -> None:
    async def scenario(world: World) -> None:
        app, store = world.app, await world.tampered()

        @app.task(queue="api")
        async def call(number: int) -> None:
            world.say(f"call {number}")
            if len(world.words) == 1:
                raise Throttled(30)

        @app.task(queue="mail")
        async def send() -> None:
            world.say("send")

        await app.enqueue_many([call.call(number) for number in range(3)])
        async with working(app, store=store, slots=1):
            await world.until(10)
            await send.enqueue()
            before = store.calls["jobs.claim"]
            await world.until(29)
            assert store.calls["jobs.claim"] - before < 5, "a known end is not polled for"
            await world.until(40)
        assert world.seen[:3] == [(0.0, "call 0"), (10.0, "send"), (30.0, "call 1")]
        assert sorted(world.words[2:]) == ["call 0", "call 1", "call 2"]

    simulate(scenario)


def test_a_queue_that_is_warmed_goes_on_at_once() -> None:
    async def scenario(world: World) -> None:
        app = world.app

        @app.task(queue="api")
        async def call() -> None:
            world.say("call")
            if len(world.words) == 1:
                raise Throttled(3600)

        job = await call.enqueue()
        other = await call.enqueue()
        async with working(app, slots=1):
            await world.until(5)
            await app.admin.queues.warm("api")
            await other.result(timeout=5)
        assert world.seen == [(0.0, "call"), (5.0, "call")]
        assert (await app.admin.queues.get("api")).cool_downs == 0
        assert (await job.refresh()).state is State.WAITING, "its own due time stays"

    simulate(scenario)


def test_workers_that_are_turned_away_together_give_one_event() -> None:
    async def scenario(world: World) -> None:
        app = world.app
        events: list[Event] = []
        app.on_transition(events.append)

        @app.task
        async def call() -> None:
            await asyncio.sleep(1)
            raise Throttled(60)

        await app.enqueue_many([call.call() for _ in range(8)])
        async with working(app, slots=4), working(app, slots=4):
            await world.until(30)
        assert len(cooled(events)) == 1
        moved = [e for e in events if isinstance(e, JobMoved) and e.verb is Verb.THROTTLE]
        assert len({event.worker for event in moved}) == 2
        assert len(moved) == 8

    simulate(scenario)
