"""The identity of this worker in the store. A worker that was declared dead continues under a new
id.
"""

from __future__ import annotations

import asyncio
import os
import platform
from collections.abc import Mapping
from contextlib import suppress

from windlass._settings.settings import Settings, WorkerSettings
from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.workers import Duty, WorkerStart
from windlass._system.seams import Seams
from windlass._tasks.task import TaskRegistry
from windlass._version import __version__
from windlass.errors import DefinitionError

__all__ = ["Registration"]


class Registration:
    """The worker's current id, and how it came to be registered."""

    def __init__(
        self,
        storage: Storage,
        settings: Settings,
        worker: WorkerSettings,
        seams: Seams,
        tasks: TaskRegistry,
    ) -> None:
        """Start without an identity: call `register`."""
        self._tasks = tasks
        self._storage = storage
        self._settings = settings
        self._worker = worker
        self._seams = seams
        self.id: str = ""
        self.lost: asyncio.Event = asyncio.Event()
        """Set by those who learn that the store takes the current id for dead."""
        self.signatures: Mapping[str, str] = {}
        """Which arguments the tasks of this worker take, as it has registered them."""

    async def register(self, duty: Duty = Duty.WORK) -> None:
        """Take a fresh id and make its row; a former id's lock is let go. Nothing is claimed and no
        beat is sent under the new id before it has its ``duty``.
        """
        self.signatures = _fingerprints(self._tasks)
        former, fresh = self.id, self._seams.new_worker_id()
        boot_id, device, inode = self._storage.hold_worker_lock(fresh)
        try:
            await self._storage.workers.register(
                WorkerStart(
                    id=fresh,
                    host=platform.node(),
                    pid=os.getpid(),
                    version=__version__,
                    queues=self._worker.served,
                    slots=self._worker.total_slots,
                    lease=self._settings.lease,
                    boot_id=boot_id,
                    lock_device=device,
                    lock_inode=inode,
                    tasks=self._tasks.names_and_aliases,
                    clock=self._seams.wall(),
                    signatures=self.signatures,
                    pools=self._worker.queues or {},
                )
            )
            if duty is not Duty.WORK:
                await self._storage.workers.assign([fresh], duty)
        except BaseException:
            self._storage.release_worker_lock(fresh)
            raise
        self.id = fresh
        self.lost.clear()
        if former:
            self._storage.release_worker_lock(former)

    def let_go(self) -> None:
        """Drop the lock of the current id, after its row has ended."""
        if self.id:
            self._storage.release_worker_lock(self.id)


def _fingerprints(tasks: TaskRegistry) -> dict[str, str]:
    """Return which arguments the tasks take, by name, but for those whose annotations are wrong."""
    made: dict[str, str] = {}
    for task in tasks:
        with suppress(DefinitionError):
            made |= dict.fromkeys((task.name, *task.settings.aliases), task.codec.fingerprint())
    return made
