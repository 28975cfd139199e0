"""What every part of the admin stands on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from windlass.observe.bus import Bus
from windlass.storage.protocol import Storage

__all__ = ["Desk"]


class Desk:
    """Asks a storage that is opened on first use; accepted orders are told on the bus."""

    def __init__(self, storage: Callable[[], Awaitable[Storage]], bus: Bus) -> None:
        """``storage`` opens on first use; accepted orders are told on ``bus``."""
        self._storage = storage
        self._bus = bus
