"""Stores that are wrong about who works here."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.job.job import ClaimedJob
from windlass._core.job.transition import Transition
from windlass._core.stats.gauges import Readings
from windlass._storage.memory.io.rows import JobRow, Lease
from windlass._storage.memory.jobs.apply import ApplyRules
from windlass._storage.memory.workers import MemoryLeader, MemoryWorkers
from windlass._storage.protocol.jobs import Applied, TransitionAnswer, Verdict
from windlass._storage.protocol.workers import (
    HeartbeatAnswer,
    WorkerRecord,
    WorkerStart,
    WorkerState,
)
from windlass.errors import StorageError
from windlass.testing.conformance import (
    HeartbeatConformance,
    LeaderConformance,
    SteadyLeaseConformance,
    WorkerDeathConformance,
    WorkerLeaveConformance,
)


@fails(HeartbeatConformance.test_a_registered_worker_is_live_and_listed)
class ForgetsTheLease(MemoryWorkers):
    """A worker's own lease is not stored."""

    async def register(self, start: WorkerStart) -> datetime:
        return await super().register(replace(start, lease=timedelta(minutes=5)))


@fails(HeartbeatConformance.test_workers_are_listed_newest_first_with_what_they_run)
class ListsTheOldestFirst(MemoryWorkers):
    """Workers are listed oldest first."""

    async def workers(self) -> Sequence[WorkerRecord]:
        return list(await super().workers())[::-1]


@fails(HeartbeatConformance.test_live_workers_are_named_newest_first_as_they_registered)
class TheBuriedLive(MemoryWorkers):
    """Rows that were buried are among the live ones."""

    async def live(self) -> Sequence[WorkerStart]:
        rows = [*self._db.workers.values()][::-1]
        return [row.start for row in rows if row.state is not WorkerState.GONE]


@fails(HeartbeatConformance.test_registering_again_after_a_lost_answer_is_harmless)
class RegistersOnce(MemoryWorkers):
    """A second register is an error."""

    async def register(self, start: WorkerStart) -> datetime:
        if start.id in self._db.workers:
            raise StorageError(f"{start.id} is registered")
        return await super().register(start)


@fails(HeartbeatConformance.test_registering_does_not_revive_a_dead_worker)
class RegisterRevives(MemoryWorkers):
    """Registering makes a dead row live again."""

    async def register(self, start: WorkerStart) -> datetime:
        self._db.workers.pop(start.id, None)
        return await super().register(start)


@fails(HeartbeatConformance.test_a_heartbeat_renews_the_lease)
class BeatsForNothing(MemoryWorkers):
    """A beat does not renew the lease."""

    async def beat(
        self, worker: str, *, memory: int | None = None, readings: Readings | None = None
    ) -> HeartbeatAnswer:
        row = self._db.workers[worker]
        beat_at, beat_boot = row.beat_at, row.beat_boot
        beat = await super().beat(worker, memory=memory, readings=readings)
        row.beat_at, row.beat_boot = beat_at, beat_boot
        return beat


@fails(HeartbeatConformance.test_a_late_heartbeat_that_finds_its_row_live_renews_it)
class BuriesLateBeats(MemoryWorkers):
    """A beat after the lease finds its row dead."""

    async def beat(
        self, worker: str, *, memory: int | None = None, readings: Readings | None = None
    ) -> HeartbeatAnswer:
        await self.bury([late for late in await self.overdue() if late == worker])
        return await super().beat(worker, memory=memory, readings=readings)


@fails(
    HeartbeatConformance.test_a_heartbeat_returns_the_claims_of_the_worker,
    HeartbeatConformance.test_a_claim_whose_answer_was_lost_is_found_by_the_next_heartbeat,
)
class BeatsTellNothing(MemoryWorkers):
    """A beat does not say what the worker holds."""

    async def beat(
        self, worker: str, *, memory: int | None = None, readings: Readings | None = None
    ) -> HeartbeatAnswer:
        return replace(await super().beat(worker, memory=memory, readings=readings), holding=())


