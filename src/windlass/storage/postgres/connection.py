"""Connections to one server: opened when needed, replaced when lost, never shared by statements."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import weakref
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, TypeVar

import asyncpg

from windlass.errors import StorageError
from windlass.seams import chance, monotonic
from windlass.storage.postgres.translate import Cause, cause_of, translate
from windlass.storage.postgres.url import Address, Host

__all__ = ["STATEMENT_SECONDS", "Link", "Row", "Server"]

log = logging.getLogger("windlass")
T = TypeVar("T")
Row = Any
"""What asyncpg returns: a tuple that also knows its columns by name."""

PATIENCE = 5.0
"""How long one operation goes on trying. Whoever works for ever asks again by himself."""
STATEMENT_SECONDS = 60.0
"""A statement that takes longer than this is not slow: the server, or the way to it, hangs."""
_CONNECT_SECONDS = 3.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
"""Between two tries to connect. Short at most: work goes on within two seconds of the server."""
_CONFLICTS = 10
_FINAL_STATES = {"28P01", "28000", "3D000", "42501", "0A000", "22023", "42704"}
"""Answers to a login that stay the same until a person changes something."""


class Server:
    """How to reach the database, and what was learnt about the way there.

    Shared by all links of a storage, also by the heartbeat's on its own thread.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        self.pooled = address.pooled
        self._favourite = 0
        self._down_since: float | None = None
        self._reached = False

    async def connect(self) -> asyncpg.Connection:
        """A new connection; of several hosts, to one that takes writes."""
        if len(self.address.hosts) < 2:
            return await self._connect(None)
        failures: list[Exception] = []
        hosts = self.address.hosts
        for step in range(len(hosts)):
            index = (self._favourite + step) % len(hosts)
            try:
                connection = await self._connect(hosts[index])
            except Exception as error:  # noqa: BLE001 -- the next host may do better
                failures.append(error)
            else:
                self._favourite = index
                return connection
        # A standby says least about what is wrong: its primary does.
        failures.sort(key=lambda error: cause_of(error) is Cause.READ_ONLY)
        raise failures[0]

    async def _connect(self, host: Host | None) -> asyncpg.Connection:
        settings = {} if self.address.named else {"application_name": "windlass"}
        if self.pooled is False:
            # A pooler refuses settings that it does not know, so they wait until it is certain
            # that there is none. Limits are counted under READ COMMITTED, whatever the role says.
            settings |= {"default_transaction_isolation": "read committed", "jit": "off"}
        choice: dict[str, Any] = {}
        if host is not None:
            choice = {"host": host.name, "port": host.port, "target_session_attrs": "read-write"}
        connection = await asyncpg.connect(
            self.address.dsn,
            timeout=self.address.connect_seconds or _CONNECT_SECONDS,
            statement_cache_size=0 if self.pooled is not False else 300,
            max_cached_statement_lifetime=0,
            max_cacheable_statement_size=0,
            server_settings=settings,
            **choice,
        )
        _keep_watch(connection)
        return connection

    def suspects_pooler(self, error: BaseException) -> bool:
        """A pooler that does not know one of our settings says so at login; it gets none then."""
        refused = getattr(error, "sqlstate", None) == "08P01"
        if not refused or self.pooled is not False:
            return False
        self.pooled = True
        return True

    def note_lost(self, error: BaseException) -> None:
        """Said once per outage, however many links find out. Before the first answer it is for
        whoever opens the storage to say.
        """
        if self._reached and self._down_since is None:
            self._down_since = monotonic()
            log.warning("%s", translate(error, self.address.shown))

    def note_reached(self) -> None:
        self._reached = True
        since, self._down_since = self._down_since, None
        if since is not None:
            log.warning(
                "PostgreSQL at %s is back after %.1f s.", self.address.shown, monotonic() - since
            )


def _socket_of(connection: asyncpg.Connection) -> socket.socket | None:
    transport = getattr(connection, "_transport", None)
    found: socket.socket | None = transport and transport.get_extra_info("socket")
    return found


