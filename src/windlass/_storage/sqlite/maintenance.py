"""Background work in bounded steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

import apsw
import msgspec

from windlass._core.job.job import JobId
from windlass._core.job.state import TERMINAL, State
from windlass._core.values.instants import LAST_US, span_us
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.sqlite.admin.gauges import merge_gauge_hours
from windlass._storage.sqlite.admin.rollups import merge_hours
from windlass._storage.sqlite.io.database import SqliteDatabase
from windlass._storage.sqlite.io.location import DatabaseLocation
from windlass._storage.sqlite.io.rows import CODES, fetch, next_instant
from windlass._storage.sqlite.jobs.apply_effects import delete_jobs
from windlass._storage.sqlite.jobs.unique_keys import free_keys
from windlass._storage.sqlite.jobs.waiting_jobs import end_waiting, has_due, next_due, promote_all
from windlass._storage.sqlite.limits.lanes import LaneChanges
from windlass._storage.sqlite.limits.limits import delete_unused_budgets

__all__ = ["SqliteMaintenance"]

_EXPIRED = load_sql("windlass._storage.sqlite.sql", "claim.sql")["expired"]
_PRUNABLE = load_sql("windlass._storage.sqlite.sql", "admin.sql")["prunable"]
_PRUNE_ROLLUPS = load_sql("windlass._storage.sqlite.sql", "rollups.sql")["prune_rollups"]
_PRUNE_GAUGES = load_sql("windlass._storage.sqlite.sql", "gauges.sql")["prune"]
_PRUNE_AUDITS = load_sql("windlass._storage.sqlite.sql", "actions.sql")["prune_audits"]
_PRUNE_EVENTS = load_sql("windlass._storage.sqlite.sql", "journal.sql")["prune_events"]
_WORKERS = load_sql("windlass._storage.sqlite.sql", "workers.sql")
_PRUNE_WORKERS, _LIVE = _WORKERS["prune_workers"], _WORKERS["live"]

_encode = msgspec.json.Encoder().encode

_GATES_AT_ONCE = 500

_WALK_AGAIN = 3_600_000_000
"""Microseconds after which `SqliteMaintenance.prune` looks at all ended jobs again. In between it
begins where it stopped, so that it does not pass the members of flows, which stay, each time. A job
that was stored with an older end, by a restore or a clock that was set back, waits for that.
"""


class _Pruned(NamedTuple):
    """How far ended jobs were deleted: all that ended before these instants."""

    walked: int
    """When all of them were looked at."""
    before: int
    apart: str
    """JSON: instants of single queues."""


class SqliteMaintenance:
    """A `MaintenanceStore`."""

    def __init__(self, database: SqliteDatabase, place: DatabaseLocation) -> None:
        self._db, self._place = database, place
        self._pruned: dict[State, _Pruned] = {}
        """How far ended jobs were deleted, by state."""

    async def promote(self, limit: int) -> int:
        # Most often nothing is due, and the write lock is everybody's.
        if not self._db.read(has_due):
            return 0
        moved = await self._db.write(
            lambda connection, now: promote_all(connection, limit=limit, now=now)
        )
        self._db.subscribers.wake()
        return moved

    async def next_due(self, queues: Sequence[str] | None = None) -> datetime | None:
        return next_instant(self._db.read(lambda connection, _: next_due(connection, queues)))

    async def expire(self, limit: int) -> Sequence[JobId]:
        ended = await self._db.write(lambda connection, now: _expire(connection, limit, now))
        self._db.subscribers.wake()
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
        kept = {queue: span_us(age) for queue, age in (apart or {}).items()}
        last = self._pruned.get(state)

        def op(connection: apsw.Connection, now: int) -> tuple[int, _Pruned]:
            ages = _encode({queue: _before(now, age) for queue, age in kept.items()}).decode()
            found = _Pruned(now, _before(now, span_us(older_than)), ages)
            since = _Pruned(now, -LAST_US, "{}")
            if last is not None and 0 <= now - last.walked < _WALK_AGAIN:
                found, since = found._replace(walked=last.walked), last
            values = (CODES[state], found.before, found.apart, limit, since.before, since.apart)
            return _prune(connection, values), found

        deleted, pruned = await self._db.write(op)
        if deleted < limit:
            self._pruned[state] = pruned
        return deleted

    async def prune_rollups(self, *, older_than: timedelta, limit: int) -> int:
        return await self._remove(_PRUNE_ROLLUPS, older_than, limit)

    async def compact_rollups(self, *, older_than: timedelta, limit: int) -> int:
        return await self._db.write(
            lambda connection, now: merge_hours(
                connection, _before(now, span_us(older_than)), limit
            )
        )

    async def prune_gauges(self, *, older_than: timedelta, limit: int) -> int:
        return await self._remove(_PRUNE_GAUGES, older_than, limit)

    async def compact_gauges(self, *, older_than: timedelta, limit: int) -> int:
        return await self._db.write(
            lambda connection, now: merge_gauge_hours(
                connection, _before(now, span_us(older_than)), limit
            )
        )

    async def prune_audits(self, *, older_than: timedelta, limit: int) -> int:
        return await self._remove(_PRUNE_AUDITS, older_than, limit)

    async def prune_events(self, *, older_than: timedelta, limit: int) -> int:
        return await self._remove(_PRUNE_EVENTS, older_than, limit)

    async def _remove(self, sql: str, older_than: timedelta, limit: int) -> int:
        """Run a statement that deletes what is older, at most so much."""

        def op(connection: apsw.Connection, now: int) -> int:
            connection.execute(sql, (_before(now, span_us(older_than)), limit))
            return connection.changes()

        return await self._db.write(op)

    async def prune_workers(self, *, older_than: timedelta, limit: int) -> int:
        def op(connection: apsw.Connection, now: int) -> int:
            return len(fetch(connection, _PRUNE_WORKERS, (now - span_us(older_than), limit)))

        return await self._db.write(op)

    async def tidy(self) -> None:
        after: str | None = ""
        while after is not None:
            step = partial(delete_unused_budgets, after=after, limit=_GATES_AT_ONCE)
            after = await self._db.write(step)
        live = self._db.read(lambda connection, _: fetch(connection, _LIVE))
        self._place.sweep({worker for (worker,) in live}, self._db.clock.now())
        await self._place.checkpoint()


def _expire(connection: apsw.Connection, limit: int, now: int) -> list[JobId]:
    seqs = [seq for (seq,) in fetch(connection, _EXPIRED, (now, limit))]
    if not seqs:
        return []
    lanes = LaneChanges(connection)
    ended = end_waiting(connection, seqs, lanes, state=State.DISCARDED, reason="expired", now=now)
    lanes.settle()
    return ended


def _before(now: int, age: int) -> int:
    """Return the instant of an age; one beyond all time is kept within what is stored
    as a number.
    """
    return max(now - age, -LAST_US)


def _prune(connection: apsw.Connection, values: tuple[int, int, str, int, int, str]) -> int:
    rows = fetch(connection, _PRUNABLE, values)
    if rows:
        free_keys(connection, [(key, seq) for seq, key in rows if key is not None])
        delete_jobs(connection, [seq for seq, _ in rows])
    return len(rows)
