"""Stores that start flows wrongly: too early, in pieces, twice, or without their options."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.flows.flow import NewFlow, PartKind
from windlass._core.job.job import FlowId, FlowPlace, NewJob
from windlass._storage.memory.admin.admin import MemoryAdmin
from windlass._storage.memory.flows.flows import MemoryFlows
from windlass._storage.memory.flows.rows import FlowRows, MemoryFlow, MemoryPart
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.io.rows import JobRow, expiry_of
from windlass._storage.protocol.flows import FlowGraph, Member, StartedFlow
from windlass.testing.conformance import FlowStartConformance


@fails(
    FlowStartConformance.test_parts_that_wait_for_nothing_start_and_the_others_are_blocked,
)
class PlacesEveryJob(MemoryFlows):
    """All jobs of a flow may start at once."""

    def _start(self, asked: NewFlow, now: datetime) -> StartedFlow:
        answer = super()._start(asked, now)
        for part in self._db.flows.by_id[asked.id].parts:
            for seq in [*part.blocked]:
                part.unblock(seq)
                self._db.unblock(self._db.rows[seq], now, now)
        return answer


@fails(FlowStartConformance.test_a_started_flow_is_found_with_its_parts_and_counts)
class CountsCallbacks(MemoryFlows):
    """Callbacks count for their flow."""

    async def graph(self, flow: FlowId) -> FlowGraph | None:
        found = await super().graph(flow)
        if found is None:
            return None
        total = sum(part.total for part in found.parts)
        return FlowGraph(replace(found.flow, total=total), found.parts)


@fails(FlowStartConformance.test_a_member_knows_its_place)
class KnowsTheFlowOnly(MemoryDatabase):
    """Every member is stored as one of the first part."""

    def add_member(self, asked: NewJob, place: FlowPlace, now: datetime) -> JobRow:
        return super().add_member(asked, replace(place, part=0), now)


@fails(FlowStartConformance.test_a_repeated_start_stores_nothing_more)
class AnswersRepeatsByKey(MemoryFlows):
    """A repeated start is answered like another flow with the same key."""

    def _stored(self, flow: NewFlow, now: datetime) -> StartedFlow | None:
        answer = super()._stored(flow, now)
        return None if answer is None else StartedFlow(answer.id, created=False)


@fails(FlowStartConformance.test_a_running_flow_with_the_same_key_is_the_answer)
class ForgetsKeys(FlowRows):
    """Flows are stored without their keys."""

    def add(self, asked: NewFlow, now: datetime) -> MemoryFlow:
        return super().add(replace(asked, key=None), now)


@fails(FlowStartConformance.test_a_held_key_of_a_job_refuses_the_whole_flow)
class StartsOneByOne(MemoryFlows):
    """The flows of a call are stored one by one."""

    async def start(self, flows: Sequence[NewFlow]) -> Sequence[StartedFlow]:
        answers: list[StartedFlow] = []
        for flow in flows:
            answers += await super().start([flow])
        return answers


@fails(FlowStartConformance.test_an_undefined_limit_refuses_the_whole_flow)
class LooksAtTheFirstLimits(MemoryFlows):
    """Only the limits of jobs that start at once must be defined."""

    async def start(self, flows: Sequence[NewFlow]) -> Sequence[StartedFlow]:
        return await super().start([_without_later_limits(flow) for flow in flows])


def _without_later_limits(flow: NewFlow) -> NewFlow:
    jobs = [
        (number, replace(job, limits=()) if flow.parts[number].after else job)
        for number, job in flow.jobs
    ]
    return replace(flow, jobs=jobs)


@fails(FlowStartConformance.test_a_stored_job_id_refuses_the_whole_flow)
class TakesStoredIds(MemoryFlows):
    """A job of a flow takes the place of a stored one with its id."""

    def _require_free(self, jobs: Sequence[NewJob], now: datetime) -> None:
        super()._require_free([job for job in jobs if job.id not in self._db.by_id], now)


@fails(FlowStartConformance.test_a_blocked_member_holds_its_key)
class TakesKeysLate(MemoryDatabase):
    """A blocked job holds no key."""

    def add_member(self, asked: NewJob, place: FlowPlace, now: datetime) -> JobRow:
        row = super().add_member(asked, place, now)
        self.free_key(row)
        return row


@fails(FlowStartConformance.test_workers_are_woken_for_the_first_parts)
class StartsInSilence(MemoryFlows):
    """No worker is woken for a new flow."""

    async def start(self, flows: Sequence[NewFlow]) -> Sequence[StartedFlow]:
        with self._db.moment() as now:
            return [self._start(flow, now) for flow in flows]


@fails(FlowStartConformance.test_the_first_parts_keep_delay_priority_and_limits)
class IgnoresDelays(MemoryDatabase):
    """A job whose turn has come is due at once."""

    def unblock(self, row: JobRow, since: datetime, now: datetime) -> None:
        super().unblock(row, since, now)
        self.stand(row, since, now)


@fails(FlowStartConformance.test_a_flow_without_jobs_has_ended_when_it_is_stored)
class EmptyPartsNeverEnd(FlowRows):
    """A part without jobs that waits for nothing does not end."""

    def spread(self, part: MemoryPart, now: datetime) -> None:
        if part.counts.total or part.asked.kind is not PartKind.JOBS:
            super().spread(part, now)


@fails(FlowStartConformance.test_members_come_in_pages_in_the_order_in_which_they_were_given)
class IgnoresTheCursor(MemoryFlows):
    """Every page of members is the first one."""

    async def members(
        self, flow: FlowId, part: int, *, after: int = 0, limit: int = 500
    ) -> Sequence[Member]:
        return await super().members(flow, part, limit=limit)


@fails(FlowStartConformance.test_members_tell_state_result_and_error)
class HidesResults(MemoryFlows):
    """Members come without their results."""

    async def members(
        self, flow: FlowId, part: int, *, after: int = 0, limit: int = 500
    ) -> Sequence[Member]:
        found = await super().members(flow, part, after=after, limit=limit)
        return [replace(one, result=None) for one in found]


@fails(FlowStartConformance.test_the_delay_and_expiry_of_a_blocked_job_count_from_its_turn)
class ExpiresWhileBlocked(MemoryDatabase):
    """The expiry of a blocked job counts from its flow's start."""

    def unblock(self, row: JobRow, since: datetime, now: datetime) -> None:
        super().unblock(row, since, now)
        row.expire(expiry_of(row.asked, row.created_at))


@fails(FlowStartConformance.test_a_member_whose_turn_comes_is_ordered_by_the_start_of_its_flow)
class QueuesUpAgain(MemoryDatabase):
    """A job whose turn comes waits behind all others."""

    def unblock(self, row: JobRow, since: datetime, now: datetime) -> None:
        super().unblock(row, now, now)


@fails(FlowStartConformance.test_of_flows_with_one_key_or_id_in_a_call_the_first_is_started)
class ChecksAllFlowsOfACall(MemoryFlows):
    """The jobs of flows that are not stored are checked, too."""

    def _new(self, flows: Sequence[NewFlow], now: datetime) -> list[NewFlow]:
        return [*flows]


@fails(FlowStartConformance.test_blocked_jobs_are_counted_and_found_as_scheduled)
class CountsBlockedAsReady(MemoryAdmin):
    """Blocked jobs count as ready."""

    def _counted_as(self, row: JobRow, now: datetime) -> str:
        return "ready" if row.blocked else super()._counted_as(row, now)
