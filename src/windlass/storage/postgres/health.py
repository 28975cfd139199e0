"""Dead rows, and whoever keeps them from being removed."""

from __future__ import annotations

import logging
from datetime import timedelta

from windlass.errors import StorageError
from windlass.seams import monotonic
from windlass.storage.postgres.connection import Row
from windlass.storage.postgres.database import Database
from windlass.storage.queries import load

__all__ = ["Health"]

log = logging.getLogger("windlass")

_SQL = load("windlass.storage.postgres.sql", "health.sql")
_DEAD_ROWS, _HOLDING_BACK = _SQL["dead_rows"], _SQL["holding_back"]
_VACUUM = {name[7:]: text for name, text in _SQL.items() if name.startswith("vacuum_")}
"""By table."""

_DEAD_AT_LEAST = 5_000
_DEAD_SHARE = 0.05
_VACUUM_SECONDS = 600.0
OLD_AFTER = timedelta(minutes=5)


class Health:
    """Vacuums our tables when it is worth it, and names what makes vacuuming useless.

    A queue is dead rows with a few live ones between: every claim reads past the dead ones that
    are not removed yet, at about a quarter of a millisecond per thousand.
    """

    def __init__(self, database: Database, *, old_after: timedelta = OLD_AFTER) -> None:
        self._db, self._old_after = database, old_after.total_seconds()
        self._seen: dict[tuple[str, str], float] = {}
        self._said: set[tuple[str, str]] = set()

    async def check(self) -> None:
        """Look, clean, and say once what somebody should know."""
        await self._watch()
        await self._vacuum()

    async def _vacuum(self) -> None:
        schema = self._db.schema.strip('"')
        for table, dead, live in await self._db.fetch_aside(_DEAD_ROWS, schema):
            if table in _VACUUM and dead > _DEAD_AT_LEAST + live * _DEAD_SHARE:
                await self._vacuum_table(table)

    async def _vacuum_table(self, table: str) -> None:
        statement = self._db.sql(_VACUUM[table])
        try:
            await self._db.side.use(
                lambda connection: connection.execute(statement),
                again=False,
                within=_VACUUM_SECONDS,
            )
        except StorageError as error:
            log.warning("%s was not vacuumed: %s", table, error)

    async def _watch(self) -> None:
        found = {
            (row["who"], row["horizon"]): row for row in await self._db.fetch_aside(_HOLDING_BACK)
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
