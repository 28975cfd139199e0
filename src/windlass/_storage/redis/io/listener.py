"""Connections on which commands wait at the server for a change."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from redis.asyncio.connection import AbstractConnection

from windlass._storage.redis.io.connection import retry_delay
from windlass._storage.redis.io.dialer import (
    CONNECTION_ERRORS,
    Argument,
    Dialer,
    disconnect,
    pack_command,
)
from windlass._storage.redis.io.errors import is_transient, translate

__all__ = ["BLOCK_SECONDS", "Ask", "Listener"]

log = logging.getLogger("windlass")

BLOCK_SECONDS = 5
"""How long one command waits at the server."""
_GRACE = 10.0
"""Seconds beyond that until a silent server counts as gone."""

Ask = Callable[..., Awaitable[Any]]
"""Sends a command and returns its answer."""


class Listener:
    """Runs commands that wait at the server, on a separate connection, again after a failure."""

    def __init__(self, dialer: Dialer, talk: Callable[[Ask], Awaitable[None]]) -> None:
        """``talk`` never returns. It starts again on each new connection."""
        self._dialer, self._talk = dialer, talk
        self._failures = 0
        self._refused = False
        self.reached: bool = False
        """Whether the server has answered on the present connection."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while True:
            try:
                connection = await self._dialer.connect(answer=BLOCK_SECONDS + _GRACE)
                try:
                    await self._talk(functools.partial(self._ask, connection))
                finally:
                    await disconnect(connection)
            except CONNECTION_ERRORS as error:
                if not self.reached:  # else a new connection may be all it takes
                    self._lost(error)
                self.reached = False
                await asyncio.sleep(retry_delay(self._failures))
                self._failures += 1

    async def _ask(self, connection: AbstractConnection, *command: Argument) -> Any:
        await connection.send_packed_command(pack_command(command), check_health=False)
        # The driver sends by asyncio.wait_for, which before Python 3.12 may swallow a cancellation:
        # `close` would then wait for this task for ever.
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError
        answer = await connection.read_response()
        if not self.reached:
            self.reached, self._failures, self._refused = True, 0, False
            self._dialer.note_reached(self)
        return answer

    def _lost(self, error: Exception) -> None:
        if is_transient(error):
            self._dialer.note_lost(self, error)
        elif not self._refused:  # other connections may be served: log it once
            told = translate(error, self._dialer.place)
            log.warning("no wake-ups, so workers poll: %s", told)
            self._refused = True

    @property
    def ended(self) -> bool:
        """Whether its task has ended."""
        return self._task.done()

    def stop(self) -> None:
        """End its task; `close` waits for that."""
        with suppress(RuntimeError):  # its loop has ended, and the task with it
            self._task.cancel()

    async def close(self) -> None:
        """End its task. Wait for that, if its loop is the running one."""
        self.stop()
        if self._task.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([self._task])
