"""When a part of a flow opens, and what it tells the parts that wait for it.

A part counts its jobs, and the parts that it waits for: how many have not ended (`waiting`), how
many have failures that matter here (`broken`), and how many were not needed (`unneeded`). These
numbers alone decide what becomes of its blocked jobs (`decide`). What it tells the parts after it
(`tidings`) are three facts, and only their changes are passed on. So a requeue undoes what the
failure did, by the same rule.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from windlass._core.flows.flow import FlowRecord, PartKind, PartRecord, When
from windlass._core.job.state import State

__all__ = [
    "NOTHING",
    "Counts",
    "Decision",
    "Gate",
    "MemberEnd",
    "PartStanding",
    "Tidings",
    "decide",
    "ended_as",
    "is_due",
    "standings",
    "tidings",
]


class Decision(StrEnum):
    """The fate of the blocked jobs of a part."""

    WAIT = "wait"
    OPEN = "open"
    """They take their places among the waiting jobs."""
    STOP = "stop"
    """They are cancelled: something that they wait for failed."""
    SKIP = "skip"
    """They are discarded: they are not needed."""


class MemberEnd(StrEnum):
    """How a member ended, as its part counts it."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    STOPPED = "stopped"
    SKIPPED = "skipped"


def ended_as(state: State) -> MemberEnd:
    """Return how a member's end counts by its state alone."""
    match state:
        case State.SUCCEEDED:
            return MemberEnd.SUCCEEDED
        case State.FAILED:
            return MemberEnd.FAILED
        case _:
            return MemberEnd.CANCELLED


class Counts(msgspec.Struct):
    """The jobs of a part."""

    total: int = 0
    open: int = 0
    blocked: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    stopped: int = 0
    skipped: int = 0

    @property
    def failures(self) -> int:
        """Return the number of jobs that count as failed."""
        return self.failed + self.cancelled + self.stopped

    def add(self, name: str, number: int) -> None:
        """Add to one of the counts."""
        setattr(self, name, getattr(self, name) + number)

    def put(self, name: str, number: int) -> None:
        """Correct one of the counts."""
        setattr(self, name, number)


class Gate(msgspec.Struct):
    """The parts that a part waits for, counted."""

    waiting: int = 0
    broken: int = 0
    unneeded: int = 0

    def learn(self, before: Tidings, after: Tidings, *, strict: bool) -> None:
        """Count the present news of a part that it waits for, in place of the former."""
        self.waiting -= after.over - before.over
        if strict:
            self.broken += after.broken - before.broken
            self.unneeded += after.unneeded - before.unneeded


class Tidings(NamedTuple):
    """The facts that a part tells those that wait for it."""

    over: bool
    broken: bool
    unneeded: bool


NOTHING = Tidings(over=False, broken=False, unneeded=False)
"""The facts that a new part with jobs tells."""


def decide(kind: PartKind, when: When, gate: Gate, *, cancelled: bool = False) -> Decision:
    """Decide what becomes of blocked jobs. A failure stops them at once; everything else waits for
    the last part. The end of a flow, and so its callbacks, learns of failures only then.

    ``cancelled``: the flow was. Its members are stopped; of its callbacks only those run that do
    not ask how it ended.
    """
    at_once = kind in (PartKind.JOBS, PartKind.JOIN)
    if at_once and (cancelled or (gate.broken and when == "succeeded")):
        return Decision.STOP
    if gate.waiting:
        return Decision.WAIT
    if when == "failed":
        return Decision.OPEN if gate.broken and not cancelled else Decision.SKIP
    if gate.broken:
        return Decision.SKIP if kind is PartKind.CALLBACK else Decision.STOP
    # A flow whose last parts were not needed has succeeded.
    unneeded = gate.unneeded and kind is not PartKind.END
    return Decision.SKIP if unneeded else Decision.OPEN


def tidings(
    kind: PartKind, when: When, gate: Gate, counts: Counts, *, cancelled: bool = False
) -> Tidings:
    """Return what a part tells those that wait for it. A part without jobs passes on what was
    decided about it.
    """
    if counts.total:
        over = not counts.open
        unneeded = over and counts.skipped == counts.total
        return Tidings(over, bool(counts.failures), unneeded)
    decision = decide(kind, when, gate, cancelled=cancelled)
    # It tells a failure at once, its end only when nothing is open: a lenient part waits for that.
    return Tidings(not gate.waiting, decision is Decision.STOP, decision is Decision.SKIP)


def is_due(
    kind: PartKind, when: When, gate: Gate, counts: Counts, *, cancelled: bool = False
) -> bool:
    """Return whether jobs of the part are to be placed, ended, or blocked again."""
    decision = decide(kind, when, gate, cancelled=cancelled)
    if counts.blocked and decision is not Decision.WAIT:
        return True
    back = counts.stopped + counts.skipped
    return bool(back) and decision in (Decision.WAIT, Decision.OPEN)


class PartStanding(NamedTuple):
    """All that follows from the counts of a part and of those before it."""

    gate: Gate
    told: Tidings
    due: bool


def standings(flow: FlowRecord, parts: Sequence[PartRecord]) -> list[PartStanding]:
    """Work out from the counts alone where the parts of a flow stand. Numbers rise along edges."""
    found: list[PartStanding] = []
    cancelled = flow.cancel_requested
    for part in parts:
        gate = Gate(waiting=len(part.after))
        if flow.sealed and not cancelled:
            found.append(PartStanding(gate, NOTHING, due=False))
            continue
        for edge in part.after:
            gate.learn(NOTHING, found[edge.part].told, strict=edge.strict)
        counts = Counts(**{name: getattr(part, name) for name in Counts.__struct_fields__})
        about = (part.kind, part.when, gate, counts)
        told = tidings(*about, cancelled=cancelled)
        found.append(PartStanding(gate, told, is_due(*about, cancelled=cancelled)))
    return found
