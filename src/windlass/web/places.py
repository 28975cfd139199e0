"""Room for few large looks at once: pages must not take the storage from the workers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["NoPlace", "Places"]

AT_ONCE = 4
IN_LINE = 200
"""Who comes when so many wait is told at once that there is no room."""
WAITS = 2.0
"""Seconds."""


class NoPlace(Exception):
    """So many look at once that one more has to come back."""


class Places:
    """The looks that are going on, and who waits for one of them to end."""

    def __init__(self, at_once: int = AT_ONCE, *, waits: float = WAITS) -> None:
        """``waits``: how long somebody stands in line, in seconds."""
        self._free = asyncio.Semaphore(at_once)
        self._waits = waits
        self._line = 0

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """A place for as long as this lasts; NoPlace if none becomes free in time."""
        if self._line >= IN_LINE:
            raise NoPlace
        self._line += 1
        try:
            async with asyncio.timeout(self._waits):
                await self._free.acquire()
        except TimeoutError:
            raise NoPlace from None
        finally:
            self._line -= 1
        try:
            yield
        finally:
            self._free.release()
