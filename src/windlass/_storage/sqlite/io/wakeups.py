"""Hints that something changed: at once within this storage, by the watcher from elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from typing import Protocol

from windlass._storage.protocol.wakeups import Topic
from windlass._storage.shared.subscribers import SharedWorkHints, Subscriber
from windlass._storage.sqlite.io.database import SqliteDatabase

__all__ = ["SqliteWakeups", "Watcher"]


class Watcher(Protocol):
    """Notices what other connections commit."""

    def subscribe(
        self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]
    ) -> Callable[[], None]: ...

    def close(self) -> None: ...


class SqliteWakeups:
    """A `Wakeups`. The watcher is started for the first subscriber: producers need none."""

    def __init__(self, database: SqliteDatabase, watch: Callable[[], Watcher | None]) -> None:
        self._db, self._watch = database, watch
        self._watcher: Watcher | None = None

    def subscribe(
        self, callback: Callable[[], None], topic: Topic = Topic.ANY
    ) -> Callable[[], None]:
        return self._watch_for(self._db.subscribers.add(callback, topic=topic))

    def work(self, callback: Callable[[], bool], queues: Collection[str]) -> SharedWorkHints:
        return SharedWorkHints(self._watch_for(self._db.subscribers.add(callback, queues)))

    def _watch_for(self, subscriber: Subscriber) -> Callable[[], None]:
        loop = asyncio.get_running_loop()
        if self._watcher is None:
            self._watcher = self._watch()
        # The watcher sees that there was a commit, not which queues it was about.
        unwatch = self._watcher.subscribe(loop, subscriber.wake) if self._watcher else None

        def unsubscribe() -> None:
            self._db.subscribers.remove(subscriber)
            if unwatch is not None:
                unwatch()

        return unsubscribe

    def close(self) -> None:
        self._db.subscribers.clear()
        if self._watcher is not None:
            self._watcher.close()
