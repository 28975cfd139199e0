"""Drain: how fast a worker runs jobs that do nothing.

A place is filled with ``enqueue_many``. A worker process opens it, under uvloop, with 200 slots and
everything else as shipped. The clock runs from the moment before the worker is made, its
registration and threads included, to the last committed finish. The yardstick is the backend's bare
loop (`benchmarks.yardsticks`), in a process of its own, in rounds that alternate
with Windlass's; its share of the bare claim and finish statements is printed beside it.
On PostgreSQL pgqueuer takes its turn in the same rounds, with one process and with two.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from typing import Any

from benchmarks.child import Child, child, processor_seconds, run
from benchmarks.figure import Figure, Target
from benchmarks.place import Place
from benchmarks.stage import Rounds, Stage, alternate
from benchmarks.worker import App, fill, make_calls, serve
from benchmarks.yardsticks import bare, bare_postgres, bare_redis, pgqueuer
from windlass._tasks.task import Call

__all__ = ["SLOTS", "drain", "measure", "measure_endurance", "noops", "rate"]

SLOTS = 200
_RIVAL = "pgqueuer, "
_TWO_RIVALS = "two pgqueuers"
_FASTEST = pgqueuer.CONFIGURATIONS["one consumer, 400 tasks"]
Cost = tuple[float, float]
"""Processor time of a job in microseconds: of the worker, and of the server."""
PORTIONS = 10
"""Of a long drain."""


async def measure(stage: Stage) -> list[Figure]:
    """One worker process against the bare loop, two against one, and a rival where there is one."""
    sizes, place, listener = stage
    jobs = sizes.drain_jobs
    costs: list[Cost] = []
    ways: dict[str, Callable[[], Awaitable[float]]] = {
        "bare loop": functools.partial(_bare, place, jobs, "drain"),
        "one worker": functools.partial(_drain_and_cost, place, jobs, costs),
        "two workers": functools.partial(drain, place, jobs, 2),
        "bare claim and finish": functools.partial(_bare, place, jobs, "claim_and_finish"),
    }
    if place.backend == "postgres" and pgqueuer.is_here():
        for name, configuration in pgqueuer.CONFIGURATIONS.items():
            ways[_RIVAL + name] = functools.partial(_rival, place, jobs, configuration, 1)
        ways[_TWO_RIVALS] = functools.partial(_rival, place, jobs, _FASTEST, 2)
    rounds = await alternate(sizes.rounds, ways, listener)
    return [*_figures(rounds, place, jobs), _cost(place, costs), *_rivals(rounds, ways)]


def _figures(rounds: Rounds, place: Place, jobs: int) -> list[Figure]:
    share = rounds["bare loop"] / rounds["bare claim and finish"]
    of_bare = 0.85 if place.backend == "postgres" else 0.8
    # Two processes on one file take turns; servers are there to be shared.
    least = 0.90 if place.backend == "sqlite" else 1.0
    return [
        Figure(
            name="drain",
            title="drain, one worker process",
            measured=rounds["one worker"],
            unit="jobs/s",
            yardstick=rounds["bare loop"],
            yardstick_name="bare loop",
            target=Target("at least", of_bare, "ratio"),
            note=f"{jobs:,} no-op coroutine jobs, {SLOTS} slots; {rounds.spread('one worker')}; "
            f"the bare loop reaches {share:.0%} of claim and finish alone",
        ),
        Figure(
            name="drain_two",
            title="drain, two worker processes",
            measured=rounds["two workers"],
            unit="jobs/s",
            yardstick=rounds["one worker"],
            yardstick_name="one process",
            target=Target("at least", least, "ratio"),
            note=rounds.spread("two workers"),
        ),
        Figure(
            name="claim_and_finish",
            title="bare loop, of claim and finish alone",
            measured=rounds["bare loop"],
            unit="jobs/s",
            yardstick=rounds["bare claim and finish"],
            yardstick_name="two statements",
            note="what running the jobs costs the yardstick itself",
        ),
    ]


def _cost(place: Place, costs: Sequence[Cost]) -> Figure:
    worker, server = (statistics.median(each) for each in zip(*costs, strict=True))
    return Figure(
        name="drain_cost",
        title="processor time of a job, worker and server",
        measured=worker + server,
        unit="µs",
        target=Target("at most", 70.0) if place.backend == "postgres" else None,
        note=f"worker {worker:.0f} µs, server {server:.0f} µs, one worker process",
    )


def _rivals(rounds: Rounds, ways: dict[str, Callable[[], Awaitable[float]]]) -> list[Figure]:
    names = [name for name in ways if name.startswith(_RIVAL)]
    if not names:
        return []
    best = max(names, key=rounds.__getitem__)
    others = "; ".join(f"{name.removeprefix(_RIVAL)} {rounds[name]:,.0f}" for name in names)
    target = Target("at least", 1.5, "ratio")
    return [
        Figure(
            name="rival",
            title="drain, one worker process, against pgqueuer",
            measured=rounds["one worker"],
            unit="jobs/s",
            yardstick=rounds[best],
            yardstick_name=best,
            target=target,
            note=f"the best of its configurations counts: {others}",
        ),
        Figure(
            name="rival_two",
            title="drain, two worker processes, against two of pgqueuer",
            measured=rounds["two workers"],
            unit="jobs/s",
            yardstick=rounds[_TWO_RIVALS],
            yardstick_name="pgqueuer",
            target=target,
            note="two processes of one consumer, batches of 200, 400 tasks",
        ),
    ]


async def _bare(place: Place, jobs: int, what: str) -> float:
    if place.backend == "sqlite":
        return float(await run(getattr(bare, what), jobs=jobs))
    module = bare_postgres if place.backend == "postgres" else bare_redis
    with place.scratch() as url:
        return float(await run(getattr(module, what), url=url, jobs=jobs))


async def _rival(
    place: Place, jobs: int, configuration: pgqueuer.Configuration, processes: int
) -> float:
    with place.scratch() as url:
        return await pgqueuer.rate(url, jobs, configuration, processes)


def noops(jobs: int, app: App) -> Sequence[Call[Any]]:
    """Make calls that do nothing."""
    return make_calls(app.noop, jobs)


async def drain(place: Place, jobs: int, workers: int, slots: int = SLOTS) -> float:
    """Jobs per second that do nothing, in a place that is filled with them first."""
    with place.scratch() as url:
        await fill(place, url, functools.partial(noops, jobs))
        return await rate(url, jobs, workers=workers, slots=slots)


async def _drain_and_cost(place: Place, jobs: int, costs: list[Cost]) -> float:
    """Drain with one worker process, and keep the processor time of a job."""
    with place.scratch() as url:
        await fill(place, url, functools.partial(noops, jobs))
        async with working(url, workers=1, slots=SLOTS) as crew:
            before = processor_seconds(crew[0].pid), place.processor_seconds()
            reached = await _rate(crew, jobs)
            after = processor_seconds(crew[0].pid), place.processor_seconds()
    worker, server = ((end - start) / jobs * 1e6 for start, end in zip(before, after, strict=True))
    costs.append((worker, server))
    return reached


async def rate(url: str, jobs: int, *, workers: int, slots: int) -> float:
    """Jobs per second until this many worker processes have drained it all."""
    async with working(url, workers=workers, slots=slots) as crew:
        return await _rate(crew, jobs)


@asynccontextmanager
async def working(url: str, *, workers: int, slots: int) -> AsyncIterator[list[Child]]:
    """Start worker processes that are ready to begin."""
    async with AsyncExitStack() as stack:
        crew = [
            await stack.enter_async_context(child(serve, url=url, slots=slots))
            for _ in range(workers)
        ]
        for worker in crew:
            await worker.hear()
        yield crew


async def _rate(crew: Sequence[Child], jobs: int) -> float:
    began = [await worker.ask("start") for worker in crew]
    ends = [await worker.ask("drained") for worker in crew]
    done = sum(count for _, count in ends)
    if done != jobs:
        raise AssertionError(f"{done} of {jobs} jobs were finished")
    return jobs / float(max(at for at, _ in ends) - min(began))


# --- a long drain ---


async def measure_endurance(stage: Stage) -> list[Figure]:
    """Compare the first and the last tenth of one long drain: rows of finished jobs must not slow
    the next ones.

    Every job is written twice on its way, and on PostgreSQL the old versions of its row stay until
    they are vacuumed. One worker drains without a pause, its start included. Maintenance that runs
    meanwhile, the server's own and ours, takes its time from the same clock.
    """
    sizes, place, listener = stage
    portion = sizes.endurance_jobs // PORTIONS
    with place.scratch() as url:
        listener.step(f"storing {PORTIONS * portion:,} jobs")
        await fill(place, url, functools.partial(noops, PORTIONS * portion))
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
