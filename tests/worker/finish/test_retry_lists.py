"""Which exceptions a task's jobs are retried after, wherever its handlers run."""

from __future__ import annotations

import asyncio

import pytest

from tests.worker import process_app
from tests.worker.fixtures import Bench, bench, until
from windlass import Backoff, Retry, Windlass, testing
from windlass._app.parts import parts_of
from windlass._core.job.event import Event, JobMoved
from windlass._core.job.job import JobRecord
from windlass._core.job.state import State, Verb
from windlass.errors import JobTimeout


@pytest.mark.parametrize("executor", process_app.EXECUTORS)
async def test_lists_of_exceptions_hold_in_every_executor(executor: str) -> None:
    app = process_app.app
    task = app.tasks[f"{executor}.picky"]
    ends: dict[str, Verb] = {}

    def note(event: Event) -> None:
        if isinstance(event, JobMoved) and event.error is not None:
            ends[event.error.message] = event.verb

    undo = parts_of(app).hooks.bus.subscribe(note)
    try:
        with testing.isolated(app):
            async with app, app.worker(slots=3):
                await app.enqueue_many(task.call(kind) for kind in ("busy", "refused", "bug"))
                await until(lambda: len(ends) == 3, seconds=20)
    finally:
        undo()
    assert ends == {"busy": Verb.RETRY, "refused": Verb.FAIL, "bug": Verb.FAIL}


async def ended(it: Bench, error: Exception, **options: object) -> JobRecord:
    async def job() -> None:
        raise error

    return await it.run(it.app.task(name="job", **options)(job).call())  # type: ignore[call-overload]


async def test_an_outcome_of_the_handler_overrides_the_retry_lists() -> None:
    async with bench() as it:
        assert (await ended(it, Retry("again"), retry_on=OSError)).state is State.WAITING


async def test_give_up_on_exception_leaves_raise_retry_as_the_only_retry() -> None:
    async with bench() as it:
        assert (await ended(it, Retry("again"), give_up_on=Exception)).state is State.WAITING
    async with bench() as it:
        assert (await ended(it, OSError(), give_up_on=Exception)).state is State.FAILED


async def test_a_timeout_is_an_exception_like_others() -> None:
    async with bench() as it:

        @it.app.task(timeout=0.01, give_up_on=JobTimeout)
        async def slow() -> None:
            await asyncio.sleep(60)

        assert (await it.run(slow.call())).state is State.FAILED


async def test_errors_of_middleware_go_by_the_same_lists() -> None:
    async with bench() as it:

        @it.app.middleware
        async def refuse(ctx: object, call_next: object) -> None:
            raise PermissionError

        @it.app.task(retry_on=ConnectionError)
        async def work() -> None: ...

        assert (await it.run(work.call())).state is State.FAILED


async def test_jobs_wait_for_the_exact_times_their_task_lists() -> None:
    app = Windlass("memory://")

    @app.task(backoff=Backoff.waits([1, 60]), max_attempts=4)
    async def work() -> None:
        raise ValueError

    with testing.isolated(app) as clock:
        start, waits = clock.now(), []
        job = await work.options(backoff=Backoff.waits([2, 3])).enqueue()
        other = await work.enqueue()
        for each in (job, other):
            begun = clock.now()
            await testing.drain(app)
            waits.append((await each.refresh()).due - begun)
        assert [wait.total_seconds() for wait in waits] == [2, 1]
        assert start == clock.now()
        await testing.drain_all(app)
        assert (clock.now() - start).total_seconds() == 121
