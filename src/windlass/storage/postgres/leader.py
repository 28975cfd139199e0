"""Who does the chores."""

from __future__ import annotations

from datetime import timedelta

from windlass.core.instant import span_us
from windlass.storage.postgres.database import Database
from windlass.storage.queries import load

__all__ = ["PostgresLeader"]

_SQL = load("windlass.storage.postgres.sql", "workers.sql")


class PostgresLeader:
    """A `LeaderStore`."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._lead, self._resign = database.sql(_SQL["lead"]), database.sql(_SQL["resign"])

    async def lead(self, role: str, worker: str, lease: timedelta) -> bool:
        at = self._db.instant()
        return bool(await self._db.fetch_aside(self._lead, at, role, worker, span_us(lease)))

    async def resign(self, worker: str) -> None:
        await self._db.fetch_aside(self._resign, worker)
