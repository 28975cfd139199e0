"""Stores that retry flows, or cancel expired ones, in one go or by halves."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from tests.storage.mutants.table import fails
from windlass._core.flows.flow import NewPart
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


@fails(FlowPortionConformance.test_a_retry_reaches_all_members_of_an_added_flow)
class PassesAddedFlows(MemoryFlows):
    """A retry begins with the first part that the flow was started with."""

    def _retry_some(self, flow: MemoryFlow, limit: int, now: datetime) -> int:
        flow.note_retry(max(flow.retry or (0, 0), (0, 0)))
        return super()._retry_some(flow, limit, now)


@fails(FlowPortionConformance.test_a_retry_reaches_an_added_flow_before_the_parts_that_wait_for_it)
class RetriesByNumber(MemoryFlows):
    """A retry takes the parts in the order in which they were stored."""

    def _retry_some(self, flow: MemoryFlow, limit: int, now: datetime) -> int:
        for part in flow.parts:
            part.rank = part.number
        flow.note_retry(max(flow.retry or (0, 0), (0, 0)))
        return super()._retry_some(flow, limit, now)


@fails(FlowPortionConformance.test_a_flow_that_is_added_during_a_retry_leaves_the_retry_alone)
class AddedFlowsEndRetries(FlowRows):
    """A retry ends when a flow is added."""

    def append(self, flow: MemoryFlow, parts: Sequence[NewPart], ranks: Sequence[int]) -> None:
        super().append(flow, parts, ranks)
        flow.note_retry(None)


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


@fails(FlowPortionConformance.test_a_cancel_ends_limited_members_in_portions_and_none_starts)
class CancelsInOneGo(FlowRules):
    """A cancel reaches all members in one write."""

    def _sweep(self, flow: MemoryFlow, limit: int, now: datetime) -> int:
        return super()._sweep(flow, 10**9, now)
