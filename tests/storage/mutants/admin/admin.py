"""Stores that answer or obey people wrongly, and that keep or lose too much."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.job.job import JobId, JobRecord
from windlass._core.job.state import State
from windlass._storage.memory.admin.actions import MemoryActions
from windlass._storage.memory.admin.admin import MemoryAdmin
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.memory.jobs.claim import ClaimRules
from windlass._storage.memory.maintenance import MemoryMaintenance
from windlass._storage.protocol.actions import ActionResult, AuditNote, JobAction
from windlass._storage.protocol.admin import QueueCounts
from windlass._storage.protocol.jobs import Want
from windlass._storage.protocol.lists.job_list import JobFilter, ListOrder, Page
from windlass.testing.conformance import (
    JobReadConformance,
    MaintenanceConformance,
    OperatorConformance,
    QueueConformance,
)

# --- reading ----------------------------------------------------------------------------------


@fails(JobReadConformance.test_jobs_are_read_in_the_order_asked_for)
class ReadsWhatItFinds(MemoryAdmin):
    """Ids that are not stored are left out."""

    async def get(self, ids: Sequence[JobId]) -> Sequence[JobRecord | None]:
        return [job for job in await super().get(ids) if job is not None]


@fails(JobReadConformance.test_a_job_tells_how_long_it_holds_its_key)
class TellsNoWindow(MemoryAdmin):
    """Every key seems to be held until its job has ended."""

    def _shown(self, row: JobRow, now: datetime) -> JobRecord:
        return replace(super()._shown(row, now), key_window=None, key_period=None)


@fails(JobReadConformance.test_jobs_are_found_newest_first)
class FindsTheOldestFirst(MemoryAdmin):
    """A page comes oldest first."""

    async def find(self, wanted: JobFilter, *, limit: int) -> Page:
        page = await super().find(wanted, limit=limit)
        return Page(page[::-1], page.next, page.reached)


class _Filters(MemoryAdmin):
    """Another way to choose jobs."""

    def asked(self, wanted: JobFilter) -> JobFilter:
        raise AssertionError("say which")

    def _is_candidate(self, row: JobRow, wanted: JobFilter, now: datetime) -> bool:
        return super()._is_candidate(row, self.asked(wanted), now)

    def _matches(self, row: JobRow, wanted: JobFilter) -> bool:
        return super()._matches(row, self.asked(wanted))


@fails(JobReadConformance.test_pages_hold_every_job_once_and_end)
class PagesOverlap(MemoryAdmin):
    """A page begins with the last job of the page before."""

    def _in_order(self, wanted: JobFilter, order: ListOrder, now: datetime) -> Iterator[JobRow]:
        earlier = replace(wanted, before=wanted.before and int(wanted.before) + 1)
        return super()._in_order(earlier, order, now)


@fails(JobReadConformance.test_jobs_are_found_by_state)
class FindsOneState(_Filters):
    """Only the first of several states is looked for."""

    def asked(self, wanted: JobFilter) -> JobFilter:
        return replace(wanted, states=wanted.states and wanted.states[:1])


@fails(JobReadConformance.test_jobs_are_found_by_queue_and_task)
class IgnoresTheTask(_Filters):
    """The task does not narrow."""

    def asked(self, wanted: JobFilter) -> JobFilter:
        return replace(wanted, task=None)


@fails(JobReadConformance.test_an_empty_choice_of_states_finds_nothing)
class TakesNoStatesForAll(_Filters):
    """No states at all mean every state."""

    def asked(self, wanted: JobFilter) -> JobFilter:
        return replace(wanted, states=wanted.states or None)


@fails(JobReadConformance.test_counts_say_how_many_jobs_are_where)
class CountsDiscardedAsFailed(MemoryAdmin):
    """Discarded jobs count as failed."""

    def _counted_as(self, row: JobRow, now: datetime) -> str:
        return "failed" if row.state is State.DISCARDED else super()._counted_as(row, now)


@fails(JobReadConformance.test_a_job_counts_as_ready_from_the_instant_it_is_due)
class CountsWhatWasPromoted(MemoryAdmin):
    """A job that is due counts as scheduled until somebody promotes it."""

    def _counted_as(self, row: JobRow, now: datetime) -> str:
        counted = super()._counted_as(row, now)
        return "scheduled" if counted == "ready" and row.due > row.created_at else counted


# --- operations -------------------------------------------------------------------------------


@fails(OperatorConformance.test_a_requeued_job_waits_again_under_its_own_id)
class RequeueForgetsAttempts(MemoryActions):
    """A requeued job starts at attempt zero."""

    def requeue_one(self, row: JobRow, now: datetime) -> ActionResult:
        row.attempt = 0
        return super().requeue_one(row, now)


@fails(OperatorConformance.test_cancelled_and_discarded_jobs_may_be_requeued)
class RequeuesFailedJobsOnly(MemoryActions):
    """Only failed jobs may be requeued."""

    def requeue_one(self, row: JobRow, now: datetime) -> ActionResult:
        return (
            super().requeue_one(row, now) if row.state is State.FAILED else ActionResult.WRONG_STATE
        )


class _KeepsAtRequeue(MemoryActions):
    """Something of the job's past stays when it is requeued."""

    def keep(self, row: JobRow, past: JobRow) -> None:
        raise AssertionError("say what")

    def requeue_one(self, row: JobRow, now: datetime) -> ActionResult:
        past = replace(row)
        answer = super().requeue_one(row, now)
        self.keep(row, past)
        return answer


