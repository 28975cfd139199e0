"""Schedules by name, and the one step that fires them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import apsw
import msgspec

from windlass._core.job.job import JobId, NewJob
from windlass._core.values.instants import LAST_US, instant_of, to_us
from windlass._storage.protocol.actions import AuditNote
from windlass._storage.protocol.schedules import (
    DueSchedules,
    ScheduleAnswer,
    ScheduleRow,
    ScheduleWrite,
    Written,
    storable_names,
)
from windlass._storage.shared.insert_rules import skip_if_key_held
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.sqlite.admin.audit import keep_audit
from windlass._storage.sqlite.io.database import SqliteDatabase
from windlass._storage.sqlite.io.rows import (
    Row,
    fetch,
    fetch_shown,
    first,
    ids_text,
    optional_instant,
    value_of,
)
from windlass._storage.sqlite.jobs.insert import insert, is_stored, require_limits
from windlass._storage.sqlite.jobs.unique_keys import find_holder

__all__ = ["SqliteSchedules"]

_SQL = load_sql("windlass._storage.sqlite.sql", "schedules.sql")
_ROWS, _DUE, _NEXT_DUE = _SQL["rows"], _SQL["due"], _SQL["next_due"]
_NAMED, _PAGE = _SQL["named"], _SQL["page"]
_FENCE, _ACTIVE = _SQL["fence"], _SQL["active"]
_WRITE, _DELETE, _DECLARE = _SQL["write"], _SQL["delete"], _SQL["declare"]
_PAUSED, _PAUSE, _RESUME = _SQL["paused"], _SQL["pause"], _SQL["resume"]

_encode = msgspec.json.Encoder().encode


class SqliteSchedules:
    """A `ScheduleStore`."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._db = database

    async def rows(self, names: Sequence[str] | None = None) -> Sequence[ScheduleRow]:
        if names is None:
            return await self._read(_ROWS)
        return await self._read(_NAMED, _encode(storable_names(names)).decode())

    async def page(self, after: str, limit: int) -> Sequence[ScheduleRow]:
        return await self._read(_PAGE, after, limit)

    async def _read(self, sql: str, *values: str | int) -> Sequence[ScheduleRow]:
        return await self._db.ask(
            lambda connection, _: [_row(row) for row in fetch_shown(connection, sql, values)]
        )

    async def due(self, limit: int) -> DueSchedules:
        return self._db.read(lambda connection, now: _due(connection, limit, now))

    async def write(self, writes: Sequence[ScheduleWrite]) -> Sequence[ScheduleAnswer]:
        answers = await self._db.write(lambda connection, now: _write(connection, writes, now))
        self._db.subscribers.wake()
        return answers

    async def declare(self, names: Sequence[str]) -> None:
        text = _encode(names).decode()
        await self._db.write(lambda connection, now: fetch(connection, _DECLARE, (text, now)))

    async def pause(self, *, audit: AuditNote | None = None) -> None:
        def op(connection: apsw.Connection, now: int) -> None:
            connection.execute(_PAUSE, (now,))
            keep_audit(connection, audit, 1, now)

        await self._db.write(op)

    async def resume(self, *, audit: AuditNote | None = None) -> None:
        def op(connection: apsw.Connection, now: int) -> None:
            connection.execute(_RESUME)
            keep_audit(connection, audit, 1, now)

        await self._db.write(op)
        self._db.subscribers.wake()

    async def paused(self) -> datetime | None:
        return self._db.read(lambda connection, _: optional_instant(value_of(connection, _PAUSED)))


def _row(row: Row) -> ScheduleRow:
    name, revision, body, next_at, declared_at = row
    return ScheduleRow(
        name=name,
        revision=revision,
        body=body,
        next_at=optional_instant(next_at),
        declared_at=optional_instant(declared_at),
    )


def _due(connection: apsw.Connection, limit: int, now: int) -> DueSchedules:
    if value_of(connection, _PAUSED) is not None:
        return DueSchedules(instant_of(now), [], None, paused=True)
    rows = fetch_shown(connection, _DUE, (now, limit))
    following = value_of(connection, _NEXT_DUE, (now,))
    return DueSchedules(instant_of(now), [_row(row) for row in rows], optional_instant(following))


def _write(
    connection: apsw.Connection, writes: Sequence[ScheduleWrite], now: int
) -> list[ScheduleAnswer]:
    require_limits(connection, [job for write in writes for job in write.jobs])
    return [_write_one(connection, write, now) for write in writes]


def _write_one(connection: apsw.Connection, write: ScheduleWrite, now: int) -> ScheduleAnswer:
    revision, body = first(connection, _FENCE, (write.name,)) or (0, None)
    if revision == 0 and write.body is None:
        return ScheduleAnswer(Written.WRITTEN)
    if revision == write.revision + 1 and body == write.body:
        return ScheduleAnswer(Written.WRITTEN)
    if revision != write.revision:
        return ScheduleAnswer(Written.STALE)
    if write.most_active is not None:
        active = value_of(connection, _ACTIVE, (ids_text(write.active),))
        if active >= write.most_active:
            return ScheduleAnswer(Written.BUSY)
    known = tuple(job.id for job in write.jobs if is_stored(connection, job.id))
    holders = _holders(connection, [job for job in write.jobs if job.id not in known], now)
    if holders:
        return ScheduleAnswer(Written.HELD, holders)
    if write.body is None:
        connection.execute(_DELETE, (write.name,))
    else:
        next_at = None if write.next_at is None else min(to_us(write.next_at), LAST_US)
        connection.execute(_WRITE, (write.name, write.revision + 1, next_at, write.body))
    answers = insert(connection, now, [skip_if_key_held(job) for job in write.jobs])
    keep_audit(connection, write.audit, 1, now)
    expired = tuple(answer.expired for answer in answers if answer.expired is not None)
    return ScheduleAnswer(Written.WRITTEN, known=known, expired=expired)


def _holders(connection: apsw.Connection, jobs: Sequence[NewJob], now: int) -> dict[JobId, JobId]:
    """Return the jobs that hold the keys of new jobs."""
    held: dict[JobId, JobId] = {}
    taken: dict[str, JobId] = {}
    for job in jobs:
        if job.unique is not None:
            found = find_holder(connection, job.unique.key, now)
            first_one = taken.setdefault(job.unique.key, job.id)
            free = found is None or found.late
            holder = first_one if found is None or free else JobId(found.id.hex())
            if holder != job.id:
                held[job.id] = holder
    return held