@fails(HeartbeatConformance.test_a_heartbeat_may_come_from_another_event_loop)
class BeatsOnOneLoop(MemoryWorkers):
    """A beat is refused on any loop but the one the worker registered on."""

    loop: asyncio.AbstractEventLoop

    async def register(self, start: WorkerStart) -> datetime:
        self.loop = asyncio.get_running_loop()
        return await super().register(start)

    async def beat(
        self, worker: str, *, memory: int | None = None, readings: Readings | None = None
    ) -> HeartbeatAnswer:
        if asyncio.get_running_loop() is not self.loop:
            raise StorageError("another event loop")
        return await super().beat(worker, memory=memory, readings=readings)


@fails(HeartbeatConformance.test_the_heartbeat_of_a_dead_worker_reports_that_and_does_not_revive_it)
class BeatsRevive(MemoryWorkers):
    """A beat makes a dead row live again."""

    async def beat(
        self, worker: str, *, memory: int | None = None, readings: Readings | None = None
    ) -> HeartbeatAnswer:
        if (row := self._db.workers.get(worker)) is not None:
            row.state, row.ended_at = WorkerState.LIVE, None
        return await super().beat(worker, memory=memory, readings=readings)


@fails(HeartbeatConformance.test_the_heartbeat_of_a_worker_without_a_row_is_not_live)
class BeatsMakeRows(MemoryWorkers):
    """A beat without a row makes one: the forge way of healing, which undoes a burial."""

    async def beat(
        self, worker: str, *, memory: int | None = None, readings: Readings | None = None
    ) -> HeartbeatAnswer:
        start = WorkerStart(
            id=worker,
            host="",
            pid=0,
            version="",
            queues=[],
            slots=1,
            lease=timedelta(seconds=30),
        )
        await self.register(start)
        return await super().beat(worker, memory=memory, readings=readings)


@fails(HeartbeatConformance.test_a_row_keeps_what_its_worker_says_of_itself)
class ForgetsTheTasks(MemoryWorkers):
    """What a worker can run is not stored."""

    async def register(self, start: WorkerStart) -> datetime:
        return await super().register(replace(start, tasks=()))


@fails(HeartbeatConformance.test_a_heartbeat_reports_the_memory_in_use)
class ForgetsTheMemory(MemoryWorkers):
    """A beat that says nothing of memory forgets what was said."""

    async def beat(
        self, worker: str, *, memory: int | None = None, readings: Readings | None = None
    ) -> HeartbeatAnswer:
        beat = await super().beat(worker, memory=memory, readings=readings)
        if beat.live:
            self._db.workers[worker].memory = memory
        return beat


# --- burial -----------------------------------------------------------------------------------


@fails(WorkerDeathConformance.test_a_worker_is_overdue_when_its_lease_has_passed_not_before)
class OverdueAtTheLease(MemoryWorkers):
    """A worker is overdue at the very end of its lease."""

    async def overdue(self) -> Sequence[str]:
        boot = self._db.clock.boot()
        return [
            worker
            for worker, row in self._db.workers.items()
            if row.state is WorkerState.LIVE and boot - row.beat_boot >= row.start.lease
        ]


@fails(WorkerDeathConformance.test_every_worker_is_judged_by_its_own_lease)
class OneLeaseForAll(MemoryWorkers):
    """Everybody is judged by the shortest lease."""

    async def overdue(self) -> Sequence[str]:
        boot = self._db.clock.boot()
        lease = min(row.start.lease for row in self._db.workers.values())
        return [
            worker
            for worker, row in self._db.workers.items()
            if row.state is WorkerState.LIVE and boot - row.beat_boot > lease
        ]


@fails(WorkerDeathConformance.test_asking_who_is_overdue_changes_nothing)
class AskingBuries(MemoryWorkers):
    """Whoever is found overdue is buried at once."""

    async def overdue(self) -> Sequence[str]:
        return await self.bury(await super().overdue())


