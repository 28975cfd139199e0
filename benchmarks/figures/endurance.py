"""Endurance: what hundreds of thousands of finished jobs leave behind must not slow the next ones.

Every job is written twice on its way, and on PostgreSQL the old versions of its row stay until they
are vacuumed. So many jobs are stored, one worker drains them without a pause, and the time that the
last tenth took is held against that of the first, the worker's start included. Whatever
maintenance runs meanwhile, the server's own and ours, takes its time from the same clock.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from benchmarks.child import Child, child, processor_seconds
from benchmarks.figure import Figure, Target
from benchmarks.figures.drain import SLOTS
from benchmarks.place import Place
from benchmarks.stage import Stage
from benchmarks.worker import App, fill, make_calls, serve
from windlass._tasks.task import Call

__all__ = ["measure"]

PORTIONS = 10


async def measure(stage: Stage) -> list[Figure]:
    """The first and the last tenth."""
    sizes, place, listener = stage
    portion = sizes.endurance_jobs // PORTIONS
    with place.scratch() as url:
        listener.step(f"storing {PORTIONS * portion:,} jobs")
        await fill(place, url, functools.partial(_noops, PORTIONS * portion))
        async with child(serve, url=url, slots=SLOTS) as worker:
            await worker.hear()
            ends = [await worker.ask("start")]
            used = [_used(worker, place)]
            for number in range(1, PORTIONS + 1):
                listener.step(f"portion {number} of {PORTIONS}")
                ends.append(await worker.ask({"finished": number * portion}, patience=3600))
                used.append(_used(worker, place))
    rates = [portion / (end - before) for before, end in pairwise(ends)]
    slowest = min(rates[1:]) / rates[0]
    costs = [(after - before) / portion * 1e6 for before, after in pairwise(used)]
    return [
        Figure(
            name="endurance",
            title=f"drain of {sizes.endurance_jobs:,} in a row, the last {portion:,}",
            measured=rates[-1],
            unit="jobs/s",
            yardstick=rates[0],
            yardstick_name=f"the first {portion:,}",
            target=Target("at least", 0.80, "ratio"),
            note=f"the slowest portion reached {slowest:.0%} of the first; processor time per job, "
            f"worker and server: {costs[0]:.0f} µs in the first portion, {costs[-1]:.0f} in the "
            f"last, {max(costs):.0f} at most",
        )
    ]


def _used(worker: Child, place: Place) -> float:
    return processor_seconds(worker.pid) + place.processor_seconds()


def _noops(jobs: int, app: App) -> Sequence[Call[Any]]:
    return make_calls(app.noop, jobs)
