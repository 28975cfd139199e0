"""Proof that a worker on this machine is dead: locks that the kernel drops with their process."""

from __future__ import annotations

import functools
import logging
import os
import re
import sys
import tempfile
from collections.abc import Collection
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Self

from windlass._storage.protocol.workers import WorkerStart
from windlass._system.forks import renew_in_child
from windlass.errors import StorageError, StorageUnavailable

if sys.platform != "win32":
    import fcntl

__all__ = [
    "LockFile",
    "WorkerLock",
    "WorkerLocks",
    "as_signed_64",
    "boot_id",
    "forget",
    "is_holder_dead",
    "runtime_directory",
]

log = logging.getLogger("windlass")

_ABANDONED_AFTER = timedelta(hours=1)
_WORKER_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class LockFile:
    """An open file to take ``flock`` on. Close-on-exec, as every file Python opens."""

    fd: int = -1

    def __init__(self, path: str, flags: int, mode: int = 0o600) -> None:
        self.fd = os.open(path, flags, mode)
        renew_in_child(self)

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def renew(self) -> None:
        """Close a forked child's copy, which unlocks nothing. The lock belongs to the open file: a
        child left behind by a dead worker would keep that worker looking alive.
        """
        self.close()

    def __del__(self) -> None:
        self.close()