@fails(
    SteadyLeaseConformance.test_a_stepped_wall_clock_makes_no_worker_overdue,
    SteadyLeaseConformance.test_a_wall_clock_stepped_back_keeps_no_worker_alive,
)
class LeasesOnTheWallClock(MemoryWorkers):
    """Leases are judged by a clock that can be stepped."""

    async def overdue(self) -> Sequence[str]:
        now = self._db.clock.now()
        return [
            worker
            for worker, row in self._db.workers.items()
            if row.state is WorkerState.LIVE and now - row.beat_at > row.start.lease
        ]


@fails(WorkerDeathConformance.test_the_dead_and_the_gone_are_not_overdue)
class TheDeadAreOverdue(MemoryWorkers):
    """Whoever does not beat is overdue, also those who need not."""

    async def overdue(self) -> Sequence[str]:
        boot = self._db.clock.boot()
        rows = self._db.workers.items()
        return [worker for worker, row in rows if boot - row.beat_boot > row.start.lease]


@fails(WorkerDeathConformance.test_declaring_dead_names_the_workers_it_changed)
class BuriesTheDead(MemoryWorkers):
    """A burial names everybody it was asked to bury."""

    async def bury(self, workers: Sequence[str]) -> Sequence[str]:
        await super().bury(workers)
        return workers


@fails(WorkerDeathConformance.test_overdue_workers_are_declared_dead_and_named)
class BuriesNobody(MemoryWorkers):
    """The overdue are never buried."""

    async def bury_overdue(self, workers: Sequence[str]) -> Sequence[str]:
        return []


@fails(WorkerDeathConformance.test_a_heartbeat_after_the_check_keeps_its_worker_alive)
class BuriesWhoeverWasLate(MemoryWorkers):
    """A beat after the look does not help."""

    async def bury_overdue(self, workers: Sequence[str]) -> Sequence[str]:
        return await self.bury(workers)


@fails(WorkerDeathConformance.test_only_the_named_workers_are_declared_dead)
class BuriesEverybodyOverdue(MemoryWorkers):
    """Everybody overdue is buried, whoever was asked for."""

    async def bury_overdue(self, workers: Sequence[str]) -> Sequence[str]:
        return await self.bury(await self.overdue())


@fails(WorkerDeathConformance.test_declaring_a_worker_dead_ends_no_claim)
class BurialReleases(MemoryWorkers):
    """A burial gives the worker's jobs to others at once."""

    async def bury(self, workers: Sequence[str]) -> Sequence[str]:
        buried = await super().bury(workers)
        for worker in buried:
            await self.leave(worker, [])
        return buried


