"""Background work in bounded steps. All of it skips locked rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime, timedelta

from windlass._core.job.job import JobId
from windlass._core.job.state import TERMINAL, State
from windlass._core.values.instants import span_us
from windlass._storage.postgres.health import VacuumHealth
from windlass._storage.postgres.io.database import PostgresDatabase
from windlass._storage.postgres.io.records import CODES
from windlass._storage.shared.sql_files import load_sql

__all__ = ["PostgresMaintenance"]

_SQL = load_sql("windlass._storage.postgres.sql", "admin.sql")
_NEXT_DUE, _PRUNE, _PRUNE_ROLLUPS = _SQL["next_due"], _SQL["prune"], _SQL["prune_rollups"]
_PRUNE_WORKERS, _PROMOTE, _EXPIRE = _SQL["prune_workers"], _SQL["promote"], _SQL["expire"]
_FORGET_GATES, _SWEEP_HOLDS = _SQL["forget_gates"], _SQL["sweep_holds"]
_COMPACT_ROLLUPS, _SWEEP_TRACES = _SQL["compact_rollups"], _SQL["sweep_traces"]
_PRUNE_GAUGES, _COMPACT_GAUGES = _SQL["prune_gauges"], _SQL["compact_gauges"]
_PRUNE_AUDITS, _PRUNE_EVENTS = _SQL["prune_audits"], _SQL["prune_events"]

_GATES_AT_ONCE = 500
_TRACES_AT_ONCE = 1_000


class PostgresMaintenance:
    """A `MaintenanceStore`."""

    def __init__(self, database: PostgresDatabase, sweep: Callable[[], Awaitable[None]]) -> None:
        """Make the store. ``sweep`` removes the locks of workers that were never declared dead."""
        self._db, self._sweep = database, sweep
        self._health = VacuumHealth(database)

    def ended(self, count: int) -> None:
        """Count claims that were ended through this storage: their old rows are dead."""
        self._health.ended(count)

    async def close(self) -> None:
        """Stop what runs in the background."""
        await self._health.close()

    async def _count(self, sql: str, *args: object) -> int:
        rows = await self._db.fetch_aside(self._db.sql(sql), self._db.instant(), *args)
        return int(rows[0][0])

    async def promote(self, limit: int) -> int:
        moved = await self._count(_PROMOTE, self._db.durable, limit)
        if moved:
            self._db.wake()
        return moved

    async def next_due(self, queues: Sequence[str] | None = None) -> datetime | None:
        asked = None if queues is None else list(queues)
        rows = await self._db.fetch_aside(self._db.sql(_NEXT_DUE), asked, reads=True)
        due: datetime | None = rows[0][0]
        return due

    async def expire(self, limit: int) -> Sequence[JobId]:
        sql = self._db.sql(_EXPIRE)
        rows = await self._db.fetch_aside(sql, self._db.instant(), self._db.durable, limit)
        ended = [JobId(job) for job in rows[0][0]]
        if ended:
            self._db.wake()
        return ended

    async def prune(
        self,
        *,
        state: State,
        older_than: timedelta,
        limit: int,
        apart: Mapping[str, timedelta] | None = None,
    ) -> int:
        if state not in TERMINAL:
            return 0
        kept = apart or {}
        spans = [span_us(span) for span in kept.values()]
        return await self._count(
            _PRUNE, CODES[state], span_us(older_than), limit, list(kept), spans
        )

    async def prune_rollups(self, *, older_than: timedelta, limit: int) -> int:
        return await self._count(_PRUNE_ROLLUPS, span_us(older_than), limit)

    async def compact_rollups(self, *, older_than: timedelta, limit: int) -> int:
        return await self._count(_COMPACT_ROLLUPS, span_us(older_than), limit)

    async def prune_gauges(self, *, older_than: timedelta, limit: int) -> int:
        return await self._count(_PRUNE_GAUGES, span_us(older_than), limit)

    async def compact_gauges(self, *, older_than: timedelta, limit: int) -> int:
        return await self._count(_COMPACT_GAUGES, span_us(older_than), limit)

    async def prune_audits(self, *, older_than: timedelta, limit: int) -> int:
        return await self._count(_PRUNE_AUDITS, span_us(older_than), limit)

    async def prune_events(self, *, older_than: timedelta, limit: int) -> int:
        return await self._count(_PRUNE_EVENTS, span_us(older_than), limit)

    async def prune_workers(self, *, older_than: timedelta, limit: int) -> int:
        return await self._count(_PRUNE_WORKERS, span_us(older_than), limit)

    async def tidy(self) -> None:
        # Units of limits that came back unheard, with a commit of the user's own.
        if (await self._db.fetch_aside(self._db.sql(_SWEEP_HOLDS)))[0][0]:
            self._db.wake()
        after: str | None = ""
        while after is not None:
            rows = await self._db.fetch_aside(
                self._db.sql(_FORGET_GATES), self._db.instant(), after, _GATES_AT_ONCE
            )
            after = rows[0][0]
        await self._db.fetch_aside(self._db.sql(_SWEEP_TRACES), _TRACES_AT_ONCE)
        await self._sweep()
        await self._health.check()
