"""Stores that obey people wrongly."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.job.job import JobId
from windlass._core.job.state import State
from windlass._core.job.unique import Window
from windlass._storage.memory.admin.actions import MemoryActions, requeue
from windlass._storage.memory.admin.audit import AuditRows
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.protocol.actions import ActionResult, AuditNote, Edit, JobAction
from windlass._storage.shared.subscribers import QueueNames
from windlass._system.seams import new_job_id
from windlass.testing.conformance import (
    ActionConformance,
    ActionRaceConformance,
    DeleteConformance,
    EditConformance,
    RequeueConformance,
)

# --- answers ----------------------------------------------------------------------------------


@fails(ActionConformance.test_each_job_is_answered_on_its_own)
class AnswersForTheFirst(MemoryActions):
    """What became of one job is said of all of them."""

    async def order(
        self, order: JobAction, ids: Sequence[JobId], note: AuditNote
    ) -> Sequence[ActionResult]:
        answers = await super().order(order, ids, note)
        return [answers[0] for _ in answers]


@fails(ActionConformance.test_an_id_that_comes_twice_meets_what_its_first_place_left)
class TakesEachIdOnce(MemoryActions):
    """An id that comes twice is answered twice as if it had come once."""

    async def order(
        self, order: JobAction, ids: Sequence[JobId], note: AuditNote
    ) -> Sequence[ActionResult]:
        once = list(dict.fromkeys(ids))
        answers = dict(zip(once, await super().order(order, once, note), strict=True))
        return [answers[job] for job in ids]


@fails(ActionConformance.test_no_ids_give_no_answers)
class RecordsEveryWord(MemoryActions):
    """What was ordered is recorded whether or not it took effect."""

    async def order(
        self, order: JobAction, ids: Sequence[JobId], note: AuditNote
    ) -> Sequence[ActionResult]:
        answers = await super().order(order, ids, note)
        with self._db.moment() as now:
            self._db.audits.keep(note, 0, now, answers)
        return answers


@fails(ActionConformance.test_of_two_concurrent_requeues_exactly_one_is_done)
class RequeuesWhateverItIs(MemoryActions):
    """A requeue does not look at the state."""

    def requeue_one(self, row: JobRow, now: datetime) -> ActionResult:
        requeue(self._db, row, now)
        return ActionResult.DONE


@fails(ActionConformance.test_a_failed_job_is_discarded_with_a_reason)
class DiscardsWithoutAReason(MemoryActions):
    """Why a job was discarded is not stored."""

    def _discard(self, row: JobRow, reason: str, now: datetime) -> ActionResult:
        return super()._discard(row, "", now)


@fails(ActionConformance.test_a_cancelled_waiting_job_is_over_and_its_key_is_free)
class CancelKeepsTheKey(MemoryActions):
    """A job that was cancelled holds its key."""

    def _cancel(self, row: JobRow, now: datetime) -> ActionResult:
        answer = super()._cancel(row, now)
        if row.asked.unique is not None:
            self._db.keys[row.asked.unique.key] = row
        return answer


@fails(ActionConformance.test_the_worker_of_a_cancelled_running_job_is_asked)
class AsksNobody(MemoryActions):
    """Nobody is told that a running job is to end."""

    def _cancel(self, row: JobRow, now: datetime) -> ActionResult:
        answer = super()._cancel(row, now)
        row.cancel_requested = False
        return answer


@fails(ActionConformance.test_a_waiting_job_is_due_now_unless_it_already_was)
class MovesWhatIsDueToTheEnd(MemoryActions):
    """A job that was due already is due now."""

    def _run_now(self, row: JobRow, now: datetime) -> ActionResult:
        if row.state is State.WAITING:
            self._db.stand(row, now, now)
        return super()._run_now(row, now)


@fails(ActionConformance.test_a_repeated_action_changes_nothing_and_gets_the_first_answer)
class ForgetsWhatItAnswered(AuditRows):
    """A repeated order is carried out again."""

    def answers(self, note: AuditNote) -> Sequence[ActionResult] | None:
        return None


@fails(ActionConformance.test_a_repeated_delete_is_answered_as_the_first_time)
class RepeatsAreAnsweredByUnknown(AuditRows):
    """A repeated order changes nothing, and its answers are lost."""

    def answers(self, note: AuditNote) -> Sequence[ActionResult] | None:
        answers = super().answers(note)
        return answers and [ActionResult.UNKNOWN for _ in answers]


@fails(ActionConformance.test_an_action_without_effect_may_be_repeated)
class RemembersRefusals(MemoryActions):
    """What came to nothing once is refused for ever."""

    async def order(
        self, order: JobAction, ids: Sequence[JobId], note: AuditNote
    ) -> Sequence[ActionResult]:
        answers = await super().order(order, ids, note)
        with self._db.moment() as now:
            self._db.audits.keep(note, 0, now, answers)
        return answers


@fails(ActionConformance.test_actions_wake_subscribers)
class WakesNobodyAfterOrders(MemoryDatabase):
    """Whoever waits hears nothing."""

    def wake(self, queues: QueueNames = None) -> None:
        pass


# --- requeue ----------------------------------------------------------------------------------


class _Requeues(MemoryActions):
    """Something is wrong with a job that was requeued."""

    def spoil(self, row: JobRow, past: JobRow, now: datetime) -> None:
        raise AssertionError("say what")

    def requeue_one(self, row: JobRow, now: datetime) -> ActionResult:
        past = replace(row)
        answer = super().requeue_one(row, now)
        if answer is ActionResult.DONE:
            self.spoil(row, past, now)
        return answer


@fails(RequeueConformance.test_a_requeued_job_waits_again_with_a_fresh_budget)
class RequeuesWithTheOldBudget(_Requeues):
    """A requeued job has the attempts it had."""

    def spoil(self, row: JobRow, past: JobRow, now: datetime) -> None:
        row.max_attempts = past.max_attempts


@fails(RequeueConformance.test_jobs_of_all_three_ends_are_requeued_together)
class RequeueKeepsTheReason(_Requeues):
    """A requeued job says why it was discarded."""

    def spoil(self, row: JobRow, past: JobRow, now: datetime) -> None:
        row.reason = past.reason


@fails(RequeueConformance.test_a_requeue_forgets_expiry_suspicion_and_cancel_request)
class RequeueKeepsTheCancelRequest(_Requeues):
    """A requeued job is to be cancelled."""

    def spoil(self, row: JobRow, past: JobRow, now: datetime) -> None:
        row.cancel_requested = past.cancel_requested


@fails(RequeueConformance.test_the_key_is_taken_again)
class RequeuesWithoutTheKey(_Requeues):
    """A requeued job does not hold its key."""

    def spoil(self, row: JobRow, past: JobRow, now: datetime) -> None:
        self._db.free_key(row)


@fails(
    RequeueConformance.test_a_key_that_another_job_holds_is_a_conflict_for_this_one_alone,
    RequeueConformance.test_of_two_jobs_with_one_key_the_first_has_it,
)
class StealsTheKey(MemoryActions):
    """A requeued job takes its key from whoever holds it."""

    def requeue_one(self, row: JobRow, now: datetime) -> ActionResult:
        unique = row.asked.unique
        holder = None if unique is None else self._db.holder(unique.key, now)
        if holder is not None:
            self._db.free_key(holder)
        return super().requeue_one(row, now)


@fails(RequeueConformance.test_a_key_held_until_started_stays_free)
class RetakesStartedKeys(_Requeues):
    """A key held until the start is taken again."""

    def spoil(self, row: JobRow, past: JobRow, now: datetime) -> None:
        if row.asked.unique is not None and row.asked.unique.window is Window.UNTIL_STARTED:
            self._db.take_key(row, now)


@fails(RequeueConformance.test_a_key_held_for_a_time_is_not_prolonged_while_it_is_held)
class ProlongsKeys(_Requeues):
    """The period of a key begins anew though it is held."""

    def spoil(self, row: JobRow, past: JobRow, now: datetime) -> None:
        self._db.take_key(row, now)


@fails(RequeueConformance.test_a_key_held_for_a_time_is_taken_for_a_new_period)
class KeepsTheOldPeriod(_Requeues):
    """A key that was held for a time is taken for the time that is over."""

    def spoil(self, row: JobRow, past: JobRow, now: datetime) -> None:
        row.key_until = past.key_until


@fails(RequeueConformance.test_limits_count_again)
class RequeuesWithoutLimits(_Requeues):
    """A requeued job counts against no limit."""

    def spoil(self, row: JobRow, past: JobRow, now: datetime) -> None:
        row.asked, row.lane_limits = replace(row.asked, limits=()), ""
        self._db.stand(row, now, now)


# --- edit -------------------------------------------------------------------------------------


class _Edits(MemoryActions):
    """Another way to edit."""

    def edited(self, row: JobRow, edit: Edit, now: datetime) -> Edit:
        raise AssertionError("say how")

    def _edit(self, row: JobRow, edit: Edit, now: datetime) -> ActionResult:
        return super()._edit(row, self.edited(row, edit, now), now)


@fails(
    EditConformance.test_ready_jobs_change_places_by_priority,
    EditConformance.test_a_job_due_later_keeps_its_new_priority,
    EditConformance.test_limited_jobs_change_places_within_their_lane,
)
class IgnoresPriorities(_Edits):
    """A new priority is not stored."""

    def edited(self, row: JobRow, edit: Edit, now: datetime) -> Edit:
        return replace(edit, priority=None)


@fails(
    EditConformance.test_a_ready_job_may_be_put_off,
    EditConformance.test_a_job_due_later_may_come_sooner,
    EditConformance.test_all_at_once,
)
class IgnoresDueTimes(_Edits):
    """A new due time is not stored."""

    def edited(self, row: JobRow, edit: Edit, now: datetime) -> Edit:
        return replace(edit, due=None)


@fails(EditConformance.test_a_job_due_later_may_be_ready_at_once)
class NeverDueInThePast(_Edits):
    """A due time in the past becomes now."""

    def edited(self, row: JobRow, edit: Edit, now: datetime) -> Edit:
        return replace(edit, due=edit.due and max(edit.due, now))


@fails(EditConformance.test_an_instant_beyond_the_calendar_is_brought_into_it)
class StoresAnyInstant(MemoryActions):
    """A due time beyond the calendar is stored as it is."""

    def _edit(self, row: JobRow, edit: Edit, now: datetime) -> ActionResult:
        answer = super()._edit(row, edit, now)
        row.due = edit.due or row.due
        return answer


@fails(
    EditConformance.test_a_ready_job_moves_to_another_queue_and_keeps_the_order_there,
    EditConformance.test_a_job_due_later_moves_to_another_queue,
    EditConformance.test_a_job_that_runs_alone_moves_as_such,
    EditConformance.test_a_job_is_held_by_what_holds_its_new_queue,
)
class MovesInNameOnly(MemoryActions):
    """A job that has moved is claimed from its old queue."""

    def _edit(self, row: JobRow, edit: Edit, now: datetime) -> ActionResult:
        answer = super()._edit(row, replace(edit, queue=None), now)
        if answer is ActionResult.DONE and edit.queue is not None:
            row.asked = replace(row.asked, queue=edit.queue)
        return answer


@fails(EditConformance.test_a_limited_job_moves_with_its_limits)
class LeavesLanesByMoving(MemoryActions):
    """A job that has moved counts against no limit."""

    def _edit(self, row: JobRow, edit: Edit, now: datetime) -> ActionResult:
        if edit.queue is not None:
            row.asked, row.lane_limits = replace(row.asked, limits=()), ""
        return super()._edit(row, edit, now)


@fails(EditConformance.test_omitted_fields_stay_as_they_are)
class EditsMakeDue(_Edits):
    """Whoever edits a job without a due time makes it due now."""

    def edited(self, row: JobRow, edit: Edit, now: datetime) -> Edit:
        return replace(edit, due=edit.due or now)


@fails(EditConformance.test_only_waiting_jobs_are_edited)
class EditsWhateverItIs(MemoryActions):
    """Jobs that run or have ended are edited, too."""

    def _edit(self, row: JobRow, edit: Edit, now: datetime) -> ActionResult:
        row.asked = replace(row.asked, queue=edit.queue or row.asked.queue)
        return super()._edit(row, edit, now)


# --- delete -----------------------------------------------------------------------------------


@fails(DeleteConformance.test_a_job_that_does_not_run_is_gone_at_once)
class DeletesEndedJobsOnly(MemoryActions):
    """A job that waits is cancelled instead of deleted."""

    def _delete(self, row: JobRow) -> ActionResult:
        if row.state is State.WAITING:
            self._db.finish(row, State.CANCELLED, row.due)
            return ActionResult.DONE
        return super()._delete(row)


@fails(
    DeleteConformance.test_a_deleted_waiting_job_is_never_claimed,
    DeleteConformance.test_its_lane_continues_without_it,
    DeleteConformance.test_an_end_of_its_last_claim_that_comes_late_is_unknown,
)
class DeletesTheIdOnly(MemoryDatabase):
    """A deleted job is not found any more, and runs all the same."""

    def remove(self, row: JobRow) -> None:
        del self.by_id[row.asked.id]
        self.free_key(row)


@fails(DeleteConformance.test_a_running_job_is_asked_to_end_and_stays)
class DeletesRunningJobs(MemoryActions):
    """A running job is deleted under its worker's hands."""

    def _delete(self, row: JobRow) -> ActionResult:
        self._db.remove(row)
        return ActionResult.DONE