@fails(OperatorConformance.test_a_requeue_forgets_expiry_suspicion_and_cancel_request)
class RequeueKeepsTheExpiry(_KeepsAtRequeue):
    """A requeued job expires when the first one would have."""

    def keep(self, row: JobRow, past: JobRow) -> None:
        row.expires_at = past.expires_at


@fails(OperatorConformance.test_a_quarantined_job_is_requeued_among_the_others)
class RequeueKeepsLosses(_KeepsAtRequeue):
    """A requeued job is as suspect as it was."""

    def keep(self, row: JobRow, past: JobRow) -> None:
        row.lost = past.lost


@fails(OperatorConformance.test_of_two_concurrent_requeues_exactly_one_succeeds)
class LooksThenRequeues(MemoryActions):
    """Somebody else may requeue a job between the look at its state and the write."""

    async def order(
        self, order: JobAction, ids: Sequence[JobId], note: AuditNote
    ) -> Sequence[ActionResult]:
        failed = [job for job in ids if self._db.by_id[job].state is State.FAILED]
        await asyncio.sleep(0)
        for job in failed:
            self._db.by_id[job].state = State.FAILED
        return await super().order(order, ids, note)


@fails(OperatorConformance.test_a_job_that_will_be_retried_cannot_be_requeued)
class RequeuesAnything(MemoryActions):
    """Any job may be requeued."""

    def requeue_one(self, row: JobRow, now: datetime) -> ActionResult:
        row.state = State.FAILED
        return super().requeue_one(row, now)


@fails(OperatorConformance.test_a_requeued_job_takes_its_key_again)
class RequeuesWithoutKeys(MemoryActions):
    """A requeued job does not hold its key."""

    def requeue_one(self, row: JobRow, now: datetime) -> ActionResult:
        answer = super().requeue_one(row, now)
        self._db.free_key(row)
        return answer


@fails(OperatorConformance.test_a_requeue_against_a_held_key_is_a_conflict_and_changes_nothing)
class RequeuesIntoConflicts(MemoryActions):
    """A requeue that conflicts is refused, and the job waits all the same."""

    def requeue_one(self, row: JobRow, now: datetime) -> ActionResult:
        answer = super().requeue_one(row, now)
        if answer is ActionResult.CONFLICT:
            self._db.stand(row, now, now)
        return answer


@fails(OperatorConformance.test_a_key_held_until_started_stays_free_after_a_requeue)
class RequeueRetakesStartedKeys(MemoryActions):
    """A key held until started is taken again."""

    def requeue_one(self, row: JobRow, now: datetime) -> ActionResult:
        answer = super().requeue_one(row, now)
        self._db.take_key(row, now)
        return answer


@fails(OperatorConformance.test_a_failed_job_is_discarded_with_a_reason)
class DiscardsInOurWords(MemoryActions):
    """Why a job was discarded is not what was said."""

    def _discard(self, row: JobRow, reason: str, now: datetime) -> ActionResult:
        return super()._discard(row, "discarded", now)


@fails(OperatorConformance.test_only_failed_jobs_can_be_discarded)
class DiscardsAnything(MemoryActions):
    """Any job may be discarded."""

    def _discard(self, row: JobRow, reason: str, now: datetime) -> ActionResult:
        row.state = State.FAILED
        return super()._discard(row, reason, now)


