"""What a handler returns or raises, and what becomes of its job."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any, cast

import pytest

from tests.worker import process_app
from tests.worker.fixtures import Bench, bench, logged
from windlass import Backoff, Context, GiveUp, Retry, Snooze, Throttled, Windlass, testing
from windlass._app.parts import parts_of
from windlass._core.job.event import Event, JobMoved
from windlass._core.job.job import JobId, JobRecord, NewJob
from windlass._core.job.state import State, Verb
from windlass._tasks.task import Task
from windlass.errors import JobFailed, ResultTimeout

SECOND = timedelta(seconds=1)

Ends = Callable[[], Any]


def raising(error: BaseException) -> Ends:
    def end() -> None:
        raise error

    return end


def coroutine(app: Windlass, end: Ends, **options: Any) -> Task[..., Any]:
    async def job() -> Any:
        await asyncio.sleep(0)
        return end()

    return app.task(name="job", **options)(job)


def function(app: Windlass, end: Ends, **options: Any) -> Task[..., Any]:
    def job() -> Any:
        return end()

    return app.task(name="job", **options)(job)


Make = Callable[..., Task[..., Any]]
both = pytest.mark.parametrize("make", [coroutine, function], ids=["coroutine", "function"])


async def ended(it: Bench, make: Make, error: BaseException, **options: Any) -> JobRecord:
    return await it.run(make(it.app, raising(error), **options).call())


# --- the ordinary ends ---------------------------------------------------------------------------


@both
async def test_a_returned_value_is_the_result(make: Make) -> None:
    async with bench() as it:
        task = make(it.app, lambda: {"sum": 3})
        job = await task.enqueue()
        assert await it.engine.step() == 1
        assert await job.result() == {"sum": 3}
        record = await job.refresh()
        assert (record.state, record.attempt, record.error) == (State.SUCCEEDED, 1, None)


@both
async def test_an_exception_is_retried_after_the_backoff(make: Make) -> None:
    async with bench() as it:
        backoff = Backoff.fixed(7)
        job = await ended(it, make, ValueError("no such order"), backoff=backoff)
        assert (job.state, job.attempt) == (State.WAITING, 1)
        assert job.due - it.clock.now() == 7 * SECOND
        assert job.error is not None
        assert (job.error.kind, job.error.message) == ("ValueError", "no such order")
        assert "in end" in job.error.traceback
        assert "runner.py" not in job.error.traceback
        (attempt,) = await it.history(job)
        assert attempt.verb is Verb.RETRY


async def test_a_task_without_a_backoff_follows_the_default() -> None:
    async with bench() as it:
        job = await ended(it, coroutine, ValueError("x"))
        assert job.due - it.clock.now() == 5 * SECOND
        job = await it.again(job, 5)
        assert job.due - it.clock.now() == 25 * SECOND


async def test_the_last_attempt_fails_for_good() -> None:
    async with bench() as it:
        job = await ended(it, coroutine, ValueError("x"), max_attempts=2, backoff=Backoff.none())
        assert job.state is State.WAITING
        job = await it.again(job)
        assert (job.state, job.attempt) == (State.FAILED, 2)
        with pytest.raises(JobFailed, match="ValueError: x"):
            await it.app.job(job.id).result()


@both
async def test_retry_without_a_time_follows_the_backoff(make: Make) -> None:
    async with bench() as it:
        job = await ended(it, make, Retry("not yet"), backoff=Backoff.fixed(11))
        assert (job.state, job.attempt) == (State.WAITING, 1)
        assert job.due - it.clock.now() == 11 * SECOND
        assert job.error is not None
        assert job.error.message == "not yet"


@both
async def test_retry_with_a_time_comes_back_then_and_costs_an_attempt(make: Make) -> None:
    async with bench() as it:
        job = await ended(it, make, Retry(after=90))
        assert (job.state, job.attempt) == (State.WAITING, 1)
        assert job.due - it.clock.now() == 90 * SECOND


async def test_retry_on_the_last_attempt_fails_for_good() -> None:
    async with bench() as it:
        job = await ended(it, coroutine, Retry("again", after=90), max_attempts=1)
        assert job.state is State.FAILED


@both
@pytest.mark.parametrize("error", [Snooze(60), Throttled(60)], ids=["snooze", "throttled"])
async def test_asking_for_time_is_free(make: Make, error: BaseException) -> None:
    async with bench() as it:
        job = await ended(it, make, error, max_attempts=1)
        for _ in range(3):
            assert (job.state, job.attempt, job.error) == (State.WAITING, 0, None)
            assert job.due - it.clock.now() == 60 * SECOND
            job = await it.again(job, 60)
        assert job.claim_number == 4


@both
async def test_giving_up_fails_at_once_and_says_why(make: Make) -> None:
    async with bench() as it:
        job = await ended(it, make, GiveUp("the account is closed"))
        assert (job.state, job.attempt) == (State.FAILED, 1)
        assert job.error is not None
        assert job.error.message == "the account is closed"


class Meltdown(BaseException):
    """No ordinary exception."""


CRASHES = [SystemExit(3), KeyboardInterrupt(), Meltdown("core"), GeneratorExit()]


@both
@pytest.mark.parametrize("crash", CRASHES, ids=lambda error: type(error).__name__)
async def test_a_crash_fails_the_job_and_the_worker_lives(make: Make, crash: BaseException) -> None:
    async with bench() as it:
        job = await ended(it, make, crash)
        assert (job.state, job.attempt) == (State.FAILED, 1)
        assert job.error is not None
        assert job.error.kind.endswith(type(crash).__name__)
        assert it.engine.idle
        assert it.engine.slots.free == 10


@both
@pytest.mark.parametrize("crash", CRASHES, ids=lambda error: type(error).__name__)
async def test_a_crash_is_retried_where_the_task_says_so(make: Make, crash: BaseException) -> None:
    async with bench() as it:
        job = await ended(it, make, crash, on_crash="retry")
        assert (job.state, job.attempt) == (State.WAITING, 1)


@both
async def test_a_cancelled_error_of_the_handlers_own_is_an_error_like_any_other(make: Make) -> None:
    async with bench() as it:
        job = await ended(it, make, asyncio.CancelledError("mine"))
        assert (job.state, job.attempt) == (State.WAITING, 1)
        assert job.error is not None
        assert job.error.kind == "asyncio.exceptions.CancelledError"


async def test_a_run_that_other_code_cancels_is_given_back_as_suspect_and_quarantined() -> None:
    async with bench() as it:

        @it.app.task(name="job")
        async def confused() -> None:
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.sleep(0)

        job = await it.run(confused.call())
        assert (job.state, job.attempt, job.lost, job.solo) == (State.WAITING, 0, 1, False)
        assert job.error is not None
        assert job.error.kind == "RunCancelled"
        assert it.engine.idle
        job = await it.again(job)
        assert (job.state, job.attempt, job.lost, job.solo) == (State.WAITING, 0, 2, True)
        job = await it.again(job)
        assert (job.state, job.attempt) == (State.FAILED, 1)
        assert job.error is not None
        assert job.error.kind == "Quarantined"


async def test_cancelling_something_the_handler_awaits_is_no_cancel_of_the_job() -> None:
    async with bench() as it:

        @it.app.task(name="job")
        async def awaits_a_cancelled_future() -> None:
            future = asyncio.get_running_loop().create_future()
            future.cancel()
            await future

        job = await it.run(awaits_a_cancelled_future.call())
        assert job.state is State.WAITING


@both
async def test_stop_iteration_is_an_error_like_any_other(make: Make) -> None:
    async with bench() as it:
        job = await ended(it, make, StopIteration(5))
        assert job.state is State.WAITING
        assert job.error is not None
        assert job.error.kind == "RuntimeError"
        assert "StopIteration" in job.error.message


@pytest.mark.parametrize("kind", [Snooze, lambda after: Retry(after=after)])
async def test_more_time_than_the_calendar_has_is_ten_years(
    kind: Callable[[timedelta], BaseException],
) -> None:
    async with bench() as it:
        job = await ended(it, coroutine, kind(timedelta.max))
        assert job.state is State.WAITING
        assert job.due - it.clock.now() == timedelta(days=3650)


class Careless(Snooze):
    """An instruction that was never properly made."""

    def __init__(self) -> None:
        pass


async def test_an_instruction_that_breaks_is_an_error_like_any_other() -> None:
    async with bench() as it:
        job = await ended(it, coroutine, Careless())
        assert (job.state, job.attempt) == (State.WAITING, 1)
        assert it.engine.slots.used == 0


# --- results that cannot be stored ---------------------------------------------------------------

UNSTORABLE = [object(), math.nan, b"\xff" * 2000, {1j: 2}]


@both
@pytest.mark.parametrize("value", UNSTORABLE, ids=["object", "nan", "large", "odd key"])
async def test_a_result_that_cannot_be_stored_fails_the_job_and_says_so(
    make: Make, value: object
) -> None:
    async with bench(result_limit=1000) as it:
        job = await it.run(make(it.app, lambda: value).call())
        assert (job.state, job.attempt) == (State.FAILED, 1)
        assert job.error is not None
        assert "the result of job" in job.error.message


async def test_a_result_that_does_not_fit_its_annotation_fails_the_job_and_says_so() -> None:
    async with bench() as it:

        @it.app.task(name="count")
        async def count(value: Any) -> int:
            return cast("int", value)

        @it.app.task(name="money")
        async def money() -> Decimal:
            return Decimal("1.50")

        job = await it.run(count.call("seven"))
        assert (job.state, job.attempt) == (State.FAILED, 1)
        assert job.error is not None
        assert "the result of count does not fit its return annotation" in job.error.message
        assert "Expected `int`, got `str`" in job.error.message
        for fits in (count.call(7), count.call(None), money.call()):
            assert (await it.run(fits)).state is State.SUCCEEDED


async def test_a_result_may_be_as_large_as_the_limit() -> None:
    async with bench(result_limit=1000) as it:
        job = await it.run(coroutine(it.app, lambda: "x" * 998).call())
        assert job.state is State.SUCCEEDED


class Moody:
    """Looks like a model, and breaks when it is dumped."""

    def model_dump(self, *, mode: str) -> object:
        raise KeyError(mode)


async def test_a_result_that_breaks_while_it_is_encoded_fails_the_job_and_frees_the_slot() -> None:
    async with bench() as it:
        job = await it.run(coroutine(it.app, Moody).call())
        assert job.state is State.FAILED
        assert it.engine.slots.free == 10


async def test_a_payload_error_of_the_handlers_own_is_retried_like_any_other() -> None:
    async with bench() as it:

        @it.app.task(name="other")
        async def other(number: int) -> None: ...

        @it.app.task(name="job", backoff=Backoff.fixed(3))
        async def enqueues_nonsense() -> None:
            await parts_of(it.app).producer.enqueue_call(other.call("three"))  # type: ignore[arg-type]

        job = await it.run(enqueues_nonsense.call())
        assert (job.state, job.attempt) == (State.WAITING, 1)


# --- calls that cannot be made -------------------------------------------------------------------


async def stored(it: Bench, task: str, payload: bytes) -> JobRecord:
    """A job as an older or a foreign producer may have left it."""
    storage = await parts_of(it.app).storage()
    await storage.jobs.insert([NewJob(id=JobId("0" * 32), task=task, payload=payload)])
    await it.engine.step()
    return await parts_of(it.app).producer.refresh(JobId("0" * 32))


@pytest.mark.parametrize("payload", [b"{", b'{"number": "three"}', b"{}", b'{"other": 1}', b"\xff"])
async def test_a_payload_that_does_not_fit_fails_at_once_and_says_so(payload: bytes) -> None:
    async with bench() as it:

        @it.app.task(name="job")
        async def takes_a_number(number: int) -> None: ...

        job = await stored(it, "job", payload)
        assert (job.state, job.attempt) == (State.FAILED, 1)
        assert job.error is not None
        assert "the stored arguments do not fit" in job.error.message


@dataclass
class Registered:
    """Decoding it runs code of the user's, which may break in any way."""

    name: str

    def __post_init__(self) -> None:
        raise KeyError(self.name)


