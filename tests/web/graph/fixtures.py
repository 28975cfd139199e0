"""Flows to draw, as they are stored."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from windlass._core.flows.flow import Edge, FlowRecord, FlowState, PartKind, PartRecord
from windlass._core.job.job import FlowId

__all__ = ["a_flow", "a_part", "with_end"]


def a_part(number: int, after: Iterable[int | Edge] = (), **fields: Any) -> PartRecord:
    """A part with one job that succeeded, unless ``fields`` say otherwise."""
    edges = tuple(one if isinstance(one, Edge) else Edge(one) for one in after)
    counts = dict.fromkeys(
        ("blocked", "open", "succeeded", "failed", "cancelled", "stopped", "skipped"), 0
    )
    told: dict[str, Any] = {
        "name": f"part {number}",
        "kind": PartKind.JOBS,
        "task": f"shop.step_{number}",
        "when": "succeeded",
        "total": 1,
        **counts,
        "succeeded": 1,
        **fields,
    }
    return PartRecord(number=number, after=edges, **told)


def with_end(parts: Sequence[PartRecord]) -> list[PartRecord]:
    """The same with the end, which waits for all of them."""
    last = len(parts)
    end = a_part(last, range(last), name="end", task="", kind=PartKind.END, total=0, succeeded=0)
    return [*parts, end]


def a_flow(state: FlowState = FlowState.RUNNING, **counts: Any) -> FlowRecord:
    at = datetime(2030, 1, 1, tzinfo=UTC)
    return FlowRecord(
        id=FlowId("0" * 32), number=1, name="import", state=state, created_at=at, **counts
    )
