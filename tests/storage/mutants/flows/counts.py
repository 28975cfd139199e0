"""Stores that count flows, or list their jobs, wrongly."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.flows.flow import FlowState
from windlass._core.flows.part import Tidings
from windlass._storage.memory.admin.admin import MemoryAdmin
from windlass._storage.memory.flows.flows import MemoryFlows
from windlass._storage.memory.flows.rows import FlowRows, MemoryFlow
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.protocol.flows import FlowCounts
from windlass._storage.protocol.lists.job_list import JobFilter, Page
from windlass.testing.conformance import FlowCountConformance, FlowJobConformance


@fails(FlowCountConformance.test_flows_are_counted_by_state)
class CancelledIsFailed(MemoryFlows):
    """A cancelled flow counts as a failed one."""

    async def counts(self, *, cap: int) -> FlowCounts:
        found = await super().counts(cap=cap)
        return replace(found, failed=found.failed + found.cancelled, cancelled=0)


@fails(FlowCountConformance.test_a_flow_that_runs_again_counts_as_running)
class EndsOnce(FlowRows):
    """A flow that runs again counts by its first end."""

    def _end(self, flow: MemoryFlow, end: Tidings, now: datetime) -> None:
        if end.over:
            super()._end(flow, end, now)


@fails(FlowCountConformance.test_blocked_jobs_are_counted_until_they_are_placed)
class CountsWhatIsOpen(MemoryFlows):
    """Jobs count as blocked until they end."""

    async def counts(self, *, cap: int) -> FlowCounts:
        parts = [part for flow in self._db.flows.by_id.values() for part in flow.parts]
        found = await super().counts(cap=cap)
        return replace(found, blocked=min(sum(part.counts.open for part in parts), cap))


@fails(FlowCountConformance.test_the_oldest_flow_is_the_running_one_that_was_started_first)
class EndedIsOldest(MemoryFlows):
    """A flow that has ended counts as the oldest."""

    async def counts(self, *, cap: int) -> FlowCounts:
        flows = self._db.flows.by_id.values()
        oldest = min((flow.created_at for flow in flows), default=None)
        return replace(await super().counts(cap=cap), oldest=oldest)


@fails(FlowCountConformance.test_no_number_of_flows_is_counted_further_than_the_cap)
class CountsAll(MemoryFlows):
    """Every flow is counted, however many there are."""

    async def counts(self, *, cap: int) -> FlowCounts:
        return replace(await super().counts(cap=10**9), cap=cap)


@fails(FlowCountConformance.test_a_flow_whose_deletion_has_begun_is_not_counted)
class CountsTheDeleted(MemoryFlows):
    """A deleted flow is still counted."""

    async def prune(self, *, state: FlowState, older_than: timedelta, limit: int) -> int:
        return 0


# --- lists of jobs ------------------------------------------------------------------------------


@fails(
    FlowJobConformance.test_the_jobs_of_a_flow_are_listed_by_their_flow,
    FlowJobConformance.test_a_flow_narrows_together_with_other_fields,
)
class IgnoresTheFlow(MemoryAdmin):
    """The flow of a job does not narrow."""

    async def find(self, wanted: JobFilter, *, limit: int) -> Page:
        return await super().find(replace(wanted, flow=None), limit=limit)


@fails(FlowJobConformance.test_a_job_that_a_member_added_is_a_job_of_the_flow)
class ListsWhatWasGiven(MemoryAdmin):
    """Jobs that members added are left out."""

    def _matches(self, row: JobRow, wanted: JobFilter) -> bool:
        is_added = row.flow is not None and row.flow.added
        return super()._matches(row, wanted) and not is_added


@fails(FlowJobConformance.test_the_jobs_of_a_flow_whose_deletion_has_begun_are_not_listed_by_it)
class DeletesTheFlowAlone(MemoryFlows):
    """The jobs of a deleted flow stay."""

    def _delete(self, flow: MemoryFlow) -> int:
        self._db.flows.remove(flow)
        return 1
