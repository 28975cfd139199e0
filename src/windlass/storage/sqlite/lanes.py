"""Lanes: where limited jobs wait, so that a closed limit stops nobody else.

A lane is the line of a queue's ready jobs that need the same gates. It stands in a bay: the place
of all lanes of that queue that last waited for the same of one gate (a unit, or so many tokens).
A bay is open or closed as a whole, and ordered among the others by its best lane. So a claim
looks only at open bays; one that finds a gate shut closes the bay, or moves the lane to the bay
of the gate it now waits for; a unit that comes back opens one bay per queue. Nothing ever touches
all lanes of a limit.

Every operation that changes ready limited jobs says so here and calls `settle` before it ends:
heads are read from the jobs themselves, so they cannot drift.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import apsw

from windlass.core.job import LimitUse
from windlass.core.limit import lane_key
from windlass.storage.queries import load
from windlass.storage.sqlite.gates import UNIT, Shut
from windlass.storage.sqlite.rows import fetch, first, value_of

__all__ = ["Lanes", "open_gates", "open_limit"]

_SQL = load("windlass.storage.sqlite.sql", "lanes.sql")
_LANE_OF, _ADD_LANE, _LANE = _SQL["lane_of"], _SQL["add_lane"], _SQL["lane"]
_LANE_HEAD, _MOVE_LANE, _REMOVE_LANE = _SQL["lane_head"], _SQL["move_lane"], _SQL["remove_lane"]
_BAY_OF, _ADD_BAY, _BAY_HEAD = _SQL["bay_of"], _SQL["add_bay"], _SQL["bay_head"]
_HEAD_BAY, _REMOVE_BAY, _CLOSE_BAY = _SQL["head_bay"], _SQL["remove_bay"], _SQL["close_bay"]
_OPEN_GATE, _OPEN_LIMIT, _TIMED_BAYS = _SQL["open_gate"], _SQL["open_limit"], _SQL["timed_bays"]

_POSTPONED_AT_ONCE = 64
"""Bays of one gate whose instant is put right after it was charged. The others find out when
their old instant comes: too early a look costs a visit, nothing else."""


class _Stand(NamedTuple):
    """Where a lane stands."""

    queue: str
    bay: int
    gate: str
    cost: float
    head_priority: int
    head_due: int
    head_seq: int


class Lanes:
    """The lanes one operation changes."""

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._ids: dict[tuple[str, str], int] = {}
        self._touched: set[int] = set()
        self._parked: dict[int, Shut] = {}
        self._bays: set[int] = set()

    def enter(self, queue: str, uses: tuple[LimitUse, ...]) -> int:
        """The lane of a job that becomes ready; made where there is none."""
        key = lane_key(uses)
        lane = self._ids.get((queue, key))
        if lane is None:
            found = value_of(self._connection, _LANE_OF, (queue, key))
            lane = self._add(queue, key, uses[0].gate) if found is None else int(found)
            self._ids[queue, key] = lane
        self._touched.add(lane)
        return lane

    def touch(self, lane: int | None) -> None:
        """A job of this lane came or went."""
        if lane is not None:
            self._touched.add(lane)

    def park(self, lane: int, shut: Shut) -> None:
        """The lane's head was refused for this reason."""
        self._parked[lane] = shut

    def close(self, bay: int, opens_at: int | None) -> None:
        """What the lanes of this bay wait for is not there."""
        self._connection.execute(_CLOSE_BAY, (bay, opens_at))

    def postpone(self, gate: str, opens_at: Callable[[float], int | None]) -> None:
        """A gate was charged: its bays open later than they thought."""
        rows = fetch(self._connection, _TIMED_BAYS, (gate, _POSTPONED_AT_ONCE))
        later = [(bay, opens_at(cost)) for bay, cost in rows]
        self._connection.executemany(_CLOSE_BAY, [(bay, at) for bay, at in later if at is not None])

    def settle(self) -> None:
        """Make lanes and bays follow what was done to the jobs."""
        for lane in sorted(self._touched | self._parked.keys()):
            self._settle_lane(lane)
        for bay in sorted(self._bays):
            head = first(self._connection, _BAY_HEAD, (bay,))
            if head is None:
                self._connection.execute(_REMOVE_BAY, (bay,))
            else:
                self._connection.execute(_HEAD_BAY, (bay, *head))
        self._ids.clear()
        self._touched.clear()
        self._parked.clear()
        self._bays.clear()

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

    def _settle_lane(self, lane: int) -> None:
        stand = first(self._connection, _LANE, (lane,))
        if stand is None:
            return
        stand = _Stand(*stand)
        self._bays.add(stand.bay)
        head = first(self._connection, _LANE_HEAD, (lane,))
        if head is None:
            self._connection.execute(_REMOVE_LANE, (lane,))
            return
        bay = self._destination(lane, stand, changed=head != stand[4:])
        if bay != stand.bay or head != stand[4:]:
            self._connection.execute(_MOVE_LANE, (lane, bay, *head))
            self._bays.add(bay)

    def _destination(self, lane: int, stand: _Stand, *, changed: bool) -> int:
        shut = self._parked.get(lane)
        if shut is not None:
            bay = self._bay(stand.queue, shut.gate, shut.cost)
            self.close(bay, shut.opens_at)
            return bay
        if changed and stand.cost != UNIT:
            # Another job is at the head and may need fewer tokens: nobody has asked yet.
            return self._bay(stand.queue, stand.gate, UNIT)
        return stand.bay


def open_gates(connection: apsw.Connection, gates: Iterable[str]) -> None:
    """A unit of each of these has come back."""
    connection.executemany(_OPEN_GATE, [(gate,) for gate in sorted(gates)])


def open_limit(connection: apsw.Connection, name: str) -> None:
    """The numbers of a limit have changed: whoever waits for it may ask again."""
    connection.execute(_OPEN_LIMIT, (name,))
