"""Flows: started, settled, cancelled and retried, read and kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec

from windlass._core.flows.flow import (
    RETRIED_AT_ONCE,
    SEALED_FOR,
    SEALED_KEEPS_KEY,
    AddedFlow,
    Edge,
    FlowRecord,
    FlowState,
    NewFlow,
    PartRecord,
)
from windlass._core.job.job import FlowId, JobId, NewJob
from windlass._core.values.instants import span_us
from windlass._storage.postgres.admin.audit import audit_note_text
from windlass._storage.postgres.flows.new_flows import (
    KINDS,
    job_args,
    start_args,
    user_flow_of,
)
from windlass._storage.postgres.io.connection import RETRY_SECONDS, Row
from windlass._storage.postgres.io.database import PostgresDatabase
from windlass._storage.postgres.io.errors import FunctionError
from windlass._storage.postgres.io.records import STATES, known_id
from windlass._storage.postgres.io.rows import stored_span
from windlass._storage.postgres.jobs.insert import check_size, raise_if_key_busy
from windlass._storage.postgres.limits.limits import limit_error_of
from windlass._storage.protocol.actions import ActionResult, AuditNote
from windlass._storage.protocol.flows import (
    AddAnswer,
    FlowAction,
    FlowCounts,
    FlowFilter,
    FlowGraph,
    Member,
    Recounted,
    StartedFlow,
)
from windlass._storage.shared.sql_files import load_sql
from windlass.errors import StoreBusy

__all__ = ["PostgresFlows", "flow_of", "part_of"]

_SQL = load_sql("windlass._storage.postgres.sql", "flows.sql")
_START, _SETTLE, _ACT = _SQL["start"], _SQL["settle"], _SQL["act"]
_MEMBERS, _FIND, _ONE, _PARTS = _SQL["members"], _SQL["find"], _SQL["one"], _SQL["parts"]
_ADD, _EXTEND, _PRUNE, _RECOUNT = _SQL["add"], _SQL["extend"], _SQL["prune"], _SQL["recount"]
_STATES_OF = _SQL["states"]
_COUNTS, _GIVE_KEY_UP = _SQL["counts"], _SQL["give_key_up"]

_STATES = tuple(FlowState)
"""State of a flow by the number it is stored as."""
_NEWEST = 2**63 - 1
_SECONDS_EACH = 0.002
"""Seconds for storing a job on a slow server, beyond those of every call."""

_SPARE = stored_span(SEALED_FOR - SEALED_KEEPS_KEY)
"""How long before its end a sealed flow gives its key up."""
_NOT_WHOLE = "WL425"
"""The key of a new flow is held by one that gives it up."""

_encode = msgspec.json.Encoder().encode


class PostgresFlows:
    """A `FlowStore`. Every operation is one statement, and so one transaction."""

    portion = 20_000

    def __init__(self, database: PostgresDatabase) -> None:
        self._db = database

    async def start(self, flows: Sequence[NewFlow]) -> Sequence[StartedFlow]:
        if not flows:
            return []
        jobs = [job for flow in flows for _, job in flow.jobs]
        check_size(jobs)
        rows, unsure = await self._start(flows, jobs)
        return [
            StartedFlow(FlowId(flow), created, repeated and not unsure)
            for flow, created, repeated in rows
        ]

    async def _start(
        self, flows: Sequence[NewFlow], jobs: Sequence[NewJob]
    ) -> tuple[Sequence[Row], bool]:
        for _ in flows:  # each may need the key of another one that is not whole
            try:
                return await self._store(_START, jobs, *start_args(flows, _SPARE))
            except FunctionError as refused:
                if refused.code != _NOT_WHOLE:
                    raise
                key = refused.detail
            await self._db.fetch_aside(
                self._db.sql(_GIVE_KEY_UP), self._db.instant(), self._db.durable, key, _SPARE
            )
        return await self._store(_START, jobs, *start_args(flows, None))

    async def extend(
        self,
        flow: FlowId,
        jobs: Sequence[tuple[int, NewJob]],
        *,
        last: bool,
    ) -> bool:
        new = [job for _, job in jobs]
        check_size(new)
        kept = stored_span(SEALED_FOR)
        rows, _ = await self._store(_EXTEND, new, _known(flow), last, kept, *job_args(jobs))
        taken: bool = rows[0][0]
        return taken

    async def add(self, flow: FlowId, new: NewFlow) -> AddAnswer:
        jobs = new.new_jobs
        check_size(jobs)
        request = _encode(user_flow_of(new, self._db.instant(), None)).decode()
        rows, unsure = await self._store(_ADD, jobs, _known(flow), request)
        answer = AddAnswer(rows[0][0])
        return AddAnswer.ADDED if unsure and answer is AddAnswer.REPEATED else answer

    async def _store(
        self, statement: str, jobs: Sequence[NewJob], *args: Any
    ) -> tuple[Sequence[Row], bool]:
        """Run a statement that stores jobs; whether an earlier try may have stored them."""
        try:
            # On a separate connection: keys may be under decision in an open transaction.
            told = await self._db.fetch_told(
                self._db.sql(statement),
                self._db.instant(),
                self._db.durable,
                *args,
                at_most=RETRY_SECONDS + len(jobs) * _SECONDS_EACH,
                aside=True,
            )
        except FunctionError as refused:
            raise await limit_error_of(self._db, refused) from None
        except StoreBusy as error:
            raise_if_key_busy(error)
            raise
        self._db.wake(Counter([job.queue for job in jobs]))
        return told

    async def settle(self, limit: int) -> int:
        rows = await self._db.fetch_aside(
            self._db.sql(_SETTLE), self._db.instant(), self._db.durable, limit
        )
        done: int = rows[0][0]
        if done:
            self._db.wake()
        return done

    async def act(
        self, flows: Sequence[FlowId], action: FlowAction, note: AuditNote
    ) -> Sequence[ActionResult]:
        asked = [_known(flow) for flow in flows]
        rows = await self._db.fetch_aside(
            *(self._db.sql(_ACT), self._db.instant(), action, asked),
            *(audit_note_text(note), RETRIED_AT_ONCE),
        )
        answers = [ActionResult(answer) for answer in rows[0][0]]
        if ActionResult.DONE in answers:
            self._db.wake()
        return answers

    # --- looking ------------------------------------------------------------------------------

    async def members(
        self, flow: FlowId, part: int, *, after: int = 0, limit: int = 500
    ) -> Sequence[Member]:
        rows = await self._db.fetch_aside(
            self._db.sql(_MEMBERS), _known(flow), part, after, limit, reads=True
        )
        return [
            Member(
                row["seq"],
                JobId(row["id"].hex),
                STATES[row["state"]],
                row["blocked"],
                row["result"],
                row["error_kind"] or "",
                row["error_message"] or "",
                row["reason"],
            )
            for row in rows
        ]

    async def find(
        self, wanted: FlowFilter, *, before: int | None = None, limit: int = 50
    ) -> Sequence[FlowRecord]:
        states = None
        if wanted.states is not None:
            states = [_STATES.index(state) for state in wanted.states]
        rows = await self._db.fetch_aside(
            self._db.sql(_FIND),
            states,
            wanted.name,
            wanted.key,
            wanted.tenant,
            _NEWEST if before is None else before,
            limit,
            reads=True,
        )
        return [flow_of(row) for row in rows]

    async def counts(self, *, cap: int) -> FlowCounts:
        (row,) = await self._db.fetch_aside(self._db.sql(_COUNTS), cap, reads=True)
        return FlowCounts(**dict(row.items()), cap=cap)

    async def states(self, flows: Sequence[FlowId]) -> Sequence[FlowState | None]:
        asked = [_known(flow) for flow in flows]
        rows = await self._db.fetch_aside(self._db.sql(_STATES_OF), asked, reads=True)
        found = {row["id"]: _STATES[row["state"]] for row in rows}
        return [found.get(flow) for flow in asked]

    async def graph(self, flow: FlowId) -> FlowGraph | None:
        found = await self._db.fetch_aside(self._db.sql(_ONE), _known(flow), reads=True)
        if not found:
            return None
        record = flow_of(found[0])
        rows = await self._db.fetch_aside(self._db.sql(_PARTS), [record.number], reads=True)
        return FlowGraph(record, [part_of(row) for row in rows])

    # --- keeping ------------------------------------------------------------------------------

    async def prune(self, *, state: FlowState, older_than: timedelta, limit: int) -> int:
        rows = await self._db.fetch_aside(
            self._db.sql(_PRUNE),
            self._db.instant(),
            _STATES.index(state),
            span_us(older_than),
            limit,
        )
        deleted: int = rows[0][0]
        return deleted

    async def recount(self, *, after: int = 0, limit: int = 100, repair: bool = False) -> Recounted:
        ((wrong, following),) = await self._db.fetch_aside(
            self._db.sql(_RECOUNT), self._db.instant(), after, limit, repair
        )
        return Recounted(wrong or [], following)


def _known(flow: FlowId) -> UUID | None:
    return known_id(JobId(flow))


def flow_of(row: Row) -> FlowRecord:
    """Decode a row of ``find`` in flows.sql."""
    total, open_, succeeded, failed, cancelled, stopped, skipped = row["counts"]
    return FlowRecord(
        id=FlowId(row["id"].hex),
        number=row["number"],
        name=row["name"],
        state=_STATES[row["state"]],
        created_at=row["created_at"],
        ended_at=row["ended_at"],
        key=row["key"],
        cancel_requested=row["cancelled"],
        sealed=row["sealed"],
        expires_at=row["expires_at"],
        expires=None if row["expires"] is None else timedelta(microseconds=row["expires"]),
        tenant=row["tenant"],
        total=total,
        open=open_,
        succeeded=succeeded,
        failed=failed,
        cancelled=cancelled,
        stopped=stopped,
        skipped=skipped,
    )


def part_of(row: Row) -> PartRecord:
    """Decode a row of ``parts`` in flows.sql."""
    return PartRecord(
        number=row["number"],
        name=row["name"],
        kind=KINDS[row["kind"]],
        task=row["task"],
        when="failed" if row["on_failed"] else "succeeded",
        after=tuple(map(Edge, row["after"], row["strict"])),
        total=row["total"],
        blocked=row["blocked"],
        open=row["open"],
        succeeded=row["succeeded"],
        failed=row["failed"],
        cancelled=row["cancelled"],
        stopped=row["stopped"],
        skipped=row["skipped"],
        added=None
        if row["added_id"] is None
        else AddedFlow(FlowId(row["added_id"].hex), row["added_first"], row["counts_for"]),
    )
