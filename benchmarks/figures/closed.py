"""Closed lanes: jobs that have to wait must not keep others waiting, and waiting must cost nothing.

Very many jobs stand behind a rate that is spent for a day. A worker serves their queue, another one
an empty queue in a place of its own. What is compared: the processor time of the worker and the
server while nothing happens, one after the other; and how long a job without limits, enqueued after
all of them, takes from before ``await enqueue`` in one process to its handler's first line in
another, both places in turn.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import AsyncExitStack
from datetime import timedelta

from benchmarks.child import Child, child, processor_seconds, run
from benchmarks.figure import Figure, Target, percentile
from benchmarks.figures.latency import UNEVEN, knock
from benchmarks.sizes import Sizes
from benchmarks.stage import Stage
from benchmarks.worker import App, serve
from windlass._app.parts import parts_of
from windlass._core.job.job import LimitUse, NewJob
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._system.seams import new_job_ids

__all__ = ["measure", "stand_in_line"]

CHUNK, SLOTS = 1_000, 10
SPENT = LimitSpec(name="spent", rate=Rate(1, per=timedelta(days=1)))
EMPTY, CLOSED = "empty queue", "closed lane"


async def measure(stage: Stage) -> list[Figure]:
    """Measure the same reads on a queue with a closed lane and on an empty one."""
    sizes, place, listener = stage
    with place.scratch() as empty, place.scratch() as closed:
        places = {EMPTY: empty, CLOSED: closed}
        for name, url in places.items():
            jobs = sizes.closed_jobs if name == CLOSED else 0
            listener.step(f"{name}: {jobs:,} jobs")
            await run(stand_in_line, url=url, jobs=jobs)
            place.settle(url)
        shares = {name: await _idle(stage, name, url) for name, url in places.items()}
        seconds = await _start(stage, places)
    return _figures(sizes, shares, seconds)


async def stand_in_line(url: str, jobs: int) -> str:
    """Store jobs behind a rate that has nothing left."""
    app = App(url).windlass
    storage = await parts_of(app).storage()
    await storage.limits.define([SPENT])
    await storage.limits.drain(SPENT.name)
    for start in range(0, jobs, CHUNK):
        ids = new_job_ids(min(CHUNK, jobs - start))
        uses = (LimitUse(SPENT.name),)
        await storage.jobs.insert([NewJob(id=job, task="noop", limits=uses) for job in ids])
    await app.close()
    return "done"


async def _idle(stage: Stage, name: str, url: str) -> float:
    """Processor seconds per second of a worker that has nothing to do, and of its server."""
    sizes, place, listener = stage
    listener.step(f"{name}: idle for {sizes.closed_seconds:g} s")
    async with child(serve, url=url, slots=SLOTS) as worker:
        await worker.hear()
        await worker.ask("start")
        await asyncio.sleep(max(sizes.idle_seconds, 0.2))
        began, used = time.monotonic(), processor_seconds(worker.pid) + place.processor_seconds()
        await asyncio.sleep(sizes.closed_seconds)
        used = processor_seconds(worker.pid) + place.processor_seconds() - used
        return used / (time.monotonic() - began)


async def _start(stage: Stage, places: dict[str, str]) -> dict[str, list[float]]:
    """Seconds from the enqueue to the handler, in each place in turn."""
    sizes, _, listener = stage
    async with AsyncExitStack() as stack:
        pairs: dict[str, tuple[Child, Child]] = {}
        for name, url in places.items():
            worker = await stack.enter_async_context(child(serve, url=url, slots=SLOTS))
            producer = await stack.enter_async_context(child(knock, url=url))
            await worker.hear()
            await worker.ask("start")
            await producer.hear()
            pairs[name] = (worker, producer)
        for number in range(1, sizes.latency_samples + 1):
            for name, (worker, producer) in pairs.items():
                listener.step(f"{name}: start {number} of {sizes.latency_samples}")
                await asyncio.sleep((sizes.idle_seconds + UNEVEN * random.random()) / 2)
                await producer.ask("enqueue")
                await worker.ask({"finished": number})
        return {name: await worker.ask("picked up") for name, (worker, _) in pairs.items()}


def _figures(
    sizes: Sizes, shares: dict[str, float], seconds: dict[str, list[float]]
) -> list[Figure]:
    middle = {name: percentile(samples, 0.50) * 1000 for name, samples in seconds.items()}
    behind = f"behind {sizes.closed_jobs:,} in a closed lane"
    return [
        Figure(
            name="closed_start",
            title=f"start of a job without limits {behind}, p50",
            measured=middle[CLOSED],
            unit="ms",
            yardstick=middle[EMPTY],
            yardstick_name=EMPTY,
            target=Target("at most", 1.25, "ratio"),
            note=f"{len(seconds[CLOSED])} starts each; the slowest "
            f"{max(seconds[CLOSED]) * 1000:.1f} ms, of the empty queue "
            f"{max(seconds[EMPTY]) * 1000:.1f} ms",
        ),
        Figure(
            name="closed_processor",
            title=f"processor, worker and server, that {sizes.closed_jobs:,} in a closed lane cost",
            measured=max(0.0, shares[CLOSED] - shares[EMPTY]) * 100,
            unit="% of a core",
            target=Target("under", 0.5),
            note=f"{shares[CLOSED]:.2%} of a core instead of {shares[EMPTY]:.2%} with an empty "
            f"queue, idle for {sizes.closed_seconds:g} s each, counted in hundredths of a second",
        ),
    ]
