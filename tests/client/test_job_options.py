"""Behaviours of earlier systems, kept: each test names where it comes from."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta

import msgspec
import pytest

from windlass import Backoff, Context, GiveUp, Retry, Windlass
from windlass._core.job.event import Event, JobMoved
from windlass._core.job.state import State
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass.errors import WrongState
from windlass.testing import VirtualClock, drain, drain_all, isolated


@pytest.fixture
def app() -> Windlass:
    return Windlass("sqlite:///never-opened.db")


@pytest.fixture
def clock(app: Windlass) -> Iterator[VirtualClock]:
    with isolated(app) as clock:
        yield clock


def moves(app: Windlass) -> list[tuple[str, int]]:
    """Verb and attempt of everything that happens from now on."""
    seen: list[tuple[str, int]] = []

    def note(event: Event) -> None:
        if isinstance(event, JobMoved):
            seen.append((event.verb, event.attempt))

    app.on_transition(note)
    return seen


# --- jobs that succeed, are retried, and fail: Q1 to Q6, A9 to A11 ---


async def test_a_job_that_succeeds_is_stored_as_succeeded(
    app: Windlass, clock: VirtualClock
) -> None:
    """Q1, Q10: nobody listens."""

    @app.task
    async def work() -> None: ...

    job = await work.enqueue()
    await drain(app)
    assert (await job.refresh()).state is State.SUCCEEDED


async def test_a_job_that_asks_for_a_retry_waits_for_it(app: Windlass, clock: VirtualClock) -> None:
    """Q2."""

    @app.task(max_attempts=3, backoff=Backoff.fixed(1))
    async def work() -> None:
        raise Retry("not yet")

    job = await work.enqueue()
    assert (await drain(app)).retried == 1
    record = await job.refresh()
    assert (record.state, record.due) == (State.WAITING, clock.now() + timedelta(seconds=1))


async def test_a_job_that_gives_up_has_failed(app: Windlass, clock: VirtualClock) -> None:
    """Q3."""

    @app.task
    async def work() -> None:
        raise GiveUp("permanent")

    job = await work.enqueue()
    await drain(app)
    record = await job.refresh()
    assert (record.state, record.attempt) == (State.FAILED, 1)


@pytest.mark.parametrize("where", ["task", "call"])
async def test_attempts_are_limited_by_the_task_or_by_the_call(
    app: Windlass, clock: VirtualClock, where: str
) -> None:
    """Q4, Q5: one retry, then the failure is final."""

    @app.task(max_attempts=2 if where == "task" else 6, backoff=Backoff.fixed(1))
    async def work() -> None:
        raise ValueError("always")

    asked = work.options(max_attempts=2) if where == "call" else work.options()
    job = await asked.enqueue()
    await drain(app)
    first = await job.refresh()
    assert (first.state, first.attempt) == (State.WAITING, 1)
    clock.advance(1)
    await drain(app)
    second = await job.refresh()
    assert (second.state, second.attempt) == (State.FAILED, 2)


async def test_failing_again_after_a_requeue_counts_on(app: Windlass, clock: VirtualClock) -> None:
    """Q6."""

    @app.task(max_attempts=1)
    async def work() -> None:
        raise ValueError("always")

    job = await work.enqueue()
    await drain(app)
    assert (await job.refresh()).attempt == 1
    await app.admin.jobs.requeue(job.id)
    await drain(app)
    record = await job.refresh()
    assert (record.state, record.attempt) == (State.FAILED, 2)


async def test_a_retry_comes_back_as_the_same_job(app: Windlass, clock: VirtualClock) -> None:
    """A9: same id, attempt 2, the last error kept, nothing counted as a failure."""
    ids: list[str] = []

    @app.task(max_attempts=2, backoff=Backoff.fixed(0.001))
    async def work(ctx: Context) -> None:
        ids.append(ctx.job_id)
        if ctx.attempt == 1:
            raise ValueError("first")
        assert ctx.previous_error == "ValueError: first"

    job = await work.enqueue()
    await drain(app)
    (counts,) = await app.admin.queues.counts()
    assert (counts.scheduled, counts.running, counts.failed) == (1, 0, 0)
    error = (await job.refresh()).error
    assert error is not None
    assert error.message == "first"
    await drain_all(app)
    assert ids == [job.id, job.id]


async def test_a_final_failure_leaves_nothing_to_run(app: Windlass, clock: VirtualClock) -> None:
    """A10."""

    @app.task(max_attempts=1)
    async def work() -> None:
        raise ValueError("always")

    await work.enqueue()
    drained = await drain_all(app)
    assert (drained.ran, drained.failed) == (1, 1)
    (counts,) = await app.admin.queues.counts()
    assert (counts.ready, counts.scheduled, counts.running, counts.failed) == (0, 0, 0, 1)


async def test_a_job_that_waits_for_its_retry_is_not_a_failed_one(
    app: Windlass, clock: VirtualClock
) -> None:
    """A11: an operator cannot requeue it."""

    @app.task(backoff=Backoff.fixed(60))
    async def work() -> None:
        raise ValueError("for now")

    job = await work.enqueue()
    await drain(app)
    assert await app.admin.jobs.find(JobFilter(states=[State.FAILED])) == []
    with pytest.raises(WrongState, match="it is waiting"):
        await app.admin.jobs.requeue(job.id)
    (counts,) = await app.admin.queues.counts()
    assert (counts.ready, counts.scheduled) == (0, 1)


# --- crashes: A6, A8 ---


async def test_a_crash_before_the_first_await_is_recorded(
    app: Windlass, clock: VirtualClock
) -> None:
    """A6."""

    class Boom(BaseException):
        pass

    @app.task
    async def work() -> None:
        raise Boom("at once")

    job = await work.enqueue()
    await drain(app)
    error = (await job.refresh()).error
    assert error is not None
    assert error.kind.endswith("Boom")
    assert error.message == "at once"


@pytest.mark.parametrize("on", ["the loop", "a thread"])
async def test_a_crash_is_final_and_nothing_is_run_again(
    app: Windlass, clock: VirtualClock, on: str
) -> None:
    """A8: attempt 1 of 3."""

    async def on_the_loop() -> None:
        raise SystemExit(1)

    def on_a_thread() -> None:
        raise SystemExit(1)

    work = app.task(max_attempts=3)(on_the_loop if on == "the loop" else on_a_thread)
    job = await work.enqueue()
    assert (await drain_all(app)).ran == 1
    record = await job.refresh()
    assert (record.state, record.attempt) == (State.FAILED, 1)
    assert record.error is not None
    (counts,) = await app.admin.queues.counts()
    assert (counts.ready, counts.scheduled, counts.running, counts.failed) == (0, 0, 0, 1)


async def test_a_crash_is_retried_where_the_task_says_so(
    app: Windlass, clock: VirtualClock
) -> None:
    @app.task(max_attempts=2, on_crash="retry")
    async def work() -> None:
        raise SystemExit(1)

    await work.enqueue()
    assert [run.verb for run in (await drain_all(app)).runs] == ["retry", "fail"]


# --- what listeners hear: Q7 to Q9 ---


async def test_listeners_hear_the_way_to_success(app: Windlass, clock: VirtualClock) -> None:
    """Q7."""

    @app.task
    async def work() -> None: ...

    heard = moves(app)
    await work.enqueue()
    await drain(app)
    assert heard == [("claim", 1), ("succeed", 1)]


async def test_listeners_hear_a_retry_as_a_retry(app: Windlass, clock: VirtualClock) -> None:
    """Q8: no failure in between."""

    @app.task
    async def work() -> None:
        raise ValueError

    heard = moves(app)
    await work.enqueue()
    await drain(app)
    assert heard == [("claim", 1), ("retry", 1)]


async def test_listeners_hear_the_way_to_failure(app: Windlass, clock: VirtualClock) -> None:
    """Q9."""

    @app.task
    async def work() -> None:
        raise GiveUp

    heard = moves(app)
    await work.enqueue()
    await drain(app)
    assert heard == [("claim", 1), ("fail", 1)]


# --- operators: A1, A2, A4, A5 ---


async def test_every_job_is_found_in_its_own_list_and_can_be_operated_on(
    app: Windlass, clock: VirtualClock
) -> None:
    """A1."""
    listed: dict[str, list[str]] = {}

    async def snapshot() -> None:
        for state in State:
            found = await app.admin.jobs.find(JobFilter(states=[state]))
            listed[state] = [job.id for job in found]

    @app.task
    async def work(name: str, user_id: int = 0, request_id: str = "") -> None:
        if name == "fails":
            raise GiveUp("no")
        if name == "looks":
            await snapshot()

    failed = await work.enqueue("fails", user_id=42, request_id="r-1")
    succeeded = await work.enqueue("succeeds")
    await drain(app)
    waiting = await work.options(delay=60).enqueue("later")
    running = await work.enqueue("looks")
    await drain(app)
    assert listed == {
        "waiting": [waiting.id],
        "running": [running.id],
        "succeeded": [succeeded.id],
        "failed": [failed.id],
        "cancelled": [],
        "discarded": [],
    }
    record = await app.admin.jobs.get(failed.id)
    assert (record.principal, record.correlation_id) == ("42", "r-1")
    assert record.error is not None
    assert record.error.message == "no"

    await app.admin.jobs.discard(failed.id)
    assert await app.admin.jobs.cancel(waiting.id) == "cancelled"
    clock.advance(60)
    assert (await drain(app)).ran == 0
    await snapshot()
    assert listed["waiting"] == listed["failed"] == []


async def test_a_requeued_job_keeps_name_and_payload_and_gets_a_new_budget(
    app: Windlass, clock: VirtualClock
) -> None:
    """A2."""

    @app.task(max_attempts=1)
    async def work(name: str) -> None:
        raise ValueError

    job = await work.enqueue("ada")
    await drain(app)
    await app.admin.jobs.requeue(job.id)
    record = await job.refresh()
    assert (record.state, record.task) == (State.WAITING, work.name)
    assert msgspec.json.decode(record.payload) == {"name": "ada"}
    assert record.max_attempts - record.attempt == 1
    (counts,) = await app.admin.queues.counts()
    assert (counts.ready, counts.failed) == (1, 0)


async def test_of_two_requeues_at_once_exactly_one_succeeds(
    app: Windlass, clock: VirtualClock
) -> None:
    """A4, A5."""

    @app.task(max_attempts=1)
    async def work() -> None:
        raise ValueError

    job = await work.enqueue()
    await drain(app)
    answers = await asyncio.gather(
        app.admin.jobs.requeue(job.id), app.admin.jobs.requeue(job.id), return_exceptions=True
    )
    assert sorted(type(answer).__name__ for answer in answers) == ["JobRecord", "WrongState"]
    (counts,) = await app.admin.queues.counts()
    assert (counts.ready, counts.failed) == (1, 0)
