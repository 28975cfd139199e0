"""Giving ready jobs to workers: order, expiry, limits and the solo rule."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from heapq import heappop, heappush

import msgspec

from windlass._core.job.job import ClaimedJob, JobId
from windlass._core.job.state import State
from windlass._core.job.unique import Window
from windlass._storage.memory.io.database import VERSION, MemoryDatabase
from windlass._storage.memory.io.rows import ClaimSortKey, JobRow, Lane
from windlass._storage.memory.limits.budgets import Usage
from windlass._storage.protocol.jobs import ClaimReply, Want
from windlass._storage.protocol.workers import WorkerState
from windlass._storage.shared.migrations import refuse_newer

__all__ = ["ClaimProgress", "ClaimRules"]

LaneEntries = dict[Lane, list[ClaimSortKey]]
LaneHeads = list[tuple[ClaimSortKey, Lane]]


class ClaimProgress(msgspec.Struct, kw_only=True):
    """The jobs that one claim has taken so far, and its hints."""

    worker: str
    now: datetime
    room: int
    solo: bool
    usage: Usage
    jobs: list[ClaimedJob] = []
    expired: list[JobId] = []
    opens_at: list[datetime] = []
    """When lanes that were found shut open by themselves."""


class ClaimRules:
    """The rules of `JobStore.claim`. Runs under the database's lock."""

    expired_at_once = 500
    """Expired jobs one claim discards at most."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database
        self.head_start: timedelta = timedelta(0)
        """Of the claim under way."""

    def let_others_first(self, head_start: timedelta) -> None:
        """Leave jobs that were missed to other workers for so long, in the claim that follows."""
        self.head_start = head_start

    def claim(
        self, worker: str, wants: Sequence[Want], *, total: int, solo: bool, now: datetime
    ) -> ClaimReply:
        if self._db.version > VERSION:
            refuse_newer(self._db.version, VERSION, "This process's memory")
        if not self.is_live(worker):
            return ClaimReply((), now, live=False)
        queues = self.open_queues(wants)
        for queue in queues:
            self.promote(queue, now)
        limited = any(lane.limits for queue in queues for lane in self._db.ready[queue])
        if limited or any(self.rests(queue, now) for queue in queues):
            self.mend(now)
        usage = self._db.gates.usage(self._db.running.values())
        room = min(total, 1) if solo else total
        visit = ClaimProgress(worker=worker, now=now, room=room, solo=solo, usage=usage)
        for want in wants:
            if want.queue in queues:
                self.take(visit, want)
        if visit.expired:
            self._db.wake()
        return ClaimReply(
            visit.jobs,
            now,
            next_at=self.next_at(visit, queues),
            solo_due=self.solo_due(visit, queues),
            expired=visit.expired,
        )

    def mend(self, now: datetime) -> None:
        """Let neither gates nor queues wait for a clock that was set back."""
        back = self._db.gates.set_back_by(now)
        self._db.gates.mend(now)
        for row in self._db.queues.values():
            row.cool(row.cool_until and row.cool_until - back, row.cool_downs)

    def rests(self, queue: str, now: datetime) -> bool:
        """Return whether a queue cools down."""
        cool_until = self._db.queues[queue].cool_until
        return cool_until is not None and cool_until > now

    def promote(self, queue: str, now: datetime) -> None:
        """Make due jobs ready; those that were missed only when others had their head start."""
        self._db.promote(queue, now, missed_until=now - self.head_start)

    def is_live(self, worker: str) -> bool:
        row = self._db.workers.get(worker)
        return row is not None and row.state is WorkerState.LIVE

    def open_queues(self, wants: Sequence[Want]) -> list[str]:
        wanted = dict.fromkeys(want.queue for want in wants)
        return [queue for queue in wanted if not self._db.queues[queue].paused]

    def room(self, queue: str, now: datetime) -> int:
        """Return how many more jobs of a queue may run, apart from their limits."""
        row = self._db.queues[queue]
        if row.paused or self.rests(queue, now):
            return 0
        if row.settings.max_running is None:
            return len(self._db.rows)
        running = sum(job.asked.queue == queue for job in self._db.running.values())
        return max(0, row.settings.max_running - running)

    # --- one want -----------------------------------------------------------------------------

    def take(self, visit: ClaimProgress, want: Want) -> None:
        """Start jobs of one queue in order, while there is room: the best head of all lanes."""
        lanes = self._db.ready[want.queue]
        heads = self.heads(lanes, solo=visit.solo)
        room = min(want.limit, visit.room - len(visit.jobs), self.room(want.queue, visit.now))
        limit = len(visit.jobs) + room
        while heads and len(visit.jobs) < limit:
            place, lane = heappop(heads)
            row = self._db.rows[place[-1]]
            if row.is_expired(visit.now):
                if len(visit.expired) == self.expired_at_once:
                    # A caller that asks again at once gets further.
                    visit.opens_at.append(visit.now)
                    return
                self._db.expire(row, visit.now)
                visit.expired.append(row.asked.id)
            elif row.flow is not None and self._db.part_of(row).is_cancelled:
                self._db.finish(row, State.CANCELLED, visit.now)
            elif not self.admit(visit, row):
                continue  # and the lane is not looked at again
            else:
                self.start(visit, row)
            self.add_head(heads, lanes, lane)

    def heads(self, lanes: LaneEntries, *, solo: bool) -> LaneHeads:
        heads: LaneHeads = []
        for lane in [lane for lane in lanes if lane.solo is solo]:
            self.add_head(heads, lanes, lane)
        return heads

    def add_head(self, heads: LaneHeads, lanes: LaneEntries, lane: Lane) -> None:
        if self._db.head(lanes[lane]) is not None:
            heappush(heads, (lanes[lane][0], lane))
        else:
            del lanes[lane]

    def admit(self, visit: ClaimProgress, row: JobRow) -> bool:
        """Take from every limit of the job if all let it start now. Return whether they did."""
        if not row.asked.limits:
            return True
        gates, uses = self._db.gates, row.asked.limits
        shut = gates.shut(uses, visit.usage, visit.now)
        if shut is None:
            gates.charge(uses, visit.usage, visit.now)
            return True
        if shut.opens_at is not None:
            visit.opens_at.append(shut.opens_at)
        return False

    def start(self, visit: ClaimProgress, row: JobRow) -> None:
        row.start(visit.worker, visit.now)
        unique = row.asked.unique
        if unique is not None and unique.window is Window.UNTIL_STARTED:
            self._db.free_key(row)
        self._db.running[row.seq] = row
        visit.jobs.append(row.to_claimed())

    # --- what else the worker should know -----------------------------------------------------

    def next_at(self, visit: ClaimProgress, queues: Sequence[str]) -> datetime | None:
        due = [self.opens(queue, visit.now) for queue in queues]
        return min((at for at in (*due, *visit.opens_at) if at is not None), default=None)

    def opens(self, queue: str, now: datetime) -> datetime | None:
        """Return when something of this queue becomes claimable by itself."""
        cool_until = self._db.queues[queue].cool_until
        if cool_until is not None and cool_until > now:
            return cool_until
        return self._db.next_due(queue, self.head_start)

    def solo_due(self, visit: ClaimProgress, queues: Sequence[str]) -> bool:
        """Return whether a job could start if this worker asked for it alone."""
        if visit.solo:
            return False
        for queue in [queue for queue in queues if self.room(queue, visit.now)]:
            lanes = self._db.ready[queue]
            for place, _ in self.heads(lanes, solo=True):
                uses = self._db.rows[place[-1]].asked.limits
                if self._db.gates.shut(uses, visit.usage, visit.now) is None:
                    return True
        return False
