"""``isolated``: another storage, another clock, and everything back as it was."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from windlass import Backoff, Windlass
from windlass._core.job.state import State
from windlass.errors import ConfigError, JobNotFound
from windlass.testing import VirtualClock, drain, drain_sync, enqueued, inline, isolated


async def test_no_file_is_touched(app: Windlass, file: Path) -> None:
    @app.task
    async def work() -> None: ...

    with isolated(app):
        await work.enqueue()
        assert (await drain(app)).succeeded == 1
    assert not file.exists()


async def test_the_clock_given_is_the_one_the_jobs_live_by(app: Windlass) -> None:
    @app.task
    async def work() -> None: ...

    clock = VirtualClock(datetime(2031, 5, 1, tzinfo=UTC))
    with isolated(app, clock=clock) as yielded:
        assert yielded is clock
        job = await work.options(delay=60).enqueue()
        assert (await job.refresh()).due == datetime(2031, 5, 1, 0, 1, tzinfo=UTC)


async def test_nothing_is_left_for_the_next_isolation(app: Windlass) -> None:
    @app.task
    async def work() -> None: ...

    with isolated(app):
        job = await work.enqueue()
    with isolated(app):
        assert await enqueued(app) == []
        with pytest.raises(JobNotFound):
            await job.refresh()


async def test_an_isolation_inside_another_hides_it_for_a_while(app: Windlass) -> None:
    @app.task
    async def work(number: int) -> None: ...

    with isolated(app):
        await work.enqueue(1)
        with isolated(app):
            await work.enqueue(2)
            assert [job.arguments for job in await enqueued(app)] == [{"number": 2}]
        assert [job.arguments for job in await enqueued(app)] == [{"number": 1}]


async def test_the_storage_comes_back_after_an_error() -> None:
    app = Windlass("memory://")

    @app.task
    async def work() -> None: ...

    job = await work.enqueue()
    with pytest.raises(ZeroDivisionError), isolated(app):
        raise ZeroDivisionError
    assert (await job.refresh()).state is State.WAITING


def test_the_state_given_to_handlers_comes_back(app: Windlass) -> None:
    app.state = "real"
    with isolated(app):
        app.state = "fake"
    assert app.state == "real"


async def test_a_spread_backoff_waits_exactly_what_its_curve_says(
    app: Windlass, clock: VirtualClock
) -> None:
    @app.task(backoff=Backoff.exponential(first=10, factor=3, jitter="spread"))
    async def work() -> None:
        raise ValueError

    job = await work.enqueue()
    await drain(app)
    assert (await job.refresh()).due == clock.now() + timedelta(seconds=10)


def test_every_event_loop_of_a_test_sees_the_same_jobs(app: Windlass, clock: VirtualClock) -> None:
    ran: list[int] = []

    @app.task
    async def work(number: int) -> None:
        ran.append(number)

    asyncio.run(work.enqueue(1))
    work.enqueue_sync(2)
    assert drain_sync(app).succeeded == 2
    assert ran == [1, 2]


async def test_a_worker_inside_an_isolation_works_on_its_jobs(
    app: Windlass, clock: VirtualClock
) -> None:
    @app.task
    async def work() -> str:
        return "done"

    async with app.worker():
        job = await work.enqueue()
        assert await job.result(timeout=30) == "done"


async def test_a_real_storage_is_not_drained(app: Windlass, file: Path) -> None:
    with pytest.raises(ConfigError, match=r"with windlass\.testing\.isolated\(app\)"):
        await drain(app)
    assert not file.exists()


@pytest.mark.parametrize("context", [isolated, inline])
async def test_async_with_gets_advice_to_use_a_plain_with(app: Windlass, context: Any) -> None:
    with pytest.raises(TypeError, match=rf"write `with {context.__name__}\(app\):`"):
        async with context(app):
            pytest.fail("entered")
