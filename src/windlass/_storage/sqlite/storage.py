"""The SQLite backend as a `Storage`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import apsw

from windlass._storage.protocol.workers import WorkerStart
from windlass._storage.shared import migrations as migrate
from windlass._storage.sqlite.admin.actions import SqliteActions
from windlass._storage.sqlite.admin.admin import SqliteAdmin
from windlass._storage.sqlite.copy.copy import SqliteCopy
from windlass._storage.sqlite.flows.flows import SqliteFlows
from windlass._storage.sqlite.io.checkpoints import Checkpointer
from windlass._storage.sqlite.io.connection import ConnectionSource, FileSource, SqliteDurability
from windlass._storage.sqlite.io.database import SqliteDatabase, WriterProtocol
from windlass._storage.sqlite.io.files import prepare_file
from windlass._storage.sqlite.io.inline_writer import InlineWriter
from windlass._storage.sqlite.io.location import DatabaseLocation, FileLocation, MemoryLocation
from windlass._storage.sqlite.io.rows import value_of
from windlass._storage.sqlite.io.transactor import Transactor
from windlass._storage.sqlite.io.wakeups import SqliteWakeups, Watcher
from windlass._storage.sqlite.io.writer import DEADLINE, Writer
from windlass._storage.sqlite.jobs.jobs import SqliteJobs
from windlass._storage.sqlite.journal import SqliteJournal
from windlass._storage.sqlite.limits.limits import SqliteLimits
from windlass._storage.sqlite.maintenance import SqliteMaintenance
from windlass._storage.sqlite.queues import SqliteQueues
from windlass._storage.sqlite.schedules import SqliteSchedules
from windlass._storage.sqlite.workers import SqliteLeader, SqliteWorkers
from windlass._storage.timings import Durations, Timings
from windlass._system.forks import FORK_GUARD
from windlass._system.seams import SYSTEM_CLOCK, Clock
from windlass.errors import ConfigError

__all__ = ["SqliteStorage", "open_in_memory", "open_sqlite"]

MakeWriter = Callable[[Transactor, Durations], WriterProtocol]

_MIGRATIONS = "windlass._storage.sqlite.migrations"

_SIZE = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"


class SqliteStorage:
    """A `Storage` on one SQLite file, or on a database in memory."""

    def __init__(
        self,
        database: SqliteDatabase,
        place: DatabaseLocation,
        description: str,
        timings: Timings,
    ) -> None:
        self._db, self._place, self._description = database, place, description
        self.timings: Timings = timings
        self._wakeups = SqliteWakeups(database, place.watch)
        self._closed = False
        self.jobs: SqliteJobs = SqliteJobs(database)
        self.workers: SqliteWorkers = SqliteWorkers(database, forget=place.forget_worker)
        self.leader: SqliteLeader = SqliteLeader(database)
        self.limits: SqliteLimits = SqliteLimits(database)
        self.maintenance: SqliteMaintenance = SqliteMaintenance(database, place)
        self.queues: SqliteQueues = SqliteQueues(database)
        self.schedules: SqliteSchedules = SqliteSchedules(database)
        self.admin: SqliteAdmin = SqliteAdmin(database)
        self.orders: SqliteActions = SqliteActions(database)
        self.flows: SqliteFlows = SqliteFlows(database)
        self.journal: SqliteJournal = SqliteJournal(database)
        self.moving: SqliteCopy = SqliteCopy(database)

    @property
    def transactions(self) -> None:
        return None

    @property
    def wakeups(self) -> SqliteWakeups:
        return self._wakeups

    @property
    def shared(self) -> bool:
        return self._place.shared

    def describe(self) -> str:
        return self._description

    async def health(self) -> Mapping[str, float | str]:
        size, journal = await self._db.ask(
            lambda connection, _: (value_of(connection, _SIZE), connection.pragma("journal_mode"))
        )
        asked = {"version": apsw.sqlite_lib_version(), "size": size, "journal_mode": journal}
        return asked | self._place.health() | {"busy_timeout": DEADLINE.total_seconds()}

    def prove_dead(self, worker: WorkerStart) -> bool:
        return self._place.prove_dead(worker)

    def hold_worker_lock(self, worker: str) -> tuple[str, int, int]:
        return self._place.hold_worker_lock(worker)

    def release_worker_lock(self, worker: str) -> None:
        self._place.release_worker_lock(worker)

    async def now(self) -> datetime:
        return self._db.clock.now()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._wakeups.close()
        await self._db.close()
        self._place.close()


async def open_sqlite(
    path: str | os.PathLike[str],
    *,
    clock: Clock = SYSTEM_CLOCK,
    durability: SqliteDurability = "full",
    allow_network_filesystem: bool = False,
    migrates: bool = True,
    make_writer: MakeWriter = Writer,
    timings: Timings | None = None,
) -> SqliteStorage:
    """Open the database at ``path`` for the running event loop; make it where there is none.

    ``clock`` and ``make_writer`` are for tests and the simulation, which passes `InlineWriter`.
    ``timings`` counts how long operations take. ``migrates``: create and migrate the tables; False
    raises `SchemaTooOld` where that is needed.
    """
    if durability not in {"full", "normal"}:
        raise ConfigError(
            f"durability is 'full' (nothing acknowledged is lost) or 'normal' (a power cut may "
            f"lose the last moments), got {durability!r}. There is no lower level: it could "
            f"damage the file."
        )
    if not migrates:
        _require_file(os.fspath(path))
    files = prepare_file(os.fspath(path), allow_network_filesystem=allow_network_filesystem)
    _refuse_foreign_file(files.path)
    description = f"SQLite {apsw.sqlite_lib_version()} at {files.path}, durability {durability}"
    source = FileSource(files, durability=durability, checkpoints=Checkpointer(files))
    place = FileLocation(files, durability)
    return await _open(
        source,
        place,
        clock=clock,
        make_writer=make_writer,
        about=description,
        timings=timings,
        migrates=migrates,
    )


def _require_file(path: str) -> None:
    """Refuse a file that would have to be made, where opening must not make it."""
    if not Path(path).exists():
        migrate.refuse_older(0, migrate.find_migrations(_MIGRATIONS)[-1].version, path)


def _refuse_foreign_file(path: str) -> None:
    """Look before anything is changed: the mode of the file, or a lock beside it."""
    with FORK_GUARD, suppress(apsw.Error):  # what cannot be read now is judged when it is opened
        connection = apsw.Connection(path, flags=apsw.SQLITE_OPEN_READONLY)
        try:
            migrate.refuse_foreign_database(connection)
        finally:
            connection.close()


async def open_in_memory(
    source: ConnectionSource,
    *,
    clock: Clock = SYSTEM_CLOCK,
    make_writer: MakeWriter = InlineWriter,
    watch: Callable[[], Watcher | None] = lambda: None,
) -> SqliteStorage:
    """Open a database that lives in this process; several storages may share one source.

    ``watch`` makes what tells this storage about the changes of the others.
    """
    description = f"SQLite {apsw.sqlite_lib_version()} in memory"
    place = MemoryLocation(source, watch)
    return await _open(source, place, clock=clock, make_writer=make_writer, about=description)


async def _open(
    source: ConnectionSource,
    place: DatabaseLocation,
    *,
    clock: Clock,
    make_writer: MakeWriter,
    about: str,
    timings: Timings | None = None,
    migrates: bool = True,
) -> SqliteStorage:
    timings = timings or Timings()
    writer = make_writer(Transactor(source, clock), timings.writes)
    migrations = migrate.find_migrations(_MIGRATIONS)
    known = migrations[-1].version
    threads = isinstance(writer, Writer)
    database = SqliteDatabase(
        writer,
        place,
        clock,
        path=source.path,
        known=known,
        timings=timings,
        threads=threads,
    )

    def prepare(connection: apsw.Connection, _: int) -> None:
        if migrates:
            migrate.apply_sqlite(connection, migrations, clock.now())
        else:
            migrate.require_sqlite(connection, migrations)

    try:
        await database.write(prepare)
    except BaseException:
        await database.close()
        raise
    return SqliteStorage(database, place, about, timings)
