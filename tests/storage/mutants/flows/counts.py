"""Stores that count flows wrongly."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.flows.flow import FlowState
from windlass._core.flows.part import Tidings
from windlass._storage.memory.flows.flows import MemoryFlows
from windlass._storage.memory.flows.rows import FlowRows, MemoryFlow
from windlass._storage.protocol.flows import FlowCounts
from windlass.testing.conformance import FlowCountConformance


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
