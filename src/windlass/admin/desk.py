"""What every part of the admin stands on."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import Self

from windlass.admin.shading import Shades
from windlass.config import Settings
from windlass.core.job import JobId
from windlass.core.text import check_text
from windlass.observe.bus import Bus
from windlass.storage.protocol import AuditNote, Storage

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
        self._who = "api"
        self._shades = Shades(storage)

    def acting(self, who: str) -> Self:
        """The same for somebody else: orders are recorded under the name ``who``."""
        other = copy.copy(self)
        other._who = check_text(who, "who")  # noqa: SLF001 -- one of our own
        return other

    async def now(self) -> datetime:
        """The store's clock, by which every instant it tells is to be read."""
        return await (await self._storage()).now()

    def _note(self, what: str, subject: str = "", detail: str = "") -> AuditNote:
        """For the record of one order; a repeat of the very same is recognised by it."""
        (number,) = self._new_ids(1)
        return AuditNote(id=number, who=self._who, what=what, subject=subject, detail=detail)
