"""Stores that are wrong about what workers are asked to do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.stats.gauges import Readings
from windlass._storage.memory.workers import MemoryWorkers
from windlass._storage.protocol.actions import AuditNote
from windlass._storage.protocol.workers import Duty, HeartbeatAnswer, WorkerStart
from windlass.testing.conformance import DutyConformance


@fails(DutyConformance.test_a_new_worker_is_asked_to_work)
class NewcomersAreQuiet(MemoryWorkers):
    """A worker must be told to begin."""

    async def register(self, start: WorkerStart) -> datetime:
        at = await super().register(start)
        await self.assign([start.id], Duty.QUIET)
        return at


@fails(DutyConformance.test_a_heartbeat_returns_the_duty_of_the_worker)
class BeatsTellNothing(MemoryWorkers):
    """A beat does not carry the duty."""

    async def beat(
        self, worker: str, *, memory: int | None = None, readings: Readings | None = None
    ) -> HeartbeatAnswer:
        return replace(await super().beat(worker, memory=memory, readings=readings), duty=Duty.WORK)


@fails(DutyConformance.test_a_duty_outlives_heartbeats_and_another_registration)
class HeardIsForgotten(MemoryWorkers):
    """A duty is told once."""

    async def beat(
        self, worker: str, *, memory: int | None = None, readings: Readings | None = None
    ) -> HeartbeatAnswer:
        beat = await super().beat(worker, memory=memory, readings=readings)
        self._db.workers[worker].duty = Duty.WORK
        return beat


@fails(
    DutyConformance.test_a_stop_is_never_taken_back,
    DutyConformance.test_of_concurrent_duties_a_stop_wins,
)
class StopsAreTakenBack(MemoryWorkers):
    """The last order holds, whatever was before."""

    async def assign(
        self, workers: Sequence[str], duty: Duty, *, audit: AuditNote | None = None
    ) -> Sequence[str]:
        for worker in workers:
            self._db.workers[worker].duty = Duty.WORK
        return await super().assign(workers, duty, audit=audit)


@fails(DutyConformance.test_only_live_workers_get_a_duty_and_are_named_once_in_order)
class AsksTheDead(MemoryWorkers):
    """Everybody who was asked is named."""

    async def assign(
        self, workers: Sequence[str], duty: Duty, *, audit: AuditNote | None = None
    ) -> Sequence[str]:
        await super().assign(workers, duty, audit=audit)
        return workers


@fails(DutyConformance.test_asking_again_after_a_lost_answer_is_answered_the_same)
class NamesTheChangedOnly(MemoryWorkers):
    """A repeat finds nothing to change, and says so."""

    async def assign(
        self, workers: Sequence[str], duty: Duty, *, audit: AuditNote | None = None
    ) -> Sequence[str]:
        rows = self._db.workers
        changed = [one for one in workers if one in rows and rows[one].duty is not duty]
        named = await super().assign(workers, duty, audit=audit)
        return [one for one in named if one in changed]


@fails(DutyConformance.test_the_record_counts_the_workers_whose_duty_changed)
class CountsWhoeverWasAsked(MemoryWorkers):
    """The record counts those that had the duty before, too."""

    async def assign(
        self, workers: Sequence[str], duty: Duty, *, audit: AuditNote | None = None
    ) -> Sequence[str]:
        with self._db.moment() as now:
            self._db.audits.keep(audit, len(workers), now)
        return await super().assign(workers, duty)


@fails(DutyConformance.test_a_duty_without_effect_leaves_no_record)
class RecordsEverything(MemoryWorkers):
    """What changed nothing is on record."""

    async def assign(
        self, workers: Sequence[str], duty: Duty, *, audit: AuditNote | None = None
    ) -> Sequence[str]:
        named = await super().assign(workers, duty, audit=audit)
        with self._db.moment() as now:
            self._db.audits.keep(audit, 0, now)
        return named


@fails(DutyConformance.test_a_duty_ends_no_claim)
class AStopIsAFarewell(MemoryWorkers):
    """Whoever is told to stop loses what it holds."""

    async def assign(
        self, workers: Sequence[str], duty: Duty, *, audit: AuditNote | None = None
    ) -> Sequence[str]:
        named = await super().assign(workers, duty, audit=audit)
        for worker in named:
            await self.leave(worker, [])
        return named
