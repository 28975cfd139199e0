"""Schedules by name, and the one step that fires them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from windlass._core.job.job import JobId, NewJob
from windlass._core.job.state import State
from windlass._core.values.instants import clamp_instant
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.jobs.insert import holder_expires, insert
from windlass._storage.protocol.actions import AuditNote
from windlass._storage.protocol.jobs import Inserted
from windlass._storage.protocol.schedules import (
    DueSchedules,
    ScheduleAnswer,
    ScheduleRow,
    ScheduleWrite,
    Written,
)
from windlass._storage.shared.insert_rules import skip_if_key_held

__all__ = ["MemorySchedules"]

_ACTIVE = frozenset({State.WAITING, State.RUNNING})
_SWITCH = "schedules"


class MemorySchedules:
    """A `ScheduleStore`."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database
        self._met: list[Inserted] = []

    async def rows(self, names: Sequence[str] | None = None) -> Sequence[ScheduleRow]:
        with self._db.view():
            stored = sorted(self._db.schedules.items())
            return [row for name, row in stored if names is None or name in names]

    async def page(self, after: str, limit: int) -> Sequence[ScheduleRow]:
        with self._db.view():
            stored = sorted(self._db.schedules.items())
            return [row for name, row in stored if name > after][:limit]

    async def due(self, limit: int) -> DueSchedules:
        with self._db.view() as now:
            if _SWITCH in self._db.switches:
                return DueSchedules(now, [], None, paused=True)
            planned = sorted(
                (row.next_at, row.name, row)
                for row in self._db.schedules.values()
                if row.next_at is not None
            )
            due = [row for at, _, row in planned if at <= now]
            later = [at for at, _, _ in planned if at > now]
            return DueSchedules(now, due[:limit], later[0] if later else None)

    async def write(self, writes: Sequence[ScheduleWrite]) -> Sequence[ScheduleAnswer]:
        with self._db.moment() as now:
            self._db.gates.require([job for write in writes for job in write.jobs])
            answers = [self._answer(write, now) for write in writes]
        self._db.wake()
        return answers

    def _answer(self, write: ScheduleWrite, now: datetime) -> ScheduleAnswer:
        self._met = []
        before = [] if self._repeats(write, self._db.schedules.get(write.name)) else write.jobs
        known = tuple(job.id for job in before if job.id in self._db.by_id)
        match self._write(write, now):
            case Written.WRITTEN:
                expired = tuple(one.expired for one in self._met if one.expired is not None)
                return ScheduleAnswer(Written.WRITTEN, known=known, expired=expired)
            case Written.HELD:
                return ScheduleAnswer(Written.HELD, self._holders(write, now))
            case what:
                return ScheduleAnswer(what)

    def _write(self, write: ScheduleWrite, now: datetime) -> Written:
        row = self._db.schedules.get(write.name)
        if self._repeats(write, row):
            return Written.WRITTEN
        if write.revision != (0 if row is None else row.revision):
            return Written.STALE
        if write.most_active is not None and self._active(write) >= write.most_active:
            return Written.BUSY
        if self._holders(write, now):
            return Written.HELD
        self._store(write, row)
        for job in write.jobs:
            self._met.append(self._insert(job, now))
        self._db.audits.keep(write.audit, 1, now)
        return Written.WRITTEN

    def _repeats(self, write: ScheduleWrite, row: ScheduleRow | None) -> bool:
        """Return whether things are as this write would leave them, because it has already
        happened.
        """
        if row is None:
            return write.body is None
        return row.revision == write.revision + 1 and row.body == write.body

    def _active(self, write: ScheduleWrite) -> int:
        rows = (self._db.by_id.get(job) for job in {*write.active})
        return sum(row is not None and row.state in _ACTIVE for row in rows)

    def _holders(self, write: ScheduleWrite, now: datetime) -> dict[JobId, JobId]:
        """Return the jobs that hold the keys of its jobs."""
        held: dict[JobId, JobId] = {}
        taken: dict[str, JobId] = {}
        for job in map(skip_if_key_held, write.jobs):
            if job.unique is None or job.id in self._db.by_id:
                continue
            row = self._db.holder(job.unique.key, now)
            free = row is None or holder_expires(row, job, now)
            first = taken.setdefault(job.unique.key, job.id)
            holder = first if row is None or free else row.asked.id
            if holder != job.id:
                held[job.id] = holder
        return held

    def _store(self, write: ScheduleWrite, row: ScheduleRow | None) -> None:
        if write.body is None:
            del self._db.schedules[write.name]
            return
        self._db.schedules[write.name] = ScheduleRow(
            name=write.name,
            revision=write.revision + 1,
            body=write.body,
            next_at=None if write.next_at is None else clamp_instant(write.next_at),
            declared_at=None if row is None else row.declared_at,
        )

    def _insert(self, job: NewJob, now: datetime) -> Inserted:
        return insert(self._db, skip_if_key_held(job), now)

    async def declare(self, names: Sequence[str]) -> None:
        with self._db.moment() as now:
            for name in names:
                row = self._db.schedules.get(name)
                if row is not None:
                    stamped = msgspec.structs.replace(row, declared_at=now)
                    self._db.schedules[name] = stamped

    async def pause(self, *, audit: AuditNote | None = None) -> None:
        with self._db.moment() as now:
            self._db.switches.setdefault(_SWITCH, now)
            self._db.audits.keep(audit, 1, now)

    async def resume(self, *, audit: AuditNote | None = None) -> None:
        with self._db.moment() as now:
            self._db.switches.pop(_SWITCH, None)
            self._db.audits.keep(audit, 1, now)
        self._db.wake()

    async def paused(self) -> datetime | None:
        with self._db.view():
            return self._db.switches.get(_SWITCH)
