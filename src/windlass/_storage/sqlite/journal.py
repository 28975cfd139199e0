"""Log lines of runs and events of jobs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import apsw
import msgspec

from windlass._core.job.job import Claim, JobId
from windlass._core.values.instants import LAST_US, instant_of, to_us
from windlass._storage.protocol.journal import EventRecord, LogChunk, LogLine
from windlass._storage.shared.job_ids import known_id
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.sqlite.io.database import SqliteDatabase
from windlass._storage.sqlite.io.rows import (
    Row,
    fetch,
    fetch_shown,
    first,
    rows_by_id,
    seqs_text,
)

__all__ = ["SqliteJournal", "chunks_of", "forget_journal", "keep_chunks", "restore_event"]

_SQL = load_sql("windlass._storage.sqlite.sql", "journal.sql")
_STORED, _APPEND_LOG, _LOGS = _SQL["stored"], _SQL["append_log"], _SQL["logs"]
_RESTORE_EVENT = _SQL["restore_event"]
_APPEND_EVENT, _EVENTS, _EVENTS_OF = _SQL["append_event"], _SQL["events"], _SQL["events_of"]
_NEWEST, _NEWEST_OF = _SQL["newest"], _SQL["newest_of"]
_ANY, _DELETE_LOGS, _DELETE_EVENTS = _SQL["any"], _SQL["delete_logs"], _SQL["delete_events"]

_encode = msgspec.json.Encoder().encode
_lines_of = msgspec.json.Decoder(list[tuple[int, int, str]]).decode

_FROM_THE_START = (-1, -1)


class SqliteJournal:
    """A `JournalStore`."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._db = database

    async def append_logs(self, chunks: Sequence[LogChunk]) -> None:
        def op(connection: apsw.Connection, _: int) -> None:
            stored = rows_by_id(connection, _STORED, {chunk.claim.job for chunk in chunks})
            kept = [
                (chunk.claim.seq, chunk)
                for chunk in chunks
                # By the row's own number: an id that was deleted and stored again is another job.
                if stored.get(chunk.claim.job, (None, None))[1] == chunk.claim.seq
            ]
            keep_chunks(connection, kept)

        if chunks:
            await self._db.write(op)

    async def logs(self, job: JobId, *, after: tuple[int, int] = (0, 0)) -> Sequence[LogChunk]:
        def op(connection: apsw.Connection, _: int) -> list[LogChunk]:
            found = rows_by_id(connection, _STORED, [job]).get(job)
            return [] if found is None else chunks_of(connection, job, found[1], after)

        return await self._db.ask(op)

    async def append_events(self, events: Sequence[EventRecord]) -> int:
        def op(connection: apsw.Connection, _: int) -> int:
            stored = rows_by_id(connection, _STORED, {event.job for event in events})
            rows = [_values(stored[event.job][1], event) for event in events if event.job in stored]
            connection.executemany(_APPEND_EVENT, rows)
            return len(rows)

        return await self._db.write(op) if events else 0

    async def events(
        self,
        since: datetime,
        until: datetime,
        *,
        limit: int,
        job: JobId | None = None,
        newest_first: bool = False,
    ) -> Sequence[EventRecord]:
        values = (to_us(since), to_us(until), limit)

        def op(connection: apsw.Connection, _: int) -> list[EventRecord]:
            if job is None:
                sql = _NEWEST if newest_first else _EVENTS
                rows = fetch_shown(connection, sql, values)
            else:
                sql = _NEWEST_OF if newest_first else _EVENTS_OF
                rows = fetch_shown(connection, sql, (*values, known_id(job)))
            return [_event(row) for row in rows]

        return await self._db.ask(op)


def keep_chunks(connection: apsw.Connection, chunks: Iterable[tuple[int, LogChunk]]) -> None:
    """Keep chunks, each with the number of its job's row; one that is kept already stays."""
    connection.executemany(_APPEND_LOG, [_log(seq, chunk) for seq, chunk in chunks])


def _log(seq: int, chunk: LogChunk) -> Row:
    lines = [(min(to_us(line.at), LAST_US), line.level, line.text) for line in chunk.lines]
    return seq, chunk.claim.number, chunk.number, _encode(lines).decode()


def chunks_of(
    connection: apsw.Connection, job: JobId, seq: int, after: tuple[int, int] = _FROM_THE_START
) -> list[LogChunk]:
    """Return the chunks of a job after a place."""
    return [
        LogChunk(
            Claim(job, claim_number, seq),
            number,
            [LogLine(instant_of(at), level, text) for at, level, text in _lines_of(lines)],
        )
        for claim_number, number, lines in fetch(connection, _LOGS, (seq, *after))
    ]


def restore_event(connection: apsw.Connection, event: EventRecord) -> bool:
    """Take over an event; False: it is here already, or its job is not."""
    stored = rows_by_id(connection, _STORED, [event.job]).get(event.job)
    if stored is None:
        return False
    connection.execute(_RESTORE_EVENT, _values(stored[1], event))
    return connection.changes() > 0


def _values(seq: int, event: EventRecord) -> Row:
    at = min(to_us(event.at), LAST_US)
    return at, seq, event.kind, event.task, event.queue, event.worker, event.attempt


def _event(row: Row) -> EventRecord:
    at, kind, uid, task, queue, worker, attempt = row
    return EventRecord(
        at=instant_of(at),
        kind=kind,
        job=JobId(uid.hex()),
        task=task,
        queue=queue,
        worker=worker,
        attempt=attempt,
    )


def forget_journal(connection: apsw.Connection, seqs: Sequence[int]) -> None:
    """Delete the log lines and events of these jobs."""
    logs, events = first(connection, _ANY) or (0, 0)
    if logs:
        connection.execute(_DELETE_LOGS, (seqs_text(seqs),))
    if events:
        connection.execute(_DELETE_EVENTS, (seqs_text(seqs),))
