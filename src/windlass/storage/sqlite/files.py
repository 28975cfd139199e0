"""The files of one database: made private, watched for replacement, and locked in turn."""

from __future__ import annotations

import os
import re
import stat
import sys
import weakref
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import msgspec

from windlass.errors import StorageError, StorageReplaced, StorageUnavailable
from windlass.seams import monotonic

if sys.platform != "win32":
    import fcntl

__all__ = [
    "DatabaseFiles",
    "FileGuard",
    "Identity",
    "Turn",
    "TurnLock",
    "WorkerLock",
    "boot_id",
    "filesystem_of",
    "forget",
    "identity",
    "prepare",
    "probe",
    "replaced",
    "signed",
]

# SQLite coordinates the readers and writers of a WAL file through shared memory and POSIX locks.
# Neither works between machines, and most of these file systems fake or forget the locks.
_NETWORK = re.compile(
    r"nfs\d?|cifs|smb\w*|9p|afs|ceph|lustre|beegfs|gpfs|glusterfs|ncpfs|davfs|"
    r"fuse\.(sshfs|s3fs|s3ql|gcsfuse|goofys|rclone|glusterfs|ceph\S*|davfs\d?|blobfuse\d?|"
    r"curlftpfs|smbnetfs|juicefs|mountpoint-s3|seaweedfs|moosefs|nfs\S*)"
)
_PRIVATE_FILE = 0o600
_PRIVATE_DIRECTORY = 0o700
_WORKER_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class DatabaseFiles(msgspec.Struct, frozen=True):
    """The database's real path (no symbolic links) and those of the files beside it."""

    path: str

    @property
    def wal(self) -> str:
        return f"{self.path}-wal"

    @property
    def shm(self) -> str:
        return f"{self.path}-shm"

    @property
    def lock(self) -> str:
        return f"{self.path}-lock"

    @property
    def workers(self) -> str:
        return f"{self.path}-workers"


def prepare(path: str, *, allow_network_filesystem: bool = False) -> DatabaseFiles:
    """Make sure a private file stands at ``path``, and refuse places a database must not be in.

    Symbolic links are followed once, here: SQLite puts the files beside a database next to the
    real one, and two names must not lead to two locks.
    """
    _refuse_strangers_link(Path(path))
    files = DatabaseFiles(os.path.realpath(path))
    kind = filesystem_of(files.path)
    if _NETWORK.fullmatch(kind) and not allow_network_filesystem:
        raise StorageUnavailable(
            f"{files.path} is on a network file system ({kind}), where SQLite's locks do not "
            f"hold and jobs can be lost. Use a local disk, move to PostgreSQL for several "
            f"machines, or set allow_network_filesystem if only one machine will ever open it."
        )
    try:
        _make_directories(Path(files.path).parent)
        _make_file(files.path)
        mode = Path(files.path).stat().st_mode
    except OSError as error:
        raise StorageUnavailable(
            f"Cannot create or read {files.path}: {error.strerror}. Check the path, its "
            f"permissions and the user this process runs as."
        ) from error
    if not stat.S_ISREG(mode):
        what = "a directory" if stat.S_ISDIR(mode) else "not an ordinary file"
        raise StorageUnavailable(
            f"{files.path} is {what}; name a file, for example sqlite:///jobs.db."
        )
    return files


def _refuse_strangers_link(path: Path) -> None:
    """In a folder others may write to, a planted link would let them choose what we write."""
    if sys.platform == "win32" or not path.is_symlink():
        return
    if path.lstat().st_uid not in {0, os.geteuid()}:
        raise StorageUnavailable(
            f"{path} is a symbolic link made by another user, who could point it at any file. "
            f"Replace it, or name the real path."
        )


def _make_directories(directory: Path) -> None:
    """Like makedirs, but private all the way down: makedirs gives its mode to the last one only."""
    missing = [d for d in (directory, *directory.parents) if not d.exists()]
    for each in reversed(missing):
        each.mkdir(_PRIVATE_DIRECTORY, exist_ok=True)


def _make_file(path: str) -> None:
    """Create the file without opening an existing one, whoever else is creating it now.

    Closing any descriptor of a database drops every POSIX lock this whole process holds on it,
    also those of another thread's connection, so we never open one ourselves. SQLite gives the
    files it makes beside the database the same mode.
    """
    try:
        if sys.platform == "linux":
            os.mknod(path, _PRIVATE_FILE | stat.S_IFREG)
        else:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, _PRIVATE_FILE))
    except FileExistsError:
        pass


def filesystem_of(path: str, mounts: str = "/proc/self/mountinfo") -> str:
    """The type of the file system that holds ``path``, as the kernel calls it; "" if unknown."""
    try:
        text = Path(mounts).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
    best, kind = "", ""
    for line in text.splitlines():
        left, separator, right = line.partition(" - ")
        if not separator:
            continue
        # The kernel writes spaces and the like as \040.
        point = re.sub(r"\\(\d{3})", lambda m: chr(int(m[1], 8)), left.split(" ")[4])
        inside = path == point or path.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):  # the later of two mounts on one point covers it
            best, kind = point, right.split(" ")[0]
    return kind


Identity = tuple[int, int]


