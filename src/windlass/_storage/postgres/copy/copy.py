"""Everything out of one storage and into another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import asyncpg
import msgspec

from windlass._core.flows.flow import PartRecord
from windlass._core.job.job import Attempt, FlowId, JobId
from windlass._core.job.state import Verb
from windlass._core.stats.rollup import Rollup
from windlass._storage.postgres.copy.flows import (
    PartIds,
    flow_rows,
    held_of,
    member_columns,
    part_rows,
)
from windlass._storage.postgres.copy.restore import (
    audit_row,
    budget_row,
    history_rows,
    job_row,
    log_rows,
    queue_row,
    rollup_rows,
)
from windlass._storage.postgres.flows.flows import flow_of, part_of
from windlass._storage.postgres.io.connection import Row
from windlass._storage.postgres.io.database import PostgresDatabase
from windlass._storage.postgres.io.errors import FunctionError
from windlass._storage.postgres.io.records import attempt_of, job_of, known_id
from windlass._storage.postgres.journal import chunk_of, event_args
from windlass._storage.postgres.limits.limits import limit_error_of
from windlass._storage.protocol.actions import AuditRecord
from windlass._storage.protocol.copy import CopiedRecord, StoredJob
from windlass._storage.protocol.flows import FlowGraph
from windlass._storage.protocol.journal import EventRecord, LogChunk
from windlass._storage.protocol.limits import LimitState
from windlass._storage.protocol.queues import QueueRecord
from windlass._storage.shared.restored_job import require_flows
from windlass._storage.shared.sql_files import load_sql

__all__ = ["PostgresCopy"]

_SQL = load_sql("windlass._storage.postgres.sql", "copy.sql")
_DUMP, _DUMP_HISTORY, _DUMP_LOGS = _SQL["dump"], _SQL["dump_history"], _SQL["dump_logs"]
_JOBS, _TRACES, _ROLLUPS = _SQL["restore_jobs"], _SQL["restore_traces"], _SQL["restore_rollups"]
_QUEUES, _GATES = _SQL["restore_queues"], _SQL["restore_gates"]
_DUMP_FLOWS, _FLOWS = _SQL["dump_flows"], _SQL["restore_flows"]
_PARTS_OF_FLOWS = _SQL["parts_of_flows"]
_PARTS = load_sql("windlass._storage.postgres.sql", "flows.sql")["parts"]
_AUDITS, _EVENTS = _SQL["restore_audits"], _SQL["restore_events"]

T = TypeVar("T")


class PostgresCopy:
    """A `CopyStore`."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._db = database

    async def _ask(self, sql: str, *args: object) -> list[Row]:
        return await self._db.fetch_aside(self._db.sql(sql), *args, reads=True)

    # --- out ----------------------------------------------------------------------------------

    async def dump(self, *, after: int, limit: int) -> Sequence[StoredJob]:
        rows = await self._ask(_DUMP, self._db.instant(), after, limit)
        ids = {row["seq"]: JobId(row["id"].hex) for row in rows}
        history: defaultdict[int, list[Attempt]] = defaultdict(list)
        for row in await self._ask(_DUMP_HISTORY, list(ids)):
            history[row["seq"]].append(attempt_of(row))
        logs: defaultdict[int, list[LogChunk]] = defaultdict(list)
        for row in await self._ask(_DUMP_LOGS, list(ids)):
            logs[row["seq"]].append(chunk_of(ids[row["seq"]], row))
        return [
            StoredJob(
                job=(job := job_of(row)),
                unique=job.unique,
                key_until=row["key_until"],
                ended=_ended_of(row),
                held=held_of(row),
                history=tuple(history[row["seq"]]),
                logs=tuple(logs[row["seq"]]),
            )
            for row in rows
        ]

    async def dump_flows(self, *, after: int, limit: int) -> Sequence[FlowGraph]:
        sql = self._db.sql(_DUMP_FLOWS)
        rows = await self._db.fetch_aside(sql, self._db.instant(), after, limit)
        parts: defaultdict[int, list[PartRecord]] = defaultdict(list)
        for row in await self._ask(_PARTS, [row["number"] for row in rows]):
            parts[row["flow"]].append(part_of(row))
        return [FlowGraph(flow_of(row), parts[row["number"]], row["retry_rank"]) for row in rows]

    # --- in -----------------------------------------------------------------------------------

    async def restore(self, things: Sequence[CopiedRecord]) -> int:
        async def run(connection: asyncpg.Connection) -> int:
            async with connection.transaction(isolation="read_committed"):
                return await self._restore(connection, things)

        try:
            new = await self._db.timings.measure(self._db.side.use(run), reads=False)
        except FunctionError as refused:
            raise await limit_error_of(self._db, refused) from None
        self._db.wake()
        return new

    async def _restore(self, connection: asyncpg.Connection, things: Sequence[CopiedRecord]) -> int:
        new = await self._restore_flows(connection, _only(FlowGraph, things))
        new += await self._restore_jobs(connection, _only(StoredJob, things))
        lists: tuple[tuple[str, Iterable[Mapping[str, object]]], ...] = (
            (_GATES, map(budget_row, _only(LimitState, things))),
            (_QUEUES, map(queue_row, _only(QueueRecord, things))),
            (_ROLLUPS, rollup_rows(_only(Rollup, things))),
            (_AUDITS, map(audit_row, _only(AuditRecord, things))),
        )
        for statement, rows in lists:
            text = _text(rows)
            if text != "[]":
                new += await connection.fetchval(self._db.sql(statement), text)
        events = [event for event in _only(EventRecord, things) if known_id(event.job) is not None]
        if events:
            new += await connection.fetchval(self._db.sql(_EVENTS), *event_args(events))
        return new

    async def _restore_flows(
        self, connection: asyncpg.Connection, flows: Sequence[FlowGraph]
    ) -> int:
        if not flows:
            return 0
        texts = _text(flow_rows(flows)), _text(part_rows(flows))
        new: int = await connection.fetchval(self._db.sql(_FLOWS), *texts)
        return new

    async def _parts_of(
        self, connection: asyncpg.Connection, stored: Sequence[StoredJob]
    ) -> PartIds:
        """Return the parts of these members, whose flows must be stored."""
        flows = {one.job.flow.flow for one in stored if one.job.flow is not None}
        if not flows:
            return {}
        rows = await connection.fetch(self._db.sql(_PARTS_OF_FLOWS), [*flows])
        require_flows(stored, {FlowId(row["flow"].hex) for row in rows})
        return {(row["flow"].hex, row["number"]): row["id"] for row in rows}

    async def _restore_jobs(
        self, connection: asyncpg.Connection, stored: Sequence[StoredJob]
    ) -> int:
        if not stored:
            return 0
        parts = await self._parts_of(connection, stored)
        text = _text(_whole_row(one, parts) for one in stored)
        rows = await connection.fetch(self._db.sql(_JOBS), self._db.instant(), text)
        ids = {row["id"].hex for row in rows}
        fresh = [one for one in stored if one.job.id in ids]
        traces = _text(history_rows(fresh)), _text(log_rows(fresh))
        await connection.fetch(self._db.sql(_TRACES), *traces)
        return len(rows)


def _whole_row(stored: StoredJob, parts: PartIds) -> Mapping[str, Any]:
    place = stored.job.flow
    more = {} if place is None else member_columns(stored, place, parts)
    return {**job_row(stored), **more}


def _only(kind: type[T], things: Sequence[CopiedRecord]) -> list[T]:
    return [thing for thing in things if isinstance(thing, kind)]


def _text(rows: Iterable[Mapping[str, Any]]) -> str:
    return msgspec.json.encode(list(rows)).decode()


def _ended_of(row: Row) -> tuple[int, Verb, str] | None:
    if row["ended_number"] is None:
        return None
    return row["ended_number"], Verb(row["ended_verb"]), row["ended_by"]
