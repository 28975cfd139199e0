"""Flows that successes add, and those that are added from outside."""

from __future__ import annotations

from collections.abc import Sequence

import apsw
import msgspec

from windlass._core.flows.flow import FlowState, NewFlow, PartKind
from windlass._core.flows.part import rank_of
from windlass._core.flows.plan import parts_to_add
from windlass._core.job.job import FlowId, JobId
from windlass._storage.protocol.flows import AddAnswer
from windlass._storage.shared.job_ids import id_of, known_id
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.sqlite.flows.parts import PartChanges
from windlass._storage.sqlite.flows.start import Members, add_parts, find_stored, start_flow
from windlass._storage.sqlite.io.rows import fetch, first, ids_text, value_of
from windlass._storage.sqlite.jobs.insert import require_limits
from windlass._storage.sqlite.limits.lanes import LaneChanges
from windlass.errors import IdConflict

__all__ = ["FlowAdditions", "FlowToAdd", "add_flows", "add_to_flow", "join_flow"]

_SQL = load_sql("windlass._storage.sqlite.sql", "flows.sql")
_ADDER, _NEXT_NUMBER, _EXPECT = _SQL["adder"], _SQL["next_number"], _SQL["expect_flow"]
_GROWING, _JOINED, _LEARN = _SQL["growing"], _SQL["joined"], _SQL["learn_before"]
_ANY_OF, _NOTE_LAST, _IDS_FROM = _SQL["any_of"], _SQL["note_part_last"], _SQL["part_ids_from"]

FlowToAdd = tuple[NewFlow, int | None]
"""A flow, and the part of the member that adds it."""


class FlowAdditions(msgspec.Struct):
    """The flows that one call has added."""

    parts: list[int] = []
    """Their parts, as far as they joined other flows. What these tell is to be worked out."""
    left_out: list[JobId] = []
    """Jobs of flows that were not stored."""


def add_flows(connection: apsw.Connection, now: int, flows: Sequence[FlowToAdd]) -> FlowAdditions:
    """Store flows that successes add, before the ends of members count."""
    added, lanes = FlowAdditions(), LaneChanges(connection)
    for flow, part in flows:
        ids = [job.id for _, job in flow.jobs]
        place = None if part is None else first(connection, _ADDER, (part,))
        joins = place is not None and place[2] != PartKind.CALLBACK
        if (
            (joins and place is not None and place[3])
            or find_stored(connection, flow) is not None
            or value_of(connection, _ANY_OF, (ids_text(ids),))
        ):
            added.left_out.extend(ids)
        elif joins and place is not None:
            added.parts.extend(join_flow(connection, flow, place[0], place[1], now))
        else:
            start_flow(connection, flow, lanes, now)
    lanes.settle()
    return added


def join_flow(
    connection: apsw.Connection,
    flow: NewFlow,
    number: int,
    counts_for: int,
    now: int,
    *,
    outside: bool = False,
) -> list[int]:
    """Let the parts of a flow join the flow ``number``. All of its jobs are blocked at first.
    Return the new parts. ``outside``: it counts for the end of that flow.
    """
    start = value_of(connection, _NEXT_NUMBER, (number,))
    parts = parts_to_add(flow, start, counts_for)
    joined = msgspec.structs.replace(flow, parts=tuple(parts))
    before = 0 if outside else start
    ranks = [rank_of(part.kind, n, before) for n, part in enumerate(parts, start)]
    add_parts(connection, number, joined, [False] * len(parts), ranks, start=start)
    if flow.after:
        connection.execute(_LEARN, (number, start))
    ids = [part for (part,) in fetch(connection, _IDS_FROM, (number, start))]
    Members(connection, LaneChanges(connection), now).store_all(
        flow.jobs, ids, [False] * len(parts)
    )
    connection.execute(_NOTE_LAST, (number, start))
    connection.execute(_EXPECT, (number, counts_for))
    return ids


def add_to_flow(connection: apsw.Connection, now: int, wanted: FlowId, flow: NewFlow) -> AddAnswer:
    """`FlowStore.add` at the instant ``now``."""
    found = first(connection, _GROWING, (known_id(JobId(wanted)),))
    if found is None:
        return AddAnswer.UNKNOWN
    number, state, cancelled, sealed, expires_at, end = found
    if first(connection, _JOINED, (id_of(JobId(flow.id)), number)) is not None:
        return AddAnswer.REPEATED
    if find_stored(connection, flow) is not None:
        raise IdConflict(flow.id)
    late = expires_at is not None and expires_at <= now
    if state != FlowState.RUNNING or cancelled or late:
        return AddAnswer.ENDED
    if sealed:
        return AddAnswer.SEALED
    require_limits(connection, flow.new_jobs)
    changes = PartChanges(connection, now)
    changes.touch(join_flow(connection, flow, number, end, now, outside=True))
    changes.store()
    return AddAnswer.ADDED
