"""The place of a database: its file with locks and companion files, or memory alone."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Protocol

import apsw

from windlass._storage.protocol.workers import WorkerStart
from windlass._storage.shared.worker_locks import WorkerLocks
from windlass._storage.sqlite.io.checkpoints import checkpoint_and_shrink
from windlass._storage.sqlite.io.connection import (
    ConnectionSource,
    SqliteDurability,
    connect_reader,
    disconnect,
)
from windlass._storage.sqlite.io.file_watch import ChangeWatcher
from windlass._storage.sqlite.io.files import DatabaseFiles, filesystem_of, is_network
from windlass._storage.sqlite.io.guards import ReadGuard
from windlass._storage.sqlite.io.wakeups import Watcher
from windlass._system.seams import start_thread
from windlass.errors import StorageError

__all__ = ["DatabaseLocation", "FileLocation", "MemoryLocation"]

log = logging.getLogger("windlass")


class DatabaseLocation(Protocol):
    """Where a database is, and what only this place can do."""

    boot: str
    """The id of this boot of the machine."""
    shared: bool
    """Whether other processes can come here."""

    guard: ReadGuard | None
    """Asked before every read whether what was opened is still there; None: it cannot go."""

    def open_reader(self) -> apsw.Connection: ...

    def close_reader(self, reader: apsw.Connection) -> None: ...

    def watch(self) -> Watcher | None: ...

    def hold_worker_lock(self, worker: str) -> tuple[str, int, int]: ...

    def release_worker_lock(self, worker: str) -> None: ...

    def prove_dead(self, worker: WorkerStart) -> bool: ...

    def forget_worker(self, worker: str) -> None:
        """Its lock proves nothing any more."""
        ...

    def sweep(self, live: Collection[str], now: datetime) -> None:
        """Remove old locks that no process holds and that are of no live worker."""
        ...

    async def checkpoint(self) -> None: ...

    def health(self) -> dict[str, float | str]:
        """Return the values that this place reports, by name: see `Storage.health`."""
        ...

    def close(self) -> None: ...


class FileLocation:
    """A file on this machine."""

    shared = True

    def __init__(self, files: DatabaseFiles, durability: SqliteDurability) -> None:
        self._files, self._durability = files, durability
        self._locks = WorkerLocks(files.workers)
        self.boot: str = self._locks.boot
        self.guard: ReadGuard | None = ReadGuard(files)

    def open_reader(self) -> apsw.Connection:
        return connect_reader(self._files.path)

    def close_reader(self, reader: apsw.Connection) -> None:
        disconnect(reader)

    def watch(self) -> Watcher | None:
        return ChangeWatcher(self._files)

    # --- proof of life ------------------------------------------------------------------------

    def hold_worker_lock(self, worker: str) -> tuple[str, int, int]:
        return self._locks.hold(worker)

    def release_worker_lock(self, worker: str) -> None:
        self._locks.release(worker)

    def prove_dead(self, worker: WorkerStart) -> bool:
        return self._locks.prove_dead(worker)

    def forget_worker(self, worker: str) -> None:
        self._locks.forget(worker)

    def sweep(self, live: Collection[str], now: datetime) -> None:
        self._locks.sweep(live, now)

    # --- the write-ahead file -----------------------------------------------------------------

    async def checkpoint(self) -> None:
        """Move the write-ahead file into the database, off the loop: it syncs twice."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def run() -> None:
            failure: StorageError | None = None
            try:
                checkpoint_and_shrink(self._files)
            except StorageError as error:
                failure = error
            _answer(loop, done, failure)

        start_thread("sqlite-checkpoint", run)
        await done

    # --- what can be said of it ---------------------------------------------------------------

    def health(self) -> dict[str, float | str]:
        kind, wal = filesystem_of(self._files.path), _size(self._files.wal)
        said: dict[str, float | str] = {
            "durability": self._durability,
            "synchronous": self._durability,
            "pool": "1 writer, 2 readers",
            "size": _size(self._files.path) + wal,
            "wal": wal,
        }
        if kind:
            said["filesystem"] = kind
            said["network_filesystem"] = "yes" if is_network(kind) else "no"
        with suppress(OSError):
            said["free_disk"] = shutil.disk_usage(Path(self._files.path).parent).free
        return said

    def close(self) -> None:
        self._locks.close()


def _size(path: str) -> int:
    """Return the size in bytes; the write-ahead file comes and goes."""
    try:
        return Path(path).stat().st_size
    except OSError:
        return 0


def _answer(
    loop: asyncio.AbstractEventLoop, done: asyncio.Future[None], failure: StorageError | None
) -> None:
    def settle() -> None:
        if done.cancelled():
            return
        if failure is None:
            done.set_result(None)
        else:
            done.set_exception(failure)

    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:
        log.debug("a checkpoint ended after its event loop was closed")


class MemoryLocation:
    """A database inside this process: no files, no locks, no neighbours."""

    boot = "memory"
    shared = False

    def __init__(self, source: ConnectionSource, watch: Callable[[], Watcher | None]) -> None:
        self._source, self._watch = source, watch
        self.guard: ReadGuard | None = None

    def open_reader(self) -> apsw.Connection:
        return self._source.open()

    def close_reader(self, reader: apsw.Connection) -> None:
        """Do nothing: it is the writer's own connection."""

    def watch(self) -> Watcher | None:
        return self._watch()

    def hold_worker_lock(self, worker: str) -> tuple[str, int, int]:  # noqa: ARG002 -- no lock
        return "", 0, 0

    def release_worker_lock(self, worker: str) -> None:
        """Do nothing: there is no lock."""

    def prove_dead(self, worker: WorkerStart) -> bool:  # noqa: ARG002 -- nothing is ever proven
        return False

    def forget_worker(self, worker: str) -> None:
        """Do nothing: there is no lock."""

    def sweep(self, live: Collection[str], now: datetime) -> None:
        """Do nothing: there are no locks."""

    async def checkpoint(self) -> None:
        """Do nothing: there is no write-ahead file."""

    def health(self) -> dict[str, float | str]:
        return {"durability": "none"}

    def close(self) -> None:
        """Do nothing: no resource is held."""
