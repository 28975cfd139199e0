"""Hints that something changed: at once within this storage, by LISTEN from elsewhere."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Collection

import asyncpg

from windlass._storage.postgres.io.connection import PostgresConnection
from windlass._storage.postgres.io.database import PostgresDatabase
from windlass._storage.postgres.io.notify import decode_notification
from windlass._storage.protocol.wakeups import Topic
from windlass._storage.shared.subscribers import SharedWorkHints, Subscriber, topics_of
from windlass._system.seams import chance
from windlass.errors import StorageError

__all__ = ["PostgresWakeups"]

log = logging.getLogger("windlass")

_CHECK_EVERY = 8.0
"""A connection can be dead without a sign of it; a question that gets no answer is one."""
_CHECK_SECONDS = 5.0
_TEST_SECONDS = 2.0
_DEAF_PAUSE = 60.0
_TEST = "test:"


class PostgresWakeups:
    """A `Wakeups`. The listener is started for the first subscriber: producers need none."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._db = database
        self._listener: NotificationListener | None = None

    def subscribe(
        self, callback: Callable[[], None], topic: Topic = Topic.ANY
    ) -> Callable[[], None]:
        return self._listen_for(self._db.subscribers.add(callback, topic=topic))

    def work(self, callback: Callable[[], bool], queues: Collection[str]) -> SharedWorkHints:
        return SharedWorkHints(self._listen_for(self._db.subscribers.add(callback, queues)))

    def _listen_for(self, subscriber: Subscriber) -> Callable[[], None]:
        if self._listener is None:
            self._listener = NotificationListener(self._db)
        return functools.partial(self._db.subscribers.remove, subscriber)

    async def listening(self) -> None:
        """Wait until hints from other processes arrive. For tests: workers poll as well."""
        if self._listener is not None:
            await self._listener.heard.wait()

    async def close(self) -> None:
        self._db.subscribers.clear()
        if self._listener is not None:
            await self._listener.close()


class NotificationListener:
    """Keeps one connection listening, never inside a transaction, and notices when it is not."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._db = database
        self._link = PostgresConnection(database.server)
        self._connection: asyncpg.Connection | None = None
        self._lost = asyncio.Event()
        self._tested = asyncio.Event()
        self._deaf_said = False
        self.heard: asyncio.Event = asyncio.Event()
        """Set while hints arrive."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            pause = _CHECK_EVERY
            try:
                await self._link.use(self._check, within=_CHECK_SECONDS)
                if not self.heard.is_set():
                    pause = await self._test()
            except StorageError as error:
                # The link paces itself while the server is away; this is for everything else.
                log.debug("Not listening: %s", error)
                self._stop_hearing()
                pause = 0.5 + chance() / 2
            await self._wait(pause)

    async def _wait(self, pause: float) -> None:
        try:
            async with asyncio.timeout(pause):
                await self._lost.wait()
        except TimeoutError:
            return
        self._stop_hearing()

    async def _check(self, connection: asyncpg.Connection) -> None:
        if self._connection is not None and connection is self._connection:
            await connection.execute("SELECT 1")
            return
        self._stop_hearing()
        self._lost.clear()
        connection.add_termination_listener(self._on_lost)
        await connection.add_listener(self._db.channel, self._on_notify)
        self._connection = connection

    async def _test(self) -> float:
        """Send ourselves a hint, over another connection; then how long until the next look.

        Behind a pooler that gives connections away between statements LISTEN is accepted and
        nothing ever comes.
        """
        self._tested.clear()
        await self._db.fetch("SELECT pg_notify($1, $2)", self._db.channel, self._test_text)
        try:
            async with asyncio.timeout(_TEST_SECONDS):
                await self._tested.wait()
        except TimeoutError:
            self._say_deaf()
            if self._db.server.pooled:
                await self._give_up()
                return _DEAF_PAUSE
            return _CHECK_EVERY
        self._deaf_said = False
        self.heard.set()
        self._db.notify_through(None if self._db.server.pooled else self._link)
        self._db.subscribers.wake()  # for hints that were sent before it listened
        return _CHECK_EVERY

    @property
    def _test_text(self) -> str:
        return _TEST + self._db.sender

    def _say_deaf(self) -> None:
        if not self._deaf_said:
            self._deaf_said = True
            log.warning(
                "Notifications of PostgreSQL at %s do not arrive, as behind PgBouncer in "
                "transaction mode. Work is found by polling; for quick wake-ups use a direct "
                "connection or a pool in session mode.",
                self._db.server.address.shown,
            )

    async def _give_up(self) -> None:
        """Take back what some connection of the pool may be listening to for us."""
        self._connection = None
        await self._link.use(lambda connection: connection.execute("UNLISTEN *"))
        await self._link.hang_up()

    def _stop_hearing(self) -> None:
        self._connection = None
        self._db.notify_through(None)
        self.heard.clear()

    def _on_lost(self, connection: asyncpg.Connection) -> None:
        if connection is self._connection:
            self._lost.set()

    def _on_notify(self, _connection: object, _pid: int, _channel: str, payload: str) -> None:
        if payload == self._test_text:
            self._tested.set()
        elif not payload.startswith(_TEST):
            sender, queues = decode_notification(payload)
            if sender != self._db.sender:
                self._db.subscribers.wake(queues, topics_of(queues))

    async def close(self) -> None:
        self._stop_hearing()
        loop = self._task.get_loop()
        if loop is asyncio.get_running_loop():
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._link.close()
