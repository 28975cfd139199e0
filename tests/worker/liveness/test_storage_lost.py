"""A database that was deleted or replaced never comes back: the worker ends, and says so once."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.worker.fixtures import Hook, World, logged, make_worker, simulate
from windlass import Windlass
from windlass._worker.worker import StopReason
from windlass.errors import StorageReplaced

FINDERS = ["workers.beat", "jobs.claim", "jobs.apply", "leader.lead", "workers.live"]


@pytest.mark.parametrize("finder", FINDERS)
def test_whoever_finds_the_store_replaced_ends_the_worker(finder: str) -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="job")
        async def job(seconds: float) -> None:
            await asyncio.sleep(seconds)

        async def replaced(_call: Hook, *_: Any, **__: Any) -> Any:
            raise StorageReplaced("jobs.db was replaced.")

        store = await world.tampered()
        worker = await make_worker(world.app, store=store)
        running = asyncio.create_task(worker.run())
        await world.until(0.5)
        await job.enqueue(1000.0)
        await world.until(10)
        await job.enqueue(1.0)
        with logged() as lines:
            for operation in (finder, "workers.leave", "leader.resign"):
                store.on(operation, replaced)
            await job.enqueue(0.5)
            assert await running is StopReason.STORAGE_LOST
        assert world.loop.time() < 20
        (line,) = [r for r in lines.records if r.levelname == "ERROR"]
        assert "restart it" in line.getMessage()
        assert "jobs.db was replaced." in line.getMessage()
        assert await worker.wait() is StopReason.STORAGE_LOST

    simulate(scenario, grace=600)


def test_a_worker_that_was_asked_to_stop_says_when_its_store_is_lost_meanwhile() -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="job")
        async def job() -> None:
            await asyncio.sleep(30)

        async def replaced(_call: Hook, *_: Any, **__: Any) -> Any:
            raise StorageReplaced("jobs.db was replaced.")

        store = await world.tampered()
        worker = await make_worker(world.app, store=store)
        running = asyncio.create_task(worker.run())
        await job.enqueue()
        await world.until(1)
        worker.stop()
        store.on("workers.beat", replaced)
        assert await running is StopReason.STORAGE_LOST
        assert world.loop.time() < 10

    simulate(scenario, grace=60)


async def test_a_worker_whose_database_is_deleted_ends_by_itself(tmp_path: Path) -> None:
    path = tmp_path / "jobs.db"
    async with Windlass(f"sqlite:///{path}") as app:
        worker = await make_worker(app, simulated=False)
        running = asyncio.create_task(worker.run())
        await worker.started.wait()
        for file in tmp_path.glob("jobs.db*"):
            if file.is_file():
                file.unlink()
        async with asyncio.timeout(15):
            assert await running is StopReason.STORAGE_LOST
