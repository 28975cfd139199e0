"""Where jobs wait, are claimed and are finished."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta

from windlass._core.job.job import Claim, JobId, NewJob, Progress
from windlass._core.job.state import State
from windlass._core.job.transition import Transition
from windlass._core.job.unique import refuses
from windlass._storage.memory.flows.settle import FlowRules
from windlass._storage.memory.io.database import VERSION, MemoryDatabase
from windlass._storage.memory.jobs.apply import ApplyRules
from windlass._storage.memory.jobs.claim import ClaimRules
from windlass._storage.memory.jobs.insert import holder_expires, insert
from windlass._storage.memory.jobs.room import require_room
from windlass._storage.memory.limits.budgets import Usage
from windlass._storage.protocol.jobs import (
    Applied,
    CancelAnswer,
    ClaimReply,
    Inserted,
    Outlook,
    Settled,
    Want,
)
from windlass._storage.shared.insert_rules import is_repeat
from windlass._storage.shared.subscribers import changed_queues
from windlass.errors import IdConflict, KeyConflict

__all__ = ["MemoryJobs"]

_NONE = timedelta(0)

SETTLED_BY_CLAIM, SETTLED_BY_APPLY = 500, 100
"""Members of flows that one call settles at most, besides its own work."""


class MemoryJobs:
    """A `JobStore`."""

    def __init__(
        self,
        database: MemoryDatabase,
        claims: ClaimRules,
        endings: ApplyRules,
        flows: FlowRules,
    ) -> None:
        self._db = database
        self._flows = flows
        self._claims = claims
        self._endings = endings

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        with self._db.moment() as now:
            require_room(self._db, jobs, now)
            answers = self.insert_all(jobs, now)
        self._db.wake(changed_queues(jobs, answers))
        return answers

    def insert_all(self, jobs: Sequence[NewJob], now: datetime) -> list[Inserted]:
        """Insert all or none, under the database's lock."""
        self._db.gates.require(jobs)
        self._require_ids(jobs)
        self._require_keys(jobs, now)
        return [self._insert(job, now) for job in jobs]

    def _require_ids(self, jobs: Sequence[NewJob]) -> None:
        """Refuse ids that name another call, also one of the same batch."""
        first: dict[JobId, NewJob] = {}
        for job in jobs:
            row = self._db.by_id.get(job.id)
            other = first.setdefault(job.id, job) if row is None else row.asked
            key = None if other.unique is None else other.unique.key
            if other is not job and not is_repeat(job, other.task, other.payload, key):
                raise IdConflict(job.id)

    def _require_keys(self, jobs: Sequence[NewJob], now: datetime) -> None:
        """Refuse jobs that may not meet another one with their key, also in their own batch."""
        taken: dict[str, NewJob] = {}
        for job in jobs:
            if job.unique is None or job.id in self._db.by_id:
                continue
            row = self._db.holder(job.unique.key, now)
            if row is not None and holder_expires(row, job, now):
                row = None
            holder = taken.setdefault(job.unique.key, job if row is None else row.asked)
            # The same id again is a repeated call, also within one batch.
            if holder.id != job.id and refuses(job.unique.on_conflict, holder.task, job.task):
                raise KeyConflict(job.unique.key, holder.id)

    def _insert(self, job: NewJob, now: datetime) -> Inserted:
        return insert(self._db, job, now)

    async def claim(
        self,
        worker: str,
        wants: Sequence[Want],
        *,
        total: int,
        solo: bool = False,
        head_start: timedelta = _NONE,
    ) -> ClaimReply:
        with self._db.moment() as now:
            self._flows.settle(SETTLED_BY_CLAIM, now)
            self._claims.let_others_first(head_start)
            return self._claims.claim(worker, wants, total=total, solo=solo, now=now)

    async def apply(self, transitions: Sequence[Transition]) -> Applied:
        with self._db.moment() as now:
            answers = self._endings.end_all(transitions, now)
            left_out = self._endings.take_left_out()
            self._flows.settle(SETTLED_BY_APPLY, now)
        self._db.wake()
        return Applied(now, answers, left_out)

    async def outlook(self, queues: Sequence[str]) -> Outlook:
        with self._db.view() as now:
            newer = self._db.version > VERSION  # for the claim to refuse
            if newer or any(self._claimable(queue, now) for queue in queues):
                return Outlook(now, claimable=True)
            usage = self._db.gates.usage(self._db.running.values())
            times = [at for queue in queues for at in self._openings(queue, usage, now) if at > now]
            return Outlook(now, next_at=min(times, default=None))

    def _claimable(self, queue: str, now: datetime) -> bool:
        if not self._claims.room(queue, now):
            waits = self._claims.rests(queue, now) and not self._db.queues[queue].paused
            return waits and self._db.gates.is_ahead(now)
        due = self._db.next_due(queue)
        if due is not None and due <= now:
            return True
        gates = self._db.gates
        if gates.is_ahead(now) and any(lane.limits for lane in self._db.ready[queue]):
            return True
        usage = gates.usage(self._db.running.values())
        heads = [self._db.head(lane) for lane in self._db.ready[queue].values()]
        return any(
            head.is_expired(now) or gates.shut(head.asked.limits, usage, now) is None
            for head in heads
            if head is not None
        )

    def _openings(self, queue: str, usage: Usage, now: datetime) -> Iterator[datetime]:
        row = self._db.queues[queue]
        if row.paused:
            return
        if row.cool_until is not None and row.cool_until > now:
            yield row.cool_until
            return
        # Not only the first: it may be due already, in a queue that is full.
        for place in self._db.later[queue]:
            later = self._db.rows.get(place[-1])
            if later is not None and later.place is place:  # else it has left
                yield later.due
        for lane, line in self._db.ready[queue].items():
            if not lane.solo and (head := self._db.head(line)) is not None:
                shut = self._db.gates.shut(head.asked.limits, usage, now)
                if shut is not None and shut.opens_at is not None:
                    yield shut.opens_at

    async def active(self, queues: Sequence[str]) -> bool:
        with self._db.view() as now:
            wanted = {*queues}
            if any(row.asked.queue in wanted for row in self._db.running.values()):
                return True
            return any(
                self._has_due(queue, now) for queue in wanted if not self._db.queues[queue].paused
            )

    def _has_due(self, queue: str, now: datetime) -> bool:
        due = self._db.next_due(queue)
        lanes = self._db.ready[queue].values()
        return any(self._db.head(lane) for lane in lanes) or (due is not None and due <= now)

    async def report(self, progress: Sequence[tuple[Claim, Progress]]) -> None:
        with self._db.moment():
            for claim, done in progress:
                if (row := self._db.held(claim)) is not None:
                    row.report(done)

    async def settled(self, ids: Sequence[JobId]) -> Sequence[Settled]:
        with self._db.view():
            rows = [(job, self._db.by_id.get(job)) for job in ids]
            return [
                Settled(job, None) if row is None else row.to_settled()
                for job, row in rows
                if row is None or row.is_terminal()
            ]

    async def cancel(self, ids: Sequence[JobId]) -> Sequence[CancelAnswer]:
        with self._db.moment() as now:
            answers = [self._cancel(job, now) for job in ids]
        self._db.wake()
        return answers

    def _cancel(self, job: JobId, now: datetime) -> CancelAnswer:
        row = self._db.by_id.get(job)
        if row is None:
            return CancelAnswer.UNKNOWN
        if row.state is State.WAITING:
            self._db.finish(row, State.CANCELLED, now)
            return CancelAnswer.CANCELLED
        if row.state is State.RUNNING:
            row.request_cancel()
            return CancelAnswer.REQUESTED
        return CancelAnswer.TOO_LATE
