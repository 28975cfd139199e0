"""Flows between records and stored bytes: see lua/shared/flows.lua."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec

from windlass._core.flows.flow import (
    SEALED_FOR,
    AddedFlow,
    Edge,
    FlowRecord,
    FlowState,
    NewFlow,
    NewPart,
    PartKind,
    PartRecord,
)
from windlass._core.flows.part import PartStanding
from windlass._core.job.job import FlowId, JobId, NewJob
from windlass._core.job.state import State
from windlass._core.values.instants import LAST_US, instant_of, span_us
from windlass._storage.protocol.flows import FlowGraph, Member
from windlass._storage.redis.io.records import optional_instant, settled_of
from windlass._storage.redis.jobs.insert import as_text, insert_args
from windlass._storage.shared.job_ids import id_of

__all__ = [
    "FLOW_CODES",
    "FLOW_STATES",
    "flow_of",
    "graph_of",
    "job_args",
    "member_of",
    "part_key",
    "part_record",
    "plan_record",
    "retried_of",
    "start_args",
]

FLOW_STATES: Final = tuple(FlowState)
"""States by their numbers in flows.lua."""
FLOW_CODES: Final = {state: code for code, state in enumerate(FLOW_STATES)}
"""States by the numbers that flows.lua has for them."""
_KINDS: Final = tuple(PartKind)
_KIND_CODES: Final = {kind: code for code, kind in enumerate(_KINDS)}
_NEVER = -1
_SEALED_FOR = span_us(SEALED_FOR)

_PART = struct.Struct(">BBBB8I5I2I")
_NUMBER = struct.Struct(">I")
_KEY = struct.Struct(">16sI")
_COUNTS: Final = (
    "total", "open", "blocked", "succeeded", "failed", "cancelled", "stopped", "skipped",
)  # fmt: skip
"""In the order of a part's record, after kind, ending, tidings and mark."""
_SUMMED: Final = tuple(name for name in _COUNTS if name != "blocked")

_pack = msgspec.msgpack.Encoder().encode


class _FlowRow(msgspec.Struct, array_like=True):
    """A stored flow."""

    number: int
    name: str
    key: str | bool
    tenant: str | bool
    created: int
    expires: int
    state: int
    ended: int
    cancelled: bool
    swept: int
    swept_to: int
    size: int
    lasts: int
    sealed: bool
    grown: bool = False
    retried: int | bool = False


class _PartPlan(msgspec.Struct, array_like=True):
    """The facts about a part that do not change."""

    name: str
    task: str
    after: list[tuple[int, bool]]
    added: tuple[str, int, int] | None = None


_decode_flow = msgspec.msgpack.Decoder(_FlowRow).decode
_decode_plan = msgspec.msgpack.Decoder(_PartPlan).decode


def part_key(flow: bytes, part: int) -> bytes:
    """Return a part as Lua names it."""
    return _KEY.pack(flow, part)


# --- in ---------------------------------------------------------------------------------------


def start_args(flow: NewFlow) -> list[bytes]:
    """Return the arguments of flow_start.lua for one flow."""
    head = _pack(
        (
            as_text(id_of(JobId(flow.id))),
            flow.name,
            False if flow.key is None else flow.key,
            False if flow.tenant is None else flow.tenant,
            _NEVER if flow.expires is None else max(0, min(span_us(flow.expires), LAST_US)),
            _SEALED_FOR if flow.sealed else False,
            [_asked(part) for part in flow.parts],
            len(flow.jobs),
            [(edge.part, edge.strict) for edge in flow.after],
        )
    )
    return [head, *job_args(flow.jobs)]


def job_args(jobs: Sequence[tuple[int, NewJob]]) -> list[bytes]:
    """Return jobs of a flow: the numbers of their parts, then the jobs as insert.lua takes them."""
    numbers = b"".join(_NUMBER.pack(number) for number, _ in jobs)
    return [numbers, *insert_args([job for _, job in jobs])]


def _asked(part: NewPart) -> tuple[object, ...]:
    edges = [(edge.part, edge.strict) for edge in part.after]
    return (part.name, _KIND_CODES[part.kind], part.task, int(part.when == "failed"), edges)


