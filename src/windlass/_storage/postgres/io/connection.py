"""Connections to one server: opened when needed, replaced when lost, never shared by statements."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

import asyncpg
import msgspec

from windlass._storage.postgres.io.errors import (
    ErrorMeaning,
    StatementTimeout,
    error_meaning_of,
    translate,
)
from windlass._storage.postgres.io.server import PostgresServer, socket_of
from windlass._system.forks import keep_open, renew_in_child
from windlass._system.seams import chance, monotonic
from windlass.errors import StorageError

__all__ = [
    "RETRY_SECONDS",
    "STATEMENT_SECONDS",
    "PostgresConnection",
    "PostgresServer",
    "Row",
    "leave_to_parent",
]

T = TypeVar("T")
Row = Any
"""A row of asyncpg: a tuple that also knows its columns by name."""

RETRY_SECONDS = 5.0
"""How long one operation is retried. Loops that run for ever retry by themselves."""
STATEMENT_SECONDS = 60.0
"""A statement that takes longer than this is not slow: the server, or the way to it, hangs."""
_CANCEL_SECONDS = 3.0
_LEAST_SECONDS = 1.0
"""The least time of a statement that is sent late: with less it could not succeed."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
"""Between two tries to connect. Short: work continues within two seconds of the server's return."""
_CONFLICTS = 10
_FINAL_STATES = {"28P01", "28000", "3D000", "42501", "0A000", "22023", "42704"}
"""Answers to a login that stay the same until a person changes something."""


class _CallTimeouts(msgspec.Struct, frozen=True):
    """How long one call may take."""

    began: float
    within: float
    """Its statement, once it is sent."""
    at_most: float | None
    """All of it, where the caller says so."""

    @property
    def deadline(self) -> float:
        """When it is tried no more."""
        return self.began + RETRY_SECONDS

    def turn(self) -> float | None:
        """Seconds to wait for one's turn."""
        return None if self.at_most is None else max(self.at_most + self.began - monotonic(), 0.0)

    def statement(self) -> float:
        """Seconds until the statement is cancelled."""
        left = self.turn()
        return self.within if left is None else min(self.within, max(left, _LEAST_SECONDS))


