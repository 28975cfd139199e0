"""Schedules by name, and the one step that fires them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from windlass._core.job.job import JobId
from windlass._core.values.instants import FIRST_INSTANT, clamp_instant
from windlass._storage.postgres.admin.audit import audit_note_text
from windlass._storage.postgres.io.connection import Row
from windlass._storage.postgres.io.database import PostgresDatabase
from windlass._storage.postgres.io.errors import FunctionError
from windlass._storage.postgres.io.records import known_ids
from windlass._storage.postgres.jobs.insert import check_size
from windlass._storage.postgres.jobs.job_json import job_json_of
from windlass._storage.postgres.limits.limits import limit_error_of
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
from windlass.errors import StoreBusy

__all__ = ["PostgresSchedules"]

_SQL = load_sql("windlass._storage.postgres.sql", "schedules.sql")
_ROWS, _DUE, _WRITE, _DECLARE = _SQL["rows"], _SQL["due"], _SQL["write"], _SQL["declare"]
_NAMED, _PAGE = _SQL["named"], _SQL["page"]
_SWITCH, _PAUSED = _SQL["switch"], _SQL["paused"]

_encode = msgspec.json.encode
_ANSWER = msgspec.json.Decoder(ScheduleAnswer)


class PostgresSchedules:
    """A `ScheduleStore`. Every operation is one statement, and so one transaction."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._db = database

    async def rows(self, names: Sequence[str] | None = None) -> Sequence[ScheduleRow]:
        if names is None:
            return await self._read(_ROWS)
        return await self._read(_NAMED, storable_names(names))

    async def page(self, after: str, limit: int) -> Sequence[ScheduleRow]:
        return await self._read(_PAGE, after, limit)

    async def _read(self, sql: str, *values: object) -> Sequence[ScheduleRow]:
        rows = await self._db.fetch_aside(self._db.sql(sql), *values, reads=True)
        return [_row(row) for row in rows]

    async def due(self, limit: int) -> DueSchedules:
        rows = await self._db.fetch(self._db.sql(_DUE), self._db.instant(), limit, reads=True)
        found = [_row(row) for row in rows if row["name"] is not None]
        first = rows[0]
        return DueSchedules(first["at"], found, first["following"], paused=first["paused"])

    async def write(self, writes: Sequence[ScheduleWrite]) -> Sequence[ScheduleAnswer]:
        if not writes:
            return []
        check_size([job for write in writes for job in write.jobs])
        try:
            answers = await self._write(writes)
        except StoreBusy:
            if len(writes) == 1:
                raise
            answers = await self._write_apart(writes)
        self._db.wake()
        return answers

    async def _write(self, writes: Sequence[ScheduleWrite]) -> list[ScheduleAnswer]:
        try:
            # On a separate connection: a job's key may be under decision in an open transaction.
            rows = await self._db.fetch_aside(
                self._db.sql(_WRITE),
                self._db.instant(),
                self._db.durable,
                [write.name for write in writes],
                [write.revision for write in writes],
                [None if write.body is None else write.body.decode() for write in writes],
                [_stored(write.next_at) for write in writes],
                [_jobs(write) for write in writes],
                [_ids(write.active) for write in writes],
                [write.most_active for write in writes],
                [audit_note_text(write.audit) for write in writes],
            )
        except FunctionError as refused:
            raise await limit_error_of(self._db, refused) from None
        return [_ANSWER.decode(answer) for answer in rows[0][0]]

    async def _write_apart(self, writes: Sequence[ScheduleWrite]) -> list[ScheduleAnswer]:
        """Write each schedule alone: one that waits too long, most likely for that key, must not
        stop the others or hide their results. It is decided anew, like a stale one.
        """
        answers: list[ScheduleAnswer] = []
        stopped: list[StoreBusy] = []
        for write in writes:
            try:
                answers += await self._write([write])
            except StoreBusy as error:
                stopped.append(error)
                answers.append(ScheduleAnswer(Written.STALE))
        if len(stopped) == len(writes):
            raise stopped[0]
        return answers

    async def declare(self, names: Sequence[str]) -> None:
        await self._db.fetch_aside(self._db.sql(_DECLARE), self._db.instant(), list(names))

    async def pause(self, *, audit: AuditNote | None = None) -> None:
        await self._switch(audit, paused=True)

    async def resume(self, *, audit: AuditNote | None = None) -> None:
        await self._switch(audit, paused=False)
        self._db.wake()

    async def _switch(self, audit: AuditNote | None, *, paused: bool) -> None:
        asked = (self._db.instant(), self._db.durable, paused, audit_note_text(audit))
        await self._db.fetch_aside(self._db.sql(_SWITCH), *asked)

    async def paused(self) -> datetime | None:
        rows = await self._db.fetch_aside(self._db.sql(_PAUSED), reads=True)
        since: datetime | None = rows[0][0]
        return since


def _row(row: Row) -> ScheduleRow:
    return ScheduleRow(
        name=row["name"],
        revision=row["revision"],
        body=row["body"].encode(),
        next_at=row["next_at"],
        declared_at=row["declared_at"],
    )


def _stored(at: datetime | None) -> datetime | None:
    return None if at is None else max(clamp_instant(at), FIRST_INSTANT)


def _jobs(write: ScheduleWrite) -> str | None:
    if not write.jobs:
        return None
    return _encode([job_json_of(skip_if_key_held(job)) for job in write.jobs]).decode()


def _ids(jobs: Sequence[JobId]) -> str | None:
    """Return each array as text: arrays inside an array need not have the same length."""
    return f"{{{','.join(str(job) for job in known_ids(jobs))}}}" if jobs else None
