"""The state of a part as people see it: a word, which a colour only repeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

from windlass._core.flows.flow import FlowRecord, FlowState, PartKind, PartRecord
from windlass._core.flows.part import ranks_of

__all__ = ["PartState", "part_states"]


class PartState(StrEnum):
    """How far a part is."""

    FAILED = "failed"
    ACTIVE = "active"
    """It has jobs that may run or are running."""
    CANCELLED = "cancelled"
    STOPPED = "stopped"
    """Something that it waited for failed."""
    BLOCKED = "blocked"
    """It waits for other parts."""
    SUCCEEDED = "succeeded"
    SKIPPED = "skipped"
    """It was not needed."""


_OPEN = frozenset({PartState.BLOCKED, PartState.ACTIVE})
_BROKEN = frozenset({PartState.FAILED, PartState.CANCELLED, PartState.STOPPED})
_OF_FLOW = {
    FlowState.RUNNING: PartState.BLOCKED,
    FlowState.SUCCEEDED: PartState.SUCCEEDED,
    FlowState.FAILED: PartState.FAILED,
    FlowState.CANCELLED: PartState.CANCELLED,
}


def part_states(flow: FlowRecord, parts: Sequence[PartRecord]) -> Mapping[int, PartState]:
    """Return the state of each part by its number. A part without jobs has that of those it waits
    for. A flow that was added counts like a job of its part.
    """
    found: dict[int, PartState] = {}
    added: dict[int, list[PartState]] = {}
    ranks = ranks_of(parts)
    for part in sorted(parts, key=lambda part: ranks[part.number]):
        if part.kind is PartKind.END:
            state = _OF_FLOW[flow.state]
        elif part.total:
            state = _with_added(_by_counts(part), added.get(part.number, []))
        else:
            state = _by_upstream(part, found)
        found[part.number] = state
        if part.added is not None:
            added.setdefault(part.added.counts_for, []).append(state)
    return {part.number: found[part.number] for part in parts}


def _with_added(own: PartState, added: Sequence[PartState]) -> PartState:
    if any(state in _BROKEN for state in added):
        return PartState.FAILED
    if own is PartState.SUCCEEDED and any(state in _OPEN for state in added):
        return PartState.ACTIVE
    return own


def _by_counts(part: PartRecord) -> PartState:
    if part.failed:
        return PartState.FAILED
    if part.open:
        return PartState.BLOCKED if part.blocked == part.open else PartState.ACTIVE
    if part.cancelled:
        return PartState.CANCELLED
    if part.stopped:
        return PartState.STOPPED
    return PartState.SUCCEEDED if part.succeeded else PartState.SKIPPED


def _by_upstream(part: PartRecord, known: Mapping[int, PartState]) -> PartState:
    pairs = [(known.get(edge.part, PartState.SUCCEEDED), edge.strict) for edge in part.after]
    if any(state in _BROKEN and strict for state, strict in pairs):
        return PartState.STOPPED
    if any(state in _OPEN for state, _ in pairs):
        return PartState.BLOCKED
    if pairs and all(state is PartState.SKIPPED for state, _ in pairs):
        return PartState.SKIPPED
    return PartState.SUCCEEDED
