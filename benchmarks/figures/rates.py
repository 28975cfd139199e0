"""Rates: what one idle worker starts of 1, 10, 100 and 1,000 a second.

More jobs than the rate lets through wait behind it, a worker with 200 slots serves them, and the
starts are counted, by their handlers, from the first one on: what the bucket held at first does
not count.
"""

from __future__ import annotations

import asyncio
import math
import time

from benchmarks.child import run
from benchmarks.figure import Figure, Target
from benchmarks.stage import Stage
from windlass import Limit, Rate, Windlass

__all__ = ["measure", "start_metered"]

RATES = (1, 10, 100, 1_000)
CHUNK, SLOTS = 1_000, 200


async def measure(stage: Stage) -> list[Figure]:
    """Each rate in a place of its own, one after the other."""
    sizes, place, listener = stage
    figures: list[Figure] = []
    for n in RATES:
        listener.step(f"{n:,} a second for {sizes.rate_seconds:g} s")
        with place.scratch() as url:
            delivered = await run(start_metered, url=url, n=n, seconds=sizes.rate_seconds)
        figures.append(
            Figure(
                name=f"rate_{n}",
                title=f"starts under a rate of {n:,} a second",
                measured=delivered,
                unit="jobs/s",
                yardstick=float(n),
                yardstick_name="the rate",
                target=Target("at least", 0.95, "ratio"),
                note=f"a burst of {Rate(n, per=1).burst:,}, {SLOTS} slots",
            )
        )
    return figures


async def start_metered(url: str, n: int, seconds: float) -> float:
    """Measure starts per second under a rate."""
    app, rate, starts = Windlass(url), Rate(n, per=1), list[float]()

    @app.task(name="metered", limits=[Limit("api", rate=rate)])
    async def metered() -> None:
        starts.append(time.monotonic())

    async with app:
        calls = [metered.call()] * (math.ceil(n * (seconds + 1)) + rate.burst)
        for first in range(0, len(calls), CHUNK):
            await app.enqueue_many(calls[first : first + CHUNK])
        async with app.worker(slots=SLOTS):
            while not starts:  # noqa: ASYNC110 -- nobody tells
                await asyncio.sleep(0.001)
            await asyncio.sleep(seconds)
    seen = [start - starts[0] for start in starts if start - starts[0] < seconds]
    return (len(seen) - rate.burst + 1) / seconds
