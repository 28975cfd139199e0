"""``job.cancel()``: what it answers, and what becomes of the job."""

from __future__ import annotations

import asyncio
import threading

import pytest

from windlass import Context, Windlass
from windlass._core.job.state import State
from windlass._storage.protocol.jobs import CancelAnswer
from windlass.errors import JobCancelled


async def test_a_waiting_job_is_cancelled_at_once(app: Windlass) -> None:
    @app.task
    async def work() -> None: ...

    job = await work.enqueue()
    later = await work.options(delay=3600).enqueue()
    assert await job.cancel() is CancelAnswer.CANCELLED
    assert await later.cancel() is CancelAnswer.CANCELLED
    assert (await job.refresh()).state is State.CANCELLED


async def test_a_job_that_has_ended_or_is_unknown_cannot_be_cancelled(app: Windlass) -> None:
    @app.task
    async def work() -> None: ...

    job = await work.enqueue()
    async with app.worker():
        await job.result(timeout=30)
    assert await job.cancel() is CancelAnswer.TOO_LATE
    assert await app.job("0" * 32).cancel() is CancelAnswer.UNKNOWN
    assert (await job.refresh()).state is State.SUCCEEDED


async def test_a_running_coroutine_is_cancelled(app: Windlass) -> None:
    started = asyncio.Event()
    undone: list[str] = []

    @app.task
    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            undone.append("tidied up")

    async with app.worker():
        job = await work.enqueue()
        await started.wait()
        assert await job.cancel() is CancelAnswer.REQUESTED
        with pytest.raises(JobCancelled):
            await job.result(timeout=30)
    assert undone == ["tidied up"]


async def test_a_running_thread_is_asked_to_end(app: Windlass) -> None:
    started = threading.Event()

    @app.task
    def work(ctx: Context) -> None:
        started.set()
        assert ctx.cancelled.wait(10)
        raise RuntimeError("stopped half-way")

    async with app.worker():
        job = await work.enqueue()
        assert await asyncio.to_thread(started.wait, 10)
        assert await job.cancel() is CancelAnswer.REQUESTED
        with pytest.raises(JobCancelled):
            await job.result(timeout=30)


async def test_success_wins_over_a_request(app: Windlass) -> None:
    started = asyncio.Event()

    @app.task
    async def work() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "finished anyway"
        raise AssertionError

    async with app.worker():
        job = await work.enqueue()
        await started.wait()
        await job.cancel()
        assert await job.result(timeout=30) == "finished anyway"


async def test_a_retry_gives_way_to_a_request(app: Windlass) -> None:
    @app.task
    async def work(ctx: Context) -> None:
        assert await app.job(ctx.job_id).cancel() is CancelAnswer.REQUESTED
        raise ValueError("would be retried")

    async with app.worker():
        job = await work.enqueue()
        with pytest.raises(JobCancelled):
            await job.result(timeout=30)
    assert (await job.refresh()).attempt == 1
