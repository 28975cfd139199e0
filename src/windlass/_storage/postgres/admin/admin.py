"""Reads of operators, and pausing queues."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from windlass._core.job.job import Attempt, JobId, JobRecord
from windlass._core.stats.gauges import GaugeRow
from windlass._core.stats.rollup import Rollup, merge
from windlass._core.values.instants import clamp_instant, to_us
from windlass._storage.postgres.admin.audit import audit_note_text
from windlass._storage.postgres.io.connection import Row
from windlass._storage.postgres.io.database import PostgresDatabase
from windlass._storage.postgres.io.records import CODES, attempt_of, job_of, known_id, known_ids
from windlass._storage.postgres.io.rows import stored_text
from windlass._storage.protocol.actions import AuditNote
from windlass._storage.protocol.admin import ErrorGroup, ErrorLook, Named, QueueCounts, TaskLook
from windlass._storage.protocol.lists.job_list import Cursor, JobFilter, ListOrder, Page, sought_of
from windlass._storage.protocol.lists.list_order import (
    ListPosition,
    order_of,
    position_of,
    seq_of,
    sort_field_of,
    sort_jobs,
    sort_time_of,
)
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.shared.stored_text import gauges_of
from windlass._storage.shared.task_counts import task_look_of_lines
from windlass._storage.shared.text_search import search_jobs

__all__ = ["PostgresAdmin", "filter_args"]

_SQL = load_sql("windlass._storage.postgres.sql", "admin.sql")
_GET, _FIND, _HISTORY, _ERRORS = _SQL["get"], _SQL["find"], _SQL["history"], _SQL["errors"]
_COUNT_ALL, _COUNT_UP_TO = _SQL["count_all"], _SQL["count_up_to"]
_GAUGES = _SQL["gauges"]
_KNOWN_QUEUES, _PAUSE, _ROLLUPS = _SQL["known_queues"], _SQL["pause"], _SQL["rollups"]
_NAMED, _NEWEST, _TASKS = _SQL["named"], _SQL["newest"], _SQL["tasks"]
_SECRET, _KEEP_SECRET = _SQL["secret"], _SQL["keep_secret"]
_CHANGE_SECRET = _SQL["change_secret"]

_LOOK = 20_000
"""Ids that one call meets."""
LOOKED_AT = 20_000
"""Jobs that one search for what jobs may hide looks at."""
_DIGITS = 32
_TOP = 2**63 - 1


def filter_args(wanted: JobFilter) -> tuple[Any, ...]:
    """Return the fields of ``job_filter``, in their order; None does not narrow."""
    states, shown = wanted.states, wanted.shown
    return (
        None if states is None else [CODES[state] for state in states],
        None if shown is None else [str(one) for one in shown],
        wanted.queue,
        wanted.task,
        wanted.tenant,
        wanted.principal,
        None if wanted.tag is None else msgspec.json.encode(wanted.tag).decode(),
        wanted.key,
        wanted.correlation_id,
        wanted.parent,
        wanted.worker,
        None if wanted.error is None else stored_text(wanted.error),
        wanted.frame,
        wanted.created_from,
        wanted.created_until,
        wanted.finished_from,
        wanted.finished_until,
        None,  # words: compared with what a job shows of itself, in Python
    )


class PostgresAdmin:
    """An `AdminStore`."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._db = database

    async def _ask(self, sql: str, *args: object) -> list[Row]:
        return await self._db.fetch_aside(self._db.sql(sql), *args, reads=True)

    async def _change(self, sql: str, *args: object) -> None:
        await self._db.fetch_aside(self._db.sql(sql), *args)

    # --- reading ------------------------------------------------------------------------------

    async def get(self, ids: Sequence[JobId]) -> Sequence[JobRecord | None]:
        rows = await self._ask(_GET, self._db.instant(), known_ids(ids))
        jobs = {job.id: job for job in map(job_of, rows)}
        return [jobs.get(job) for job in ids]

    async def named(self, first: str, last: str, *, after: str | None = None) -> Named:
        if first:
            low, high = UUID(after or first.ljust(_DIGITS, "0")), UUID(first.ljust(_DIGITS, "f"))
            rows = await self._ask(_NAMED, low, high, after is not None, last, _LOOK)
        else:
            rows = await self._ask(_NEWEST, _TOP if after is None else int(after), last, _LOOK)
        looked = rows[0]["looked"]
        return Named(
            [JobId(row["id"].hex) for row in rows if row["id"] is not None],
            looked,
            str(rows[0]["after"]).replace("-", "") if looked == _LOOK else None,
        )

    async def secret(self, new: str = "", *, old: str = "") -> str:
        if new and old:
            await self._change(_CHANGE_SECRET, new, old)
        elif new:
            await self._change(_KEEP_SECRET, new)
        rows = await self._ask(_SECRET)
        return str(rows[0]["value"]) if rows else ""

    async def find(self, wanted: JobFilter, *, limit: int) -> Page:
        order = order_of(wanted)
        if wanted.text is not None:
            wanted = msgspec.structs.replace(wanted, text=stored_text(wanted.text))
        sought = sought_of(wanted)
        if sought is None:
            return (await self._find(wanted, limit, None))[0]
        # One number for all steps of a search by words that a job may hide. If each step had its
        # own, a hidden match would move the end of the search, and so tell of itself.
        left = LOOKED_AT if sought.compares_whole else None

        async def step(asked: JobFilter, many: int) -> Page:
            nonlocal left
            page, looked = await self._find(asked, many, left)
            left = None if left is None else max(left - looked, 1)
            return page

        return await search_jobs(step, wanted, sought, limit, lambda job: _cursor(job, order))

    async def _find(self, wanted: JobFilter, limit: int, left: int | None) -> tuple[Page, int]:
        """Return a page, and at how many jobs it looked if it may look at ``left`` only."""
        order = order_of(wanted)
        by_number = sort_field_of(order) == "enqueued"
        place = None if by_number else position_of(wanted)
        if by_number:
            behind: tuple[datetime | None, int | None] = None, seq_of(wanted)
        else:
            behind = (None, None) if place is None else (place.instant, place.seq)
        flow = None if wanted.flow is None else known_id(JobId(wanted.flow))
        rows = await self._ask(
            *(_FIND, self._db.instant(), order.value, *behind, limit),
            *(*filter_args(wanted), left, wanted.flow is not None, flow),
        )
        found = sort_jobs([job_of(row) for row in rows if row["seq"] is not None], order)
        further, at = rows[0]["next"], rows[0]["next_at"]
        if further is not None and not by_number:
            further = ListPosition(to_us(clamp_instant(at)), str(further)).cursor()
        return Page(found, further, rows[0]["reached"]), rows[0]["looked"]

    async def errors(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        since: datetime | None = None,
        look: int = 10_000,
    ) -> ErrorLook:
        rows = await self._ask(_ERRORS, queue, task, since, look)
        groups = [_group_of(row) for row in rows if row["kind"] is not None]
        return ErrorLook(groups, rows[0]["complete"])

    async def history(self, job: JobId) -> Sequence[Attempt]:
        found = known_ids([job])
        rows = await self._ask(_HISTORY, found[0]) if found else []
        return [attempt_of(row) for row in rows]

    async def counts(self, *, cap: int | None = None) -> Sequence[QueueCounts]:
        now = self._db.instant()
        asked = self._ask(_COUNT_ALL, now) if cap is None else self._ask(_COUNT_UP_TO, now, cap)
        rows = {row["queue"]: row for row in await asked}
        paused = {row["name"]: row["paused"] for row in await self._ask(_KNOWN_QUEUES)}
        return [
            _counts_of(queue, rows.get(queue), paused=paused.get(queue, False), cap=cap)
            for queue in sorted(rows.keys() | paused.keys())
        ]

    async def tasks(self, *, look: int = 5_000) -> TaskLook:
        return task_look_of_lines(await self._ask(_TASKS, look + 1), look)

    async def rollups(self, since: datetime, until: datetime) -> Sequence[Rollup]:
        return merge(_rollup_of(row) for row in await self._ask(_ROLLUPS, since, until))

    async def gauges(
        self, since: datetime, until: datetime, *, source: str | None = None
    ) -> Sequence[GaugeRow]:
        rows = await self._ask(_GAUGES, since, until, source)
        return [GaugeRow(minute, name, gauges_of(text)) for minute, name, text in rows]

    # --- switching ----------------------------------------------------------------------------

    async def pause(self, queue: str, *, audit: AuditNote | None = None) -> None:
        await self._set_paused(queue, audit, paused=True)

    async def resume(self, queue: str, *, audit: AuditNote | None = None) -> None:
        await self._set_paused(queue, audit, paused=False)
        self._db.wake({queue})

    async def _set_paused(self, queue: str, audit: AuditNote | None, *, paused: bool) -> None:
        await self._change(_PAUSE, queue, paused, self._db.instant(), audit_note_text(audit))


