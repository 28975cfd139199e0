"""A claim on a queue with lanes: the common line and the open lane groups, merged by
their heads.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

import apsw

from windlass._storage.shared.sql_files import load_sql
from windlass._storage.sqlite.io.rows import Row, fetch, limits_of
from windlass._storage.sqlite.limits.budgets import SqliteBudgets
from windlass._storage.sqlite.limits.lanes import LaneChanges, LaneState

__all__ = ["EXTRA_LANES", "LaneClaim", "OrderedRows"]

_SQL = load_sql("windlass._storage.sqlite.sql", "lanes.sql")
_OPEN_BAYS, _BAY_LANES, _LANE_JOBS = _SQL["open_bays"], _SQL["bay_lanes"], _SQL["lane_jobs"]
_EXPIRED_HEADS = _SQL["expired_heads"]
_READY_AFTER = load_sql("windlass._storage.sqlite.sql", "claim.sql")["ready_after"]

EXTRA_LANES = 64
"""Lanes that one claim may look at in vain."""

_BEFORE_ALL = (-(2**63), 0, 0)
_LARGEST_BITE = 64


class OrderedRows:
    """Rows in the order of their first three columns, read in chunks that grow."""

    __slots__ = ("_chunk", "_connection", "_more", "_next", "_owner", "_rows", "_sql")

    rank = 0
    """The order of two lines with the same head: a lane before its lane group."""

    def __init__(self, connection: apsw.Connection, sql: str, owner: str | int, chunk: int) -> None:
        self._connection, self._sql, self._owner = connection, sql, owner
        self._chunk = chunk
        self._rows: list[Row] = []
        self._next = 0
        self._more = True

    def head(self) -> Row | None:
        if self._next == len(self._rows) and self._more:
            self._read()
        return self._rows[self._next] if self._next < len(self._rows) else None

    def advance(self) -> None:
        self._next += 1

    def first(self, limit: int) -> Iterator[Row]:
        """Pass over up to ``limit`` rows."""
        for _ in range(limit):
            row = self.head()
            if row is None:
                return
            yield row
            self.advance()

    def _read(self) -> None:
        after = self._rows[-1][:3] if self._rows else _BEFORE_ALL
        if self._rows:
            self._chunk = max(self._chunk, min(2 * self._chunk, _LARGEST_BITE))
        self._rows = fetch(self._connection, self._sql, (self._owner, *after, self._chunk))
        self._next = 0
        self._more = len(self._rows) == self._chunk


class _Unlimited(OrderedRows):
    """The queue's jobs without limits."""

    __slots__ = ()


class _LaneGroups(OrderedRows):
    """The queue's open lane groups that have not been read."""

    __slots__ = ()
    rank = 1


class _LaneGroup(OrderedRows):
    """An open lane group: its lanes."""

    __slots__ = ("alone", "id", "need")
    rank = 1

    def __init__(self, connection: apsw.Connection, row: Row) -> None:
        """Read a row of ``open_bays``, which brings the first lane with it."""
        priority, due, seq, bay, gate, cost, lane, alone = row
        super().__init__(connection, _BAY_LANES, bay, chunk=1)
        self._rows = [(priority, due, seq, lane)]
        self._more = not alone
        self.id, self.need, self.alone = bay, (gate, cost), bool(alone)


class _LaneCursor(OrderedRows):
    """A lane: its jobs, and where it stood when the claim began, if that is known."""

    __slots__ = ("id", "stand")

    def __init__(self, connection: apsw.Connection, lane: int, stand: LaneState | None) -> None:
        super().__init__(connection, _LANE_JOBS, lane, chunk=2)
        self.id, self.stand = lane, stand


