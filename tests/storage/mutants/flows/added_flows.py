"""Stores that go wrong with flows that jobs add."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.flows.flow import AddedFlow, NewFlow, NewPart, PartKind
from windlass._core.job.job import FlowId
from windlass._core.job.transition import Transition
from windlass._storage.memory.flows.added import AddedFlows
from windlass._storage.memory.flows.flows import MemoryFlows
from windlass._storage.memory.flows.rows import FlowRows, MemoryFlow, MemoryPart
from windlass._storage.memory.flows.settle import FlowRules
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.memory.jobs.apply import ApplyRules
from windlass._storage.protocol.actions import ActionResult
from windlass._storage.protocol.flows import FlowGraph, Member
from windlass._storage.protocol.jobs import TransitionAnswer, Verdict
from windlass.testing.conformance import AddedFlowConformance


@fails(AddedFlowConformance.test_those_that_wait_for_a_member_wait_for_the_flow_it_adds)
class AddedFlowsAreNotWaitedFor(FlowRows):
    """The part of the job that adds a flow is over without it."""

    def append(self, flow: MemoryFlow, parts: Sequence[NewPart], ranks: Sequence[int]) -> None:
        super().append(flow, parts, ranks)
        for part in flow.parts:
            part.gate.adding = 0


@fails(AddedFlowConformance.test_a_flow_that_an_added_flow_adds_is_waited_for)
class WaitsForOneLevel(FlowRows):
    """What a job of an added flow adds is not waited for."""

    def append(self, flow: MemoryFlow, parts: Sequence[NewPart], ranks: Sequence[int]) -> None:
        super().append(flow, parts, ranks)
        for part in flow.parts:
            part.gate.adding = 0 if part.rank < 0 else part.gate.adding


@fails(AddedFlowConformance.test_a_flow_ends_after_the_flow_that_its_last_job_adds)
class EndsBeforeAddedFlows(ApplyRules):
    """An added flow is counted after the end of the job that adds it."""

    def expect_flows(self, row: JobRow, flows: Sequence[NewFlow]) -> None:
        super().expect_flows(row, flows)
        if row.flow is not None:
            self._db.part_of(row).gate.adding = 0

    def add_flow(self, flow: NewFlow, part: MemoryPart | None, now: datetime) -> None:
        ended = part is not None and part.flow.ended_at is not None
        if part is not None:
            part.gate.adding += 1
        super().add_flow(flow, part, now)
        assert not ended, "it has ended, and told so"


@fails(AddedFlowConformance.test_one_success_adds_several_flows)
class TakesTheFirstFlow(ApplyRules):
    """Of the flows of a success one is added."""

    def expect_flows(self, row: JobRow, flows: Sequence[NewFlow]) -> None:
        super().expect_flows(row, flows[:1])


@fails(AddedFlowConformance.test_an_empty_flow_is_over_at_once)
class EmptyFlowsStayOpen(AddedFlows):
    """An added flow without jobs never ends."""

    def join(self, asked: NewFlow, part: MemoryPart, now: datetime) -> None:
        super().join(asked, part, now)
        if asked.parts[0].kind is PartKind.END:
            part.gate.adding += 1


@fails(AddedFlowConformance.test_a_failure_in_an_added_flow_is_one_of_its_part)
class AddedFlowsMayFail(FlowRows):
    """The failure of an added flow is not counted."""

    def spread(self, part: MemoryPart, now: datetime) -> None:
        super().spread(part, now)
        for counted in part.flow.parts:
            if counted.gate.added_broken > 0:
                counted.gate.added_broken = 0
                super().spread(counted, now)


@fails(AddedFlowConformance.test_a_failure_that_an_added_flow_tolerates_is_none)
class NothingIsTolerated(AddedFlows):
    """Every failure in an added flow is one of the flow."""

    def join(self, asked: NewFlow, part: MemoryPart, now: datetime) -> None:
        parts = tuple(
            replace(one, after=tuple(replace(edge, strict=True) for edge in one.after))
            if one.kind is PartKind.END
            else one
            for one in asked.parts
        )
        super().join(replace(asked, parts=parts), part, now)


@fails(AddedFlowConformance.test_callbacks_of_an_added_flow_follow_its_own_end)
class UnneededPartsCount(FlowRows):
    """An added flow whose last part was not needed was not needed itself."""

    def append(self, flow: MemoryFlow, parts: Sequence[NewPart], ranks: Sequence[int]) -> None:
        as_joins = [
            replace(part, kind=PartKind.JOIN) if part.kind is PartKind.ADDED else part
            for part in parts
        ]
        super().append(flow, as_joins, ranks)


@fails(AddedFlowConformance.test_a_retry_runs_what_failed_in_an_added_flow)
class RetriesGivenParts(MemoryFlows):
    """A retry leaves the parts of added flows as they are."""

    def _retry(self, flow: MemoryFlow, now: datetime) -> ActionResult:
        every, flow.parts = flow.parts, [part for part in flow.parts if part.rank >= 0]
        try:
            return super()._retry(flow, now)
        finally:
            flow.parts = every


@fails(AddedFlowConformance.test_a_requeue_in_an_added_flow_reopens_what_follows)
class AddedFlowsEndForGood(FlowRows):
    """An added flow that runs again is not told."""

    def spread(self, part: MemoryPart, now: datetime) -> None:
        added = part.flow.parts[-1].asked.added
        before = None if added is None else part.flow.parts[added.counts_for].told
        super().spread(part, now)
        if added is not None and before is not None and before.over:
            counted = part.flow.parts[added.counts_for]
            counted.gate.adding = 0
            super().spread(counted, now)


@fails(AddedFlowConformance.test_what_an_added_flow_blocks_again_is_not_passed)
class SettlesByNumber(FlowRows):
    """Parts are settled by their numbers: those of added flows come last."""

    def append(self, flow: MemoryFlow, parts: Sequence[NewPart], ranks: Sequence[int]) -> None:
        first = len(flow.parts)
        super().append(flow, parts, range(first, first + len(ranks)))


@fails(AddedFlowConformance.test_a_cancel_reaches_an_added_flow)
class CancelsGivenParts(FlowRules):
    """A cancel does not reach the parts of added flows."""

    def _sweep(self, flow: MemoryFlow, limit: int, now: datetime) -> int:
        every, flow.parts = flow.parts, [part for part in flow.parts if part.rank >= 0]
        try:
            return super()._sweep(flow, limit, now)
        finally:
            flow.parts = every


@fails(AddedFlowConformance.test_an_added_flow_expires_with_its_flow)
class AddedFlowsDoNotExpire(AddedFlows):
    """A flow that others were added to has no end in time."""

    def join(self, asked: NewFlow, part: MemoryPart, now: datetime) -> None:
        super().join(asked, part, now)
        part.flow.expires_at = None


@fails(AddedFlowConformance.test_a_cancelled_flow_takes_no_flow)
class CancelledFlowsTakeFlows(AddedFlows):
    """A member adds a flow though its own was cancelled."""

    def _is_left_out(self, asked: NewFlow, part: MemoryPart | None) -> bool:
        return super()._is_left_out(asked, None)


@fails(AddedFlowConformance.test_a_repeated_success_adds_its_flow_once)
class RepeatsAddedFlows(ApplyRules):
    """A repeated success counts its flow again."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        answer = super().end(transition, now)
        if answer.verdict is Verdict.REPEATED:
            self._db.part_of(self._db.by_id[transition.claim.job]).expect_flow()
        return answer


