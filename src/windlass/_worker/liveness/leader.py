"""Leadership: a lease, so that chores run once per cluster. Economy, never correctness."""

from __future__ import annotations

from datetime import timedelta

from windlass._storage.protocol.workers import LeaderStore
from windlass._worker.registration import Registration

__all__ = ["Leader"]


class Leader:
    """Whether this worker does the chores."""

    def __init__(self, store: LeaderStore, identity: Registration, *, lease: timedelta) -> None:
        """``lease``: how long the chores may wait after a leader's death."""
        self._store = store
        self._identity = identity
        self._lease = lease
        self.leading: bool = False

    async def step(self) -> bool:
        """Take or renew the lead."""
        self.leading = await self._store.lead("chores", self._identity.id, self._lease)
        return self.leading

    async def resign(self) -> None:
        """Let another worker take over at once."""
        self.leading = False
        await self._store.resign(self._identity.id)
