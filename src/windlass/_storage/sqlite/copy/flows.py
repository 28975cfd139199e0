"""Flows as they were in another storage, and the places of their members."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import apsw
import msgspec

from windlass._core.flows.flow import FlowRecord, FlowState
from windlass._core.flows.part import Counts, ranks_of, standings
from windlass._core.job.job import FlowId, FlowPlace, JobId
from windlass._core.values.instants import LAST_US, instant_of, span_us, to_us
from windlass._storage.protocol.copy import HeldMember, StoredJob
from windlass._storage.protocol.flows import FlowGraph
from windlass._storage.shared.job_ids import id_of
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.sqlite.flows.flows import read_graph
from windlass._storage.sqlite.flows.parts import BLOCKED, SKIPPED, STOPPED
from windlass._storage.sqlite.flows.settle import sweep_from_start
from windlass._storage.sqlite.flows.start import add_edges, added_values, stored_kind, timing_text
from windlass._storage.sqlite.io.rows import NEVER, Row, fetch, value_of

__all__ = ["MemberPlaces", "dump_flows", "held_of", "known_flows", "restore_flow"]

_SQL = load_sql("windlass._storage.sqlite.sql", "flows.sql")
_DUMPED, _STORED = _SQL["dumped"], _SQL["stored"]
_RESTORE_FLOW, _RESTORE_PART = _SQL["restore_flow"], _SQL["restore_part"]
_PART_AT, _NOTE_GIVEN, _NOTE_ADDED = _SQL["part_at"], _SQL["note_given"], _SQL["note_added"]

_COUNTS = Counts.__struct_fields__
_HELD = {None: BLOCKED, "stopped": STOPPED, "skipped": SKIPPED}
_NO_MEMBER: Mapping[str, Any] = {"part": None, "flow_state": None, "timing": None}
_timing = msgspec.json.Decoder(dict[str, int]).decode


# --- out --------------------------------------------------------------------------------------


def dump_flows(connection: apsw.Connection, after: int, limit: int) -> list[FlowGraph]:
    """`CopyStore.dump_flows`."""
    return [
        msgspec.structs.replace(graph, retried=retried)
        for uid, retried in fetch(connection, _DUMPED, (after, limit))
        if (graph := read_graph(connection, FlowId(uid))) is not None
    ]


def held_of(flow_state: int | None, timing: str | None) -> HeldMember | None:
    """Return how its flow holds a member, from two columns of its row."""
    if flow_state is None:
        return None
    asked = {} if timing is None else _timing(timing)
    delay, expires = [_span(asked.get(name)) for name in ("delay", "expires")]
    return HeldMember(
        ended="stopped" if flow_state == STOPPED else "skipped" if flow_state == SKIPPED else None,
        at=instant_of(asked["at"]) if "at" in asked else None,
        delay=delay,
        expires=expires,
    )


def _span(us: int | None) -> timedelta | None:
    return None if us is None else timedelta(microseconds=us)


# --- in ---------------------------------------------------------------------------------------


def known_flows(connection: apsw.Connection, things: list[StoredJob]) -> set[FlowId]:
    """Return the flows of these jobs that are stored."""
    asked = {one.job.flow.flow for one in things if one.job.flow is not None}
    return {
        flow for flow in asked if value_of(connection, _STORED, (id_of(JobId(flow)),)) is not None
    }


def restore_flow(connection: apsw.Connection, graph: FlowGraph) -> bool:
    """Store a flow without its jobs; False: its id is stored."""
    flow = graph.flow
    connection.execute(_RESTORE_FLOW, (*_flow_row(flow), graph.retried))
    if not connection.changes():
        return False
    number = connection.last_insert_rowid()
    where, ranks = standings(flow, graph.parts, graph.retried), ranks_of(graph.parts)
    firsts = (part.added.first for part in graph.parts if part.added is not None)
    joined = min(firsts, default=len(graph.parts))  # from here on, parts of added flows
    connection.executemany(
        _RESTORE_PART,
        [
            (
                *(number, part.number, part.name, stored_kind(part), part.task, part.when),
                *(getattr(part, name) for name in _COUNTS),
                *msgspec.structs.astuple(gate),
                *(*map(int, told), int(due), rank, *added_values(part)),
                0 if part.number >= joined else None,
            )
            for part, (gate, told, due), rank in zip(graph.parts, where, ranks, strict=True)
        ],
    )
    add_edges(connection, number, graph.parts)
    if flow.cancel_requested and flow.state is FlowState.RUNNING:
        sweep_from_start(connection, number)
    return True


def _flow_row(flow: FlowRecord) -> Row:
    return (
        id_of(JobId(flow.id)),
        flow.name,
        flow.state.value,
        *(_us(at) for at in (flow.created_at, flow.ended_at, flow.expires_at)),
        None if flow.expires is None else span_us(flow.expires),
        flow.key,
        flow.tenant,
        int(flow.cancel_requested),
        int(flow.sealed),
    )


def _us(instant: datetime | None) -> int | None:
    return None if instant is None else min(to_us(instant), LAST_US)


class MemberPlaces:
    """The columns of jobs that say where members stand. Each part is looked up once."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._parts: dict[tuple[FlowId, int], int] = {}

    def columns(self, stored: StoredJob) -> Mapping[str, Any]:
        """Return the values of a job for ``restore`` in copy.sql."""
        place, held = stored.job.flow, stored.held
        if place is None:
            return _NO_MEMBER
        columns: dict[str, Any] = {**_NO_MEMBER, "part": self._part(place)}
        if held is None:
            return columns
        columns |= {"flow_state": _HELD[held.ended], "timing": timing_text(held)}
        return columns if held.ended else {**columns, "ready": 0, "lane": None, "due": NEVER}

    def note(self, place: FlowPlace, seq: int) -> None:
        """Note the number of a member. Those behind the last given one were added."""
        if not place.added:
            self._connection.execute(_NOTE_GIVEN, (self._part(place), seq))
            self._connection.execute(_NOTE_ADDED, (self._part(place), seq))

    def _part(self, place: FlowPlace) -> int:
        key = (place.flow, place.part)
        if key not in self._parts:
            asked = (id_of(JobId(place.flow)), place.part)
            self._parts[key] = value_of(self._connection, _PART_AT, asked)
        return self._parts[key]
