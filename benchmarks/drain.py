"""Drain: how fast a worker runs jobs that do nothing.

A file is filled with ``enqueue_many`` and closed. A worker process opens it, under uvloop, with
200 slots and everything else as shipped. The clock runs from the moment before the worker is
made, its registration and threads included, to the last committed finish. The yardstick is
`benchmarks.bare.drain`, in a process of its own, in rounds that alternate with Windlass's; its
share of the bare claim and finish statements is printed beside it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from contextlib import AsyncExitStack

from benchmarks import bare
from benchmarks.child import child, run
from benchmarks.figure import Figure, Target
from benchmarks.sizes import Sizes
from benchmarks.stage import Listener, alternate, scratch
from benchmarks.worker import App, fill, make_calls, serve
from windlass.task import Call

__all__ = ["measure", "rate"]

SLOTS = 200


async def measure(sizes: Sizes, listener: Listener) -> list[Figure]:
    """One worker process against the bare loop, and two against one."""
    jobs = sizes.drain_jobs
    rounds = await alternate(
        sizes.rounds,
        {
            "bare loop": functools.partial(run, bare.drain, jobs=jobs),
            "one worker": functools.partial(_drain, jobs, 1),
            "two workers": functools.partial(_drain, jobs, 2),
            "bare claim and finish": functools.partial(run, bare.claim_and_finish, jobs=jobs),
        },
        listener,
    )
    share = rounds["bare loop"] / rounds["bare claim and finish"]
    return [
        Figure(
            name="drain",
            title="drain, one worker process",
            measured=rounds["one worker"],
            unit="jobs/s",
            yardstick=rounds["bare loop"],
            yardstick_name="bare loop",
            target=Target("at least", 0.60, "ratio"),
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
            target=Target("at least", 0.90, "ratio"),
            note=f"one file; {rounds.spread('two workers')}",
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


def _noops(jobs: int, app: App) -> Sequence[Call]:
    return make_calls(app.noop, jobs)


async def _drain(jobs: int, workers: int) -> float:
    with scratch() as url:
        await fill(url, functools.partial(_noops, jobs))
        return await rate(url, jobs, workers=workers, slots=SLOTS)


async def rate(url: str, jobs: int, *, workers: int, slots: int) -> float:
    """Jobs per second until this many worker processes have drained the file."""
    async with AsyncExitStack() as stack:
        crew = [
            await stack.enter_async_context(child(serve, url=url, slots=slots))
            for _ in range(workers)
        ]
        for worker in crew:
            await worker.hear()
        began = [await worker.ask("start") for worker in crew]
        ends = [await worker.ask("drained") for worker in crew]
    done = sum(count for _, count in ends)
    if done != jobs:
        raise AssertionError(f"{done} of {jobs} jobs were finished")
    return jobs / float(max(at for at, _ in ends) - min(began))