class FileGuard:
    """Notices when a database file was deleted or replaced under an open connection.

    Without it an insert is acknowledged into a file that no longer has a name, and the job is
    gone when the process ends. Made right after the connection has read the database, when all
    three files exist; none of them changes its identity while any connection is open.
    """

    def __init__(self, files: DatabaseFiles) -> None:
        self._files = files
        self.database, self._wal, self._shm = map(identity, (files.path, files.wal, files.shm))
        self._next_full_look = 0.0
        self.check()

    def check(self) -> None:
        """Raise StorageReplaced unless the files are the ones that were opened."""
        files = self._files
        if self.database is None or identity(files.path) != self.database:
            raise replaced(files.path)
        if self._wal is None or identity(files.wal) != self._wal:
            raise replaced(files.wal)
        # A look costs 2.5 µs, a third of an empty transaction. Losing -shm destroys nothing by
        # itself: it splits old processes from new ones, so a second is soon enough.
        if monotonic() >= self._next_full_look:
            self._next_full_look = monotonic() + 1.0
            if self._shm is None or identity(files.shm) != self._shm:
                raise replaced(files.shm)


def replaced(path: str) -> StorageReplaced:
    """The error for a file that is no longer the one that was opened."""
    return StorageReplaced(
        f"{path} was deleted or replaced while it was open, so nothing more is written to it. "
        f"Put the file back or choose another one, and restart the process."
    )


def identity(path: str) -> Identity | None:
    """Device and inode of what has this name now, or None."""
    try:
        found = os.stat(path)  # noqa: PTH116 -- three a transaction; Path would double their cost
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise StorageUnavailable(
            f"Cannot look at {path}: {error.strerror}. Check the permissions of its folder."
        ) from error
    return (found.st_dev, found.st_ino) if found.st_nlink else None


# --- locks ----------------------------------------------------------------------------------

# A lock belongs to the open file, which a forked child shares: a child left behind by a dead
# worker would keep that worker looking alive. Closing the child's copy unlocks nothing.
_open_locks: weakref.WeakSet[_LockFile] = weakref.WeakSet()


class _LockFile:
    """An open file to take ``flock`` on. Close-on-exec, as every file Python opens."""

    fd = -1

    def __init__(self, path: str, flags: int, mode: int = _PRIVATE_FILE) -> None:
        self.fd = os.open(path, flags, mode)
        _open_locks.add(self)

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


def _close_inherited_locks() -> None:
    for lock in list(_open_locks):
        lock.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_inherited_locks)


def _open_like(database: str, path: str) -> _LockFile:
    """Open a file beside the database, as private or as shared with a group as that one is."""
    mode = stat.S_IMODE(Path(database).stat().st_mode) & 0o666
    try:
        file = _LockFile(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
    except FileExistsError:
        return _LockFile(path, os.O_RDWR)
    if sys.platform != "win32":
        os.fchmod(file.fd, mode)  # the umask may have taken the group's bits away
    return file


class Turn(Protocol):
    """Something to hold around a write transaction."""

    def __enter__(self) -> object: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def close(self) -> None: ...


class TurnLock:
    """Takes turns between processes: held around every write transaction.

    SQLite's own waiting is a lottery that starves (of four busy processes the unlucky one got
    2 % and waited a second); waiters on this lock are woken by the kernel. It gives fairness
    only, never correctness: whoever does not take it still meets SQLite's lock.
    """

    def __init__(self, files: DatabaseFiles) -> None:
        try:
            self._file = _open_like(files.path, files.lock)
        except OSError as error:
            raise StorageUnavailable(
                f"Cannot open {files.lock}: {error.strerror}. Check its permissions; processes "
                f"that share a database need to be allowed to write this file too."
            ) from error

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


class WorkerLock:
    """A worker's proof of life for its peers on the same machine.

    The kernel drops the lock when the process dies, however it dies. ``device`` and ``inode``
    go into the worker's row: a peer that sees the same file, and can lock it, knows.
    """

    def __init__(self, path: str, file: _LockFile) -> None:
        found = os.fstat(file.fd)
        self._path, self._file = path, file
        self.device, self.inode = signed(found.st_dev), signed(found.st_ino)

    @classmethod
    def hold(cls, directory: str, worker_id: str) -> Self:
        """Create and lock this worker's file. The id must be new: the file must not exist."""
        path = _worker_file(directory, worker_id)
        try:
            Path(directory).mkdir(_PRIVATE_DIRECTORY, exist_ok=True)
            file = _LockFile(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
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
        """Let go of the lock and leave the file: whoever takes it has proof that nobody lives."""
        self._file.close()


def probe(directory: str, worker_id: str, device: int, inode: int) -> bool:
    """Whether the worker that held this very file is certainly dead.

    True only when the file is the one the worker recorded and its lock can be taken. Everything
    else proves nothing: a missing file may have been cleaned away, a stranger's is a stranger's.
    """
    if sys.platform == "win32" or not _WORKER_ID.fullmatch(worker_id):
        return False
    try:
        file = _LockFile(_worker_file(directory, worker_id), os.O_RDWR | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        found = os.fstat(file.fd)
        if (signed(found.st_dev), signed(found.st_ino)) != (device, inode):
            return False
        fcntl.flock(file.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    else:
        return True
    finally:
        file.close()


def forget(directory: str, worker_id: str) -> None:
    """Remove a buried worker's file. Only after burial: until then it is the peers' evidence."""
    Path(_worker_file(directory, worker_id)).unlink(missing_ok=True)


def _worker_file(directory: str, worker_id: str) -> str:
    if not _WORKER_ID.fullmatch(worker_id):
        raise StorageError(f"{worker_id!r} is no worker id: letters, digits, '-' and '_' only.")
    return f"{directory}/{worker_id}"


def signed(number: int) -> int:
    """A device or inode number as SQLite can store it: inodes are unsigned and may have 64 bits."""
    return number & (2**63 - 1)


def boot_id(source: str = "/proc/sys/kernel/random/boot_id") -> str:
    """What tells this boot of this machine from every other; "unknown" proves nothing."""
    try:
        return Path(source).read_text(encoding="ascii").strip() or "unknown"
    except OSError:
        return "unknown"