@fails(WorkerDeathConformance.test_the_reaper_does_not_resurrect_a_job_that_was_finished)
class TheReaperIsAlwaysRight(ApplyRules):
    """Whoever ends somebody else's claim is not fenced."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        row = self._db.by_id.get(transition.claim.job)
        answer = super().end(transition, now)
        if row and answer.verdict is Verdict.REFUSED and transition.by != row.worker:
            self._db.stand(row, now, now)
            return TransitionAnswer(Verdict.APPLIED, transition.verb)
        return answer


@fails(
    WorkerDeathConformance.test_orphans_are_the_running_jobs_of_workers_that_are_not_live,
)
class EverybodyIsAnOrphan(MemoryWorkers):
    """Jobs of live workers are orphans, too."""

    async def orphans(self, limit: int) -> Sequence[ClaimedJob]:
        return [row.to_claimed() for row in self._db.running.values()][:limit]


@fails(WorkerDeathConformance.test_orphans_of_many_workers_come_in_chunks_worker_by_worker)
class AsManyOrphansOfEach(MemoryWorkers):
    """The limit holds for each worker and not for all together."""

    async def orphans(self, limit: int) -> Sequence[ClaimedJob]:
        orphans = await super().orphans(1000)
        mine = {
            job.worker: [other for other in orphans if other.worker == job.worker][:limit]
            for job in orphans
        }
        return [job for jobs in mine.values() for job in jobs]


@fails(WorkerDeathConformance.test_orphans_come_in_chunks_oldest_claim_first)
class OrphansByInsertion(MemoryWorkers):
    """Orphans come in the order of insertion."""

    async def orphans(self, limit: int) -> Sequence[ClaimedJob]:
        orphans = await super().orphans(1000)
        return sorted(orphans, key=lambda job: job.claim.seq)[:limit]


@fails(WorkerDeathConformance.test_a_reaped_job_is_no_orphan_any_more)
class OrphansForEver(MemoryWorkers):
    """A job whose worker died is an orphan also when it waits again."""

    async def orphans(self, limit: int) -> Sequence[ClaimedJob]:
        rows = self._db.rows.values()
        return [row.to_claimed() for row in rows if row.worker and not self._is_live(row.worker)]


@fails(WorkerDeathConformance.test_the_orphan_of_a_dead_worker_runs_elsewhere)
class NoOrphans(MemoryWorkers):
    """Jobs of dead workers are never found."""

    async def orphans(self, limit: int) -> Sequence[ClaimedJob]:
        return []


# --- leaving ----------------------------------------------------------------------------------


@fails(
    WorkerLeaveConformance.test_leaving_ends_the_row_and_gives_every_claim_back,
    WorkerLeaveConformance.test_released_jobs_are_ready_for_other_workers,
)
class ForgetsForgottenClaims(MemoryWorkers):
    """Who leaves gives back only what it names."""

    async def leave(self, worker: str, releases: Sequence[Transition]) -> Applied:
        with self._db.moment() as now:
            answers = [self._endings.end(release, now) for release in releases]
            self._end(worker, WorkerState.GONE, now)
        return Applied(now, answers)


@fails(
    WorkerLeaveConformance.test_leaving_again_after_a_lost_answer_is_harmless,
    WorkerLeaveConformance.test_a_dead_worker_that_leaves_gives_back_its_claims_and_stays_dead,
)
class LeavesAgain(MemoryWorkers):
    """A repeated goodbye ends the row again."""

    def _end(self, worker: str, state: WorkerState, now: datetime) -> bool:
        self._db.workers[worker].state = WorkerState.LIVE
        return super()._end(worker, state, now)


@fails(WorkerLeaveConformance.test_a_release_that_is_not_held_any_more_is_refused)
class ReleasesWhatOthersHold(MemoryWorkers):
    """A leaving worker's releases are not fenced."""

    async def leave(self, worker: str, releases: Sequence[Transition]) -> Applied:
        rows: list[JobRow] = [self._db.by_id[release.claim.job] for release in releases]
        current = [
            replace(release, claim=row.claim) for release, row in zip(releases, rows, strict=True)
        ]
        return await super().leave(worker, current)


# --- leading ----------------------------------------------------------------------------------


@fails(LeaderConformance.test_one_worker_leads_and_may_renew)
class EverybodyLeads(MemoryLeader):
    """Everybody who asks leads."""

    async def lead(self, role: str, worker: str, lease: timedelta) -> bool:
        self._db.leases.clear()
        return await super().lead(role, worker, lease)


@fails(LeaderConformance.test_a_renewed_lease_counts_from_the_renewal)
class LeadsOnceOnly(MemoryLeader):
    """A lease is not renewed."""

    async def lead(self, role: str, worker: str, lease: timedelta) -> bool:
        before = self._db.leases.get(role)
        leads = await super().lead(role, worker, lease)
        if before is not None and before.worker == worker:
            self._db.leases[role] = before
        return leads


@fails(LeaderConformance.test_a_lease_that_ran_out_is_taken_by_the_next)
class LeadsForEver(MemoryLeader):
    """A lease never runs out."""

    async def lead(self, role: str, worker: str, lease: timedelta) -> bool:
        return await super().lead(role, worker, lease * 1000)


@fails(LeaderConformance.test_roles_are_led_apart)
class OneLeaderForAll(MemoryLeader):
    """All roles are one."""

    async def lead(self, role: str, worker: str, lease: timedelta) -> bool:
        return await super().lead("all", worker, lease)


@fails(LeaderConformance.test_a_worker_that_resigns_leads_no_role)
class ResignsFromOne(MemoryLeader):
    """Who resigns gives up one role."""

    async def resign(self, worker: str) -> None:
        leases: dict[str, Lease] = self._db.leases
        mine = [role for role, lease in leases.items() if lease.worker == worker]
        del leases[mine[0]]
