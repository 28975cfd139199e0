"""What people ask and order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from itertools import islice

from windlass.core.job import Attempt, Job, JobId
from windlass.core.rollup import Rollup
from windlass.core.state import State
from windlass.core.unique import Window
from windlass.errors import JobNotFound, KeyConflict, WrongState
from windlass.storage.memory.database import MemoryDatabase
from windlass.storage.memory.row import Row
from windlass.storage.protocol import JobFilter, QueueCounts

__all__ = ["MemoryAdmin"]

REQUEUABLE = frozenset({State.FAILED, State.CANCELLED, State.DISCARDED})


class MemoryAdmin:
    """An `AdminStore`."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    # --- reading ------------------------------------------------------------------------------

    async def get(self, ids: Sequence[JobId]) -> Sequence[Job | None]:
        with self._db.moment() as now:
            rows = [self._db.by_id.get(job) for job in ids]
            return [None if row is None else self._shown(row, now) for row in rows]

    async def find(self, wanted: JobFilter, *, limit: int) -> Sequence[Job]:
        with self._db.moment() as now:
            newest_first = reversed(self._db.rows.values())
            matching = (row for row in newest_first if self._matches(row, wanted))
            return [self._shown(row, now) for row in islice(matching, limit)]

    def _matches(self, row: Row, wanted: JobFilter) -> bool:
        return (
            (wanted.states is None or row.state in wanted.states)
            and (wanted.queue is None or row.asked.queue == wanted.queue)
            and (wanted.task is None or row.asked.task == wanted.task)
            and (wanted.before is None or row.seq < wanted.before)
        )

    def _shown(self, row: Row, now: datetime) -> Job:
        return row.to_job(key_held=self._db.holds_key(row, now))

    async def history(self, job: JobId) -> Sequence[Attempt]:
        with self._db.moment():
            row = self._db.by_id.get(job)
            return [] if row is None else list(row.history)

    async def counts(self) -> Sequence[QueueCounts]:
        with self._db.moment() as now:
            paused = {queue for queue, row in self._db.queues.items() if row.paused}
            queues: dict[str, Counter[str]] = {queue: Counter() for queue in paused}
            for row in self._db.rows.values():
                queues.setdefault(row.asked.queue, Counter())[self._counted_as(row, now)] += 1
            return [
                QueueCounts(queue=queue, paused=queue in paused, **counts)
                for queue, counts in sorted(queues.items())
            ]

    def _counted_as(self, row: Row, now: datetime) -> str:
        if row.state is not State.WAITING:
            return row.state.value
        return "scheduled" if row.due > now else "ready"

    async def rollups(self, since: datetime, until: datetime) -> Sequence[Rollup]:
        with self._db.moment():
            return [
                Rollup(
                    minute=minute,
                    queue=queue,
                    task=task,
                    counts=dict(tally.counts),
                    wait=dict(tally.wait),
                    run=dict(tally.run),
                )
                for (minute, queue, task), tally in sorted(self._db.tallies.items())
                if since <= minute < until
            ]

    # --- ordering -----------------------------------------------------------------------------

    async def requeue(self, ids: Sequence[JobId]) -> Sequence[Job]:
        with self._db.moment() as now:
            rows = self._rows(ids, REQUEUABLE, "requeue", "failed, cancelled or discarded")
            self._require_keys(rows, now)
            for row in rows:
                self._requeue(row, now)
            jobs = [self._shown(row, now) for row in rows]
        self._db.wake()
        return jobs

    def _requeue(self, row: Row, now: datetime) -> None:
        row.max_attempts = row.attempt + row.asked.max_attempts
        row.expires_at = row.finished_at = row.missed_at = row.reason = None
        row.cancel_requested = row.solo = False
        row.lost = 0
        if self._retakes_key(row) and not self._db.holds_key(row, now):
            self._db.take_key(row, now)
        self._db.stand(row, now, now)

    def _require_keys(self, rows: Sequence[Row], now: datetime) -> None:
        taken: dict[str, Row] = {}
        for row in rows:
            unique = row.asked.unique
            if unique is None or not self._retakes_key(row):
                continue
            holder = taken.setdefault(unique.key, self._db.holder(unique.key, now) or row)
            if holder is not row:
                raise KeyConflict(unique.key, holder.asked.id)

    def _retakes_key(self, row: Row) -> bool:
        return row.asked.unique is not None and row.asked.unique.window is not Window.UNTIL_STARTED

    async def discard(self, ids: Sequence[JobId], *, reason: str) -> None:
        with self._db.moment() as now:
            for row in self._rows(ids, {State.FAILED}, "discard", "failed"):
                row.reason = reason
                self._db.finish(row, State.DISCARDED, now)
        self._db.wake()

    def _rows(
        self,
        ids: Sequence[JobId],
        states: frozenset[State] | set[State],
        operation: str,
        needs: str,
    ) -> list[Row]:
        """All of them, in the right state, or an error before anything has changed."""
        rows: list[Row] = []
        for job in dict.fromkeys(ids):
            row = self._db.by_id.get(job)
            if row is None:
                raise JobNotFound(job)
            if row.state not in states:
                raise WrongState(job, row.state, operation, needs)
            rows.append(row)
        return rows

    async def run_now(self, ids: Sequence[JobId]) -> Sequence[bool]:
        with self._db.moment() as now:
            answers = [self._run_now(job, now) for job in ids]
        self._db.wake()
        return answers

    def _run_now(self, job: JobId, now: datetime) -> bool:
        row = self._db.by_id.get(job)
        if row is None or row.state is not State.WAITING:
            return False
        if row.due > now:
            self._db.stand(row, now, now)
        return True

    async def pause(self, queue: str) -> None:
        with self._db.moment():
            self._db.queues[queue].paused = True

    async def resume(self, queue: str) -> None:
        with self._db.moment():
            self._db.queues[queue].paused = False
        self._db.wake()
