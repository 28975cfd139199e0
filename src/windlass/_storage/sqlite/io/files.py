"""The files of one database: where they may be, and how they are made."""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from pathlib import Path

import msgspec

from windlass.errors import StorageFull, StorageRefused

__all__ = [
    "DISK_FULL_ERRORS",
    "DatabaseFiles",
    "filesystem_of",
    "is_disk_full",
    "is_network",
    "prepare_file",
]

# SQLite coordinates the readers and writers of a WAL file through shared memory and POSIX locks.
# Neither works between machines, and most of these file systems fake or forget the locks.
_NETWORK = re.compile(
    r"nfs\d?|cifs|smb\w*|9p|afs|ceph|lustre|beegfs|gpfs|glusterfs|ncpfs|davfs|"
    r"fuse\.(sshfs|s3fs|s3ql|gcsfuse|goofys|rclone|glusterfs|ceph\S*|davfs\d?|blobfuse\d?|"
    r"curlftpfs|smbnetfs|juicefs|mountpoint-s3|seaweedfs|moosefs|nfs\S*)"
)
DISK_FULL_ERRORS = {errno.ENOSPC, errno.EDQUOT}
"""Errors of a file system that has no room."""
_PRIVATE_FILE = 0o600


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


def prepare_file(path: str, *, allow_network_filesystem: bool = False) -> DatabaseFiles:
    """Make sure a private file exists at ``path``, and refuse places a database must not be in.

    Symbolic links are followed once, here: SQLite puts the files beside a database next to the real
    one, and two names must not lead to two locks.
    """
    _refuse_foreign_link(Path(path))
    files = DatabaseFiles(os.path.realpath(path))
    kind = filesystem_of(files.path)
    if is_network(kind) and not allow_network_filesystem:
        raise StorageRefused(
            f"{files.path} is on a network file system ({kind}), where SQLite's locks do not "
            f"hold and jobs can be lost. Use a local disk, move to PostgreSQL for several "
            f"machines, or set allow_network_filesystem if only one machine will ever open it."
        )
    try:
        _refuse_missing_folder(Path(files.path).parent)
        _make_file(files.path)
        mode = Path(files.path).stat().st_mode
    except OSError as error:
        if error.errno in DISK_FULL_ERRORS:
            raise StorageFull(
                f"The disk that should hold {files.path} is full: free some space."
            ) from error
        raise StorageRefused(
            f"Cannot create or read {files.path}: {error.strerror}. Check the path, its "
            f"permissions and the user this process runs as."
        ) from error
    if not stat.S_ISREG(mode):
        what = "a directory" if stat.S_ISDIR(mode) else "not an ordinary file"
        raise StorageRefused(f"{files.path} is {what}; name a file, for example sqlite:///jobs.db.")
    return files


def is_disk_full(path: str) -> bool:
    """Return whether the disk that holds ``path`` is full."""
    if sys.platform == "win32":
        return False
    try:
        return os.statvfs(path).f_bavail == 0
    except OSError:
        return False


def _refuse_foreign_link(path: Path) -> None:
    """Refuse a link in a folder that others may write to: they could choose what we write."""
    if sys.platform == "win32" or not path.is_symlink():
        return
    if path.lstat().st_uid not in {0, os.geteuid()}:
        raise StorageRefused(
            f"{path} is a symbolic link made by another user, who could point it at any file. "
            f"Replace it, or name the real path."
        )


def _refuse_missing_folder(folder: Path) -> None:
    """Refuse a missing folder: it is a misspelt path, or a volume that is not mounted. A new one
    would hide that, and hold jobs that no worker looks for.
    """
    missing = [each for each in (folder, *folder.parents) if not each.exists()]
    if missing:
        raise StorageRefused(
            f"The folder {missing[-1]} does not exist. Create it (mkdir -p {folder}) or correct "
            f"the URL: three slashes are relative to the current folder, four absolute."
        )


def _make_file(path: str) -> None:
    """Create the file without opening an existing one, even if another process creates it now.

    Closing any descriptor of a database drops every POSIX lock this whole process holds on it, also
    those of another thread's connection, so we never open one ourselves. SQLite gives the files it
    makes beside the database the same mode.
    """
    try:
        if sys.platform == "linux":
            os.mknod(path, _PRIVATE_FILE | stat.S_IFREG)
        else:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, _PRIVATE_FILE))
    except FileExistsError:
        pass


def filesystem_of(path: str, mounts: str = "/proc/self/mountinfo") -> str:
    """Return the type of the file system that holds ``path``, as the kernel calls it; "" if
    unknown.
    """
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


def is_network(filesystem: str) -> bool:
    """Return whether a file system of this type is on another machine, as far as its name tells."""
    return _NETWORK.fullmatch(filesystem) is not None
