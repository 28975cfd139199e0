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

from benchmarks.child import child
from benchmarks.drain import SLOTS
from benchmarks.figure import Figure, Target
from benchmarks.stage import Stage
from benchmarks.worker import App, fill, make_calls, serve
from windlass.task import Call

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
            for number in range(1, PORTIONS + 1):
                listener.step(f"portion {number} of {PORTIONS}")
                ends.append(await worker.ask({"finished": number * portion}, patience=3600))
    rates = [portion / (end - before) for before, end in pairwise(ends)]
    slowest = min(rates[1:]) / rates[0]
    return [
        Figure(
            name="endurance",
            title=f"drain of {sizes.endurance_jobs:,} in a row, the last {portion:,}",
            measured=rates[-1],
            unit="jobs/s",
            yardstick=rates[0],
            yardstick_name=f"the first {portion:,}",
            target=Target("at least", 0.80, "ratio"),
            note=f"the slowest portion reached {slowest:.0%} of the first",
        )
    ]


def _noops(jobs: int, app: App) -> Sequence[Call]:
    return make_calls(app.noop, jobs)
