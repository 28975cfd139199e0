"""When a part of a flow opens, and what it tells the parts that wait for it.

A part counts its jobs, and the parts that it waits for: how many have not ended (`waiting`), how
many have failures that matter here (`broken`), and how many were not needed (`unneeded`). These
numbers alone decide what becomes of its blocked jobs (`decide`). What it tells the parts after it
(`tidings`) are three facts, and only their changes are passed on. So a requeue undoes what the
failure did, by the same rule.

A flow that a job adds joins the parts of the job's flow. Its last part, a join, counts for the
job's part: how many added flows have not ended (`adding`), and how many failed (`added_broken`).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import msgspec

from windlass._core.flows.flow import FlowRecord, NewPart, PartKind, PartRecord, When
from windlass._core.job.state import State

__all__ = [
    "NOTHING",
    "Counts",
    "Decision",
    "Gate",
    "MemberEnd",
    "PartStanding",
    "Tidings",
    "coming_back",
    "decide",
    "ended_as",
    "firsts_of",
    "is_due",
    "rank_of",
    "ranks_of",
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
    """The parts that a part waits for, and the flows that its jobs added, counted."""

    waiting: int = 0
    broken: int = 0
    unneeded: int = 0
    adding: int = 0
    added_broken: int = 0

    def learn(self, before: Tidings, after: Tidings, *, strict: bool) -> None:
        """Count the present news of a part that it waits for, in place of the former."""
        self.waiting -= after.over - before.over
        if strict:
            self.broken += after.broken - before.broken
            self.unneeded += after.unneeded - before.unneeded

    def expect_added(self, more: int) -> None:
        """Count added flows that have not ended."""
        self.adding += more

    def learn_added(self, before: Tidings, after: Tidings) -> None:
        """Count the present news of an added flow, in place of the former."""
        self.adding -= after.over - before.over
        self.added_broken += after.broken - before.broken


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
    at_once = kind in (PartKind.JOBS, PartKind.JOIN, PartKind.ADDED)
    if at_once and (cancelled or (gate.broken and when == "succeeded")):
        return Decision.STOP
    if gate.waiting:
        return Decision.WAIT
    if when == "failed":
        return Decision.OPEN if gate.broken and not cancelled else Decision.SKIP
    if gate.broken:
        return Decision.SKIP if kind is PartKind.CALLBACK else Decision.STOP
    # A flow whose last parts were not needed has succeeded.
    unneeded = gate.unneeded and kind not in (PartKind.END, PartKind.ADDED)
    return Decision.SKIP if unneeded else Decision.OPEN


def tidings(
    kind: PartKind,
    when: When,
    gate: Gate,
    counts: Counts,
    *,
    cancelled: bool = False,
    returning: bool = False,
) -> Tidings:
    """Return what a part tells those that wait for it. A part without jobs passes on what was
    decided about it.

    ``returning``: a retry has not reached all its jobs, so it has not ended.
    """
    added_broken = gate.added_broken > 0
    if counts.total:
        over = not counts.open and not gate.adding and not returning
        unneeded = over and counts.skipped == counts.total
        return Tidings(over, counts.failures > 0 or added_broken, unneeded)
    decision = decide(kind, when, gate, cancelled=cancelled)
    # It tells a failure at once, its end only when nothing is open: a lenient part waits for that.
    over = not gate.waiting and not gate.adding
    return Tidings(over, decision is Decision.STOP or added_broken, decision is Decision.SKIP)


def coming_back(decision: Decision) -> Sequence[MemberEnd]:
    """Return which of its ended jobs a part blocks again, before it does anything else.

    Stopped jobs come back to be skipped, too: they count as failures, and nothing failed.
    """
    match decision:
        case Decision.WAIT | Decision.OPEN:
            return (MemberEnd.STOPPED, MemberEnd.SKIPPED)
        case Decision.SKIP:
            return (MemberEnd.STOPPED,)
        case Decision.STOP:
            return ()


def is_due(
    kind: PartKind, when: When, gate: Gate, counts: Counts, *, cancelled: bool = False
) -> bool:
    """Return whether jobs of the part are to be placed, ended, or blocked again."""
    decision = decide(kind, when, gate, cancelled=cancelled)
    if counts.blocked and decision is not Decision.WAIT:
        return True
    return any(getattr(counts, end) for end in coming_back(decision))


class PartStanding(NamedTuple):
    """All that follows from the counts of a part and of those before it."""

    gate: Gate
    told: Tidings
    due: bool


_STEP = 1 << 21
"""More than the numbers of one added flow."""
_LAST = 1 << 60


def rank_of(kind: PartKind, number: int, first: int = 0) -> int:
    """Return the rank of a part in the order of the graph: after all parts that it depends on.

    ``first``: of the flow that a job added, the number of its first part. Such a flow comes before
    all parts that were there before it. One that was added from outside comes behind them (0), and
    so behind those that it waits for.
    Nothing but callbacks comes behind the end.
    """
    if kind in (PartKind.END, PartKind.CALLBACK):
        return _LAST + number
    return number - first * _STEP


def firsts_of(parts: Sequence[NewPart | PartRecord]) -> list[int]:
    """Return for each part the number of the first one of the flow that a job added it with; 0 for
    all others.
    """
    firsts = [0] * len(parts)
    for number, part in enumerate(parts):
        if part.added is not None and parts[part.added.counts_for].kind is not PartKind.END:
            firsts[part.added.first : number + 1] = [part.added.first] * (
                number + 1 - part.added.first
            )
    return firsts


def ranks_of(parts: Sequence[NewPart | PartRecord]) -> list[int]:
    """Return the ranks of all parts of a flow, which are given by number."""
    return [
        rank_of(part.kind, number, first)
        for number, (part, first) in enumerate(zip(parts, firsts_of(parts), strict=True))
    ]


def standings(
    flow: FlowRecord, parts: Sequence[PartRecord], retried: int | None = None
) -> list[PartStanding]:
    """Work out from the counts alone where the parts of a flow stand. ``retried``: the rank of the
    part that a retry has reached.
    """
    cancelled = flow.cancel_requested
    gates = [Gate(waiting=len(part.after)) for part in parts]
    if flow.sealed and not cancelled:
        return [PartStanding(gate, NOTHING, due=False) for gate in gates]
    for part in parts:
        if part.added is not None:
            gates[part.added.counts_for].expect_added(1)
    found: dict[int, PartStanding] = {}
    ranks = ranks_of(parts)
    for part in sorted(parts, key=lambda part: ranks[part.number]):
        gate = gates[part.number]
        for edge in part.after:
            gate.learn(NOTHING, found[edge.part].told, strict=edge.strict)
        counts = Counts(**{name: getattr(part, name) for name in Counts.__struct_fields__})
        about = (part.kind, part.when, gate, counts)
        returning = retried is not None and ranks[part.number] >= retried
        is_member = part.kind is PartKind.JOBS
        told = tidings(*about, cancelled=cancelled, returning=returning and is_member)
        if part.added is not None:
            gates[part.added.counts_for].learn_added(NOTHING, told)
        found[part.number] = PartStanding(gate, told, is_due(*about, cancelled=cancelled))
    return [found[part.number] for part in parts]
