"""Lanes: ten thousand limited lines of ten jobs each must not slow a claim down.

Every job counts against a limit with a key of its own lane, two at a time; in the second file
all of them share one rate besides. Claims of 100 follow each other as a worker's do: what one
brought is finished after the next, untimed. Then the lanes close behind the rate, and claims that
find next to nothing are among those timed.
"""

from __future__ import annotations

import statistics
import time
from datetime import timedelta

from benchmarks.child import run
from benchmarks.figure import Figure, Target
from benchmarks.figures.flat import CLAIM, enlist
from benchmarks.stage import Stage
from benchmarks.worker import App
from windlass._app.parts import parts_of
from windlass._core.job.job import ClaimedJob, LimitUse, NewJob
from windlass._core.job.transition import succeed
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._storage.protocol.jobs import Want
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import new_job_ids

__all__ = ["OWN", "SHARED", "claim_from_lanes", "fill_lanes", "measure"]

JOBS_PER_LANE, CHUNK = 10, 1_000
OWN = LimitSpec(name="own", concurrency=2)
SHARED = LimitSpec(name="shared", rate=Rate(1000, per=timedelta(seconds=1), burst=CLAIM))


async def measure(stage: Stage) -> list[Figure]:
    """Lanes of their own, and lanes that all share one rate."""
    sizes, place, listener = stage
    figures = []
    for name, title in (("own", "limits of their own"), ("shared", "one shared rate")):
        listener.step(f"{sizes.lanes:,} lanes, {title}")
        with place.scratch() as url:
            seconds = await run(
                claim_from_lanes, url=url, lanes=sizes.lanes, claims=sizes.claims, kind=name
            )
        figures.append(
            Figure(
                name=f"lanes_{name}",
                title=f"claim of {CLAIM} from {sizes.lanes:,} lanes, {title}",
                measured=statistics.median(seconds) * 1000,
                unit="ms",
                target=Target("under", 10.0),
                note=f"{JOBS_PER_LANE} jobs a lane; the slowest of {len(seconds)} "
                f"{max(seconds) * 1000:.1f} ms",
            )
        )
    return figures


async def claim_from_lanes(url: str, lanes: int, claims: int, kind: str) -> list[float]:
    """Seconds per claim."""
    app = App(url).windlass
    storage = await parts_of(app).storage()
    await storage.limits.define([OWN, SHARED])
    await enlist(storage, ["default"])
    await fill_lanes(storage, lanes, kind)
    seconds: list[float] = []
    before: list[ClaimedJob] = []
    for _ in range(claims):
        began = time.perf_counter()
        reply = await storage.jobs.claim("w-bench", [Want("default", CLAIM)], total=CLAIM)
        seconds.append(time.perf_counter() - began)
        await storage.jobs.apply([succeed(job, by="w-bench", result=None) for job in before])
        before = list(reply.jobs)
    await app.close()
    return seconds


async def fill_lanes(storage: Storage, lanes: int, kind: str) -> None:
    """Store the jobs: under limits of their own, one shared rate besides, or (plain) none."""
    every = (LimitUse("shared"),) if kind == "shared" else ()
    for _ in range(JOBS_PER_LANE):
        for start in range(0, lanes, CHUNK):
            numbers = range(start, min(start + CHUNK, lanes))
            await storage.jobs.insert(
                [
                    NewJob(
                        id=job,
                        task="noop",
                        limits=() if kind == "plain" else (LimitUse("own", str(number)), *every),
                    )
                    for number, job in zip(numbers, new_job_ids(len(numbers)), strict=True)
                ]
            )
