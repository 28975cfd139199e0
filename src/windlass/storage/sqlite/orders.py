"""Orders for jobs, each with its audit record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import apsw

from windlass.core.job import JobId, NewJob
from windlass.core.state import State
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
from windlass.storage.sqlite.audits import audits, earlier_answers, keep_audit
from windlass.storage.sqlite.changes import REQUEUABLE, Asked, Changes, asked
from windlass.storage.sqlite.database import Database
from windlass.storage.sqlite.insert import insert
from windlass.storage.sqlite.rows import CODES, RUNNING, STATES, WAITING

__all__ = ["SqliteOrders"]

_FAILED, _CANCELLED, _DISCARDED = (
    CODES[State.FAILED],
    CODES[State.CANCELLED],
    CODES[State.DISCARDED],
)
_EFFECT = frozenset({Ordered.DONE, Ordered.REQUESTED})

_Left = tuple[Ordered, Asked | None]
"""The answer for one job, and how it stands after; None: it is gone."""


class SqliteOrders:
    """An `OrderStore`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def order(self, order: Order, ids: Sequence[JobId], note: AuditNote) -> Sequence[Ordered]:
        answers = await self._db.write(
            lambda connection, now: _order(connection, order, ids, note, now)
        )
        self._db.wake()
        return answers

    async def insert(self, jobs: Sequence[NewJob], note: AuditNote) -> Sequence[Inserted]:
        def op(connection: apsw.Connection, now: int) -> list[Inserted]:
            answers = insert(connection, jobs, now, strict=True)
            created = sum(answer.created for answer in answers)
            if created:
                keep_audit(connection, note, created, now)
            return answers

        answers = await self._db.write(op)
        self._db.wake()
        return answers

    async def audits(
        self, *, limit: int, before: int | None = None, subject: str | None = None
    ) -> Sequence[AuditRecord]:
        return await self._db.ask(lambda connection, _: audits(connection, limit, before, subject))


def _order(
    connection: apsw.Connection, order: Order, ids: Sequence[JobId], note: AuditNote, now: int
) -> list[Ordered]:
    before = earlier_answers(connection, note)
    if before is not None:
        return before
    jobs: dict[str, Asked | None] = {**asked(connection, ids)}
    changes = Changes(connection, now)
    answers: list[Ordered] = []
    for each in ids:
        job = jobs.get(each)
        if job is None:
            answers.append(Ordered.UNKNOWN)
            continue
        # What this leaves is what the same id meets if it comes again.
        answer, jobs[each] = _carry_out(changes, order, job)
        answers.append(answer)
    changes.settle()
    count = sum(answer in _EFFECT for answer in answers)
    if count:
        keep_audit(connection, note, count, now, answers)
    return answers


def _carry_out(changes: Changes, order: Order, job: Asked) -> _Left:
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
            if job.state == WAITING:
                return Ordered.DONE, changes.run_now(job)
            return Ordered.WRONG_STATE, job
        case Edit():
            if job.state == WAITING:
                return Ordered.DONE, changes.edit(job, order)
            return Ordered.WRONG_STATE, job
        case _:
            assert_never(order)


def _requeue(changes: Changes, job: Asked) -> _Left:
    if STATES[job.state] not in REQUEUABLE:
        return Ordered.WRONG_STATE, job
    if changes.requeue(job):
        return Ordered.DONE, job._replace(state=WAITING)
    return Ordered.CONFLICT, job


def _discard(changes: Changes, job: Asked, reason: str) -> _Left:
    if job.state != _FAILED:
        return Ordered.WRONG_STATE, job
    changes.discard(job, reason)
    return Ordered.DONE, job._replace(state=_DISCARDED)


def _cancel(changes: Changes, job: Asked) -> _Left:
    if job.state == RUNNING:
        changes.request_cancel(job)
        return Ordered.REQUESTED, job
    if job.state != WAITING:
        return Ordered.WRONG_STATE, job
    changes.cancel(job)
    return Ordered.DONE, job._replace(state=_CANCELLED)


def _delete(changes: Changes, job: Asked) -> _Left:
    if job.state == RUNNING:
        changes.request_cancel(job)
        return Ordered.REQUESTED, job
    changes.delete(job)
    return Ordered.DONE, None
