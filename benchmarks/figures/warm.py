"""Warm latency: from enqueue in one process to the handler's first line in another that is warm.

Jobs come one after the other, at uneven distances, to a worker that has nothing else to do.
The yardstick (`benchmarks.yardsticks.handover`) takes its turn after every job, in other processes
and another place.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import AsyncExitStack

from benchmarks.child import child
from benchmarks.figure import Figure, Target, percentile
from benchmarks.figures.latency import knock
from benchmarks.place import Backend
from benchmarks.stage import Stage
from benchmarks.worker import fill, serve
from benchmarks.yardsticks import handover, pgqueuer

__all__ = ["measure"]

_MOST: dict[Backend, float] = {"sqlite": 2.0, "postgres": 0.8, "redis": 1.2}
_SLOTS, _WARM = 10, 10
_PAUSE, _UNEVEN = 0.02, 0.08


async def measure(stage: Stage) -> list[Figure]:
    """Measure jobs and messages of the yardstick in turn."""
    sizes, place, listener = stage
    if place.backend == "postgres" and not pgqueuer.is_here():
        return []
    count = _WARM + sizes.warm_samples
    with place.scratch() as url, place.scratch() as other:
        await fill(place, url, lambda _: ())
        if place.backend == "sqlite":
            await fill(place, other, lambda _: ())  # the same table
        async with AsyncExitStack() as stack:
            worker = await stack.enter_async_context(child(serve, url=url, slots=_SLOTS))
            producer = await stack.enter_async_context(child(knock, url=url))
            taker = await stack.enter_async_context(child(handover.take, url=other))
            for each in (worker, producer, taker):
                await each.hear()
            giver = await stack.enter_async_context(child(handover.give, url=other))
            await giver.hear()
            await worker.ask("start")
            for number in range(1, count + 1):
                listener.step(f"{number} of {count}")
                for sender in (producer, giver):
                    await asyncio.sleep(_PAUSE + _UNEVEN * random.random())
                    await sender.ask("send")
            await worker.ask({"finished": count})
            ours: list[float] = await worker.ask("picked up")
            theirs: list[float] = await taker.ask("picked up")
    return [_figure(place.backend, handover.name_of(url), ours[_WARM:], theirs[_WARM:])]


def _figure(backend: Backend, yardstick: str, ours: list[float], theirs: list[float]) -> Figure:
    return Figure(
        name="warm_latency",
        title="warm latency between processes, p50",
        measured=percentile(ours, 0.5) * 1000,
        unit="ms",
        yardstick=percentile(theirs, 0.5) * 1000,
        yardstick_name=yardstick,
        target=Target("at most", _MOST[backend], "ratio"),
        note=f"{len(ours):,} of each in turn; p99 {percentile(ours, 0.99) * 1000:.1f} ms against "
        f"{percentile(theirs, 0.99) * 1000:.1f} ms",
    )
