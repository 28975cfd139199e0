"""Hints to other processes: few, and never in anybody's transaction.

A commit with a notification takes a lock of the whole database, so one per insert costs three
quarters of the insert rate. One every few milliseconds wakes as well.

The text of a hint is the sender, then a space and a `_Body` in JSON. Without a body it is about any
queue. An older Windlass sends a list of queues instead, and takes this body for one about any.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from typing import Protocol

import msgspec

from windlass._storage.shared.subscribers import NO_QUEUE, QueueNames
from windlass._system.seams import monotonic, new_worker_id
from windlass.errors import StorageError

__all__ = [
    "EVERY_WORKER",
    "Notification",
    "Notifier",
    "decode_notification",
    "encode_notification",
]

log = logging.getLogger("windlass")

_APART = 0.005
_AHEAD = 2
"""How many hints about further queues may go out between two regular ones."""
_LONGEST = 1_500
"""Bytes of a hint; one about more queues than that holds is about any. PostgreSQL takes 8,000."""
_SAY_AGAIN_AFTER = 60.0

EVERY_WORKER = 999
"""A number of jobs: as many or an unknown number became ready, so every worker looks."""


class Notification(msgspec.Struct, frozen=True):
    """The content of a hint."""

    sender: str
    jobs: Mapping[str, int] | None
    """How many jobs became ready, by queue; None: a change that may concern any queue."""
    full: int = 0
    """The session of the worker that passes it on, because it has no room; 0: none."""


class _Body(msgspec.Struct, frozen=True, array_like=True):
    number: int
    """Differs from hint to hint of one sender: it decides which workers look."""
    jobs: dict[str, int]
    full: int = 0


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Body | None).decode
_decode_names = msgspec.json.Decoder(list[str]).decode


def encode_notification(
    sender: str, jobs: Mapping[str, int] | None, *, number: int = 0, full: int = 0
) -> str:
    """Write what a notification says."""
    if jobs is None:
        return sender
    body = _Body(number, dict(sorted(jobs.items())), full)
    text = f"{sender} {_encode(body).decode()}"
    return text if len(text.encode()) <= _LONGEST else sender


def decode_notification(text: str) -> Notification:
    """Read a notification, also one of another version."""
    sender, _, told = text.partition(" ")
    for decode in (_jobs_in, _queues_in):
        try:
            return decode(sender, told)
        except (msgspec.MsgspecError, UnicodeEncodeError):
            continue
    return Notification(sender, None)


def _jobs_in(sender: str, told: str) -> Notification:
    body = _decode(told or "null")
    return Notification(sender, body and body.jobs, 0 if body is None else body.full)


def _queues_in(sender: str, told: str) -> Notification:
    return Notification(sender, dict.fromkeys(_decode_names(told), EVERY_WORKER))


class Send(Protocol):
    """Sends the text of a hint. ``ends``: it is only about jobs that ended."""

    def __call__(self, text: str, *, ends: bool) -> Awaitable[None]: ...


class Notifier:
    """Sends on the leading edge at once, and on the trailing edge what came in between.

    The edges are those of each queue: the first hint about one does not wait for the end of a pause
    that another began, for a few of them. One about any queue waits: every ended job sends it.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self._task: asyncio.Task[None] | None = None
        self._wanted: dict[str | None, int] = {}
        self._full = 0
        self._number = 0
        self._sent: set[str | None] = set()
        self._ahead = asyncio.Event()
        self._over = False
        self._closing = False
        self._said_at: float | None = None
        self.sender: str = new_worker_id()

    def wake(self, queues: QueueNames = None) -> None:
        """Tell others soon; None: about any queue. A mapping says how many jobs became ready."""
        wanted: Mapping[str | None, int]
        if queues is None:
            wanted = {None: 0}
        elif isinstance(queues, Mapping):
            wanted = queues
        else:
            wanted = dict.fromkeys(queues, EVERY_WORKER)
        if not wanted:
            return
        for queue, number in wanted.items():
            self._wanted[queue] = min(self._wanted.get(queue, 0) + number, EVERY_WORKER)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())
        elif queues is not None and None not in self._sent and not self._sent.issuperset(wanted):
            self._ahead.set()

    def pass_on(self, jobs: Mapping[str, int], full: int) -> None:
        """Tell others soon that the worker of session ``full`` has no room for these."""
        self._full = full
        self.wake(jobs)

    async def _run(self) -> None:
        try:
            while self._wanted:
                self._sent = set()
                self._ahead.clear()
                await self._flush(set(self._wanted))
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
                await self._flush(self._wanted.keys() - self._sent)
        finally:
            timer.cancel()
        await asyncio.sleep(end - loop.time())

    def _end_pause(self) -> None:
        self._over = True
        self._ahead.set()

    async def _flush(self, told: set[str | None]) -> None:
        jobs = {queue: self._wanted.pop(queue) for queue in told}
        self._sent |= told
        named = None if None in jobs else {q: number for q, number in jobs.items() if q is not None}
        self._number += 1
        full, self._full = self._full, 0
        text = encode_notification(self.sender, named, number=self._number, full=full)
        try:
            if full and text == self.sender:  # about any queue: it cannot say who is full
                alone = encode_notification(self.sender, {}, number=self._number, full=full)
                await self._send(alone, ends=False)
            await self._send(text, ends=told == {NO_QUEUE} and not full)
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
