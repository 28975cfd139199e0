"""Stores that go wrong with jobs that members add to their flow."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from tests.storage.mutants.table import fails
from windlass._core.flows.part import MemberEnd
from windlass._core.job.job import FlowId, JobId, NewJob
from windlass._core.job.state import Verb
from windlass._core.job.transition import Transition
from windlass._storage.memory.flows.flows import MemoryFlows
from windlass._storage.memory.flows.rows import MemoryPart
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.memory.jobs.apply import ApplyRules
from windlass._storage.protocol.flows import Member
from windlass._storage.protocol.jobs import TransitionAnswer, Verdict
from windlass.testing.conformance import FlowAddedConformance


@fails(FlowAddedConformance.test_those_that_wait_for_a_member_wait_for_what_it_adds)
class AddedJobsAreOutside(ApplyRules):
    """What a member adds belongs to no flow."""

    def follow_all(self, row: JobRow, then: Sequence[NewJob], verb: Verb) -> None:
        self._following += [(job, None) for job in then]


@fails(FlowAddedConformance.test_what_an_added_job_adds_is_waited_for_at_any_depth)
class OnlyGivenJobsAdd(ApplyRules):
    """What an added job adds belongs to no flow."""

    def follow_all(self, row: JobRow, then: Sequence[NewJob], verb: Verb) -> None:
        if row.flow is not None and row.flow.added:
            self._following += [(job, None) for job in then]
        else:
            super().follow_all(row, then, verb)


@fails(FlowAddedConformance.test_a_failed_added_job_is_a_failure_of_its_part)
class AddedJobsMayFail(MemoryDatabase):
    """The failure of an added job counts as a success."""

    def _end_member(self, row: JobRow, ended: MemberEnd, now: datetime) -> None:
        if row.flow is not None and row.flow.added:
            ended = MemberEnd.SUCCEEDED
        super()._end_member(row, ended, now)


@fails(FlowAddedConformance.test_a_repeated_success_adds_once)
class ExpectsRepeatedJobs(ApplyRules):
    """The jobs of a repeated success are expected again, and never come."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        answer = super().end(transition, now)
        if answer.verdict is Verdict.REPEATED:
            row = self._db.by_id[transition.claim.job]
            self._db.part_of(row).expect(len(transition.then))
        return answer


@fails(FlowAddedConformance.test_an_added_job_whose_key_is_held_counts_for_nothing)
class ExpectsLeftOutJobs(MemoryDatabase):
    """A part waits for added jobs that were left out."""

    def join_later(self, job: JobId | None, part: MemoryPart, now: datetime) -> None:
        if job is not None:
            super().join_later(job, part, now)


@fails(FlowAddedConformance.test_a_cancelled_flow_takes_no_more_jobs)
class CancelledFlowsGrow(ApplyRules):
    """A member adds jobs though its flow was cancelled."""

    def follow_all(self, row: JobRow, then: Sequence[NewJob], verb: Verb) -> None:
        part = self._db.part_of(row)
        part.expect(len(then))
        self._following += [(job, part) for job in then]


@fails(FlowAddedConformance.test_an_added_job_that_comes_back_keeps_its_delay_and_its_expiry)
class ForgetsTimings(MemoryDatabase):
    """An added job that comes back starts at once, and never expires."""

    def unblock(self, row: JobRow, since: datetime, now: datetime) -> None:
        super().unblock(row, since, now)
        if row.flow is not None and row.flow.added:
            row.expire(None)
            self.stand(row, since, now)


@fails(FlowAddedConformance.test_the_follow_up_of_a_failure_is_no_member)
class FollowUpsAreMembers(ApplyRules):
    """What follows a failure belongs to the flow."""

    def follow_all(self, row: JobRow, then: Sequence[NewJob], verb: Verb) -> None:
        super().follow_all(row, then, Verb.SUCCEED)


@fails(FlowAddedConformance.test_results_of_a_part_are_those_of_the_jobs_that_were_given)
class ListsAddedJobs(MemoryFlows):
    """The jobs of a part include those that were added."""

    async def members(
        self, flow: FlowId, part: int, *, after: int = 0, limit: int = 500
    ) -> Sequence[Member]:
        members = self._db.flows.by_id[flow].parts[part].members
        rows = [self._db.rows[seq] for seq in members]
        return [Member(row.seq, row.asked.id, row.state, row.blocked) for row in rows]


@fails(FlowAddedConformance.test_an_added_job_whose_id_is_stored_counts_for_nothing)
class TakesJobsIn(MemoryDatabase):
    """A stored job joins the flow of a member that names its id."""

    def join_later(self, job: JobId | None, part: MemoryPart, now: datetime) -> None:
        stored = [row for row in self.rows.values() if row.asked.task == "stored"]
        super().join_later(stored[0].asked.id if job is None else job, part, now)


@fails(FlowAddedConformance.test_the_answer_names_the_jobs_that_were_not_stored)
class HidesWhatIsCancelled(ApplyRules):
    """The answer does not name the jobs that a cancelled flow refused."""

    def follow_all(self, row: JobRow, then: Sequence[NewJob], verb: Verb) -> None:
        super().follow_all(row, then, verb)
        self._left_out.clear()
