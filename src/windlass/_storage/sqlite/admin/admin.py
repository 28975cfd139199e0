"""Reads of operators, and pausing queues."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import apsw

from windlass._core.job.job import Attempt, JobId, JobRecord
from windlass._core.stats.gauges import GaugeRow
from windlass._core.stats.rollup import Rollup
from windlass._core.values.instants import to_us
from windlass._storage.protocol.actions import AuditNote
from windlass._storage.protocol.admin import ErrorLook, Named, QueueCounts, TaskLook
from windlass._storage.protocol.lists.job_list import JobFilter, Page
from windlass._storage.shared.job_ids import known_id
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.shared.task_counts import task_look_of_lines
from windlass._storage.sqlite.admin.audit import keep_audit
from windlass._storage.sqlite.admin.error_groups import error_groups
from windlass._storage.sqlite.admin.find import find
from windlass._storage.sqlite.admin.gauges import read_gauges
from windlass._storage.sqlite.admin.rollups import read_rollups
from windlass._storage.sqlite.io.database import SqliteDatabase
from windlass._storage.sqlite.io.rows import (
    attempt_of,
    fetch,
    fetch_shown,
    ids_text,
    job_of,
    optional_instant,
)
from windlass._storage.sqlite.queues import pause, paused_queues, resume

__all__ = ["IDS_PER_SCAN", "SqliteAdmin", "count_jobs", "named"]

_SQL = load_sql("windlass._storage.sqlite.sql", "admin.sql")
_HISTORY = _SQL["history"]
_GET = load_sql("windlass._storage.sqlite.sql", "whole_jobs.sql")["get"]
_SECRET, _KEEP_SECRET = _SQL["secret"], _SQL["keep_secret"]
_CHANGE_SECRET = _SQL["change_secret"]

_IDS_SQL = load_sql("windlass._storage.sqlite.sql", "find.sql")
_RANGE, _NEWEST = _IDS_SQL["named"], _IDS_SQL["newest"]

IDS_PER_SCAN = 4_000
"""Ids of one look."""
_DIGITS = 32
_TOP = 2**63 - 1

_COUNTS_SQL = load_sql("windlass._storage.sqlite.sql", "counts.sql")
_QUEUES, _RUNNING, _COUNT = _COUNTS_SQL["queues"], _COUNTS_SQL["running"], _COUNTS_SQL["count"]
_TASKS = _COUNTS_SQL["tasks"]


_LANES = 10_000
"""Number of lanes of a queue in which the job that waits for longest is searched."""


class _Counted(NamedTuple):
    """A row of ``count`` in counts.sql."""

    ready: int
    in_lanes: int
    alone: int
    overdue: int
    scheduled: int
    retrying: int
    succeeded: int
    failed: int
    cancelled: int
    discarded: int
    oldest_ready: int | None
    oldest_in_lanes: int | None
    oldest_alone: int | None
    oldest_overdue: int | None


def count_jobs(connection: apsw.Connection, cap: int | None, now: int) -> list[QueueCounts]:
    """`AdminStore.counts`. Several statements: on one snapshot."""
    running: dict[str, int] = dict(fetch_shown(connection, _RUNNING))
    paused = paused_queues(connection)
    most, lanes = (-1, -1) if cap is None else (cap, _LANES)
    answers: list[QueueCounts] = []
    for (queue,) in fetch_shown(connection, _QUEUES):
        counted = _Counted(*fetch(connection, _COUNT, (queue, now, most, lanes))[0])
        answers.append(_counts(queue, counted, running.get(queue, 0), cap, queue in paused))
    return answers


def _counts(
    queue: str,
    counted: _Counted,
    running: int,
    cap: int | None,
    paused: bool,  # noqa: FBT001 -- the last of a private call
) -> QueueCounts:
    ready = counted.ready + counted.in_lanes + counted.alone + counted.overdue
    oldest = [due for due in counted[10:] if due is not None]
    return QueueCounts(
        queue=queue,
        ready=_capped(ready, cap),
        scheduled=counted.scheduled,
        running=_capped(running, cap),
        succeeded=counted.succeeded,
        failed=counted.failed,
        cancelled=counted.cancelled,
        discarded=counted.discarded,
        retrying=counted.retrying,
        oldest_due=optional_instant(min(oldest, default=None)),
        paused=paused,
        cap=cap,
    )


def _capped(count: int, cap: int | None) -> int:
    return count if cap is None else min(count, cap)


def named(connection: apsw.Connection, first: str, last: str, after: str | None) -> Named:
    """`AdminStore.named`."""
    if first:
        low = bytes.fromhex(after or first.ljust(_DIGITS, "0"))
        high = bytes.fromhex(first.ljust(_DIGITS, "f"))
        met = fetch(connection, _RANGE, (low, high, after is not None, IDS_PER_SCAN))
    else:
        met = fetch(connection, _NEWEST, (_TOP if after is None else int(after), IDS_PER_SCAN))
    ids = [JobId(row[0].hex()) for row in met]
    return Named(
        [job for job in ids if job.endswith(last)],
        len(ids),
        _next(met[-1], first) if len(met) == IDS_PER_SCAN else None,
    )


def _next(row: tuple[Any, ...], first: str) -> str:
    return row[0].hex() if first else str(row[1])


class SqliteAdmin:
    """An `AdminStore`."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._db = database

    # --- reading ------------------------------------------------------------------------------

    async def get(self, ids: Sequence[JobId]) -> Sequence[JobRecord | None]:
        return await self._db.ask(lambda connection, now: _get(connection, ids, now))

    async def named(self, first: str, last: str, *, after: str | None = None) -> Named:
        return await self._db.ask(lambda connection, _: named(connection, first, last, after))

    async def secret(self, new: str = "", *, old: str = "") -> str:
        def op(connection: apsw.Connection, _: int) -> str:
            if old:
                connection.execute(_CHANGE_SECRET, (new, old))
            else:
                connection.execute(_KEEP_SECRET, (new,))
            return _secret(connection)

        if not new:
            return self._db.read(lambda connection, _: _secret(connection))
        return await self._db.write(op)

    async def find(self, wanted: JobFilter, *, limit: int) -> Page:
        return await self._db.ask(lambda connection, now: find(connection, wanted, limit, now))

    async def errors(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        since: datetime | None = None,
        look: int = 10_000,
    ) -> ErrorLook:
        return await self._db.ask(
            lambda connection, _: error_groups(connection, queue, task, since, look)
        )

    async def history(self, job: JobId) -> Sequence[Attempt]:
        return await self._db.ask(
            lambda connection, _: [
                attempt_of(row) for row in fetch_shown(connection, _HISTORY, (known_id(job),))
            ]
        )

    async def counts(self, *, cap: int | None = None) -> Sequence[QueueCounts]:
        return await self._db.ask(lambda connection, now: count_jobs(connection, cap, now))

    async def tasks(self, *, look: int = 5_000) -> TaskLook:
        rows = await self._db.ask(
            lambda connection, _: fetch_shown(connection, _TASKS, (look + 1,))
        )
        return task_look_of_lines(rows, look)

    async def rollups(self, since: datetime, until: datetime) -> Sequence[Rollup]:
        return await self._db.ask(
            lambda connection, _: read_rollups(connection, to_us(since), to_us(until))
        )

    async def gauges(
        self, since: datetime, until: datetime, *, source: str | None = None
    ) -> Sequence[GaugeRow]:
        span = (to_us(since), to_us(until))
        return await self._db.ask(lambda connection, _: read_gauges(connection, *span, source))

    # --- switching ----------------------------------------------------------------------------

    async def pause(self, queue: str, *, audit: AuditNote | None = None) -> None:
        def op(connection: apsw.Connection, now: int) -> None:
            pause(connection, queue)
            keep_audit(connection, audit, 1, now)

        await self._db.write(op)

    async def resume(self, queue: str, *, audit: AuditNote | None = None) -> None:
        def op(connection: apsw.Connection, now: int) -> None:
            resume(connection, queue)
            keep_audit(connection, audit, 1, now)

        await self._db.write(op)
        self._db.subscribers.wake({queue})


def _get(connection: apsw.Connection, ids: Sequence[JobId], now: int) -> list[JobRecord | None]:
    rows = fetch_shown(connection, _GET, (ids_text(ids), now))
    jobs = {row[1].hex(): job_of(row) for row in rows}
    return [jobs.get(job) for job in ids]


def _secret(connection: apsw.Connection) -> str:
    return str(connection.execute(_SECRET).get or "")
