"""Opening a database: reads the schema, and creates or migrates it.

Several processes may open a new database at once: one makes the schema, the others wait for it.
Where everything is there already no change is tried, so a role without the right to create may use
what another one has made.

Tables change by numbered migrations. Functions are made anew, all of them, whenever the number
moves: so there is one text of each. To change one, add a migration, which drops the function first
if its arguments or results change. Their search path and planner settings are set in one place, by
the last text (99_settings.sql).
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from importlib import resources

import asyncpg
import msgspec

from windlass._storage.postgres.io.database import in_schema, quoted_schema
from windlass._storage.shared.migrations import Migration, check_known, refuse_older
from windlass.errors import StorageError, StorageRefused, StorageUnavailable

__all__ = ["SchemaFacts", "prepare_schema"]

OLDEST = 13
_FUNCTIONS = "windlass._storage.postgres.functions"
_NEWEST = "SELECT max(version) FROM windlass.schema_versions"
_LOCK = 0x77696E64  # "wind": the first half of the lock's key, the schema is the second


class SchemaFacts(msgspec.Struct, frozen=True):
    """The facts that were read at opening."""

    version: str
    pooled: bool
    """The process that answers is not the one that greeted us: a pooler is between."""
    applied: Sequence[int] = ()


async def prepare_schema(
    connection: asyncpg.Connection,
    schema: str,
    migrations: Sequence[Migration],
    where: str,
    *,
    migrates: bool = True,
) -> SchemaFacts:
    """Look at the server and bring the schema up to date. May be repeated.

    ``migrates``: False raises `SchemaTooOld` where a migration is needed.
    """
    number = connection.get_server_version()
    if number.major < OLDEST:
        raise StorageError(
            f"PostgreSQL at {where} is version {number.major}; Windlass needs {OLDEST} or newer."
        )
    row = await connection.fetchrow(
        "SELECT pg_backend_pid(), pg_is_in_recovery(), current_setting('transaction_read_only')"
    )
    if row[1] or row[2] == "on":
        raise StorageUnavailable(
            f"PostgreSQL at {where} takes no writes: it is a standby, or "
            f"default_transaction_read_only is on. Use the primary's host; with several hosts in "
            f"the URL (postgresql://a,b/name) the one that takes writes is found."
        )
    place = f"the schema {schema} at {where}"
    stored = await _stored_version(connection, schema)
    check_known(stored, migrations, place)
    applied: list[int] = []
    if stored < migrations[-1].version:
        if not migrates:
            refuse_older(stored, migrations[-1].version, place)
        applied = await _migrate(connection, schema, migrations, place)
    return SchemaFacts(
        version=str(connection.get_settings().server_version).split()[0],
        pooled=row[0] != connection.get_server_pid(),
        applied=applied,
    )


async def _stored_version(connection: asyncpg.Connection, schema: str) -> int:
    table = f"{quoted_schema(schema)}.schema_versions"
    if await connection.fetchval("SELECT to_regclass($1) IS NULL", table):
        return 0
    newest = await connection.fetchval(in_schema(_NEWEST, quoted_schema(schema)))
    return int(newest or 0)


async def _migrate(
    connection: asyncpg.Connection, schema: str, migrations: Sequence[Migration], place: str
) -> list[int]:
    applied: list[int] = []
    try:
        async with connection.transaction(isolation="read_committed"):
            # However little time a role's statements are given: this is no ordinary one.
            await connection.execute(
                "SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = '60s'"
            )
            lock = zlib.crc32(schema.encode()) - 2**31
            await connection.execute("SELECT pg_advisory_xact_lock($1, $2)", _LOCK, lock)
            await _make_schema(connection, schema)
            stored = await _stored_version(connection, schema)
            check_known(stored, migrations, place)
            for migration in migrations:
                if migration.version > stored:
                    await connection.execute(migration.sql)
                    await connection.execute(
                        "INSERT INTO schema_versions (version) VALUES ($1)", migration.version
                    )
                    applied.append(migration.version)
            if applied:
                for text in _functions():
                    await connection.execute(text)
    except asyncpg.InsufficientPrivilegeError as error:
        user = await connection.fetchval("SELECT current_user")
        raise StorageRefused(
            f"The role {user} may not create or change {place}. With a role that may, run "
            f"CREATE SCHEMA {schema} AUTHORIZATION {user}, or `windlass db migrate`. "
            f"PostgreSQL said: {error.message}"
        ) from error
    return applied


def _functions() -> Iterator[str]:
    """Read the texts that make them, in order: some are called by others when these are made.

    The last one gives all of them their settings, in the same transaction.
    """
    files = resources.files(_FUNCTIONS).iterdir()
    for file in sorted(files, key=lambda file: file.name):
        if file.name.endswith(".sql"):
            yield file.read_text(encoding="utf-8")


async def _make_schema(connection: asyncpg.Connection, schema: str) -> None:
    quoted = quoted_schema(schema)
    if not await connection.fetchval("SELECT to_regnamespace($1) IS NOT NULL", quoted):
        await connection.execute(
            await connection.fetchval("SELECT format('CREATE SCHEMA %I', $1::text)", schema)
        )
    # Functions find their names here: not in the search path of the caller, and before the caller's
    # temporary tables.
    await connection.execute("SELECT set_config('search_path', $1, true)", f"{quoted}, pg_temp")
    await connection.execute(
        "CREATE TABLE IF NOT EXISTS schema_versions ("
        " version integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())"
    )
