"""Enqueue: how fast jobs are stored, by the thousand and one by one.

All in one fresh process per round. ``enqueue_many`` stores calls that were made beforehand, a
thousand at a time; the yardstick is `yardsticks.bare.insert`, the better of two raw batched
inserts into a table with the same indexes, rows made beforehand. Single enqueues follow one
another, each awaited and synced to the disk. Then a thousand are awaited at once, a few times over;
they make their calls themselves, so they are held against ``enqueue_many`` with that included.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from typing import Any

from benchmarks.child import run
from benchmarks.figure import Figure, Target, percentile
from benchmarks.stage import Rounds, Stage, alternate
from benchmarks.worker import App, make_calls, store
from benchmarks.yardsticks import bare

__all__ = ["measure", "produce"]

AT_ONCE, BURSTS = 1_000, 5


async def measure(stage: Stage) -> list[Figure]:
    """Bulk, single and concurrent enqueues."""
    sizes, place, listener = stage
    jobs, answers = sizes.insert_jobs, []

    async def bulk() -> float:
        with place.scratch() as url:
            answers.append(await run(produce, url=url, jobs=jobs, singles=sizes.single_enqueues))
        return float(answers[-1]["bulk"])

    async def raw() -> float:
        return float(await run(bare.insert, jobs=jobs))

    rounds = await alternate(sizes.rounds, {"raw insert": raw, "enqueue_many": bulk}, listener)
    singles = [sample for answer in answers for sample in answer["singles"]]
    others = Rounds({k: [a[k] for a in answers] for k in ("with_calls", "at_once")})
    return [
        Figure(
            name="enqueue_many",
            title="enqueue_many",
            measured=rounds["enqueue_many"],
            unit="jobs/s",
            yardstick=rounds["raw insert"],
            yardstick_name="raw insert",
            target=Target("at least", 0.60, "ratio"),
            note=f"{jobs:,} jobs, 1,000 a call; {rounds.spread('enqueue_many')}",
        ),
        Figure(
            name="enqueue_many_with_calls",
            title="enqueue_many, making the calls included",
            measured=others["with_calls"],
            unit="jobs/s",
            yardstick=rounds["raw insert"],
            yardstick_name="raw insert",
            note="arguments checked and encoded",
        ),
        *_single(singles),
        Figure(
            name="enqueue_at_once",
            title=f"{AT_ONCE:,} single enqueues at once",
            measured=others["at_once"],
            unit="jobs/s",
            yardstick=others["with_calls"],
            yardstick_name="enqueue_many",
            target=Target("at least", 0.50, "ratio"),
            note=f"making the calls included on both sides; "
            f"{others['at_once'] / rounds['enqueue_many']:.2f} of calls made beforehand; "
            f"{others.spread('at_once')}",
        ),
    ]


def _single(seconds: list[float]) -> list[Figure]:
    note = f"{len(seconds):,} in a row, each synced to the disk"
    return [
        Figure(
            name="enqueue_p50",
            title="single enqueue, p50",
            measured=percentile(seconds, 0.50) * 1000,
            unit="ms",
            note=note,
        ),
        Figure(
            name="enqueue_p99",
            title="single enqueue, p99",
            measured=percentile(seconds, 0.99) * 1000,
            unit="ms",
            target=Target("under", 5.0),
            note=f"{note}; the slowest {max(seconds) * 1000:.1f} ms",
        ),
    ]


async def produce(url: str, jobs: int, singles: int) -> dict[str, Any]:
    """Everything that one process measures in one round."""
    app = App(url)
    async with app.windlass:
        await app.noop.enqueue("a@example.com", "first", "opens the file", 0)
        before = time.perf_counter()
        calls = make_calls(app.noop, jobs)
        began = time.perf_counter()
        await store(app.windlass, calls)
        end = time.perf_counter()
        one_by_one = [await _one(app) for _ in range(singles)]
        bursts = [await _at_once(app) for _ in range(BURSTS)]
    return {
        "bulk": jobs / (end - began),
        "with_calls": jobs / (end - before),
        "singles": one_by_one,
        "at_once": statistics.median(bursts),
    }


async def _one(app: App) -> float:
    began = time.perf_counter()
    await app.noop.enqueue("1@example.com", "Your order is on its way", "shipped", 1)
    return time.perf_counter() - began


async def _at_once(app: App) -> float:
    began = time.perf_counter()
    await asyncio.gather(
        *(
            app.noop.enqueue(f"{number}@example.com", "Your order is on its way", "shipped", number)
            for number in range(AT_ONCE)
        )
    )
    return AT_ONCE / (time.perf_counter() - began)
