"""Statistics: what ran, how fast, and with which outcome."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal

from windlass._admin.session import AdminSession
from windlass._core.stats.rollup import Rollup, minute_of
from windlass._core.stats.series import Activity, Series, activities, series, step_for
from windlass._core.values.instants import aware, duration
from windlass._storage.protocol.job_list import JobFilter

__all__ = ["StatsAdmin"]

_HOUR = timedelta(hours=1)
MINUTE_RETENTION = timedelta(hours=48)
"""Rollups older than this are kept by the hour: `MaintenanceStore.compact_rollups`."""


class StatsAdmin:
    """``app.admin.stats``: throughput, waits and run times, by task, queue and time."""

    def __init__(self, session: AdminSession) -> None:
        self._session = session

    async def rollups(self, since: datetime, until: datetime) -> Sequence[Rollup]:
        """Read the stored numbers per minute, queue and task; per hour after two days."""
        return await (await self._session.storage()).admin.rollups(since, until)

    async def series(
        self,
        since: datetime,
        until: datetime,
        *,
        step: timedelta | float | None = None,
        queue: str | None = None,
        task: str | None = None,
    ) -> Series:
        """Add up throughput by outcome, waits and run times over time, in points of ``step``.

        Without a step, one is chosen that suits the span. Beyond two days it is an hour at least.
        """
        since, until = aware(since, "since"), aware(until, "until")
        width = step_for(until - since) if step is None else duration(step, "step")
        if since < await (await self._session.storage()).now() - MINUTE_RETENTION:
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
        """Add up outcomes, waits and run times with percentiles, for each task or queue."""
        since, until = aware(since, "since"), aware(until, "until")
        return activities(await self._between(since, until, _HOUR / 60, queue, None), by)

    async def tasks(self, queue: str | None = None) -> Sequence[str]:
        """List the names of tasks that this process has, that ran within a day, that live workers
        have, or that the newest jobs are for.
        """
        storage = await self._session.storage()
        now = await storage.now()
        ran = await storage.admin.rollups(now - timedelta(days=1), now)
        names = {rollup.task for rollup in ran if queue is None or rollup.queue == queue}
        names |= {job.task for job in await storage.admin.find(JobFilter(queue=queue), limit=200)}
        default = self._session.settings.default_queue
        names |= {
            task.name
            for task in self._session.tasks
            if queue is None or queue == (task.settings.queue or default)
        }
        if queue is None:
            names |= {task for worker in await storage.workers.live() for task in worker.tasks}
        return sorted(names)

    async def _between(
        self,
        since: datetime,
        until: datetime,
        width: timedelta,
        queue: str | None,
        task: str | None,
    ) -> Sequence[Rollup]:
        # The first point is whole, or it would look as if less had happened in it.
        start = minute_of(since) if width < _HOUR else minute_of(since).replace(minute=0)
        return [
            rollup
            for rollup in await self.rollups(start, until)
            if (queue is None or rollup.queue == queue) and (task is None or rollup.task == task)
        ]
