"""The stored facts around one job: bounded reads, one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from windlass._admin.explain.flows import FlowFacts
from windlass._core.job.job import Attempt, JobRecord, LimitUse
from windlass._core.job.state import State
from windlass._core.limits.limit import LimitSpec
from windlass._core.stats.rollup import count_runs, minute_of
from windlass._storage.protocol.actions import AuditRecord
from windlass._storage.protocol.limits import LimitState
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.queues import QueueRecord
from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.workers import HEARD, Standing, WorkerRecord

__all__ = ["SAMPLE_SIZE", "JobFacts", "LimitUsage", "QueueAhead", "QueueWorkers", "gather"]

SAMPLE_SIZE = 200
"""Jobs that one look reads at most: each of them may carry a large payload."""
_WORKERS = 20
"""Workers that are asked what runs in the slots they keep for a queue."""
_ORDERS = 50
"""Records of a queue among which the last pause is looked for."""
_RECENT = timedelta(minutes=10)
_SHORTEST = timedelta(seconds=1)
_INSTANT = timedelta(microseconds=1)


class LimitUsage(msgspec.Struct, frozen=True):
    """One limit a job counts against, and its usage now."""

    use: LimitUse
    spec: LimitSpec
    state: LimitState

    def counts(self, job: JobRecord) -> bool:
        """Return whether ``job`` draws on the very same budget."""
        return any(use.gate == self.use.gate for use in job.limits)

    def cost(self, job: JobRecord) -> float:
        """Return the tokens that ``job`` takes from its rate."""
        return sum(use.cost for use in job.limits if use.gate == self.use.gate)


class QueueWorkers(msgspec.Struct, frozen=True):
    """The workers whose rows are live, as far as one queue goes."""

    serving: Sequence[WorkerRecord] = ()
    quiet: Sequence[WorkerRecord] = ()
    """They would serve it, but were told to take nothing new."""
    silent: Sequence[WorkerRecord] = ()
    """They would serve it, but their lease has run out."""
    elsewhere: Sequence[WorkerRecord] = ()
    """They serve other queues."""
    queue: str = ""
    here: Mapping[str, int] = {}
    """Running jobs of the queue, by worker, where a worker keeps slots for it."""

    def lacks(self, task: str) -> bool:
        """Return whether those that serve it all say what they can run, and none says this. A
        release that does not say may have anything.
        """
        return all(worker.start.tasks and task not in worker.start.tasks for worker in self.serving)

    def slots_of(self, worker: WorkerRecord) -> int:
        """Slots of a worker that jobs of the queue can have."""
        return worker.start.pools.get(self.queue, worker.start.slots)

    def load_of(self, worker: WorkerRecord) -> int:
        """Return how many of those are taken."""
        return self.here.get(worker.start.id, worker.running)

    @property
    def slots(self) -> int:
        return sum(self.slots_of(worker) for worker in self.serving)

    @property
    def running(self) -> int:
        return sum(self.load_of(worker) for worker in self.serving)

    @property
    def busy(self) -> bool:
        """Whether none of them has a slot left."""
        return all(self.load_of(worker) >= self.slots_of(worker) for worker in self.serving)


class QueueAhead(msgspec.Struct, frozen=True):
    """Ready jobs of the queue that a claim meets sooner, and how fast the queue moves."""

    ahead: Sequence[JobRecord] = ()
    more: bool = False
    """There may be others: the look ended before the line did."""
    ended: int = 0
    """Runs of this queue that ended lately, however they ended."""
    within: timedelta = _RECENT

    def wait(self) -> timedelta | None:
        """Return how long the line takes at the recent pace; None: nothing has ended lately, or not
        all of the line was looked at.
        """
        return None if self.more else self.least()

    def least(self) -> timedelta | None:
        """Return how long it takes at least, counting only those that were looked at."""
        if not self.ended:
            return None
        return self.within * ((len(self.ahead) + 1) / self.ended)


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Read one after the other, so one of them may be a moment older than the next."""

    job: JobRecord
    now: datetime
    last: Attempt | None = None
    """How its last claim ended."""
    queue: QueueRecord
    queue_running: int = 0
    paused_by: AuditRecord | None = None
    """The operator who paused it last, if it is paused and the record is still kept."""
    crew: QueueWorkers = QueueWorkers()
    worker: WorkerRecord | None = None
    """That of a running job."""
    budgets: Sequence[LimitUsage] = ()
    running: Sequence[JobRecord] = ()
    """Jobs that may hold what it needs, the newest first; not all of them, where there are many."""
    line: QueueAhead = QueueAhead()
    flow: FlowFacts | None = None
    """The parts that a blocked job waits for."""


