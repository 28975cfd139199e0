"""The parts that one operation changes: how the end of a member travels through its flow."""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from typing import NamedTuple

import apsw
import msgspec

from windlass._core.flows.flow import FlowState, PartKind, When
from windlass._core.flows.part import (
    Counts,
    Decision,
    Gate,
    Tidings,
    decide,
    is_due,
    tidings,
)
from windlass._core.job.job import FlowId, FlowPlace
from windlass._core.values.instants import LAST_US
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.sqlite.io.rows import Row, fetch, seqs_text

__all__ = ["BLOCKED", "SKIPPED", "STOPPED", "CountedPart", "PartChanges", "Place", "places_of"]

_SQL = load_sql("windlass._storage.sqlite.sql", "flows.sql")
_PARTS, _FOLLOWERS, _STORE = _SQL["parts"], _SQL["followers"], _SQL["store_part"]
_NUMBERED = _SQL["part_of_number"]
_END_FLOW, _RUN_AGAIN, _PLACES = _SQL["end_flow"], _SQL["run_again"], _SQL["places"]

BLOCKED, STOPPED, SKIPPED = 1, 2, 3
"""The column ``flow_state`` of jobs."""

_COUNTS, _GATE, _TOLD = slice(5, 13), slice(13, 18), slice(18, 21)
"""Columns of ``part_columns`` in flows.sql."""


class CountedPart(msgspec.Struct, eq=False):
    """A part while an operation changes it."""

    id: int
    flow: int
    number: int
    kind: PartKind
    when: When
    counts: Counts
    gate: Gate
    told: Tidings
    due: bool
    cancelled: bool
    """Its flow is."""
    held: bool
    """Its flow is sealed, and not cancelled: nothing of it may happen."""
    rank: int
    """Its place in the order of the graph."""
    counts_for: int | None
    """The number of the part that it counts for, as the join of an added flow."""
    started: int
    """The start of its flow."""
    returning: bool
    """A retry has not reached all its jobs."""

    @classmethod
    def of(cls, row: Row) -> CountedPart:
        """Decode a row of ``parts`` in flows.sql."""
        return cls(
            row[0],
            row[1],
            row[2],
            PartKind(row[3]),
            row[4],
            Counts(*row[_COUNTS]),
            Gate(*row[_GATE]),
            Tidings(*map(bool, row[_TOLD])),
            bool(row[21]),
            bool(row[22]),
            bool(row[23]) and not row[22],
            row[24],
            row[25],
            row[26],
            bool(row[27]),
        )

    @property
    def decision(self) -> Decision:
        return decide(self.kind, self.when, self.gate, cancelled=self.cancelled)

    @property
    def is_cancelled(self) -> bool:
        """Return whether its jobs must not start any more."""
        return self.cancelled and self.kind is PartKind.JOBS

    def add(self, **more: int) -> None:
        """Change counts."""
        for name, by in more.items():
            self.counts.add(name, by)

    def learn(self, before: Tidings, after: Tidings, *, strict: bool) -> None:
        """Count what a part before this one tells now, in place of what it told."""
        self.gate.learn(before, after, strict=strict)

    def learn_added(self, before: Tidings, after: Tidings) -> None:
        """Count what a flow that its jobs added tells now, in place of what it told."""
        self.gate.learn_added(before, after)

    def tell(self) -> tuple[Tidings, Tidings]:
        """Return what those that wait for it knew, and what they must know now."""
        before = self.told
        self.told = tidings(
            *(self.kind, self.when, self.gate, self.counts),
            cancelled=self.cancelled,
            returning=self.returning,
        )
        return before, self.told

    def look(self) -> None:
        """Note whether something is to be done about its jobs."""
        self.due = is_due(self.kind, self.when, self.gate, self.counts, cancelled=self.cancelled)

    def to_row(self) -> Row:
        """Return the values of ``store_part`` in flows.sql."""
        counts, gate = msgspec.structs.astuple(self.counts), msgspec.structs.astuple(self.gate)
        return (self.id, *counts, *gate, *map(int, self.told), int(self.due))


