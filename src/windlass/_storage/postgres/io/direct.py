"""A connection for threads without an event loop: the calling thread runs its loop meanwhile."""

from __future__ import annotations

import asyncio
import threading

import asyncpg

from windlass._storage.postgres.io.connection import Row, leave_to_parent
from windlass._storage.postgres.io.errors import StatementTimeout, translate
from windlass._storage.postgres.io.server import PostgresServer
from windlass._storage.shared.reader_thread import run_on_reader_thread
from windlass._system.forks import keep_open, renew_in_child
from windlass._system.seams import monotonic

__all__ = ["PostgresDirectConnection"]

_PAUSE = 5.0
"""Seconds without a further try after the server refused this connection."""
_CLOSE_SECONDS = 2.0


class PostgresDirectConnection:
    """One connection, used by one thread at a time, and only where nothing goes wrong.

    It never waits for its turn and never tries again. Its caller then uses a `PostgresConnection`,
    which does both, and which sends statements that are made at the same time together.
    """

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._turn = threading.Lock()
        self._runner: asyncio.Runner | None = None
        self._connection: asyncpg.Connection | None = None
        self._not_before = 0.0
        self._closed = False
        renew_in_child(self)

    def fetch(self, sql: str, *args: object, within: float) -> list[Row] | None:
        """Return the rows of one statement, which is its own transaction.

        None: it was not carried out, or its answer was lost. StorageUnavailable after ``within``
        seconds without an answer.
        """
        if self._closed or self._server.is_away or not self._turn.acquire(blocking=False):
            return None
        try:
            return self._fetch(sql, args, within)
        finally:
            self._turn.release()

    def _fetch(self, sql: str, args: tuple[object, ...], within: float) -> list[Row] | None:
        began = monotonic()
        try:
            connection = self._reach(began)
            if connection is None or self._runner is None:
                return None
            work = connection.fetch(sql, *args, timeout=within)
            rows: list[Row] = self._runner.get_loop().run_until_complete(work)
        except Exception as error:
            self._hang_up()
            if isinstance(error, TimeoutError) and monotonic() - began >= within:
                late = StatementTimeout(within)
                raise translate(late, self._server.address.shown) from error
            return None  # said by the other connection, if it is there, too
        except BaseException:
            # Raised into this thread by other code: the state of the connection is unknown.
            self._hang_up()
            raise
        return rows

    def _reach(self, now: float) -> asyncpg.Connection | None:
        if self._connection is None and not self._closed and now >= self._not_before:
            self._not_before = now + _PAUSE
            self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
            connecting = self._server.connect()
            self._connection = self._runner.get_loop().run_until_complete(connecting)
            self._not_before = 0.0
        return self._connection

    def _hang_up(self) -> None:
        """Close the connection and its loop. A statement under way is cancelled on the server."""
        connection, self._connection = self._connection, None
        runner, self._runner = self._runner, None
        if runner is None:
            return
        try:
            if connection is not None:
                runner.get_loop().run_until_complete(connection.close(timeout=_CLOSE_SECONDS))
        except Exception:  # noqa: BLE001 -- it is as closed as it can be
            if connection is not None:
                connection.terminate()
        finally:
            runner.close()

    async def close(self) -> None:
        """Let the call under way finish, then hang up. Safe to repeat, on any loop."""
        self._closed = True
        if self._runner is not None or self._turn.locked():
            await run_on_reader_thread(self._close_in_turn)  # the loop of this thread is running

    def _close_in_turn(self) -> None:
        with self._turn:
            self._hang_up()

    def renew(self) -> None:
        """Leave the connection to the parent, in a forked child."""
        connection, self._connection = self._connection, None
        runner, self._runner = self._runner, None
        self._turn, self._closed = threading.Lock(), True
        if runner is not None:
            keep_open(runner)
        if connection is not None:
            leave_to_parent(connection)
