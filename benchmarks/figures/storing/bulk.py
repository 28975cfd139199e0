"""Bulk on PostgreSQL: ``enqueue_many`` beside raw inserts of the same rows, and pgqueuer's.

One process stores a thousand jobs in each way in turn, so that a slow moment falls on all of them.
Calls and rows are made beforehand. What counts is the median of the seconds of one batch.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable
from itertools import pairwise

from benchmarks.child import run
from benchmarks.figure import Figure, Target, percentile
from benchmarks.stage import Stage
from benchmarks.worker import App, make_calls
from benchmarks.yardsticks import bulk_postgres as raw

__all__ = ["measure", "produce"]

CHUNK, WARM = 1_000, 3
_RAW = {"unnest": "raw insert from arrays", "copy": "raw insert by COPY"}


async def measure(stage: Stage) -> list[Figure]:
    """Return the rate of ``enqueue_many`` against both."""
    sizes, place, listener = stage
    samples: dict[str, list[float]] = {}
    for number in range(1, sizes.rounds + 1):
        listener.step(f"round {number} of {sizes.rounds}")
        with place.scratch() as url:
            found = await run(produce, url=url, batches=sizes.insert_jobs // CHUNK)
        for name, seconds in found.items():
            samples.setdefault(name, []).extend(seconds)
    rates = {name: CHUNK / percentile(seconds, 0.5) for name, seconds in samples.items()}
    best = max(_RAW, key=rates.__getitem__)
    other = next(name for name in _RAW if name != best)
    size = f"{len(samples['enqueue_many'])} batches of {CHUNK:,} in each way, in turn"
    goals = [(best, _RAW[best], 0.8, f"{size}; {_RAW[other]} {rates[other]:,.0f} jobs/s")]
    if "pgqueuer" in rates:
        goals.append(("pgqueuer", "pgqueuer", 1.8, size))
    return [
        Figure(
            name="bulk" if name in _RAW else f"bulk_{name}",
            title=f"enqueue_many, {CHUNK:,} calls at a time",
            measured=rates["enqueue_many"],
            unit="jobs/s",
            yardstick=rates[name],
            yardstick_name=title,
            target=Target("at least", least, "ratio"),
            note=note,
        )
        for name, title, least, note in goals
    ]


async def produce(url: str, batches: int) -> dict[str, list[float]]:
    """Return the seconds of each batch, by the way it was stored."""
    app, count = App(url), WARM + batches
    async with app.windlass:
        await app.noop.enqueue("a@example.com", "first", "makes the tables", 0)
        ways = {"unnest": await raw.unnest(url), "copy": await raw.copy(url)}
        rival = await raw.open_pgqueuer(url)
        if rival is not None:
            ways["pgqueuer"] = rival
        rows = {name: raw.make_batches(count, CHUNK) for name in ways}
        calls = make_calls(app.noop, count * CHUNK)
        samples: dict[str, list[float]] = {name: [] for name in ("enqueue_many", *ways)}
        bounds = range(0, count * CHUNK + 1, CHUNK)
        for number, (start, end) in enumerate(pairwise(bounds)):
            stored = app.windlass.enqueue_many(calls[start:end])
            samples["enqueue_many"].append(await _seconds(stored))
            for name, insert in ways.items():
                samples[name].append(await _seconds(insert(rows[name][number])))
    return {name: seconds[WARM:] for name, seconds in samples.items()}


async def _seconds(work: Awaitable[object]) -> float:
    began = time.perf_counter()
    await work
    return time.perf_counter() - began
