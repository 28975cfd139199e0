"""Stores that go wrong with flows that run again after their end."""

from __future__ import annotations

from datetime import datetime

from tests.storage.mutants.table import fails
from windlass._core.flows.part import Decision, MemberEnd, Tidings
from windlass._storage.memory.admin.actions import MemoryActions
from windlass._storage.memory.flows.rows import FlowRows, MemoryFlow, MemoryPart
from windlass._storage.memory.flows.settle import FlowRules
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.protocol.actions import ActionResult
from windlass.testing.conformance import FlowAgainConformance


@fails(FlowAgainConformance.test_a_flow_whose_members_were_stopped_runs_from_its_retry_on)
class RetriesLater(FlowRules):
    """A retried flow runs only when it is settled."""

    def reopen(self, flow: MemoryFlow, now: datetime) -> None:
        """Leave it to a later write."""


@fails(FlowAgainConformance.test_a_stopped_member_that_is_not_needed_lets_a_retried_flow_succeed)
class StaysStopped(FlowRules):
    """A stopped member that is not needed any more counts as a failure for ever."""

    def _block_again(self, part: MemoryPart, row: JobRow, now: datetime) -> None:
        if part.decision is not Decision.SKIP:
            super()._block_again(part, row, now)
            return
        part.count(row.seq, MemberEnd.STOPPED, -1)
        part.count(row.seq, MemberEnd.CANCELLED, 1)
        self._db.flows.spread(part, now)


@fails(FlowAgainConformance.test_a_flow_does_not_run_if_others_hold_the_keys_of_its_members)
class RunsWithoutMembers(FlowRules):
    """A retried flow runs, whether a member comes back or not."""

    def reopen(self, flow: MemoryFlow, now: datetime) -> None:
        super().reopen(flow, now)
        flow.run_again(now)


@fails(
    FlowAgainConformance.test_an_expired_flow_that_is_retried_has_all_its_time_again,
    FlowAgainConformance.test_a_requeued_member_gives_its_flow_all_its_time_again,
)
class ExpiresAgain(FlowRows):
    """The time of a flow counts from its first start."""

    def _end(self, flow: MemoryFlow, end: Tidings, now: datetime) -> None:
        super()._end(flow, end, flow.created_at if not end.over else now)


@fails(FlowAgainConformance.test_a_flow_that_runs_has_no_more_time)
class NeverExpires(FlowRules):
    """A flow whose member is requeued has all its time again, whether it had ended or not."""

    def settle(self, limit: int, now: datetime) -> int:
        for flow in self._db.flows.running():
            flow.end(flow.state, now)
            flow.run_again(now)
        return super().settle(limit, now)


@fails(
    FlowAgainConformance.test_a_requeued_member_waits_for_the_parts_before_it,
    FlowAgainConformance.test_a_retried_flow_runs_each_failed_member_in_its_turn,
    FlowAgainConformance.test_a_requeued_member_after_a_failure_is_stopped_again,
)
class RequeuesAtOnce(MemoryActions):
    """A requeued member is placed, whatever it waits for."""

    def requeue_one(self, row: JobRow, now: datetime) -> ActionResult:
        answer = super().requeue_one(row, now)
        if row.blocked and answer is ActionResult.DONE:
            self._db.part_of(row).unblock(row.seq)
            self._db.unblock(row, now, now)
        return answer


@fails(FlowAgainConformance.test_a_requeued_member_that_has_run_does_not_wait_for_its_delay_again)
class DelaysAgain(MemoryDatabase):
    """A delay counts from every turn."""

    def unblock(self, row: JobRow, since: datetime, now: datetime) -> None:
        super().unblock(row, since, now)
        if row.asked.delay is not None:
            self.stand(row, now + row.asked.delay, now)
