"""Idle workers: what one insert costs a server that many workers are connected to.

Workers with nothing to do wait on one empty queue. A producer in another process enqueues jobs one
after the other, with a pause after each, so that every job finds all workers idle. What is compared
is the processor time of the server for one job, from its insert to its stored end: with many idle
workers, and with one. What the same workers cost while nothing happens is taken off. Every worker
runs a few jobs before, because a session of PostgreSQL plans its statements at their first use.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack

from benchmarks.child import answer, child, requests
from benchmarks.figure import Figure, Target, percentile
from benchmarks.stage import Stage, alternate
from benchmarks.worker import App, fill

__all__ = ["measure", "produce", "serve_idle"]

MANY, SLOTS, PAUSE = 16, 10, 0.015
WARM_UP = 8
"""Jobs for each worker before anything is measured: a session plans its first statements."""
ONE_NAME, MANY_NAME = "1 idle worker", f"{MANY} idle workers"


async def measure(stage: Stage) -> list[Figure]:
    """Measure the server's time for a lone job, with one worker and with many."""
    sizes, place, listener = stage
    if place.backend == "sqlite":
        return []
    latencies: dict[int, list[float]] = {1: [], MANY: []}

    async def cost(workers: int) -> float:
        with place.scratch() as url:
            await fill(place, url, lambda _: ())
            seconds, started = await _cost(stage, url, workers)
        latencies[workers] += started
        return seconds * 1e6

    ways = {ONE_NAME: lambda: cost(1), MANY_NAME: lambda: cost(MANY)}
    rounds = await alternate(min(sizes.rounds, 3), ways, listener)
    middle = {count: percentile(taken, 0.5) * 1000 for count, taken in latencies.items()}
    return [
        Figure(
            name="idle_workers",
            title=f"server, one lone job with {MANY_NAME}",
            measured=rounds[MANY_NAME],
            unit="µs",
            yardstick=rounds[ONE_NAME],
            yardstick_name=ONE_NAME,
            target=Target("at most", 1.5, "ratio"),
            note=f"{sizes.single_enqueues} jobs a round, {rounds.spread(MANY_NAME)}; p50 from "
            f"enqueue to handler {middle[MANY]:.1f} ms, with one worker {middle[1]:.1f} ms",
        )
    ]


async def _cost(stage: Stage, url: str, workers: int) -> tuple[float, list[float]]:
    """Seconds of the server for one job, and from the enqueue of each to its handler."""
    sizes, place, _ = stage
    async with (
        child(serve_idle, url=url, workers=workers) as serving,
        child(produce, url=url) as producer,
    ):
        await serving.hear()
        await producer.hear()
        await producer.ask(WARM_UP * workers)
        await serving.ask(WARM_UP * workers)
        await asyncio.sleep(max(sizes.idle_seconds, 0.2))
        used, began = place.processor_seconds(), time.monotonic()
        await producer.ask(sizes.single_enqueues)
        latencies: list[float] = await serving.ask(WARM_UP * workers + sizes.single_enqueues)
        used, took = place.processor_seconds() - used, time.monotonic() - began
        await asyncio.sleep(0.2)
        idle, began = place.processor_seconds(), time.monotonic()
        await asyncio.sleep(took)
        idle = (place.processor_seconds() - idle) / (time.monotonic() - began)
        return max(used - idle * took, 0.0) / sizes.single_enqueues, latencies


async def serve_idle(url: str, workers: int) -> None:
    """Serve with this many workers, each on its own connections.

    A number asks for that many seconds from enqueue to handler, once they are there.
    """
    apps = [App(url) for _ in range(workers)]
    async with AsyncExitStack() as stack:
        for app in apps:
            await stack.enter_async_context(app.windlass.worker(slots=SLOTS))
        answer("ready")
        async for count in requests():
            while sum(len(app.picked_up) for app in apps) < count:  # noqa: ASYNC110 -- there is no event
                await asyncio.sleep(0.02)
            answer([seconds for app in apps for seconds in app.picked_up])
    for app in apps:
        await app.windlass.close()


async def produce(url: str) -> None:
    """Enqueue as many jobs as each request says, with a pause after each."""
    app = App(url)
    async with app.windlass:
        answer("ready")
        async for count in requests():
            for _ in range(count):
                await app.pick_up.enqueue(time.monotonic())
                await asyncio.sleep(PAUSE)
            answer("done")
