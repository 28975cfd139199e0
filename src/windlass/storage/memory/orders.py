"""What people order, with the record of who did."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import assert_never

from msgspec.structs import replace

from windlass.core.job import JobId, NewJob
from windlass.core.state import State
from windlass.storage.calendar import within
from windlass.storage.memory.database import MemoryDatabase
from windlass.storage.memory.jobs import MemoryJobs
from windlass.storage.memory.requeue import REQUEUABLE, requeue, retakes_key
from windlass.storage.memory.row import Row
from windlass.storage.ordering import (
    AuditNote,
    AuditRecord,
    Cancel,
    Delete,
    Discard,
    Edit,
    Order,
    Ordered,
    Requeue,
    RunNow,
)
from windlass.storage.protocol import Inserted

__all__ = ["MemoryOrders"]

_EFFECTIVE = frozenset({Ordered.DONE, Ordered.REQUESTED})


class MemoryOrders:
    """An `OrderStore`."""

    def __init__(self, database: MemoryDatabase, jobs: MemoryJobs) -> None:
        self._db = database
        self._jobs = jobs

    async def order(self, order: Order, ids: Sequence[JobId], note: AuditNote) -> Sequence[Ordered]:
        with self._db.moment() as now:
            given = self._db.audits.answers(note)
            if given is not None:
                return given
            answers = [self._obey(order, job, now) for job in ids]
            effects = sum(answer in _EFFECTIVE for answer in answers)
            if effects:
                self._db.audits.keep(note, effects, now, answers)
        self._db.wake()
        return answers

    def _obey(self, order: Order, job: JobId, now: datetime) -> Ordered:
        row = self._db.by_id.get(job)
        if row is None:
            return Ordered.UNKNOWN
        match order:
            case Requeue():
                return self._requeue(row, now)
            case Discard(reason):
                return self._discard(row, reason, now)
            case Cancel():
                return self._cancel(row, now)
            case RunNow():
                return self._run_now(row, now)
            case Delete():
                return self._delete(row)
            case Edit():
                return self._edit(row, order, now)
            case _:
                assert_never(order)

    def _requeue(self, row: Row, now: datetime) -> Ordered:
        if row.state not in REQUEUABLE:
            return Ordered.WRONG_STATE
        unique = row.asked.unique
        holder = None if unique is None else self._db.holder(unique.key, now)
        if retakes_key(row) and holder not in (None, row):
            return Ordered.CONFLICT
        requeue(self._db, row, now)
        return Ordered.DONE

    def _discard(self, row: Row, reason: str, now: datetime) -> Ordered:
        if row.state is not State.FAILED:
            return Ordered.WRONG_STATE
        row.reason = reason
        self._db.finish(row, State.DISCARDED, now)
        return Ordered.DONE

    def _cancel(self, row: Row, now: datetime) -> Ordered:
        if row.state is State.RUNNING:
            row.cancel_requested = True
            return Ordered.REQUESTED
        if row.state is not State.WAITING:
            return Ordered.WRONG_STATE
        self._db.finish(row, State.CANCELLED, now)
        return Ordered.DONE

    def _run_now(self, row: Row, now: datetime) -> Ordered:
        if row.state is not State.WAITING:
            return Ordered.WRONG_STATE
        if row.due > now:
            self._db.stand(row, now, now)
        return Ordered.DONE

    def _delete(self, row: Row) -> Ordered:
        if row.state is State.RUNNING:
            row.cancel_requested = True
            return Ordered.REQUESTED
        self._db.remove(row)
        return Ordered.DONE

    def _edit(self, row: Row, edit: Edit, now: datetime) -> Ordered:
        if row.state is not State.WAITING:
            return Ordered.WRONG_STATE
        row.asked = replace(
            row.asked,
            queue=row.asked.queue if edit.queue is None else edit.queue,
            priority=row.asked.priority if edit.priority is None else edit.priority,
        )
        self._db.stand(row, row.due if edit.due is None else within(edit.due), now)
        return Ordered.DONE

    async def insert(self, jobs: Sequence[NewJob], note: AuditNote) -> Sequence[Inserted]:
        with self._db.moment() as now:
            answers = self._jobs.insert_all(jobs, now)
            created = sum(answer.created for answer in answers)
            if created:
                self._db.audits.keep(note, created, now)
        self._db.wake()
        return answers

    async def audits(
        self, *, limit: int, before: int | None = None, subject: str | None = None
    ) -> Sequence[AuditRecord]:
        with self._db.moment():
            wanted = (
                record
                for record in self._db.audits.newest()
                if (before is None or record.number < before)
                and (subject is None or record.note.subject == subject)
            )
            return list(islice(wanted, limit))
