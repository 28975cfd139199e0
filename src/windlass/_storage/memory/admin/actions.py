"""Actions of operators, with the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import assert_never

from msgspec.structs import replace

from windlass._core.job.job import JobId, NewJob
from windlass._core.job.state import State
from windlass._core.job.unique import Window
from windlass._core.values.instants import clamp_instant
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.memory.jobs.jobs import MemoryJobs
from windlass._storage.protocol.actions import (
    ActionResult,
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
from windlass._storage.protocol.jobs import Inserted

__all__ = ["REQUEUABLE", "MemoryActions", "requeue", "retakes_key"]

_EFFECTIVE = frozenset({ActionResult.DONE, ActionResult.REQUESTED})

REQUEUABLE = frozenset({State.FAILED, State.CANCELLED, State.DISCARDED})


def retakes_key(row: JobRow) -> bool:
    """Return whether the job holds its key again. A key held until the start was given
    up for good.
    """
    return row.asked.unique is not None and row.asked.unique.window is not Window.UNTIL_STARTED


def requeue(database: MemoryDatabase, row: JobRow, now: datetime) -> None:
    """Let the job wait again, ready now, with a fresh budget. Its key is free, or its own.

    A member that waits for other parts is blocked: these may be open again, or have failed.
    """
    part = None if row.flow is None else database.bring_back(row, now)
    row.requeue()
    if retakes_key(row) and not database.holds_key(row, now):
        database.take_key(row, now)
    if part is not None and (part.asked.after or part.flow.sealed):
        database.block(row)
        part.block(row.seq)
        database.flows.look(part)
    else:
        database.stand(row, now, now)


class MemoryActions:
    """An `ActionStore`."""

    def __init__(self, database: MemoryDatabase, jobs: MemoryJobs) -> None:
        self._db = database
        self._jobs = jobs

    async def order(
        self, order: JobAction, ids: Sequence[JobId], note: AuditNote
    ) -> Sequence[ActionResult]:
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

    def _obey(self, order: JobAction, job: JobId, now: datetime) -> ActionResult:
        row = self._db.by_id.get(job)
        if row is None:
            return ActionResult.UNKNOWN
        match order:
            case Requeue():
                return self.requeue_one(row, now)
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

    def requeue_one(self, row: JobRow, now: datetime) -> ActionResult:
        """Requeue a job, under the database's lock."""
        if row.state not in REQUEUABLE or self._was_settled(row):
            return ActionResult.WRONG_STATE
        if self._flow_is_superseded(row):
            return ActionResult.CONFLICT
        unique = row.asked.unique
        holder = None if unique is None else self._db.holder(unique.key, now)
        if retakes_key(row) and holder not in (None, row):
            return ActionResult.CONFLICT
        requeue(self._db, row, now)
        return ActionResult.DONE

    def _was_settled(self, row: JobRow) -> bool:
        """Return whether its flow ended it: it comes back with its flow."""
        if row.flow is None:
            return False
        part = self._db.part_of(row)
        return part.flow.cancelled or row.seq in part.stopped or row.seq in part.skipped

    def _flow_is_superseded(self, row: JobRow) -> bool:
        """Return whether another running flow holds the key of its flow, which has ended."""
        if row.flow is None:
            return False
        flow = self._db.part_of(row).flow
        holder = None if flow.asked.key is None else self._db.flows.keys.get(flow.asked.key)
        return holder not in (None, flow)

    def _discard(self, row: JobRow, reason: str, now: datetime) -> ActionResult:
        if row.state is not State.FAILED:
            return ActionResult.WRONG_STATE
        row.explain(reason)
        self._db.finish(row, State.DISCARDED, now)
        return ActionResult.DONE

    def _cancel(self, row: JobRow, now: datetime) -> ActionResult:
        if row.state is State.RUNNING:
            row.request_cancel()
            return ActionResult.REQUESTED
        if row.state is not State.WAITING:
            return ActionResult.WRONG_STATE
        self._db.finish(row, State.CANCELLED, now)
        return ActionResult.DONE

    def _run_now(self, row: JobRow, now: datetime) -> ActionResult:
        if row.state is not State.WAITING or row.blocked:
            return ActionResult.WRONG_STATE
        if row.due > now:
            self._db.stand(row, now, now)
        return ActionResult.DONE

    def _delete(self, row: JobRow) -> ActionResult:
        if row.flow is not None:
            return ActionResult.WRONG_STATE
        if row.state is State.RUNNING:
            row.request_cancel()
            return ActionResult.REQUESTED
        self._db.remove(row)
        return ActionResult.DONE

    def _edit(self, row: JobRow, edit: Edit, now: datetime) -> ActionResult:
        if row.state is not State.WAITING or (row.blocked and edit.due is not None):
            return ActionResult.WRONG_STATE
        asked = row.asked
        row.ask(
            replace(
                asked,
                queue=asked.queue if edit.queue is None else edit.queue,
                priority=asked.priority if edit.priority is None else edit.priority,
            )
        )
        if not row.blocked:
            self._db.stand(row, row.due if edit.due is None else clamp_instant(edit.due), now)
        return ActionResult.DONE

    async def insert(self, jobs: Sequence[NewJob], note: AuditNote) -> Sequence[Inserted]:
        with self._db.moment() as now:
            answers = self._jobs.insert_all(jobs, now)
            created = sum(answer.created for answer in answers)
            if created:
                self._db.audits.keep(note, created, now)
        self._db.wake()
        return answers

    async def record(self, note: AuditNote, count: int) -> None:
        with self._db.moment() as now:
            self._db.audits.keep(note, count, now)

    async def audits(
        self, *, limit: int, before: int | None = None, subject: str | None = None
    ) -> Sequence[AuditRecord]:
        with self._db.view():
            wanted = (
                record
                for record in self._db.audits.newest()
                if (before is None or record.number < before)
                and (subject is None or record.note.subject == subject)
            )
            return list(islice(wanted, limit))