@fails(AddedFlowConformance.test_a_flow_with_a_stored_job_is_left_out)
class AddsTheRestOfAFlow(AddedFlows):
    """Of a flow with a stored job the others are added."""

    def _is_left_out(self, asked: NewFlow, part: MemoryPart | None) -> bool:
        return super()._is_left_out(replace(asked, jobs=asked.jobs[:1]), part)


@fails(AddedFlowConformance.test_jobs_of_an_added_flow_are_found_by_its_own_id)
class ForgetsAddedIds(MemoryFlows):
    """The id of an added flow names nothing."""

    async def members(
        self, flow: FlowId, part: int, *, after: int = 0, limit: int = 500
    ) -> Sequence[Member]:
        if flow in self._db.flows.added:
            return []
        return await super().members(flow, part, after=after, limit=limit)


@fails(AddedFlowConformance.test_a_part_tells_what_it_was_added_as)
class HidesWhereItWasAdded(MemoryFlows):
    """The join of an added flow does not say for which part it counts."""

    async def graph(self, flow: FlowId) -> FlowGraph | None:
        found = await super().graph(flow)
        if found is None:
            return None
        return FlowGraph(
            found.flow,
            [replace(part, added=_elsewhere(part.added)) for part in found.parts],
        )


def _elsewhere(added: AddedFlow | None) -> AddedFlow | None:
    return None if added is None else replace(added, counts_for=added.counts_for + 1)


@fails(AddedFlowConformance.test_an_added_flow_is_deleted_with_its_flow)
class KeepsAddedParts(MemoryFlows):
    """The jobs of added flows outlive their flow."""

    def _delete(self, flow: MemoryFlow) -> int:
        for part in flow.parts:
            part.members = [] if part.rank < 0 else part.members
        return super()._delete(flow)


@fails(AddedFlowConformance.test_outside_a_flow_a_success_starts_one)
class StartsNothing(ApplyRules):
    """Only members add flows."""

    def expect_flows(self, row: JobRow, flows: Sequence[NewFlow]) -> None:
        if row.flow is not None:
            super().expect_flows(row, flows)


@fails(AddedFlowConformance.test_a_flow_whose_key_is_held_is_left_out)
class IgnoresKeysOfAddedFlows(AddedFlows):
    """A success starts a flow though another one holds its key."""

    def _is_left_out(self, asked: NewFlow, part: MemoryPart | None) -> bool:
        return super()._is_left_out(replace(asked, key=None), part)


@fails(AddedFlowConformance.test_a_callback_starts_a_flow_of_its_own)
class CallbacksReopenTheirFlow(AddedFlows):
    """What a callback adds joins the flow that has ended."""

    def _start(self, asked: NewFlow, now: datetime) -> None:
        if asked.name == "two steps":
            flow = next(iter(self._db.flows.by_id.values()))
            self.join(asked, flow.parts[0], now)
        else:
            super()._start(asked, now)


@fails(AddedFlowConformance.test_a_flow_with_an_undefined_limit_is_refused_with_the_success)
class EndsBeforeItLooks(ApplyRules):
    """Undefined limits of added flows are noticed by no check."""

    def end_all(self, transitions: Sequence[Transition], now: datetime) -> list[TransitionAnswer]:
        return super().end_all([replace(one, flows=()) for one in transitions], now)
