"""Writes of schedules that a person ordered."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass.storage.ordering import AuditNote
from windlass.storage.scheduling import (
    DueSchedules,
    ScheduleAnswer,
    ScheduleRow,
    ScheduleStore,
    ScheduleWrite,
)

__all__ = ["Audited"]


class Audited:
    """A `ScheduleStore` whose writes carry the record of one order."""

    def __init__(self, store: ScheduleStore, note: AuditNote) -> None:
        """``note`` is stored once, with the first write that takes effect."""
        self._store = store
        self._note = note

    async def rows(self, names: Sequence[str] | None = None) -> Sequence[ScheduleRow]:
        return await self._store.rows(names)

    async def page(self, after: str, limit: int) -> Sequence[ScheduleRow]:
        return await self._store.page(after, limit)

    async def due(self, limit: int) -> DueSchedules:
        return await self._store.due(limit)

    async def write(self, writes: Sequence[ScheduleWrite]) -> Sequence[ScheduleAnswer]:
        noted = [msgspec.structs.replace(write, audit=self._note) for write in writes]
        return await self._store.write(noted)

    async def declare(self, names: Sequence[str]) -> None:
        await self._store.declare(names)
