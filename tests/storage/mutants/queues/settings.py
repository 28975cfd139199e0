"""Stores that lose settings of queues, or do not go by them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.job.job import JobId
from windlass._core.job.state import State, Verb
from windlass._core.job.transition import Transition
from windlass._core.limits.queue_settings import QueueSettings
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.io.rows import JobRow, QueueRow
from windlass._storage.memory.jobs.apply import ApplyRules
from windlass._storage.memory.jobs.claim import ClaimProgress, ClaimRules
from windlass._storage.memory.jobs.jobs import MemoryJobs
from windlass._storage.memory.queues import MemoryQueues
from windlass._storage.protocol.actions import AuditNote
from windlass._storage.protocol.jobs import CancelAnswer, Want
from windlass._storage.protocol.queues import QueueRecord
from windlass.testing.conformance import MaxRunningConformance, QueueSettingsConformance

PLAIN = QueueSettings()


@fails(
    QueueSettingsConformance.test_nothing_is_listed_of_queues_without_anything_special,
    QueueSettingsConformance.test_a_queue_whose_settings_are_taken_back_is_not_listed,
)
class ListsEveryQueue(MemoryQueues):
    """Queues of which nothing is known are listed, too."""

    async def queues(self) -> Sequence[QueueRecord]:
        listed = {record.queue: record for record in await super().queues()}
        names = sorted({*self._db.queues, *self._db.ready})
        return [listed.get(queue, QueueRecord(queue=queue)) for queue in names]


@fails(QueueSettingsConformance.test_every_setting_comes_back_as_it_was_stored)
class LosesCurves(MemoryQueues):
    """A curve is not kept."""

    async def change(
        self,
        queue: str,
        new: QueueSettings,
        *,
        old: QueueSettings,
        audit: AuditNote | None = None,
    ) -> bool:
        return await super().change(queue, replace(new, cool_down=None), old=old)


@fails(QueueSettingsConformance.test_each_setting_alone_comes_back_and_leaves_the_others_unset)
class ZeroIsNothing(MemoryQueues):
    """A retention of nothing comes back as none that was set."""

    async def change(
        self,
        queue: str,
        new: QueueSettings,
        *,
        old: QueueSettings,
        audit: AuditNote | None = None,
    ) -> bool:
        return await super().change(
            queue, replace(new, keep_failed=new.keep_failed or None), old=old
        )


@fails(
    QueueSettingsConformance.test_unset_settings_are_not_stored_ones,
    QueueSettingsConformance.test_of_many_concurrent_changes_one_wins,
)
class OverwritesSettings(MemoryQueues):
    """The last one to change settings wins, whatever he has seen."""

    async def change(
        self,
        queue: str,
        new: QueueSettings,
        *,
        old: QueueSettings,
        audit: AuditNote | None = None,
    ) -> bool:
        return await super().change(queue, new, old=self._db.queues[queue].settings)


@fails(QueueSettingsConformance.test_settings_are_compared_by_what_they_say)
class ComparesObjects(MemoryQueues):
    """Settings that say the same are others."""

    async def change(
        self,
        queue: str,
        new: QueueSettings,
        *,
        old: QueueSettings,
        audit: AuditNote | None = None,
    ) -> bool:
        stored = self._db.queues[queue].settings
        return (
            stored in (PLAIN, old)
            and (stored == PLAIN or stored is old)
            and await super().change(queue, new, old=old)
        )


@fails(QueueSettingsConformance.test_settings_that_changed_meanwhile_are_not_overwritten)
class PlainIsAnything(MemoryQueues):
    """Whoever saw no settings may overwrite some."""

    async def change(
        self,
        queue: str,
        new: QueueSettings,
        *,
        old: QueueSettings,
        audit: AuditNote | None = None,
    ) -> bool:
        seen = self._db.queues[queue].settings if old == PLAIN else old
        return await super().change(queue, new, old=seen)


@fails(QueueSettingsConformance.test_queues_are_listed_by_name_with_all_that_is_known_of_them)
class ListsBackwards(MemoryQueues):
    """Queues are listed in some order."""

    async def queues(self) -> Sequence[QueueRecord]:
        return [*reversed(await super().queues())]


@fails(QueueSettingsConformance.test_a_pause_is_shown_until_it_is_undone)
class HidesPauses(MemoryQueues):
    """A queue that is just paused is not listed."""

    async def queues(self) -> Sequence[QueueRecord]:
        hidden = [replace(record, paused=False) for record in await super().queues()]
        return [record for record in hidden if record != QueueRecord(queue=record.queue)]


@fails(QueueSettingsConformance.test_new_settings_touch_neither_a_pause_nor_a_rest)
class ChangingForgetsTheRest(MemoryQueues):
    """New settings end a pause and a rest."""

    async def change(
        self,
        queue: str,
        new: QueueSettings,
        *,
        old: QueueSettings,
        audit: AuditNote | None = None,
    ) -> bool:
        changed = await super().change(queue, new, old=old)
        self._db.queues[queue] = QueueRow(settings=self._db.queues[queue].settings)
        return changed


@fails(QueueSettingsConformance.test_settings_of_one_queue_are_not_those_of_another)
class SettingsForAll(MemoryQueues):
    """The settings of one queue are those of all."""

    async def change(
        self,
        queue: str,
        new: QueueSettings,
        *,
        old: QueueSettings,
        audit: AuditNote | None = None,
    ) -> bool:
        changed = await super().change(queue, new, old=old)
        for other in ("a", "b"):
            self._db.queues[other].settings = new
        return changed


@fails(QueueSettingsConformance.test_a_change_wakes)
class ChangesSilently(MemoryQueues):
    """Nobody is told of new settings."""

    async def change(
        self,
        queue: str,
        new: QueueSettings,
        *,
        old: QueueSettings,
        audit: AuditNote | None = None,
    ) -> bool:
        row = self._db.queues[queue]
        changed, row.settings = row.settings == old, new
        return changed


@fails(QueueSettingsConformance.test_neither_a_pause_nor_a_rest_touches_the_settings)
class WarmingForgetsSettings(MemoryQueues):
    """Ending a rest forgets the settings."""

    async def warm(self, queue: str, *, audit: AuditNote | None = None) -> None:
        await super().warm(queue)
        self._db.queues[queue].settings = PLAIN


# --- how many of a queue may run --------------------------------------------------------------


@fails(QueueSettingsConformance.test_a_changed_setting_holds_at_the_next_claim)
class RunsAsManyAsItCan(ClaimRules):
    """Nobody counts what runs of a queue."""

    def room(self, queue: str, now: datetime) -> int:
        return len(self._db.rows) if super().room(queue, now) or self._counts(queue) else 0

    def _counts(self, queue: str) -> bool:
        return self._db.queues[queue].settings.max_running is not None


class _Counting(ClaimRules):
    """Another way to count what runs of a queue."""

    def counted(self, queue: str) -> int:
        raise AssertionError("say how")

    def room(self, queue: str, now: datetime) -> int:
        most = self._db.queues[queue].settings.max_running
        if most is None or self._db.queues[queue].paused:
            return super().room(queue, now)
        return max(0, most - self.counted(queue))

    def running(self, queue: str) -> list[JobRow]:
        return [row for row in self._db.running.values() if row.asked.queue == queue]

    def waiting(self, queue: str) -> list[JobRow]:
        rows = self._db.rows.values()
        return [r for r in rows if r.asked.queue == queue and r.state is State.WAITING]


@fails(
    MaxRunningConformance.test_no_more_than_may_run_are_claimed_across_workers,
    MaxRunningConformance.test_concurrent_claimers_never_exceed_it,
)
class CountsByWorker(_Counting):
    """Every worker may run as many as the cluster."""

    worker = ""

    def take(self, visit: ClaimProgress, want: Want) -> None:
        self.worker = visit.worker
        super().take(visit, want)

    def counted(self, queue: str) -> int:
        return sum(row.worker == self.worker for row in self.running(queue))


@fails(MaxRunningConformance.test_every_ending_makes_room_for_one)
class EndedJobsTakeRoom(ApplyRules):
    """A job that did not succeed goes on counting."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().accept(row, transition, verb, now)
        if verb is not Verb.SUCCEED and verb is not Verb.RELEASE:
            ghost = JobRow.of(row.asked, seq=-row.seq, now=now)
            self._db.running[ghost.seq] = ghost