def _keep_watch(connection: asyncpg.Connection) -> None:
    """Let the kernel notice a dead peer: a server that lost its power says nothing any more."""
    found = _socket_of(connection)
    if found is None or found.family not in (socket.AF_INET, socket.AF_INET6):
        return
    options = [("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3)]
    with suppress(OSError):  # a kernel that does not know one of them
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in [*options, ("TCP_USER_TIMEOUT", 15_000)]:
            if hasattr(socket, name):
                found.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class Link:
    """One connection for one purpose. Statements follow each other; each may be tried again.

    Cancelling a caller never cancels its statement: the connection goes on with it, and is in
    order for the next one.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._connection: asyncpg.Connection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failure: Exception | None = None
        self._pause = 0.0
        self._not_before = 0.0
        self._closed = False
        _links.add(self)

    @property
    def where(self) -> str:
        return self._server.address.shown

    async def fetch(
        self, sql: str, *args: object, again: bool = True, within: float = STATEMENT_SECONDS
    ) -> list[Row]:
        """The rows of one statement, which is its own transaction.

        ``again``: it may be repeated when its answer was lost.
        """

        async def run(connection: asyncpg.Connection) -> list[Row]:
            rows: list[Row] = await connection.fetch(sql, *args)
            return rows

        return await self.use(run, again=again, within=within)

    async def use(
        self,
        op: Callable[[asyncpg.Connection], Awaitable[T]],
        *,
        again: bool = True,
        within: float = STATEMENT_SECONDS,
    ) -> T:
        """Run ``op`` alone on the connection."""
        if self._closed:
            raise StorageError(f"PostgreSQL at {self.where} was closed; open the storage again.")
        deadline = monotonic() + PATIENCE
        self._loop = asyncio.get_running_loop()
        task = self._loop.create_task(self._run(op, again, within, deadline))
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return await asyncio.shield(task)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # whoever asked may be gone; then nobody wants to know

    async def _run(
        self,
        op: Callable[[asyncpg.Connection], Awaitable[T]],
        again: bool,  # noqa: FBT001 -- internal, passed through
        within: float,
        deadline: float,
    ) -> T:
        conflicts = 0
        async with self._lock:
            while True:
                connection = await self._reach(deadline)
                try:
                    async with asyncio.timeout(within):
                        return await op(connection)
                except Exception as error:
                    cause = cause_of(error)
                    if cause is Cause.CONFLICT and conflicts < _CONFLICTS:
                        conflicts += 1
                        await asyncio.sleep(0.005 * 2**conflicts * chance())
                        continue
                    if cause in (Cause.FINAL, Cause.CONFLICT):
                        raise translate(error, self.where) from error
                    self._drop(error)
                    repeatable = again or cause is not Cause.LOST
                    if not repeatable or monotonic() >= deadline:
                        raise translate(error, self.where) from error
                except BaseException:
                    # Only a loop that ends cancels this; what the connection is doing is unknown.
                    self._drop(None)
                    raise

    async def _reach(self, deadline: float) -> asyncpg.Connection:
        while True:
            connection = self._connection
            if connection is not None and not connection.is_closed():
                return connection
            await self._pause_before_connecting(deadline)
            try:
                connection = await self._server.connect()
            except Exception as error:
                self._failure = error
                self._pause = min(max(self._pause * 2, _FIRST_PAUSE), _LONGEST_PAUSE)
                self._not_before = monotonic() + self._pause * (0.5 + chance() / 2)
                if self._server.suspects_pooler(error):
                    continue
                final = getattr(error, "sqlstate", None) in _FINAL_STATES
                if final or cause_of(error) is Cause.FINAL:
                    raise translate(error, self.where) from error
                self._server.note_lost(error)
            else:
                self._connection, self._failure, self._pause = connection, None, 0.0
                self._server.note_reached()
                return connection

    async def _pause_before_connecting(self, deadline: float) -> None:
        pause = self._not_before - monotonic()
        if pause <= 0:
            return
        if monotonic() + pause > deadline and self._failure is not None:
            raise translate(self._failure, self.where) from self._failure
        await asyncio.sleep(pause)

    def _drop(self, error: BaseException | None) -> None:
        connection, self._connection = self._connection, None
        if error is not None:
            if cause_of(error) is Cause.POOLED:
                self._server.pooled = True
            else:
                self._server.note_lost(error)
        if connection is not None:
            connection.terminate()

    async def hang_up(self) -> None:
        """Give the connection back; the next statement opens a new one."""
        async with self._lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                try:
                    await connection.close(timeout=2)
                except Exception:  # noqa: BLE001 -- it is as closed as it can be
                    connection.terminate()

    async def abandon(self) -> None:
        """Close without finishing what is under way: for what may take minutes and can be left."""
        if self._loop is asyncio.get_running_loop():
            for task in tuple(self._tasks):
                task.cancel()
        await self.close()

    async def close(self) -> None:
        """Finish what is under way, then hang up. Safe to repeat, on any loop, in any process."""
        self._closed = True
        if self._loop is asyncio.get_running_loop():
            await self.hang_up()
            return
        # Never used, or its loop has ended: nobody will finish what was under way.
        connection, self._connection = self._connection, None
        _sever(connection)

    def leave_to_parent(self) -> None:
        """In a forked child: the connection is the parent's."""
        connection, self._connection = self._connection, None
        self._closed, self._loop = True, None
        if connection is not None:
            _inherited.append(connection)
            found = _socket_of(connection)
            if found is not None and found.fileno() >= 0:
                # Whatever is still written to this number, a goodbye above all, reaches nobody;
                # and the server sees the parent's end when the parent ends.
                nowhere = os.open(os.devnull, os.O_RDWR)
                os.dup2(nowhere, found.fileno(), inheritable=False)
                os.close(nowhere)


def _sever(connection: asyncpg.Connection | None) -> None:
    """Hang up without the loop the connection lived on: that one has ended."""
    found = connection and _socket_of(connection)
    if found is not None and found.fileno() >= 0:
        with suppress(OSError), socket.socket(fileno=os.dup(found.fileno())) as copy:
            copy.shutdown(socket.SHUT_RDWR)


_links: weakref.WeakSet[Link] = weakref.WeakSet()
_inherited: list[asyncpg.Connection] = []
"""Connections of a parent process; kept, their destructors never run."""


def _leave_to_parent() -> None:
    for link in list(_links):
        link.leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_to_parent)
