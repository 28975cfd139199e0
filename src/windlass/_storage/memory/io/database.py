"""State shared by all stores: the rows, their order, their keys, and the subscribers to wake."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime, timedelta
from heapq import heappop, heappush

import msgspec

from windlass._core.flows.part import MemberEnd, ended_as
from windlass._core.job.job import Claim, FlowPlace, JobId, NewJob
from windlass._core.job.state import State
from windlass._core.job.unique import OnConflict, Window
from windlass._core.stats.gauges import Gauge
from windlass._core.values.instants import add_clamped
from windlass._storage.memory.admin.audit import AuditRows
from windlass._storage.memory.flows.rows import FlowRows, MemoryPart
from windlass._storage.memory.io.rollups import RollupRows
from windlass._storage.memory.io.rows import (
    ClaimSortKey,
    JobRow,
    Lane,
    Lease,
    QueueRow,
    WorkerRow,
    due_of,
    expiry_of,
)
from windlass._storage.memory.limits.budgets import MemoryBudgets
from windlass._storage.protocol.journal import EventRecord, LogChunk
from windlass._storage.protocol.schedules import ScheduleRow
from windlass._storage.shared.memory_url import MemoryBounds
from windlass._storage.shared.subscribers import QueueNames, Subscribers
from windlass._storage.timings import Durations, Timings
from windlass._system.seams import SYSTEM_CLOCK, Clock, monotonic

__all__ = ["VERSION", "JournalRows", "MemoryDatabase"]

VERSION = 1
"""Of what is kept here: checked by claims as on a server, though no other code can get at it."""


class JournalRows:
    """Log chunks and events by the number of their job's row. Runs under the database's lock."""

    def __init__(self) -> None:
        self._chunks: defaultdict[int, dict[tuple[int, int], LogChunk]] = defaultdict(dict)
        self._events: defaultdict[int, list[tuple[datetime, int, EventRecord]]] = defaultdict(list)
        self._kept = 0

    def keep_chunk(self, seq: int, chunk: LogChunk) -> None:
        """Keep a chunk, unless it is kept already."""
        self._chunks[seq].setdefault((chunk.claim.number, chunk.number), chunk)

    def chunks(self, seq: int) -> list[tuple[tuple[int, int], LogChunk]]:
        """Claim number and number of each, and the chunk, in that order."""
        return sorted(self._chunks[seq].items()) if seq in self._chunks else []

    def keep_event(self, seq: int, event: EventRecord) -> None:
        self._kept += 1
        self._events[seq].append((event.at, self._kept, event))

    def has_event(self, seq: int, event: EventRecord) -> bool:
        return any(event == kept for _, _, kept in self._events.get(seq, ()))

    def events(self) -> list[EventRecord]:
        """Return events by instant, then as they were stored."""
        return [event for _, _, event in sorted(e for kept in self._events.values() for e in kept)]

    def forget(self, seq: int) -> None:
        """Delete the job."""
        self._chunks.pop(seq, None)
        self._events.pop(seq, None)

    def prune_events(self, before: datetime, limit: int) -> int:
        """Forget the oldest events."""
        old = sorted(
            (at, number, seq)
            for seq, kept in self._events.items()
            for at, number, _ in kept
            if at < before
        )[:limit]
        gone = {number for _, number, _ in old}
        for seq in {seq for _, _, seq in old}:
            self._events[seq] = [kept for kept in self._events[seq] if kept[1] not in gone]
        return len(old)


class MemoryDatabase:
    """One set of jobs, used from any number of event loops and threads.

    Every operation runs under one lock and sees one instant: `moment`. Ready jobs stand in a heap
    per queue and lane, later ones in a heap per queue. Entries are not removed when a job leaves
    by another way (a cancel, a new due time): they are skipped when they come up.
    """

    def __init__(
        self,
        clock: Clock = SYSTEM_CLOCK,
        timings: Timings | None = None,
        bounds: MemoryBounds | None = None,
    ) -> None:
        """Make an empty database. ``timings`` counts how long operations take."""
        self.bounds: MemoryBounds = bounds or MemoryBounds()
        self.clock = clock
        self.version = VERSION
        self.rows: dict[int, JobRow] = {}
        self.by_id: dict[JobId, JobRow] = {}
        self.running: dict[int, JobRow] = {}
        self.ended: dict[int, JobRow] = {}
        """In the order in which they ended."""
        self.ready: defaultdict[str, dict[Lane, list[ClaimSortKey]]] = defaultdict(dict)
        self.later: defaultdict[str, list[ClaimSortKey]] = defaultdict(list)
        self.keys: dict[str, JobRow] = {}
        self.queues: defaultdict[str, QueueRow] = defaultdict(QueueRow)
        self.gates: MemoryBudgets = MemoryBudgets()
        self.tallies: RollupRows = RollupRows()
        self.copied: RollupRows = RollupRows()
        """Counts of another store before it was copied here."""
        self.gauges: dict[tuple[datetime, str], dict[str, Gauge]] = {}
        """By minute and source."""
        self.secret = ""
        self.audits: AuditRows = AuditRows()
        self.diary: JournalRows = JournalRows()
        self.workers: dict[str, WorkerRow] = {}
        self.leases: dict[str, Lease] = {}
        self.schedules: dict[str, ScheduleRow] = {}
        self.switches: dict[str, datetime] = {}
        """Since when something is switched off for the whole storage: ``schedules``."""
        self.flows: FlowRows = FlowRows()
        self._lock = threading.Lock()
        self._last_seq = 0
        self.subscribers: Subscribers = Subscribers(threads=True)
        self.room: Subscribers = Subscribers(threads=True)
        """Producers that wait until fewer jobs are unfinished."""
        self.timings: Timings = timings or Timings()

    def moment(self) -> AbstractContextManager[datetime]:
        """Lock the database for a change at one instant."""
        return self._alone(self.timings.writes)

    def view(self) -> AbstractContextManager[datetime]:
        """Do the same for an operation that changes nothing."""
        return self._alone(self.timings.reads)

    @contextmanager
    def _alone(self, timings: Durations) -> Iterator[datetime]:
        began, failed = monotonic(), True
        try:
            with self._lock:
                yield self.clock.now()
            failed = False
        finally:
            timings.add(monotonic() - began, failed=failed)

    # --- rows ---------------------------------------------------------------------------------

    def add(self, asked: NewJob, now: datetime) -> JobRow:
        row = JobRow.of(asked, now=now)
        self.keep(row)
        self.take_key(row, now)
        self.stand(row, row.due, now)
        return row

    def add_member(self, asked: NewJob, place: FlowPlace, now: datetime) -> JobRow:
        """Keep a job of a flow, blocked."""
        row = JobRow.of(asked, now=now)
        row.expire(None)  # it counts from its turn
        row.join(place)
        self.keep(row)
        self.take_key(row, now)
        row.block()
        return row

    def keep(self, row: JobRow) -> None:
        """Give a row its number, after all others."""
        self._last_seq += 1
        row.number(self._last_seq)
        self.rows[row.seq] = self.by_id[row.asked.id] = row
        if row.is_terminal():
            self.ended[row.seq] = row

    def remove(self, row: JobRow) -> None:
        del self.rows[row.seq], self.by_id[row.asked.id]
        self.running.pop(row.seq, None)
        self.ended.pop(row.seq, None)
        self.room.wake()
        self.diary.forget(row.seq)
        self.free_key(row)

    def held(self, claim: Claim) -> JobRow | None:
        """Return the job that is running under exactly this claim."""
        # By the row's own number: an id that was deleted and inserted again counts from one anew.
        row = self.rows.get(claim.seq)
        if row is None or row.state is not State.RUNNING or row.claim_number != claim.number:
            return None
        return row

    def finish(
        self, row: JobRow, state: State, now: datetime, ended: MemberEnd | None = None
    ) -> None:
        """End the job, and the hold on its key, unless that lasts for a time.

        ``ended``: how its part counts the end, if its state does not say it.
        """
        if row.flow is not None:
            self._end_member(row, ended or ended_as(state), now)
        row.finish(state, now)
        if row.asked.unique is not None and row.asked.unique.window is not Window.FOR_A_TIME:
            self.free_key(row)
        self.ended.pop(row.seq, None)
        self.ended[row.seq] = row
        most = self.bounds.max_ended
        while most is not None and len(self.ended) > most:
            self.remove(next(row for row in self.ended.values() if row.flow is None))
        self.room.wake()

    def expire(self, row: JobRow, now: datetime) -> None:
        row.explain("expired")
        self.finish(row, State.DISCARDED, now)

    # --- members of flows ---------------------------------------------------------------------

    def part_of(self, row: JobRow) -> MemoryPart:
        """Return the part of a member."""
        if row.flow is None:
            raise LookupError(row.asked.id)
        return self.flows.by_id[row.flow.flow].parts[row.flow.part]

    def join_later(self, job: JobId | None, part: MemoryPart, now: datetime) -> None:
        """Let a job that was just stored join the part that expects it; None: it was not stored."""
        if job is None:
            part.expect(-1)
            self.flows.spread(part, now)
        else:
            row = self.by_id[job]
            row.join(FlowPlace(part.flow.asked.id, part.number, added=True))
            part.members.append(row.seq)

    def _end_member(self, row: JobRow, ended: MemberEnd, now: datetime) -> None:
        part = self.part_of(row)
        if row.is_terminal():  # failed, and now discarded: it has ended before
            part.discard()
            return
        if row.blocked:
            part.unblock(row.seq)
        part.count(row.seq, ended, 1)
        self.flows.spread(part, now)

    def bring_back(self, row: JobRow, now: datetime) -> MemoryPart:
        """Count an ended member as open again: it is requeued."""
        part = self.part_of(row)
        part.count(row.seq, ended_as(row.state), -1)
        self.flows.spread(part, now)
        return part

    def block(self, row: JobRow) -> None:
        """Take the job out of every line."""
        self.ended.pop(row.seq, None)
        row.block()

    def unblock(self, row: JobRow, since: datetime, now: datetime) -> None:
        """Put a blocked job among the others. Its delay and its expiry count from now.

        Without a delay, or if it has run before, it is ordered by ``since``: its flow has waited
        that long.
        """
        asked = row.asked
        row.expire(expiry_of(asked, now))
        at_once = row.attempt > 0 or (asked.delay is None and asked.at is None)
        self.stand(row, since if at_once else due_of(asked, now), now)

    # --- order --------------------------------------------------------------------------------

    def stand(self, row: JobRow, due: datetime, now: datetime) -> None:
        """Put the job among the ready ones when it is due, else among the later ones."""
        row.wait(due)
        self.ended.pop(row.seq, None)
        if due <= now:
            self.stand_ready(row)
        else:
            place = (due, row.seq)
            row.stand(place)
            heappush(self.later[row.asked.queue], place)

    def stand_ready(self, row: JobRow) -> None:
        place = (row.asked.priority, row.due, row.seq)
        row.stand(place)
        heappush(self.ready[row.asked.queue].setdefault(row.lane, []), place)

    def _standing(self, place: ClaimSortKey) -> JobRow | None:
        """Return the waiting job of this entry; None: it has left."""
        row = self.rows.get(place[-1])
        return row if row is not None and row.place is place else None

    def head(self, heap: list[ClaimSortKey]) -> JobRow | None:
        """Return the first job that is still in this heap."""
        while heap:
            if (row := self._standing(heap[0])) is not None:
                return row
            heappop(heap)
        return None

    def replace(self, row: JobRow, new: NewJob, what: OnConflict, now: datetime) -> None:
        """Let a waiting job take over the values of the new one."""
        if what is not OnConflict.REPLACE_DUE:
            row.ask(
                msgspec.structs.replace(
                    row.asked,
                    payload=new.payload,
                    limits=new.limits,
                    principal=new.principal,
                    correlation_id=new.correlation_id,
                    trace=new.trace,
                )
            )
        # The new request must not be lost to the expiry of an earlier one.
        row.expire(expiry_of(new, now))
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
        moved, heap, left = 0, self.later[queue], list[ClaimSortKey]()
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
        """Return when the next job that is not ready counts as due."""
        first = self.head(self.later[queue])
        if first is None or not head_start:
            return None if first is None else first.due
        rows = [row for place in self.later[queue] if (row := self._standing(place)) is not None]
        return min(row.due if row.missed_at is None else row.due + head_start for row in rows)

    # --- unique keys --------------------------------------------------------------------------

    def holder(self, key: str, now: datetime) -> JobRow | None:
        """Return the job that holds the key now."""
        row = self.keys.get(key)
        if row is None or (row.key_until is not None and row.key_until <= now):
            return None
        return row

    def holds_key(self, row: JobRow, now: datetime) -> bool:
        unique = row.asked.unique
        return unique is not None and self.holder(unique.key, now) is row

    def take_key(self, row: JobRow, now: datetime) -> None:
        unique = row.asked.unique
        if unique is not None:
            self.keys[unique.key] = row
            row.hold_key(None if unique.period is None else add_clamped(now, unique.period))

    def free_key(self, row: JobRow) -> None:
        unique = row.asked.unique
        if unique is not None and self.keys.get(unique.key) is row:
            del self.keys[unique.key]

    def change_secret(self, new: str) -> None:
        self.secret = new

    # --- wake-ups -----------------------------------------------------------------------------

    def wake(self, queues: QueueNames = None) -> None:
        """Wake subscribers. Called after the change."""
        self.subscribers.wake(queues)
