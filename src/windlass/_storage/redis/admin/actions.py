"""Actions of operators, with the audit log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, assert_never

import msgspec

from windlass._core.job.job import JobId, NewJob
from windlass._core.values.instants import LAST_US, to_us
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
from windlass._storage.protocol.wakeups import Topic
from windlass._storage.redis.admin.audit import note_bytes, record_of
from windlass._storage.redis.io.database import RedisDatabase
from windlass._storage.redis.io.scripts import script
from windlass._storage.redis.jobs import insert
from windlass._storage.shared.job_ids import known_id

__all__ = ["ANSWERS", "RedisActions"]

_ORDER, _INSERT, _AUDITS = script("order"), script("order_insert"), script("audits")
_RECORD = script("record_audit")

ANSWERS: Final = {
    ord("d"): ActionResult.DONE,
    ord("r"): ActionResult.REQUESTED,
    ord("?"): ActionResult.UNKNOWN,
    ord("s"): ActionResult.WRONG_STATE,
    ord("k"): ActionResult.CONFLICT,
}
"""As shared/orders.lua gives them."""

_pack = msgspec.msgpack.Encoder().encode


class RedisActions:
    """An `ActionStore`."""

    def __init__(self, database: RedisDatabase) -> None:
        self._db = database

    async def order(
        self, order: JobAction, ids: Sequence[JobId], note: AuditNote
    ) -> Sequence[ActionResult]:
        asked = (note_bytes(note), _pack(_said(order)), *map(known_id, ids))
        answers = await self._db.run_aside(_ORDER, *asked)
        self._db.wake(topics={Topic.CANCEL})
        return [ANSWERS[character] for character in answers]

    async def insert(self, jobs: Sequence[NewJob], note: AuditNote) -> Sequence[Inserted]:
        if not jobs:
            return []
        asked = (note_bytes(note), *insert.insert_args(jobs))
        reply, unsure = await self._db.run_told(_INSERT, *asked, aside=True)
        answers = insert.insert_answers(jobs, reply, unsure=unsure)
        self._db.wake()
        return answers

    async def record(self, note: AuditNote, count: int) -> None:
        await self._db.run_aside(_RECORD, note_bytes(note), count)

    async def audits(
        self, *, limit: int, before: int | None = None, subject: str | None = None
    ) -> Sequence[AuditRecord]:
        if limit <= 0:
            return []
        about = ("",) if subject is None else ("1", subject)
        found = await self._db.run_aside(_AUDITS, limit, "" if before is None else before, *about)
        return [record_of(int(n), text) for n, text in zip(found[::2], found[1::2], strict=True)]


def _said(order: JobAction) -> tuple[object, ...]:
    """Return an action as order.lua takes it; False leaves a value as it is."""
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
