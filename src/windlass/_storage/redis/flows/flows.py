"""Starting flows, settling their parts, and what operators do to them: see lua/flow_*.lua."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec

from windlass._core.flows.flow import (
    RETRIED_AT_ONCE,
    SEALED_FOR,
    SEALED_KEEPS_KEY,
    FlowRecord,
    FlowState,
    NewFlow,
)
from windlass._core.job.job import FlowId, JobId, NewJob
from windlass._core.values.instants import instant_of, span_us
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
from windlass._storage.protocol.wakeups import Topic
from windlass._storage.redis.admin.actions import ANSWERS
from windlass._storage.redis.admin.audit import note_bytes
from windlass._storage.redis.flows.records import (
    FLOW_CODES,
    FLOW_STATES,
    flow_of,
    graph_of,
    job_args,
    member_of,
    part_key,
    start_args,
)
from windlass._storage.redis.io.database import Argument, RedisDatabase
from windlass._storage.redis.io.scripts import script
from windlass._storage.redis.jobs.insert import require_stored
from windlass._storage.shared.job_ids import known_id

__all__ = ["RedisFlows"]

_START, _SETTLE, _ACT = script("flow_start"), script("flow_settle"), script("flow_act")
_MEMBERS, _FIND, _GRAPH = script("flow_members"), script("flow_find"), script("flow_graph")
_ADD, _EXTEND, _STATES = script("flow_add"), script("flow_extend"), script("flow_states")
_PRUNE, _RECOUNT, _COUNTS = script("flow_prune"), script("flow_recount"), script("flow_counts")

_SPARE = span_us(SEALED_FOR - SEALED_KEEPS_KEY)
"""How long before its end a sealed flow gives its key up."""
_SETTLED_AT_ONCE = 200  # claims wait meanwhile
_DELETED_AT_ONCE = 100
_MEMBERS_AT_ONCE = 500
_LOOKED_AT = 1_000
_LARGEST_PART = 2**32

_pack = msgspec.msgpack.Encoder().encode


class RedisFlows:
    """A `FlowStore`."""

    portion = 8_000  # one script of about 40 ms: the server does nothing else meanwhile

    def __init__(self, database: RedisDatabase) -> None:
        self._db = database

    # --- starting -----------------------------------------------------------------------------

    async def start(self, flows: Sequence[NewFlow]) -> Sequence[StartedFlow]:
        if not flows:
            return []
        args = [argument for flow in flows for argument in start_args(flow)]
        reply, unsure = await self._db.run_told(_START, _SPARE, *args)
        require_stored(reply)
        self._db.wake()
        return [
            _started(flow.id, said, unsure=unsure) for flow, said in zip(flows, reply, strict=True)
        ]

    async def extend(
        self,
        flow: FlowId,
        jobs: Sequence[tuple[int, NewJob]],
        *,
        last: bool,
    ) -> bool:
        kept = span_us(SEALED_FOR)
        uid = known_id(JobId(flow))
        reply = await self._db.run_aside(_EXTEND, uid, int(last), kept, *job_args(jobs))
        if not isinstance(reply, int):
            require_stored(reply)
        self._db.wake()
        return bool(reply)

    async def add(self, flow: FlowId, new: NewFlow) -> AddAnswer:
        uid = known_id(JobId(flow))
        reply, unsure = await self._db.run_told(_ADD, uid, *start_args(new), aside=True)
        require_stored(reply)
        self._db.wake()
        answer = AddAnswer(reply[0].decode())
        return AddAnswer.ADDED if unsure and answer is AddAnswer.REPEATED else answer

    async def settle(self, limit: int) -> int:
        done = 0
        while done < limit:
            chunk = min(limit - done, _SETTLED_AT_ONCE)
            some = int(await self._db.run_aside(_SETTLE, chunk))
            done += some
            if not some:
                break
        if done:
            self._db.wake(topics={Topic.CANCEL})
        return done

    # --- actions ------------------------------------------------------------------------------

    async def act(
        self, flows: Sequence[FlowId], action: FlowAction, note: AuditNote
    ) -> Sequence[ActionResult]:
        asked = (
            note_bytes(note),
            action,
            RETRIED_AT_ONCE,
            *(known_id(JobId(flow)) for flow in flows),
        )
        answers = await self._db.run_aside(_ACT, *asked)
        self._db.wake()
        return [ANSWERS[character] for character in answers]

    # --- looking ------------------------------------------------------------------------------

    async def members(
        self, flow: FlowId, part: int, *, after: int = 0, limit: int = 500
    ) -> Sequence[Member]:
        found: list[Member] = []
        if not 0 <= part < _LARGEST_PART:
            return found
        key = part_key(known_id(JobId(flow)), part)
        while len(found) < limit:
            chunk = min(limit - len(found), _MEMBERS_AT_ONCE)
            some = [member_of(row) for row in await self._db.run_aside(_MEMBERS, key, after, chunk)]
            found += some
            if len(some) < chunk:
                break
            after = some[-1].seq
        return found

    async def find(
        self, wanted: FlowFilter, *, before: int | None = None, limit: int = 50
    ) -> Sequence[FlowRecord]:
        found: list[FlowRecord] = []
        said = _pack(_said(wanted))
        at: Argument = "" if before is None else before
        while len(found) < limit:
            at, *rows = await self._db.run_aside(_FIND, said, at, limit - len(found), _LOOKED_AT)
            found += [flow_of(*row) for row in zip(*[iter(rows)] * 3, strict=True)]
            if not at:
                break
        return found

    async def counts(self, *, cap: int) -> FlowCounts:
        *counted, oldest = await self._db.run_aside(_COUNTS)
        running, succeeded, failed, cancelled, blocked = (min(one, cap) for one in counted)
        return FlowCounts(
            running=running,
            succeeded=succeeded,
            failed=failed,
            cancelled=cancelled,
            blocked=blocked,
            oldest=None if oldest is None else instant_of(int(oldest)),
            cap=cap,
        )

    async def states(self, flows: Sequence[FlowId]) -> Sequence[FlowState | None]:
        reply = await self._db.run_aside(_STATES, *(known_id(JobId(flow)) for flow in flows))
        return [None if code is None else FLOW_STATES[code] for code in reply]

    async def graph(self, flow: FlowId) -> FlowGraph | None:
        reply = await self._db.run_aside(_GRAPH, uid := known_id(JobId(flow)))
        return graph_of(uid, reply) if reply else None

    # --- keeping ------------------------------------------------------------------------------

    async def prune(self, *, state: FlowState, older_than: timedelta, limit: int) -> int:
        deleted, more = 0, 1
        asked = (FLOW_CODES[state], span_us(older_than))
        while more and deleted < limit:
            chunk = min(limit - deleted, _DELETED_AT_ONCE)
            some, more = await self._db.run_aside(_PRUNE, *asked, chunk)
            deleted += some
        return deleted

    async def recount(self, *, after: int = 0, limit: int = 100, repair: bool = False) -> Recounted:
        wrong: list[str] = []
        counted = 0
        while counted < limit:
            some, last, *rows = await self._db.run_aside(
                _RECOUNT, after, limit - counted, "1" if repair else ""
            )
            wrong += [_wrong(row) for row in zip(*[iter(rows)] * 5, strict=True)]
            if not some:
                return Recounted(wrong)
            counted, after = counted + some, last
        return Recounted(wrong, after)


def _started(flow: FlowId, said: bytes, *, unsure: bool) -> StartedFlow:
    if said == b"=":
        return StartedFlow(flow, created=True, repeated=not unsure)
    if said:
        return StartedFlow(FlowId(said.hex()), created=False)
    return StartedFlow(flow, created=True)


def _said(wanted: FlowFilter) -> dict[str, object]:
    """Return the filter as flow_find.lua takes it."""
    given: dict[str, object] = {"name": wanted.name, "key": wanted.key, "tenant": wanted.tenant}
    if wanted.states is not None:
        given["states"] = [FLOW_CODES[state] for state in wanted.states]
    return {name: value for name, value in given.items() if value is not None}


def _wrong(row: Sequence[Any]) -> str:
    uid, name, count, stored, found = row
    return (
        f"flow {uid.hex()}, {name.decode(errors='replace')}: {count.decode()} is {stored}, and "
        f"{found} jobs are"
    )
