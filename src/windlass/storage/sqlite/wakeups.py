"""Hints that something changed: at once within this storage, by the watcher from elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from windlass.storage.sqlite.database import Database

__all__ = ["SqliteWakeups", "Watcher"]


class Watcher(Protocol):
    """Notices what other connections commit."""

    def subscribe(
        self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]
    ) -> Callable[[], None]: ...

    def close(self) -> None: ...


class SqliteWakeups:
    """A `Wakeups`. The watcher is started for the first subscriber: producers need none."""

    def __init__(self, database: Database, watch: Callable[[], Watcher | None]) -> None:
        self._db, self._watch = database, watch
        self._watcher: Watcher | None = None

    def subscribe(self, callback: Callable[[], None]) -> Callable[[], None]:
        loop = asyncio.get_running_loop()
        sleeper = _Sleeper(loop, callback)
        self._db.sleepers.append(sleeper)
        if self._watcher is None:
            self._watcher = self._watch()
        unwatch = self._watcher.subscribe(loop, sleeper.wake) if self._watcher else None

        def unsubscribe() -> None:
            sleeper.callback = None
            if sleeper in self._db.sleepers:
                self._db.sleepers.remove(sleeper)
            if unwatch is not None:
                unwatch()

        return unsubscribe

    def close(self) -> None:
        self._db.sleepers.clear()
        if self._watcher is not None:
            self._watcher.close()


class _Sleeper:
    """One subscription. Changes that come before its loop gets round to them are one call."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback
        self._loop = loop
        self._called = False

    def __call__(self) -> None:
        if not self._called:
            self._called = True
            self._loop.call_soon(self.wake)

    def wake(self) -> None:
        # Reset first: a change made from now on is not in what the callback is about to see.
        self._called = False
        if self.callback is not None:
            self.callback()
