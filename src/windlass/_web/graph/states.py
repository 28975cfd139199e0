"""The state of a part as people see it: a word, which a colour only repeats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from windlass._core.flows.flow import FlowRecord, FlowState, PartKind, PartRecord

__all__ = ["PartState", "Tally", "part_states", "tally_of", "worst_state"]


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


_WORST_FIRST = tuple(PartState)
_OPEN = frozenset({PartState.BLOCKED, PartState.ACTIVE})
_BROKEN = frozenset({PartState.FAILED, PartState.CANCELLED, PartState.STOPPED})
_OF_FLOW = {
    FlowState.RUNNING: PartState.BLOCKED,
    FlowState.SUCCEEDED: PartState.SUCCEEDED,
    FlowState.FAILED: PartState.FAILED,
    FlowState.CANCELLED: PartState.CANCELLED,
}


class Tally(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs of one part, of several, or of a flow."""

    total: int
    open: int
    blocked: int = 0
    succeeded: int
    failed: int
    cancelled: int
    stopped: int
    skipped: int

    @property
    def ended(self) -> int:
        return self.total - self.open

    @property
    def shares(self) -> list[tuple[str, float, float]]:
        """The pieces of a bar: a colour, where it begins, and its width, of 100."""
        pieces: list[tuple[str, float, float]] = []
        left = 0.0
        for name, count in (
            ("succeeded", self.succeeded),
            ("failed", self.failed),
            ("stopped", self.stopped),
            ("cancelled", self.cancelled + self.skipped),
            ("active", self.open - self.blocked if self.blocked else 0),
        ):
            if count > 0:
                width = 100 * count / self.total
                pieces.append((name, round(left, 2), round(width, 2)))
                left += width
        return pieces

    @property
    def words(self) -> str:
        """The counts in words: 12 of 40 ended, 2 failed."""
        named = (
            (self.failed, "failed"),
            (self.cancelled, "cancelled"),
            (self.stopped, "stopped"),
            (self.skipped, "skipped"),
        )
        rest = "".join(f", {count:,} {word}" for count, word in named if count)
        return f"{self.ended:,} of {self.total:,} ended{rest}"


def tally_of(records: Iterable[PartRecord | FlowRecord]) -> Tally:
    """Return the counts of all of them together."""
    found = list(records)
    names = ("total", "open", "blocked", "succeeded", "failed", "cancelled", "stopped", "skipped")
    return Tally(**{name: sum(getattr(one, name, 0) for one in found) for name in names})


def part_states(flow: FlowRecord, parts: Sequence[PartRecord]) -> Mapping[int, PartState]:
    """Return the state of each part by its number. A part without jobs has that of those it waits
    for.
    """
    found: dict[int, PartState] = {}
    for part in parts:
        if part.kind is PartKind.END:
            found[part.number] = _OF_FLOW[flow.state]
        elif part.total:
            found[part.number] = _by_counts(part)
        else:
            found[part.number] = _by_upstream(part, found)
    return found


def worst_state(states: Iterable[PartState]) -> PartState:
    """Return the one that matters most, for parts that are shown as one."""
    found = set(states)
    if PartState.SUCCEEDED in found and PartState.BLOCKED in found:
        found.add(PartState.ACTIVE)  # together they are under way
    return next(state for state in _WORST_FIRST if state in found)


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
