"""The few things every conformance test does: make jobs, enlist workers, claim, end, look."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from windlass._core.job.job import AttemptError, ClaimedJob, JobId, JobRecord, LimitUse, NewJob
from windlass._core.job.outcome import GaveUp, Outcome, Policy
from windlass._core.job.transition import Transition, decide, succeed, throttle
from windlass._core.job.unique import UniqueKey, Window
from windlass._core.limits.backoff import Backoff
from windlass._core.limits.limit import LimitSpec
from windlass._storage.protocol.actions import (
    ActionResult,
    AuditNote,
    Discard,
    JobAction,
    Requeue,
    RunNow,
)
from windlass._storage.protocol.jobs import ClaimReply, TransitionAnswer, Verdict, Want
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.queues import QueueRecord
from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.workers import WorkerStart
from windlass._system.seams import new_job_id
from windlass.errors import JobNotFound, KeyConflict, WrongState

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
INSTANT = timedelta(microseconds=1)

OOPS = AttemptError("ValueError", "boom", "Traceback (most recent call last): ...")
POLICY = Policy(backoff=Backoff.fixed(MINUTE))


# --- making -----------------------------------------------------------------------------------


def a_job(**asked: Any) -> NewJob:
    """Return a job with defaults, except for the given values."""
    return msgspec.structs.replace(NewJob(id=new_job_id(), task="conform"), **asked)


def keyed(key: str, window: Window = Window.UNTIL_FINISHED, **asked: Any) -> NewJob:
    """Return a job with a unique key."""
    period = HOUR if window is Window.FOR_A_TIME else None
    return a_job(unique=UniqueKey(key, window, period), **asked)


def limited(*limits: str, **asked: Any) -> NewJob:
    """Return a job that counts against limits: ``"name"`` or ``"name:key"``."""
    parts = [limit.partition(":") for limit in limits]
    return a_job(limits=tuple(LimitUse(name, key) for name, _, key in parts), **asked)


def a_worker(worker: str = "w1", *, lease: timedelta = timedelta(seconds=30)) -> WorkerStart:
    """Return a worker's registration."""
    return WorkerStart(
        id=worker, host="host", pid=1, version="0", queues=["default"], slots=10, lease=lease
    )


def a_note(**said: Any) -> AuditNote:
    """Return an audit note with defaults, except for the given values."""
    note = AuditNote(id=new_job_id(), who="alice", what="jobs.try")
    return msgspec.structs.replace(note, **said)


def seeded(seed: int) -> random.Random:
    """Chance that takes the same turns every time."""
    return random.Random(seed)  # noqa: S311 -- guards no secret


# --- acting -----------------------------------------------------------------------------------


async def enlist(storage: Storage, *workers: str) -> None:
    """Register workers, by default ``w1``."""
    for worker in workers or ("w1",):
        await storage.workers.register(a_worker(worker))


async def at_most(storage: Storage, **concurrency: int) -> None:
    """Define limits on how many run at once, and enlist a worker to claim with."""
    await enlist(storage)
    await storage.limits.define(
        [LimitSpec(name=name, concurrency=most) for name, most in concurrency.items()]
    )


async def add(storage: Storage, *jobs: NewJob) -> list[JobId]:
    """Store jobs that are all new."""
    answers = await storage.jobs.insert(jobs)
    assert [(answer.id, answer.created) for answer in answers] == [(job.id, True) for job in jobs]
    return [answer.id for answer in answers]


async def ask(
    storage: Storage,
    limit: int = 1,
    *,
    worker: str = "w1",
    queue: str = "default",
    solo: bool = False,
) -> ClaimReply:
    """Claim from one queue; the whole reply."""
    return await storage.jobs.claim(worker, [Want(queue, limit)], total=limit, solo=solo)


async def claim(
    storage: Storage,
    limit: int = 1,
    *,
    worker: str = "w1",
    queue: str = "default",
    solo: bool = False,
) -> list[ClaimedJob]:
    """Claim from one queue; the jobs."""
    return list((await ask(storage, limit, worker=worker, queue=queue, solo=solo)).jobs)


async def claim_one(storage: Storage, worker: str = "w1", *, solo: bool = False) -> ClaimedJob:
    """Claim exactly one job, which must be there."""
    jobs = await claim(storage, worker=worker, solo=solo)
    assert len(jobs) == 1, "nothing was claimable"
    return jobs[0]


async def started(storage: Storage, job: NewJob | None = None, worker: str = "w1") -> ClaimedJob:
    """Return a running job: its worker enlisted, itself stored and claimed."""
    await enlist(storage, worker)
    (wanted,) = await add(storage, job or a_job())
    claimed = await claim_one(storage, worker)
    assert claimed.claim.job == wanted
    return claimed


