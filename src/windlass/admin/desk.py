"""What every part of the admin stands on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

from windlass.config import Settings
from windlass.core.job import JobId
from windlass.observe.bus import Bus
from windlass.storage.protocol import Storage

__all__ = ["Desk"]


class Desk:
    """Asks a storage that is opened on first use; accepted orders are told on the bus."""

    def __init__(
        self,
        storage: Callable[[], Awaitable[Storage]],
        bus: Bus,
        settings: Settings,
        new_ids: Callable[[int], Sequence[JobId]],
    ) -> None:
        """``storage`` opens on first use; accepted orders are told on ``bus``."""
        self._storage = storage
        self._bus = bus
        self._settings = settings
        self._new_ids = new_ids

    async def now(self) -> datetime:
        """The store's clock, by which every instant it tells is to be read."""
        return await (await self._storage()).now()
