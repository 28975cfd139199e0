"""Stores that retry flows, or cancel expired ones, in one go or by halves."""

from __future__ import annotations

from datetime import datetime

from tests.storage.mutants.table import fails
from windlass._storage.memory.flows.flows import MemoryFlows
from windlass._storage.memory.flows.rows import FlowRows, MemoryFlow, MemoryPart
from windlass._storage.memory.flows.settle import FlowRules
from windlass.testing.conformance import FlowPortionConformance


@fails(FlowPortionConformance.test_a_retry_brings_a_bounded_number_of_members_back_at_once)
class RetriesInOneGo(MemoryFlows):
    """A retry is one write, however many members there are."""

    def _retry_some(self, flow: MemoryFlow, limit: int, now: datetime) -> int:
        return super()._retry_some(flow, 10**9, now)


@fails(FlowPortionConformance.test_settling_brings_the_rest_of_a_retried_flow_back)
class ForgetsTheRest(MemoryFlows):
    """A retry ends with its first portion."""

    def _retry_some(self, flow: MemoryFlow, limit: int, now: datetime) -> int:
        met = super()._retry_some(flow, limit, now)
        self._db.flows.retrying.clear()
        return met


@fails(FlowPortionConformance.test_nothing_of_a_retried_flow_ends_before_all_its_members_are_back)
class EndsBetweenPortions(FlowRows):
    """A part ends with the members that are back."""

    def spread(self, part: MemoryPart, now: datetime) -> None:
        flow, retry = part.flow, part.flow.retry
        flow.retry = None
        super().spread(part, now)
        flow.retry = retry


@fails(FlowPortionConformance.test_a_cancel_ends_a_retry_that_is_under_way)
class WaitsForTheRetry(FlowRules):
    """A cancelled flow waits for the members that its retry has not reached."""

    def cancel(self, flow: MemoryFlow, now: datetime) -> None:
        retry = flow.retry
        super().cancel(flow, now)
        flow.retry = retry


@fails(FlowPortionConformance.test_expired_flows_are_cancelled_in_portions)
class CancelsAllExpired(FlowRules):
    """One call cancels all flows that have expired."""

    def settle(self, limit: int, now: datetime) -> int:
        late = [flow for flow in self._db.flows.running() if not flow.cancelled]
        for flow in late:
            if flow.expires_at is not None and flow.expires_at <= now:
                self.cancel(flow, now)
        return super().settle(limit, now)
