"""Giving ready jobs to a worker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn, Protocol, Self

import apsw
import msgspec

from windlass._core.job.job import ClaimedJob, JobId
from windlass._core.job.state import State
from windlass._core.job.unique import Window
from windlass._core.limits.limit import lane_key
from windlass._core.values.instants import instant_of
from windlass._storage.protocol.jobs import ClaimReply, Want
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.sqlite.flows.parts import Place, places_of
from windlass._storage.sqlite.flows.settle import SETTLED_AT_ONCE, settle
from windlass._storage.sqlite.io.rows import NEVER, Row, limits_of, value_of
from windlass._storage.sqlite.jobs.claimed_jobs import claimed_jobs
from windlass._storage.sqlite.jobs.unique_keys import free_keys
from windlass._storage.sqlite.jobs.unreadable_rows import damage_of, read_each
from windlass._storage.sqlite.jobs.waiting_jobs import end_waiting, fail_damaged, promote
from windlass._storage.sqlite.limits.budgets import SqliteBudgets, repair_after_clock_change
from windlass._storage.sqlite.limits.lane_claims import LaneClaim, OrderedRows
from windlass._storage.sqlite.limits.lanes import LaneChanges

__all__ = ["SOLO_AFTER", "SOLO_CANDIDATES", "ClaimOperation"]

_SQL = load_sql("windlass._storage.sqlite.sql", "claim.sql")
_IS_LIVE, _LOOK, SOLO_AFTER = _SQL["is_live"], _SQL["look"], _SQL["solo_after"]
_BEST, _CHOSEN, _EXTRAS, _START = _SQL["best"], _SQL["chosen"], _SQL["extras"], _SQL["start"]
_LANES = load_sql("windlass._storage.sqlite.sql", "lanes.sql")
_DUE_AFTER = _SQL["due_after"]
_OPEN_TIMED, _NEXT_TIMED = _LANES["open_timed"], _LANES["next_timed"]
_RUNNING = load_sql("windlass._storage.sqlite.sql", "queues.sql")["running"]

PROMOTED_AT_ONCE = 500
"""Due jobs of one queue that a claim makes ready, and lane groups whose tokens have arrived."""
EXPIRED_AT_ONCE = 500
"""Expired jobs that one claim discards."""
SOLO_CANDIDATES = 64
"""Solo jobs that a claim asks the limits for."""

_ANY = 2**63 - 1

_encode = msgspec.json.Encoder().encode

# Columns of ``best`` and ``chosen`` in claim.sql.
_SEQ, _NUMBER, _EXPIRES, _SPECIAL, _PART = 0, 2, 10, 11, 12


_NO_PART = {None}


class KnownSchema(Protocol):
    """The versions of the schema that this code knows."""

    last_known: int
    """The newest whose jobs it may claim."""

    def refuse_newer(self, connection: apsw.Connection) -> NoReturn: ...


class ClaimOperation:
    """One claim: run in a transaction, then read. Records are built after the lock is free."""

    def __init__(
        self,
        schema: KnownSchema,
        worker: str,
        wants: Sequence[Want],
        *,
        total: int,
        solo: bool = False,
        head_start: int = 0,
    ) -> None:
        """Take up to ``total`` of ``wants``; ``head_start`` is in microseconds."""
        self._schema, self._worker, self._wants = schema, worker, wants
        self._room = min(total, 1) if solo else total
        self._solo, self._head_start = solo, head_start
        self._now = 0
        self._budgets: SqliteBudgets | None = None
        self._expiries = EXPIRED_AT_ONCE
        self._laned: list[str] = []
        self._with_solo: list[str] = []
        self._live, self._solo_due = True, False
        self._next_at: int | None = None
        self.claimed: list[tuple[str, list[Row], dict[int, Row]]] = []
        """By queue: rows, and what else some of them carry."""
        self.expired: list[JobId] = []
        self.damaged: list[JobId] = []
        self.settled: int = 0
        """Members of flows that were placed or ended."""
        self._places: dict[int, Place] = {}

    def run(self, connection: apsw.Connection, now: int) -> Self:
        """`JobStore.claim` at the instant ``now``."""
        self._connection, self._now = connection, now
        if connection.execute("PRAGMA user_version").get > self._schema.last_known:
            self._schema.refuse_newer(connection)
        unsettled = connection.execute(_IS_LIVE, (self._worker, now)).get
        if unsettled is None:
            self._live = False
            return self
        if unsettled:
            self.settled = settle(connection, max(SETTLED_AT_ONCE, self._room), now)
        for want in self._wants:
            self._serve(want)
        if self._laned or self._with_solo:
            self._look_ahead()
        return self

    def reply(self) -> ClaimReply:
        """Build the answer."""
        at, at_next = instant_of(self._now), self._next_at
        jobs: list[ClaimedJob] = []
        for queue, rows, extras in self.claimed:
            jobs += claimed_jobs(
                rows, extras, self._places, queue=queue, started_at=at, worker=self._worker
            )
        return ClaimReply(
            jobs,
            at,
            live=self._live,
            next_at=None if at_next is None or at_next == NEVER else instant_of(at_next),
            solo_due=self._solo_due,
            expired=self.expired,
        )

    def _expect(self, at: int | None) -> None:
        """Record an instant at which a job may become claimable."""
        if at is not None and (self._next_at is None or at < self._next_at):
            self._next_at = at

    def _serve(self, want: Want) -> None:
        """Take from one queue what is wanted and there."""
        queue = want.queue
        paused, cool_until, most, due, laned, alone = self._look(queue)
        if paused:
            return
        if due is not None and due <= self._now:
            due, laned, alone = self._promote(queue)
        if cool_until is not None and self._rests(queue, cool_until):
            return
        if due is not None:
            self._expect(due)
        if laned and not self._laned:
            repair_after_clock_change(self._connection, self._now)
        before, free = self._room, _ANY if most is None else self._free(queue, most)
        room = max(0, min(want.limit, self._room, free))
        if not free:
            return
        if self._solo:
            if alone and room:
                self._take_solo(queue)
            return
        if room and (laned or not self._take_best(queue, room)):
            self._take_by_visits(queue, room)
        if laned:
            self._laned.append(queue)
        if alone and before - self._room < free:
            self._with_solo.append(queue)

    def _rests(self, queue: str, cool_until: int) -> bool:
        """Return whether a queue cools down, also when a clock that was set back is taken into
        account.
        """
        if cool_until > self._now:
            repair_after_clock_change(self._connection, self._now)
            cool_until = self._look(queue)[1]
            self._expect(cool_until)
        return cool_until > self._now

    def _free(self, queue: str, most: int) -> int:
        """Return how many more jobs of a queue may run, apart from their limits."""
        return max(0, most - int(value_of(self._connection, _RUNNING, (queue,))))

    def _look_ahead(self) -> None:
        """Find the next instant, now that every queue has taken from the gates what it wanted."""
        for queue in self._laned:
            self._expect(value_of(self._connection, _NEXT_TIMED, (queue,)))
        self._solo_due = any(self._next_solo(queue) is not None for queue in self._with_solo)

    def _look(self, queue: str) -> Row:
        row: Row = self._connection.execute(_LOOK, (queue,)).fetchall()[0]
        return row

    @property
    def _gates(self) -> SqliteBudgets:
        """The budgets of limits; few claims need them."""
        if self._budgets is None:
            self._budgets = SqliteBudgets(self._connection, self._now)
        return self._budgets

    def _promote(self, queue: str) -> Row:
        """Make due jobs ready; those that were missed only when others had their head start. The
        answer is what the queue has then: the next due time, lanes, jobs that run alone.
        """
        lanes, until = LaneChanges(self._connection), self._now - self._head_start
        done = promote(
            self._connection,
            queue,
            lanes,
            limit=PROMOTED_AT_ONCE,
            now=self._now,
            missed_until=until,
        )
        lanes.settle()
        *_, due, laned, alone = self._look(queue)
        if self._head_start and done < PROMOTED_AT_ONCE and due is not None:
            due = self._next_due(queue, due)
        return due, laned, alone

    def _next_due(self, queue: str, due: int) -> int:
        """Return when something of a queue counts as due, whose first job is due at ``due``."""
        if due > self._now:
            return due
        following = value_of(self._connection, _DUE_AFTER, (queue, self._now))
        left = due + self._head_start
        return left if following is None else min(left, following)

    # --- three ways to take -------------------------------------------------------------------

    def _take_best(self, queue: str, room: int) -> bool:
        """Claim without lanes. False: a job has expired or cannot be read, and nothing
        was taken.
        """
        try:
            rows: list[Row] = self._connection.execute(_BEST, (queue, room)).fetchall()
        except UnicodeDecodeError:
            return False
        for row in rows:
            if row[_EXPIRES] is not None and row[_EXPIRES] <= self._now:
                return False
        self._start(queue, rows)
        return True

    def _take_by_visits(self, queue: str, room: int) -> None:
        """Merge the jobs without limits with the lanes, discard what has expired."""
        self._connection.execute(_OPEN_TIMED, (queue, self._now, PROMOTED_AT_ONCE))
        visits = LaneClaim(
            self._connection, queue, self._gates, room=room, expiries=self._expiries, now=self._now
        )
        visits.run()
        self._discard(visits.expired, visits.lanes)
        self._fail(visits.damaged, visits.lanes)
        self._start_chosen(queue, visits.chosen, visits.lanes)
        visits.lanes.settle()
        self._postpone(visits.lanes)
        if visits.cut_short:
            self._expect(self._now)

    def _take_solo(self, queue: str) -> None:
        found = self._next_solo(queue, discard=True)
        if found is not None:
            seq, limits = found
            if limits is not None:
                self._gates.charge(limits_of(limits), seq)
            lanes = LaneChanges(self._connection)
            self._start_chosen(queue, [seq], lanes)
            self._postpone(lanes)

    def _next_solo(self, queue: str, *, discard: bool = False) -> tuple[int, bytes | None] | None:
        """Return the first solo job that its limits admit. A refused one closes its
        lane behind it.
        """
        closed: set[str] = set()
        expired: list[int] = []
        damaged: dict[int, str] = {}
        found = None
        line = OrderedRows(self._connection, SOLO_AFTER, queue, chunk=2)
        for _, _, seq, expires_at, limits in line.first(SOLO_CANDIDATES):
            if discard and expires_at is not None and expires_at <= self._now:
                expired.append(seq)
                continue
            uses = () if limits is None else limits_of(limits)
            if limits is not None and not uses:
                damaged[seq] = "limits"
                continue
            lane = lane_key(uses)
            shut = None if lane in closed else self._gates.shut(uses)
            if lane not in closed and shut is None:
                found = (seq, limits)
                break
            closed.add(lane)
            if shut is not None:
                self._expect(shut.opens_at)
        if discard:
            self._discard(expired, LaneChanges(self._connection))
            self._fail(damaged, LaneChanges(self._connection))
        return found

    # --- writing ------------------------------------------------------------------------------

    def _start_chosen(self, queue: str, seqs: Sequence[int], lanes: LaneChanges) -> None:
        found, damaged = read_each(self._connection, _CHOSEN, seqs)
        self._fail(damaged, lanes)
        rows = {row[_SEQ]: row for row in found}
        self._start(queue, [rows[seq] for seq in seqs if seq in rows], lanes)

    def _start(self, queue: str, rows: list[Row], lanes: LaneChanges | None = None) -> None:
        special = [row[_SEQ] for row in rows if row[_SPECIAL]]
        extras: dict[int, Row] = {}
        if special:
            extras, damaged = self._look_closer(special)
            if damaged:
                self._fail(damaged, lanes or LaneChanges(self._connection))
                rows = [row for row in rows if row[_SEQ] not in damaged]
        parts = {row[_PART] for row in rows}
        if parts and parts != _NO_PART:
            rows = self._find_places(parts, rows, lanes)
        if not rows:
            return
        seqs = _encode([row[_SEQ] for row in rows]).decode()
        self._connection.execute(_START, (self._now, self._worker, seqs))
        self._room -= len(rows)
        self.claimed.append((queue, rows, extras))

    def _find_places(
        self, parts: set[int | None], rows: list[Row], lanes: LaneChanges | None
    ) -> list[Row]:
        """Read where the members stand, and cancel those whose flow is. Return the others."""
        self._places |= places_of(
            self._connection, [p for p in parts if p is not None and p not in self._places]
        )
        over = {p for p in parts if p is not None and self._places[p].cancelled}
        if not over:
            return rows
        late = [row[_SEQ] for row in rows if row[_PART] in over]
        self._end(late, lanes or LaneChanges(self._connection), State.CANCELLED, None)
        self._expect(self._now)
        return [row for row in rows if row[_SEQ] not in late]

    def _look_closer(self, seqs: Sequence[int]) -> tuple[dict[int, Row], dict[int, str]]:
        """Read the rest of the jobs, and which cannot be read; release keys held until
        the start.
        """
        extras, damaged = read_each(self._connection, _EXTRAS, seqs)
        until_started = Window.UNTIL_STARTED.value
        held = [(key, seq) for seq, key, window, *_ in extras if window == until_started]
        free_keys(self._connection, held)
        found = {row[0]: row for row in extras}
        return found, damaged | damage_of(found)

    def _fail(self, damaged: Mapping[int, str], lanes: LaneChanges) -> None:
        """Fail jobs that cannot be read; the next claim finds the jobs behind them."""
        if damaged:
            self.damaged += fail_damaged(self._connection, damaged, lanes, self._now)
            self._expect(self._now)

    def _discard(self, seqs: Sequence[int], lanes: LaneChanges) -> None:
        if seqs:
            self._expiries -= len(seqs)
            self.expired += self._end(seqs, lanes, State.DISCARDED, "expired")

    def _end(
        self, seqs: Sequence[int], lanes: LaneChanges, state: State, reason: str | None
    ) -> list[JobId]:
        return end_waiting(self._connection, seqs, lanes, state=state, reason=reason, now=self._now)

    def _postpone(self, lanes: LaneChanges) -> None:
        """Store the charges of the gates, and postpone the lanes that wait for them."""
        rows = self.claimed[-1][1] if self.claimed else []
        lanes.store(self._gates, {row[_SEQ]: row[_NUMBER] for row in rows})
