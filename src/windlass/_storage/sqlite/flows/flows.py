"""Flows: started, settled, acted on, looked at and kept as a whole."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

import apsw
import msgspec

from windlass._core.flows.flow import (
    AddedFlow,
    Edge,
    FlowRecord,
    FlowState,
    NewFlow,
    PartKind,
    PartRecord,
)
from windlass._core.job.job import FlowId, JobId, NewJob
from windlass._core.values.instants import LAST_US, instant_of, span_us
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
from windlass._storage.shared.job_ids import known_id
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.sqlite.admin.audit import earlier_answers, keep_audit
from windlass._storage.sqlite.flows.added import add_to_flow
from windlass._storage.sqlite.flows.parts import BLOCKED
from windlass._storage.sqlite.flows.recount import recount
from windlass._storage.sqlite.flows.retry import begin_retry, continue_retries, is_retrying
from windlass._storage.sqlite.flows.settle import (
    SETTLED_AT_ONCE,
    cancel_flow,
    is_unsettled,
    settle,
)
from windlass._storage.sqlite.flows.start import extend_flow, start_flows
from windlass._storage.sqlite.io.database import SqliteDatabase
from windlass._storage.sqlite.io.rows import (
    STATES,
    Row,
    fetch,
    fetch_shown,
    first,
    optional_instant,
    value_of,
)
from windlass._storage.sqlite.jobs.apply_effects import delete_jobs
from windlass._storage.sqlite.jobs.unique_keys import free_keys

__all__ = ["SqliteFlows", "read_graph"]

_SQL = load_sql("windlass._storage.sqlite.sql", "flows.sql")
_ACTED_ON = _SQL["acted_on"]
_MEMBERS, _FLOW, _FIND = _SQL["members"], _SQL["flow"], _SQL["find"]
_GRAPH, _EDGES, _COUNTS = _SQL["graph"], _SQL["edges"], _SQL["counts"]
_STATES_OF = _SQL["states"]
_GOING, _LET_GO, _GOING_JOBS = _SQL["going"], _SQL["let_go"], _SQL["going_jobs"]
_DELETE = (_SQL["delete_edges"], _SQL["delete_parts"], _SQL["delete_flow"])

_NEWEST = 2**63 - 1

_encode = msgspec.json.Encoder().encode


class SqliteFlows:
    """A `FlowStore`."""

    portion = 20_000

    def __init__(self, database: SqliteDatabase) -> None:
        self._db = database

    async def start(self, flows: Sequence[NewFlow]) -> Sequence[StartedFlow]:
        answers = await self._db.write(partial(start_flows, flows=flows))
        self._db.subscribers.wake()
        return answers

    async def extend(
        self,
        flow: FlowId,
        jobs: Sequence[tuple[int, NewJob]],
        *,
        last: bool,
    ) -> bool:
        op = partial(extend_flow, wanted=flow, jobs=jobs, last=last)
        done = await self._db.write(op)
        self._db.subscribers.wake()
        return done

    async def add(self, flow: FlowId, new: NewFlow) -> AddAnswer:
        answer = await self._db.write(partial(add_to_flow, wanted=flow, flow=new))
        self._db.subscribers.wake()
        return answer

    async def settle(self, limit: int) -> int:
        done = 0
        # Most often nothing is due, and the write lock is everybody's: it is held for moments.
        while done < limit and (self._db.read(is_unsettled) or self._db.read(is_retrying)):
            chunk = min(limit - done, SETTLED_AT_ONCE)
            some = await self._db.write(partial(_settle, limit=chunk))
            if not some:
                break
            done += some
        if done:
            self._db.subscribers.wake()
        return done

    async def act(
        self, flows: Sequence[FlowId], action: FlowAction, note: AuditNote
    ) -> Sequence[ActionResult]:
        answers = await self._db.write(
            lambda connection, now: _act(connection, flows, action, note, now)
        )
        self._db.subscribers.wake()
        return answers

    async def members(
        self, flow: FlowId, part: int, *, after: int = 0, limit: int = 500
    ) -> Sequence[Member]:
        values = (known_id(JobId(flow)), part, after, limit)
        return await self._db.ask(
            lambda connection, _: [
                _member(row) for row in fetch_shown(connection, _MEMBERS, values)
            ]
        )

    async def find(
        self, wanted: FlowFilter, *, before: int | None = None, limit: int = 50
    ) -> Sequence[FlowRecord]:
        states = None if wanted.states is None else [state.value for state in wanted.states]
        values = {
            "before": _NEWEST if before is None else before,
            "states": None if states is None else _encode(states).decode(),
            "name": wanted.name,
            "key": wanted.key,
            "tenant": wanted.tenant,
            "limit": limit,
        }
        return await self._db.ask(
            lambda connection, _: [
                _flow(row) for row in connection.execute(_FIND, values).fetchall()
            ]
        )

    async def counts(self, *, cap: int) -> FlowCounts:
        return await self._db.ask(lambda connection, _: _counts(connection, cap))

    async def states(self, flows: Sequence[FlowId]) -> Sequence[FlowState | None]:
        asked = [known_id(JobId(flow)).hex() for flow in flows]
        values = (_encode(asked).decode(),)
        rows = self._db.read(lambda connection, _: fetch(connection, _STATES_OF, values))
        found = {flow: FlowState(state) for flow, state in rows}
        return [found.get(flow) for flow in asked]

    async def graph(self, flow: FlowId) -> FlowGraph | None:
        return await self._db.ask(lambda connection, _: read_graph(connection, flow))

    async def prune(self, *, state: FlowState, older_than: timedelta, limit: int) -> int:
        age = span_us(older_than)
        return await self._db.write(
            lambda connection, now: _prune(connection, state, max(now - age, -LAST_US), limit)
        )

    async def recount(self, *, after: int = 0, limit: int = 100, repair: bool = False) -> Recounted:
        op = partial(recount, after=after, limit=limit, repair=repair)
        return await (self._db.write(op) if repair else self._db.ask(op))


def _settle(connection: apsw.Connection, now: int, limit: int) -> int:
    done = settle(connection, limit, now)
    return done + continue_retries(connection, limit - done, now)


# --- actions --------------------------------------------------------------------------------------


def _act(
    connection: apsw.Connection,
    flows: Sequence[FlowId],
    action: FlowAction,
    note: AuditNote,
    now: int,
) -> list[ActionResult]:
    given = earlier_answers(connection, note)
    if given is not None:
        return given
    obey = _retry if action == "retry" else _cancel
    answers = [obey(connection, flow, now) for flow in flows]
    effects = answers.count(ActionResult.DONE)
    if effects:
        keep_audit(connection, note, effects, now, answers)
    return answers


def _cancel(connection: apsw.Connection, wanted: FlowId, now: int) -> ActionResult:
    flow = first(connection, _ACTED_ON, (known_id(JobId(wanted)),))
    if flow is None:
        return ActionResult.UNKNOWN
    number, state, *_ = flow
    if state != FlowState.RUNNING:
        return ActionResult.WRONG_STATE
    cancel_flow(connection, number, now)
    return ActionResult.DONE


def _retry(connection: apsw.Connection, wanted: FlowId, now: int) -> ActionResult:
    flow = first(connection, _ACTED_ON, (known_id(JobId(wanted)),))
    if flow is None:
        return ActionResult.UNKNOWN
    number, state, superseded, sealed = flow
    if sealed or state in (FlowState.RUNNING, FlowState.SUCCEEDED):
        return ActionResult.WRONG_STATE
    if superseded:
        return ActionResult.CONFLICT
    begin_retry(connection, number, now)
    return ActionResult.DONE


# --- looking --------------------------------------------------------------------------------------


def _member(row: Row) -> Member:
    seq, uid, state, flow_state, result, kind, text, reason = row
    blocked = flow_state == BLOCKED
    job = JobId(uid.hex())
    return Member(seq, job, STATES[state], blocked, result, kind or "", text or "", reason)


def _flow(row: Row) -> FlowRecord:
    """Decode a row of ``flow`` in flows.sql."""
    uid, number, name, state, created_at, ended_at, key, *about = row[:12]
    cancelled, sealed, expires_at, expires, tenant = about
    total, open_, succeeded, failed, ended, stopped, skipped = map(int, row[12:])
    return FlowRecord(
        id=FlowId(uid.hex()),
        number=number,
        name=name,
        state=FlowState(state),
        created_at=instant_of(created_at),
        ended_at=optional_instant(ended_at),
        key=key,
        cancel_requested=bool(cancelled),
        sealed=bool(sealed),
        expires_at=optional_instant(expires_at),
        expires=None if expires is None else timedelta(microseconds=expires),
        tenant=tenant,
        total=total,
        open=open_,
        succeeded=succeeded,
        failed=failed,
        cancelled=ended,
        stopped=stopped,
        skipped=skipped,
    )


def _counts(connection: apsw.Connection, cap: int) -> FlowCounts:
    ((running, succeeded, failed, cancelled, blocked, oldest),) = fetch(connection, _COUNTS, (cap,))
    return FlowCounts(
        running=running,
        succeeded=succeeded,
        failed=failed,
        cancelled=cancelled,
        blocked=int(blocked),
        oldest=optional_instant(oldest),
        cap=cap,
    )


def read_graph(connection: apsw.Connection, wanted: FlowId) -> FlowGraph | None:
    """Return a flow with its parts; None: it is not stored."""
    found = fetch_shown(connection, _FLOW, (known_id(JobId(wanted)),))
    if not found:
        return None
    flow = _flow(found[0])
    after: defaultdict[int, list[Edge]] = defaultdict(list)
    for part, before, strict in fetch(connection, _EDGES, (flow.number,)):
        after[part].append(Edge(before, strict=bool(strict)))
    rows = fetch_shown(connection, _GRAPH, (flow.number,))
    return FlowGraph(flow, [_part(row, tuple(after[row[0]])) for row in rows])


def _part(row: Row, after: tuple[Edge, ...]) -> PartRecord:
    number, name, kind, task, when, total, blocked, open_, *ended = row[:13]
    succeeded, failed, cancelled, stopped, skipped = ended
    added_id, first_part, counts_for = row[13:]
    return PartRecord(
        number=number,
        name=name,
        kind=PartKind(kind),
        task=task,
        when=when,
        after=after,
        total=total,
        blocked=blocked,
        open=open_,
        succeeded=succeeded,
        failed=failed,
        cancelled=cancelled,
        stopped=stopped,
        skipped=skipped,
        added=None
        if added_id is None
        else AddedFlow(FlowId(added_id.hex()), first_part, counts_for),
    )


# --- keeping --------------------------------------------------------------------------------------


def _prune(connection: apsw.Connection, state: FlowState, before: int, limit: int) -> int:
    """Delete flows in portions: the first write of a deletion is a mark."""
    deleted = 0
    while deleted < limit:
        flow = value_of(connection, _GOING)
        if flow is None:
            flow = value_of(connection, _LET_GO, (state.value, before))
        if flow is None:
            break
        rows = fetch(connection, _GOING_JOBS, (flow, limit - deleted))
        free_keys(connection, [(key, seq) for seq, key in rows if key is not None])
        delete_jobs(connection, [seq for seq, _ in rows])
        deleted += len(rows)
        if deleted < limit:
            for statement in _DELETE:
                connection.execute(statement, (flow,))
    return deleted
