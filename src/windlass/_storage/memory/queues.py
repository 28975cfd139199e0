"""Settings and cool-downs of queues."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from windlass._core.limits.cooldown import MAX_STEPS, RESET_AFTER
from windlass._core.limits.queue_settings import QueueSettings
from windlass._core.values.instants import add_clamped
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.io.rows import QueueRow
from windlass._storage.protocol.actions import AuditNote
from windlass._storage.protocol.queues import QueueRecord

__all__ = ["MemoryQueues", "forget_old_cooldown", "start_cooldown"]


def start_cooldown(
    db: MemoryDatabase, queue: str, cools: Sequence[timedelta], delay: timedelta, now: datetime
) -> tuple[datetime, bool]:
    """Send a queue to rest; until when, and whether it did not rest already: many who hit one
    limiter are one hit. By a clock that was set back a rest begins where all others stand: `mend`
    moves it with them.
    """
    row, back = db.queues[queue], db.gates.set_back_by(now)
    if row.cool_until is not None and row.cool_until > now + back:
        return row.cool_until - back, False
    wait = cools[min(row.cool_downs, len(cools) - 1)]
    until = add_clamped(now + back, max(wait, delay))
    row.cool(until, min(row.cool_downs + 1, MAX_STEPS))
    db.gates.reckon(now)
    return until - back, True


def forget_old_cooldown(row: QueueRow, now: datetime) -> None:
    """Reset a cool-down that ended long enough ago, after a success."""
    if row.cool_until is not None and row.cool_until <= now - RESET_AFTER:
        row.cool(None, 0)


class MemoryQueues:
    """A `QueueStore`."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    async def queues(self) -> Sequence[QueueRecord]:
        with self._db.view():
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
            row.change(new)
            self._db.audits.keep(audit, 1, now)
        self._db.wake({queue})
        return True

    async def warm(self, queue: str, *, audit: AuditNote | None = None) -> None:
        with self._db.moment() as now:
            row = self._db.queues[queue]
            row.cool(None, 0)
            self._db.audits.keep(audit, 1, now)
        self._db.wake({queue})