async def end(storage: Storage, *transitions: Transition) -> list[TransitionAnswer]:
    """Apply transitions, with any answer."""
    return list((await storage.jobs.apply(transitions)).answers)


async def ended(storage: Storage, transition: Transition) -> TransitionAnswer:
    """Apply one transition, which must be accepted."""
    (answer,) = await end(storage, transition)
    assert answer.verdict is Verdict.APPLIED
    return answer


async def happened(
    storage: Storage, job: ClaimedJob, outcome: Outcome, policy: Policy = POLICY, *, by: str = ""
) -> TransitionAnswer:
    """End a claim the way the runtime does: by what `decide` makes of the outcome."""
    now = await storage.now()
    transition = decide(job, outcome, policy, by=by or job.worker, now=now, chance=0.5)
    return await ended(storage, transition)


async def succeeded(storage: Storage, job: ClaimedJob) -> TransitionAnswer:
    return await ended(storage, succeed(job, by=job.worker, result=None))


async def failed(storage: Storage, job: NewJob | None = None, **asked: Any) -> JobId:
    """Return a failed job's id."""
    running = await started(storage, job or a_job(**asked))
    await happened(storage, running, GaveUp(OOPS))
    return running.claim.job


async def obeyed(
    storage: Storage, order: JobAction, *jobs: JobId, note: AuditNote | None = None
) -> list[ActionResult]:
    """Return the results of an action for each of these jobs."""
    return list(await storage.orders.order(order, jobs, note or a_note()))


async def requeue(storage: Storage, *jobs: JobId) -> list[JobRecord]:
    """Put jobs back to waiting; raises for the first that cannot be."""
    answers = await obeyed(storage, Requeue(), *jobs)
    await _require(storage, jobs, answers, "requeue", "failed, cancelled or discarded")
    return [await look(storage, job) for job in jobs]


async def discard(storage: Storage, *jobs: JobId, reason: str = "no use") -> None:
    """Give up on failed jobs; raises for the first that cannot be."""
    answers = await obeyed(storage, Discard(reason), *jobs)
    await _require(storage, jobs, answers, "discard", "failed")


async def run_now(storage: Storage, *jobs: JobId) -> list[bool]:
    """Make waiting jobs due; whether each of them is."""
    return [answer is ActionResult.DONE for answer in await obeyed(storage, RunNow(), *jobs)]


async def _require(
    storage: Storage, jobs: Sequence[JobId], answers: Sequence[ActionResult], order: str, needs: str
) -> None:
    for job, answer in zip(jobs, answers, strict=True):
        match answer:
            case ActionResult.UNKNOWN:
                raise JobNotFound(job)
            case ActionResult.WRONG_STATE:
                raise WrongState(job, (await look(storage, job)).state, order, needs)
            case ActionResult.CONFLICT:
                key = (await look(storage, job)).key or ""
                found = await storage.admin.find(JobFilter(key=key), limit=100)
                raise KeyConflict(key, next(one.id for one in found if one.key_held))


async def throttled(
    storage: Storage, job: ClaimedJob, *cools: timedelta, delay: timedelta = timedelta(0)
) -> TransitionAnswer:
    """End a claim as throttled."""
    return await ended(storage, throttle(job, by=job.worker, delay=delay, cools=cools))


# --- looking ----------------------------------------------------------------------------------


async def look(storage: Storage, job: JobId | ClaimedJob | NewJob) -> JobRecord:
    """Return the stored job, which must be there."""
    match job:
        case ClaimedJob():
            wanted = job.claim.job
        case NewJob():
            wanted = job.id
        case _:
            wanted = job
    (found,) = await storage.admin.get([wanted])
    assert found is not None, f"job {wanted} is not stored"
    return found


async def every(storage: Storage, wanted: JobFilter, *, limit: int = 100) -> list[JobId]:
    """Return the ids of all matching jobs, newest first, however many pages they take."""
    found: list[JobId] = []
    page = await storage.admin.find(wanted, limit=limit)
    found += [job.id for job in page]
    while page.next is not None:
        page = await storage.admin.find(
            msgspec.structs.replace(wanted, before=page.next), limit=limit
        )
        found += [job.id for job in page]
    return found


async def total(storage: Storage) -> int:
    """Count the stored jobs of all states."""
    return sum(
        queue.ready
        + queue.scheduled
        + queue.running
        + queue.succeeded
        + queue.failed
        + queue.cancelled
        + queue.discarded
        for queue in await storage.admin.counts()
    )


async def queue_record(storage: Storage, queue: str = "default") -> QueueRecord:
    """Return the record of a queue; an empty one if it is not listed."""
    records = {record.queue: record for record in await storage.queues.queues()}
    return records.get(queue, QueueRecord(queue=queue))


def ids(jobs: Sequence[ClaimedJob]) -> list[JobId]:
    return [job.claim.job for job in jobs]