class WorkerLock:
    """A worker's proof of life for its peers on the same machine.

    The kernel drops the lock when the process dies, however it dies. ``device`` and ``inode``
    go into the worker's row: a peer that sees the same file, and can lock it, knows.
    """

    def __init__(self, path: str, file: LockFile) -> None:
        found = os.fstat(file.fd)
        self._path, self._file = path, file
        self.device: int = as_signed_64(found.st_dev)
        self.inode: int = as_signed_64(found.st_ino)

    @classmethod
    def hold(cls, directory: str, worker_id: str) -> Self:
        """Create and lock this worker's file. The id must be new: the file must not exist."""
        path = _worker_file(directory, worker_id)
        try:
            Path(directory).mkdir(0o700, exist_ok=True)
            file = LockFile(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            if sys.platform != "win32":
                fcntl.flock(file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise StorageUnavailable(
                f"Cannot create {path}: {error.strerror}. Check the folder's permissions; "
                f"workers that share a database should run as one user."
            ) from error
        return cls(path, file)

    def release(self) -> None:
        """Give the file up on an orderly end. Does nothing in a forked child, or a second time."""
        if self._file.fd >= 0:
            Path(self._path).unlink(missing_ok=True)
            self._file.close()

    def abandon(self) -> None:
        """Release the lock and leave the file: a process that can take the lock has proof of the
        death.
        """
        self._file.close()


def is_holder_dead(directory: str, worker_id: str, device: int, inode: int) -> bool:
    """Check whether the worker that held this very file is certainly dead.

    True only when the file is the one the worker recorded and its lock can be taken. Everything
    else proves nothing: a missing file may have been cleaned away, another file is another
    worker's.
    """
    if sys.platform == "win32" or not _WORKER_ID.fullmatch(worker_id):
        return False
    try:
        file = LockFile(_worker_file(directory, worker_id), os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        found = os.fstat(file.fd)
        if (as_signed_64(found.st_dev), as_signed_64(found.st_ino)) != (device, inode):
            return False
        fcntl.flock(file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        file.close()


def forget(directory: str, worker_id: str) -> None:
    """Remove a dead worker's file. Only after it was declared dead: until then the file is evidence
    for other workers.
    """
    Path(_worker_file(directory, worker_id)).unlink(missing_ok=True)


def _worker_file(directory: str, worker_id: str) -> str:
    if not _WORKER_ID.fullmatch(worker_id):
        raise StorageError(f"{worker_id!r} is no worker id: letters, digits, '-' and '_' only.")
    return f"{directory}/{worker_id}"


def as_signed_64(number: int) -> int:
    """Return a device or inode number as a database can store it: inodes may use all 64 bits."""
    return number & (2**63 - 1)


def boot_id(source: str = "/proc/sys/kernel/random/boot_id") -> str:
    """Return the id of this boot of this machine; "unknown" proves nothing."""
    try:
        return Path(source).read_text(encoding="ascii").strip() or "unknown"
    except OSError:
        return "unknown"


class WorkerLocks:
    """The locks that workers of one storage hold in one directory of this machine.

    Without a directory there are none: nothing is held, and no death is ever proven.
    """

    def __init__(self, directory: str | None) -> None:
        self._directory = directory
        self._held: dict[str, WorkerLock] = {}
        self.boot: str = boot_id()

    def hold(self, worker: str) -> tuple[str, int, int]:
        """Boot id, device and inode for the worker's row."""
        if self._directory is None:
            _say_once()
            return "", 0, 0
        lock = self._held[worker] = WorkerLock.hold(self._directory, worker)
        return self.boot, lock.device, lock.inode

    def release(self, worker: str) -> None:
        lock = self._held.pop(worker, None)
        if lock is not None:
            lock.release()

    def prove_dead(self, worker: WorkerStart) -> bool:
        """Return whether a worker of this boot is dead, by the very file it held: all three must
        match our own view.
        """
        known = self.boot != "unknown" and worker.boot_id == self.boot and worker.lock_inode
        if self._directory is None or not known:
            return False
        return is_holder_dead(self._directory, worker.id, worker.lock_device, worker.lock_inode)

    def forget(self, worker: str) -> None:
        """Drop the lock of a dead worker: it proves nothing any more."""
        if self._directory is not None and worker not in self._held:
            forget(self._directory, worker)

    def sweep(self, live: Collection[str], now: datetime) -> None:
        """Remove locks that no process holds and that are of no live worker, unless they are new: a
        worker that starts has no row yet.

        A process may die after it took its lock and before it had a row. It may also die after its
        row ended and before it removed the file. No worker declares it dead then, and the file
        would stay.
        """
        directory = None if self._directory is None else Path(self._directory)
        if directory is None or not directory.exists():
            return
        before = now - _ABANDONED_AFTER
        for path in list(directory.iterdir()):
            if path.name in live or path.name in self._held:
                continue
            with suppress(FileNotFoundError):  # another process sweeps too
                found = path.lstat()
                if found.st_mtime < before.timestamp() and is_holder_dead(
                    str(directory),
                    path.name,
                    as_signed_64(found.st_dev),
                    as_signed_64(found.st_ino),
                ):
                    forget(str(directory), path.name)

    def close(self) -> None:
        # A lock that was not released belongs to a worker that could not say goodbye.
        for lock in self._held.values():
            lock.abandon()
        self._held.clear()


@functools.cache
def _say_once() -> None:
    """Warn once in this process, however many workers it has."""
    if sys.platform != "win32":
        log.warning(
            "there is no private folder to write to, so no worker can prove that another one is "
            "dead: jobs of a killed worker run again after its lease, not at once. Set "
            "XDG_RUNTIME_DIR or TMPDIR to a writable folder to change that"
        )


def runtime_directory() -> str | None:
    """Return a private folder of this user for the locks of workers whose storage has no folder
    itself.

    None where there is no such place: then deaths are noticed by their leases alone.
    """
    if sys.platform == "win32":
        return None
    try:
        named = os.environ.get("XDG_RUNTIME_DIR")
        path = (
            Path(named, "windlass")
            if named
            else Path(tempfile.gettempdir(), f"windlass-{os.getuid()}")
        )
        path.mkdir(0o700, exist_ok=True)
        found = path.lstat()
    except OSError:  # a read-only container has no folder for temporary files
        return None
    # A folder that another user made, or may write to, could be made to prove anything.
    private = found.st_uid == os.getuid() and not found.st_mode & 0o022 and path.is_dir()
    usable = private and not path.is_symlink() and os.access(path, os.W_OK | os.X_OK)
    return str(path) if usable else None
