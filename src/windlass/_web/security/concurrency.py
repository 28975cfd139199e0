"""Room for few looks at once: pages must not take the storage from the workers, nor one
person all of it from the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from windlass._system.seams import chance

__all__ = ["SMALL_AT_ONCE", "ReadLimiter", "TooManyOwnReads", "TooManyReads"]

MAX_READS = 4
SMALL_AT_ONCE = 8
"""Of pages that neither count nor search: they take no place of large ones, and wait for none."""
MAX_READS_PER_PERSON = 2
"""Of one person."""
IN_LINE, OWN_LINE = 200, 50
"""Requests that find this many waiting, of all or of this person, are refused at once."""
READ_WAIT_SECONDS = 2.0
"""Seconds at most, half of them at least."""


class TooManyReads(Exception):
    """Too many reads run at once: try again later."""


class TooManyOwnReads(TooManyReads):
    """One person looks at so much at once that the next look has to come back."""


class _PersonReads:
    """The places of one person, and how many looks hold them or wait for one."""

    def __init__(self, each: int) -> None:
        self.free = asyncio.Semaphore(each)
        self.looks = 0

    def count(self, looks: int) -> None:
        """Add to the number of reads, or subtract."""
        self.looks += looks


class ReadLimiter:
    """The looks that are going on, and who waits for one of them to end."""

    def __init__(
        self,
        at_once: int = MAX_READS,
        *,
        each: int = MAX_READS_PER_PERSON,
        waits: float = READ_WAIT_SECONDS,
    ) -> None:
        """Make a limiter. ``each``: reads of one person; ``waits``: seconds that a request may wait
        in line.
        """
        self._free = asyncio.Semaphore(at_once)
        self._each = each
        self._own: dict[str, _PersonReads] = {}
        self._waits = waits
        self._line = 0

    @asynccontextmanager
    async def one(self, who: str) -> AsyncIterator[None]:
        """Take a place for as long as this lasts; NoPlace if none becomes free in time."""
        own = self._own.get(who) or _PersonReads(self._each)
        if own.looks >= self._each + OWN_LINE:
            raise TooManyOwnReads
        if self._line >= IN_LINE:
            raise TooManyReads
        self._own[who] = own
        own.count(1)
        try:
            await self._wait(own)
            try:
                yield
            finally:
                self._free.release()
                own.free.release()
        finally:
            own.count(-1)
            if not own.looks:
                del self._own[who]

    async def _wait(self, own: _PersonReads) -> None:
        """Take a place of this person, then one of all; take none if that fails."""
        refusal: type[TooManyReads] = TooManyOwnReads
        self._line += 1
        try:
            # Not all of those who came together are refused, and come back, together.
            async with asyncio.timeout(self._waits * (1 + chance()) / 2):
                await own.free.acquire()
                refusal = TooManyReads
                try:
                    await self._free.acquire()
                except BaseException:
                    own.free.release()
                    raise
        except TimeoutError:
            raise refusal from None
        finally:
            self._line -= 1
