"""Every operation of the storage contract, each with a scene in which it has an effect."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from tests.chaos.fixtures import Step
from windlass._core.job.job import (
    AttemptError,
    ClaimedJob,
    JobId,
    JobRecord,
    LimitUse,
    NewJob,
    Progress,
)
from windlass._core.job.outcome import Interrupted, Outcome, Policy, Raised, Succeeded
from windlass._core.job.state import State, Verb
from windlass._core.job.transition import Transition, decide
from windlass._core.job.unique import UniqueKey, Window
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._core.stats.rollup import Rollup
from windlass._storage.protocol.actions import (
    AuditNote,
    AuditRecord,
    Cancel,
    Delete,
    Discard,
    Edit,
    JobAction,
    Requeue,
    RunNow,
)
from windlass._storage.protocol.copy import CopiedRecord, StoredJob
from windlass._storage.protocol.jobs import Want
from windlass._storage.protocol.journal import LogChunk, LogLine
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.queues import QueueRecord
from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.workers import WorkerStart

LONG = timedelta(hours=1)
OOPS = AttemptError("ValueError", "no", "trace")
LIMITS = [
    LimitSpec(name="one", concurrency=1),
    LimitSpec(name="rate", rate=Rate(1, timedelta(seconds=2), 2)),
]

NOTE = AuditNote(id="a" * 32, who="alice", what="jobs.try", subject="job 1")
START = datetime(2029, 1, 1, tzinfo=UTC)


class Operation(NamedTuple):
    """What is there first, and what is then asked."""

    before: Sequence[Step]
    act: Step
    at: int = 1
    """Which of the requests it makes is the one that counts."""


def job(number: int) -> JobId:
    return JobId(f"{number:032x}")


def new(number: int, **more: object) -> NewJob:
    return NewJob(id=job(number), task="t", queue="a", **more)  # type: ignore[arg-type]


def worker(name: str = "w1") -> WorkerStart:
    return WorkerStart(
        id=name, host="h", pid=1, version="0", queues=["a"], slots=4, lease=timedelta(seconds=9)
    )


def inserting(*jobs: NewJob) -> Step:
    return lambda storage: storage.jobs.insert(jobs)


def ordering(order: JobAction, *jobs: JobId) -> Step:
    return lambda storage: storage.orders.order(order, jobs or [job(1)], NOTE)


def registering(name: str = "w1") -> Step:
    return lambda storage: storage.workers.register(worker(name))


async def claimed(storage: Storage, name: str = "w1") -> Sequence[ClaimedJob]:
    """What a worker holds after a claim."""
    return (await storage.jobs.claim(name, [Want("a", 2)], total=2)).jobs


def ending(outcome: Outcome) -> Step:
    """Claim, then end what was claimed; the claim is part of the scene."""

    async def end(storage: Storage) -> object:
        return await storage.jobs.apply(await transitions(storage, outcome))

    return end


async def transitions(storage: Storage, outcome: Outcome) -> list[Transition]:
    """One for each claim that the store says the worker holds."""
    beat = await storage.workers.beat("w1")
    found = await storage.admin.get([claim.job for claim in beat.holding])
    now = await storage.now()
    running = {
        one.id: ClaimedJob(
            claim=claim,
            task=one.task,
            queue=one.queue,
            payload=one.payload,
            attempt=one.attempt,
            max_attempts=one.max_attempts,
            budget=one.budget,
            due=one.due,
            started_at=one.started_at or now,
            worker="w1",
        )
        for claim, one in zip(beat.holding, found, strict=True)
        if one is not None
    }
    return [
        decide(running[name], outcome, Policy(), by="w1", now=now, chance=0.5)
        for name in sorted(running)
    ]


FAILED: Sequence[Step] = (
    registering(),
    inserting(new(1, max_attempts=1)),
    claimed,
    ending(Raised(OOPS)),
)
RUNNING: Sequence[Step] = (registering(), inserting(new(1), new(2)), claimed)
LIMITED = new(3, limits=(LimitUse("one"), LimitUse("rate")))
KEYED = new(4, unique=UniqueKey("k", Window.UNTIL_FINISHED))


BELONGINGS: Sequence[CopiedRecord] = (
    StoredJob(
        job=JobRecord(
            id=job(7),
            seq=3,
            task="t",
            queue="a",
            payload=b"{}",
            state=State.WAITING,
            priority=0,
            created_at=START,
            due=START,
            attempt=1,
            max_attempts=5,
            budget=5,
            claim_number=1,
            worker="w0",
            started_at=START,
            key="moved",
            key_held=True,
            error=OOPS,
        ),
        unique=UniqueKey("moved"),
        ended=(1, Verb.RETRY, "w0"),
    ),
    Rollup(minute=START, queue="a", task="t", counts={"retry": 1}, wait={3: 1}, run={4: 1}),
    QueueRecord(queue="b", paused=True),
    AuditRecord(number=4, note=NOTE, at=START, count=2),
)


async def _report(storage: Storage) -> object:
    holding = (await storage.workers.beat("w1")).holding
    await storage.jobs.report([(claim, Progress(0.5, "half")) for claim in holding])
    return None


async def _leave(storage: Storage) -> object:
    return await storage.workers.leave("w1", [])


async def _append_logs(storage: Storage) -> object:
    holding = (await storage.workers.beat("w1")).holding
    line = LogLine(await storage.now(), 20, "so far")
    await storage.journal.append_logs([LogChunk(claim, 1, (line,)) for claim in holding])
    return None


async def _find(storage: Storage) -> object:
    page = await storage.admin.find(JobFilter(), limit=10)
    return list(page), page.next


WRITES: dict[str, Operation] = {
    "insert": Operation([], inserting(new(1), new(2), new(5, delay=LONG))),
    "insert with a key": Operation([], inserting(KEYED)),
    "insert with limits": Operation([lambda s: s.limits.define(LIMITS)], inserting(LIMITED)),
    "cancel waiting": Operation([inserting(new(1))], lambda s: s.jobs.cancel([job(1)])),
    "cancel running": Operation(RUNNING, lambda s: s.jobs.cancel([job(1)])),
    "report": Operation(RUNNING, _report, at=2),
    "register": Operation([], registering()),
    "beat": Operation(RUNNING, lambda s: s.workers.beat("w1")),
    "beat with gauges": Operation(
        RUNNING, lambda s: s.workers.beat("w1", readings={"host": {"cpu": 0.5}})
    ),
    "bury": Operation(RUNNING, lambda s: s.workers.bury(["w1"])),
    "leave": Operation(RUNNING, _leave),
    "lead": Operation([registering()], lambda s: s.leader.lead("chores", "w1", LONG)),
    "resign": Operation(
        [registering(), lambda s: s.leader.lead("chores", "w1", LONG)],
        lambda s: s.leader.resign("w1"),
    ),
    "define": Operation([], lambda s: s.limits.define(LIMITS)),
    "promote": Operation([inserting(new(1))], lambda s: s.maintenance.promote(10)),
    "expire": Operation(
        [inserting(new(1, expires=timedelta(0)))], lambda s: s.maintenance.expire(10)
    ),
    "prune": Operation(
        FAILED,
        lambda s: s.maintenance.prune(state=State.FAILED, older_than=timedelta(0), limit=10),
    ),
    "prune rollups": Operation(
        FAILED, lambda s: s.maintenance.prune_rollups(older_than=LONG, limit=10)
    ),
    "prune gauges": Operation(
        FAILED, lambda s: s.maintenance.prune_gauges(older_than=LONG, limit=10)
    ),
    "prune workers": Operation(
        [registering(), _leave],
        lambda s: s.maintenance.prune_workers(older_than=timedelta(0), limit=10),
    ),
    "pause": Operation([inserting(new(1))], lambda s: s.admin.pause("a")),
    "resume": Operation(
        [inserting(new(1)), lambda s: s.admin.pause("a")], lambda s: s.admin.resume("a")
    ),
    "tidy": Operation(RUNNING, lambda s: s.maintenance.tidy()),
    "order requeue": Operation(FAILED, ordering(Requeue())),
    "order discard": Operation(FAILED, ordering(Discard("enough"))),
    "order cancel": Operation(RUNNING, ordering(Cancel(), job(1), job(9))),
    "order run now": Operation([inserting(new(1, delay=LONG))], ordering(RunNow())),
    "order delete": Operation(FAILED, ordering(Delete())),
    "order edit": Operation([inserting(new(1))], ordering(Edit(queue="b", priority=3))),
    "order insert": Operation([], lambda s: s.orders.insert([new(1), new(2)], NOTE)),
    "pause with a note": Operation([], lambda s: s.admin.pause("a", audit=NOTE)),
    "warm with a note": Operation([], lambda s: s.queues.warm("a", audit=NOTE)),
    "define with a note": Operation([], lambda s: s.limits.define(LIMITS, audit=NOTE)),
    "append logs": Operation(RUNNING, _append_logs, at=2),
    "restore": Operation([], lambda s: s.moving.restore(BELONGINGS)),
}
"""Every one that writes, but for the claim and its end: see the tests."""

READS: dict[str, Step] = {
    "outlook": lambda s: s.jobs.outlook(["a"]),
    "active": lambda s: s.jobs.active(["a"]),
    "settled": lambda s: s.jobs.settled([job(1), job(9)]),
    "overdue": lambda s: s.workers.overdue(),
    "orphans": lambda s: s.workers.orphans(10),
    "cancel requests": lambda s: s.workers.cancel_requests("w1"),
    "live": lambda s: s.workers.live(),
    "workers": lambda s: s.workers.workers(),
    "specs": lambda s: s.limits.specs(),
    "states": lambda s: s.limits.states("one"),
    "next due": lambda s: s.maintenance.next_due(),
    "get": lambda s: s.admin.get([job(1)]),
    "find": _find,
    "errors": lambda s: s.admin.errors(),
    "history": lambda s: s.admin.history(job(1)),
    "counts": lambda s: s.admin.counts(),
    "capped counts": lambda s: s.admin.counts(cap=1),
    "audits": lambda s: s.orders.audits(limit=10),
    "logs": lambda s: s.journal.logs(job(1)),
    "dump": lambda s: s.moving.dump(after=0, limit=10),
}

OUTCOMES: dict[str, Outcome] = {
    "success": Succeeded(b"1"),
    "retry": Raised(OOPS),
    "release": Interrupted(),
}
