"""Flows between records and rows, for a copy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

import msgspec

from windlass._core.flows.flow import FlowState, PartRecord
from windlass._core.flows.part import Counts, PartStanding, ranks_of, standings
from windlass._core.job.job import FlowPlace, JobId
from windlass._storage.postgres.flows.new_flows import KINDS
from windlass._storage.postgres.io.connection import Row
from windlass._storage.postgres.io.rows import stored_id, stored_span, stored_text
from windlass._storage.protocol.copy import HeldMember, StoredJob
from windlass._storage.protocol.flows import FlowGraph

__all__ = ["PartIds", "flow_rows", "held_of", "member_columns", "part_rows"]

_Columns = Mapping[str, Any]
PartIds = Mapping[tuple[str, int], int]
"""The ids of stored parts, by flow and number."""

_STATES: Final = tuple(FlowState)
_COUNTS: Final = Counts.__struct_fields__
_BLOCKED, _STOPPED, _SKIPPED = 4, 5, 6
"""The column ``ready`` of members that their flows hold."""
_READY: Final = {None: _BLOCKED, "stopped": _STOPPED, "skipped": _SKIPPED}


# --- out --------------------------------------------------------------------------------------


def held_of(row: Row) -> HeldMember | None:
    """Return how its flow holds a member, from its row."""
    ready = row["ready"]
    if ready is None or ready < _BLOCKED:
        return None
    # Without a delay, it is stored as due at the instant that was asked for, if there was one.
    asked_at = row["delay"] is None and row["due"] != row["created_at"]
    return HeldMember(
        ended="stopped" if ready == _STOPPED else "skipped" if ready == _SKIPPED else None,
        at=row["due"] if asked_at else None,
        delay=_span(row["delay"]),
        expires=_span(row["expires"]),
    )


def _span(us: int | None) -> timedelta | None:
    return None if us is None else timedelta(microseconds=us)


# --- in ---------------------------------------------------------------------------------------


def flow_rows(graphs: Iterable[FlowGraph]) -> Iterator[_Columns]:
    """Yield flows for ``restore_flows``."""
    for graph in graphs:
        flow = graph.flow
        yield {
            "id": stored_id(JobId(flow.id)),
            "name": stored_text(flow.name),
            "state": _STATES.index(flow.state),
            "cancelled": flow.cancel_requested,
            "sealed": flow.sealed,
            "retry_rank": graph.retried,
            "grown": any(part.added is not None for part in graph.parts),
            "created_at": flow.created_at,
            "ended_at": flow.ended_at,
            "expires": stored_span(flow.expires),
            "expires_at": flow.expires_at,
            "key": flow.key,
            "tenant": flow.tenant,
        }


def part_rows(graphs: Sequence[FlowGraph]) -> Iterator[_Columns]:
    """Yield the parts of flows for the same function."""
    for place, graph in enumerate(graphs, 1):
        feeds: list[list[tuple[int, bool]]] = [[] for _ in graph.parts]
        for part in graph.parts:
            for edge in part.after:
                feeds[edge.part].append((part.number, edge.strict))
        where = standings(graph.flow, graph.parts, graph.retried)
        ranks = ranks_of(graph.parts)
        for part, standing, fed, rank in zip(graph.parts, where, feeds, ranks, strict=True):
            yield {"flow": place, "rank": rank, **_part_row(part, standing, fed)}


def _part_row(
    part: PartRecord, standing: PartStanding, feeds: Sequence[tuple[int, bool]]
) -> _Columns:
    return {
        "number": part.number,
        "name": stored_text(part.name),
        "kind": KINDS.index(part.kind),
        "task": part.task,
        "on_failed": part.when == "failed",
        "after": [edge.part for edge in part.after],
        "strict": [edge.strict for edge in part.after],
        "feeds": [follower for follower, _ in feeds],
        "feeds_strict": [strict for _, strict in feeds],
        **{name: getattr(part, name) for name in _COUNTS},
        **msgspec.structs.asdict(standing.gate),
        **{f"told_{fact}": known for fact, known in standing.told._asdict().items()},
        "due": standing.due,
        **_added_columns(part),
    }


def _added_columns(part: PartRecord) -> _Columns:
    if part.added is None:
        return {}
    return {
        "added_id": stored_id(JobId(part.added.id)),
        "added_first": part.added.first,
        "counts_for": part.added.counts_for,
    }


def member_columns(stored: StoredJob, place: FlowPlace, parts: PartIds) -> _Columns:
    """Return what ``restore_jobs`` is to know more of a member."""
    held = stored.held
    columns = {"part": parts[place.flow, place.part], "added": True if place.added else None}
    if held is None:
        return columns
    return {
        **columns,
        "ready": _READY[held.ended],
        "delay": stored_span(held.delay),
        "expires": stored_span(held.expires),
    }
