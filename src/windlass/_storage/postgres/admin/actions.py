"""Actions of operators on jobs, with the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never
from uuid import UUID

import msgspec

from windlass._core.job.job import JobId, NewJob
from windlass._core.values.instants import FIRST_INSTANT, clamp_instant
from windlass._storage.postgres.admin.audit import audit_note_text, record_of
from windlass._storage.postgres.io.database import PostgresDatabase
from windlass._storage.postgres.io.errors import FunctionError
from windlass._storage.postgres.io.records import known_id
from windlass._storage.postgres.io.rows import stored_id, stored_text
from windlass._storage.postgres.jobs.insert import check_size, insert_answers, raise_if_key_busy
from windlass._storage.postgres.jobs.job_json import job_json_of
from windlass._storage.postgres.limits.limits import limit_error_of
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
from windlass._storage.shared.sql_files import load_sql
from windlass.errors import StoreBusy

__all__ = ["PostgresActions"]

_SQL = load_sql("windlass._storage.postgres.sql", "actions.sql")
_ORDER, _INSERT, _AUDITS = _SQL["order"], _SQL["insert"], _SQL["audits"]
_RECORD = _SQL["record"]

_EFFECTIVE = frozenset({ActionResult.DONE, ActionResult.REQUESTED})
_NEWEST = 2**63 - 1


class PostgresActions:
    """An `ActionStore`. Every operation is one statement, and so one transaction."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._db = database

    async def order(
        self, order: JobAction, ids: Sequence[JobId], note: AuditNote
    ) -> Sequence[ActionResult]:
        asked: list[UUID | None] = [known_id(job) for job in ids]
        name, *details = _words(order)
        rows = await self._db.fetch_aside(
            self._db.sql(_ORDER), self._db.instant(), name, asked, audit_note_text(note), *details
        )
        answers = [ActionResult(answer) for answer in rows[0][0]]
        if not _EFFECTIVE.isdisjoint(answers):
            self._db.wake()
        return answers

    async def insert(self, jobs: Sequence[NewJob], note: AuditNote) -> Sequence[Inserted]:
        if not jobs:
            return []
        check_size(jobs)
        for job in jobs:
            stored_id(job.id)
        text = msgspec.json.encode([job_json_of(job) for job in jobs]).decode()
        try:
            # On a separate connection: a key may be under decision in an open transaction.
            asked = (self._db.instant(), self._db.durable, text, audit_note_text(note))
            rows, unsure = await self._db.fetch_told(self._db.sql(_INSERT), *asked, aside=True)
        except FunctionError as refused:
            raise await limit_error_of(self._db, refused) from None
        except StoreBusy as error:
            raise_if_key_busy(error)
            raise
        self._db.wake()
        met = ((place, holder, replaced) for place, holder, replaced in rows)
        return insert_answers(jobs, met, unsure=unsure)

    async def record(self, note: AuditNote, count: int) -> None:
        asked = (self._db.instant(), self._db.durable, audit_note_text(note), count)
        await self._db.fetch_aside(self._db.sql(_RECORD), *asked)

    async def audits(
        self, *, limit: int, before: int | None = None, subject: str | None = None
    ) -> Sequence[AuditRecord]:
        rows = await self._db.fetch_aside(
            self._db.sql(_AUDITS),
            limit,
            _NEWEST if before is None else before,
            subject,
            reads=True,
        )
        return [record_of(row) for row in rows]


def _words(order: JobAction) -> tuple[Any, ...]:
    """Return the order's name in ``order_jobs``, then reason, due time, priority and queue."""
    match order:
        case Requeue():
            return ("requeue", None, None, None, None)
        case Discard(reason):
            return ("discard", stored_text(reason), None, None, None)
        case Cancel():
            return ("cancel", None, None, None, None)
        case RunNow():
            return ("run_now", None, None, None, None)
        case Delete():
            return ("delete", None, None, None, None)
        case Edit(due=due, priority=priority, queue=queue):
            at = None if due is None else max(clamp_instant(due), FIRST_INSTANT)
            return ("edit", None, at, priority, queue)
        case _:
            assert_never(order)
