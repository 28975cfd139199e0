"""Retention: what is old enough goes, in bites."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from windlass.config import Settings
from windlass.core.state import State
from windlass.observe.bus import Bus
from windlass.runtime.bites import BITE, in_bites
from windlass.runtime.queues import QueueBook
from windlass.storage.protocol import Storage
from windlass.telling import tell_expired

__all__ = ["Pruner"]

_KEEP_WORKERS = timedelta(days=1)
_KEEP_MINUTES = timedelta(hours=48)
"""Older rollups are kept by the hour: what charts of days and weeks show."""
_ROUNDS = 100


class Pruner:
    """Retention: deletes what is old enough, in bites."""

    def __init__(self, storage: Storage, settings: Settings, queues: QueueBook, bus: Bus) -> None:
        """``queues`` knows which of them keep their jobs otherwise."""
        self._storage = storage
        self._store = storage.maintenance
        self._bus = bus
        self._queues = queues
        self._settings = settings

    async def tidy(self) -> str:
        """Checkpoints, vacuum, statistics: whatever the backend needs now and then."""
        await self._store.tidy()
        return "done"

    async def retention(self) -> str:
        """One round, in words."""
        removed = await self.step()
        return f"{removed:,} job{'' if removed == 1 else 's'} removed"

    async def step(self) -> int:
        """One round of expiry and retention; how many jobs went."""
        settings, store = self._settings, self._store
        removed = await in_bites(self._expire)
        quiet = settings.keep_succeeded, self._queues.keep_succeeded
        failed = settings.keep_failed, self._queues.keep_failed
        keep = {
            State.SUCCEEDED: quiet,
            State.CANCELLED: quiet,
            State.DISCARDED: quiet,
            State.FAILED: failed,
        }
        for state, (age, apart) in keep.items():
            removed += await self._prune(state, age, apart)
        await in_bites(lambda n: store.prune_rollups(older_than=settings.keep_rollups, limit=n))
        await self._compact()
        await in_bites(lambda n: store.prune_events(older_than=settings.keep_events, limit=n))
        await in_bites(lambda n: store.prune_audits(older_than=settings.keep_audit, limit=n))
        await in_bites(lambda n: store.prune_workers(older_than=_KEEP_WORKERS, limit=n))
        return removed

    async def _expire(self, limit: int) -> int:
        """Told of at once: retention may delete them in the same round."""
        expired = await self._store.expire(limit)
        await tell_expired(self._storage, self._bus, expired)
        return len(expired)

    async def _compact(self) -> None:
        """What a bite saves says little about what is left, so until one saves nothing."""
        for _ in range(_ROUNDS):
            if not await self._store.compact_rollups(older_than=_KEEP_MINUTES, limit=BITE):
                return

    async def _prune(self, state: State, age: timedelta, apart: Mapping[str, timedelta]) -> int:
        async def bite(limit: int) -> int:
            return await self._store.prune(
                state=state, older_than=age, limit=limit, apart=apart or None
            )

        return await in_bites(bite)