class PostgresConnection:
    """One connection for one purpose. Statements follow each other; each may be tried again.

    Cancelling a caller never cancels its statement: the connection finishes it, and is in order for
    the next one.
    """

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._connection: asyncpg.Connection | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()
        self._users = 0
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failure: Exception | None = None
        self._pause = 0.0
        self._not_before = 0.0
        self._closed = False
        renew_in_child(self)

    @property
    def where(self) -> str:
        return self._server.address.shown

    async def fetch(
        self,
        sql: str,
        *args: object,
        again: bool = True,
        within: float = STATEMENT_SECONDS,
        at_most: float | None = None,
    ) -> list[Row]:
        """Return the rows of one statement, which is its own transaction.

        ``again``: it may be repeated when its answer was lost. The others: see `use`.
        """

        async def run(connection: asyncpg.Connection) -> list[Row]:
            rows: list[Row] = await connection.fetch(sql, *args)
            return rows

        return await self.use(run, again=again, within=within, at_most=at_most)

    async def fetch_told(
        self, sql: str, *args: object, at_most: float | None = None
    ) -> tuple[list[Row], bool]:
        """Return the same, and whether an earlier try may have been carried out: its answer was
        lost.
        """
        unsure = False

        async def run(connection: asyncpg.Connection) -> tuple[list[Row], bool]:
            nonlocal unsure
            try:
                return await connection.fetch(sql, *args), unsure
            except BaseException as error:
                refused = (
                    isinstance(error, Exception)
                    and error_meaning_of(error) is not ErrorMeaning.LOST
                )
                unsure = unsure or not refused
                raise

        return await self.use(run, at_most=at_most)

    async def use(
        self,
        op: Callable[[asyncpg.Connection], Awaitable[T]],
        *,
        again: bool = True,
        within: float = STATEMENT_SECONDS,
        at_most: float | None = None,
    ) -> T:
        """Run ``op`` alone on the connection, and cancel it if it takes longer than ``within``.

        ``at_most``: how long the caller waits in all, for its turn, too.
        """
        if self._closed:
            raise StorageError(f"PostgreSQL at {self.where} was closed; open the storage again.")
        limits = _CallTimeouts(monotonic(), within, at_most)
        self._loop = asyncio.get_running_loop()
        if asyncio.current_task() in self._tasks:  # started by `start`, so no caller cancels it
            return await self._in_turn(op, limits, again=again)
        return await asyncio.shield(self._spawn(self._in_turn(op, limits, again=again)))

    def start(self, work: Coroutine[Any, Any, T]) -> asyncio.Future[T]:
        """Run ``work``, which uses this connection, to its end, also if its caller is cancelled."""
        return asyncio.shield(self._spawn(work))

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # the caller may be gone; then the answer is dropped

    async def _in_turn(
        self,
        op: Callable[[asyncpg.Connection], Awaitable[T]],
        limits: _CallTimeouts,
        *,
        again: bool,
    ) -> T:
        self._users += 1
        try:
            if limits.at_most is None or self._users == 1:  # alone, one need not wait
                await self._lock.acquire()
            else:
                try:
                    async with asyncio.timeout(limits.turn()):
                        await self._lock.acquire()
                except TimeoutError:
                    raise translate(StatementTimeout(limits.at_most), self.where) from None
            try:
                return await self._run(op, limits, again=again)
            finally:
                self._lock.release()
        finally:
            self._users -= 1

    async def _run(
        self,
        op: Callable[[asyncpg.Connection], Awaitable[T]],
        limits: _CallTimeouts,
        *,
        again: bool,
    ) -> T:
        conflicts = 0
        while True:
            connection = await self._reach(limits.deadline)
            try:
                return await self._within(limits.statement(), op, connection)
            except Exception as error:
                cause = error_meaning_of(error)
                if cause is ErrorMeaning.CONFLICT and conflicts < _CONFLICTS:
                    conflicts += 1
                    await asyncio.sleep(0.005 * 2**conflicts * chance())
                    continue
                if cause in (ErrorMeaning.FINAL, ErrorMeaning.CONFLICT):
                    raise translate(error, self.where) from error
                self._drop(error)
                repeatable = again or cause is not ErrorMeaning.LOST
                if not repeatable or monotonic() >= limits.deadline:
                    raise translate(error, self.where) from error
            except BaseException:
                # Only a loop that ends cancels this; what the connection is doing is unknown.
                self._drop(None)
                raise

    async def _within(
        self,
        seconds: float,
        op: Callable[[asyncpg.Connection], Awaitable[T]],
        connection: asyncpg.Connection,
    ) -> T:
        """Run ``op``; after ``seconds`` cancel what it waits for, on the server, too."""
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                return await op(connection)
        except TimeoutError:
            if not limit.expired():
                raise
            # A server process that waits for a standby does not notice that its client is gone.
            self._connection = None
            self._spawn(_cancelled(connection))
            raise StatementTimeout(seconds) from None

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
                if final or error_meaning_of(error) is ErrorMeaning.FINAL:
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
            if error_meaning_of(error) is ErrorMeaning.POOLED:
                self._server.note_pooled(pooled=True)
            else:
                self._server.note_lost(error)
        if connection is not None:
            connection.terminate()

    async def finish(self) -> None:
        """Wait for what is under way."""
        while self._tasks and self._loop is asyncio.get_running_loop():
            await asyncio.wait(self._tasks)

    async def hang_up(self) -> None:
        """Give the connection back; the next statement opens a new one."""
        self._users += 1
        try:
            async with self._lock:
                connection, self._connection = self._connection, None
                if connection is not None:
                    try:
                        await connection.close(timeout=2)
                    except Exception:  # noqa: BLE001 -- it is as closed as it can be
                        connection.terminate()
        finally:
            self._users -= 1

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
        # Never used, or its loop has ended: no task will finish its statement.
        connection, self._connection = self._connection, None
        _sever(connection)

    def renew(self) -> None:
        """Leave the connection to the parent, in a forked child."""
        connection, self._connection = self._connection, None
        self._closed, self._loop = True, None
        if connection is not None:
            leave_to_parent(connection)


def leave_to_parent(connection: asyncpg.Connection) -> None:
    """Neither use nor end a connection that the parent of this forked child has opened."""
    keep_open(connection)
    found = socket_of(connection)
    if found is not None and found.fileno() >= 0:
        # Bytes that are still written to this descriptor, a goodbye above all, reach no server; and
        # the server sees the parent's end when the parent ends.
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, found.fileno(), inheritable=False)
        os.close(nowhere)


async def _cancelled(connection: asyncpg.Connection) -> None:
    """Close a connection whose statement was cancelled, once the server has heard of it."""
    try:
        await connection.close(timeout=_CANCEL_SECONDS)
    except Exception:  # noqa: BLE001 -- the server does not answer at all
        connection.terminate()


def _sever(connection: asyncpg.Connection | None) -> None:
    """Hang up without the loop the connection lived on: that one has ended."""
    found = connection and socket_of(connection)
    if found is not None and found.fileno() >= 0:
        with suppress(OSError), socket.socket(fileno=os.dup(found.fileno())) as copy:
            copy.shutdown(socket.SHUT_RDWR)
