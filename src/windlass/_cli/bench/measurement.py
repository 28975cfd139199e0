"""Measurement for ``windlass bench``: one storage, from an enqueue to a finished job."""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import msgspec

from windlass._app.parts import parts_of
from windlass._cli.bench.worker import QUEUE, BenchApp
from windlass._system.seams import monotonic
from windlass.errors import ConfigError, StorageError

__all__ = ["BenchResult", "BenchSizes", "measure"]

SLOTS = 200
CHUNK = 1_000
_LOOK = 0.005
_PATIENCE, _STOPPING = 60.0, 15.0


class BenchSizes(msgspec.Struct, frozen=True, kw_only=True):
    """How much of everything."""

    jobs: int
    singles: int = 200
    pickups: int = 10
    idle_seconds: float = 1.0


class BenchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The results: jobs per second, and milliseconds."""

    enqueue_many: float
    enqueue_p50_ms: float
    enqueue_p99_ms: float
    drain: float
    pickup_p50_ms: float
    pickup_worst_ms: float
    across_processes: bool
    """Whether the pick-up was between two processes: memory:// has only one."""
    storage: str


ReportStep = Callable[[str], None]


async def measure(
    url: str, sizes: BenchSizes, say: ReportStep, *, keep: bool, force: bool
) -> BenchResult:
    """Run all measurements, one after the other. Each step is reported to ``say``."""
    starts: asyncio.Queue[float] = asyncio.Queue()
    bench = BenchApp(url, keep=keep, on_pick_up=starts.put_nowait)
    app = bench.app
    async with app:
        storage = await parts_of(app).storage()
        if not force:
            await _require_empty(bench)
        say(f"enqueueing {sizes.jobs:,} jobs, {CHUNK:,} at a time")
        stored = await _enqueue_many(bench, sizes.jobs)
        say(f"enqueueing {sizes.singles:,} jobs one by one")
        singles = [await _enqueue_one(bench) for _ in range(sizes.singles)]
        say(f"running them, {SLOTS} at once")
        drained = await _drain(bench, sizes.jobs + sizes.singles)
        say(f"waking an idle worker {sizes.pickups} times")
        async with _elsewhere(url, starts.put_nowait) if storage.shared else app.worker():
            pickups = []
            for _ in range(sizes.pickups):
                await asyncio.sleep(sizes.idle_seconds)
                pickups.append(await _pick_up(bench, starts))
        return BenchResult(
            enqueue_many=stored,
            enqueue_p50_ms=statistics.median(singles) * 1000,
            enqueue_p99_ms=_late(singles) * 1000,
            drain=drained,
            pickup_p50_ms=statistics.median(pickups) * 1000,
            pickup_worst_ms=max(pickups) * 1000,
            across_processes=storage.shared,
            storage=storage.describe(),
        )


async def _require_empty(bench: BenchApp) -> None:
    counts = await bench.app.admin.queues.counts()
    held = sum(
        queue.ready
        + queue.scheduled
        + queue.running
        + queue.succeeded
        + queue.failed
        + queue.cancelled
        + queue.discarded
        for queue in counts
    )
    if held:
        message = (
            f"this storage already holds jobs ({held:,}), and measuring would slow their users "
            f"down. Name an empty one, or say --force: then it measures on the queue {QUEUE!r} "
            f"and leaves every other job alone."
        )
        raise ConfigError(message)


async def _enqueue_many(bench: BenchApp, jobs: int) -> float:
    calls = [
        bench.noop.call(f"{number}@example.com", "Your order is on its way", "shipped", number)
        for number in range(jobs)
    ]
    began = monotonic()
    for start in range(0, jobs, CHUNK):
        await bench.app.enqueue_many(calls[start : start + CHUNK])
    return jobs / (monotonic() - began)


async def _enqueue_one(bench: BenchApp) -> float:
    began = monotonic()
    await bench.noop.enqueue("one@example.com", "Your order is on its way", "shipped", 1)
    return monotonic() - began


async def _drain(bench: BenchApp, jobs: int) -> float:
    """Measure from the moment before the worker starts to the last stored finish."""
    began = monotonic()
    async with bench.app.worker(slots=SLOTS) as worker:
        counts = worker.engine.finisher.counts
        while counts["succeed"] < jobs:  # noqa: ASYNC110 -- no event tells, and polling is cheap
            await asyncio.sleep(_LOOK)
        return jobs / (monotonic() - began)


async def _pick_up(bench: BenchApp, starts: asyncio.Queue[float]) -> float:
    asked = monotonic()
    await bench.pick_up.enqueue()
    async with asyncio.timeout(_PATIENCE):
        return await starts.get() - asked


@asynccontextmanager
async def _elsewhere(url: str, on_pick_up: Callable[[float], None]) -> AsyncIterator[None]:
    """Run a worker in another process, as long as the block lasts."""
    # By the environment: a URL may hold a password, and command lines are seen by everybody.
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "windlass._cli.bench.worker"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "WINDLASS_URL": url},
    )
    assert process.stdin is not None  # noqa: S101 -- asked for above
    assert process.stdout is not None  # noqa: S101
    listening = None
    try:
        async with asyncio.timeout(_PATIENCE):
            ready = await process.stdout.readline()
        if not ready:
            message = "the worker process of the measurement ended before it was ready"
            raise StorageError(message)
        listening = asyncio.create_task(_listen(process.stdout, on_pick_up))
        yield
    finally:
        with suppress(ConnectionError):
            process.stdin.close()
        try:
            async with asyncio.timeout(_STOPPING):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
        if listening is not None:
            await listening


async def _listen(stream: asyncio.StreamReader, on_pick_up: Callable[[float], None]) -> None:
    async for line in stream:
        on_pick_up(float(line))


def _late(seconds: Sequence[float]) -> float:
    """Return the 99th percentile."""
    return sorted(seconds)[max(0, -(-99 * len(seconds) // 100) - 1)]
