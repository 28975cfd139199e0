"""Hints that something changed: at once within this storage, by LISTEN from elsewhere."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Collection
from contextlib import suppress

import asyncpg

from windlass._storage.postgres.io.connection import PostgresConnection
from windlass._storage.postgres.io.database import PostgresDatabase
from windlass._storage.postgres.io.notify import decode_notification
from windlass._storage.postgres.io.presence import ACQUIRE, MEMBERS, NOTIFY, RELEASE
from windlass._storage.postgres.io.work_hints import PostgresWorkHints, WorkGroups
from windlass._storage.protocol.wakeups import Topic
from windlass._storage.shared.subscribers import NO_QUEUE, Subscriber
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
_MEMBERS = "members:"
"""Begins a notification that a worker has joined or left a group."""
_MEMBERS_PAUSE = 0.2
"""Seconds until the members are read again, and up to a second more: many may start at once."""


class PostgresWakeups:
    """A `Wakeups`. The listener is started for the first subscriber: producers need none."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._db = database
        self._groups = WorkGroups(database)
        self._waiting: set[Subscriber] = set()
        """Those that want to know of every end."""
        self._listener: NotificationListener | None = None

    def subscribe(
        self, callback: Callable[[], None], topic: Topic = Topic.ANY
    ) -> Callable[[], None]:
        subscriber = self._db.subscribers.add(callback, topic=topic)
        if topic is Topic.ANY:
            self._waiting.add(subscriber)
        self._listen()
        return functools.partial(self._unsubscribe, subscriber)

    def work(self, callback: Callable[[], bool], queues: Collection[str]) -> PostgresWorkHints:
        hints = self._groups.join(callback, queues)
        self._listen()
        return hints

    def _unsubscribe(self, subscriber: Subscriber) -> None:
        self._waiting.discard(subscriber)
        self._db.subscribers.remove(subscriber)

    def _listen(self) -> None:
        if self._listener is None:
            self._listener = NotificationListener(self._db, self._groups, self._keys)
        self._listener.announce()

    def _keys(self) -> set[int]:
        """Name the locks that tell other processes what this one waits for."""
        ends = {self._db.presence.ends[1]} if self._waiting else set()
        return self._groups.keys | ends

    async def listening(self) -> None:
        """Wait until hints from other processes arrive. For tests: workers poll as well."""
        if self._listener is not None:
            await self._listener.announced.wait()

    async def close(self) -> None:
        self._db.subscribers.clear()
        if self._listener is not None:
            await self._listener.close()


