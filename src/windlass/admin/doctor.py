"""Look for what hurts in production, and say how to mend each."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from windlass.admin import doctor_work
from windlass.admin.desk import Desk
from windlass.admin.doctor_findings import Finding, Level, ok
from windlass.admin.doctor_storage import judged
from windlass.core.job import Job
from windlass.core.state import State
from windlass.seams import SYSTEM_CLOCK
from windlass.storage.looks import JobFilter
from windlass.storage.open import Opener
from windlass.storage.protocol import QueueCounts, Storage
from windlass.task import TaskRegistry

__all__ = ["DoctorDesk", "Finding", "Level"]

_CAP = 10_000
_SAMPLE = 500
"""Waiting jobs of each queue that are looked at."""


class DoctorDesk(Desk):
    """The part of ``app.admin`` that looks after the whole."""

    registry: TaskRegistry = TaskRegistry()
    """Given by the app."""

    async def doctor(self, *, tasks: TaskRegistry | None = None) -> Sequence[Finding]:
        """Check the storage, the workers and what waits; every finding says what to do.

        Waiting jobs are tried against the functions of ``tasks``, which are the app's unless you
        say otherwise. Looks at no more than some hundred jobs of each queue.
        """
        storage = await self._storage()
        now = await storage.now()
        crew = doctor_work.Crew.of(await storage.workers.workers(), now)
        counts = await storage.admin.counts(cap=_CAP)
        sample = await _sample(storage, counts)
        found = [ok("storage", f"{storage.describe()} answers.")]
        found += judged(await storage.health())
        if storage.shared:  # else there is nobody elsewhere, and the clock may be a test's
            found += doctor_work.clocks(await storage.now(), SYSTEM_CLOCK.now(), crew)
            async with self._another() as other:
                found.append(await doctor_work.notified(storage, other))
        found += doctor_work.workers(crew)
        found += doctor_work.queues(counts, crew)
        known = self.registry if tasks is None else tasks
        found += doctor_work.tasks(sample, crew, known.names)
        found += doctor_work.misfits(sample)
        if len(known):
            found += doctor_work.payloads(sample, known)
        return found

    @asynccontextmanager
    async def _another(self) -> AsyncIterator[Storage]:
        """A second way to the same place: a storage hears its own words whatever is broken."""
        storage = await Opener(self._settings).open()
        try:
            yield storage
        finally:
            await storage.close()


async def _sample(storage: Storage, counts: Sequence[QueueCounts]) -> list[Job]:
    """Some waiting jobs of every queue that has any, the newest."""
    found: list[Job] = []
    for one in counts:
        if one.ready or one.scheduled:
            wanted = JobFilter(states=[State.WAITING], queue=one.queue)
            found += await storage.admin.find(wanted, limit=_SAMPLE)
    return found
