"""Checkpoints: moving committed pages from the write-ahead file into the database.

By default SQLite does it inside the commit that fills the file. That commit then writes a thousand
pages and syncs twice more, and every claim behind it waits. So they run on a thread beside the
writer: see `Checkpointer`.
"""

from __future__ import annotations

import logging
import threading
from contextlib import closing
from pathlib import Path

import apsw

from windlass._storage.sqlite.io.connection import PAGES, connect_reader, disconnect, translate
from windlass._storage.sqlite.io.files import DatabaseFiles
from windlass._storage.sqlite.io.guards import FileWriteLock
from windlass._system.forks import FORK_GUARD
from windlass._system.seams import start_thread
from windlass.errors import StorageError

__all__ = ["Checkpointer", "checkpoint_and_shrink"]

log = logging.getLogger("windlass")

_MANY_PAGES = 4 * PAGES
"""From here on writers wait for the end of a checkpoint, so that the file starts anew."""
_CLOSE_PATIENCE = 10.0
_LARGE_WAL = 64 * 1024 * 1024
_TRUNCATE_PATIENCE_MS = 100
"""Shrinking the write-ahead file keeps writers out while it waits for readers."""


class Checkpointer:
    """Runs one checkpoint at a time on its own thread.

    The file starts anew only when a checkpoint has moved everything, and a busy writer adds pages
    meanwhile. So a large file gets a second, short pass in the writers' turn.
    """

    def __init__(self, files: DatabaseFiles) -> None:
        self._files = files
        self._running = threading.Lock()

    def start(self) -> None:
        """Start a checkpoint, unless one is running. Called after a commit."""
        if not self._running.acquire(blocking=False):
            return
        try:
            start_thread("sqlite-checkpoint", self._run)
        except RuntimeError:  # no thread can be started; the commit itself is done
            self._running.release()

    def _run(self) -> None:
        try:
            connection = connect_reader(self._files.path)
            try:
                self._move(connection)
            finally:
                disconnect(connection)
        except (apsw.Error, StorageError, OSError) as error:
            # Nothing is lost: the pages stay where they are, and a later commit tries again.
            log.debug("a checkpoint of %s failed: %s", self._files.path, error)
        finally:
            self._running.release()

    def _move(self, connection: apsw.Connection) -> None:
        stored, _ = _checkpoint(connection, apsw.SQLITE_CHECKPOINT_PASSIVE)
        if stored >= _MANY_PAGES:
            with closing(FileWriteLock(self._files)) as turn, turn:
                _checkpoint(connection, apsw.SQLITE_CHECKPOINT_PASSIVE)

    def close(self) -> None:
        """Wait for the end of a checkpoint."""
        if self._running.acquire(timeout=_CLOSE_PATIENCE):
            self._running.release()


def checkpoint_and_shrink(files: DatabaseFiles) -> None:
    """Move everything, and give the room of a very large write-ahead file back to the disk."""
    connection = connect_reader(files.path)
    try:
        connection.set_busy_timeout(_TRUNCATE_PATIENCE_MS)
        large = Path(files.wal).stat().st_size > _LARGE_WAL
        mode = apsw.SQLITE_CHECKPOINT_TRUNCATE if large else apsw.SQLITE_CHECKPOINT_PASSIVE
        _checkpoint(connection, mode)
    except (apsw.BusyError, apsw.LockedError):
        log.debug("%s is in use; its write-ahead file is moved later", files.path)
    except apsw.Error as error:
        raise translate(error, files.path) from error
    finally:
        disconnect(connection)


def _checkpoint(connection: apsw.Connection, mode: int) -> tuple[int, int]:
    """Return the pages in the write-ahead file, and how many of them are in the database."""
    with FORK_GUARD:
        return connection.wal_checkpoint(mode=mode)
