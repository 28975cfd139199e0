"""Numbers: how many are where, how fast things go, what fails."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType

from windlass._admin.session import AdminSession
from windlass._core.stats.rollup import Rollup, minute_of
from windlass._core.stats.series import Activity, Series, activities, series, step_for
from windlass._core.values.instants import aware, duration
from windlass._core.values.redaction import redacted_text
from windlass._storage.protocol.admin import ErrorLook, QueueCounts
from windlass._storage.protocol.job_list import JobFilter

__all__ = ["StatsAdmin"]

_HOUR = timedelta(hours=1)
MINUTE_RETENTION = timedelta(hours=48)
"""Rollups older than this are kept by the hour: `MaintenanceStore.compact_rollups`."""
_CAPS = (100, 200, 500, 1_000, 2_000, 5_000, 10_000)
"""In steps: a number that is cut off must not move with every look."""
_COUNTED = 150_000
"""Jobs that one look counts, of all queues and states together: a tenth of a second."""


class StatsAdmin(AdminSession):
    """The part of ``app.admin`` that counts and times."""

    async def counts(self, *, cap: int | UnsetType | None = UNSET) -> Sequence[QueueCounts]:
        """How many jobs of each queue are where. No number is counted further than ``cap``; None
        counts them all. Left out, it is as large as is quick: up to 10,000, less where many queues
        have that many jobs. What it was stands in the answer.
        """
        store = (await self._storage()).admin
        if not isinstance(cap, UnsetType):
            return await store.counts(cap=cap)
        few = await store.counts(cap=_CAPS[0])
        full = sum(number >= _CAPS[0] for one in few for number in _numbers(one))
        if not full:
            return few
        quick = max((one for one in _CAPS if one * full <= _COUNTED), default=_CAPS[0])
        return few if quick == _CAPS[0] else await store.counts(cap=quick)

    async def lags(self) -> Mapping[str, timedelta]:
        """Of every queue with something ready: how long the oldest of it has been due."""
        storage = await self._storage()
        now = await storage.now()
        return {
            counts.queue: max(now - counts.oldest_due, timedelta(0))
            for counts in await storage.admin.counts(cap=1)
            if counts.oldest_due is not None
        }

    async def rollups(self, since: datetime, until: datetime) -> Sequence[Rollup]:
        """What happened per minute, queue and task; per hour, after two days."""
        return await (await self._storage()).admin.rollups(since, until)

    async def series(
        self,
        since: datetime,
        until: datetime,
        *,
        step: timedelta | float | None = None,
        queue: str | None = None,
        task: str | None = None,
    ) -> Series:
        """What happened over time, in points of ``step``: throughput by outcome, waits and runs.

        Without a step, one that suits the span. Beyond two days it is an hour at least.
        """
        since, until = aware(since, "since"), aware(until, "until")
        width = step_for(until - since) if step is None else duration(step, "step")
        if since < await (await self._storage()).now() - MINUTE_RETENTION:
            width = max(width, _HOUR)
        found = await self._between(since, until, width, queue, task)
        return series(found, since, until, width)

    async def activity(
        self,
        since: datetime,
        until: datetime,
        *,
        by: Literal["queue", "task"] = "task",
        queue: str | None = None,
    ) -> Sequence[Activity]:
        """What happened to each task, or queue: outcomes, waits and runs with percentiles."""
        since, until = aware(since, "since"), aware(until, "until")
        return activities(await self._between(since, until, _HOUR / 60, queue, None), by)

    async def _between(
        self,
        since: datetime,
        until: datetime,
        width: timedelta,
        queue: str | None,
        task: str | None,
    ) -> list[Rollup]:
        # The first point is whole, or it would look as if less had happened in it.
        start = minute_of(since) if width < _HOUR else minute_of(since).replace(minute=0)
        return [
            rollup
            for rollup in await self.rollups(start, until)
            if (queue is None or rollup.queue == queue) and (task is None or rollup.task == task)
        ]

    async def errors(
        self,
        *,
        queue: str | None = None,
        task: str | None = None,
        since: datetime | None = None,
    ) -> ErrorLook:
        """Failed jobs by exception and place, the most recent first. The jobs of a group:
        ``JobFilter(states=[State.FAILED], error=group.kind, frame=group.frame)``.
        """
        store = (await self._storage()).admin
        look = await store.errors(queue=queue, task=task, since=since)
        groups = [
            msgspec.structs.replace(group, text=redacted_text(group.text)) for group in look.groups
        ]
        return msgspec.structs.replace(look, groups=groups)

    async def tasks(self, queue: str | None = None) -> Sequence[str]:
        """Names of tasks that ran within a day, that live workers know, or that the newest jobs
        are for; by name.
        """
        storage = await self._storage()
        now = await storage.now()
        ran = await storage.admin.rollups(now - timedelta(days=1), now)
        names = {rollup.task for rollup in ran if queue is None or rollup.queue == queue}
        names |= {job.task for job in await storage.admin.find(JobFilter(queue=queue), limit=200)}
        if queue is None:
            names |= {task for worker in await storage.workers.live() for task in worker.tasks}
        return sorted(names)


def _numbers(counts: QueueCounts) -> tuple[int, ...]:
    waiting = (counts.ready, counts.scheduled, counts.retrying)
    ended = (counts.succeeded, counts.failed, counts.cancelled, counts.discarded)
    return (*waiting, counts.running, *ended)