def _cursor(job: JobRecord, order: ListOrder) -> Cursor:
    """Return where the page behind this job begins."""
    if sort_field_of(order) == "enqueued":
        return job.seq
    return ListPosition(to_us(sort_time_of(job, order)), str(job.seq)).cursor()


def _counts_of(queue: str, row: Row | None, *, paused: bool, cap: int | None) -> QueueCounts:
    if row is None:
        return QueueCounts(queue=queue, paused=paused, cap=cap)
    succeeded, failed, cancelled, discarded = row["ended"]
    return QueueCounts(
        queue=queue,
        ready=row["ready"],
        scheduled=row["scheduled"],
        running=row["running"],
        succeeded=succeeded,
        failed=failed,
        cancelled=cancelled,
        discarded=discarded,
        retrying=row["retrying"],
        oldest_due=row["oldest_due"],
        paused=paused,
        cap=cap,
    )


def _group_of(row: Row) -> ErrorGroup:
    return ErrorGroup(
        kind=row["kind"],
        frame=row["frame"],
        count=row["count"],
        first=row["first"],
        last=row["last"],
        job=JobId(row["job"].hex),
        text=row["said"],
        tasks=row["tasks"],
        queues=row["queues"],
    )


def _rollup_of(row: Row) -> Rollup:
    return Rollup(
        minute=row["minute"],
        queue=row["queue"],
        task=row["task"],
        counts={
            verb: count for verb, count in zip(row["verbs"], row["counts"], strict=True) if count
        },
        wait=_histogram_of(row["wait"], row["wait_from"]),
        run=_histogram_of(row["run"], row["run_from"]),
    )


def _histogram_of(counts: Sequence[int | None], first: int | None) -> dict[int, int]:
    return {bucket: count for bucket, count in enumerate(counts, first or 0) if count}
