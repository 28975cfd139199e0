"""Dead rows, and the transactions that keep them from being removed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta

from windlass._storage.postgres.io.connection import (
    RETRY_SECONDS,
    STATEMENT_SECONDS,
    PostgresConnection,
    Row,
)
from windlass._storage.postgres.io.database import PostgresDatabase
from windlass._storage.shared.sql_files import load_sql
from windlass._system.seams import monotonic
from windlass.errors import StorageError

__all__ = ["VacuumHealth", "server_health"]

log = logging.getLogger("windlass")

_SQL = load_sql("windlass._storage.postgres.sql", "health.sql")
_DEAD_ROWS, _HOLDING_BACK = _SQL["dead_rows"], _SQL["holding_back"]
_VACUUM = {name[7:]: text for name, text in _SQL.items() if name.startswith("vacuum_")}
"""By table."""

_DEAD_AT_LEAST = 5_000
_DEAD_SHARE = 0.05
_LOOK_AFTER = 100_000
"""Ended claims after which dead rows are counted, at any time. A busy worker leaves that many
behind in a few seconds; after 350,000 without a vacuum a job took the server 68 µs, not 41.
"""
_VACUUM_SECONDS = 600.0
OLD_AFTER = timedelta(minutes=5)

_FACTS = _SQL["facts"]


async def server_health(database: PostgresDatabase, version: str) -> Mapping[str, float | str]:
    """`Storage.health`. What the server does not tell this role is left out."""
    facts: dict[str, float | str] = {
        "version": version,
        "durability": database.durability,
        "pooled": "yes" if database.server.pooled else "no",
        "pool": "at most 5 connections for each worker process",
        "statement_timeout": STATEMENT_SECONDS,
        "retry_for": RETRY_SECONDS,
    }
    rows = await database.fetch_aside(_FACTS, database.schema.strip('"'), reads=True)
    facts |= {name: value for name, value in rows[0].items() if value is not None}
    holders = [
        (row["seconds"], row["who"])
        for row in await database.fetch_aside(_HOLDING_BACK, reads=True)
        if row["seconds"] is not None
    ]
    if holders:
        facts["oldest_snapshot"], facts["oldest_snapshot_of"] = max(holders)
    return facts


class VacuumHealth:
    """Vacuums our tables when it is worth it, and names what makes vacuuming useless.

    A queue is dead rows with a few live ones between: every claim reads past the dead ones that are
    not removed yet, at about a quarter of a millisecond per thousand. Vacuums have a separate
    connection: they take long, and no caller waits for them.
    """

    def __init__(self, database: PostgresDatabase, *, old_after: timedelta = OLD_AFTER) -> None:
        self._db, self._old_after = database, old_after.total_seconds()
        self._broom = PostgresConnection(database.server)
        self._ended = 0
        self._sweeping: asyncio.Task[None] | None = None
        self._seen: dict[tuple[str, str], float] = {}
        self._said: set[tuple[str, str]] = set()

    async def check(self) -> None:
        """Check, vacuum, and log once what an operator should know."""
        await self._watch()
        await self._vacuum()

    def ended(self, count: int) -> None:
        """Count ended claims: after enough of them, vacuum in the background."""
        self._ended += count
        if self._ended >= _LOOK_AFTER and self._sweeping is None:
            self._ended = 0
            self._sweeping = asyncio.get_running_loop().create_task(self._sweep_up())

    async def _sweep_up(self) -> None:
        try:
            await self._vacuum()
        except StorageError as error:
            log.debug("dead rows were not looked for: %s", error)
        finally:
            self._sweeping = None

    async def close(self) -> None:
        """Leave a vacuum that is under way: the next one begins where it ended."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._sweeping
        await self._broom.abandon()

    async def _vacuum(self) -> None:
        schema = self._db.schema.strip('"')
        for table, dead, live in await self._db.fetch_aside(_DEAD_ROWS, schema, reads=True):
            if table in _VACUUM and dead > _DEAD_AT_LEAST + live * _DEAD_SHARE:
                await self._vacuum_table(table)
        await self._broom.hang_up()

    async def _vacuum_table(self, table: str) -> None:
        statement = self._db.sql(_VACUUM[table])
        try:
            await self._broom.use(
                lambda connection: connection.execute(statement),
                again=False,
                within=_VACUUM_SECONDS,
            )
        except StorageError as error:
            log.warning("%s was not vacuumed: %s", table, error)

    async def _watch(self) -> None:
        found = {
            (row["who"], row["horizon"]): row
            for row in await self._db.fetch_aside(_HOLDING_BACK, reads=True)
        }
        now = monotonic()
        self._seen = {one: self._seen.get(one, now) for one in found}
        self._said &= found.keys()
        for one, row in found.items():
            age = max(row["seconds"] or 0.0, now - self._seen[one])
            if age >= self._old_after and one not in self._said:
                self._said.add(one)
                _say(row, age)


def _say(row: Row, age: float) -> None:
    log.warning(
        "%s has held the same snapshot of the database for %.0f s (role %s, application %s, %s). "
        "Until it ends, finished rows cannot be removed and claims get slower. End it, for example "
        "with pg_terminate_backend, and look for transactions that are left open.",
        row["who"],
        age,
        row["role"] or "not shown",
        row["application"] or "not named",
        row["state"],
    )
