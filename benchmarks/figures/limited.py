"""Limited: what a limit costs, against plain jobs in the same run.

Four apps, each with one task that does nothing: without limits; under one concurrency limit that
all jobs share; under a limit of two jobs per tenant, for 1,000 tenants; under a rate that never
closes. Each is filled with ``enqueue_many`` and drained by one worker process with 200 slots. Both
are timed, in rounds that alternate. Two processes on two queues whose limits differ are held
against one. Claims of 100 alternate as well: of plain jobs, from many lanes, and from lanes that
share a rate.
"""

from __future__ import annotations

import asyncio
import functools
import statistics
import time
from collections.abc import Sequence
from typing import Any

from benchmarks.child import run
from benchmarks.figure import Figure, Target
from benchmarks.figures.flat import CLAIM, enlist
from benchmarks.figures.lanes import OWN, SHARED, fill_lanes
from benchmarks.limits import LIMITED, LIMITS, SLOTS, TENANTS
from benchmarks.place import Place
from benchmarks.stage import Rounds, Stage, alternate
from benchmarks.worker import make_calls, store
from windlass import Limit, Windlass
from windlass._app.parts import parts_of
from windlass._core.job.transition import succeed
from windlass._storage.protocol.jobs import Want
from windlass._tasks.task import Task

__all__ = ["claim_in_turn", "drain_queue", "fill_queue", "measure"]


async def measure(stage: Stage) -> list[Figure]:
    """Drain and enqueue of each kind against plain, two processes against one, and claims."""
    sizes, place, listener = stage
    jobs = sizes.drain_jobs // 2
    stored: dict[str, list[float]] = {kind: [] for kind in LIMITS}

    async def one(kind: str) -> float:
        with place.scratch() as url:
            stored[kind].append(await _fill(place, url, [kind], jobs))
            return await _drain(url, [kind], jobs)

    async def two() -> float:
        with place.scratch() as url:
            await _fill(place, url, ["shared", "other"], jobs)
            return await _drain(url, ["shared", "other"], jobs)

    ways = {kind: functools.partial(one, kind) for kind in LIMITS}
    drained = await alternate(sizes.rounds, {**ways, "two": two}, listener)
    listener.step(f"claims of {CLAIM} from {sizes.lanes:,} lanes")
    return [
        *_against_plain("drain", drained),
        *_against_plain("enqueue", Rounds(stored)),
        Figure(
            name="limited_two",
            title="drain, two processes on limits of their own",
            measured=drained["two"],
            unit="jobs/s",
            yardstick=drained["shared"],
            yardstick_name="one process",
            target=Target("at least", 1.5, "ratio") if place.backend == "postgres" else None,
            note=drained.spread("two"),
        ),
        *await _claims(stage),
    ]


def _against_plain(what: str, rounds: Rounds) -> list[Figure]:
    return [
        Figure(
            name=f"limited_{what}_{kind}",
            title=f"{what}, {title}",
            measured=rounds[kind],
            unit="jobs/s",
            yardstick=rounds["plain"],
            yardstick_name="plain jobs",
            target=Target("at least", 0.5, "ratio"),
            note=rounds.spread(kind),
        )
        for kind, title in LIMITED.items()
    ]


async def _fill(place: Place, url: str, kinds: Sequence[str], jobs: int) -> float:
    rates = [await run(fill_queue, url=url, kind=kind, jobs=jobs) for kind in kinds]
    place.settle(url)
    return float(statistics.mean(rates))


async def _drain(url: str, kinds: Sequence[str], jobs: int) -> float:
    spans = await asyncio.gather(
        *(run(drain_queue, url=url, kind=kind, jobs=jobs) for kind in kinds)
    )
    seconds = float(max(end for _, end in spans) - min(begin for begin, _ in spans))
    return len(kinds) * jobs / seconds


async def _claims(stage: Stage) -> list[Figure]:
    sizes, place, _ = stage
    with place.scratch() as plain, place.scratch() as own, place.scratch() as shared:
        samples = await run(
            claim_in_turn, urls=[plain, own, shared], lanes=sizes.lanes, claims=sizes.claims
        )
    medians = [statistics.median(seconds) * 1000 for seconds in samples]
    names = (("own", "limits of their own", 3.0), ("shared", "one shared rate besides", 4.0))
    return [
        Figure(
            name=f"limited_claim_{name}",
            title=f"claim of {CLAIM} from {sizes.lanes:,} lanes, {title}",
            measured=median,
            unit="ms",
            yardstick=medians[0],
            yardstick_name="plain jobs",
            target=Target("at most", bound, "ratio"),
            note=f"{sizes.claims} claims",
        )
        for (name, title, bound), median in zip(names, medians[1:], strict=True)
    ]


# --- in processes of their own ----------------------------------------------------------------


def _app(url: str, kind: str) -> tuple[Windlass, Task[..., Any]]:
    """Make an app whose only task waits in the queue ``kind``. "other" is a second "shared"."""
    app = Windlass(url)
    limits = [Limit("other", concurrency=SLOTS)] if kind == "other" else LIMITS[kind]

    @app.task(name=f"noop_{kind}", queue=kind, limits=limits)
    async def noop(recipient: str, subject: str, template_name: str, user: int) -> None:
        """Do nothing."""

    return app, noop


async def fill_queue(url: str, kind: str, jobs: int) -> float:
    """Store calls; jobs per second."""
    app, task = _app(url, kind)
    calls = (make_calls(task, TENANTS) * (jobs // TENANTS + 1))[:jobs]
    async with app:
        await store(app, calls[:1])  # the first one prepares its statements
        began = time.perf_counter()
        await store(app, calls[1:])
        return (jobs - 1) / (time.perf_counter() - began)


async def drain_queue(url: str, kind: str, jobs: int) -> tuple[float, float]:
    """Run these jobs; when it began and when it ended, on the machine's monotonic clock."""
    app, _ = _app(url, kind)
    async with app:
        began = time.monotonic()
        async with app.worker(queues=[kind], slots=SLOTS) as worker:
            counts = worker.engine.finisher.counts
            while counts["succeed"] < jobs:  # noqa: ASYNC110 -- no event
                await asyncio.sleep(0.005)
            return began, time.monotonic()


async def claim_in_turn(urls: list[str], lanes: int, claims: int) -> list[list[float]]:
    """Seconds per claim: of plain jobs, from lanes, and from lanes that share a rate."""
    apps = [Windlass(url) for url in urls]
    storages = [await parts_of(app).storage() for app in apps]
    for storage, kind in zip(storages, ("plain", "own", "shared"), strict=True):
        await storage.limits.define([OWN, SHARED])
        await enlist(storage, ["default"])
        await fill_lanes(storage, lanes, kind)
    samples: list[list[float]] = [[] for _ in urls]
    for number in range(claims + 2):
        for storage, mine in zip(storages, samples, strict=True):
            began = time.perf_counter()
            reply = await storage.jobs.claim("w-bench", [Want("default", CLAIM)], total=CLAIM)
            if number >= 2:  # the first ones prepare their statements
                mine.append(time.perf_counter() - began)
            ends = [succeed(job, by="w-bench", result=None) for job in reply.jobs]
            await storage.jobs.apply(ends)
    for app in apps:
        await app.close()
    return samples
