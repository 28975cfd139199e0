"""Eight processes that finish the jobs of one part against eight on plain jobs, on PostgreSQL.

All of them change the counts of the same part. Deadlocks are those that the server has counted.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable

from benchmarks.child import run
from benchmarks.figure import Figure, Target
from benchmarks.figures.drain import rate
from benchmarks.figures.flows.shapes import Kind, fill_kind
from benchmarks.place import Place
from benchmarks.stage import Stage, alternate

__all__ = ["measure"]

PROCESSES, SLOTS = 8, 25


async def measure(stage: Stage) -> list[Figure]:
    """Drain one part and plain jobs by eight worker processes."""
    sizes, place, listener = stage
    deadlocks: list[int] = []
    ways: dict[str, Callable[[], Awaitable[float]]] = {
        kind: functools.partial(_drain, place, kind, sizes.drain_jobs, deadlocks) for kind in _KINDS
    }
    rounds = await alternate(sizes.rounds, ways, listener)
    return [
        Figure(
            name="crowd",
            title=f"{PROCESSES} processes on one part",
            measured=rounds["fan-in"],
            unit="jobs/s",
            yardstick=rounds["plain"],
            yardstick_name=f"{PROCESSES} on plain jobs",
            target=Target("at least", 0.8, "ratio"),
            note=f"{sizes.drain_jobs:,} jobs, {SLOTS} slots each; {rounds.spread('fan-in')}",
        ),
        Figure(
            name="crowd_deadlocks",
            title="deadlocks meanwhile",
            measured=sum(deadlocks),
            unit="deadlocks",
            target=Target("at most", 0),
        ),
    ]


_KINDS: tuple[Kind, ...] = ("plain", "fan-in")


async def _drain(place: Place, kind: Kind, jobs: int, deadlocks: list[int]) -> float:
    with place.scratch() as url:
        await run(fill_kind, url=url, kind=kind, jobs=jobs)
        place.settle(url)
        extra = 1 if kind == "fan-in" else 0
        reached = await rate(url, jobs + extra, workers=PROCESSES, slots=SLOTS)
        deadlocks.append(_deadlocks(url))
        return reached


def _deadlocks(url: str) -> int:
    import psycopg  # noqa: PLC0415 -- as in benchmarks.place

    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(
            "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    return 0 if row is None else int(row[0])