@fails(OperatorConformance.test_retention_of_a_discarded_job_counts_from_the_discard)
class DiscardKeepsTheFinish(MemoryActions):
    """A discarded job ended when it failed."""

    def _discard(self, row: JobRow, reason: str, now: datetime) -> ActionResult:
        finished = row.finished_at
        answer = super()._discard(row, reason, now)
        row.finished_at = finished
        return answer


@fails(OperatorConformance.test_a_waiting_job_can_be_made_due_now)
class RunsNothingNow(MemoryActions):
    """A job that is made due keeps its due time."""

    def _run_now(self, row: JobRow, now: datetime) -> ActionResult:
        return ActionResult.DONE if row.state is State.WAITING else ActionResult.WRONG_STATE


@fails(OperatorConformance.test_a_job_that_is_due_keeps_its_place)
class RunNowMovesToTheEnd(MemoryActions):
    """A job that was due already goes to the end of the line."""

    def _run_now(self, row: JobRow, now: datetime) -> ActionResult:
        if row.state is not State.WAITING:
            return ActionResult.WRONG_STATE
        self._db.stand(row, now, now)
        return ActionResult.DONE


@fails(OperatorConformance.test_only_waiting_jobs_can_be_made_due)
class RunsEverythingNow(MemoryActions):
    """A job that has ended can be made due."""

    def _run_now(self, row: JobRow, now: datetime) -> ActionResult:
        self._db.stand(row, now, now)
        return super()._run_now(row, now)


# --- queues -----------------------------------------------------------------------------------


@fails(
    QueueConformance.test_only_the_paused_queue_gives_no_jobs,
    QueueConformance.test_a_paused_queue_promises_nothing,
)
class IgnoresPauses(ClaimRules):
    """A paused queue goes on."""

    def open_queues(self, wants: Sequence[Want]) -> list[str]:
        return [want.queue for want in wants]

    def room(self, queue: str, now: datetime) -> int:
        return len(self._db.rows)


@fails(QueueConformance.test_a_resumed_queue_gives_again)
class PausesForEver(MemoryAdmin):
    """A paused queue cannot be resumed."""

    async def resume(self, queue: str, *, audit: AuditNote | None = None) -> None:
        pass


@fails(QueueConformance.test_pausing_touches_no_running_job)
class PausingReleases(MemoryAdmin):
    """A pause takes running jobs away from their workers."""

    async def pause(self, queue: str, *, audit: AuditNote | None = None) -> None:
        await super().pause(queue)
        now = self._db.clock.now()
        for row in list(self._db.running.values()):
            del self._db.running[row.seq]
            self._db.stand(row, now, now)


@fails(QueueConformance.test_a_paused_queue_accepts_jobs_and_shows_that_it_is_paused)
class HidesPauses(MemoryAdmin):
    """Counts do not say that a queue is paused."""

    async def counts(self, *, cap: int | None = None) -> Sequence[QueueCounts]:
        return [replace(queue, paused=False) for queue in await super().counts(cap=cap)]


# --- chores -----------------------------------------------------------------------------------


@fails(MaintenanceConformance.test_promotion_continues_in_chunks_until_nothing_is_due)
class PromotesEverything(MemoryMaintenance):
    """One promotion takes all that is due."""

    async def promote(self, limit: int) -> int:
        return await super().promote(1000)


@fails(MaintenanceConformance.test_promotion_changes_neither_order_nor_due_time)
class PromotionIsDueNow(MemoryDatabase):
    """A promoted job is due when it was promoted."""

    def promote(
        self,
        queue: str,
        now: datetime,
        limit: int | None = None,
        *,
        missed_until: datetime | None = None,
    ) -> int:
        due = [row for place in self.later[queue] if (row := self._standing(place))]
        for row in due:
            row.due = max(now, row.due)
        return super().promote(queue, now, limit, missed_until=missed_until)


@fails(MaintenanceConformance.test_a_promoted_job_is_claimed_once)
class PromotesTwice(MemoryMaintenance):
    """A promotion makes running jobs ready again."""

    async def promote(self, limit: int) -> int:
        now = self._db.clock.now()
        for row in self._db.running.values():
            self._db.stand(row, now, now)
        return await super().promote(limit)