async def test_arguments_that_break_while_they_are_decoded_end_the_run_and_free_the_slot() -> None:
    async with bench() as it:

        async def takes_a_record(record: Registered) -> None: ...

        takes_a_record.__annotations__ = {"record": Registered}
        it.app.task(name="job")(takes_a_record)
        job = await stored(it, "job", b'{"record": {"name": "x"}}')
        assert job.state is not State.RUNNING
        assert job.error is not None
        assert "KeyError" in job.error.kind
        assert it.engine.idle
        assert it.engine.slots.free == 10


async def test_an_unknown_task_is_released_without_cost_and_tried_later() -> None:
    async with bench() as it:
        job = await stored(it, "newer.task", b"{}")
        assert (job.state, job.attempt) == (State.WAITING, 0)
        assert job.due - it.clock.now() == 15 * SECOND
        assert job.missed_at == it.clock.now()


async def test_a_job_that_waits_for_its_task_says_why_and_the_worker_says_it_once() -> None:
    async with bench() as it:
        moves: list[Event] = []
        it.app.on_transition(moves.append)
        coroutine(it.app, lambda: None)
        with logged() as lines:
            job = await stored(it, "newer.task", b"{}")
            await it.again(job, 16)
            await stored(it, "newer.task", b"{}")
        assert job.error is None
        assert job.missed_why is not None
        assert "newer.task" in job.missed_why
        released = [m for m in moves if isinstance(m, JobMoved) and m.verb is Verb.RELEASE]
        assert [move.error and move.error.message for move in released] == [job.missed_why] * 2
        assert all(move.missed for move in released)
        (line,) = lines.having("this worker has no task 'newer.task' (it has: job)")
        assert "wait for another worker, and fail after 1 d" in line


