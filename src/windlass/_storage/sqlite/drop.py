"""Deleting a database: its file, and the files that Windlass and SQLite put beside it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import apsw

from windlass._storage.shared.migrations import has_schema
from windlass._storage.sqlite.io.files import DatabaseFiles
from windlass._system.forks import FORK_GUARD
from windlass.errors import StorageRefused

__all__ = ["drop_sqlite"]


def drop_sqlite(path: str) -> None:
    """Delete the database at ``path``. Refuse a file that is not a database of Windlass."""
    files = DatabaseFiles(os.path.realpath(path))
    if not _is_ours(files.path):
        raise StorageRefused(f"{files.path} is not a database of Windlass: nothing was deleted.")
    try:
        # The database first: SQLite ignores a write-ahead file that is left without it.
        for each in (files.path, files.wal, files.shm, files.lock):
            Path(each).unlink(missing_ok=True)
        shutil.rmtree(files.workers, ignore_errors=True)
    except OSError as error:
        raise StorageRefused(
            f"Cannot delete {error.filename}: {error.strerror}. Check the permissions of its "
            f"folder and the user this process runs as."
        ) from error


def _is_ours(path: str) -> bool:
    """Whether there is no file, an empty one, or one with tables of Windlass."""
    if not Path(path).exists() or Path(path).stat().st_size == 0:
        return True
    with FORK_GUARD:
        try:
            connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
            try:
                return has_schema(connection)
            finally:
                connection.close()
        except apsw.Error:
            return False