@fails(MaxRunningConformance.test_a_success_that_is_not_kept_makes_room)
class DeletedJobsTakeRoom(MemoryDatabase):
    """A job that was deleted goes on counting."""

    def remove(self, row: JobRow) -> None:
        super().remove(row)
        self.running[row.seq] = row


@fails(MaxRunningConformance.test_a_cancel_request_makes_no_room_until_the_claim_ends)
class RequestsMakeRoom(_Counting):
    """A job whose cancellation is requested does not count any more."""

    def counted(self, queue: str) -> int:
        return sum(not row.cancel_requested for row in self.running(queue))


@fails(MaxRunningConformance.test_declaring_a_worker_dead_makes_no_room_and_reaping_does)
class BurialMakesRoom(_Counting):
    """Jobs of dead workers do not count, though they may still run."""

    def counted(self, queue: str) -> int:
        return sum(self.is_live(row.worker) for row in self.running(queue))


@fails(MaxRunningConformance.test_a_worker_that_leaves_makes_room)
class ReleasedJobsTakeRoom(ApplyRules):
    """A job that was given back goes on counting."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().accept(row, transition, verb, now)
        if verb is Verb.RELEASE:
            ghost = JobRow.of(row.asked, seq=-row.seq, now=now)
            self._db.running[ghost.seq] = ghost


@fails(MaxRunningConformance.test_cancelling_a_waiting_job_makes_no_room)
class CancelsMakeRoom(MemoryJobs):
    """A cancelled waiting job makes room it never took."""

    def _cancel(self, job: JobId, now: datetime) -> CancelAnswer:
        answer = super()._cancel(job, now)
        queue = self._db.queues[self._db.by_id[job].asked.queue]
        if answer is CancelAnswer.CANCELLED and queue.settings.max_running is not None:
            queue.settings = QueueSettings(max_running=queue.settings.max_running + 1)
        return answer


@fails(MaxRunningConformance.test_a_requeued_job_counts_again)
class RequeuedJobsPass(_Counting):
    """For a job that was requeued there is always room."""

    def counted(self, queue: str) -> int:
        requeued = [r for r in self.waiting(queue) if r.max_attempts > r.asked.max_attempts]
        return len(self.running(queue)) - len(requeued)


@fails(MaxRunningConformance.test_a_job_to_run_alone_counts_and_is_counted)
class LonelyJobsDoNotCount(_Counting):
    """Jobs that run alone take no room."""

    def counted(self, queue: str) -> int:
        return sum(not row.solo for row in self.running(queue))


@fails(MaxRunningConformance.test_each_queue_of_one_claim_has_its_own_bound)
class CountsAllQueues(_Counting):
    """What runs of one queue takes room in all."""

    def counted(self, queue: str) -> int:
        return len(self._db.running)


@fails(MaxRunningConformance.test_a_queue_that_is_wanted_twice_has_one_bound)
class CountsBeforeTheClaim(_Counting):
    """What this very claim has taken is not seen when its queue comes again."""

    before: frozenset[int] = frozenset()

    def take(self, visit: ClaimProgress, want: Want) -> None:
        if not visit.jobs:
            self.before = frozenset(self._db.running)
        super().take(visit, want)

    def counted(self, queue: str) -> int:
        return sum(row.seq in self.before for row in self.running(queue))


@fails(MaxRunningConformance.test_a_full_queue_does_not_stop_others)
class FullStopsTheClaim(ClaimRules):
    """A claim that meets a full queue goes no further."""

    def take(self, visit: ClaimProgress, want: Want) -> None:
        if not self.room(want.queue, visit.now):
            visit.room = 0
        super().take(visit, want)


@fails(MaxRunningConformance.test_lowered_below_what_runs_it_stops_new_starts_and_no_running_ones)
class LoweredIsFree(_Counting):
    """A number below what runs holds nobody back."""

    def counted(self, queue: str) -> int:
        running, most = len(self.running(queue)), self._db.queues[queue].settings.max_running
        return 0 if most is None or running > most else running


@fails(MaxRunningConformance.test_set_while_jobs_run_it_counts_them)
class CountsWhatItStarted(_Counting):
    """What ran before the number was set does not count."""

    started: frozenset[int] = frozenset()

    def start(self, visit: ClaimProgress, row: JobRow) -> None:
        super().start(visit, row)
        if self._db.queues[row.asked.queue].settings.max_running is not None:
            self.started |= {row.seq}

    def counted(self, queue: str) -> int:
        return sum(row.seq in self.started for row in self.running(queue))


@fails(MaxRunningConformance.test_a_full_queue_is_not_claimable_until_there_is_room)
class FullIsClaimable(MemoryJobs):
    """A full queue is asked like any other."""

    def _claimable(self, queue: str, now: datetime) -> bool:
        return self._has_due(queue, now)


@fails(MaxRunningConformance.test_a_job_that_is_held_back_by_a_full_queue_spends_no_token)
class SpendsWithoutRoom(ClaimRules):
    """A job for which there is no room spends its tokens."""

    def take(self, visit: ClaimProgress, want: Want) -> None:
        if not self.room(want.queue, visit.now):
            for place, _ in self.heads(self._db.ready[want.queue], solo=visit.solo):
                self.admit(visit, self._db.rows[place[-1]])
        super().take(visit, want)


@fails(MaxRunningConformance.test_a_job_that_its_limits_hold_back_takes_no_room)
class HeldBackJobsTakeRoom(_Counting):
    """A job that its limits hold back takes room."""

    def counted(self, queue: str) -> int:
        return len(self.running(queue)) + sum(bool(r.asked.limits) for r in self.waiting(queue))


@fails(MaxRunningConformance.test_jobs_that_fall_due_wait_for_room)
class LaterJobsPass(_Counting):
    """For a job that fell due later there is always room."""

    def counted(self, queue: str) -> int:
        return len(self.running(queue)) - sum(r.due > r.created_at for r in self.waiting(queue))


@fails(MaxRunningConformance.test_an_expired_job_takes_no_room)
class ExpiredJobsTakeRoom(_Counting):
    """A job that has expired takes room."""

    def counted(self, queue: str) -> int:
        now = self._db.clock.now()
        return len(self.running(queue)) + sum(r.is_expired(now) for r in self.waiting(queue))
