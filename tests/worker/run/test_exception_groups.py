"""Exception groups, as a TaskGroup raises them: what is in them decides, and is stored."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tests.worker import process_app
from tests.worker.fixtures import Bench, bench, until
from windlass import Backoff, GiveUp, Retry, Snooze, Throttled, testing
from windlass._app.parts import parts_of
from windlass._core.job.error_origin import frame_of
from windlass._core.job.event import Event, JobMoved
from windlass._core.job.job import JobRecord
from windlass._core.job.state import State, Verb

SECOND = timedelta(seconds=1)


def group(*errors: Exception) -> ExceptionGroup[Exception]:
    return ExceptionGroup("unhandled errors in a TaskGroup", errors)


async def ended(it: Bench, error: BaseException, **options: Any) -> JobRecord:
    @it.app.task(name="job", backoff=Backoff.fixed(7), **options)
    async def job() -> None:
        raise error

    return await it.run(job.call())


async def verb(it: Bench, job: JobRecord) -> tuple[Verb | str, timedelta]:
    (attempt,) = await it.history(job)
    return attempt.verb, job.due - it.clock.now()


async def test_an_error_of_a_sub_task_is_stored_as_if_the_handler_had_raised_it() -> None:
    async with bench() as it:

        @it.app.task(name="job", max_attempts=1)
        async def job() -> None:
            async def part() -> None:
                error = ValueError("no such customer")
                error.add_note("customer 7")
                raise error from KeyError("seven")

            async with asyncio.TaskGroup() as parts:
                parts.create_task(part())

        record = await it.run(job.call())
        assert record.error is not None
        assert (record.error.kind, record.error.message) == ("ValueError", "no such customer")
        trace = record.error.traceback
        assert "KeyError: 'seven'" in trace
        assert "customer 7" in trace
        assert "ExceptionGroup" in trace
        assert frame_of(trace).endswith(" part")


async def test_a_group_of_several_names_them_also_those_in_groups_inside_it() -> None:
    async with bench() as it:
        error = group(ValueError("a"), group(KeyError("b"), group(OSError("c"))))
        record = await ended(it, error, max_attempts=1)
        assert record.error is not None
        assert record.error.kind == "ExceptionGroup"
        assert record.error.message.endswith(": ValueError: a; KeyError: 'b'; OSError: c")


async def test_a_large_group_names_the_first_and_says_how_many_more() -> None:
    async with bench() as it:
        error = group(*(ValueError(number) for number in range(5000)))
        record = await ended(it, error, max_attempts=1)
        assert record.error is not None
        assert "ValueError: 9; … and 990 more" in record.error.message


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (GiveUp("never"), (Verb.FAIL, 0 * SECOND)),
        (Retry(after=90), (Verb.RETRY, 90 * SECOND)),
        (Throttled(40), (Verb.THROTTLE, 40 * SECOND)),
        (Snooze(30), (Verb.SNOOZE, 30 * SECOND)),
    ],
    ids=lambda given: type(given).__name__,
)
async def test_an_instruction_in_a_group_is_followed(
    error: Exception, expected: tuple[Verb, timedelta], *, nested: bool
) -> None:
    async with bench() as it:
        wrapped = group(group(error)) if nested else group(error)
        assert await verb(it, await ended(it, wrapped)) == expected


ORDINARY = ValueError("x")


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ([Snooze(1), Throttled(2), Retry(after=3), GiveUp(), ORDINARY], Verb.FAIL),
        ([Snooze(100), Throttled(100), Retry(after=3), ORDINARY], (Verb.RETRY, 3 * SECOND)),
        ([Retry(after=3), Retry(), Retry(after=5)], (Verb.RETRY, 5 * SECOND)),
        ([Snooze(100), Throttled(100), ORDINARY], (Verb.RETRY, 7 * SECOND)),
        ([Snooze(100), Throttled(2), Throttled(9)], (Verb.THROTTLE, 9 * SECOND)),
        ([Snooze(3), Snooze(4)], (Verb.SNOOZE, 4 * SECOND)),
    ],
    ids=["give up", "retry", "longest retry", "ordinary", "longest throttle", "longest snooze"],
)
async def test_of_several_the_strongest_decides_and_nothing_free_hides_an_error(
    errors: list[Exception], expected: object
) -> None:
    async with bench() as it:
        found = await verb(it, await ended(it, group(*errors)))
        assert expected in (found, found[0])


async def test_throttled_together_the_queue_cools_down_if_one_says_so() -> None:
    async with bench() as it:
        alone = Throttled(2, cool_queue=False)
        await ended(it, group(alone, Throttled(1)))
        assert (await it.app.admin.queues.get("default")).cool_until is not None
    async with bench() as it:
        await ended(it, group(alone, alone))
        assert (await it.app.admin.queues.get("default")).cool_until is None


@pytest.mark.parametrize(
    ("errors", "lists", "state"),
    [
        ([OSError()], {"retry_on": OSError}, State.WAITING),
        ([OSError(), ORDINARY], {"retry_on": OSError}, State.FAILED),
        ([OSError(), Retry()], {"retry_on": OSError}, State.WAITING),
        ([OSError(), ORDINARY], {"retry_on": ExceptionGroup}, State.WAITING),
        ([OSError(), ORDINARY], {"give_up_on": ValueError}, State.FAILED),
        ([OSError(), Retry(), ORDINARY], {"give_up_on": ValueError}, State.FAILED),
        ([OSError()], {"give_up_on": ValueError}, State.WAITING),
        ([OSError()], {"give_up_on": ExceptionGroup}, State.FAILED),
    ],
)
async def test_lists_of_exceptions_look_into_groups(
    errors: list[Exception], lists: dict[str, Any], state: State
) -> None:
    async with bench() as it:
        assert (await ended(it, group(*errors), **lists)).state is state


async def test_a_base_exception_in_a_group_is_still_a_crash() -> None:
    async with bench() as it:
        error = BaseExceptionGroup("both", [GiveUp("no"), SystemExit(3)])
        record = await ended(it, error)
        assert record.state is State.FAILED
        assert record.error is not None
        assert "SystemExit: 3" in record.error.message


@pytest.mark.parametrize("executor", process_app.EXECUTORS)
async def test_groups_are_looked_into_in_every_executor(executor: str) -> None:
    app = process_app.app
    task = app.tasks[f"{executor}.steer_in_group"]
    ends: dict[str, tuple[Verb, str]] = {}

    def note(event: Event) -> None:
        if isinstance(event, JobMoved) and event.verb is not Verb.CLAIM:
            ends[event.verb] = event.verb, "" if event.error is None else event.error.kind

    undo = parts_of(app).hooks.bus.subscribe(note)
    try:
        with testing.isolated(app):
            async with app, app.worker(slots=3):
                ways = ("snooze", "give up", "retry")
                await app.enqueue_many(task.call(how) for how in ways)
                await until(lambda: len(ends) == 3, seconds=20)
    finally:
        undo()
    assert {*ends.values()} == {
        (Verb.SNOOZE, ""),
        (Verb.FAIL, "windlass.GiveUp"),
        (Verb.RETRY, "windlass.Retry"),
    }
