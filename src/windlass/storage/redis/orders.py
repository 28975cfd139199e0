"""What people order, with the record of who did."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, assert_never

import msgspec

from windlass.core.instant import to_us
from windlass.core.job import JobId, NewJob
from windlass.storage.calendar import LAST_US
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
from windlass.storage.redis import insert
from windlass.storage.redis.audits import note_bytes, record_of
from windlass.storage.redis.database import Database
from windlass.storage.redis.records import known_id
from windlass.storage.redis.scripts import script

__all__ = ["ANSWERS", "RedisOrders"]

_ORDER, _INSERT, _AUDITS = script("order"), script("order_insert"), script("audits")

ANSWERS: Final = {
    ord("d"): Ordered.DONE,
    ord("r"): Ordered.REQUESTED,
    ord("?"): Ordered.UNKNOWN,
    ord("s"): Ordered.WRONG_STATE,
    ord("k"): Ordered.CONFLICT,
}
"""As shared/orders.lua gives them."""

_pack = msgspec.msgpack.Encoder().encode


class RedisOrders:
    """An `OrderStore`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def order(self, order: Order, ids: Sequence[JobId], note: AuditNote) -> Sequence[Ordered]:
        asked = (note_bytes(note), _pack(_said(order)), *map(known_id, ids))
        answers = await self._db.run_aside(_ORDER, *asked)
        self._db.wake()
        return [ANSWERS[character] for character in answers]

    async def insert(self, jobs: Sequence[NewJob], note: AuditNote) -> Sequence[Inserted]:
        if not jobs:
            return []
        asked = (note_bytes(note), *insert.items(jobs))
        reply, unsure = await self._db.run_told(_INSERT, *asked, aside=True)
        answers = insert.inserted(jobs, reply, unsure=unsure)
        self._db.wake()
        return answers

    async def audits(
        self, *, limit: int, before: int | None = None, subject: str | None = None
    ) -> Sequence[AuditRecord]:
        if limit <= 0:
            return []
        about = ("",) if subject is None else ("1", subject)
        found = await self._db.run_aside(_AUDITS, limit, "" if before is None else before, *about)
        return [record_of(int(n), text) for n, text in zip(found[::2], found[1::2], strict=True)]


def _said(order: Order) -> tuple[object, ...]:
    """An order as order.lua takes it; False stands for what is left as it is."""
    match order:
        case Requeue():
            return ("requeue",)
        case Discard(reason):
            return ("discard", reason)
        case Cancel():
            return ("cancel",)
        case RunNow():
            return ("run_now",)
        case Delete():
            return ("delete",)
        case Edit():
            due = False if order.due is None else min(to_us(order.due), LAST_US)
            priority = False if order.priority is None else order.priority
            return ("edit", due, priority, False if order.queue is None else order.queue)
        case _:
            assert_never(order)
