"""Stores that go wrong with added flows that wait for parts of the running one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.flows.flow import Edge, NewFlow, NewPart, PartKind
from windlass._core.flows.part import Decision, Gate
from windlass._core.job.job import FlowId
from windlass._core.job.state import State
from windlass._storage.memory.admin.actions import MemoryActions
from windlass._storage.memory.flows.added import AddedFlows
from windlass._storage.memory.flows.flows import MemoryFlows
from windlass._storage.memory.flows.rows import FlowRows, MemoryFlow, MemoryPart
from windlass._storage.memory.flows.settle import FlowRules
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.protocol.actions import ActionResult
from windlass._storage.protocol.flows import AddAnswer, FlowGraph
from windlass.testing.conformance import AddedAfterConformance


@fails(AddedAfterConformance.test_its_first_jobs_wait_for_parts_that_are_there)
class WaitsForNothing(MemoryFlows):
    """What it waits for is forgotten."""

    async def add(self, flow: FlowId, new: NewFlow) -> AddAnswer:
        return await super().add(flow, replace(new, after=()))


@fails(AddedAfterConformance.test_a_part_that_has_ended_is_not_waited_for)
class WaitsForTheEnded(FlowRows):
    """What the parts that are there have told is not looked at."""

    def append(self, flow: MemoryFlow, parts: Sequence[NewPart], ranks: Sequence[int]) -> None:
        super().append(flow, parts, ranks)
        for part in flow.parts[-len(parts) :]:
            part.gate = Gate(waiting=len(part.asked.after))


@fails(AddedAfterConformance.test_a_part_that_has_failed_stops_its_jobs)
class ForgetsFailures(FlowRows):
    """A part that has failed counts as one that has ended."""

    def append(self, flow: MemoryFlow, parts: Sequence[NewPart], ranks: Sequence[int]) -> None:
        super().append(flow, parts, ranks)
        for part in flow.parts[-len(parts) :]:
            part.gate = Gate(waiting=part.gate.waiting)


class _Feeding(AddedFlows):
    """A store that changes what the parts that were there tell to the new ones."""

    def feed(self, numbers: list[tuple[int, bool]], first: int) -> list[tuple[int, bool]]:
        return numbers

    def join(self, asked: NewFlow, part: MemoryPart, now: datetime) -> None:
        first = len(part.flow.parts)
        super().join(asked, part, now)
        for before in part.flow.parts[:first]:
            before.feeds = self.feed(before.feeds, first)


@fails(AddedAfterConformance.test_a_later_failure_stops_its_jobs)
class TellsEndsAlone(_Feeding):
    """A later failure does not matter to it."""

    def feed(self, numbers: list[tuple[int, bool]], first: int) -> list[tuple[int, bool]]:
        return [(number, strict and number < first) for number, strict in numbers]


@fails(AddedAfterConformance.test_where_only_the_end_counts_a_failure_does_not_matter)
class AllIsStrict(MemoryFlows):
    """A failure always matters."""

    async def add(self, flow: FlowId, new: NewFlow) -> AddAnswer:
        edges = tuple(Edge(edge.part) for edge in new.after)
        return await super().add(flow, replace(new, after=edges))


@fails(AddedAfterConformance.test_it_waits_for_each_of_several)
class WaitsForTheFirst(MemoryFlows):
    """It waits for one part alone."""

    async def add(self, flow: FlowId, new: NewFlow) -> AddAnswer:
        return await super().add(flow, replace(new, after=new.after[:1]))


@fails(AddedAfterConformance.test_it_waits_for_a_group_as_one)
class WaitsForJobs(MemoryFlows):
    """It waits for parts with jobs alone."""

    async def add(self, flow: FlowId, new: NewFlow) -> AddAnswer:
        parts = self._db.flows.by_id[flow].parts
        edges = [one for one in new.after if parts[one.part].asked.kind is PartKind.JOBS]
        return await super().add(flow, replace(new, after=tuple(edges)))


@fails(AddedAfterConformance.test_all_its_first_parts_wait)
class OneOfThemWaits(AddedFlows):
    """Of its first parts only one waits."""

    def join(self, asked: NewFlow, part: MemoryPart, now: datetime) -> None:
        first = len(part.flow.parts)
        super().join(asked, part, now)
        for new in part.flow.parts[first + 1 :]:
            if asked.after and new.asked.after == asked.after:
                new.gate = Gate()
                self._db.flows.spread(new, now)


@fails(AddedAfterConformance.test_one_without_jobs_ends_with_what_it_waits_for)
class EmptyOnesStay(_Feeding):
    """One without jobs learns nothing more."""

    def feed(self, numbers: list[tuple[int, bool]], first: int) -> list[tuple[int, bool]]:
        return [(number, strict) for number, strict in numbers if number < first]


@fails(AddedAfterConformance.test_after_a_part_that_is_not_needed_it_is_not_needed)
class RunsAfterSkippedParts(FlowRows):
    """A part that was not needed counts as one that has ended."""

    def append(self, flow: MemoryFlow, parts: Sequence[NewPart], ranks: Sequence[int]) -> None:
        super().append(flow, parts, ranks)
        for part in flow.parts[-len(parts) :]:
            part.gate.unneeded = 0


@fails(AddedAfterConformance.test_a_retry_runs_it_behind_what_it_waits_for)
class RunsWithTheRetry(FlowRules):
    """A retry places its first jobs at once."""

    def settle_part(self, part: MemoryPart, limit: int, now: datetime) -> int:
        done = super().settle_part(part, limit, now)
        if part.asked.name == "load" and part.decision is Decision.WAIT:
            part.gate = Gate()
            self._db.flows.look(part)
        return done


@fails(AddedAfterConformance.test_a_requeue_of_what_it_waits_for_brings_it_back)
class StaysStopped(_Feeding):
    """What waits for a requeued job stays stopped: it learns of failures alone."""

    def join(self, asked: NewFlow, part: MemoryPart, now: datetime) -> None:
        super().join(asked, part, now)
        for new in part.flow.parts:
            if new.asked.after == asked.after:
                new.gate = _OnlyFailures(waiting=new.gate.waiting)


class _OnlyFailures(Gate):
    """Counts failures, and never takes one back."""

    def learn(self, before: object, after: object, *, strict: bool) -> None:
        broken = self.broken
        super().learn(before, after, strict=strict)  # type: ignore[arg-type]
        self.broken = max(broken, self.broken)


@fails(AddedAfterConformance.test_a_requeued_job_of_it_waits_again)
class RefusesItsJobs(MemoryActions):
    """Jobs that wait for parts of another flow are not requeued."""

    def requeue_one(self, row: JobRow, now: datetime) -> ActionResult:
        if row.asked.task == "load" and row.state is State.FAILED:
            return ActionResult.WRONG_STATE
        return super().requeue_one(row, now)


@fails(AddedAfterConformance.test_a_cancel_reaches_it)
class CancelsOthers(AddedFlows):
    """A cancel does not reach it: its parts are of no kind that is cancelled."""

    def join(self, asked: NewFlow, part: MemoryPart, now: datetime) -> None:
        parts: Sequence[NewPart] = [
            replace(one, kind=PartKind.CALLBACK) if one.kind is PartKind.JOBS else one
            for one in asked.parts
        ]
        super().join(replace(asked, parts=tuple(parts)), part, now)


@fails(AddedAfterConformance.test_the_graph_shows_what_it_waits_for)
class HidesOthers(MemoryFlows):
    """Only what it waits for in its own flow is shown."""

    async def graph(self, flow: FlowId) -> FlowGraph | None:
        found = await super().graph(flow)
        if found is None:
            return None
        given = len(self._db.flows.by_id[flow].asked.parts)
        near = [tuple(e for e in one.after if e.part >= given) for one in found.parts]
        parts = [replace(one, after=some) for one, some in zip(found.parts, near, strict=True)]
        return FlowGraph(found.flow, parts)


@fails(AddedAfterConformance.test_one_that_meets_the_end_of_what_it_waits_for_runs)
class LooksBeforeItAdds(MemoryFlows):
    """What was seen of the parts is not looked at again when others have written meanwhile."""

    async def add(self, flow: FlowId, new: NewFlow) -> AddAnswer:
        parts = self._db.flows.by_id[flow].parts
        seen = {edge.part: parts[edge.part].told for edge in new.after}
        for _ in range(3):
            await asyncio.sleep(0)  # others write
        told = {number: parts[number].told for number in seen}
        for number, before in seen.items():
            parts[number].told = before
        answer = await super().add(flow, new)
        for number, after in told.items():
            parts[number].told = after
        return answer
