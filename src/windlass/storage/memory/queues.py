"""What holds for whole queues: settings, and the rest after somebody upstream said "not now"."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from windlass.core.cooling import GRACE, MOST
from windlass.core.queue import QueueSettings
from windlass.storage.calendar import after
from windlass.storage.memory.database import MemoryDatabase
from windlass.storage.memory.row import QueueRow
from windlass.storage.protocol import AuditNote, QueueRecord

__all__ = ["MemoryQueues", "cool", "forgive"]


def cool(row: QueueRow, cools: Sequence[timedelta], delay: timedelta, now: datetime) -> bool:
    """Send a queue to rest; False: it rests already, and many who hit one limiter are one hit."""
    if row.cool_until is not None and row.cool_until > now:
        return False
    wait = cools[min(row.cool_downs, len(cools) - 1)]
    row.cool_until = after(now, max(wait, delay))
    row.cool_downs = min(row.cool_downs + 1, MOST)
    return True


def forgive(row: QueueRow, now: datetime) -> None:
    """A success: what lies long enough in the past is forgotten."""
    if row.cool_until is not None and row.cool_until <= now - GRACE:
        row.cool_until, row.cool_downs = None, 0


class MemoryQueues:
    """A `QueueStore`."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    async def queues(self) -> Sequence[QueueRecord]:
        with self._db.moment():
            plain = QueueRow()
            return [
                QueueRecord(
                    queue=queue,
                    settings=row.settings,
                    paused=row.paused,
                    cool_until=row.cool_until,
                    cool_downs=row.cool_downs,
                )
                for queue, row in sorted(self._db.queues.items())
                if row != plain
            ]

    async def change(
        self,
        queue: str,
        new: QueueSettings,
        *,
        old: QueueSettings,
        audit: AuditNote | None = None,
    ) -> bool:
        with self._db.moment() as now:
            row = self._db.queues[queue]
            if row.settings != old:
                return False
            row.settings = new
            self._db.audits.keep(audit, 1, now)
        self._db.wake({queue})
        return True

    async def warm(self, queue: str, *, audit: AuditNote | None = None) -> None:
        with self._db.moment() as now:
            row = self._db.queues[queue]
            row.cool_until, row.cool_downs = None, 0
            self._db.audits.keep(audit, 1, now)
        self._db.wake({queue})
