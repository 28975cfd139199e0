"""Hints to other processes: few, and never in anybody's transaction.

A commit with a notification takes a lock of the whole database, so one per insert costs three
quarters of the insert rate. One every few milliseconds wakes as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from windlass.errors import StorageError
from windlass.seams import monotonic, new_worker_id

__all__ = ["Notifier"]

log = logging.getLogger("windlass")

_APART = 0.005
_SAY_AGAIN_AFTER = 60.0


class Notifier:
    """Sends on the leading edge at once, and on the trailing edge what came in between."""

    def __init__(self, send: Callable[[str], Awaitable[None]]) -> None:
        self._send = send
        self._task: asyncio.Task[None] | None = None
        self._wanted = False
        self._closing = False
        self._said_at: float | None = None
        self.sender = new_worker_id()

    def wake(self) -> None:
        self._wanted = True
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        try:
            while self._wanted:
                self._wanted = False
                await self._try()
                if not self._closing:
                    await asyncio.sleep(_APART)
        finally:
            self._task = None

    async def _try(self) -> None:
        try:
            await self._send(self.sender)
        except StorageError as error:
            # The work is stored, and everybody polls.
            if self._said_at is None or monotonic() - self._said_at > _SAY_AGAIN_AFTER:
                self._said_at = monotonic()
                log.warning("Workers elsewhere notice new jobs by polling only: %s", error)

    async def close(self) -> None:
        """Let the last hint out."""
        self._closing = True
        task = self._task
        if task is not None and task.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([task])
