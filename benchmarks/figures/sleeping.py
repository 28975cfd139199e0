"""Sleeping jobs: what a worker adds to jobs that mostly wait.

Jobs that sleep 10 ms, 100 slots, against the same sleeps in the same number of tasks under a bare
``Semaphore(100)``: no storage, no worker. Alternate rounds, each in a process of its own, both on
uvloop.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.child import run
from benchmarks.figure import Figure, Target
from benchmarks.figures.drain import rate
from benchmarks.place import Place
from benchmarks.stage import Stage, alternate
from benchmarks.worker import App, fill
from windlass._tasks.task import Call

__all__ = ["bare_sleeps", "measure"]

SLOTS, SECONDS = 100, 0.010


async def measure(stage: Stage) -> list[Figure]:
    """Windlass against the semaphore."""
    sizes, place, listener = stage
    jobs = sizes.sleeping_jobs
    rounds = await alternate(
        min(sizes.rounds, 5),
        {
            "bare semaphore": functools.partial(run, bare_sleeps, jobs=jobs),
            "sleeping jobs": functools.partial(_drain, place, jobs),
        },
        listener,
    )
    return [
        Figure(
            name="sleeping",
            title="jobs that sleep 10 ms, 100 slots",
            measured=rounds["sleeping jobs"],
            unit="jobs/s",
            yardstick=rounds["bare semaphore"],
            yardstick_name="Semaphore(100)",
            target=Target("at least", 0.85 if place.backend == "postgres" else 0.9, "ratio"),
            note=f"{jobs:,} jobs; {rounds.spread('sleeping jobs')}",
        )
    ]


def _naps(jobs: int, app: App) -> Sequence[Call[Any]]:
    return [app.nap.call(SECONDS)] * jobs


async def _drain(place: Place, jobs: int) -> float:
    with place.scratch() as url:
        await fill(place, url, functools.partial(_naps, jobs))
        return await rate(url, jobs, workers=1, slots=SLOTS)


async def bare_sleeps(jobs: int) -> float:
    """Run the same sleeps, and nothing else."""
    room = asyncio.Semaphore(SLOTS)

    async def nap() -> None:
        async with room:
            await asyncio.sleep(SECONDS)

    began = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for _ in range(jobs):
            group.create_task(nap())
    return jobs / (time.perf_counter() - began)
