"""A connection for threads without an event loop: the calling thread sends and waits by itself."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from redis.exceptions import ResponseError

from windlass._storage.redis.io.calls import ScriptCalls
from windlass._storage.redis.io.dialer import (
    CONNECTION_ERRORS,
    Argument,
    BlockingConnection,
    Dialer,
)
from windlass._storage.redis.io.errors import is_lost
from windlass._storage.redis.io.scripts import Script
from windlass._system.seams import monotonic

__all__ = ["RedisDirectConnection"]

_PAUSE = 5.0
"""Seconds without a further try after the server refused this connection."""


class RedisDirectConnection:
    """One connection, used by one thread at a time, and only where nothing goes wrong.

    It never waits for its turn, tries nothing again and loads no script. Its caller then uses a
    `LoopConnection`, which does all of that, and which sends calls made at the same time together.
    """

    def __init__(self, dialer: Dialer, calls: ScriptCalls) -> None:
        self._dialer, self._calls = dialer, calls
        self._turn = threading.Lock()
        self._connection: BlockingConnection | None = None
        self._not_before = 0.0
        self._closed = False

    def run(self, script: Script, arguments: Sequence[Argument]) -> Any:
        """Run a script whose only key is ``arguments[0]``, and return its answer.

        None: it was not carried out, or its answer was lost.
        """
        if self._closed or self._dialer.is_away or not self._turn.acquire(blocking=False):
            return None
        try:
            return self._run(script, arguments)
        finally:
            self._turn.release()
            self._close_if_asked()

    def _run(self, script: Script, arguments: Sequence[Argument]) -> Any:
        try:
            connection = self._reach()
            if connection is None:
                return None
            command = self._calls.command(script, arguments)
            connection.send_packed_command([command], check_health=False)
            return connection.read_response()
        except ResponseError as error:
            if is_lost(error):  # a replica by now, or no longer the owner of the keys
                self._hang_up()
            return None  # else a missing script, or an error that the other connection gets, too
        except CONNECTION_ERRORS:
            self._hang_up()
            return None
        except BaseException:
            # Raised into this thread by other code: an answer may be left unread.
            self._hang_up()
            raise

    def _reach(self) -> BlockingConnection | None:
        now = monotonic()
        if self._connection is None and now >= self._not_before:
            self._not_before = now + _PAUSE
            self._connection = self._dialer.connect_here()
            self._not_before = 0.0
        return self._connection

    def _hang_up(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(*CONNECTION_ERRORS):
                connection.disconnect()

    def close(self) -> None:
        """Hang up; while a thread is in a call, that thread does it. Safe to repeat."""
        self._closed = True
        self._close_if_asked()

    def _close_if_asked(self) -> None:
        if self._closed and self._turn.acquire(blocking=False):
            self._hang_up()
            self._turn.release()
