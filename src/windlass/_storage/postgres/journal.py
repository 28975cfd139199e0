"""Log lines of runs and events of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from windlass._core.job.job import Claim, JobId
from windlass._core.values.instants import FIRST_INSTANT, clamp_instant
from windlass._storage.postgres.io.connection import Row
from windlass._storage.postgres.io.database import PostgresDatabase
from windlass._storage.postgres.io.records import known_id
from windlass._storage.postgres.io.rows import stored_text
from windlass._storage.protocol.journal import EventRecord, LogChunk, LogLine
from windlass._storage.shared.sql_files import load_sql

__all__ = ["PostgresJournal", "chunk_of", "event_args", "stored_lines"]

_SQL = load_sql("windlass._storage.postgres.sql", "journal.sql")
_APPEND_LOGS, _LOGS = _SQL["append_logs"], _SQL["logs"]
_APPEND_EVENTS, _EVENTS = _SQL["append_events"], _SQL["events"]

_encode = msgspec.json.Encoder().encode
_lines = msgspec.json.Decoder(list[tuple[datetime, int, str]]).decode


class PostgresJournal:
    """A `JournalStore`."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._db = database

    async def append_logs(self, chunks: Sequence[LogChunk]) -> None:
        known = [chunk for chunk in chunks if known_id(chunk.claim.job) is not None]
        if not known:
            return
        await self._db.fetch_aside(
            self._db.sql(_APPEND_LOGS),
            [known_id(chunk.claim.job) for chunk in known],
            [chunk.claim.seq for chunk in known],
            [chunk.claim.number for chunk in known],
            [chunk.number for chunk in known],
            [stored_lines(chunk) for chunk in known],
        )

    async def logs(self, job: JobId, *, after: tuple[int, int] = (0, 0)) -> Sequence[LogChunk]:
        asked = known_id(job)
        if asked is None:
            return []
        rows = await self._db.fetch_aside(self._db.sql(_LOGS), asked, *after, reads=True)
        return [chunk_of(job, row) for row in rows]

    async def append_events(self, events: Sequence[EventRecord]) -> int:
        known = [event for event in events if known_id(event.job) is not None]
        if not known:
            return 0
        # Not repeated if the answer is lost: an event that is kept twice happened twice.
        rows = await self._db.fetch_aside(
            self._db.sql(_APPEND_EVENTS), *event_args(known), again=False
        )
        return int(rows[0][0])

    async def events(
        self,
        since: datetime,
        until: datetime,
        *,
        limit: int,
        job: JobId | None = None,
        newest_first: bool = False,
    ) -> Sequence[EventRecord]:
        asked = None if job is None else known_id(job)
        if job is not None and asked is None:
            return []
        given = (since, until, limit, asked, newest_first)
        rows = await self._db.fetch_aside(self._db.sql(_EVENTS), *given, reads=True)
        return [_event_of(row) for row in rows]


def stored_lines(chunk: LogChunk) -> str:
    """Return the lines of a chunk as JSON, which is nothing to the server."""
    return _encode([(line.at, line.level, line.text) for line in chunk.lines]).decode()


def chunk_of(job: JobId, row: Row) -> LogChunk:
    """Decode a row of ``logs``."""
    claim = Claim(job, row["claim_number"], row["seq"])
    return LogChunk(claim, row["number"], [LogLine(*line) for line in _lines(row["lines"])])


def event_args(events: Sequence[EventRecord]) -> tuple[list[object], ...]:
    """Arrays side by side, as ``append_events`` takes them."""
    return (
        [max(clamp_instant(event.at), FIRST_INSTANT) for event in events],
        [stored_text(event.kind) for event in events],
        [known_id(event.job) for event in events],
        [event.task for event in events],
        [event.queue for event in events],
        [event.worker for event in events],
        [event.attempt for event in events],
    )


def _event_of(row: Row) -> EventRecord:
    return EventRecord(
        at=row["at"],
        kind=row["kind"],
        job=JobId(row["id"].hex),
        task=row["task"],
        queue=row["queue"],
        worker=row["worker"],
        attempt=row["attempt"],
    )
