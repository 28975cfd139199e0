"""Which timeout a run has: its job's, then its task's, then the one of the worker's app."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.worker import process_app
from tests.worker.fixtures import bench, until
from windlass import Backoff, Windlass, testing
from windlass._app.parts import parts_of
from windlass._core.job.event import Event, JobMoved
from windlass._core.job.job import NO_TIMEOUT
from windlass._core.job.state import State, Verb

SHORT, LONG = 0.05, 60.0


def shop(url: str, **settings: Any) -> Windlass:
    app = Windlass(url, **settings)

    @app.task(name="slow", max_attempts=1)
    async def slow() -> None:
        await asyncio.sleep(1)

    return app


async def outcome(url: str, producer: dict[str, Any], worker: dict[str, Any]) -> State:
    """What becomes of a job of one second."""
    async with shop(url, **producer) as app:
        job = await app.tasks["slow"].enqueue()
    async with shop(url, **worker) as app:
        async with app.worker(until_empty=True) as working:
            await working.wait()
        return (await app.job(job.id).refresh()).state


@pytest.mark.parametrize(
    ("producer", "worker", "state"),
    [
        (None, SHORT, State.FAILED),
        (LONG, SHORT, State.SUCCEEDED),
        (SHORT, None, State.FAILED),
    ],
)
async def test_a_job_stored_without_a_timeout_follows_its_worker(
    tmp_path: Path, producer: float | None, worker: float | None, state: State
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    assert await outcome(url, {"timeout": producer}, {"timeout": worker}) is state


async def test_a_task_with_timeout_none_ignores_the_app_timeout() -> None:
    async with bench(timeout=SHORT) as it:

        @it.app.task(timeout=None)
        async def endless() -> None:
            await asyncio.sleep(SHORT * 4)

        @it.app.task(max_attempts=1)
        async def usual() -> None:
            await asyncio.sleep(SHORT * 4)

        done, stopped = await it.run(endless.call()), await it.run(usual.call())
        assert (done.state, done.timeout) == (State.SUCCEEDED, NO_TIMEOUT)
        assert (stopped.state, stopped.timeout) == (State.FAILED, timedelta(seconds=SHORT))
        again = await it.run(endless.options(timeout=SHORT / 2).call())
        assert again.state is State.WAITING  # a call may say otherwise: timed out, to be retried


async def test_a_job_stored_before_its_task_had_a_timeout_has_the_task_s() -> None:
    async with bench() as it:

        async def slow() -> None:
            await asyncio.sleep(60)

        job = await it.app.task(name="slow", max_attempts=1)(slow).enqueue()
        it.app.tasks.remove("slow")
        it.app.task(name="slow", timeout=SHORT)(slow)
        await it.engine.step()
        assert (await job.refresh()).state is State.FAILED


@pytest.mark.parametrize("executor", process_app.EXECUTORS)
async def test_the_worker_s_timeout_holds_in_every_executor(
    executor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = process_app.app
    ends: list[JobMoved] = []

    def note(event: Event) -> None:
        if isinstance(event, JobMoved) and event.verb is not Verb.CLAIM:
            ends.append(event)

    undo: Callable[[], None] = parts_of(app).hooks.bus.subscribe(note)
    try:
        with testing.isolated(app):
            async with app:
                await app.tasks[f"{executor}.hang"].options(max_attempts=1).enqueue()
                short = msgspec.structs.replace(app.settings, timeout=timedelta(seconds=0.3))
                monkeypatch.setattr(parts_of(app), "settings", short)
                async with app.worker(slots=1):
                    await until(lambda: bool(ends), seconds=20)
    finally:
        undo()
    (end,) = ends
    assert (end.verb, end.error and end.error.kind) == (Verb.FAIL, "windlass.errors.JobTimeout")


async def test_tasks_and_queues_without_a_backoff_follow_the_app_s() -> None:
    async with bench(backoff=Backoff.fixed(11)) as it:

        async def fails() -> None:
            raise ValueError

        usual = await it.run(it.app.task(name="usual")(fails).call())
        own = await it.run(it.app.task(name="own", backoff=Backoff.fixed(3))(fails).call())
        waits = [job.due - it.clock.now() for job in (usual, own)]
        assert waits == [timedelta(seconds=11), timedelta(seconds=3)]
        await it.app.admin.queues.set("default", backoff=Backoff.fixed(7))
        queued = await it.run(it.app.task(name="queued")(fails).call())
        assert queued.due - it.clock.now() == timedelta(seconds=7)