@fails(DeleteConformance.test_its_key_is_free)
class DeletesWithoutTheKey(MemoryDatabase):
    """A deleted job holds its key."""

    def remove(self, row: JobRow) -> None:
        holder = row.asked.unique and self.keys.get(row.asked.unique.key)
        super().remove(row)
        if row.asked.unique is not None and holder is row:
            self.keys[row.asked.unique.key] = row


@fails(DeleteConformance.test_the_same_id_may_come_again_and_knows_nothing_of_it)
class DeletesWithoutTheHistory(MemoryDatabase):
    """The next job with a deleted one's id has its past."""

    def remove(self, row: JobRow) -> None:
        super().remove(row)
        self.ghosts = {**getattr(self, "ghosts", {}), row.asked.id: row}

    def keep(self, row: JobRow) -> None:
        super().keep(row)
        ghost: JobRow | None = getattr(self, "ghosts", {}).get(row.asked.id)
        if ghost is not None:
            row.history = ghost.history


# --- races ------------------------------------------------------------------------------------


@fails(
    ActionRaceConformance.test_a_job_is_deleted_or_claimed,
    ActionRaceConformance.test_a_job_is_moved_or_claimed,
    ActionRaceConformance.test_a_job_is_requeued_by_one_of_two_who_name_them_in_another_order,
    ActionRaceConformance.test_a_cancel_and_an_end_both_come_through,
)
class ActsOnAnOldLook(MemoryActions):
    """Between the look and the deed somebody else has been there."""

    async def order(
        self, order: JobAction, ids: Sequence[JobId], note: AuditNote
    ) -> Sequence[ActionResult]:
        seen = {job: self._db.by_id[job].state for job in ids}
        await asyncio.sleep(0)
        for job, state in seen.items():
            if job in self._db.by_id:
                self._db.by_id[job].state = state
        return await super().order(order, ids, note)


@fails(ActionRaceConformance.test_an_action_and_its_repeat_at_the_same_time_are_one)
class LooksForRepeatsEarly(MemoryActions):
    """Of two that come at the same time each takes itself for the first."""

    async def order(
        self, order: JobAction, ids: Sequence[JobId], note: AuditNote
    ) -> Sequence[ActionResult]:
        given = self._db.audits.answers(note)
        await asyncio.sleep(0)
        another = replace(note, id=new_job_id())
        return given or await super().order(order, ids, another)
