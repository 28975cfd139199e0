"""Registered workers, workers that are declared dead, and leaders."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from windlass._core.job.job import Claim, ClaimedJob
from windlass._core.job.state import Verb
from windlass._core.job.transition import Transition
from windlass._core.stats.gauges import Readings, first_gauges
from windlass._core.stats.rollup import minute_of
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.io.rows import JobRow, Lease, WorkerRow
from windlass._storage.memory.jobs.apply import ApplyRules
from windlass._storage.protocol.actions import AuditNote
from windlass._storage.protocol.jobs import Applied
from windlass._storage.protocol.workers import (
    Duty,
    HeartbeatAnswer,
    WorkerRecord,
    WorkerStart,
    WorkerState,
)
from windlass._storage.shared.heartbeat_channel import SharedHeartbeatChannel

__all__ = ["MemoryLeader", "MemoryWorkers"]


class MemoryWorkers:
    """A `WorkerStore`."""

    def __init__(self, database: MemoryDatabase, endings: ApplyRules) -> None:
        self._db = database
        self._endings = endings

    def pulse(self) -> SharedHeartbeatChannel:
        return SharedHeartbeatChannel(self)

    async def register(self, start: WorkerStart) -> datetime:
        with self._db.moment() as now:
            # A repeated call finds its row. A row that has ended stays ended.
            if start.id not in self._db.workers:
                self._db.workers[start.id] = WorkerRow(
                    start=start, started_at=now, beat_at=now, beat_boot=self._db.clock.boot()
                )
            return now

    async def beat(
        self, worker: str, *, memory: int | None = None, readings: Readings | None = None
    ) -> HeartbeatAnswer:
        with self._db.moment() as now:
            row = self._db.workers.get(worker)
            live = row is not None and row.state is WorkerState.LIVE
            if row is not None and live:
                row.beat(now, self._db.clock.boot(), memory)
                for source, values in (readings or {}).items():
                    self._db.gauges[minute_of(now), source] = first_gauges(values)
            held = self._held(worker)
            return HeartbeatAnswer(
                live,
                now,
                cancelled=[job.claim for job in held if job.cancel_requested],
                holding=[job.claim for job in held],
                duty=row.duty if row is not None and live else Duty.WORK,
            )

    async def assign(
        self, workers: Sequence[str], duty: Duty, *, audit: AuditNote | None = None
    ) -> Sequence[str]:
        with self._db.moment() as now:
            live = [worker for worker in workers if self._is_live(worker)]
            rows = [self._db.workers[worker] for worker in dict.fromkeys(live)]
            changed = [row for row in rows if row.duty not in (duty, Duty.STOP)]
            for row in changed:
                row.assign(duty)
            if changed:
                self._db.audits.keep(audit, len(changed), now)
            return [row.start.id for row in rows if row.duty is duty]

    async def bury(self, workers: Sequence[str]) -> Sequence[str]:
        with self._db.moment() as now:
            return [worker for worker in workers if self._end(worker, WorkerState.DEAD, now)]

    async def bury_overdue(self, workers: Sequence[str]) -> Sequence[str]:
        with self._db.moment() as now:
            late = {*self._overdue()}
            return [w for w in workers if w in late and self._end(w, WorkerState.DEAD, now)]

    async def overdue(self) -> Sequence[str]:
        with self._db.view():
            return self._overdue()

    def _overdue(self) -> list[str]:
        boot = self._db.clock.boot()
        return [
            worker
            for worker, row in self._db.workers.items()
            if row.state is WorkerState.LIVE and boot - row.beat_boot > row.start.lease
        ]

    async def orphans(self, limit: int) -> Sequence[ClaimedJob]:
        with self._db.view():
            lost = [row for row in self._db.running.values() if not self._is_live(row.worker)]
            lost.sort(key=lambda row: (row.worker, row.started_at, row.seq))
            return [replace(row.to_claimed(), payload=b"") for row in lost[:limit]]

    async def cancel_requests(self, worker: str) -> Sequence[Claim]:
        with self._db.view():
            return [row.claim for row in self._held(worker) if row.cancel_requested]

    async def leave(self, worker: str, releases: Sequence[Transition]) -> Applied:
        with self._db.moment() as now:
            answers = self._endings.end_all(releases, now)
            left = [self._release(row.claim, row) for row in self._held(worker)]
            self._endings.end_all(left, now)
            left_out = self._endings.take_left_out()
            self._end(worker, WorkerState.GONE, now)
        self._db.wake()
        return Applied(now, answers, left_out)

    async def live(self) -> Sequence[WorkerStart]:
        with self._db.view():
            rows = reversed(self._db.workers.values())
            return [row.start for row in rows if row.state is WorkerState.LIVE]

    async def workers(self) -> Sequence[WorkerRecord]:
        with self._db.view():
            rows = reversed(self._db.workers.values())
            return [
                WorkerRecord(
                    start=row.start,
                    state=row.state,
                    started_at=row.started_at,
                    beat_at=row.beat_at,
                    ended_at=row.ended_at,
                    running=len(self._held(row.start.id)),
                    memory=row.memory,
                    duty=row.duty,
                )
                for row in rows
            ]

    def _is_live(self, worker: str) -> bool:
        row = self._db.workers.get(worker)
        return row is not None and row.state is WorkerState.LIVE

    def _held(self, worker: str) -> list[JobRow]:
        return [row for row in self._db.running.values() if row.worker == worker]

    def _end(self, worker: str, state: WorkerState, now: datetime) -> bool:
        """End a live row; False: it was not live, and stays as it is."""
        if not self._is_live(worker):
            return False
        self._db.workers[worker].end(state, now)
        return True

    def _release(self, claim: Claim, row: JobRow) -> Transition:
        return Transition(
            Verb.RELEASE,
            claim,
            row.worker,
            refund=True,
            lost=row.lost,
            solo=row.solo,
            started=False,
        )


class MemoryLeader:
    """A `LeaderStore`."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    async def lead(self, role: str, worker: str, lease: timedelta) -> bool:
        with self._db.moment():
            boot = self._db.clock.boot()
            held = self._db.leases.get(role)
            if held is not None and held.worker != worker and boot < held.until:
                return False
            self._db.leases[role] = Lease(worker, boot + lease)
            return True

    async def resign(self, worker: str) -> None:
        with self._db.moment():
            led = [role for role, lease in self._db.leases.items() if lease.worker == worker]
            for role in led:
                del self._db.leases[role]
