"""Misfits: jobs that this worker cannot run must not slow the others down.

Fifty thousand jobs whose arguments do not fit the function, each met once before, come back while
no-op jobs are drained; another worker is registered with another version of the code, so none of
them fails. Against the same drain without them, alternate rounds, one worker process each.
"""

from __future__ import annotations

import functools
from datetime import timedelta

from benchmarks.child import child
from benchmarks.figure import Figure, Target
from benchmarks.place import Place
from benchmarks.stage import Stage, alternate
from benchmarks.worker import App, fill, make_calls, serve
from windlass._app.parts import parts_of
from windlass._core.job.job import AttemptError, ClaimedJob, NewJob
from windlass._core.job.transition import release
from windlass._storage.protocol.jobs import Want
from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.workers import WorkerStart
from windlass._system.seams import new_job_ids

__all__ = ["measure"]

SLOTS, CHUNK = 200, 1_000
EACH_SECOND = 100
"""So many come back to one worker in a second: see `windlass._worker.claim.unrunnable_jobs`."""
HOUR = timedelta(hours=1)
WHY = AttemptError("PayloadError", "Misfit: Object contains unknown field `nothing`")


async def measure(stage: Stage) -> list[Figure]:
    """Measure the drain with them and without."""
    sizes, place, listener = stage
    jobs, misfits = sizes.drain_jobs, sizes.misfits
    rounds = await alternate(
        min(sizes.rounds, 5),
        {
            "without misfits": functools.partial(_drain, place, jobs, 0),
            "with misfits": functools.partial(_drain, place, jobs, misfits),
        },
        listener,
    )
    return [
        Figure(
            name="misfits",
            title=f"drain beside {misfits:,} jobs that do not fit",
            measured=rounds["with misfits"],
            unit="jobs/s",
            yardstick=rounds["without misfits"],
            yardstick_name="without them",
            target=Target("at least", 0.90, "ratio"),
            note=f"{jobs:,} no-op jobs, {SLOTS} slots; {rounds.spread('with misfits')}",
        )
    ]


async def _drain(place: Place, jobs: int, misfits: int) -> float:
    with place.scratch() as url:
        app = App(url).windlass
        async with app:
            storage = await parts_of(app).storage()
            met = await _meet(storage, misfits)
            await fill(place, url, lambda its: make_calls(its.noop, jobs))
            await _give_back(storage, met)
        async with child(serve, url=url, slots=SLOTS) as worker:
            await worker.hear()
            began = await worker.ask("start")
            ended = await worker.ask({"finished": jobs})
    return jobs / float(ended - began)


async def _meet(storage: Storage, misfits: int) -> list[ClaimedJob]:
    """Store jobs that do not fit, and claim each as a worker with another version of the code."""
    other = WorkerStart(
        id="other", host="", pid=0, version="", queues=["default"], slots=1, lease=HOUR
    )
    await storage.workers.register(other)
    met: list[ClaimedJob] = []
    for start in range(0, misfits, CHUNK):
        ids = new_job_ids(min(CHUNK, misfits - start))
        jobs = [NewJob(id=job, task="noop", payload=b'{"nothing":1}') for job in ids]
        await storage.jobs.insert(jobs)
        reply = await storage.jobs.claim("other", [Want("default", CHUNK)], total=CHUNK)
        met += reply.jobs
    return met


async def _give_back(storage: Storage, met: list[ClaimedJob]) -> None:
    """Have them wait in line. The last in line first: none is due before all have come back."""
    numbered = list(enumerate(met))[::-1]
    for start in range(0, len(numbered), CHUNK):
        await storage.jobs.apply(
            [
                release(job, by="other", delay=_turn(number), missed=WHY, started=False)
                for number, job in numbered[start : start + CHUNK]
            ]
        )


def _turn(number: int) -> timedelta:
    """When a job comes back that many others come before: those of a second together."""
    return timedelta(seconds=1 + number // EACH_SECOND)
