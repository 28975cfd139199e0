"""Check an installation for problems, and say how to fix each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta

from windlass._admin.doctor import work_checks
from windlass._admin.doctor.finding import Finding, Level, ok
from windlass._admin.doctor.flow_checks import check_flows
from windlass._admin.doctor.load_checks import LOAD_SPAN, check_load
from windlass._admin.doctor.storage_checks import check_health
from windlass._admin.session import AdminSession
from windlass._core.job.job import JobRecord
from windlass._core.job.state import State
from windlass._core.stats.gauges import STORAGE
from windlass._storage.open import StorageOpener
from windlass._storage.protocol.admin import QueueCounts
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import SYSTEM_CLOCK
from windlass._tasks.task import TaskRegistry

__all__ = ["DoctorAdmin", "Finding", "Level"]

_CAP = 10_000
_MINUTE = timedelta(minutes=1)
_SAMPLE = 500
"""Waiting jobs that are read of each queue."""


class DoctorAdmin:
    """``app.admin.doctor``: checks of the whole installation."""

    def __init__(self, session: AdminSession) -> None:
        self._session = session

    async def check(self, *, tasks: TaskRegistry | None = None) -> Sequence[Finding]:
        """Check the storage, the workers and the waiting jobs. Every finding says what to do.

        The arguments of waiting jobs are tried against the functions of ``tasks``, by default the
        app's. A check reads a few hundred jobs of each queue at most.
        """
        storage = await self._session.storage()
        now = await storage.now()
        crew = work_checks.LiveWorkers.of(await storage.workers.workers(), now)
        counts = await storage.admin.counts(cap=_CAP)
        sample = await _sample(storage, counts)
        found = [ok("storage", f"{storage.describe()} answers.")]
        found += check_health(await storage.health())
        if storage.shared:  # else there is one process, and the clock may be a test's
            found += work_checks.check_clocks(await storage.now(), SYSTEM_CLOCK.now(), crew)
            async with self._second_connection() as other:
                found.append(await work_checks.check_wakeups(storage, other))
        found += work_checks.check_workers(crew)
        gauges = await storage.admin.gauges(now - LOAD_SPAN, now + _MINUTE, source=STORAGE)
        found += check_load(gauges, crew)
        found += work_checks.check_queues(counts, crew)
        found += work_checks.check_schedules(await storage.schedules.paused(), now)
        known = self._session.tasks if tasks is None else tasks
        found += await check_flows(storage, crew, known.names_and_aliases, now)
        found += work_checks.check_tasks(sample, crew, known.names_and_aliases)
        found += work_checks.check_argument_mismatches(sample)
        if len(known):
            found += work_checks.check_payloads(sample, known)
        return found

    @asynccontextmanager
    async def _second_connection(self) -> AsyncIterator[Storage]:
        """Open the storage again: it hears its own wake-ups even if the server sends none."""
        storage = await StorageOpener(self._session.settings).open()
        try:
            yield storage
        finally:
            await storage.close()


async def _sample(storage: Storage, counts: Sequence[QueueCounts]) -> list[JobRecord]:
    """Read the newest waiting jobs of every queue that has any."""
    found: list[JobRecord] = []
    for one in counts:
        if one.ready or one.scheduled:
            wanted = JobFilter(states=[State.WAITING], queue=one.queue)
            found += await storage.admin.find(wanted, limit=_SAMPLE)
    return found
