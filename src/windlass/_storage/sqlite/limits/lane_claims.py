"""A claim on a queue with lanes: the common line and the open lane groups, merged by
their heads.

Lanes are read in chunks, each lane with its first jobs, and the state of the gates that the jobs of
a chunk need: a few statements, however many lanes.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

import apsw

from windlass._storage.shared.sql_files import load_sql
from windlass._storage.sqlite.io.rows import Row, fetch, limits_of, seqs_text
from windlass._storage.sqlite.limits.budgets import SqliteBudgets
from windlass._storage.sqlite.limits.lanes import LaneChanges, LaneState

__all__ = ["EXTRA_LANES", "LaneClaim", "OrderedRows"]

_SQL = load_sql("windlass._storage.sqlite.sql", "lanes.sql")
_OPEN_BAYS, _BAY_LANES, _LANE_JOBS = _SQL["open_bays"], _SQL["bay_lanes"], _SQL["lane_jobs"]
_EXPIRED_HEADS, _NAMED_LANES = _SQL["expired_heads"], _SQL["named_lanes"]
_READY_AFTER = load_sql("windlass._storage.sqlite.sql", "claim.sql")["ready_after"]

EXTRA_LANES = 64
"""Lanes that one claim may look at in vain."""

_BEFORE_ALL = (-(2**63), 0, 0)
_LARGEST_CHUNK = 128

# Columns of lanes as lanes.sql reads them: the lane, its first two jobs, its group.
_LANE, _BAY = 3, 14
_FIRST, _SECOND, _FIRST_LIMITS = slice(4, 9), slice(9, 14), 8


class OrderedRows:
    """Rows in the order of their first three columns, read in chunks that grow."""

    __slots__ = ("_chunk", "_connection", "_more", "_next", "_owner", "_rows", "_sql")

    rank = 0
    """The order of two lines with the same head: a lane before its lane group."""

    def __init__(
        self,
        connection: apsw.Connection,
        sql: str,
        owner: str | int,
        chunk: int,
        after: Row | None = None,
    ) -> None:
        self._connection, self._sql, self._owner = connection, sql, owner
        self._chunk = chunk
        self._rows: list[Row] = [] if after is None else [after]
        self._next = len(self._rows)
        self._more = True

    def head(self) -> Row | None:
        if self._next < len(self._rows):
            return self._rows[self._next]
        if self._more:
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
        if self._rows and 2 * self._chunk <= _LARGEST_CHUNK:
            self._chunk *= 2
        self._rows = fetch(self._connection, self._sql, (self._owner, *after, self._chunk))
        self._next = 0
        self._more = len(self._rows) == self._chunk


class _Unlimited(OrderedRows):
    """The queue's jobs without limits."""

    __slots__ = ()


class _Lanes(OrderedRows):
    """Lanes with their first jobs."""

    __slots__ = ("_gates",)
    rank = 1

    def __init__(
        self,
        connection: apsw.Connection,
        sql: str,
        owner: str | int,
        chunk: int,
        gates: SqliteBudgets,
    ) -> None:
        super().__init__(connection, sql, owner, chunk)
        self._gates = gates

    def _read(self) -> None:
        """Read the next chunk, and what the first jobs of its lanes will ask the gates."""
        super()._read()
        limits = [row[_FIRST_LIMITS] for row in self._rows]
        self._gates.read_ahead([limits_of(said) for said in limits if said is not None])


class _LaneGroups(_Lanes):
    """The queue's open lane groups that have not been read, each with its first lane."""

    __slots__ = ()


class _LaneGroup(_Lanes):
    """An open lane group: its lanes."""

    __slots__ = ("id", "need")

    def __init__(self, connection: apsw.Connection, row: Row, gates: SqliteBudgets) -> None:
        """Make it from a row of ``open_bays``, which brings the first lane with it."""
        bay, gate, cost, _ = row[_BAY:]
        super().__init__(connection, _BAY_LANES, bay, 1, gates)
        if row[_LANE] is not None:
            self._rows = [row]
        self.id, self.need = bay, (gate, cost)


