"""Claims beside large flows: while dependents are cancelled, and while many jobs wait.

Cascade: many jobs wait for one, which fails. They are cancelled in portions, by claims and by a
maintenance loop beside them. The longest claim meanwhile is held against the longest one before the
failure, with the same loop.

Resume: the links of a chain are run one by one in front of many waiting jobs. Each must be in the
claim that follows the end of the one before it.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from benchmarks.child import run
from benchmarks.figure import Figure, Target
from benchmarks.figures.flat import CLAIM, enlist
from benchmarks.stage import Rounds, Stage
from benchmarks.worker import App, make_calls, store
from windlass import Flow
from windlass._app.parts import parts_of
from windlass._core.job.job import AttemptError, ClaimedJob, FlowId
from windlass._core.job.transition import fail, succeed
from windlass._storage.protocol.jobs import Want
from windlass._storage.protocol.storage import Storage
from windlass._worker.liveness.maintenance import CHUNK_SIZE, run_until_done

__all__ = ["claim_beside_cascade", "measure_cascade", "measure_resume", "resume_links"]

_WORKER, _QUEUE, _FLOW_QUEUE = "w-bench", "default", "flow"
_BEFORE = 50
"""Claims before the failure, at least."""
_PAUSE = 0.1
_LINKS = 30


# --- cascade --------------------------------------------------------------------------------------


async def measure_cascade(stage: Stage) -> list[Figure]:
    """Measure the longest claim while dependents are cancelled."""
    sizes, place, listener = stage
    longest: dict[str, list[float]] = {"before": [], "meanwhile": []}
    notes: list[str] = []
    for number in range(max(sizes.rounds // 2, 1)):
        listener.step(f"round {number + 1}")
        with place.scratch() as url:
            found = await run(claim_beside_cascade, url=url, dependents=sizes.flow_jobs)
        before, meanwhile, seconds = found
        longest["before"].append(max(before) * 1000)
        longest["meanwhile"].append(max(meanwhile) * 1000)
        notes.append(
            f"{len(meanwhile)} claims in {seconds:.1f} s, "
            f"median {statistics.median(meanwhile) * 1000:.1f} ms"
        )
    rounds = Rounds(longest)
    return [
        Figure(
            name="cascade",
            title=f"longest claim of {CLAIM} while {sizes.flow_jobs:,} jobs are cancelled",
            measured=rounds["meanwhile"],
            unit="ms",
            yardstick=rounds["before"],
            yardstick_name="longest before",
            target=Target("at most", 3.0, "ratio"),
            note=f"{notes[-1]}; {rounds.spread('meanwhile')}",
        )
    ]


async def claim_beside_cascade(
    url: str, dependents: int
) -> tuple[Sequence[float], Sequence[float], float]:
    """Return the seconds of each claim before the failure, of each one until all dependents have
    ended, and of that whole time.
    """
    app = App(url)
    storage = await parts_of(app.windlass).storage()
    noop = app.noop.options(queue=_FLOW_QUEUE)
    flow = Flow("cascade")
    first, *others = (
        noop.call(f"{number}@example.com", "Your order", "shipped", number)
        for number in range(dependents + 1)
    )
    flow.map_calls(others, after=flow.add(first))
    started = await app.windlass.start(flow)
    claims = max(_BEFORE, dependents // CHUNK_SIZE)
    await store(app.windlass, make_calls(app.noop, 3 * claims * CLAIM))
    await enlist(storage, [_QUEUE, _FLOW_QUEUE])
    await run_until_done(storage.flows.settle)  # places the first
    (job,) = await _claim(storage, _FLOW_QUEUE, 1)
    async with _settling(storage):
        before = [await _timed_claim(storage) for _ in range(claims)]
        error = AttemptError("ValueError", "boom", "")
        await storage.jobs.apply([fail(job, by=_WORKER, error=error)])
        began, meanwhile = time.perf_counter(), [await _timed_claim(storage)]
        while (await started.refresh()).open:
            meanwhile.append(await _timed_claim(storage))
        took = time.perf_counter() - began
    await app.windlass.close()
    return before, meanwhile, took


@asynccontextmanager
async def _settling(storage: Storage) -> AsyncIterator[None]:
    """Settle flows beside the block, as the worker does that leads."""

    async def settle() -> None:
        while True:
            await run_until_done(storage.flows.settle)
            await asyncio.sleep(_PAUSE)

    beside = asyncio.create_task(settle())
    try:
        yield
    finally:
        beside.cancel()
        await asyncio.wait([beside])


# --- resume ---------------------------------------------------------------------------------------


async def measure_resume(stage: Stage) -> list[Figure]:
    """Find the place of an unblocked member in the next claim."""
    sizes, place, listener = stage
    listener.step(f"{sizes.flow_jobs:,} jobs wait")
    with place.scratch() as url:
        places, seconds = await run(resume_links, url=url, waiting=sizes.flow_jobs)
    return [
        Figure(
            name="resume",
            title=f"place of an unblocked job in the next claim, {sizes.flow_jobs:,} wait",
            measured=max(places),
            unit="place",
            target=Target("at most", 1),
            note=f"the last of {len(places)} links of a chain; "
            f"median claim of {CLAIM} {statistics.median(seconds) * 1000:.1f} ms",
        )
    ]


async def resume_links(url: str, waiting: int) -> tuple[list[int], list[float]]:
    """Run a chain in front of waiting jobs. Return the place of each link in the claim that follows
    the end of the one before it, from 1 on, and the seconds of that claim.
    """
    app = App(url)
    storage = await parts_of(app.windlass).storage()
    flow = Flow("chain")
    node = None
    for call in make_calls(app.noop, _LINKS):
        node = flow.add(call) if node is None else flow.add(call, after=node)
    run_of_flow = await app.windlass.start(flow)
    await store(app.windlass, make_calls(app.noop, waiting + _LINKS * CLAIM))
    await enlist(storage, [_QUEUE])
    places: list[int] = []
    seconds: list[float] = []
    for _ in range(_LINKS):
        began = time.perf_counter()
        jobs = await _claim(storage, _QUEUE, CLAIM)
        seconds.append(time.perf_counter() - began)
        found = [n for n, job in enumerate(jobs, 1) if _is_of(job, run_of_flow.id)]
        places.append(found[0] if found else CLAIM + 1)
        await storage.jobs.apply([succeed(job, by=_WORKER, result=None) for job in jobs])
    await app.windlass.close()
    return places, seconds


def _is_of(job: ClaimedJob, flow: FlowId) -> bool:
    return job.flow is not None and job.flow.flow == flow


# --- claims ---------------------------------------------------------------------------------------


async def _claim(storage: Storage, queue: str, many: int) -> Sequence[ClaimedJob]:
    return (await storage.jobs.claim(_WORKER, [Want(queue, many)], total=many)).jobs


async def _timed_claim(storage: Storage) -> float:
    began = time.perf_counter()
    await _claim(storage, _QUEUE, CLAIM)
    return time.perf_counter() - began
