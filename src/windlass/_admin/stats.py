"""Statistics: what ran, how fast, with which outcome, and what hosts and storage were used."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Literal

from windlass._admin.session import AdminSession
from windlass._core.stats.gauges import (
    STORAGE,
    GaugeRow,
    GaugeSeries,
    by_source,
    gauge_series,
)
from windlass._core.stats.rollup import Rollup, minute_of
from windlass._core.stats.series import (
    Activity,
    Series,
    activities,
    check_steps,
    series,
    step_for,
    step_start,
)
from windlass._core.values.instants import aware, duration
from windlass._storage.protocol.lists.job_list import JobFilter

__all__ = ["StatsAdmin"]

_HOUR = timedelta(hours=1)
MINUTE_RETENTION = timedelta(hours=48)
"""Rollups and gauges older than this are kept by the hour: `MaintenanceStore.compact_rollups`."""


class StatsAdmin:
    """``app.admin.stats``: throughput, waits and run times by task, queue and time.

    Also how busy the hosts and how large the storage were.
    """

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
        width = await self._width(since, until, step)
        found = await self._between(since, until, width, queue, task)
        return series(found, since, until, width)

    async def hosts(
        self,
        since: datetime,
        until: datetime,
        *,
        step: timedelta | float | None = None,
        host: str | None = None,
    ) -> Sequence[GaugeSeries]:
        """Read the CPU, memory and disk use of each host over time, by name. Workers report it once
        a minute. ``host``: only this one.

        ``cpu`` is a share of all processors, the others are bytes: ``memory_used``,
        ``memory_total``, ``disk_used`` and ``disk_total``.
        """
        rows, width = await self._gauges(since, until, step, host)
        hosts = {name: found for name, found in by_source(rows).items() if name != STORAGE}
        return [gauge_series(name, found, since, until, width) for name, found in hosts.items()]

    async def storage(
        self, since: datetime, until: datetime, *, step: timedelta | float | None = None
    ) -> GaugeSeries:
        """Read the size of the storage, its jobs by state and its answer times over time. One
        worker, the leader, reports them once a minute.

        ``size``, ``wal`` and ``free_disk`` are bytes, ``read_p95`` and ``write_p95`` seconds.
        ``jobs_ready`` and the other states count up to 10,000 jobs of each queue.
        """
        rows, width = await self._gauges(since, until, step, STORAGE)
        return gauge_series(STORAGE, rows, since, until, width)

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

    async def _width(
        self, since: datetime, until: datetime, step: timedelta | float | None
    ) -> timedelta:
        """Return the width of a point: minutes become hours after two days."""
        width = step_for(until - since) if step is None else duration(step, "step")
        old = since < await (await self._session.storage()).now() - MINUTE_RETENTION
        return max(width, _HOUR) if old else width

    async def _gauges(
        self,
        since: datetime,
        until: datetime,
        step: timedelta | float | None,
        source: str | None,
    ) -> tuple[Sequence[GaugeRow], timedelta]:
        since, until = aware(since, "since"), aware(until, "until")
        width = await self._width(since, until, step)
        check_steps(since, until, width)
        store = (await self._session.storage()).admin
        return await store.gauges(step_start(since, width), until, source=source), width

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
