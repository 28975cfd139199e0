"""Hints to other processes: few, and never in anybody's transaction.

A commit with a notification takes a lock of the whole database, so one per insert costs three
quarters of the insert rate. One every few milliseconds wakes as well.

The text of a hint is the sender, then a space and the queues it is about as a list in JSON. Without
that list it is about any queue: so it is in the hints of an older Windlass, which in turn looks at
the sender only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import msgspec

from windlass._storage.shared.subscribers import QueueNames
from windlass._system.seams import monotonic, new_worker_id
from windlass.errors import StorageError

__all__ = ["Notifier", "decode_notification", "encode_notification"]

log = logging.getLogger("windlass")

_APART = 0.005
_AHEAD = 2
"""How many hints about further queues may go out between two regular ones."""
_LONGEST = 1_000
"""Bytes of a hint; one about more queues than that holds is about any. PostgreSQL takes 8,000."""
_SAY_AGAIN_AFTER = 60.0

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[str]).decode


def encode_notification(sender: str, queues: QueueNames) -> str:
    """Write what a notification says."""
    if queues is None:
        return sender
    text = f"{sender} {_encode(sorted(queues)).decode()}"
    return text if len(text.encode()) <= _LONGEST else sender


def decode_notification(text: str) -> tuple[str, QueueNames]:
    """Read the sender and the queues of a notification; None: any."""
    sender, _, told = text.partition(" ")
    try:
        return sender, _decode(told) if told else None
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return sender, None


class Notifier:
    """Sends on the leading edge at once, and on the trailing edge what came in between.

    The edges are those of each queue: the first hint about one does not wait for the end of a pause
    that another began, for a few of them. One about any queue waits: every ended job sends it.
    """

    def __init__(self, send: Callable[[str], Awaitable[None]]) -> None:
        self._send = send
        self._task: asyncio.Task[None] | None = None
        self._wanted: set[str | None] = set()
        self._sent: set[str | None] = set()
        self._ahead = asyncio.Event()
        self._over = False
        self._closing = False
        self._said_at: float | None = None
        self.sender: str = new_worker_id()

    def wake(self, queues: QueueNames = None) -> None:
        """Tell others soon; None: about any queue."""
        wanted = (None,) if queues is None else queues
        if not wanted:
            return
        self._wanted.update(wanted)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        elif queues is not None and None not in self._sent and not self._sent.issuperset(wanted):
            self._ahead.set()

    async def _run(self) -> None:
        try:
            while self._wanted:
                self._sent = set()
                self._ahead.clear()
                await self._flush(self._wanted)
                await self._pause()
        finally:
            self._task = None

    async def _pause(self) -> None:
        """Let some time pass; what was not said at its beginning is said ahead of its end."""
        loop = asyncio.get_running_loop()
        end = loop.time() + _APART
        self._over = False
        timer = loop.call_at(end, self._end_pause)
        try:
            for _ in range(_AHEAD):
                await self._ahead.wait()
                if self._over or self._closing:
                    return
                self._ahead.clear()
                await self._flush(self._wanted - self._sent)
        finally:
            timer.cancel()
        await asyncio.sleep(end - loop.time())

    def _end_pause(self) -> None:
        self._over = True
        self._ahead.set()

    async def _flush(self, told: set[str | None]) -> None:
        self._wanted = self._wanted - told
        self._sent |= told
        named = None if None in told else [queue for queue in told if queue is not None]
        try:
            await self._send(encode_notification(self.sender, named))
        except StorageError as error:
            # The work is stored, and everybody polls.
            if self._said_at is None or monotonic() - self._said_at > _SAY_AGAIN_AFTER:
                self._said_at = monotonic()
                log.warning("Workers elsewhere notice new jobs by polling only: %s", error)

    async def close(self) -> None:
        """Let the last hint out."""
        self._closing = True
        self._ahead.set()
        task = self._task
        if task is not None and task.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([task])
