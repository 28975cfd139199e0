"""The PostgreSQL backend as a `Storage`."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from datetime import datetime
from functools import partial
from pathlib import Path

from windlass._storage.postgres.admin.actions import PostgresActions
from windlass._storage.postgres.admin.admin import PostgresAdmin
from windlass._storage.postgres.copy.copy import PostgresCopy
from windlass._storage.postgres.flows.flows import PostgresFlows
from windlass._storage.postgres.health import server_health
from windlass._storage.postgres.io.connection import PostgresConnection, PostgresServer
from windlass._storage.postgres.io.database import (
    PostgresDatabase,
    PostgresDurability,
    quoted_schema,
)
from windlass._storage.postgres.io.schema import prepare_schema
from windlass._storage.postgres.io.tls import check_files
from windlass._storage.postgres.io.url import parse_url
from windlass._storage.postgres.io.wakeups import PostgresWakeups
from windlass._storage.postgres.jobs.jobs import PostgresJobs
from windlass._storage.postgres.journal import PostgresJournal
from windlass._storage.postgres.limits.limits import PostgresLimits
from windlass._storage.postgres.maintenance import PostgresMaintenance
from windlass._storage.postgres.queues import PostgresQueues
from windlass._storage.postgres.schedules import PostgresSchedules
from windlass._storage.postgres.transactions.transactions import PostgresTransactions
from windlass._storage.postgres.workers import PostgresLeader, PostgresWorkers
from windlass._storage.protocol.workers import WorkerStart
from windlass._storage.shared import migrations as migrate
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.shared.worker_locks import WorkerLocks, runtime_directory
from windlass._storage.timings import Timings
from windlass._system.seams import SYSTEM_CLOCK, Clock
from windlass.errors import ConfigError

__all__ = ["PostgresStorage", "open_postgres"]

_MIGRATIONS = "windlass._storage.postgres.migrations"
_NOW = load_sql("windlass._storage.postgres.sql", "admin.sql")["now"]

_MIGRATION_SECONDS = 600.0


class PostgresStorage:
    """A `Storage` on one schema of a PostgreSQL database."""

    def __init__(
        self, database: PostgresDatabase, locks: WorkerLocks, description: str, version: str
    ) -> None:
        self._db, self._locks = database, locks
        self._description, self._version = description, version
        self._closed = False
        self._wakeups = PostgresWakeups(database)
        self.workers: PostgresWorkers = PostgresWorkers(database, forget=locks.forget)
        self.leader: PostgresLeader = PostgresLeader(database)
        self.limits: PostgresLimits = PostgresLimits(database)
        self.maintenance: PostgresMaintenance = PostgresMaintenance(database, self._sweep_locks)
        self.jobs: PostgresJobs = PostgresJobs(database, on_ended=self.maintenance.ended)
        self.queues: PostgresQueues = PostgresQueues(database)
        self.schedules: PostgresSchedules = PostgresSchedules(database)
        self.admin: PostgresAdmin = PostgresAdmin(database)
        self.orders: PostgresActions = PostgresActions(database)
        self.flows: PostgresFlows = PostgresFlows(database)
        self.journal: PostgresJournal = PostgresJournal(database)
        self.moving: PostgresCopy = PostgresCopy(database)
        self.transactions: PostgresTransactions = PostgresTransactions(database)
        self.timings: Timings = database.timings

    @property
    def wakeups(self) -> PostgresWakeups:
        return self._wakeups

    @property
    def shared(self) -> bool:
        return True

    def describe(self) -> str:
        return self._description

    async def health(self) -> Mapping[str, float | str]:
        return await server_health(self._db, self._version)

    def prove_dead(self, worker: WorkerStart) -> bool:
        return self._locks.prove_dead(worker)

    def hold_worker_lock(self, worker: str) -> tuple[str, int, int]:
        return self._locks.hold(worker)

    def release_worker_lock(self, worker: str) -> None:
        self._locks.release(worker)

    async def _sweep_locks(self) -> None:
        live = {start.id for start in await self.workers.live()}
        self._locks.sweep(live, SYSTEM_CLOCK.now())

    async def now(self) -> datetime:
        rows = await self._db.fetch(_NOW, self._db.instant(), reads=True)
        now: datetime = rows[0][0]
        return now

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        await self._wakeups.close()
        await self.maintenance.close()
        await self._db.close()
        self._locks.close()


async def open_postgres(
    url: str,
    *,
    clock: Clock = SYSTEM_CLOCK,
    schema: str = "windlass",
    durability: PostgresDurability = "full",
    migrates: bool = True,
    timings: Timings | None = None,
) -> PostgresStorage:
    """Open the schema for the running event loop; make it where there is none.

    ``clock`` is for tests: otherwise the server's own clock is used. ``timings`` counts how long
    operations take. ``migrates``: create and migrate the tables; False raises `SchemaTooOld` where
    that is needed.
    """
    if durability not in {"full", "normal"}:
        raise ConfigError(
            f"durability is 'full' (nothing acknowledged is lost) or 'normal' (a crash of the "
            f"server may lose the last moments), got {durability!r}."
        )
    quoted_schema(schema)
    server = PostgresServer(check_files(parse_url(url)))
    where = server.address.shown
    migrations = migrate.find_migrations(_MIGRATIONS)
    door = PostgresConnection(server)
    try:
        facts = await door.use(
            partial(
                prepare_schema,
                schema=schema,
                migrations=migrations,
                where=where,
                migrates=migrates,
            ),
            within=_MIGRATION_SECONDS,
        )
    finally:
        await door.close()
    if server.pooled is None:
        server.note_pooled(pooled=facts.pooled)
    known = migrations[-1].version
    database = PostgresDatabase(
        server,
        schema=schema,
        clock=clock,
        durability=durability,
        known=known,
        timings=timings or Timings(),
    )
    pooler = ", through a pooler" if server.pooled else ""
    description = (
        f"PostgreSQL {facts.version} at {where}, schema {schema}, durability {durability}{pooler}"
    )
    locks = _locks_for(f"{where} {schema}")
    return PostgresStorage(database, locks, description, facts.version)


def _locks_for(place: str) -> WorkerLocks:
    """Locks that belong to this database and schema: another one's workers prove nothing here."""
    directory = runtime_directory()
    name = f"postgres-{zlib.crc32(place.encode()):08x}"
    return WorkerLocks(None if directory is None else str(Path(directory, name)))
