"""What people order for jobs, with the record of who did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never
from uuid import UUID

import msgspec

from windlass.core.job import JobId, NewJob
from windlass.errors import StoreBusy
from windlass.storage.calendar import FIRST, within
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
from windlass.storage.postgres.audits import noted, record_of
from windlass.storage.postgres.database import Database
from windlass.storage.postgres.insert import check_size, inserted, tell_busy_key
from windlass.storage.postgres.limits import refusal
from windlass.storage.postgres.listing import listed
from windlass.storage.postgres.records import known_id
from windlass.storage.postgres.rows import stored_id, stored_text
from windlass.storage.postgres.translate import Refused
from windlass.storage.protocol import Inserted
from windlass.storage.queries import load

__all__ = ["PostgresOrders"]

_SQL = load("windlass.storage.postgres.sql", "orders.sql")
_ORDER, _INSERT, _AUDITS = _SQL["order"], _SQL["insert"], _SQL["audits"]

_EFFECTIVE = frozenset({Ordered.DONE, Ordered.REQUESTED})
_NEWEST = 2**63 - 1


class PostgresOrders:
    """An `OrderStore`. Every operation is one statement, and so one transaction."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def order(self, order: Order, ids: Sequence[JobId], note: AuditNote) -> Sequence[Ordered]:
        asked: list[UUID | None] = [known_id(job) for job in ids]
        name, *details = _words(order)
        rows = await self._db.fetch_aside(
            self._db.sql(_ORDER), self._db.instant(), name, asked, noted(note), *details
        )
        answers = [Ordered(answer) for answer in rows[0][0]]
        if not _EFFECTIVE.isdisjoint(answers):
            self._db.wake()
        return answers

    async def insert(self, jobs: Sequence[NewJob], note: AuditNote) -> Sequence[Inserted]:
        if not jobs:
            return []
        check_size(jobs)
        for job in jobs:
            stored_id(job.id)
        text = msgspec.json.encode([listed(job) for job in jobs]).decode()
        try:
            # On the side: a key may be under decision in somebody's open transaction.
            asked = (self._db.instant(), self._db.durable, text, noted(note))
            rows, unsure = await self._db.fetch_told(self._db.sql(_INSERT), *asked, aside=True)
        except Refused as refused:
            raise await refusal(self._db, refused) from None
        except StoreBusy as error:
            tell_busy_key(error)
            raise
        self._db.wake()
        met = ((place, holder, replaced) for place, holder, replaced in rows)
        return inserted(jobs, met, unsure=unsure)

    async def audits(
        self, *, limit: int, before: int | None = None, subject: str | None = None
    ) -> Sequence[AuditRecord]:
        rows = await self._db.fetch_aside(
            self._db.sql(_AUDITS), limit, _NEWEST if before is None else before, subject
        )
        return [record_of(row) for row in rows]


def _words(order: Order) -> tuple[Any, ...]:
    """The order's name in ``order_jobs``, then reason, due time, priority and queue."""
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
            at = None if due is None else max(within(due), FIRST)
            return ("edit", None, at, priority, queue)
        case _:
            assert_never(order)
