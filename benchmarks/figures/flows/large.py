"""A large fan-in against as many plain jobs, and its last tenth against its first.

One worker process drains both, in rounds that alternate. Counting the end of a job must not cost
more because its part has many jobs.
"""

from __future__ import annotations

import statistics

from benchmarks.child import child, run
from benchmarks.figure import Figure, Target
from benchmarks.figures.drain import SLOTS
from benchmarks.figures.flows.shapes import Kind, fill_kind
from benchmarks.place import Place
from benchmarks.stage import Rounds, Stage, alternate
from benchmarks.worker import serve

__all__ = ["measure"]

_TENTHS = 10


async def measure(stage: Stage) -> list[Figure]:
    """Drain a fan-in and plain jobs."""
    sizes, place, listener = stage
    jobs = sizes.flow_jobs
    tenths: list[tuple[float, float]] = []

    async def fan_in() -> float:
        first, last, whole = await _drain(place, "fan-in", jobs)
        tenths.append((first, last))
        return whole

    async def plain() -> float:
        return (await _drain(place, "plain", jobs))[2]

    rounds = await alternate(
        max(sizes.rounds // 2, 1), {"plain": plain, "fan-in": fan_in}, listener
    )
    return [_whole(jobs, rounds), _last(jobs, tenths)]


def _whole(jobs: int, rounds: Rounds) -> Figure:
    return Figure(
        name="large_fan_in",
        title=f"drain of a fan-in of {jobs:,}",
        measured=rounds["fan-in"],
        unit="jobs/s",
        yardstick=rounds["plain"],
        yardstick_name="plain jobs",
        target=Target("at least", 0.9, "ratio"),
        note=rounds.spread("fan-in"),
    )


def _last(jobs: int, tenths: list[tuple[float, float]]) -> Figure:
    return Figure(
        name="large_fan_in_end",
        title=f"the same, the last {jobs // _TENTHS:,} jobs",
        measured=statistics.median(last for _, last in tenths),
        unit="jobs/s",
        yardstick=statistics.median(first for first, _ in tenths),
        yardstick_name=f"the first {jobs // _TENTHS:,}",
        target=Target("at least", 0.9, "ratio"),
        note="medians; the first tenth counts from the first finished job",
    )


async def _drain(place: Place, kind: Kind, jobs: int) -> tuple[float, float, float]:
    """Jobs per second in the first tenth, in the last one, and over all."""
    tenth = jobs // _TENTHS
    with place.scratch() as url:
        await run(fill_kind, url=url, kind=kind, jobs=jobs)
        place.settle(url)
        async with child(serve, url=url, slots=SLOTS) as worker:
            await worker.hear()
            began = await worker.ask("start")
            ready = await worker.ask({"finished": 1})
            first = await worker.ask({"finished": tenth})
            before = await worker.ask({"finished": jobs - tenth})
            end = await worker.ask({"finished": jobs})
    return tenth / (first - ready), tenth / (end - before), jobs / (end - began)