class NotificationListener:
    """Keeps one connection listening, never inside a transaction, and notices when it is not."""

    def __init__(
        self, database: PostgresDatabase, groups: WorkGroups, keys: Callable[[], set[int]]
    ) -> None:
        """Start to listen. ``groups`` get the hints about new jobs; ``keys`` names the locks to
        hold meanwhile.
        """
        self._db, self._groups, self._keys = database, groups, keys
        self._link = PostgresConnection(database.server)
        self._connection: asyncpg.Connection | None = None
        self._held: set[int] = set()
        self._session = 0
        self._lost = False
        self._rung = asyncio.Event()
        self._tested = asyncio.Event()
        self._deaf_said = False
        self._reading: asyncio.TimerHandle | None = None
        self.heard: asyncio.Event = asyncio.Event()
        """Set while hints arrive."""
        self.announced: asyncio.Event = asyncio.Event()
        """Set while, besides, other processes can know what this one waits for."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    def announce(self) -> None:
        """Let other processes know what this one waits for now."""
        if not self._keys() <= self._held:
            self.announced.clear()
            if self.heard.is_set():
                self._rung.set()

    async def _run(self) -> None:
        while True:
            pause = _CHECK_EVERY
            try:
                await self._link.use(self._check, within=_CHECK_SECONDS)
                if not self.heard.is_set():
                    pause = await self._test()
                if self.heard.is_set() and self._keys() <= self._held:
                    self.announced.set()
            except StorageError as error:
                # The link paces itself while the server is away; this is for everything else.
                log.debug("Not listening: %s", error)
                self._stop_hearing()
                pause = 0.5 + chance() / 2
            await self._wait(pause)

    async def _wait(self, pause: float) -> None:
        try:
            async with asyncio.timeout(pause):
                await self._rung.wait()
        except TimeoutError:
            return
        self._rung.clear()
        if self._lost:
            self._stop_hearing()

    async def _check(self, connection: asyncpg.Connection) -> None:
        if self._connection is None or connection is not self._connection:
            self._stop_hearing()
            self._lost = False
            connection.add_termination_listener(self._on_lost)
            await connection.add_listener(self._db.channel, self._on_notify)
            # Not the number that the connection was greeted with: a pooler invents that.
            self._session = await connection.fetchval("SELECT pg_backend_pid()")
            self._connection = connection
        elif self.heard.is_set():
            # Not before: locks on the shared connection of a pool would stay there.
            await self._hold(connection, self._keys())
            self._groups.meet(await self._members(connection))
        else:
            await connection.execute("SELECT 1")

    async def _members(self, connection: asyncpg.Connection) -> dict[int, list[int]]:
        """Read which sessions hold the locks that this one holds."""
        found: dict[int, list[int]] = {}
        rows = await connection.fetch(MEMBERS, self._db.presence.schema, list(self._held))
        for key, session in rows:
            found.setdefault(key, []).append(session)
        return found

    async def _hold(self, connection: asyncpg.Connection, keys: set[int]) -> None:
        """Hold these locks and no others."""
        schema, ends = self._db.presence.ends
        more, less = keys - self._held, self._held - keys
        if more:
            await connection.execute(ACQUIRE, schema, list(more))
        if less:
            await connection.execute(RELEASE, schema, list(less))
        self._held = keys
        if ends in more:
            self._wake_waiting()  # for ends before
        if (more | less) - {ends}:
            await connection.execute(NOTIFY, self._db.channel, _MEMBERS + self._db.sender)

    def _wake_waiting(self) -> None:
        """Wake those that wait for any change, but no worker."""
        self._db.subscribers.wake({NO_QUEUE}, ())

    async def _test(self) -> float:
        """Send ourselves a hint, over another connection; then how long until the next look.

        Behind a pooler that gives connections away between statements LISTEN is accepted and
        nothing ever comes.
        """
        self._tested.clear()
        await self._db.fetch(NOTIFY, self._db.channel, self._test_text)
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
        return 0.0

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
        self._held = set()
        self._db.notify_through(None)
        self.heard.clear()
        self.announced.clear()

    def _on_lost(self, connection: asyncpg.Connection) -> None:
        if connection is self._connection:
            self._lost = True
            self._rung.set()

    def _on_notify(self, _connection: object, _pid: int, _channel: str, payload: str) -> None:
        if payload == self._test_text:
            self._tested.set()
        elif payload.startswith(_MEMBERS):
            self._read_members_soon()
        elif not payload.startswith(_TEST):
            told = decode_notification(payload)
            if told.sender == self._db.sender:
                return
            if told.jobs is None:
                self._db.subscribers.wake()
            else:
                self._wake_waiting()
                self._groups.hear(payload, told, self._session)

    def _read_members_soon(self) -> None:
        if self._reading is None:
            loop = asyncio.get_running_loop()
            self._reading = loop.call_later(_MEMBERS_PAUSE + chance(), self._read_members)

    def _read_members(self) -> None:
        self._reading = None
        self._rung.set()

    async def close(self) -> None:
        was_heard = self.heard.is_set()
        self._stop_hearing()
        loop = self._task.get_loop()
        if loop is asyncio.get_running_loop():
            self._task.cancel()
            await asyncio.wait([self._task])
            if self._reading is not None:
                self._reading.cancel()
            if was_heard and not self._groups.empty:
                await self._tell_members()
        await self._link.close()

    async def _tell_members(self) -> None:
        """Let other workers know that those of this process are gone."""
        with suppress(StorageError):  # then they notice later
            text = _MEMBERS + self._db.sender
            await self._link.fetch(NOTIFY, self._db.channel, text, within=_CHECK_SECONDS)
