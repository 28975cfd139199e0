"""Who does the chores."""

from __future__ import annotations

from datetime import timedelta

from windlass.core.instant import span_us
from windlass.storage.redis.database import Database
from windlass.storage.redis.scripts import script

__all__ = ["RedisLeader"]

_LEAD, _RESIGN = script("lead"), script("resign")


class RedisLeader:
    """A `LeaderStore`. Leases end by the server's clock."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def lead(self, role: str, worker: str, lease: timedelta) -> bool:
        return bool(await self._db.run_aside(_LEAD, role, worker, span_us(lease)))

    async def resign(self, worker: str) -> None:
        await self._db.run_aside(_RESIGN, worker)
