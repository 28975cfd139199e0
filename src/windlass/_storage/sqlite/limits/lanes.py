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

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

import apsw
import msgspec

from windlass._core.job.job import LimitUse
from windlass._core.limits.limit import lane_key
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.sqlite.io.rows import fetch, first, value_of
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
_LANE_OF, _ADD_LANE, _LANE = _SQL["lane_of"], _SQL["add_lane"], _SQL["lane"]
_LANE_HEAD, _MOVE_LANE, _REMOVE_LANE = _SQL["lane_head"], _SQL["move_lane"], _SQL["remove_lane"]
_BAY_OF, _ADD_BAY, _BAY_HEAD = _SQL["bay_of"], _SQL["add_bay"], _SQL["bay_head"]
_HEAD_BAY, _REMOVE_BAY, _CLOSE_BAY = _SQL["head_bay"], _SQL["remove_bay"], _SQL["close_bay"]
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
        self._entered: dict[tuple[str, str], tuple[int, LanePosition]] = {}
        self._touched: dict[int, tuple[LaneState, LanePosition | None] | None] = {}
        self._renewed: set[int] = set()
        self._parked: dict[int, ClosedLimit] = {}
        self._bays: set[int] = set()
        self._heads: dict[int, LanePosition] = {}
        """Heads of lane groups whose only lane has moved on, unless they are among the changed
        ones.
        """

    def enter(self, queue: str, uses: tuple[LimitUse, ...], place: LanePosition) -> int:
        """Return the lane of a job that becomes ready at ``place``; made where there is none."""
        key = lane_key(uses)
        known = self._entered.get((queue, key))
        if known is None:
            found = first(self._connection, _LANE_OF, (queue, key))
            if found is None:
                lane = self._add(queue, key, uses[0].gate)
                known = (lane, _BEFORE_ALL)
                self._touched[lane] = None
            else:
                known = (found[0], found[1:])
            self._entered[queue, key] = known
        lane, head = known
        if place < head:  # most jobs join behind others, and nothing changes
            self._touched[lane] = None
        return lane

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
        self._connection.execute(_CLOSE_BAY, (bay, opens_at))

    def store(self, gates: SqliteBudgets, claim_numbers: Mapping[int, int]) -> None:
        """Store the state of the gates, and correct the lanes that wait for them."""
        for gate, spec in gates.write(claim_numbers).items():
            if spec is not None and spec.rate is not None:
                self._postpone(gate, partial(gates.opens_at, gate, spec))
        self._connection.executemany(_OPEN_WHOLLY, [(gate,) for gate in sorted(gates.closed)])

    def _postpone(self, gate: str, opens_at: Callable[[float], int | None]) -> None:
        """Postpone the lane groups of a charged gate: they open later than stored."""
        rows = fetch(self._connection, _TIMED_BAYS, (gate, _POSTPONED_AT_ONCE))
        later = [(bay, opens_at(cost)) for bay, cost in rows]
        self._connection.executemany(_CLOSE_BAY, [(bay, at) for bay, at in later if at is not None])

    def settle(self) -> None:
        """Update lanes and lane groups after changes of the jobs."""
        if not self._touched:
            return
        self._settle_lanes()
        self._settle_bays()
        self._entered.clear()
        self._touched.clear()
        self._renewed.clear()
        self._parked.clear()
        self._bays.clear()
        self._heads.clear()

    # --- how ----------------------------------------------------------------------------------

    def _add(self, queue: str, key: str, gate: str) -> int:
        self._connection.execute(_ADD_LANE, (queue, key, self._bay(queue, gate, UNIT)))
        return self._connection.last_insert_rowid()

    def _bay(self, queue: str, gate: str, cost: float) -> int:
        found = value_of(self._connection, _BAY_OF, (queue, gate, cost))
        if found is not None:
            return int(found)
        self._connection.execute(_ADD_BAY, (queue, gate, cost))
        return self._connection.last_insert_rowid()

    def _settle_lanes(self) -> None:
        moved: list[tuple[int, int, int, int, int]] = []
        for lane, known in self._touched.items():
            stand, head = known or self._look(lane)
            if head is None:
                self._bays.add(stand.bay)
                self._connection.execute(_REMOVE_LANE, (lane,))
                continue
            changed = head != stand.head or lane in self._renewed
            bay = self._destination(lane, stand, changed=changed)
            if bay != stand.bay or head != stand.head:
                moved.append((lane, bay, *head))
                if bay == stand.bay and stand.alone:
                    self._heads[bay] = head
                else:
                    self._bays |= {bay, stand.bay}
        self._connection.executemany(_MOVE_LANE, moved)

    def _look(self, lane: int) -> tuple[LaneState, LanePosition | None]:
        """Read the group of a lane, and the first of its jobs."""
        queue, bay, gate, cost, *head = fetch(self._connection, _LANE, (lane,))[0]
        now_first = first(self._connection, _LANE_HEAD, (lane,))
        return LaneState(queue, bay, gate, cost, (head[0], head[1], head[2])), now_first

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
        for bay in sorted(self._bays):
            head = first(self._connection, _BAY_HEAD, (bay,))
            if head is None:
                self._connection.execute(_REMOVE_BAY, (bay,))
            else:
                headed.append((bay, *head))
        self._connection.executemany(_HEAD_BAY, headed)


def unblock_lanes(connection: apsw.Connection, gates: Iterable[str]) -> None:
    """Open the lane groups that wait for a unit of these gates."""
    if names := sorted(gates):
        connection.execute(_OPEN_GATES, (_encode(names).decode(),))


def unblock_all_lanes(connection: apsw.Connection, gate: str) -> None:
    """Let every lane that waits for this gate ask again."""
    connection.execute(_OPEN_WHOLLY, (gate,))


def unblock_lanes_of_limit(connection: apsw.Connection, name: str) -> None:
    """Let every lane that waits for this limit ask again: its numbers have changed."""
    connection.execute(_OPEN_LIMIT, (name,))
