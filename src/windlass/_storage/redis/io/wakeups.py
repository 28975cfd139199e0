"""Hints that something changed: at once within this storage, by a stream from elsewhere."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from redis.asyncio.connection import AbstractConnection

from windlass._storage.redis.io.connection import retry_delay
from windlass._storage.redis.io.database import RedisDatabase
from windlass._storage.redis.io.dialer import (
    CONNECTION_ERRORS,
    Argument,
    Dialer,
    disconnect,
    pack_command,
)
from windlass._storage.redis.io.errors import is_transient, translate
from windlass._storage.shared.subscribers import QueueNames

__all__ = ["RedisWakeups"]

log = logging.getLogger("windlass")

_QUEUES = b"q"
"""The field of an entry that names its queues, as ``wake`` in shared/jobs.lua writes it."""
_decode = msgspec.msgpack.Decoder(list[str]).decode

_BLOCK_MS = 5000
_GRACE = 10.0
"""Seconds beyond that until a silent server counts as gone."""
_MOST = 64
"""Entries in one look. The stream keeps at least as many, so fewer are all there were since."""
_GATHER = 0.002
"""Seconds in which further changes become one hint."""


class RedisWakeups:
    """A `Wakeups`. Scripts that change something add an entry to the stream ``wake``. This reads it
    on a separate connection, opened for the first subscriber: producers need none.
    """

    def __init__(self, database: RedisDatabase, dialer: Dialer) -> None:
        self._db, self._dialer = database, dialer
        self._stream = database.prefix + "wake"
        self._listening: asyncio.Task[None] | None = None
        self._refused = False

    def subscribe(
        self, callback: Callable[[], None], queues: Collection[str] | None = None
    ) -> Callable[[], None]:
        subscriber = self._db.subscribers.add(callback, queues)
        if self._listening is None:
            self._listening = asyncio.get_running_loop().create_task(self._listen())
        return functools.partial(self._db.subscribers.remove, subscriber)

    async def _listen(self) -> None:
        """Listen for ever; over a lost connection nothing is missed but time."""
        failures = 0
        while True:
            heard = False
            try:
                connection = await self._dialer.connect(answer=_BLOCK_MS / 1000 + _GRACE)
                try:
                    last = await self._newest(connection)
                    self._found()
                    heard, failures = True, 0
                    # For changes before the stream could be read: once.
                    self._db.wake()
                    while True:
                        last = await self._next(connection, last)
                finally:
                    await disconnect(connection)
            except CONNECTION_ERRORS as error:
                if not heard:  # else a new connection may be all it takes
                    self._lost(error)
                await asyncio.sleep(retry_delay(failures))
                failures += 1

    async def _newest(self, connection: AbstractConnection) -> bytes:
        found = await _ask(connection, "XREVRANGE", self._stream, "+", "-", "COUNT", 1)
        return bytes(found[0][0]) if found else b"0-0"

    async def _next(self, connection: AbstractConnection, last: bytes) -> bytes:
        """Wait for a change; the place of the newest."""
        read = ("XREAD", "COUNT", _MOST, "BLOCK", _BLOCK_MS, "STREAMS", self._stream, last)
        found = await _ask(connection, *read)
        if not found:
            return last
        entries = found[0][1]
        self._db.wake(_named(entries))
        await asyncio.sleep(_GATHER)
        return bytes(entries[-1][0])

    def _lost(self, error: Exception) -> None:
        if is_transient(error):
            self._dialer.note_lost(self, error)
        elif not self._refused:  # others may be served: once, until it is cured
            told = translate(error, self._dialer.place)
            log.warning("no wake-ups, so workers poll: %s", told)
            self._refused = True

    def _found(self) -> None:
        self._dialer.note_reached(self)
        self._refused = False

    async def close(self) -> None:
        self._db.subscribers.clear()
        listening, self._listening = self._listening, None
        if listening is not None and listening.get_loop() is asyncio.get_running_loop():
            listening.cancel()
            with suppress(asyncio.CancelledError):
                await listening


def _named(entries: Sequence[tuple[bytes, Sequence[bytes]]]) -> QueueNames:
    """Name the queues that these entries are about; None: they may be about any.

    An entry without names, such as one of an older Windlass, is about any.
    """
    if len(entries) >= _MOST:
        return None  # some before them may be gone from the stream
    queues: set[str] = set()
    for _, fields in entries:
        told = dict(zip(fields[::2], fields[1::2], strict=False)).get(_QUEUES)
        if told is None:
            return None
        try:
            queues.update(_decode(told))
        except msgspec.MsgspecError:
            return None
    return queues


async def _ask(connection: AbstractConnection, *command: Argument) -> Any:
    await connection.send_packed_command(pack_command(command), check_health=False)
    # The driver sends by asyncio.wait_for, which before Python 3.12 may swallow a cancellation:
    # closing would then wait for this task for ever.
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
    return await connection.read_response()
