"""Cancel requests that reach a run between two heartbeats."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from windlass._storage.protocol.workers import WorkerStore
from windlass._worker.run.runner import Runner, StopCause
from windlass.errors import StorageError

__all__ = ["CancelPoller"]

log = logging.getLogger("windlass")

_PAUSE = 0.1
"""Hints come with every change of a busy store; looking ten times a second is enough."""


class CancelPoller:
    """Looks for cancel requests soon after something in the store has changed."""

    def __init__(self, store: WorkerStore, runner: Runner, worker: Callable[[], str]) -> None:
        """``worker`` gives the current identity. Nothing is looked at before the first hint."""
        self._store = store
        self._runner = runner
        self._worker = worker
        self._changed = False
        self.task: asyncio.Task[None] | None = None
        """The look under way."""

    def hint(self) -> None:
        """Look soon: a cancel may be among what changed, and need not wait for the next beat."""
        self._changed = True
        if self._runner.active and self.task is None:
            self.task = asyncio.get_running_loop().create_task(self._soon())

    async def _soon(self) -> None:
        try:
            while self._changed and self._runner.active:
                await asyncio.sleep(_PAUSE)
                self._changed = False  # before the look: what changes during it asks for another
                for claim in await self._store.cancel_requests(self._worker()):
                    self._runner.stop(claim, StopCause.CANCEL)
        except StorageError as error:
            log.debug("cannot read cancel requests: %s", error)
        finally:
            self.task = None
