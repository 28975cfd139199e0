"""Retention: what a drained job costs a server whose successes are deleted as they end.

Claims of a hundred jobs follow each other, and each is finished before the next. Kept successes are
deleted afterwards as the maintenance of a worker deletes them. What is compared is the processor
time of the server for one job: claim, finish and deletion.
"""

from __future__ import annotations

from datetime import timedelta

from benchmarks.child import answer, child, requests
from benchmarks.figure import Figure, Target
from benchmarks.figures.flat import CLAIM, enlist
from benchmarks.stage import Stage, alternate
from benchmarks.worker import App, fill, make_calls
from windlass._app.parts import parts_of
from windlass._core.job.state import State
from windlass._core.job.transition import succeed
from windlass._storage.protocol.jobs import Want

__all__ = ["drain_store", "measure"]

KEPT, DELETED = "kept and pruned", "retention 0"
PRUNED = 1_000
"""Jobs that one call of the maintenance deletes."""


async def measure(stage: Stage) -> list[Figure]:
    """Measure the server's time for a job that is kept and pruned, and for one that is not kept."""
    sizes, place, listener = stage
    if place.backend == "sqlite":
        return []

    async def cost(*, keep: bool) -> float:
        with place.scratch() as url:
            await fill(place, url, lambda app: make_calls(app.noop, sizes.drain_jobs))
            async with child(drain_store, url=url) as draining:
                await draining.hear()
                before = place.processor_seconds()
                count: int = await draining.ask(keep)
                return (place.processor_seconds() - before) / count * 1e6

    ways = {KEPT: lambda: cost(keep=True), DELETED: lambda: cost(keep=False)}
    rounds = await alternate(sizes.rounds, ways, listener)
    return [
        Figure(
            name="retention_0",
            title="server, one drained job with retention 0",
            measured=rounds[DELETED],
            unit="µs",
            yardstick=rounds[KEPT],
            yardstick_name=KEPT,
            target=Target("at most", 1.0, "ratio"),
            note=f"{sizes.drain_jobs:,} jobs, batches of {CLAIM}; {rounds.spread(DELETED)}",
        )
    ]


async def drain_store(url: str) -> None:
    """Drain by claims and finishes when a request says whether successes are kept; how many."""
    app = App(url).windlass
    storage = await parts_of(app).storage()
    await enlist(storage, ["default"])
    answer("ready")
    async for keep in requests():
        count = 0
        while True:
            reply = await storage.jobs.claim("w-bench", [Want("default", CLAIM)], total=CLAIM)
            if not reply.jobs:
                break
            done = [succeed(job, by="w-bench", result=None, keep=keep) for job in reply.jobs]
            await storage.jobs.apply(done)
            count += len(done)
        while await storage.maintenance.prune(
            state=State.SUCCEEDED, older_than=timedelta(0), limit=PRUNED
        ):
            pass
        answer(count)
    await app.close()