async def gather(storage: Storage, job: JobRecord) -> JobFacts:
    """Everything that may hold ``job`` back; of an ended one only what it says itself."""
    now = await storage.now()
    history = await storage.admin.history(job.id)
    queue = next(
        (record for record in await storage.queues.queues() if record.queue == job.queue),
        QueueRecord(queue=job.queue),
    )
    facts = JobFacts(job=job, now=now, last=history[-1] if history else None, queue=queue)
    if job.state is State.RUNNING:
        rows = {record.start.id: record for record in await storage.workers.workers()}
        return msgspec.structs.replace(facts, worker=rows.get(job.worker or ""))
    if job.state is not State.WAITING:
        return facts
    crew = _crew(await storage.workers.workers(), job.queue, now)
    crew = msgspec.structs.replace(crew, here=await _loads(storage, crew))
    return msgspec.structs.replace(
        facts,
        crew=crew,
        queue_running=await _queue_running(storage, queue),
        paused_by=await _paused_by(storage, job.queue) if queue.paused else None,
        budgets=await _budgets(storage, job),
        running=await _running(storage, job, queue),
        # If no worker serves the queue, the job's position says nothing, and reading it costs.
        line=await _line(storage, job, now) if crew.serving and job.due <= now else QueueAhead(),
    )


async def _paused_by(storage: Storage, queue: str) -> AuditRecord | None:
    records = await storage.orders.audits(limit=_ORDERS, subject=f"queue {queue}")
    return next((record for record in records if record.note.what == "queues.pause"), None)


def _crew(records: Sequence[WorkerRecord], queue: str, now: datetime) -> QueueWorkers:
    def who(*standings: Standing, serve: bool = True) -> list[WorkerRecord]:
        return [
            record
            for record in records
            if record.standing(now) in standings and (queue in record.start.queues) is serve
        ]

    return QueueWorkers(
        serving=who(Standing.LIVE),
        quiet=who(Standing.QUIET, Standing.STOPPING),
        silent=who(Standing.SILENT),
        elsewhere=who(*HEARD, serve=False),
        queue=queue,
    )


async def _loads(storage: Storage, crew: QueueWorkers) -> dict[str, int]:
    """Count the jobs in the slots that workers keep for the queue, as far as one read reaches."""
    loads: dict[str, int] = {}
    for worker in crew.serving[:_WORKERS]:
        if len(worker.start.pools) > 1:
            own = JobFilter(states=[State.RUNNING], queue=crew.queue, worker=worker.start.id)
            found = len(await storage.admin.find(own, limit=SAMPLE_SIZE))
            # More than one look reads: those of its other queues are the fewer.
            loads[worker.start.id] = worker.running if found == SAMPLE_SIZE else found
    return loads


async def _queue_running(storage: Storage, queue: QueueRecord) -> int:
    """Count only where it matters, and by reading the jobs unless they are too many."""
    most = queue.settings.max_running
    if most is None:
        return 0
    if most <= SAMPLE_SIZE:
        wanted = JobFilter(states=[State.RUNNING], queue=queue.queue)
        return len(await storage.admin.find(wanted, limit=SAMPLE_SIZE))
    counted = {counts.queue: counts.running for counts in await storage.admin.counts()}
    return counted.get(queue.queue, 0)


async def _budgets(storage: Storage, job: JobRecord) -> list[LimitUsage]:
    if not job.limits:
        return []
    specs: Mapping[str, LimitSpec] = {spec.name: spec for spec in await storage.limits.specs()}
    found: list[LimitUsage] = []
    for use in job.limits:
        if use.name not in specs:
            continue
        states = {state.key: state for state in await storage.limits.states(use.name)}
        unused = LimitState(name=use.name, key=use.key, running=0)
        found.append(LimitUsage(use, specs[use.name], states.get(use.key, unused)))
    return found


async def _running(storage: Storage, job: JobRecord, queue: QueueRecord) -> Sequence[JobRecord]:
    """Return those that may hold what it needs; of every queue, if that is a limit."""
    if job.limits:
        return await storage.admin.find(JobFilter(states=[State.RUNNING]), limit=SAMPLE_SIZE)
    if queue.settings.max_running is None:
        return ()
    wanted = JobFilter(states=[State.RUNNING], queue=job.queue)
    return await storage.admin.find(wanted, limit=SAMPLE_SIZE)


async def _line(storage: Storage, job: JobRecord, now: datetime) -> QueueAhead:
    waiting = JobFilter(states=[State.WAITING], queue=job.queue)
    older = await storage.admin.find(
        msgspec.structs.replace(waiting, before=job.seq), limit=SAMPLE_SIZE
    )
    # A newer job comes before this one if it is more urgent, or was due sooner.
    newest = await storage.admin.find(waiting, limit=SAMPLE_SIZE)
    newer = [other for other in newest if other.seq > job.seq]
    place = _place(job)
    ahead = [one for one in (*older, *newer) if one.due <= now and _place(one) < place]
    since = minute_of(now) - _RECENT
    rollups = [
        rollup
        for rollup in await storage.admin.rollups(since, now + _INSTANT)
        if rollup.queue == job.queue
    ]
    first = min((rollup.minute for rollup in rollups), default=since)
    return QueueAhead(
        ahead=sorted(ahead, key=_place),
        more=len(older) == SAMPLE_SIZE or len(newer) == SAMPLE_SIZE,
        ended=sum(count_runs(rollup.counts) for rollup in rollups),
        within=max(now - first, _SHORTEST),
    )


def _place(job: JobRecord) -> tuple[int, datetime, int]:
    return job.priority, job.due, job.seq
