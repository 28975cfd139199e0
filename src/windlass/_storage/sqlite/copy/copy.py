"""Everything out of one storage and into another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import assert_never

import apsw

from windlass._core.job.job import Attempt, JobId
from windlass._core.job.state import Verb
from windlass._core.stats.rollup import Rollup
from windlass._storage.protocol.actions import AuditRecord
from windlass._storage.protocol.copy import CopiedRecord, StoredJob
from windlass._storage.protocol.flows import FlowGraph
from windlass._storage.protocol.journal import EventRecord, LogChunk
from windlass._storage.protocol.limits import LimitState
from windlass._storage.protocol.queues import QueueRecord
from windlass._storage.shared.restored_job import require_flows
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.sqlite.admin.audit import restore_audit
from windlass._storage.sqlite.admin.rollups import copy_rollup
from windlass._storage.sqlite.copy.flows import dump_flows, held_of, known_flows, restore_flow
from windlass._storage.sqlite.copy.restore import JobRestore
from windlass._storage.sqlite.io.database import SqliteDatabase
from windlass._storage.sqlite.io.rows import (
    Row,
    attempt_of,
    fetch,
    fetch_shown,
    job_of,
    optional_instant,
    seqs_text,
)
from windlass._storage.sqlite.jobs.insert import require_limits
from windlass._storage.sqlite.journal import chunks_of, restore_event
from windlass._storage.sqlite.limits.limits import require_limit, restore_budget
from windlass._storage.sqlite.queues import restore_queue

__all__ = ["SqliteCopy"]

_SQL = load_sql("windlass._storage.sqlite.sql", "copy.sql")
_HISTORIES, _LOGGED = _SQL["histories"], _SQL["logged"]
_DUMP = load_sql("windlass._storage.sqlite.sql", "whole_jobs.sql")["dump"]

_SHOWN = 48
"""Columns of a job that `job_of` reads."""


class SqliteCopy:
    """A `CopyStore`."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._db = database

    async def dump(self, *, after: int, limit: int) -> Sequence[StoredJob]:
        return await self._db.ask(lambda connection, now: _dump(connection, after, limit, now))

    async def dump_flows(self, *, after: int, limit: int) -> Sequence[FlowGraph]:
        return await self._db.ask(lambda connection, _: dump_flows(connection, after, limit))

    async def restore(self, things: Sequence[CopiedRecord]) -> int:
        new = await self._db.write(lambda connection, now: _restore(connection, things, now))
        self._db.subscribers.wake()
        return new


# --- out --------------------------------------------------------------------------------------


def _dump(connection: apsw.Connection, after: int, limit: int, now: int) -> list[StoredJob]:
    rows = fetch_shown(connection, _DUMP, (after, now, limit))
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
    key_until, number, verb, by, flow_state, timing = row[_SHOWN:]
    job = job_of(row[:_SHOWN])
    return StoredJob(
        job=job,
        unique=job.unique,
        key_until=optional_instant(key_until),
        ended=None if number is None else (number, Verb(verb), by),
        held=held_of(flow_state, timing),
        history=tuple(history),
        logs=tuple(logs),
    )


# --- in ---------------------------------------------------------------------------------------


def _restore(connection: apsw.Connection, things: Sequence[CopiedRecord], now: int) -> int:
    stored = [thing for thing in things if isinstance(thing, StoredJob)]
    flows = [thing for thing in things if isinstance(thing, FlowGraph)]
    require_limits(connection, [one.job for one in stored])
    require_flows(stored, {*known_flows(connection, stored), *(one.flow.id for one in flows)})
    jobs = JobRestore(connection, now)
    new = sum(_restore_one(connection, jobs, thing) for thing in things)
    jobs.settle()
    return new


def _restore_one(connection: apsw.Connection, jobs: JobRestore, thing: CopiedRecord) -> bool:
    """Store one thing; False: it was here already."""
    match thing:
        case StoredJob():
            return jobs.add(thing)
        case FlowGraph():
            return restore_flow(connection, thing)
        case Rollup():
            return copy_rollup(connection, thing)
        case QueueRecord():
            return restore_queue(connection, thing)
        case LimitState():
            require_limit(connection, thing.name)
            return restore_budget(connection, thing)
        case AuditRecord():
            return restore_audit(connection, thing)
        case EventRecord():
            return restore_event(connection, thing)
        case _:
            assert_never(thing)
