"""Cancel requests that reach a run between two heartbeats."""

from __future__ import annotations

import asyncio
import logging

from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.wakeups import Topic
from windlass._worker.periodic import rung_at
from windlass._worker.registration import Registration
from windlass._worker.run.execution import StopCause
from windlass._worker.run.runner import Runner
from windlass.errors import StorageError

__all__ = ["CancelPoller"]

log = logging.getLogger("windlass")

_PAUSE = 0.1
"""Hints come with every change of a busy store; looking ten times a second is enough."""


class CancelPoller:
    """Looks for cancel requests soon after something in the store has changed."""

    def __init__(self, storage: Storage, runner: Runner, identity: Registration) -> None:
        """Make it; nothing is read before the first hint."""
        self._storage = storage
        self._runner = runner
        self._identity = identity
        self._changed = asyncio.Event()

    async def run(self, stop: asyncio.Event) -> None:
        """Look after each hint, while jobs run, until ``stop``: a cancel may be among what changed,
        and need not wait for the next heartbeat.
        """
        undo = self._storage.wakeups.subscribe(self._changed.set, Topic.CANCEL)
        try:
            with rung_at(stop, self._changed):
                while not stop.is_set():
                    await self._changed.wait()
                    if self._runner.active:
                        await asyncio.sleep(_PAUSE)
                    self._changed.clear()  # first: what changes during the look asks for another
                    if self._runner.active:
                        await self._look()
        finally:
            undo()

    async def _look(self) -> None:
        try:
            for claim in await self._storage.workers.cancel_requests(self._identity.id):
                self._runner.stop(claim, StopCause.CANCEL)
        except StorageError as error:
            log.debug("cannot read cancel requests: %s", error)
