"""Due jobs are marked ready ahead of the claims that would."""

from __future__ import annotations

from windlass.runtime.bites import in_bites
from windlass.runtime.leader import Leader
from windlass.storage.protocol import MaintenanceStore

__all__ = ["Promoter"]


class Promoter:
    """Marks due jobs ready ahead of the claims that would. It only shortens the wait."""

    def __init__(self, store: MaintenanceStore, leader: Leader) -> None:
        """Works only while leading."""
        self._store = store
        self._leader = leader

    async def step(self) -> int:
        """Promote what is due; how many."""
        if not self._leader.leading:
            return 0
        return await in_bites(self._store.promote)
