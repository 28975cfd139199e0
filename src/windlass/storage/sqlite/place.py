"""What stands around a database: its file with locks and neighbours, or nothing at all."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Protocol

import apsw

from windlass.errors import StorageError
from windlass.seams import start_thread
from windlass.storage.protocol import WorkerStart
from windlass.storage.sqlite.connection import Source, connect_reader, disconnect, translate
from windlass.storage.sqlite.files import (
    DatabaseFiles,
    WorkerLock,
    boot_id,
    forget,
    probe,
    signed,
)
from windlass.storage.sqlite.forks import INSIDE
from windlass.storage.sqlite.wakeups import Watcher
from windlass.storage.sqlite.watch import ChangeWatcher

__all__ = ["FilePlace", "MemoryPlace", "Place"]

log = logging.getLogger("windlass")

_LARGE_WAL = 64 * 1024 * 1024
_TRUNCATE_PATIENCE_MS = 100
"""Shrinking the write-ahead file keeps writers out while it waits for readers."""


class Place(Protocol):
    """Where a database is, and what only this place can do."""

    boot: str
    """What tells this boot of the machine from every other."""
    shared: bool
    """Whether other processes can come here."""

    def open_reader(self) -> apsw.Connection: ...

    def close_reader(self, reader: apsw.Connection) -> None: ...

    def watch(self) -> Watcher | None: ...

    def hold_worker_lock(self, worker: str) -> tuple[str, int, int]: ...

    def release_worker_lock(self, worker: str) -> None: ...

    def prove_dead(self, worker: WorkerStart) -> bool: ...

    def forget_worker(self, worker: str) -> None:
        """Its lock proves nothing any more."""
        ...

    def sweep(self, live: Collection[str], before: datetime) -> None:
        """Remove locks that nobody holds and that are of no live worker, if older than that."""
        ...

    async def checkpoint(self) -> None: ...

    def close(self) -> None: ...


class FilePlace:
    """A file on this machine."""

    shared = True

    def __init__(self, files: DatabaseFiles) -> None:
        self._files = files
        self._locks: dict[str, WorkerLock] = {}
        self.boot = boot_id()

    def open_reader(self) -> apsw.Connection:
        return connect_reader(self._files.path)

    def close_reader(self, reader: apsw.Connection) -> None:
        disconnect(reader)

    def watch(self) -> Watcher | None:
        return ChangeWatcher(self._files)

    # --- proof of life ------------------------------------------------------------------------

    def hold_worker_lock(self, worker: str) -> tuple[str, int, int]:
        lock = self._locks[worker] = WorkerLock.hold(self._files.workers, worker)
        return self.boot, lock.device, lock.inode

    def release_worker_lock(self, worker: str) -> None:
        lock = self._locks.pop(worker, None)
        if lock is not None:
            lock.release()

    def prove_dead(self, worker: WorkerStart) -> bool:
        """Only of this boot, by the very file it held: all three must match our own view."""
        if self.boot == "unknown" or worker.boot_id != self.boot or not worker.lock_inode:
            return False
        return probe(self._files.workers, worker.id, worker.lock_device, worker.lock_inode)

    def forget_worker(self, worker: str) -> None:
        if worker not in self._locks:
            forget(self._files.workers, worker)

    def sweep(self, live: Collection[str], before: datetime) -> None:
        """A process may die after it took its lock and before it had a row, or after its row
        ended and before it removed the file: then nobody buries it and the file would stay.
        """
        directory = Path(self._files.workers)
        for path in list(directory.iterdir()) if directory.exists() else []:
            if path.name in live or path.name in self._locks:
                continue
            with suppress(FileNotFoundError):  # somebody else sweeps too
                found = path.lstat()
                if found.st_mtime < before.timestamp() and probe(
                    str(directory), path.name, signed(found.st_dev), signed(found.st_ino)
                ):
                    forget(str(directory), path.name)

    # --- the write-ahead file -----------------------------------------------------------------

    async def checkpoint(self) -> None:
        """Move the write-ahead file into the database, off the loop: it syncs twice."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()

        def run() -> None:
            failure: StorageError | None = None
            try:
                _checkpoint(self._files)
            except StorageError as error:
                failure = error
            _answer(loop, done, failure)

        start_thread("sqlite-checkpoint", run)
        await done

    def close(self) -> None:
        # A lock that was not released belongs to a worker that could not say goodbye.
        for lock in self._locks.values():
            lock.abandon()
        self._locks.clear()


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


def _checkpoint(files: DatabaseFiles) -> None:
    connection = connect_reader(files.path)
    try:
        connection.set_busy_timeout(_TRUNCATE_PATIENCE_MS)
        large = Path(files.wal).stat().st_size > _LARGE_WAL
        mode = apsw.SQLITE_CHECKPOINT_TRUNCATE if large else apsw.SQLITE_CHECKPOINT_PASSIVE
        with INSIDE:
            connection.wal_checkpoint(mode=mode)
    except (apsw.BusyError, apsw.LockedError):
        log.debug("%s is in use; its write-ahead file is moved another time", files.path)
    except apsw.Error as error:
        raise translate(error, files.path) from error
    finally:
        disconnect(connection)


class MemoryPlace:
    """A database inside this process: no files, no locks, no neighbours."""

    boot = "memory"
    shared = False

    def __init__(self, source: Source, watch: Callable[[], Watcher | None]) -> None:
        self._source, self._watch = source, watch

    def open_reader(self) -> apsw.Connection:
        return self._source.open()

    def close_reader(self, reader: apsw.Connection) -> None:
        """It is the writer's own connection."""

    def watch(self) -> Watcher | None:
        return self._watch()

    def hold_worker_lock(self, worker: str) -> tuple[str, int, int]:  # noqa: ARG002 -- no lock
        return "", 0, 0

    def release_worker_lock(self, worker: str) -> None:
        """There is none."""

    def prove_dead(self, worker: WorkerStart) -> bool:  # noqa: ARG002 -- nothing is ever proven
        return False

    def forget_worker(self, worker: str) -> None:
        """Nothing was remembered."""

    def sweep(self, live: Collection[str], before: datetime) -> None:
        """There are no locks."""

    async def checkpoint(self) -> None:
        """There is no write-ahead file."""

    def close(self) -> None:
        """Nothing is held."""
