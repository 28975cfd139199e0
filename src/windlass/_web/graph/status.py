"""The state of a part as people see it: a word, which a colour only repeats."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from windlass._core.flows.flow import FlowRecord, FlowState, PartKind, PartRecord

__all__ = ["PartStatus", "Tally", "part_statuses", "tally_of", "worst_status"]


class PartStatus(StrEnum):
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


_WORST_FIRST = tuple(PartStatus)
_OPEN = frozenset({PartStatus.BLOCKED, PartStatus.ACTIVE})
_BROKEN = frozenset({PartStatus.FAILED, PartStatus.CANCELLED, PartStatus.STOPPED})
_OF_FLOW = {
    FlowState.RUNNING: PartStatus.BLOCKED,
    FlowState.SUCCEEDED: PartStatus.SUCCEEDED,
    FlowState.FAILED: PartStatus.FAILED,
    FlowState.CANCELLED: PartStatus.CANCELLED,
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


def part_statuses(flow: FlowRecord, parts: Sequence[PartRecord]) -> Mapping[int, PartStatus]:
    """Return the state of each part by its number. A part without jobs has that of those it waits
    for.
    """
    found: dict[int, PartStatus] = {}
    for part in parts:
        if part.kind is PartKind.END:
            found[part.number] = _OF_FLOW[flow.state]
        elif part.total:
            found[part.number] = _by_counts(part)
        else:
            found[part.number] = _by_upstream(part, found)
    return found


def worst_status(statuses: Iterable[PartStatus]) -> PartStatus:
    """Return the one that matters most, for parts that are shown as one."""
    found = set(statuses)
    if PartStatus.SUCCEEDED in found and PartStatus.BLOCKED in found:
        found.add(PartStatus.ACTIVE)  # together they are under way
    return next(status for status in _WORST_FIRST if status in found)


def _by_counts(part: PartRecord) -> PartStatus:
    if part.failed:
        return PartStatus.FAILED
    if part.open:
        return PartStatus.BLOCKED if part.blocked == part.open else PartStatus.ACTIVE
    if part.cancelled:
        return PartStatus.CANCELLED
    if part.stopped:
        return PartStatus.STOPPED
    return PartStatus.SUCCEEDED if part.succeeded else PartStatus.SKIPPED


def _by_upstream(part: PartRecord, known: Mapping[int, PartStatus]) -> PartStatus:
    pairs = [(known.get(edge.part, PartStatus.SUCCEEDED), edge.strict) for edge in part.after]
    if any(status in _BROKEN and strict for status, strict in pairs):
        return PartStatus.STOPPED
    if any(status in _OPEN for status, _ in pairs):
        return PartStatus.BLOCKED
    if pairs and all(status is PartStatus.SKIPPED for status, _ in pairs):
        return PartStatus.SKIPPED
    return PartStatus.SUCCEEDED
