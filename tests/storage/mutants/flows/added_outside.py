"""Stores that go wrong with flows that are added from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.flows.flow import FlowState, NewFlow, NewPart, PartKind
from windlass._core.flows.part import Tidings
from windlass._core.job.job import FlowId
from windlass._storage.memory.admin.actions import MemoryActions
from windlass._storage.memory.flows.added import AddedFlows
from windlass._storage.memory.flows.flows import MemoryFlows
from windlass._storage.memory.flows.rows import FlowRows, MemoryFlow, MemoryPart
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.protocol.actions import ActionResult
from windlass._storage.protocol.flows import AddAnswer, Member
from windlass.errors import IdConflict
from windlass.testing.conformance import AddedOutsideConformance


class _Adding(MemoryFlows):
    """A store whose flows can be looked at."""

    def flow(self, wanted: FlowId) -> MemoryFlow:
        return self._db.flows.by_id[wanted]

    def end_of(self, wanted: FlowId) -> MemoryPart:
        (end,) = [one for one in self.flow(wanted).parts if one.asked.kind is PartKind.END]
        return end


@fails(AddedOutsideConformance.test_the_end_and_its_callbacks_wait_for_it)
class EndsWithoutIt(MemoryFlows):
    """The end does not count it."""

    async def add(self, flow: FlowId, new: NewFlow) -> AddAnswer:
        answer = await super().add(flow, new)
        for part in self._db.flows.by_id[flow].parts:
            part.gate.adding = 0
        return answer


@fails(AddedOutsideConformance.test_its_first_jobs_are_placed_by_settling)
class NeverPlaced(AddedFlows):
    """No part of it is looked at before another change."""

    def join(self, asked: NewFlow, part: MemoryPart, now: datetime) -> None:
        super().join(asked, part, now)
        for new in part.flow.parts:
            self._db.flows.due.pop((part.flow.asked.id, new.number), None)


@fails(AddedOutsideConformance.test_nothing_that_is_there_waits_for_it)
class CountsForTheFirstPart(AddedFlows):
    """It counts for the first part of the running flow, as if a job had added it."""

    def join(self, asked: NewFlow, part: MemoryPart, now: datetime) -> None:
        super().join(asked, part.flow.parts[0], now)


@fails(AddedOutsideConformance.test_a_failure_of_it_fails_the_flow)
class ItMayFail(FlowRows):
    """The end counts no failure of it."""

    def _end(self, flow: MemoryFlow, end: Tidings, now: datetime) -> None:
        broken = any(part.gate.broken for part in flow.parts if part.asked.kind is PartKind.END)
        super()._end(flow, end._replace(broken=broken), now)


@fails(AddedOutsideConformance.test_a_failure_elsewhere_is_told_after_its_end)
class FailsAtOnce(FlowRows):
    """A failure ends the flow before all of it has ended."""

    def _end(self, flow: MemoryFlow, end: Tidings, now: datetime) -> None:
        super()._end(flow, end._replace(over=end.over or end.broken), now)


@fails(AddedOutsideConformance.test_an_empty_one_is_over_at_once)
class EmptyOnesStay(_Adding):
    """One without jobs never ends."""

    async def add(self, flow: FlowId, new: NewFlow) -> AddAnswer:
        answer = await super().add(flow, new)
        if not new.jobs:
            self.end_of(flow).expect_flow()
        return answer


@fails(AddedOutsideConformance.test_several_are_waited_for)
class TakesOne(_Adding):
    """Only one is taken."""

    async def add(self, flow: FlowId, new: NewFlow) -> AddAnswer:
        if any(part.asked.added for part in self.flow(flow).parts):
            return AddAnswer.REPEATED
        return await super().add(flow, new)


@fails(AddedOutsideConformance.test_a_retry_runs_what_failed_in_it)
class RetriesOthers(MemoryFlows):
    """A retry stays with the parts that the flow was started with."""

    def _retry(self, flow: MemoryFlow, now: datetime) -> ActionResult:
        parts = flow.parts
        flow.parts = parts[: len(flow.asked.parts)]
        answer = super()._retry(flow, now)
        flow.parts = parts
        return answer


@fails(AddedOutsideConformance.test_a_requeue_in_it_lets_the_flow_run_again)
class KeepsItEnded(MemoryActions):
    """Its jobs are not requeued."""

    def requeue_one(self, row: JobRow, now: datetime) -> ActionResult:
        if row.asked.task == "store":
            return ActionResult.WRONG_STATE
        return super().requeue_one(row, now)


@fails(AddedOutsideConformance.test_a_cancel_reaches_it)
class CancelsOthers(AddedFlows):
    """A cancel does not reach it: its parts are of no kind that is cancelled."""

    def join(self, asked: NewFlow, part: MemoryPart, now: datetime) -> None:
        parts: Sequence[NewPart] = [
            replace(one, kind=PartKind.CALLBACK) if one.kind is PartKind.JOBS else one
            for one in asked.parts
        ]
        super().join(replace(asked, parts=tuple(parts)), part, now)


@fails(AddedOutsideConformance.test_a_flow_that_has_ended_takes_none)
class TakesAfterTheEnd(_Adding):
    """A flow that has ended runs again."""

    async def add(self, flow: FlowId, new: NewFlow) -> AddAnswer:
        self.flow(flow).state = FlowState.RUNNING
        return await super().add(flow, new)


@fails(AddedOutsideConformance.test_one_that_meets_the_end_is_counted_or_refused)
class LooksBeforeItAdds(_Adding):
    """What was seen of the flow is not looked at again when others have written meanwhile."""

    async def add(self, flow: FlowId, new: NewFlow) -> AddAnswer:
        running = self.flow(flow).state is FlowState.RUNNING
        for _ in range(3):
            await asyncio.sleep(0)  # others write
        answer = await super().add(flow, new)
        return AddAnswer.ADDED if running else answer


@fails(AddedOutsideConformance.test_a_flow_that_is_being_cancelled_takes_none)
class TakesWhileItIsCancelled(_Adding):
    """A cancel is not looked at."""

    async def add(self, flow: FlowId, new: NewFlow) -> AddAnswer:
        found = self.flow(flow)
        cancelled, found.cancelled = found.cancelled, False
        answer = await super().add(flow, new)
        found.cancelled = cancelled
        return answer


@fails(AddedOutsideConformance.test_a_flow_past_its_expiry_takes_none)
class TakesPastTheExpiry(_Adding):
    """The expiry is not looked at."""

    async def add(self, flow: FlowId, new: NewFlow) -> AddAnswer:
        self.flow(flow).expires_at = None
        return await super().add(flow, new)


@fails(AddedOutsideConformance.test_a_sealed_flow_takes_none)
class TakesWhileItIsSealed(_Adding):
    """A flow that is not whole takes others."""

    async def add(self, flow: FlowId, new: NewFlow) -> AddAnswer:
        self.flow(flow).sealed = False
        return await super().add(flow, new)


@fails(AddedOutsideConformance.test_a_flow_that_is_not_stored_takes_none)
class SaysEndedToAll(MemoryFlows):
    """A flow that is not stored is called ended."""

    async def add(self, flow: FlowId, new: NewFlow) -> AddAnswer:
        answer = await super().add(flow, new)
        return AddAnswer.ENDED if answer is AddAnswer.UNKNOWN else answer


@fails(AddedOutsideConformance.test_a_repeated_call_adds_it_once)
class RefusesRepeatsAfterTheEnd(_Adding):
    """A repeated call is told of the end, and not that it was added."""

    async def add(self, flow: FlowId, new: NewFlow) -> AddAnswer:
        if self.flow(flow).state is not FlowState.RUNNING:
            return AddAnswer.ENDED
        return await super().add(flow, new)


@fails(
    AddedOutsideConformance.test_an_id_that_is_stored_is_refused,
    AddedOutsideConformance.test_one_that_is_added_to_two_flows_at_once_joins_one_of_them,
)
class CallsConflictsRepeated(MemoryFlows):
    """An id that is stored elsewhere is taken for a repeated call."""

    async def add(self, flow: FlowId, new: NewFlow) -> AddAnswer:
        try:
            return await super().add(flow, new)
        except IdConflict:
            return AddAnswer.REPEATED


@fails(AddedOutsideConformance.test_an_undefined_limit_is_refused)
class TakesUndefinedLimits(MemoryFlows):
    """No limit of its jobs is looked for."""

    async def add(self, flow: FlowId, new: NewFlow) -> AddAnswer:
        jobs = [(number, replace(job, limits=())) for number, job in new.jobs]
        return await super().add(flow, replace(new, jobs=jobs))


@fails(AddedOutsideConformance.test_its_jobs_are_found_by_its_own_id)
class FindsFlowsThatWereStarted(MemoryFlows):
    """It is not found by its own id."""

    async def members(
        self, flow: FlowId, part: int, *, after: int = 0, limit: int = 500
    ) -> Sequence[Member]:
        if flow in self._db.flows.added:
            return []
        return await super().members(flow, part, after=after, limit=limit)
