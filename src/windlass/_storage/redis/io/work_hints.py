"""Hints for idle workers: each entry of a list ``work:<queue>`` wakes one of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

from windlass._storage.redis.io.database import RedisDatabase
from windlass._storage.redis.io.dialer import Dialer
from windlass._storage.redis.io.listener import BLOCK_SECONDS, Ask, Listener
from windlass._system.seams import new_worker_id
from windlass.errors import StorageError

__all__ = ["RedisWorkHints"]

_BELL_MS = 60_000


class RedisWorkHints:
    """A `WorkHints`. While its worker waits, it takes a hint out of the lists of the queues.

    If a worker dies after it took a hint, or loses its connection, the job waits until another
    worker polls. A hint that no worker waits for stays in its list.
    """

    exact: Final = True

    def __init__(
        self,
        database: RedisDatabase,
        dialer: Dialer,
        callback: Callable[[], bool],
        queues: Collection[str],
    ) -> None:
        """Send nothing to the server before the worker first waits."""
        self._db, self._dialer, self._callback = database, dialer, callback
        self._lists = database.prefix + "work:"
        self._bell = f"{database.prefix}bell:{new_worker_id()}"
        """A list that only this object waits for: an entry ends the present wait."""
        self._wanted: frozenset[str] = frozenset()
        self._waits_for: frozenset[str] = frozenset()
        self._wants = asyncio.Event()
        self._ringing: asyncio.Task[None] | None = None
        self._closed = False
        self._local = database.subscribers.add(self._changed_here, queues)
        self.listener: Listener | None = None
        self.about: Collection[str] = ()
        """The queue of the hint that the callback is called for."""

    def want(self, queues: Collection[str]) -> None:
        """Wait for work of these queues."""
        if self._closed:
            return
        self._wanted = frozenset(queues)
        if self._waits_for and not self._wanted <= self._waits_for:
            self._ring()
        if self._wanted:
            self._wants.set()
        if self.listener is None:
            self.listener = Listener(self._dialer, self._talk)

    @property
    def ended(self) -> bool:
        """Whether it was closed and its connection has ended."""
        return self._closed and (self.listener is None or self.listener.ended)

    def close(self) -> None:
        """Stop calling the callback."""
        self._closed = True
        self._db.subscribers.remove(self._local)
        if self.listener is not None:
            self.listener.stop()

    def _changed_here(self) -> None:
        """Pass on changes of this process, while no hints come from the server."""
        if self.listener is None or not self.listener.reached:
            self._callback()

    async def _talk(self, ask: Ask) -> None:
        self._waits_for = frozenset()
        await ask("PING")
        self._callback()  # for changes before
        while True:
            await self._wants.wait()
            self._waits_for = self._wanted
            lists = (self._lists + queue for queue in sorted(self._waits_for))
            found = await ask("BLPOP", self._bell, *lists, BLOCK_SECONDS)
            self._waits_for = frozenset()
            if found is None or found[0] == self._bell.encode():
                continue
            self._wants.clear()
            if not self._offer(bytes(found[0]).decode().removeprefix(self._lists)):
                await ask("LPUSH", found[0], b"")

    def _offer(self, queue: str) -> bool:
        """Wake the worker for a job of ``queue``. Return whether it claims now."""
        self.about = (queue,)
        try:
            return self._callback()
        finally:
            self.about = ()

    def _ring(self) -> None:
        """End the present wait at the server: it does not cover all queues that are wanted now."""
        if self._ringing is None or self._ringing.done():
            self._ringing = asyncio.get_running_loop().create_task(self._push_bell())

    async def _push_bell(self) -> None:
        with suppress(StorageError):  # then the wait ends by itself
            await self._db.side.ask("LPUSH", self._bell, b"")
            await self._db.side.ask("PEXPIRE", self._bell, _BELL_MS)