class PartChanges:
    """The parts that one operation changes. Each is read once; call `store` before it ends."""

    def __init__(self, connection: apsw.Connection, now: int) -> None:
        self._connection, self._now = connection, now
        self._parts: dict[int, CountedPart] = {}
        self._changed: dict[int, CountedPart] = {}
        self._fresh: dict[int, CountedPart] = {}
        """Those of them that were changed since `spread`."""

    def get(self, part: int) -> CountedPart:
        """Return a part."""
        self.load([part])
        return self._parts[part]

    def load(self, parts: Iterable[int]) -> None:
        """Read parts together."""
        missing = [part for part in parts if part not in self._parts]
        if missing:
            for row in fetch(self._connection, _PARTS, (seqs_text(missing),)):
                self._parts[row[0]] = CountedPart.of(row)

    def add(self, part: int, **more: int) -> None:
        """Change counts of a part."""
        row = self.get(part)
        row.add(**more)
        self._fresh[part] = row

    def touch(self, parts: Iterable[int]) -> None:
        """Look at parts again: their flow, or what they wait for, has changed."""
        wanted = list(parts)
        self.load(wanted)
        self._fresh |= {part: self._parts[part] for part in wanted}

    def first_due(self) -> int | None:
        """Return the first of the changed parts whose jobs are to be settled."""
        due = [(row.flow, row.rank, row.id) for row in self._changed.values() if row.due]
        return min(due)[2] if due else None

    def store(self) -> None:
        """Pass on what has changed, and write it."""
        self.spread()
        self._connection.executemany(_STORE, [row.to_row() for row in self._changed.values()])
        self._changed.clear()

    def spread(self) -> None:
        """Pass on what has changed, as far as parts without jobs pass it on themselves.

        Ranks rise along the edges: a part is looked at when all before it were.
        """
        self._changed |= self._fresh
        heap = [(row.flow, row.rank, row.id) for row in self._fresh.values()]
        heap.sort()
        while heap:
            *_, part = heappop(heap)
            row = self._parts[part]
            if row.held:
                continue
            before, after = row.tell()
            row.look()
            if before == after:
                continue
            if row.kind is PartKind.END:
                self._end(row, after)
            told: list[CountedPart] = []
            for follower, strict in self._followers(row):
                follower.learn(before, after, strict=strict)
                told.append(follower)
            if row.counts_for is not None:
                told.append(self._numbered(row.flow, row.counts_for))
                told[-1].learn_added(before, after)
            for other in told:
                if other.id not in self._fresh:
                    heappush(heap, (other.flow, other.rank, other.id))
                    self._changed[other.id] = self._fresh[other.id] = other
        self._fresh.clear()

    def _numbered(self, flow: int, number: int) -> CountedPart:
        """Return a part by its number."""
        (row,) = fetch(self._connection, _NUMBERED, (flow, number))
        return self._parts.setdefault(row[0], CountedPart.of(row))

    def _followers(self, part: CountedPart) -> list[tuple[CountedPart, bool]]:
        found: list[tuple[CountedPart, bool]] = []
        for *row, strict in fetch(self._connection, _FOLLOWERS, (part.flow, part.number)):
            known = self._parts.get(row[0])
            if known is None:
                known = self._parts[row[0]] = CountedPart.of(tuple(row))
            found.append((known, bool(strict)))
        return found

    def _end(self, part: CountedPart, end: Tidings) -> None:
        """Let the flow end, or go on."""
        if not end.over:
            self._connection.execute(_RUN_AGAIN, (part.flow, self._now, LAST_US))
            return
        failed = FlowState.CANCELLED if part.cancelled else FlowState.FAILED
        state = failed if end.broken else FlowState.SUCCEEDED
        self._connection.execute(_END_FLOW, (part.flow, state.value, self._now))


class Place(NamedTuple):
    """Where the jobs of a part stand."""

    given: FlowPlace
    added: FlowPlace
    last: int
    """The number of the last job that was given with the flow."""
    cancelled: bool
    """They must not start any more."""

    def of(self, seq: int) -> FlowPlace:
        """Return the place of one of them."""
        return self.added if seq > self.last else self.given


def places_of(connection: apsw.Connection, parts: Iterable[int]) -> dict[int, Place]:
    """Return the places that these parts are."""
    found: dict[int, Place] = {}
    for part, flow, number, last, cancelled in fetch(
        connection, _PLACES, (seqs_text(list(parts)),)
    ):
        given = FlowPlace(FlowId(flow), number)
        added = FlowPlace(FlowId(flow), number, added=True)
        found[part] = Place(given, added, last, bool(cancelled))
    return found