@fails(MaintenanceConformance.test_the_next_due_time_is_known)
class LooksIntoOneQueue(MemoryMaintenance):
    """The next due time is that of the first queue."""

    async def next_due(self, queues: Sequence[str] | None = None) -> datetime | None:
        return next((self._db.next_due(queue) for queue in self._db.later), None)


@fails(MaintenanceConformance.test_the_next_due_time_of_some_queues_is_known)
class LooksIntoAllQueues(MemoryMaintenance):
    """The next due time is that of any queue, whichever were named."""

    async def next_due(self, queues: Sequence[str] | None = None) -> datetime | None:
        return await super().next_due()


@fails(MaintenanceConformance.test_a_cancelled_job_is_not_the_next_due)
class CancelledJobsFallDue(MemoryDatabase):
    """A cancelled job is still waited for."""

    def next_due(self, queue: str, head_start: timedelta = timedelta(0)) -> datetime | None:
        rows = [self.rows[place[-1]] for place in self.later[queue]]
        return min((row.due for row in rows), default=None)


@fails(MaintenanceConformance.test_expired_jobs_are_discarded_in_chunks)
class ExpiresEverything(MemoryMaintenance):
    """One call discards all that has expired."""

    async def expire(self, limit: int) -> Sequence[JobId]:
        return await super().expire(1000)


@fails(MaintenanceConformance.test_expired_jobs_are_named)
class NamesOthers(MemoryMaintenance):
    """The jobs that are named are not those that were discarded."""

    async def expire(self, limit: int) -> Sequence[JobId]:
        return [JobId(job[::-1]) for job in await super().expire(limit)]


@fails(MaintenanceConformance.test_jobs_are_pruned_by_state_and_age)
class PrunesAtTheAge(MemoryMaintenance):
    """A job is pruned at the very end of its retention."""

    async def prune(
        self,
        *,
        state: State,
        older_than: timedelta,
        limit: int,
        apart: Mapping[str, timedelta] | None = None,
    ) -> int:
        younger = older_than - timedelta(microseconds=1)
        return await super().prune(state=state, older_than=younger, limit=limit, apart=apart)


@fails(MaintenanceConformance.test_pruning_deletes_in_chunks_with_the_history)
class PrunesEverything(MemoryMaintenance):
    """One call prunes all that is old."""

    async def prune(
        self,
        *,
        state: State,
        older_than: timedelta,
        limit: int,
        apart: Mapping[str, timedelta] | None = None,
    ) -> int:
        return await super().prune(state=state, older_than=older_than, limit=1000, apart=apart)


@fails(MaintenanceConformance.test_a_job_that_is_back_at_work_is_not_pruned)
class RequeueKeepsTheFinish(_KeepsAtRequeue):
    """A requeued job looks as if it had ended, and is pruned by that."""

    def keep(self, row: JobRow, past: JobRow) -> None:
        row.finished_at = past.finished_at


@fails(MaintenanceConformance.test_a_pruned_job_is_gone_for_good)
class PrunesHalfTheJob(MemoryDatabase):
    """A pruned job can still be asked for by its id."""

    def remove(self, row: JobRow) -> None:
        super().remove(row)
        self.by_id[row.asked.id] = row


@fails(MaintenanceConformance.test_workers_that_ended_long_ago_are_forgotten)
class ForgetsLiveWorkers(MemoryMaintenance):
    """Workers that started long ago are forgotten, also live ones."""

    async def prune_workers(self, *, older_than: timedelta, limit: int) -> int:
        now = self._db.clock.now()
        old = [w for w, row in self._db.workers.items() if row.started_at < now - older_than]
        for worker in old[:limit]:
            del self._db.workers[worker]
        return len(old[:limit])


@fails(MaintenanceConformance.test_a_worker_that_holds_a_claim_is_not_forgotten)
class ForgetsBusyWorkers(MemoryMaintenance):
    """A dead worker is forgotten though it holds a claim."""

    async def prune_workers(self, *, older_than: timedelta, limit: int) -> int:
        running, self._db.running = self._db.running, {}
        pruned = await super().prune_workers(older_than=older_than, limit=limit)
        self._db.running = running
        return pruned


@fails(MaintenanceConformance.test_tidying_loses_nothing)
class TidiesTooMuch(MemoryMaintenance):
    """Tidying removes jobs that wait for a limit."""

    async def tidy(self) -> None:
        await super().tidy()
        for row in list(self._db.rows.values()):
            if row.state is State.WAITING:
                self._db.remove(row)
