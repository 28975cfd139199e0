"""Actions: how long a claim takes while an operator's action changes very many jobs.

The storage holds jobs in 20 queues, as in `flat`. One process claims job after job, one queue after
the other, with short pauses. The action changes the priority of waiting jobs. It runs in the
process that claims, as in an application with a dashboard, or in another one. Each round with the
action is followed by as many claims without it, so that both have as many chances of a slow one.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import time
from typing import Any

from benchmarks.child import answer, child, requests, run
from benchmarks.figure import Figure, Target, percentile
from benchmarks.figures.flat import QUEUES, build, build_by_store, enlist
from benchmarks.stage import Stage
from benchmarks.worker import App
from windlass._app.parts import parts_of
from windlass._core.job.state import State
from windlass._storage.protocol.actions import Edit
from windlass._storage.protocol.jobs import Want
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.storage import Storage

__all__ = ["act", "claim", "measure"]

_PAUSE = 0.002
_PLACES = {"here": "in the same process", "apart": "in another process"}


async def measure(stage: Stage) -> list[Figure]:
    """Measure the longest claim beside an action, in the claimer's process and in another one."""
    sizes, place, listener = stage
    jobs, rounds = sizes.action_jobs, min(sizes.rounds, 3)
    samples: dict[str, list[dict[str, Any]]] = {where: [] for where in _PLACES}
    with place.scratch() as url:
        listener.step(f"building {3 * sizes.action_rows:,} jobs")
        way = build if place.backend == "sqlite" else build_by_store
        await run(way, url=url, each=sizes.action_rows, order="interleaved")
        place.settle(url)
        async with child(claim, url=url) as claimer, child(act, url=url) as actor:
            await claimer.hear()
            await actor.hear()
            for number in range(2 * rounds):
                where = "here" if number % 2 == 0 else "apart"
                listener.step(f"action {_PLACES[where]}, {number // 2 + 1} of {rounds}")
                action = {"jobs": jobs, "priority": 5 + number}
                if where == "here":
                    samples[where].append(await claimer.ask(action))
                    continue
                await claimer.ask("begin")
                seconds = await actor.ask(action)
                samples[where].append(await claimer.ask("end") | {"seconds": seconds})
    return [_figure(where, jobs, samples[where]) for where in _PLACES]


def _figure(where: str, jobs: int, rounds: list[dict[str, Any]]) -> Figure:
    during = [1000 * max(one["during"]) for one in rounds]
    alone = [1000 * max(one["alone"]) for one in rounds]
    every = [1000 * seconds for one in rounds for seconds in one["during"]]
    return Figure(
        name=f"claims_beside_action_{where}",
        title=f"longest claim while an action changes {jobs:,} jobs {_PLACES[where]}",
        measured=statistics.median(during),
        unit="ms",
        yardstick=statistics.median(alone),
        yardstick_name="without it",
        target=Target("at most", 3.0, "ratio"),
        note=f"medians of the longest in each of {len(rounds)} rounds: {_listed(during)} ms, "
        f"without it {_listed(alone)} ms; {len(every):,} claims beside it, p50 "
        f"{percentile(every, 0.5):.1f} ms, p99 {percentile(every, 0.99):.1f} ms; the action took "
        f"{statistics.median(one['seconds'] for one in rounds):.1f} s",
    )


def _listed(milliseconds: list[float]) -> str:
    return ", ".join(f"{each:.1f}" for each in milliseconds)


# --- in separate processes --------------------------------------------------------------------


async def claim(url: str) -> None:
    """Claim jobs one by one, by requests; answers are seconds per claim.

    ``{"jobs": n, …}`` claims while this process changes ``n`` jobs by an action. ``"begin"`` and
    ``"end"`` enclose one of another process. As many claims without an action follow both.
    """
    app = App(url).windlass
    async with app:
        storage = await parts_of(app).storage()
        claimer = _Claimer(storage)
        await enlist(storage, claimer.queues)
        await claimer.claim()  # prepares its statements
        answer("ready")
        ended, claims = asyncio.Event(), asyncio.create_task(asyncio.sleep(0, list[float]()))
        async for request in requests():
            if request == "end":
                ended.set()
                during = await claims
                answer({"during": during, "alone": await claimer.times(len(during))})
                continue
            ended = asyncio.Event()
            claims = asyncio.create_task(claimer.until(ended))
            if request == "begin":
                answer("begun")
                continue
            seconds = await _act(app, **request)
            ended.set()
            during = await claims
            alone = await claimer.times(len(during))
            answer({"during": during, "alone": alone, "seconds": seconds})


class _Claimer:
    """Claims one job at a time and measures the seconds."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.queues = [f"queue-{number:02}" for number in range(QUEUES)]
        self._turns = itertools.cycle(self.queues)

    async def until(self, ended: asyncio.Event) -> list[float]:
        seconds: list[float] = []
        while not ended.is_set():
            seconds.append(await self.claim())
            await asyncio.sleep(_PAUSE)
        return seconds

    async def times(self, count: int) -> list[float]:
        seconds: list[float] = []
        while len(seconds) < count:
            seconds.append(await self.claim())
            await asyncio.sleep(_PAUSE)
        return seconds

    async def claim(self) -> float:
        wants = [Want(next(self._turns), 1)]
        began = time.perf_counter()
        reply = await self._storage.jobs.claim("w-bench", wants, total=1)
        seconds = time.perf_counter() - began
        if not reply.jobs:
            raise AssertionError("there was nothing left to claim")
        return seconds


async def act(url: str) -> None:
    """Carry out actions by requests; answers are their seconds."""
    app = App(url).windlass
    async with app:
        answer("ready")
        async for request in requests():
            answer(await _act(app, **request))


async def _act(app: Any, jobs: int, priority: int) -> float:
    wanted = JobFilter(states=[State.WAITING], task="noop")
    began = time.perf_counter()
    report = await app.admin.jobs.bulk(Edit(priority=priority), wanted, most=jobs)
    if not report.done:
        raise AssertionError(f"the action changed none of {report.matched} jobs")
    return time.perf_counter() - began
