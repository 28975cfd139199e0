"""``on_lost="fail"`` with one attempt: whatever ends the run early, the handler is entered once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from windlass import Failure, Job, Windlass
from windlass._core.job.job import JobRecord
from windlass._core.job.state import State


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    match request.param:
        case "memory":
            return "memory://"
        case "sqlite":
            return f"sqlite:///{tmp_path}/jobs.db"
        case name:
            return str(request.getfixturevalue(f"{name}_url"))


async def run_until_told(
    app: Windlass, enqueue: Callable[[], Awaitable[Job[None]]], entered: threading.Event
) -> JobRecord:
    """Stop one worker in the middle of the run, then let another one do what is left."""
    told: list[str] = []

    @app.task(name="tell")
    async def tell(failure: Failure) -> None:
        told.append(failure.job_id)

    async with app:
        job = await enqueue()
        async with app.worker():
            await asyncio.to_thread(entered.wait, 10)
        async with app.worker(until_empty=True) as last:
            await last.wait()
        assert told == [job.id]
        return await job.refresh()


async def test_a_coroutine_that_outlasts_the_grace_of_its_worker_fails(url: str) -> None:
    app, runs, entered = Windlass(url, grace=0.01), [0], threading.Event()

    @app.task(name="pay", max_attempts=1, on_lost="fail", on_failure="tell")
    async def pay() -> None:
        runs[0] += 1
        entered.set()
        await asyncio.sleep(60)

    record = await run_until_told(app, pay.enqueue, entered)
    assert (record.state, record.attempt, runs) == (State.FAILED, 1, [1])
    assert record.error is not None
    assert record.error.kind == "Interrupted"


async def test_a_thread_that_outlasts_the_grace_of_its_worker_fails(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass._worker.shutdown._UNWIND", 0.05)
    app, runs, entered, go = Windlass(url, grace=0.01), [0], threading.Event(), threading.Event()

    @app.task(name="pay", max_attempts=1, on_lost="fail", on_failure="tell")
    def pay() -> None:
        runs[0] += 1
        entered.set()
        go.wait(60)

    record = await run_until_told(app, pay.enqueue, entered)
    go.set()
    assert (record.state, record.attempt, runs) == (State.FAILED, 1, [1])


async def test_a_run_that_other_code_cancels_fails(url: str) -> None:
    app, runs, entered = Windlass(url), [0], threading.Event()

    @app.task(name="pay", max_attempts=5, on_lost="fail", on_failure="tell")
    async def pay() -> None:
        runs[0] += 1
        entered.set()
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(60)

    record = await run_until_told(app, pay.enqueue, entered)
    assert (record.state, record.lost, runs) == (State.FAILED, 1, [1])
    assert record.error is not None
    assert record.error.kind == "RunCancelled"


async def test_the_end_of_a_program_that_runs_a_worker_fails_it(url: str) -> None:
    app, runs, entered = Windlass(url, grace=0.1), [0], threading.Event()

    @app.task(name="pay", max_attempts=1, on_lost="fail")
    async def pay() -> None:
        runs[0] += 1
        entered.set()
        await asyncio.sleep(60)

    async def program() -> None:
        async with app.worker():
            await asyncio.sleep(60)

    async with app:
        job = await pay.enqueue()
        running = asyncio.ensure_future(program())
        await asyncio.to_thread(entered.wait, 10)
        running.cancel()
        await asyncio.wait([running])
        assert (await job.refresh()).state is State.FAILED
        async with app.worker(until_empty=True) as last:
            await last.wait()
    assert runs == [1]
