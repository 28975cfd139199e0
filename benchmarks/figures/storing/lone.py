"""Single calls: what an application pays that enqueues one job per request.

One process stores a job and a bare row in turn, call by call, so that a slow moment falls on both.
``await enqueue`` is held against the bare insert that is awaited, ``enqueue_sync`` against the one
on the calling thread, which is not the main one (`benchmarks.yardsticks.lone`). Nothing else runs.
"""

from __future__ import annotations

import asyncio
import threading
import time

from benchmarks.child import loop_factory, run
from benchmarks.figure import Figure, Target, percentile
from benchmarks.stage import Stage
from benchmarks.worker import App
from benchmarks.yardsticks.lone import BareInserts, bare_inserts

__all__ = ["measure", "pairs"]

_ARGUMENTS = ("1@example.com", "Your order is on its way", "shipped", 1)
_WARM = 20
_MOST = {"sqlite": 1.25, "postgres": 1.4, "redis": 1.4}
_MOST_SYNC = 1.4


async def measure(stage: Stage) -> list[Figure]:
    """Return the medians of single calls of both kinds against bare inserts."""
    sizes, place, listener = stage
    samples: dict[str, list[float]] = {}
    for number in range(1, sizes.rounds + 1):
        listener.step(f"round {number} of {sizes.rounds}")
        with place.scratch() as url:
            found = await run(pairs, url=url, count=sizes.single_enqueues)
        for name, seconds in found.items():
            samples.setdefault(name, []).extend(seconds)
    bare = "bare insert on a thread" if place.backend == "sqlite" else "bare insert"
    kinds = (
        ("enqueue", "await enqueue", "bare", bare, _MOST[place.backend]),
        ("enqueue_sync", "enqueue_sync", "bare_sync", "bare insert on this thread", _MOST_SYNC),
    )
    return [
        Figure(
            name=f"lone_{name}",
            title=f"{title}, one after the other, p50",
            measured=percentile(samples[name], 0.5) * 1e6,
            unit="µs",
            yardstick=percentile(samples[yardstick], 0.5) * 1e6,
            yardstick_name=yardstick_name,
            target=Target("at most", most, "ratio"),
            note=f"{len(samples[name]):,} of each in turn; "
            f"p99 {percentile(samples[name], 0.99) * 1e6:,.0f} against "
            f"{percentile(samples[yardstick], 0.99) * 1e6:,.0f}",
        )
        for name, title, yardstick, yardstick_name, most in kinds
    ]


def pairs(url: str, count: int) -> dict[str, list[float]]:
    """Return the seconds of each call, by kind."""
    app = App(url)
    app.noop.enqueue_sync(*_ARGUMENTS)  # makes the tables
    bare = bare_inserts(url)
    samples: dict[str, list[float]] = {name: [] for name in ("enqueue_sync", "bare_sync")}
    serving = threading.Thread(target=_serve, args=(app, bare, _WARM + count, samples))
    serving.start()
    serving.join()
    app.windlass.blocking.close()
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        samples |= runner.run(_awaited(app, bare, _WARM + count))
    return {name: seconds[_WARM:] for name, seconds in samples.items()}


def _serve(app: App, bare: BareInserts, count: int, samples: dict[str, list[float]]) -> None:
    """Call as a thread of a web server does."""
    for _ in range(count):
        began = time.perf_counter()
        app.noop.enqueue_sync(*_ARGUMENTS)
        middle = time.perf_counter()
        bare.insert_now()
        samples["bare_sync"].append(time.perf_counter() - middle)
        samples["enqueue_sync"].append(middle - began)


async def _awaited(app: App, bare: BareInserts, count: int) -> dict[str, list[float]]:
    enqueued: list[float] = []
    inserted: list[float] = []
    async with app.windlass:
        for _ in range(count):
            began = time.perf_counter()
            await app.noop.enqueue(*_ARGUMENTS)
            middle = time.perf_counter()
            await bare.insert()
            inserted.append(time.perf_counter() - middle)
            enqueued.append(middle - began)
    await bare.close()
    return {"enqueue": enqueued, "bare": inserted}
