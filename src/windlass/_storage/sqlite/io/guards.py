"""Locks and checks around every use of a database: against forks, writers and new files.

A fork waits until no thread of this process is inside SQLite. SQLite keeps for each file which
locks this process holds. A child forked in the middle of a transaction inherits that belief: it
waits for a writer that it is itself, for ever. A running statement leaves behind a locked mutex, or
a read mark that protects no reader.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Protocol, Self

from windlass._storage.shared.worker_locks import LockFile
from windlass._storage.sqlite.io.files import DISK_FULL_ERRORS, DatabaseFiles
from windlass._system.seams import SYSTEM_CLOCK, monotonic
from windlass.errors import StorageFull, StorageRefused, StorageReplaced, StorageUnavailable

if sys.platform != "win32":
    import fcntl

__all__ = [
    "FileGuard",
    "FileIdentity",
    "FileWriteLock",
    "ReadGuard",
    "WriteLock",
    "file_identity_of",
    "replaced_file_error",
]

# --- files that are replaced ------------------------------------------------------------------

FileIdentity = tuple[int, int]

_TICK = 2.05
"""Seconds after which a change has another time than the one before.

FAT stores times in steps of two seconds, ext3 and HFS+ in steps of one. The clock of an older
kernel adds a few milliseconds.
"""


class _FolderState(NamedTuple):
    """The identity of a folder, and when something in it, or it, changed last, in nanoseconds."""

    device: int
    inode: int
    changed: int
    touched: int


class FileGuard:
    """Notices when a database file was deleted or replaced under an open connection.

    Without it an insert is acknowledged into a file that no longer has a name, and the job is
    gone when the process ends. Made right after the connection has read the database, when all
    three files exist; none of them changes its identity while any connection is open.
    """

    def __init__(self, files: DatabaseFiles) -> None:
        self._names = names = (files.path, files.wal, files.shm)
        self._folder = str(Path(files.path).parent)
        self.database, self._wal, self._shm = map(file_identity_of, names)
        self._unchanged: _FolderState | None = None
        self._next_look = 0.0
        self.check()

    def check(self) -> None:
        """Raise StorageReplaced unless the files are the ones that were opened.

        They are where nothing in their folder was made, renamed or deleted since the last look.
        Linux must store a new time of a file with the first write after each look at it: to look at
        the -wal file for every commit makes commits a fifth slower.
        """
        try:
            found = os.stat(self._folder)  # noqa: PTH116 -- Path would double its cost
        except OSError:
            folder = None  # a look at the files says what is wrong
        else:
            changed, touched = found.st_mtime_ns, found.st_ctime_ns
            folder = _FolderState(found.st_dev, found.st_ino, changed, touched)
        if folder is not None and folder == self._unchanged and monotonic() < self._next_look:
            return
        for path, opened in zip(self._names, (self.database, self._wal, self._shm), strict=True):
            if opened is None or file_identity_of(path) != opened:
                raise replaced_file_error(path)
        self._next_look = monotonic() + 1.0
        # Soon after a change, a further one may have the same time.
        now = SYSTEM_CLOCK.now().timestamp()
        settled = folder is not None and now - folder.changed / 1e9 > _TICK
        self._unchanged = folder if settled else None


class ReadGuard:
    """Notices the same for readers, who lose nothing by it.

    A second is soon enough. But people would be shown the jobs of then for ever.
    """

    def __init__(self, files: DatabaseFiles) -> None:
        self._path = files.path
        self._database = file_identity_of(files.path)
        self._next_look = 0.0

    def check(self) -> None:
        """Raise StorageReplaced unless the database is the one that was opened."""
        if monotonic() < self._next_look:
            return
        if self._database is None or file_identity_of(self._path) != self._database:
            raise replaced_file_error(self._path)
        self._next_look = monotonic() + 1.0


def replaced_file_error(path: str) -> StorageReplaced:
    """Return the error for a file that is no longer the one that was opened."""
    return StorageReplaced(
        f"{path} was deleted or replaced while it was open, so nothing more is written to it. "
        f"Put the file back or choose another one, and restart the process."
    )


def file_identity_of(path: str) -> FileIdentity | None:
    """Device and inode of what has this name now, or None."""
    try:
        found = os.stat(path)  # noqa: PTH116 -- Path would double its cost
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StorageUnavailable(
            f"Cannot look at {path}: {error.strerror}. Check the permissions of its folder."
        ) from error
    return (found.st_dev, found.st_ino) if found.st_nlink else None


# --- taking turns ---------------------------------------------------------------------------


def _open_like(database: str, path: str) -> LockFile:
    """Open a file beside the database, as private or as shared with a group as that one is."""
    mode = stat.S_IMODE(Path(database).stat().st_mode) & 0o666
    try:
        file = LockFile(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        return LockFile(path, os.O_RDWR)
    if sys.platform != "win32":
        os.fchmod(file.fd, mode)  # the umask may have taken the group's bits away
    return file


class WriteLock(Protocol):
    """Something to hold around a write transaction."""

    def enter_now(self) -> bool:
        """Take it if it is free."""
        ...

    def __enter__(self) -> object: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def close(self) -> None: ...


class FileWriteLock:
    """Takes turns between processes: held around every write transaction.

    SQLite's own waiting is a lottery that starves (of four busy processes the unlucky one got 2 %
    and waited a second); waiters on this lock are woken by the kernel. It gives fairness only,
    never correctness: a process that does not take it still meets SQLite's lock.
    """

    def __init__(self, files: DatabaseFiles) -> None:
        try:
            self._file = _open_like(files.path, files.lock)
        except OSError as error:
            if error.errno in DISK_FULL_ERRORS:
                raise StorageFull(
                    f"The disk that holds {files.path} is full: free some space."
                ) from error
            raise StorageRefused(
                f"Cannot open {files.lock}: {error.strerror}. Check its permissions; processes "
                f"that share a database need to be allowed to write this file too."
            ) from error

    def enter_now(self) -> bool:
        """Take it if no other process has it."""
        if sys.platform != "win32":
            try:
                fcntl.flock(self._file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    def __enter__(self) -> Self:
        if sys.platform != "win32":
            fcntl.flock(self._file.fd, fcntl.LOCK_EX)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if sys.platform != "win32":
            fcntl.flock(self._file.fd, fcntl.LOCK_UN)

    def close(self) -> None:
        self._file.close()
