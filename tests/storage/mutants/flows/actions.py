"""Stores that go wrong with what people do to flows: requeue, retry, cancel, keep, look."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.flows.flow import FlowRecord, FlowState, NewFlow, PartKind
from windlass._core.flows.part import MemberEnd, Tidings
from windlass._core.job.job import FlowId, NewJob
from windlass._core.job.state import State, Verb
from windlass._core.job.transition import Transition
from windlass._storage.memory.admin.actions import MemoryActions, requeue
from windlass._storage.memory.flows.flows import MemoryFlows
from windlass._storage.memory.flows.rows import FlowRows, MemoryFlow, MemoryPart
from windlass._storage.memory.flows.settle import FlowRules
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.memory.jobs.apply import ApplyRules
from windlass._storage.memory.jobs.jobs import MemoryJobs
from windlass._storage.protocol.actions import ActionResult, AuditNote, Edit
from windlass._storage.protocol.flows import FlowAction, FlowFilter, Member
from windlass._storage.protocol.jobs import Inserted
from windlass._system.seams import new_job_id
from windlass.testing.conformance import (
    FlowCancelConformance,
    FlowKeepConformance,
    FlowRetryConformance,
)


@fails(FlowRetryConformance.test_a_requeued_member_lets_the_flow_go_on)
class RequeuesInSilence(MemoryDatabase):
    """A requeued member still counts as ended."""

    def bring_back(self, row: JobRow, now: datetime) -> MemoryPart:
        return self.part_of(row)


@fails(FlowRetryConformance.test_a_callback_that_ran_does_not_run_again)
class CallsBackAgain(MemoryDatabase):
    """A flow that ends again runs its callbacks again."""

    def bring_back(self, row: JobRow, now: datetime) -> MemoryPart:
        part = super().bring_back(row, now)
        if part.asked.kind is not PartKind.CALLBACK:
            callbacks = [one for one in part.flow.parts if one.asked.kind is PartKind.CALLBACK]
            for callback in [self.rows[seq] for one in callbacks for seq in one.members]:
                if callback.state is State.SUCCEEDED:
                    requeue(self, callback, now)
        return part


@fails(FlowRetryConformance.test_retry_requeues_all_that_failed_and_what_that_stopped)
class StoppedForGood(FlowRules):
    """A stopped member stays cancelled when the failed one is requeued."""

    def _block_again(self, part: MemoryPart, row: JobRow, now: datetime) -> None:
        part.count(row.seq, MemberEnd.STOPPED, -1)
        part.count(row.seq, MemberEnd.CANCELLED, 1)
        self._db.flows.spread(part, now)


@fails(FlowRetryConformance.test_a_flow_that_runs_or_has_succeeded_is_not_retried)
class RetriesSuccesses(MemoryFlows):
    """A flow that has succeeded can be retried."""

    def _retry(self, flow: MemoryFlow, now: datetime) -> ActionResult:
        if flow.state is FlowState.SUCCEEDED:
            return ActionResult.DONE
        return super()._retry(flow, now)


@fails(FlowRetryConformance.test_a_stopped_member_comes_back_with_the_failed_one_alone)
class RequeuesStoppedMembers(MemoryActions):
    """A stopped member can be requeued alone."""

    def _was_settled(self, row: JobRow) -> bool:
        return False


@fails(FlowRetryConformance.test_a_member_is_not_requeued_while_another_flow_holds_the_key)
class TwoFlowsPerKey(MemoryActions):
    """A flow continues beside another one with its key."""

    def _flow_is_superseded(self, row: JobRow) -> bool:
        return False


@fails(FlowRetryConformance.test_a_flow_that_goes_on_holds_its_key_again)
class ContinuesWithoutItsKey(FlowRows):
    """A flow that continues does not take its key."""

    def _end(self, flow: MemoryFlow, end: Tidings, now: datetime) -> None:
        super()._end(flow, end, now)
        if not end.over and flow.asked.key is not None:
            self.keys.pop(flow.asked.key, None)


@fails(FlowRetryConformance.test_a_stopped_member_whose_key_was_taken_stays_cancelled)
class TakesKeysBack(FlowRules):
    """A stopped member takes its key from the job that holds it now."""

    def _block_again(self, part: MemoryPart, row: JobRow, now: datetime) -> None:
        if row.asked.unique is not None:
            self._db.keys.pop(row.asked.unique.key, None)
        super()._block_again(part, row, now)


# --- cancel -----------------------------------------------------------------------------------


@fails(FlowCancelConformance.test_a_cancelled_flow_starts_nothing)
class LeavesRunningMembersAlone(FlowRules):
    """The workers of running members are not asked to stop."""

    def _sweep(self, flow: MemoryFlow, limit: int, now: datetime) -> int:
        done = super()._sweep(flow, limit, now)
        for seq in flow.members():
            self._db.rows[seq].cancel_requested = False
        return done


@fails(FlowCancelConformance.test_what_succeeds_in_a_cancelled_flow_stays_succeeded)
class CancelsSuccesses(ApplyRules):
    """A member of a cancelled flow cannot succeed."""

    def verb(self, row: JobRow, transition: Transition) -> Verb:
        cancelled = row.flow is not None and self._db.part_of(row).is_cancelled
        return Verb.CANCEL if cancelled else super().verb(row, transition)


@fails(FlowCancelConformance.test_a_flow_that_has_ended_is_not_cancelled)
class CancelsEndedFlows(MemoryFlows):
    """A flow that has ended can be cancelled."""

    def _obey(self, wanted: FlowId, action: FlowAction, now: datetime) -> ActionResult:
        answer = super()._obey(wanted, action, now)
        return ActionResult.DONE if action == "cancel" else answer


@fails(FlowCancelConformance.test_a_cancelled_flow_is_retried_as_a_whole)
class StaysCancelled(MemoryFlows):
    """A retried flow is still marked as cancelled."""

    def _retry(self, flow: MemoryFlow, now: datetime) -> ActionResult:
        answer = super()._retry(flow, now)
        flow.mark_cancelled(cancelled=True)
        return answer


@fails(FlowCancelConformance.test_a_cancel_that_is_not_done_yet_does_not_reach_the_retried_flow)
class CancelsAfterTheRetry(MemoryFlows):
    """A cancel reaches members after the retry of their flow."""

    def _retry(self, flow: MemoryFlow, now: datetime) -> ActionResult:
        answer = super()._retry(flow, now)
        self._db.flows.sweeping[flow.asked.id] = flow
        return answer


@fails(FlowCancelConformance.test_a_repeated_action_changes_nothing_and_is_recorded_once)
class RecordsRepeats(MemoryFlows):
    """A repeated action is a new one."""

    async def act(
        self, flows: Sequence[FlowId], action: FlowAction, note: AuditNote
    ) -> Sequence[ActionResult]:
        return await super().act(flows, action, replace(note, id=new_job_id()))


@fails(FlowCancelConformance.test_an_expired_flow_ends_its_members)
class FlowsNeverExpire(FlowRows):
    """Flows are stored without their expiry."""

    def add(self, asked: NewFlow, now: datetime) -> MemoryFlow:
        return super().add(replace(asked, expires=None), now)


@fails(FlowCancelConformance.test_a_blocked_member_is_cancelled_at_once)
class BlockedCannotBeCancelled(MemoryActions):
    """A blocked member cannot be cancelled."""

    def _cancel(self, row: JobRow, now: datetime) -> ActionResult:
        return ActionResult.WRONG_STATE if row.blocked else super()._cancel(row, now)


@fails(FlowCancelConformance.test_no_action_unblocks_a_member)
class EditsUnblock(MemoryActions):
    """A blocked member that is moved to another queue may start."""

    def _edit(self, row: JobRow, edit: Edit, now: datetime) -> ActionResult:
        answer = super()._edit(row, edit, now)
        if answer is ActionResult.DONE:
            self._db.stand(row, now, now)
        return answer


@fails(FlowCancelConformance.test_a_blocked_holder_of_a_key_is_not_replaced)
class ReplacesBlockedHolders(MemoryJobs):
    """A blocked job takes over the values of a new one with its key."""

    def _insert(self, job: NewJob, now: datetime) -> Inserted:
        if job.unique is not None and (holder := self._db.holder(job.unique.key, now)) is not None:
            holder.blocked = False
        return super()._insert(job, now)


@fails(FlowCancelConformance.test_a_blocked_member_is_not_active)
class BlockedIsActive(MemoryJobs):
    """A queue of blocked jobs counts as active."""

    async def active(self, queues: Sequence[str]) -> bool:
        rows = self._db.rows.values()
        return any(row.asked.queue in queues and not row.is_terminal() for row in rows)


# --- keeping and looking ----------------------------------------------------------------------


@fails(FlowKeepConformance.test_a_member_is_not_deleted_alone)
class DeletesMembersAlone(MemoryActions):
    """A member can be deleted like any job."""

    def _delete(self, row: JobRow) -> ActionResult:
        self._db.remove(row)
        return ActionResult.DONE


@fails(FlowKeepConformance.test_an_ended_flow_is_pruned_with_all_its_jobs)
class LeavesCallbacksBehind(MemoryFlows):
    """The callbacks of a deleted flow stay."""

    def _delete(self, flow: MemoryFlow) -> int:
        seqs = flow.members()
        self._db.flows.remove(flow)
        for seq in seqs:
            self._db.remove(self._db.rows[seq])
        return len(seqs)


@fails(FlowKeepConformance.test_a_flow_is_not_pruned_before_its_callbacks_have_run)
class PrunesTooSoon(MemoryFlows):
    """A flow is deleted though its callbacks have not run."""

    async def prune(self, *, state: FlowState, older_than: timedelta, limit: int) -> int:
        with self._db.moment() as now:
            ended = [flow for flow in self._db.flows.by_id.values() if flow.state is state]
            old = [flow for flow in ended if (flow.ended_at or now) < now - older_than]
            return sum(self._delete(flow) for flow in old)


@fails(FlowKeepConformance.test_the_states_of_flows_are_answered_in_order)
class TellsOfThoseItHas(MemoryFlows):
    """The answer leaves out flows that are not stored."""

    async def states(self, flows: Sequence[FlowId]) -> Sequence[FlowState | None]:
        return [state for state in await super().states(flows) if state is not None]


@fails(FlowKeepConformance.test_flows_are_listed_newest_first_in_pages)
class ListsTheOldestFirst(MemoryFlows):
    """A page of flows begins with the oldest."""

    async def find(
        self, wanted: FlowFilter, *, before: int | None = None, limit: int = 50
    ) -> Sequence[FlowRecord]:
        return [*reversed(await super().find(wanted, before=before, limit=limit))]


@fails(FlowKeepConformance.test_a_recount_of_untouched_counts_finds_nothing)
class CountsFailuresAsCancelled(MemoryDatabase):
    """A failed member counts as cancelled."""

    def _end_member(self, row: JobRow, ended: MemberEnd, now: datetime) -> None:
        super()._end_member(row, MemberEnd.CANCELLED if ended is MemberEnd.FAILED else ended, now)


@fails(FlowKeepConformance.test_members_of_an_unknown_flow_are_none)
class TakesTheLastPart(MemoryFlows):
    """A number behind the last part names the last part."""

    async def members(
        self, flow: FlowId, part: int, *, after: int = 0, limit: int = 500
    ) -> Sequence[Member]:
        found = self._db.flows.by_id.get(flow)
        last = part if found is None else min(part, len(found.parts) - 1)
        return await super().members(flow, last, after=after, limit=limit)


@fails(FlowCancelConformance.test_a_retried_flow_runs_in_the_order_of_its_parts)
class SettlesTheLastPartFirst(FlowRules):
    """Parts are settled against the order of the graph."""

    def next_part(self) -> MemoryPart:
        return max(self._db.flows.due.values(), key=lambda due: due.number)


@fails(FlowRetryConformance.test_a_stopped_member_that_still_holds_its_key_comes_back)
class TakesItsOwnKeyForAnothers(FlowRules):
    """A stopped member whose key is still its own stays cancelled."""

    def _block_again(self, part: MemoryPart, row: JobRow, now: datetime) -> None:
        if self._db.holds_key(row, now):
            part.count(row.seq, MemberEnd.STOPPED, -1)
            part.count(row.seq, MemberEnd.CANCELLED, 1)
            self._db.flows.spread(part, now)
        else:
            super()._block_again(part, row, now)
