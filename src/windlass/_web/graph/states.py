"""The counts and the states of parts that are shown as one."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from windlass._core.flows.flow import FlowRecord, PartRecord
from windlass._core.flows.part_state import PartState

__all__ = ["Tally", "tally_of", "worst_state"]


_WORST_FIRST = tuple(PartState)


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


def worst_state(states: Iterable[PartState]) -> PartState:
    """Return the one that matters most, for parts that are shown as one."""
    found = set(states)
    if PartState.SUCCEEDED in found and PartState.BLOCKED in found:
        found.add(PartState.ACTIVE)  # together they are under way
    return next(state for state in _WORST_FIRST if state in found)
