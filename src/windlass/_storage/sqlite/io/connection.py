"""Connections to one SQLite file: how they are set up, and what their errors mean."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeVar

import apsw

from windlass._storage.sqlite.io.files import DatabaseFiles, is_disk_full
from windlass._storage.sqlite.io.guards import (
    FileGuard,
    FileIdentity,
    FileWriteLock,
    WriteLock,
    file_identity_of,
    replaced_file_error,
)
from windlass._system.forks import FORK_GUARD, keep_in_child, may_close
from windlass._system.seams import chance, monotonic, sleep
from windlass.errors import (
    InvalidArgument,
    StorageError,
    StorageFull,
    StorageRefused,
    StorageUnavailable,
    StoreBusy,
    WindlassError,
)

__all__ = [
    "PAGES",
    "Checkpoints",
    "ConnectionSource",
    "FileSource",
    "MemorySource",
    "SqliteDurability",
    "connect",
    "connect_reader",
    "disconnect",
    "lock_pause",
    "retry_while_locked",
    "translate",
]

T = TypeVar("T")

# "full": a commit is on the disk before it is acknowledged. "normal": it survives the death of the
# process but the last moments may be lost when the power fails. Less is not offered: with
# synchronous off, two power cuts in five left a corrupt file.
SqliteDurability = Literal["full", "normal"]

PAGES = 1000
"""Pages in the write-ahead file that make a checkpoint worth its syncs."""
_STATEMENTS = 512
"""Prepared statements that a connection keeps: as many as apsw allows. It drops those put
back first, and every row of an ``executemany`` puts its statement back.
"""
_PATIENCE = 30.0
_OPEN_EXISTING = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_NOFOLLOW

# Memory maps turn an I/O error into a killed process, and have corrupted databases.
_SETTINGS = f"""
PRAGMA mmap_size = 0;
PRAGMA foreign_keys = OFF;
PRAGMA temp_store = MEMORY;
PRAGMA cache_size = -16384;
PRAGMA wal_autocheckpoint = {PAGES};
PRAGMA journal_size_limit = 67108864;
"""
_SYNCHRONOUS = {"full": "PRAGMA synchronous = FULL", "normal": "PRAGMA synchronous = NORMAL"}


def connect(path: str, *, durability: SqliteDurability = "full") -> apsw.Connection:
    """Open the existing, prepared file at ``path`` for reading and writing.

    Waits while another process is creating or recovering the same database. The connection never
    waits by itself afterwards (SQLite's own waiting starves): see `retry_while_locked`.
    """
    connection = _open(path)
    try:
        mode = retry_while_locked(lambda: _run(connection, "PRAGMA journal_mode = WAL"), _PATIENCE)
        if mode != "wal":
            raise StorageRefused(
                f"{path} cannot be put into write-ahead mode (it stays in {mode!r}). Use a local "
                f"disk whose file system has shared memory."
            )
        _run(connection, _SYNCHRONOUS[durability])
        _run(connection, _SETTINGS)
        # apsw's SQLite makes a new plan whenever a bound value changes unless told not to, which
        # doubles the time of a small claim.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        # The first read makes the -wal and -shm files, which the guard wants to know.
        retry_while_locked(
            lambda: _run(connection, "SELECT count(*) FROM sqlite_schema"), _PATIENCE
        )
    except apsw.Error as error:
        disconnect(connection)
        raise translate(error, path) from error
    except BaseException:
        disconnect(connection)
        raise
    return connection


def connect_reader(path: str) -> apsw.Connection:
    """Open the existing file for reading only.

    A reader is never blocked by writers, but must not leave a read unfinished: the write-ahead
    file cannot shrink below the oldest open read.
    """
    connection = _open(path)
    try:
        # A reader meets a lock only while the database is being created or recovered.
        connection.set_busy_timeout(5000)
        _run(connection, "PRAGMA query_only = ON; PRAGMA mmap_size = 0; PRAGMA temp_store = MEMORY")
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        _run(connection, "SELECT count(*) FROM sqlite_schema")
    except apsw.Error as error:
        disconnect(connection)
        raise translate(error, path) from error
    return connection


def _open(path: str) -> apsw.Connection:
    with FORK_GUARD:
        try:
            connection = apsw.Connection(path, flags=_OPEN_EXISTING, statementcachesize=_STATEMENTS)
        except apsw.Error as error:
            raise translate(error, path) from error
        keep_in_child(connection)
    return connection


def _run(connection: apsw.Connection, sql: str) -> Any:
    """Return the last value of a few statements; apsw runs a further one only when
    asked for more.
    """
    with FORK_GUARD:
        rows = connection.execute(sql).fetchall()
    return rows[-1][0] if rows else None


def retry_while_locked(step: Callable[[], T], patience: float) -> T:
    """Repeat ``step`` while another process holds the database, for at most
    ``patience`` seconds.
    """
    deadline = monotonic() + patience
    while True:
        try:
            return step()
        except (apsw.BusyError, apsw.LockedError):
            if monotonic() >= deadline:
                raise
            sleep(lock_pause())


def lock_pause() -> float:
    """Draw the seconds before the next try to get a lock.

    Short and uneven on purpose: SQLite's own pauses, which grow, lost against processes that write
    in a tight loop and failed after five seconds.
    """
    return 0.0002 + 0.0018 * chance()


# --- forks ----------------------------------------------------------------------------------

# A forked child must neither use nor close the connections of its parent: either can corrupt the
# database. A child forked in the middle of a transaction would believe that it holds the parent's
# locks, and a statement under way would leave a locked mutex behind: hence FORK_GUARD.


def disconnect(connection: apsw.Connection) -> None:
    """Close a connection this process opened; leave an inherited one alone."""
    with FORK_GUARD:
        if may_close(connection):
            connection.close()


# --- errors ---------------------------------------------------------------------------------


def translate(error: apsw.Error, path: str) -> WindlassError:
    """Translate an error of SQLite, with advice."""
    extended = getattr(error, "extendedresult", 0)
    if extended == apsw.SQLITE_READONLY_DBMOVED:
        return replaced_file_error(path)
    if isinstance(error, apsw.CantOpenError | apsw.IOError) and is_disk_full(path):
        error = apsw.FullError()  # SQLite's error if it cannot create one of its files
    match error:
        case apsw.BusyError() | apsw.LockedError():
            return StoreBusy(
                f"{path} is locked by another process; nothing was written. Try again."
            )
        case apsw.FullError():
            return StorageFull(
                f"The disk that holds {path} is full: free some space. Nothing was lost; try again "
                f"what was refused."
            )
        case apsw.CorruptError():
            return StorageError(
                f"{path} is damaged ({error}). Stop every process that uses it, keep a copy, and "
                f"restore a backup or rescue what can be read with SQLite's `.recover`."
            )
        case apsw.NotADBError():
            return StorageError(
                f"{path} is not a SQLite database. Name another file; this one was not changed."
            )
        case apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.AuthError():
            return StorageRefused(
                f"{path} cannot be written ({error}). Check the permissions of the file and of its "
                f"folder, and that the disk is not mounted read-only."
            )
        case apsw.CantOpenError():
            return StorageRefused(
                f"{path} cannot be opened ({error}). Check that its folder exists and that this "
                f"process may write there."
            )
        case apsw.IOError():
            return StorageUnavailable(
                f"Reading or writing {path} failed ({error}); nothing was acknowledged. Check the "
                f"disk and the system log. The next try uses a new connection."
            )
        case apsw.ConstraintError() | apsw.TooBigError():
            # Of these values alone: others can be stored.
            return InvalidArgument(f"SQLite cannot store this in {path}: {error}")
        case _:
            return StorageError(f"SQLite refused a statement on {path}: {error}")


# --- sources --------------------------------------------------------------------------------


class Checkpoints(Protocol):
    """Moves committed pages from the write-ahead file into the database."""

    def start(self) -> None: ...

    def close(self) -> None: ...


class ConnectionSource(Protocol):
    """Where a `Transactor` gets its connection, its turn and its last look before a commit."""

    path: str
    turn: WriteLock
    checkpoints: Checkpoints | None
    """Started by the commit that leaves `PAGES` to move; None: SQLite does it by itself."""

    @property
    def guard(self) -> FileGuard | None:
        """Asked before every commit whether what was opened is still there; None: it cannot go."""
        ...

    def open(self) -> apsw.Connection: ...

    def close(self) -> None: ...


class FileSource:
    """A prepared database file."""

    def __init__(
        self,
        files: DatabaseFiles,
        *,
        durability: SqliteDurability = "full",
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self.path: str = files.path
        self.checkpoints: Checkpoints | None = checkpoints
        self.turn: WriteLock = FileWriteLock(files)
        self._files, self._durability = files, durability
        self._database: FileIdentity | None = file_identity_of(files.path)
        self.guard: FileGuard | None = None

    def open(self) -> apsw.Connection:
        """Connect, again and again if need be, but never to another file than the first time."""
        if self._database is None or file_identity_of(self.path) != self._database:
            raise replaced_file_error(self.path)
        connection = connect(self.path, durability=self._durability)
        try:
            self.guard = FileGuard(self._files)
            if self.guard.database != self._database:
                raise replaced_file_error(self.path)
            if self.checkpoints is not None:
                connection.wal_autocheckpoint(0)
        except BaseException:
            disconnect(connection)
            raise
        return connection

    def close(self) -> None:
        self.turn.close()
        if self.checkpoints is not None:
            self.checkpoints.close()


class _NoWriteLock:
    def enter_now(self) -> bool:
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def close(self) -> None:
        pass


class MemorySource:
    """A database that lives in this process alone: what the simulation runs on."""

    path = ":memory:"

    def __init__(self) -> None:
        self.turn: WriteLock = _NoWriteLock()
        self.checkpoints: Checkpoints | None = None
        self.guard: FileGuard | None = None
        self._connection: apsw.Connection | None = None

    def open(self) -> apsw.Connection:
        """Open the same database every time: a discarded connection must not lose it."""
        if self._connection is None:
            self._connection = apsw.Connection(self.path, statementcachesize=_STATEMENTS)
            self._connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        return self._connection

    def close(self) -> None:
        pass