class LaneClaim:
    """Chooses jobs in order. Nothing is written before the choice is complete."""

    def __init__(
        self,
        connection: apsw.Connection,
        queue: str,
        gates: SqliteBudgets,
        *,
        room: int,
        expiries: int,
        now: int,
    ) -> None:
        self._connection, self._queue, self._gates = connection, queue, gates
        self._room, self._expiries, self._now = room, expiries, now
        self._left = room + EXTRA_LANES
        self._heads: list[tuple[int, int, int, int, OrderedRows]] = []
        self._shut: dict[tuple[str, float], int | None] = {}
        self._in_hand: set[int] = set()
        self._visited: dict[int, _LaneCursor] = {}
        self.lanes: LaneChanges = LaneChanges(connection)
        self.chosen: list[int] = []
        self.expired: list[int] = []
        self.damaged: dict[int, str] = {}
        self.cut_short: bool = False
        """Stopped at a bound: the next call gets further."""

    def run(self) -> None:
        """Take the best head of all while there is room."""
        self._push(_Unlimited(self._connection, _READY_AFTER, self._queue, chunk=self._room))
        self._push(_LaneGroups(self._connection, _OPEN_BAYS, self._queue, chunk=self._room))
        self._push_expired()
        while self._heads and len(self.chosen) < self._room and not self.cut_short:
            *_, head = heappop(self._heads)
            match head:
                case _LaneGroups():
                    self._meet(head)
                case _LaneGroup():
                    self._enter(head)
                case _LaneCursor():
                    self._visit(head)
                case _:
                    self._take(head)
                    self._push(head)
        for lane in self._visited.values():
            self._leave(lane)

    def _leave(self, lane: _LaneCursor) -> None:
        if lane.stand is None:
            self.lanes.touch(lane.id)
        else:
            head = lane.head()
            self.lanes.follow(lane.id, lane.stand, None if head is None else head[:3])

    def _push_expired(self) -> None:
        for priority, due, seq, lane in fetch(
            self._connection, _EXPIRED_HEADS, (self._queue, self._now, self._expiries)
        ):
            self._in_hand.add(lane)
            line = _LaneCursor(self._connection, lane, None)
            heappush(self._heads, (priority, due, seq, line.rank, line))

    def _push(self, line: OrderedRows) -> None:
        head = line.head()
        if head is not None:
            heappush(self._heads, (head[0], head[1], head[2], line.rank, line))

    def _meet(self, bays: _LaneGroups) -> None:
        row = bays.head()
        bays.advance()
        self._push(bays)
        if row is not None:
            self._enter(_LaneGroup(self._connection, row))

    def _enter(self, bay: _LaneGroup) -> None:
        """Visit the first lane of a lane group, unless the group is known to be closed by now."""
        if bay.need in self._shut:
            self.lanes.close(bay.id, self._shut[bay.need])
            return
        lane = bay.head()
        if lane is None:
            return
        if lane[3] not in self._in_hand:
            stand = LaneState(self._queue, bay.id, *bay.need, lane[:3], bay.alone)
            self._visit(_LaneCursor(self._connection, lane[3], stand))
        if bay.need not in self._shut:
            bay.advance()
            self._push(bay)

    def _visit(self, lane: _LaneCursor) -> None:
        """Take the lane's first job, or park the lane."""
        if not self._left:
            self.cut_short = True
            return
        self._left -= 1
        self._visited[lane.id] = lane
        if self._take(lane):
            self._push(lane)

    def _take(self, line: OrderedRows) -> bool:
        """Choose or discard the head and continue; False: it was refused, and its lane with it."""
        job = line.head()
        if job is None:
            return False
        _, _, seq, expires_at, *limits = job
        if expires_at is not None and expires_at <= self._now:
            if len(self.expired) == self._expiries:
                self.cut_short = True
                return False
            self.expired.append(seq)
        else:
            if limits and isinstance(line, _LaneCursor):
                uses = limits_of(limits[0])
                if not uses:
                    self.damaged[seq] = "limits"
                    line.advance()
                    return True
                shut = self._gates.shut(uses)
                if shut is not None:
                    self._shut[shut.gate, shut.cost] = shut.opens_at
                    self.lanes.park(line.id, shut)
                    return False
                self._gates.charge(uses, seq)
            self.chosen.append(seq)
        line.advance()
        return True
