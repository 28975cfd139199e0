"""Reads of operators, and pausing queues."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from windlass._core.job.job import Attempt, JobId, JobRecord
from windlass._core.job.state import State
from windlass._core.limits.queue_settings import QueueSettings
from windlass._core.stats.gauges import GaugeRow
from windlass._core.stats.rollup import Rollup, merge
from windlass._storage.memory.admin.error_groups import group_errors
from windlass._storage.memory.admin.find import (
    cursor_after,
    is_candidate,
    is_wanted,
    rows_after,
    sort_rows,
    sort_time_of_row,
)
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.protocol.actions import AuditNote
from windlass._storage.protocol.admin import ErrorLook, Named, QueueCounts, TaskLook
from windlass._storage.protocol.lists.job_list import JobFilter, ListOrder, Page
from windlass._storage.protocol.lists.list_order import is_descending, order_of
from windlass._storage.shared.task_counts import task_look

__all__ = ["MemoryAdmin"]


class MemoryAdmin:
    """An `AdminStore`."""

    look = 20_000
    """Jobs that one call of `find` looks at, beyond those an index would rule out …"""
    look_for_text = 500
    """… and where it has to read all they say."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database

    # --- reading ------------------------------------------------------------------------------

    async def get(self, ids: Sequence[JobId]) -> Sequence[JobRecord | None]:
        with self._db.view() as now:
            rows = [self._db.by_id.get(job) for job in ids]
            return [None if row is None else self._shown(row, now) for row in rows]

    async def named(self, first: str, last: str, *, after: str | None = None) -> Named:
        with self._db.view():
            met = self._range(first, after) if first else self._newest(after)
            ids = [job for job in met[: self.look] if self._ends(job, last)]
            more = len(met) > self.look
            return Named(ids, min(len(met), self.look), met[self.look - 1] if more else None)

    def _range(self, first: str, after: str | None) -> list[JobId]:
        return sorted(
            job for job in self._db.by_id if job.startswith(first) and job > (after or "")
        )

    def _newest(self, after: str | None) -> list[JobId]:
        rows = [row.asked.id for row in reversed(self._db.rows.values())]
        return rows if after is None else rows[rows.index(JobId(after)) + 1 :]

    def _ends(self, job: JobId, last: str) -> bool:
        return job.endswith(last)

    async def secret(self, new: str = "", *, old: str = "") -> str:
        with self._db.moment():
            if new and self._db.secret == old:
                self._db.change_secret(new)
            return self._db.secret

    async def find(self, wanted: JobFilter, *, limit: int) -> Page:
        order = order_of(wanted)
        with self._db.view() as now:
            jobs: list[JobRecord] = []
            if limit < 1:
                return Page(jobs)
            look = self.look if wanted.text is None else self.look_for_text
            last: JobRow | None = None
            for row in self._in_order(wanted, order, now):
                if last is not None and (not look or len(jobs) == limit):
                    reached = sort_time_of_row(last, order) if len(jobs) < limit else None
                    return Page(jobs, cursor_after(last, order), reached)
                look, last = look - 1, row
                if self._matches(row, wanted):
                    jobs.append(self._shown(row, now))
            return Page(jobs)

    def _in_order(self, wanted: JobFilter, order: ListOrder, now: datetime) -> Iterator[JobRow]:
        """Return the candidates of this page and of those behind it."""
        rows = self._db.rows.values()
        walked = reversed(rows) if is_descending(order) else rows
        some = (row for row in walked if self._is_candidate(row, wanted, now))
        return rows_after(sort_rows(some, order), wanted, order)

    def _is_candidate(self, row: JobRow, wanted: JobFilter, now: datetime) -> bool:
        return is_candidate(row, wanted, now)

    def _matches(self, row: JobRow, wanted: JobFilter) -> bool:
        return is_wanted(row, wanted)

    async def errors(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        since: datetime | None = None,
        look: int = 10_000,
    ) -> ErrorLook:
        with self._db.view():
            failed = self._failed(since)
            groups = group_errors(
                row
                for row in failed[:look]
                if (queue is None or row.asked.queue == queue)
                and (task is None or row.asked.task == task)
            )
            return ErrorLook(groups, complete=len(failed) <= look)

    def _failed(self, since: datetime | None) -> list[JobRow]:
        """Return the failed jobs, the last failure first."""
        failed = [
            (row.finished_at, row.seq, row)
            for row in self._db.rows.values()
            if row.state is State.FAILED
            and row.finished_at is not None
            and (since is None or row.finished_at >= since)
        ]
        return [row for _, _, row in sorted(failed, reverse=True)]

    def _shown(self, row: JobRow, now: datetime) -> JobRecord:
        return row.to_job(key_held=self._db.holds_key(row, now))

    async def history(self, job: JobId) -> Sequence[Attempt]:
        with self._db.view():
            row = self._db.by_id.get(job)
            return [] if row is None else list(row.history)

    async def counts(self, *, cap: int | None = None) -> Sequence[QueueCounts]:
        with self._db.view() as now:
            counted = {queue: Counter[str]() for queue in self._known_queues()}
            oldest: dict[str, datetime] = {}
            for row in self._db.rows.values():
                queue, counted_as = row.asked.queue, self._counted_as(row, now)
                counts = counted.setdefault(queue, Counter())
                counts[counted_as] += 1
                counts["retrying"] += row.is_retrying()
                if counted_as == "ready":
                    oldest[queue] = min(row.due, oldest.get(queue, row.due))
            return [
                QueueCounts(
                    queue=queue,
                    paused=self._db.queues[queue].paused,
                    oldest_due=oldest.get(queue),
                    cap=cap,
                    **{what: n if cap is None else min(n, cap) for what, n in counts.items()},
                )
                for queue, counts in sorted(counted.items())
            ]

    async def tasks(self, *, look: int = 5_000) -> TaskLook:
        with self._db.view():
            rows = self._db.rows.values()
            running = Counter(row.asked.task for row in rows if row.state is State.RUNNING)
            waiting = [row.asked.task for row in rows if row.state is State.WAITING]
        return task_look(Counter(waiting[:look]), running, complete=len(waiting) <= look)

    def _known_queues(self) -> list[str]:
        """Return those that are listed though they have no jobs."""
        rows = self._db.queues.items()
        return [queue for queue, row in rows if row.paused or row.settings != QueueSettings()]

    def _counted_as(self, row: JobRow, now: datetime) -> str:
        if row.state is not State.WAITING:
            return row.state.value
        return "scheduled" if row.blocked or row.due > now else "ready"

    async def rollups(self, since: datetime, until: datetime) -> Sequence[Rollup]:
        with self._db.view():
            return merge(
                tally.to_rollup(*key)
                for tallies in (self._db.tallies, self._db.copied)
                for key, tally in tallies.items()
                if since <= key[0] < until
            )

    async def gauges(
        self, since: datetime, until: datetime, *, source: str | None = None
    ) -> Sequence[GaugeRow]:
        with self._db.view():
            return [
                GaugeRow(minute, name, gauges)
                for (minute, name), gauges in sorted(self._db.gauges.items())
                if since <= minute < until and source in (None, name)
            ]

    # --- switching ----------------------------------------------------------------------------

    async def pause(self, queue: str, *, audit: AuditNote | None = None) -> None:
        with self._db.moment() as now:
            self._db.queues[queue].pause(paused=True)
            self._db.audits.keep(audit, 1, now)

    async def resume(self, queue: str, *, audit: AuditNote | None = None) -> None:
        with self._db.moment() as now:
            self._db.queues[queue].pause(paused=False)
            self._db.audits.keep(audit, 1, now)
        self._db.wake({queue})
