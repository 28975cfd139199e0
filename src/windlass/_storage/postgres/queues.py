"""Settings and cool-downs of queues."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass._core.limits.queue_settings import QueueSettings
from windlass._storage.postgres.admin.audit import audit_note_text
from windlass._storage.postgres.io.database import PostgresDatabase
from windlass._storage.protocol.actions import AuditNote
from windlass._storage.protocol.queues import QueueRecord
from windlass._storage.shared.sql_files import load_sql

__all__ = ["PostgresQueues"]

_SQL = load_sql("windlass._storage.postgres.sql", "queues.sql")
_QUEUES, _SETTINGS, _CHANGE, _WARM = _SQL["queues"], _SQL["settings"], _SQL["change"], _SQL["warm"]

_encode = msgspec.json.encode
_decode = msgspec.json.Decoder(QueueSettings).decode
_PLAIN = QueueSettings()


class PostgresQueues:
    """A `QueueStore`."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._db = database

    async def queues(self) -> Sequence[QueueRecord]:
        rows = await self._db.fetch_aside(self._db.sql(_QUEUES), reads=True)
        return [
            QueueRecord(
                queue=row["name"],
                settings=_settings_of(row["settings"]),
                paused=row["paused"],
                cool_until=row["cool_until"],
                cool_downs=row["cool_downs"],
            )
            for row in rows
        ]

    async def change(
        self,
        queue: str,
        new: QueueSettings,
        *,
        old: QueueSettings,
        audit: AuditNote | None = None,
    ) -> bool:
        text = None if new == _PLAIN else _encode(new).decode()
        while True:
            rows = await self._db.fetch_aside(self._db.sql(_SETTINGS), queue, reads=True)
            stored: str | None = rows[0][0] if rows else None
            if _settings_of(stored) != old:
                return False
            # Not repeated if the answer is lost: it would find its own work, and say no.
            asked = (
                queue,
                text,
                new.max_running,
                stored,
                self._db.instant(),
                audit_note_text(audit),
            )
            changed = await self._db.fetch_aside(self._db.sql(_CHANGE), *asked, again=False)
            if changed[0][0]:
                self._db.wake({queue})
                return True
            # Another writer was quicker, perhaps with the same settings in other words.

    async def warm(self, queue: str, *, audit: AuditNote | None = None) -> None:
        asked = (queue, self._db.instant(), audit_note_text(audit))
        await self._db.fetch_aside(self._db.sql(_WARM), *asked)
        self._db.wake({queue})


def _settings_of(text: str | None) -> QueueSettings:
    return _PLAIN if text is None else _decode(text)
