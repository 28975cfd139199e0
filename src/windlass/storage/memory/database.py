"""What all stores share: the rows, their order, their keys, and who is to be woken."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from heapq import heappop, heappush

import msgspec

from windlass.core.job import Claim, JobId, NewJob
from windlass.core.limit import lane_key
from windlass.core.state import State
from windlass.core.unique import OnConflict, Window
from windlass.seams import SYSTEM_CLOCK, Clock
from windlass.storage.calendar import after
from windlass.storage.memory.audits import Audits
from windlass.storage.memory.diary import Diary
from windlass.storage.memory.gates import Gates
from windlass.storage.memory.row import (
    Lane,
    Lease,
    Place,
    QueueRow,
    Row,
    Tallies,
    WorkerRow,
    due_of,
    expiry_of,
)
from windlass.storage.protocol import ScheduleRow
from windlass.storage.sleepers import Queues, Sleeper

__all__ = ["VERSION", "MemoryDatabase"]

VERSION = 1
"""Of what is kept here: checked by claims as on a server, though no other code can get at it."""


class MemoryDatabase:
    """One set of jobs, used from any number of event loops and threads.

    Every operation runs under one lock and sees one instant: `moment`. Ready jobs stand in a heap
    per queue and lane, later ones in a heap per queue. Entries are not removed when a job leaves
    by another way (a cancel, a new due time): they are skipped when they come up.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self.clock = clock
        self.version = VERSION
        self.rows: dict[int, Row] = {}
        self.by_id: dict[JobId, Row] = {}
        self.running: dict[int, Row] = {}
        self.ready: defaultdict[str, dict[Lane, list[Place]]] = defaultdict(dict)
        self.later: defaultdict[str, list[Place]] = defaultdict(list)
        self.keys: dict[str, Row] = {}
        self.queues: defaultdict[str, QueueRow] = defaultdict(QueueRow)
        self.gates: Gates = Gates()
        self.tallies: Tallies = {}
        self.copied: Tallies = {}
        """What another store had counted before it was moved here."""
        self.secret = ""
        self.audits: Audits = Audits()
        self.diary: Diary = Diary()
        self.workers: dict[str, WorkerRow] = {}
        self.leases: dict[str, Lease] = {}
        self.schedules: dict[str, ScheduleRow] = {}
        self._lock = threading.Lock()
        self._last_seq = 0
        self._sleepers: list[Sleeper] = []

    @contextmanager
    def moment(self) -> Iterator[datetime]:
        """Nobody else changes anything, and it is this instant throughout."""
        with self._lock:
            yield self.clock.now()

    # --- rows ---------------------------------------------------------------------------------

    def add(self, asked: NewJob, now: datetime) -> Row:
        row = Row.of(asked, now=now)
        self.keep(row)
        self.take_key(row, now)
        self.stand(row, row.due, now)
        return row

    def keep(self, row: Row) -> None:
        """Give a row its number, after all others."""
        self._last_seq += 1
        row.seq = self._last_seq
        self.rows[row.seq] = self.by_id[row.asked.id] = row

    def remove(self, row: Row) -> None:
        del self.rows[row.seq], self.by_id[row.asked.id]
        self.running.pop(row.seq, None)
        self.diary.forget(row.seq)
        self.free_key(row)

    def held(self, claim: Claim) -> Row | None:
        """The job that is running under exactly this claim."""
        # By the row's own number: an id that was deleted and inserted again counts from one anew.
        row = self.rows.get(claim.seq)
        if row is None or row.state is not State.RUNNING or row.claim_number != claim.number:
            return None
        return row

    def finish(self, row: Row, state: State, now: datetime) -> None:
        """The job ends here, and so does the hold on its key, unless that lasts for a time."""
        row.state = state
        row.finished_at = now
        row.place = None
        if row.asked.unique is not None and row.asked.unique.window is not Window.FOR_A_TIME:
            self.free_key(row)

    def expire(self, row: Row, now: datetime) -> None:
        row.reason = "expired"
        self.finish(row, State.DISCARDED, now)

    # --- order --------------------------------------------------------------------------------

    def stand(self, row: Row, due: datetime, now: datetime) -> None:
        """The job waits: among the ready ones when it is due, else among the later ones."""
        row.state = State.WAITING
        row.due = due
        if due <= now:
            self.stand_ready(row)
        else:
            row.place = (due, row.seq)
            heappush(self.later[row.asked.queue], row.place)

    def stand_ready(self, row: Row) -> None:
        row.place = (row.asked.priority, row.due, row.seq)
        heappush(self.ready[row.asked.queue].setdefault(row.lane, []), row.place)

    def _standing(self, place: Place) -> Row | None:
        """The waiting job this entry stands for; None: it has left."""
        row = self.rows.get(place[-1])
        return row if row is not None and row.place is place else None

    def head(self, heap: list[Place]) -> Row | None:
        """The first job that still stands in this heap."""
        while heap:
            if (row := self._standing(heap[0])) is not None:
                return row
            heappop(heap)
        return None

    def replace(self, row: Row, new: NewJob, what: OnConflict, now: datetime) -> None:
        """A waiting job takes over what was asked for in its stead."""
        if what is not OnConflict.REPLACE_DUE:
            row.asked = msgspec.structs.replace(
                row.asked,
                payload=new.payload,
                limits=new.limits,
                principal=new.principal,
                correlation_id=new.correlation_id,
                trace=new.trace,
            )
            row.lane_limits = lane_key(new.limits)
        # What is asked for now must not be lost to an expiry that was asked for before.
        row.expires_at = expiry_of(new, now)
        due = row.due if what is OnConflict.REPLACE_ARGUMENTS else due_of(new, now)
        self.stand(row, due, now)

    def promote(
        self,
        queue: str,
        now: datetime,
        limit: int | None = None,
        *,
        missed_until: datetime | None = None,
    ) -> int:
        """Move due jobs among the ready ones, those that were missed only if they were due by
        ``missed_until`` (None: too); the answer is how many.
        """
        moved, heap, left = 0, self.later[queue], list[Place]()
        while moved != limit and (row := self.head(heap)) is not None and row.due <= now:
            place = heappop(heap)
            if missed_until is None or row.missed_at is None or row.due <= missed_until:
                self.stand_ready(row)
                moved += 1
            else:
                left.append(place)
        for place in left:
            heappush(heap, place)
        return moved

    def next_due(self, queue: str, head_start: timedelta = timedelta(0)) -> datetime | None:
        """When the next job that is not ready counts as due."""
        first = self.head(self.later[queue])
        if first is None or not head_start:
            return None if first is None else first.due
        rows = [row for place in self.later[queue] if (row := self._standing(place)) is not None]
        return min(row.due if row.missed_at is None else row.due + head_start for row in rows)

    # --- unique keys --------------------------------------------------------------------------

    def holder(self, key: str, now: datetime) -> Row | None:
        """The job that holds the key now."""
        row = self.keys.get(key)
        if row is None or (row.key_until is not None and row.key_until <= now):
            return None
        return row

    def holds_key(self, row: Row, now: datetime) -> bool:
        unique = row.asked.unique
        return unique is not None and self.holder(unique.key, now) is row

    def take_key(self, row: Row, now: datetime) -> None:
        unique = row.asked.unique
        if unique is not None:
            self.keys[unique.key] = row
            row.key_until = None if unique.period is None else after(now, unique.period)

    def free_key(self, row: Row) -> None:
        unique = row.asked.unique
        if unique is not None and self.keys.get(unique.key) is row:
            del self.keys[unique.key]

    # --- wake-ups -----------------------------------------------------------------------------

    def wake(self, queues: Queues = None) -> None:
        """Something changed that others may wait for. Called after the change."""
        for sleeper in tuple(self._sleepers):
            if sleeper.cares(queues):
                sleeper()

    def add_sleeper(self, sleeper: Sleeper) -> None:
        with self._lock:
            self._sleepers = [*self._sleepers, sleeper]

    def remove_sleeper(self, sleeper: Sleeper) -> None:
        with self._lock:
            self._sleepers = [other for other in self._sleepers if other != sleeper]
