"""Deleting the schema of Windlass, and nothing that another program put into it."""

from __future__ import annotations

import re
from functools import partial

import asyncpg

from windlass._storage.postgres.io.connection import PostgresConnection, PostgresServer
from windlass._storage.postgres.io.database import quoted_schema
from windlass._storage.postgres.io.tls import check_files
from windlass._storage.postgres.io.url import parse_url
from windlass._storage.shared.migrations import find_migrations
from windlass.errors import StorageRefused

__all__ = ["drop_postgres"]

_TABLE = re.compile(r"^CREATE TABLE (\w+)", re.MULTILINE)
_DROP = "SELECT format('DROP SCHEMA IF EXISTS %I CASCADE', $1::text)"
_CREATE = "SELECT format('CREATE SCHEMA %I', $1::text)"
_TABLES = """
SELECT c.relname FROM pg_class c
 WHERE c.relnamespace = to_regnamespace($1) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""
_EXTENSION = """
SELECT e.extname FROM pg_extension e WHERE e.extnamespace = to_regnamespace($1) LIMIT 1
"""


async def drop_postgres(url: str, schema: str, *, recreate: bool = False) -> None:
    """Drop the schema. Refuse one with tables or extensions that Windlass did not create.

    ``recreate``: create it again, empty, in the same transaction. So a role that may not create
    schemas deletes nothing.
    """
    door = PostgresConnection(PostgresServer(check_files(parse_url(url))))
    try:
        await door.use(partial(_drop, schema=schema, recreate=recreate, where=door.where))
    finally:
        await door.close()


async def _drop(connection: asyncpg.Connection, *, schema: str, recreate: bool, where: str) -> None:
    quoted = quoted_schema(schema)
    try:
        async with connection.transaction():
            await _refuse_others(connection, quoted, f"the schema {schema} at {where}")
            await connection.execute(await connection.fetchval(_DROP, schema))
            if recreate:
                await connection.execute(await connection.fetchval(_CREATE, schema))
    except asyncpg.InsufficientPrivilegeError as error:
        user = await connection.fetchval("SELECT current_user")
        verb = "drop and create" if recreate else "drop"
        raise StorageRefused(
            f"The role {user} may not {verb} the schema {schema} at {where}: nothing was deleted. "
            f"Use a role that may. PostgreSQL said: {error.message}"
        ) from error


async def _refuse_others(connection: asyncpg.Connection, quoted: str, place: str) -> None:
    """Refuse a schema that other programs use: a drop would take their tables with it."""
    found = {row[0] for row in await connection.fetch(_TABLES, quoted)}
    others = sorted(found - _our_tables())
    extension = await connection.fetchval(_EXTENSION, quoted)
    if extension is not None:
        others.append(f"the extension {extension}")
    if others or quoted == '"public"':
        what = f" (it has {others[0]})" if others else ""
        raise StorageRefused(
            f"Other programs use {place}{what}: nothing was deleted. Drop the tables of Windlass "
            f"by hand."
        )


def _our_tables() -> set[str]:
    migrations = find_migrations("windlass._storage.postgres.migrations")
    made = {name for each in migrations for name in _TABLE.findall(each.sql)}
    return made | {"schema_versions"}
