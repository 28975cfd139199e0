"""Idle latency: from enqueue in one process to the handler's first line in another.

Both processes are idle for at least two seconds before every enqueue; the pauses are uneven, so
that they do not keep step with anything periodic. The clock starts before ``await enqueue``, its
sync to the disk included, and is read again by the handler. Over the same minutes the processor
time of all threads of the worker process is taken from the kernel.
"""

from __future__ import annotations

import asyncio
import random
import time

from benchmarks.child import answer, child, processor_seconds, requests
from benchmarks.figure import Figure, Target, percentile
from benchmarks.place import Backend
from benchmarks.stage import Stage
from benchmarks.worker import App, fill, serve

__all__ = ["knock", "measure"]

_LATEST: dict[Backend, float] = {"sqlite": 15.0, "postgres": 20.0, "redis": 20.0}
"""What is asked of the 99th percentile, in milliseconds."""
UNEVEN = 0.5
"""The longest that a pause exceeds the asked idleness, in seconds."""


async def measure(stage: Stage) -> list[Figure]:
    """Measure the latencies, and the cost of waiting for them."""
    sizes, place, listener = stage
    with place.scratch() as url:
        await fill(place, url, lambda _: ())
        async with child(serve, url=url, slots=10) as worker, child(knock, url=url) as producer:
            await worker.hear()
            await worker.ask("start")
            await producer.hear()
            await asyncio.sleep(sizes.idle_seconds)
            used, since = processor_seconds(worker.pid), time.monotonic()
            for number in range(1, sizes.latency_samples + 1):
                listener.step(f"idle, {number} of {sizes.latency_samples}")
                await asyncio.sleep(sizes.idle_seconds + UNEVEN * random.random())
                await producer.ask("enqueue")
                await worker.ask({"finished": number})
            used = processor_seconds(worker.pid) - used
            waited = time.monotonic() - since
            seconds: list[float] = await worker.ask("picked up")
    return _figures(seconds, used / waited, waited, late=_LATEST[place.backend])


def _figures(seconds: list[float], share: float, waited: float, *, late: float) -> list[Figure]:
    middle, latest = (percentile(seconds, share) * 1000 for share in (0.50, 0.99))
    return [
        Figure(
            name="latency_p50",
            title="idle latency between processes, p50",
            measured=middle,
            unit="ms",
            target=Target("at most", 5.0),
            note=f"{len(seconds)} enqueues after 2 s of idleness and more",
        ),
        Figure(
            name="latency_p99",
            title="idle latency between processes, p99",
            measured=latest,
            unit="ms",
            target=Target("at most", late),
            note=f"the slowest {max(seconds) * 1000:.1f} ms",
        ),
        Figure(
            name="idle_processor",
            title="processor of the idle worker, all threads",
            measured=share * 100,
            unit="% of a core",
            target=Target("under", 1.0),
            note=f"over the same {waited:,.0f} s",
        ),
    ]


async def knock(url: str) -> None:
    """Enqueue one job whenever asked."""
    app = App(url)
    async with app.windlass:
        answer("ready")
        async for _ in requests():
            await app.pick_up.enqueue(time.monotonic())
            answer("done")