def part_record(part: PartRecord, standing: PartStanding, first: int) -> bytes:
    """Return a part as it is stored. ``first``: see shared/parts.lua."""
    told = sum(fact << at for at, fact in enumerate(standing.told))
    counts = (getattr(part, name) for name in _COUNTS)
    gate = msgspec.structs.astuple(standing.gate)
    on_failure = part.when == "failed"
    counts_for = 0 if part.added is None else part.added.counts_for + 1
    flags = (_KIND_CODES[part.kind], on_failure, told, standing.due)
    return _PART.pack(*flags, *counts, *gate, first, counts_for)


def plan_record(part: PartRecord) -> bytes:
    """Return what does not change about a part as it is stored."""
    added = part.added
    plan = (part.name, part.task, [(edge.part, edge.strict) for edge in part.after])
    if added is None:
        return _pack(plan)
    return _pack((*plan, (added.id, added.first, added.counts_for)))


# --- out --------------------------------------------------------------------------------------


def flow_of(uid: bytes, packed: bytes, parts: bytes) -> FlowRecord:
    """Return a flow, with the sums of the counts of its member parts."""
    row = _decode_flow(packed)
    sums = dict.fromkeys(_SUMMED, 0)
    for kind, _, _, _, *numbers in _PART.iter_unpack(parts):
        if _KINDS[kind] is PartKind.JOBS:
            counts = dict(zip(_COUNTS, numbers, strict=False))
            for name in _SUMMED:
                sums[name] += counts[name]
    return FlowRecord(
        id=FlowId(uid.hex()),
        number=row.number,
        name=row.name,
        state=FLOW_STATES[row.state],
        created_at=instant_of(row.created),
        ended_at=optional_instant(row.ended),
        key=_text(row.key),
        cancel_requested=row.cancelled,
        sealed=row.sealed,
        expires_at=optional_instant(row.expires),
        expires=None if row.lasts < 0 else timedelta(microseconds=row.lasts),
        tenant=_text(row.tenant),
        **sums,
    )


def retried_of(packed: bytes) -> int | None:
    """Return how far a retry of a flow has come."""
    rank = _decode_flow(packed).retried
    return None if isinstance(rank, bool) else rank


def _parts_of(parts: bytes, plans: Sequence[bytes]) -> Iterable[PartRecord]:
    """Yield the parts of a flow, from their records and plans."""
    rows = zip(_PART.iter_unpack(parts), plans, strict=True)
    for number, ((kind, on_failure, _, _, *numbers), plan) in enumerate(rows):
        asked = _decode_plan(plan)
        yield PartRecord(
            number=number,
            name=asked.name,
            kind=_KINDS[kind],
            task=asked.task,
            when="failed" if on_failure else "succeeded",
            after=tuple(Edge(part, strict) for part, strict in asked.after),
            added=_added_of(asked),
            **dict(zip(_COUNTS, numbers, strict=False)),
        )


def _added_of(plan: _PartPlan) -> AddedFlow | None:
    if plan.added is None:
        return None
    flow, first, counts_for = plan.added
    return AddedFlow(FlowId(flow), first, counts_for)


def graph_of(uid: bytes, reply: Sequence[bytes]) -> FlowGraph:
    """Return a flow with its parts, from the reply of flow_graph.lua."""
    packed, parts, *plans = reply
    return FlowGraph(flow_of(uid, packed, parts), list(_parts_of(parts, plans)))


def member_of(row: Sequence[Any]) -> Member:
    """Return a member from the reply of flow_members.lua."""
    seq, uid, kept, blocked, said = row
    job = JobId(uid.hex())
    if kept is None:
        lost = "its record could not be read and is in the list of dead jobs"
        return Member(
            seq, job, State.FAILED, blocked=False, error_kind="Damaged", error_message=lost
        )
    if not kept:
        return Member(seq, job, State.WAITING, bool(blocked))
    settled = settled_of(job, kept, said)
    return Member(
        seq,
        job,
        settled.state or State.WAITING,
        bool(blocked),
        settled.result,
        settled.error_kind,
        settled.error_message,
        settled.reason,
    )


def _text(value: object) -> str | None:
    """Return a text that may be missing: False."""
    return value if isinstance(value, str) else None
