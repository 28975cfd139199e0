"""Everything out of one storage and into another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import assert_never

import apsw

from windlass.core.job import Attempt, JobId
from windlass.core.rollup import Rollup
from windlass.core.state import Verb
from windlass.storage.journal import EventRecord, LogChunk
from windlass.storage.looks import LimitState, QueueRecord
from windlass.storage.moving import Belonging, StoredJob
from windlass.storage.ordering import AuditRecord
from windlass.storage.queries import load
from windlass.storage.sqlite.audits import restore_audit
from windlass.storage.sqlite.database import Database
from windlass.storage.sqlite.insert import require_limits
from windlass.storage.sqlite.journal import chunks_of, restore_event
from windlass.storage.sqlite.limits import require_limit, restore_gate
from windlass.storage.sqlite.queues import restore_queue
from windlass.storage.sqlite.restoring import Restored
from windlass.storage.sqlite.rollups import copy_rollup
from windlass.storage.sqlite.rows import (
    Row,
    attempt_of,
    fetch,
    fetch_shown,
    instant,
    job_of,
    seqs_text,
)

__all__ = ["SqliteMoving"]

_SQL = load("windlass.storage.sqlite.sql", "moving.sql")
_DUMP, _HISTORIES, _LOGGED = _SQL["dump"], _SQL["histories"], _SQL["logged"]

_SHOWN = 45
"""Columns of a job that `job_of` reads."""


class SqliteMoving:
    """A `MovingStore`."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def dump(self, *, after: int, limit: int) -> Sequence[StoredJob]:
        return await self._db.ask(lambda connection, now: _dump(connection, after, limit, now))

    async def restore(self, things: Sequence[Belonging]) -> int:
        new = await self._db.write(lambda connection, now: _restore(connection, things, now))
        self._db.wake()
        return new


# --- out --------------------------------------------------------------------------------------


def _dump(connection: apsw.Connection, after: int, limit: int, now: int) -> list[StoredJob]:
    rows = fetch_shown(connection, _DUMP, (after, limit, now))
    seqs = seqs_text([row[0] for row in rows])
    histories: defaultdict[int, list[Attempt]] = defaultdict(list)
    for seq, *attempt in fetch_shown(connection, _HISTORIES, (seqs,)):
        histories[seq].append(attempt_of(tuple(attempt)))
    logged = {seq for (seq,) in fetch(connection, _LOGGED, (seqs,))}
    dumped: list[StoredJob] = []
    for row in rows:
        seq, uid = row[0], row[1]
        logs = chunks_of(connection, JobId(uid.hex()), seq) if seq in logged else []
        dumped.append(_stored(row, histories[seq], logs))
    return dumped


def _stored(row: Row, history: list[Attempt], logs: list[LogChunk]) -> StoredJob:
    key_until, number, verb, by = row[_SHOWN:]
    job = job_of(row[:_SHOWN])
    return StoredJob(
        job=job,
        unique=job.unique,
        key_until=instant(key_until),
        ended=None if number is None else (number, Verb(verb), by),
        history=tuple(history),
        logs=tuple(logs),
    )


# --- in ---------------------------------------------------------------------------------------


def _restore(connection: apsw.Connection, things: Sequence[Belonging], now: int) -> int:
    require_limits(connection, [thing.job for thing in things if isinstance(thing, StoredJob)])
    jobs = Restored(connection, now)
    new = sum(_restore_one(connection, jobs, thing) for thing in things)
    jobs.settle()
    return new


def _restore_one(connection: apsw.Connection, jobs: Restored, thing: Belonging) -> bool:
    """Store one thing; False: it was here already."""
    match thing:
        case StoredJob():
            return jobs.add(thing)
        case Rollup():
            return copy_rollup(connection, thing)
        case QueueRecord():
            return restore_queue(connection, thing)
        case LimitState():
            require_limit(connection, thing.name)
            return restore_gate(connection, thing)
        case AuditRecord():
            return restore_audit(connection, thing)
        case EventRecord():
            return restore_event(connection, thing)
        case _:
            assert_never(thing)
