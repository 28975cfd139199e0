"""Retention: what is old enough goes, in bites."""

from __future__ import annotations

from datetime import timedelta

from windlass.config import Settings
from windlass.core.state import State
from windlass.runtime.bites import in_bites
from windlass.runtime.leader import Leader
from windlass.storage.protocol import MaintenanceStore

__all__ = ["Pruner"]

_KEEP_WORKERS = timedelta(days=1)


class Pruner:
    """Retention: deletes what is old enough, in bites."""

    def __init__(self, store: MaintenanceStore, leader: Leader, settings: Settings) -> None:
        """Works only while leading."""
        self._store = store
        self._leader = leader
        self._settings = settings

    async def step(self) -> int:
        """One round of expiry and retention; how many rows went."""
        if not self._leader.leading:
            return 0
        settings, store = self._settings, self._store
        removed = await in_bites(store.expire)
        keep = {
            State.SUCCEEDED: settings.keep_succeeded,
            State.CANCELLED: settings.keep_succeeded,
            State.DISCARDED: settings.keep_succeeded,
            State.FAILED: settings.keep_failed,
        }
        for state, age in keep.items():
            removed += await self._prune(state, age)
        await in_bites(lambda n: store.prune_rollups(older_than=settings.keep_rollups, limit=n))
        await in_bites(lambda n: store.prune_workers(older_than=_KEEP_WORKERS, limit=n))
        await store.tidy()
        return removed

    async def _prune(self, state: State, age: timedelta) -> int:
        async def bite(limit: int) -> int:
            return await self._store.prune(state=state, older_than=age, limit=limit)

        return await in_bites(bite)