class _LaneVisit:
    """A lane: its first job, and where it stood when the claim began, if that is known."""

    __slots__ = ("_following", "_more", "_rest", "id", "job", "stand")
    rank = 0
    """The order of two lines with the same head: a lane before its lane group."""

    def __init__(self, row: Row, stand: LaneState | None) -> None:
        """Make it from a row that brings its first two jobs; one without a number is none."""
        self.id: int = row[_LANE]
        self.stand = stand
        self.job: Row | None = row[_FIRST] if row[6] is not None else None
        self._more = row[11] is not None
        self._following: Row | None = row[_SECOND] if self._more else None
        self._rest: OrderedRows | None = None

    def advance(self, connection: apsw.Connection) -> None:
        """Pass over the first job. Those behind the first two are read when they are needed."""
        if self._following is not None:
            self.job, self._following = self._following, None
        elif self._more:
            if self._rest is None:
                self._rest = OrderedRows(connection, _LANE_JOBS, self.id, 2, after=self.job)
            else:
                self._rest.advance()
            self.job = self._rest.head()
        else:
            self.job = None


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
        self._heads: list[tuple[int, int, int, int, OrderedRows | _LaneVisit]] = []
        self._shut: dict[tuple[str, float], int | None] = {}
        self._in_hand: set[int] = set()
        self._visited: dict[int, _LaneVisit] = {}
        self.lanes: LaneChanges = LaneChanges(connection)
        self.chosen: list[int] = []
        self.expired: list[int] = []
        self.damaged: dict[int, str] = {}
        self.cut_short: bool = False
        """Stopped at a bound: the next call gets further."""

    def run(self) -> None:
        """Take the best head of all while there is room."""
        self._push(_Unlimited(self._connection, _READY_AFTER, self._queue, chunk=self._room))
        chunks = -(-self._room // _LARGEST_CHUNK)
        chunk = -(-self._room // chunks)
        self._push(_LaneGroups(self._connection, _OPEN_BAYS, self._queue, chunk, self._gates))
        self._push_expired()
        while self._heads and len(self.chosen) < self._room and not self.cut_short:
            head = heappop(self._heads)[4]
            match head:
                case _LaneVisit():
                    self._visit(head)
                case _LaneGroups():
                    self._meet(head)
                case _LaneGroup():
                    self._enter(head)
                case _:
                    self._take(head)
        for lane in self._visited.values():
            self._leave(lane)

    def _leave(self, lane: _LaneVisit) -> None:
        if lane.stand is None:
            self.lanes.touch(lane.id)
        else:
            self.lanes.follow(lane.id, lane.stand, None if lane.job is None else lane.job[:3])

    def _push_expired(self) -> None:
        values = (self._queue, self._now, self._expiries)
        late = [lane for (lane,) in fetch(self._connection, _EXPIRED_HEADS, values)]
        if not late:
            return
        self._in_hand.update(late)
        for row in fetch(self._connection, _NAMED_LANES, (seqs_text(late),)):
            heappush(self._heads, (*row[:3], _LaneVisit.rank, _LaneVisit(row, None)))

    def _push(self, line: OrderedRows) -> None:
        head = line.head()
        if head is not None:
            heappush(self._heads, (*head[:3], line.rank, line))

    def _meet(self, groups: _LaneGroups) -> None:
        """Enter lane groups while the next one has the best head of all. Most have one lane, and
        need no line of their own.
        """
        while len(self.chosen) < self._room and not self.cut_short:
            row = groups.head()
            if row is None:
                return
            if self._heads and self._heads[0][:3] <= row[:3]:
                self._push(groups)
                return
            groups.advance()
            bay, gate, cost, alone = row[_BAY:]
            if not alone or row[_LANE] is None:
                self._enter(_LaneGroup(self._connection, row, self._gates))
            elif (gate, cost) in self._shut:
                self.lanes.close(bay, self._shut[gate, cost])
            else:
                self._approach(row, LaneState(self._queue, bay, gate, cost, row[:3], alone=True))

    def _enter(self, group: _LaneGroup) -> None:
        """Visit the first lane of a lane group, unless the group is known to be closed by now."""
        if group.need in self._shut:
            self.lanes.close(group.id, self._shut[group.need])
            return
        row = group.head()
        if row is None:
            return
        self._approach(row, LaneState(self._queue, group.id, *group.need, row[:3]))
        if group.need not in self._shut and len(self.chosen) < self._room:
            group.advance()
            self._push(group)

    def _approach(self, row: Row, stand: LaneState) -> None:
        """Visit a lane, unless it is in hand because its first job has expired."""
        if row[_LANE] not in self._in_hand:
            self._visit(_LaneVisit(row, stand))

    def _visit(self, lane: _LaneVisit) -> None:
        """Take the lane's first job, or park the lane."""
        if not self._left:
            self.cut_short = True
            return
        self._left -= 1
        self._visited[lane.id] = lane
        if lane.job is None:
            return
        _, _, seq, expires_at, limits = lane.job
        if expires_at is None or expires_at > self._now:
            uses = limits_of(limits)
            shut = self._gates.shut(uses)
            if shut is not None:
                self._shut[shut.gate, shut.cost] = shut.opens_at
                self.lanes.park(lane.id, shut)
                return
            if uses:
                self._gates.charge(uses, seq)
                self.chosen.append(seq)
            else:
                self.damaged[seq] = "limits"
        elif not self._expire(seq):
            return
        lane.advance(self._connection)
        if lane.job is not None:
            heappush(self._heads, (*lane.job[:3], _LaneVisit.rank, lane))

    def _take(self, line: OrderedRows) -> None:
        """Take the first job without limits."""
        job = line.head()
        if job is None:
            return
        seq, expires_at = job[2:4]
        if expires_at is None or expires_at > self._now:
            self.chosen.append(seq)
        elif not self._expire(seq):
            return
        line.advance()
        self._push(line)

    def _expire(self, seq: int) -> bool:
        """Discard a job; False: this claim has discarded enough."""
        if len(self.expired) == self._expiries:
            self.cut_short = True
            return False
        self.expired.append(seq)
        return True