async def test_an_unknown_task_fails_a_day_after_it_was_first_missed() -> None:
    async with bench() as it:
        job = await stored(it, "newer.task", b"{}")
        job = await it.again(job, timedelta(hours=24) - SECOND)
        assert (job.state, job.attempt) == (State.WAITING, 0)
        job = await it.again(job, 601)
        assert job.state is State.FAILED
        assert job.error is not None
        assert (job.error.kind, job.claim_number) == ("UnknownTask", 3)
        assert "newer.task" in job.error.message


async def test_an_unknown_task_fails_at_once_where_the_app_is_strict() -> None:
    async with bench(missing_task="fail") as it:
        job = await stored(it, "newer.task", b"{}")
        assert job.state is State.FAILED


async def test_a_task_that_becomes_known_runs_and_follows_its_own_backoff() -> None:
    async with bench() as it:
        job = await stored(it, "job", b"{}")
        coroutine(it.app, raising(ValueError("x")), backoff=Backoff.fixed(33))
        job = await it.again(job, 16)
        assert (job.state, job.attempt) == (State.WAITING, 1)
        assert job.due - it.clock.now() == 33 * SECOND
        assert job.missed_at is None


# --- time-outs -----------------------------------------------------------------------------------


async def test_a_coroutine_past_its_timeout_is_cancelled_and_retried() -> None:
    async with bench() as it:
        cleaned: list[bool] = []

        @it.app.task(name="job", timeout=0.01)
        async def slow() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cleaned.append(True)

        job = await it.run(slow.call())
        assert (job.state, job.attempt) == (State.WAITING, 1)
        assert job.error is not None
        assert job.error.kind.endswith("JobTimeout")
        assert job.error.message == "ran longer than its timeout of 0.01 s"
        assert cleaned == [True]


