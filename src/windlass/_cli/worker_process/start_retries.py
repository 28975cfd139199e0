"""A storage that is away or full when a worker starts: what is waited out, and for how long."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from windlass._observe.log import brief
from windlass._system.seams import chance, monotonic
from windlass.errors import (
    StorageError,
    StorageFull,
    StorageRefused,
    StorageUnavailable,
    StoreBusy,
)

__all__ = ["StartRetries", "may_pass"]

log = logging.getLogger("windlass")

_FIRST, _LONGEST = 0.25, 2.0
"""Between two tries, besides the seconds for which each of them tries to connect."""


def may_pass(error: StorageError) -> bool:
    """Return whether waiting may cure it, with the same URL, password and code."""
    if isinstance(error, StorageRefused):
        return False
    return isinstance(error, StorageUnavailable | StorageFull | StoreBusy)


class StartRetries:
    """Waits between two tries to start. Says once why it waits, and once when that is over."""

    def __init__(self, limit: timedelta | None) -> None:
        """``limit``: how long to wait in all; None waits as long as it takes."""
        self._limit = limit
        self._since = 0.0
        self._waits = False
        self._pause = _FIRST
        self.over: bool = False
        """Whether the limit was reached."""

    def begin(self) -> None:
        """Mark the start of the first try."""
        self._since = monotonic()

    async def bear(self, error: StorageError) -> None:
        """Wait before the next try. Raise the error where waiting does not help, or not longer."""
        now = monotonic()
        if not may_pass(error):
            raise error
        if not self._waits and (self._limit is None or self._limit):
            self._waits = True
            log.warning("waiting for the storage: %s", error)
        waited = timedelta(seconds=now - self._since)
        if self._limit is not None and waited >= self._limit:
            self.over = True
            raise error
        pause = self._pause * (0.5 + chance() / 2)
        if self._limit is not None:
            pause = min(pause, (self._limit - waited).total_seconds())
        self._pause = min(self._pause * 2, _LONGEST)
        await asyncio.sleep(pause)

    def rewarded(self) -> None:
        """Mark that the worker has started."""
        if self._waits:
            waited = timedelta(seconds=monotonic() - self._since)
            log.warning("the storage is available after %s", brief(waited))

    @property
    def waited(self) -> str:
        """Return the addition to the error after the last retry."""
        if not self.over or not self._limit:
            return ""
        return f" (gave up after {brief(self._limit)}: --wait-for-store)"
