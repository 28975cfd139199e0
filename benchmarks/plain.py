"""What `benchmarks.against` runs in processes of their own, on either commit.

Only what an app uses: ``Windlass``, its tasks, ``enqueue_many``, ``app.worker`` and ``app.admin``.
Internals may differ between the two commits, so nothing here may touch them.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path
from typing import Any

import windlass
from benchmarks.child import answer, requests
from benchmarks.limits import LIMITS, TENANTS
from windlass import Windlass

__all__ = ["drain", "located", "produce", "put"]

CHUNK = 1_000
AT_ONCE, BURSTS = 1_000, 5
_LOOK = 0.005


class _App:
    """An app with one task that does nothing but count its runs, with the limits of its kind."""

    def __init__(self, url: str, kind: str = "plain") -> None:
        self.windlass = Windlass(url)
        self.runs = 0
        self._wanted, self._reached = 0, asyncio.Event()

        @self.windlass.task(name="noop", limits=LIMITS[kind])
        async def noop(
            recipient: str,  # noqa: ARG001 -- as large as a real call
            subject: str,  # noqa: ARG001
            template_name: str,  # noqa: ARG001
            user: int,  # noqa: ARG001
        ) -> None:
            self.runs += 1
            if self.runs == self._wanted:
                self._reached.set()

        self.noop = noop

    async def ran(self, count: int) -> None:
        """Wait until ``count`` runs have begun."""
        self._wanted = count
        if self.runs < count:
            await self._reached.wait()

    async def store(self, calls: list[Any]) -> None:
        for start in range(0, len(calls), CHUNK):
            await self.windlass.enqueue_many(calls[start : start + CHUNK])

    async def is_drained(self) -> bool:
        """Say whether no job is ready or running."""
        admin: Any = self.windlass.admin
        # Older commits have ``counts`` on ``app.admin`` itself.
        counts = admin.counts if hasattr(admin, "counts") else admin.queues.counts
        return not any(queue.ready or queue.running for queue in await counts())

    def calls(self, count: int) -> list[Any]:
        return [
            self.noop.call(
                f"{number}@example.com", "Your order is on its way", "shipped", number % TENANTS
            )
            for number in range(count)
        ]


def located() -> str:
    """Name the package that is measured here."""
    return str(Path(str(windlass.__file__)).resolve())


async def put(url: str, jobs: int, kind: str) -> str:
    """Store jobs that do nothing, limited or plain."""
    app = _App(url, kind)
    async with app.windlass:
        await app.store(app.calls(jobs))
    return "done"


async def _load() -> None:
    """Import what a worker needs. Some commits do it with the package, others with the worker."""
    async with Windlass("memory://") as other, other.worker(until_empty=True) as worker:
        await worker.wait()


async def drain(url: str, jobs: int, slots: int, kind: str) -> None:
    """Run all jobs with one worker when asked; answer with the seconds and processor seconds.

    Both are counted from before the worker is made, its registration and threads included, to the
    last stored finish. Its modules are imported before that. Looking for the last finish costs a
    few milliseconds, on both sides alike.
    """
    app = _App(url, kind)
    async with app.windlass:
        await app.is_drained()  # opens the store
        await _load()
        answer("ready")
        asked = requests()
        await anext(asked)
        began, used = time.perf_counter(), time.process_time()
        async with app.windlass.worker(slots=slots):
            await app.ran(jobs)
            while True:
                now, by_now = time.perf_counter(), time.process_time()
                if await app.is_drained():
                    break
                await asyncio.sleep(_LOOK)
            answer({"seconds": now - began, "processor": by_now - used, "runs": app.runs})
            await anext(asked, None)  # the server's time is read before the worker leaves


async def produce(url: str, jobs: int, lone: int) -> dict[str, float]:
    """Answer with jobs per second: one at a time, in bulk, and many single ones at once."""
    app = _App(url)
    async with app.windlass:
        await app.noop.enqueue("a@example.com", "first", "opens the store", 0)
        alone = statistics.median([await _one(app) for _ in range(lone)])
        calls = app.calls(jobs)
        began = time.perf_counter()
        await app.store(calls)
        bulk = time.perf_counter() - began
        bursts = [await _at_once(app) for _ in range(BURSTS)]
    return {"lone": 1 / alone, "bulk": jobs / bulk, "at_once": statistics.median(bursts)}


async def _one(app: _App) -> float:
    began = time.perf_counter()
    await app.noop.enqueue("1@example.com", "Your order is on its way", "shipped", 1)
    return time.perf_counter() - began


async def _at_once(app: _App) -> float:
    began = time.perf_counter()
    await asyncio.gather(
        *(
            app.noop.enqueue(f"{number}@example.com", "Your order is on its way", "shipped", number)
            for number in range(AT_ONCE)
        )
    )
    return AT_ONCE / (time.perf_counter() - began)