@both
async def test_a_timeout_error_raised_by_the_handler_keeps_its_message(make: Make) -> None:
    async with bench() as it:
        job = await ended(it, make, TimeoutError("the gateway was silent"), timeout=30)
        assert job.error is not None
        assert (job.error.kind, job.error.message) == ("TimeoutError", "the gateway was silent")


async def test_a_timeout_of_something_the_handler_awaits_is_the_handlers_own() -> None:
    async with bench() as it:

        @it.app.task(name="job", timeout=30)
        async def impatient() -> None:
            async with asyncio.timeout(0):
                await asyncio.Event().wait()

        job = await it.run(impatient.call())
        assert job.error is not None
        assert job.error.kind == "TimeoutError"


async def test_a_coroutine_that_shrugs_off_its_timeout_and_returns_has_succeeded() -> None:
    async with bench() as it:

        @it.app.task(name="job", timeout=0.01)
        async def stubborn() -> str:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return "done all the same"
            return "never"

        job = await it.run(stubborn.call())
        assert job.state is State.SUCCEEDED


async def test_the_options_of_a_call_set_its_timeout() -> None:
    async with bench() as it:

        @it.app.task(name="job", timeout=3600)
        async def slow() -> None:
            await asyncio.Event().wait()

        job = await it.run(slow.options(timeout=0.01).call())
        assert job.error is not None
        assert job.error.kind.endswith("JobTimeout")


