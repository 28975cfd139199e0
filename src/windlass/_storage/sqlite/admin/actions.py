"""Orders for jobs, each with its audit record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import apsw

from windlass._core.job.job import JobId, NewJob
from windlass._core.job.state import State
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
from windlass._storage.sqlite.admin.action_effects import (
    REQUEUABLE,
    JobChanges,
    RequestRow,
    request_rows,
)
from windlass._storage.sqlite.admin.audit import audits, earlier_answers, keep_audit
from windlass._storage.sqlite.io.database import SqliteDatabase
from windlass._storage.sqlite.io.rows import CODES, RUNNING, STATES, WAITING
from windlass._storage.sqlite.jobs.insert import insert

__all__ = ["SqliteActions"]

_FAILED, _CANCELLED, _DISCARDED = (
    CODES[State.FAILED],
    CODES[State.CANCELLED],
    CODES[State.DISCARDED],
)
_EFFECT = frozenset({ActionResult.DONE, ActionResult.REQUESTED})

_Left = tuple[ActionResult, RequestRow | None]
"""The answer for one job, and its state after it; None: it is gone."""


class SqliteActions:
    """An `ActionStore`."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._db = database

    async def order(
        self, order: JobAction, ids: Sequence[JobId], note: AuditNote
    ) -> Sequence[ActionResult]:
        answers = await self._db.write(
            lambda connection, now: _order(connection, order, ids, note, now)
        )
        self._db.subscribers.wake()
        return answers

    async def insert(self, jobs: Sequence[NewJob], note: AuditNote) -> Sequence[Inserted]:
        def op(connection: apsw.Connection, now: int) -> list[Inserted]:
            answers = insert(connection, now, jobs, strict=True)
            created = sum(answer.created for answer in answers)
            if created:
                keep_audit(connection, note, created, now)
            return answers

        answers = await self._db.write(op)
        self._db.subscribers.wake()
        return answers

    async def record(self, note: AuditNote, count: int) -> None:
        await self._db.write(lambda connection, now: keep_audit(connection, note, count, now))

    async def audits(
        self, *, limit: int, before: int | None = None, subject: str | None = None
    ) -> Sequence[AuditRecord]:
        return await self._db.ask(lambda connection, _: audits(connection, limit, before, subject))


def _order(
    connection: apsw.Connection, order: JobAction, ids: Sequence[JobId], note: AuditNote, now: int
) -> list[ActionResult]:
    before = earlier_answers(connection, note)
    if before is not None:
        return before
    jobs: dict[str, RequestRow | None] = {**request_rows(connection, ids)}
    changes = JobChanges(connection, now)
    answers: list[ActionResult] = []
    for each in ids:
        job = jobs.get(each)
        if job is None:
            answers.append(ActionResult.UNKNOWN)
            continue
        # The same id may come again: it sees the result of this one.
        answer, jobs[each] = _carry_out(changes, order, job)
        answers.append(answer)
    changes.settle()
    count = sum(answer in _EFFECT for answer in answers)
    if count:
        keep_audit(connection, note, count, now, answers)
    return answers


def _carry_out(changes: JobChanges, order: JobAction, job: RequestRow) -> _Left:
    match order:
        case Requeue():
            return _requeue(changes, job)
        case Discard():
            return _discard(changes, job, order.reason)
        case Cancel():
            return _cancel(changes, job)
        case Delete():
            return _delete(changes, job)
        case RunNow():
            if job.state == WAITING and job.flow_state is None:
                return ActionResult.DONE, changes.run_now(job)
            return ActionResult.WRONG_STATE, job
        case Edit():
            if job.state == WAITING and (job.flow_state is None or order.due is None):
                return ActionResult.DONE, changes.edit(job, order)
            return ActionResult.WRONG_STATE, job
        case _:
            assert_never(order)


def _requeue(changes: JobChanges, job: RequestRow) -> _Left:
    if STATES[job.state] not in REQUEUABLE:
        return ActionResult.WRONG_STATE, job
    refusal = changes.refusal(job)
    if refusal is not None:
        return refusal, job
    if changes.requeue(job):
        return ActionResult.DONE, job._replace(state=WAITING)
    return ActionResult.CONFLICT, job


def _discard(changes: JobChanges, job: RequestRow, reason: str) -> _Left:
    if job.state != _FAILED:
        return ActionResult.WRONG_STATE, job
    changes.discard(job, reason)
    return ActionResult.DONE, job._replace(state=_DISCARDED)


def _cancel(changes: JobChanges, job: RequestRow) -> _Left:
    if job.state == RUNNING:
        changes.request_cancel(job)
        return ActionResult.REQUESTED, job
    if job.state != WAITING:
        return ActionResult.WRONG_STATE, job
    changes.cancel(job)
    return ActionResult.DONE, job._replace(state=_CANCELLED, flow_state=None)


def _delete(changes: JobChanges, job: RequestRow) -> _Left:
    if job.part is not None:
        return ActionResult.WRONG_STATE, job  # a flow is deleted as a whole
    if job.state == RUNNING:
        changes.request_cancel(job)
        return ActionResult.REQUESTED, job
    changes.delete(job)
    return ActionResult.DONE, None
