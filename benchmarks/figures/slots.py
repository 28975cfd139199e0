"""Few slots: how fast a worker drains with 1, 10, 50 and 200 of them.

The yardstick finishes a batch and claims the next one in one transaction, with batches as large as
there are slots (`benchmarks.yardsticks.turns`), in rounds that alternate with Windlass's.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable

from benchmarks.child import run
from benchmarks.figure import Figure, Target
from benchmarks.figures.drain import drain
from benchmarks.place import Place
from benchmarks.stage import Stage, alternate
from benchmarks.yardsticks import turns

__all__ = ["measure"]

_SLOTS = (1, 10, 50, 200)
_DEFAULT = 10
_SHARE = {1: 0.02, 10: 0.2, 50: 0.5, 200: 1.0}
"""Of the jobs of a drain: with one slot each job waits for the disk."""


async def measure(stage: Stage) -> list[Figure]:
    """One worker process with each number of slots, against a bare loop with such batches."""
    sizes, place, listener = stage
    jobs = {slots: max(int(sizes.drain_jobs * _SHARE[slots]), 20) for slots in _SLOTS}
    ways: dict[str, Callable[[], Awaitable[float]]] = {}
    for slots in _SLOTS:
        ways[f"bare, {slots}"] = functools.partial(_bare, place, jobs[slots], slots)
        ways[f"{slots} slots"] = functools.partial(drain, place, jobs[slots], 1, slots)
    rounds = await alternate(sizes.rounds, ways, listener)
    return [
        Figure(
            name=f"slots_{slots}",
            title=f"drain, one worker process with {slots} {'slot' if slots == 1 else 'slots'}",
            measured=rounds[f"{slots} slots"],
            unit="jobs/s",
            yardstick=rounds[f"bare, {slots}"],
            yardstick_name=f"bare loop, batches of {slots}",
            target=Target("at least", 0.8, "ratio") if slots == _DEFAULT else None,
            note=f"{jobs[slots]:,} no-op coroutine jobs; {rounds.spread(f'{slots} slots')}",
        )
        for slots in _SLOTS
    ]


async def _bare(place: Place, jobs: int, batch: int) -> float:
    if place.backend == "sqlite":
        return float(await run(turns.on_sqlite, jobs=jobs, batch=batch))
    way = turns.on_postgres if place.backend == "postgres" else turns.on_redis
    with place.scratch() as url:
        return float(await run(way, url=url, jobs=jobs, batch=batch))