# --- nothing leaks -------------------------------------------------------------------------------


@both
async def test_every_end_frees_its_slot(make: Make) -> None:
    ends: list[BaseException] = [ValueError("x"), Snooze(1), GiveUp(), SystemExit(1), Retry()]
    for error in ends:
        async with bench() as it:
            await ended(it, make, error)
            assert it.engine.idle
            assert it.engine.slots.used == 0


async def test_an_ordinary_end_logs_no_warning() -> None:
    async with bench() as it:
        with logged() as lines:
            await it.run(coroutine(it.app, lambda: None).call())
        assert [line for line in lines.records if line.levelname != "DEBUG"] == []


async def test_many_kinds_of_ends_in_one_batch_do_not_meet() -> None:
    async with bench(slots=50) as it:

        @it.app.task(name="mixed")
        async def mixed(ctx: Context, kind: int) -> int:
            errors: list[BaseException | None] = [None, ValueError("x"), GiveUp(), SystemExit()]
            if (error := errors[kind % 4]) is not None:
                raise error
            return kind

        jobs = await it.app.enqueue_many([mixed.call(number) for number in range(40)])
        assert await it.engine.step() == 40
        states = [(await job.refresh()).state for job in jobs]
        assert states == [State.SUCCEEDED, State.WAITING, State.FAILED, State.FAILED] * 10


# --- run again later, without raising ------------------------------------------------------------


async def test_a_handler_that_asks_for_later_and_returns_runs_again_at_no_cost() -> None:
    async with bench() as it:
        runs: list[int] = []

        @it.app.task(name="job", max_attempts=1)
        async def job(ctx: Context) -> str:
            runs.append(ctx.attempt)
            if len(runs) == 1:
                ctx.snooze(30)
            return "done"

        record = await it.run(job.call())
        assert (record.state, record.attempt, record.result) == (State.WAITING, 0, None)
        assert record.due - it.clock.now() == timedelta(seconds=30)
        record = await it.again(record, 30)
        assert (record.state, record.result, runs) == (State.SUCCEEDED, b'"done"', [1, 1])


async def test_an_error_counts_more_than_the_wish_to_run_later() -> None:
    async with bench() as it:

        @it.app.task(name="job", max_attempts=1)
        async def job(ctx: Context) -> None:
            ctx.snooze(30)
            raise ValueError

        assert (await it.run(job.call())).state is State.FAILED


@pytest.mark.parametrize("executor", process_app.EXECUTORS)
async def test_every_executor_can_ask_for_later_without_raising(executor: str) -> None:
    app = process_app.app
    with testing.isolated(app) as clock:
        async with app:
            job = await app.tasks[f"{executor}.later"].enqueue()
            async with app.worker(until_empty=True) as worker:
                await worker.wait()
            record = await job.refresh()
            assert (record.attempt, record.due - clock.now()) == (0, timedelta(hours=1))


async def test_a_handler_that_waits_for_a_job_without_a_free_slot_is_warned_of_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    app = Windlass("memory://")

    @app.task(name="child")
    async def child() -> None: ...

    @app.task(name="parent", max_attempts=1)
    async def parent() -> None:
        job = await child.enqueue()
        with suppress(ResultTimeout):
            await job.result(timeout=0.01)

    async with app:
        for slots, warnings in ((3, 0), (1, 1)):
            caplog.clear()
            await app.enqueue_many([parent.call()] * (2 if slots == 1 else 1))
            async with app.worker(slots=slots, until_empty=True) as worker:
                await worker.wait()
            told = [line for line in caplog.messages if "waits for the result of job" in line]
            assert len(told) == warnings
