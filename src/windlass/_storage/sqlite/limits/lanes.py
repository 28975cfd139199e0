"""Lanes: limited jobs wait here, so that a closed limit delays no other job.

A lane is the line of a queue's ready jobs that need the same gates. Lanes of a queue that last
waited for the same thing of one gate (a unit, or a number of tokens) form a lane group. The tables
and columns call it a bay. A lane group is open or closed as a whole, and ordered among the others
by its best lane. So a claim reads only open groups. A claim that finds a gate shut closes the
group, or moves the lane to the group of the gate it now waits for. A returned unit opens one group
per queue. No operation ever touches all lanes of a limit.

Every operation that changes ready limited jobs records that here and calls `settle` before it ends:
heads are read from the jobs themselves, so they cannot drift.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import apsw
import msgspec

from windlass._core.job.job import LimitUse
from windlass._core.limits.limit import LimitSpec, lane_key
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.sqlite.io.rows import Row, fetch, names_text, seqs_text, value_of
from windlass._storage.sqlite.io.wide_statement import WideStatement
from windlass._storage.sqlite.limits.budgets import UNIT, ClosedLimit, SqliteBudgets

__all__ = [
    "BEHIND_ALL",
    "LaneChanges",
    "LanePosition",
    "LaneState",
    "unblock_all_lanes",
    "unblock_lanes",
    "unblock_lanes_of_limit",
]

_SQL = load_sql("windlass._storage.sqlite.sql", "lanes.sql")
_LANES_OF, _ADD_LANES, _LANES = _SQL["lanes_of"], _SQL["add_lanes"], _SQL["lanes"]
_MOVE_LANES = WideStatement(_SQL["move_lanes"], one=_SQL["move_lane"])
_REMOVE_LANES, _REMOVE_BAYS = _SQL["remove_lanes"], _SQL["remove_bays"]
_BAY_OF, _ADD_BAYS, _BAY_HEADS = _SQL["bay_of"], _SQL["add_bays"], _SQL["bay_heads"]
_HEAD_BAYS = WideStatement(_SQL["head_bays"], one=_SQL["head_bay"])
_CLOSE_BAYS = WideStatement(_SQL["close_bays"], one=_SQL["close_bay"])
_OPEN_GATES, _OPEN_LIMIT, _TIMED_BAYS = _SQL["open_gates"], _SQL["open_limit"], _SQL["timed_bays"]
_OPEN_WHOLLY = _SQL["open_wholly"]

_POSTPONED_AT_ONCE = 64
"""Lane groups of one gate whose instant is corrected after a charge. The others find out at their
old instant: a read that is too early costs a visit, nothing else.
"""


_encode = msgspec.json.Encoder().encode

LanePosition = tuple[int, int, int]
"""The position of a job in a line: priority, due time, number."""

BEHIND_ALL = 2**63 - 1
"""In the place of the number of a job that is not stored yet."""

_BEFORE_ALL = (-(2**63), 0, 0)


class LaneState(NamedTuple):
    """The lane group of a lane, and its head."""

    queue: str
    bay: int
    gate: str
    cost: float
    head: LanePosition
    alone: bool = False
    """Known to be the only lane in its group."""


class LaneChanges:
    """The lanes one operation changes."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._entered: dict[str, dict[str, tuple[int, LanePosition]]] = {}
        """Lanes with their heads, by queue and key."""
        self._touched: dict[int, tuple[LaneState, LanePosition | None] | None] = {}
        self._renewed: set[int] = set()
        self._parked: dict[int, ClosedLimit] = {}
        self._closed: dict[int, int | None] = {}
        self._known: dict[tuple[str, str, float], int] = {}
        """Lane groups by queue, gate and cost."""
        self._bays: set[int] = set()
        self._heads: dict[int, LanePosition] = {}
        """Heads of lane groups whose only lane has moved on, unless they are among the changed
        ones.
        """

    def enter(self, queue: str, uses: tuple[LimitUse, ...], place: LanePosition) -> int:
        """Return the lane of a job that becomes ready at ``place``; made where there is none."""
        (lane,) = self.enter_all(queue, ((uses, place),))
        return lane

    def enter_all(
        self, queue: str, jobs: Sequence[tuple[tuple[LimitUse, ...], LanePosition]]
    ) -> list[int]:
        """Return the lanes of jobs that become ready, given by their limits and places.

        Missing lanes are made in the order of the jobs: what is claimed together then lies
        together.
        """
        known = self._entered.setdefault(queue, {})
        keys = [lane_key(uses) for uses, _ in jobs]
        missing = {
            key: uses[0] for key, (uses, _) in zip(keys, jobs, strict=True) if key not in known
        }
        if missing:
            self._find(queue, missing, known)
        lanes: list[int] = []
        for key, (_, place) in zip(keys, jobs, strict=True):
            lane, head = known[key]
            if place < head:  # most jobs join behind others, and nothing changes
                self._touched[lane] = None
            lanes.append(lane)
        return lanes

    def _find(
        self,
        queue: str,
        missing: Mapping[str, LimitUse],
        known: dict[str, tuple[int, LanePosition]],
    ) -> None:
        """Read lanes of a queue by their keys, or make them, each from the first of its uses."""
        rows = fetch(self._connection, _LANES_OF, (queue, names_text(missing)))
        for key, lane, priority, due, seq in rows:
            known[key] = (lane, (priority, due, seq))
        made = [(key, use.gate) for key, use in missing.items() if key not in known]
        for key, lane in self._add(queue, made) if made else ():
            known[key] = (lane, _BEFORE_ALL)
            self._touched[lane] = None

    def touch(self, lane: int | None) -> None:
        """Record that a job of this lane, perhaps its first, came or went."""
        if lane is not None:
            self._touched[lane] = None

    def renew(self, lane: int | None) -> None:
        """Record that a job of this lane, perhaps its first, has other limits than before."""
        if lane is not None:
            self._touched[lane] = None
            self._renewed.add(lane)

    def follow(self, lane: int, stand: LaneState, head: LanePosition | None) -> None:
        """Record the same, for a caller that knows the lane's group and its new first job."""
        self._touched[lane] = (stand, head)

    def park(self, lane: int, shut: ClosedLimit) -> None:
        """Move the lane: its head was refused for this reason."""
        self._parked[lane] = shut
        self._touched.setdefault(lane, None)

    def close(self, bay: int, opens_at: int | None) -> None:
        """Close a lane group: what its lanes wait for is missing."""
        self._closed[bay] = opens_at

    def store(self, gates: SqliteBudgets, claim_numbers: Mapping[int, int]) -> None:
        """Store the state of the gates, and correct the lanes that wait for them."""
        charged = gates.write(claim_numbers)
        timed = {
            gate: spec
            for gate, spec in charged.items()
            if spec is not None and spec.rate is not None
        }
        if timed:
            self._postpone(gates, timed)
        if gates.closed:
            self._connection.execute(_OPEN_WHOLLY, (names_text(sorted(gates.closed)),))

    def _postpone(self, gates: SqliteBudgets, charged: Mapping[str, LimitSpec]) -> None:
        """Postpone the lane groups of charged gates: they open later than stored."""
        names = names_text(charged)
        rows = fetch(self._connection, _TIMED_BAYS, (names, _POSTPONED_AT_ONCE))
        later = [(bay, gates.opens_at(gate, charged[gate], cost)) for gate, bay, cost in rows]
        _CLOSE_BAYS.run(self._connection, [(bay, at) for bay, at in later if at is not None])

    def settle(self) -> None:
        """Update lanes and lane groups after changes of the jobs."""
        if not (self._touched or self._closed):
            return
        self._settle_lanes()
        _CLOSE_BAYS.run(self._connection, list(self._closed.items()))
        self._settle_bays()
        self._entered.clear()
        self._touched.clear()
        self._renewed.clear()
        self._parked.clear()
        self._closed.clear()
        self._known.clear()
        self._bays.clear()
        self._heads.clear()

    # --- how ----------------------------------------------------------------------------------

    def _add(self, queue: str, made: Sequence[tuple[str, str]]) -> list[Row]:
        """Make lanes from keys and gates; return their keys and numbers."""
        names = names_text(gate for _, gate in made)
        self._connection.execute(_ADD_BAYS, (queue, names, UNIT))
        return fetch(self._connection, _ADD_LANES, (queue, _encode(made).decode(), UNIT))

    def _bay(self, queue: str, gate: str, cost: float) -> int:
        named = (queue, gate, cost)
        if named not in self._known:
            found = value_of(self._connection, _BAY_OF, named)
            if found is None:
                self._connection.execute(_ADD_BAYS, (queue, names_text((gate,)), cost))
                found = value_of(self._connection, _BAY_OF, named)
            self._known[named] = int(found)
        return self._known[named]

    def _settle_lanes(self) -> None:
        read = self._look([lane for lane, known in self._touched.items() if known is None])
        moved: list[tuple[int, int, int, int, int]] = []
        removed: list[int] = []
        for lane, known in self._touched.items():
            stand, head = known or read[lane]
            if head is None:
                self._bays.add(stand.bay)
                removed.append(lane)
                continue
            ahead = head != stand.head
            bay = self._destination(lane, stand, changed=ahead or lane in self._renewed)
            if bay != stand.bay:
                moved.append((lane, bay, *head))
                self._bays |= {bay, stand.bay}
            elif ahead:
                moved.append((lane, bay, *head))
                if stand.alone:
                    self._heads[bay] = head
                else:
                    self._bays.add(bay)
        if removed:
            self._connection.execute(_REMOVE_LANES, (seqs_text(removed),))
        _MOVE_LANES.run(self._connection, moved)

    def _look(self, lanes: Sequence[int]) -> dict[int, tuple[LaneState, LanePosition | None]]:
        """Read the groups of lanes, and the first job of each."""
        found: dict[int, tuple[LaneState, LanePosition | None]] = {}
        rows = fetch(self._connection, _LANES, (seqs_text(lanes),)) if lanes else ()
        for lane, queue, bay, gate, cost, *place in rows:
            head, first = (place[0], place[1], place[2]), (place[3], place[4], place[5])
            state = LaneState(queue, bay, gate, cost, head)
            found[lane] = (state, None if first[2] is None else first)
        return found

    def _destination(self, lane: int, stand: LaneState, *, changed: bool) -> int:
        shut = self._parked.get(lane)
        if shut is not None:
            bay = stand.bay
            if (shut.gate, shut.cost) != (stand.gate, stand.cost):
                bay = self._bay(stand.queue, shut.gate, shut.cost)
            self.close(bay, shut.opens_at)
            return bay
        if changed and stand.cost != UNIT:
            # Another job is at the head and may need fewer tokens: it has not asked yet.
            return self._bay(stand.queue, stand.gate, UNIT)
        return stand.bay

    def _settle_bays(self) -> None:
        headed = [(bay, *head) for bay, head in self._heads.items() if bay not in self._bays]
        if self._bays:
            rows = fetch(self._connection, _BAY_HEADS, (seqs_text(sorted(self._bays)),))
            empty = [bay for bay, _, _, seq in rows if seq is None]
            if empty:
                self._connection.execute(_REMOVE_BAYS, (seqs_text(empty),))
            headed += [row for row in rows if row[3] is not None]
        _HEAD_BAYS.run(self._connection, headed)


def unblock_lanes(connection: apsw.Connection, gates: Iterable[str]) -> None:
    """Open the lane groups that wait for a unit of these gates."""
    if names := list(gates):
        connection.execute(_OPEN_GATES, (names_text(names),))


def unblock_all_lanes(connection: apsw.Connection, gate: str) -> None:
    """Let every lane that waits for this gate ask again."""
    connection.execute(_OPEN_WHOLLY, (names_text((gate,)),))


def unblock_lanes_of_limit(connection: apsw.Connection, name: str) -> None:
    """Let every lane that waits for this limit ask again: its numbers have changed."""
    connection.execute(_OPEN_LIMIT, (name,))
