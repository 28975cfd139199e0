"""Flows: what waiting for jobs costs, against plain jobs in the same run.

The same jobs that do nothing are drained by one worker process, in rounds that alternate: plain; as
one part that a last job waits for; as one part that waits for a first job; and, with one slot, as a
chain in which each waits for the one before it. Plain ones are stored with ``enqueue_many``, the
others with ``app.start``, and both are timed.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable
from typing import Literal

from benchmarks.child import run
from benchmarks.figure import Figure, Target
from benchmarks.figures.drain import SLOTS, rate
from benchmarks.place import Place
from benchmarks.stage import Rounds, Stage, alternate
from benchmarks.worker import App, make_calls, store
from windlass import Flow

__all__ = ["Kind", "fill_kind", "measure"]

LINKS = 1_000
"""Of the chain."""

Kind = Literal["plain", "fan-in", "fan-out", "links", "chain"]


async def measure(stage: Stage) -> list[Figure]:
    """Drain and start flows of each shape against plain jobs."""
    sizes, place, listener = stage
    jobs, links = sizes.drain_jobs // 2, min(LINKS, sizes.drain_jobs // 10)
    stored: dict[str, list[float]] = {}
    ways: dict[str, Callable[[], Awaitable[float]]] = {
        kind: functools.partial(
            _drain, place, kind, links if one else jobs, 1 if one else SLOTS, stored
        )
        for kind, one in _KINDS.items()
    }
    drained = await alternate(sizes.rounds, ways, listener)
    return [
        _figure("fan-in", "plain", 0.9, f"{jobs:,} jobs and one that waits for them", drained),
        _figure("fan-out", "plain", 0.7, f"{jobs:,} jobs that wait for one", drained),
        _figure("chain", "links", 0.8, f"{links:,} jobs in a row, one slot", drained),
        _figure("start", "plain", 0.75, f"{jobs:,} jobs of one flow", _started(stored)),
    ]


_KINDS: dict[Kind, bool] = {
    "plain": False,
    "fan-in": False,
    "fan-out": False,
    "links": True,
    "chain": True,
}
"""Shapes, and whether one slot runs them."""


def _started(stored: dict[str, list[float]]) -> Rounds:
    return Rounds({"plain": stored["plain"], "start": stored["fan-in"]})


def _figure(kind: str, yardstick: str, least: float, note: str, rounds: Rounds) -> Figure:
    return Figure(
        name=kind.replace("-", "_"),
        title="app.start" if kind == "start" else f"drain of a flow: {kind}",
        measured=rounds[kind],
        unit="jobs/s",
        yardstick=rounds[yardstick],
        yardstick_name="enqueue_many" if kind == "start" else "plain jobs",
        target=Target("at least", least, "ratio"),
        note=f"{note}; {rounds.spread(kind)}",
    )


async def _drain(
    place: Place, kind: Kind, jobs: int, slots: int, stored: dict[str, list[float]]
) -> float:
    with place.scratch() as url:
        seconds = await run(fill_kind, url=url, kind=kind, jobs=jobs)
        place.settle(url)
        stored.setdefault(kind, []).append(jobs / float(seconds))
        extra = 1 if kind in {"fan-in", "fan-out"} else 0
        return await rate(url, jobs + extra, workers=1, slots=slots)


async def fill_kind(url: str, kind: Kind, jobs: int) -> float:
    """Store jobs of one shape; answer with the seconds that it took."""
    app = App(url)
    async with app.windlass:
        calls = make_calls(app.noop, jobs)
        await app.windlass.admin.queues.counts()  # opens the store
        if kind in {"plain", "links"}:
            began = time.perf_counter()
            await store(app.windlass, calls)
            return time.perf_counter() - began
        flow = Flow(kind)
        (last,) = make_calls(app.noop, 1)
        if kind == "chain":
            node = flow.add(calls[0])
            for call in calls[1:]:
                node = flow.add(call, after=node)
        elif kind == "fan-in":
            flow.add(last, after=flow.map_calls(calls))
        else:
            flow.map_calls(calls, after=flow.add(last))
        began = time.perf_counter()
        await app.windlass.start(flow)
        return time.perf_counter() - began
