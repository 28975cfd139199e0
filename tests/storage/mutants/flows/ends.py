"""Stores that miscount the ends of members, or tell the parts after them wrongly."""

from __future__ import annotations

from datetime import datetime

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.flows.flow import Edge, FlowState, NewFlow, NewPart, PartKind
from windlass._core.flows.part import Decision, MemberEnd, Tidings
from windlass._core.job.state import State, Verb
from windlass._core.job.transition import Transition
from windlass._storage.memory.flows.rows import FlowRows, MemoryFlow, MemoryPart
from windlass._storage.memory.flows.settle import FlowRules
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.memory.jobs.apply import ApplyRules
from windlass._storage.protocol.jobs import TransitionAnswer, Verdict
from windlass.testing.conformance import (
    FlowEndConformance,
    FlowFailureConformance,
    FlowStartConformance,
)


@fails(
    FlowEndConformance.test_the_last_end_opens_the_next_part,
    FlowEndConformance.test_the_flow_ends_with_its_last_member,
)
class OneEndEndsThePart(MemoryDatabase):
    """A part ends with the first of its jobs."""

    def _end_member(self, row: JobRow, ended: MemberEnd, now: datetime) -> None:
        self.part_of(row).counts.open = 1
        super()._end_member(row, ended, now)


@fails(FlowEndConformance.test_a_chain_runs_link_by_link)
class SettlesNothing(FlowRules):
    """Parts that are due stay as they are."""

    def settle(self, limit: int, now: datetime) -> int:
        return 0


@fails(FlowEndConformance.test_a_part_waits_for_every_part_before_it)
class WaitsForOnePart(FlowRows):
    """A part waits for the first end of those before it."""

    def add(self, asked: NewFlow, now: datetime) -> MemoryFlow:
        flow = super().add(asked, now)
        for part in flow.parts:
            part.gate.waiting = min(part.gate.waiting, 1)
        return flow


@fails(
    FlowEndConformance.test_a_join_stands_for_all_parts_of_a_group,
    FlowStartConformance.test_a_part_without_jobs_lets_the_next_one_start,
)
class PassesNothingOn(FlowRows):
    """Parts without jobs do not pass on what they learn."""

    def spread(self, part: MemoryPart, now: datetime) -> None:
        before, after = part.told, part.tidings
        part.tell(after)
        for number, strict in part.feeds:
            follower = part.flow.parts[number]
            follower.learn(before, after, strict=strict)
            self.look(follower)


@fails(FlowEndConformance.test_callbacks_wait_for_the_end_and_are_not_counted)
class CallbacksFailTheFlow(MemoryDatabase):
    """A callback that fails makes its flow a failed one."""

    def _end_member(self, row: JobRow, ended: MemberEnd, now: datetime) -> None:
        super()._end_member(row, ended, now)
        part = self.part_of(row)
        if part.asked.kind is PartKind.CALLBACK and ended is MemberEnd.FAILED:
            part.flow.end(FlowState.FAILED, now)


@fails(FlowEndConformance.test_a_retry_is_no_end)
class CountsRetries(ApplyRules):
    """A run that will be tried again counts as an end."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().accept(row, transition, verb, now)
        if verb is Verb.RETRY:
            part = self._db.part_of(row)
            part.count(row.seq, MemberEnd.FAILED, 1)
            self._db.flows.spread(part, now)


@fails(FlowEndConformance.test_a_repeated_end_counts_once)
class CountsRepeats(ApplyRules):
    """A repeated end counts again."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        answer = super().end(transition, now)
        if answer.verdict is Verdict.REPEATED:
            count_success(self._db, transition, now)
        return answer


@fails(FlowEndConformance.test_an_end_that_is_refused_counts_nothing)
class CountsBeforeTheFence(ApplyRules):
    """A late end counts though it is refused."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        answer = super().end(transition, now)
        if answer.verdict is Verdict.REFUSED:
            count_success(self._db, transition, now)
        return answer


def count_success(database: MemoryDatabase, transition: Transition, now: datetime) -> None:
    """Count the success of a claim, whatever has become of it."""
    row = database.by_id[transition.claim.job]
    part = database.part_of(row)
    part.count(row.seq, MemberEnd.SUCCEEDED, 1)
    database.flows.spread(part, now)


@fails(FlowEndConformance.test_a_member_that_is_not_kept_stays_until_its_flow_goes)
class DeletesMembers(ApplyRules):
    """A member that is not to be kept is deleted when it succeeds."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().accept(row, transition, verb, now)
        if not transition.keep:
            self._db.remove(row)


@fails(FlowEndConformance.test_many_jobs_open_in_portions)
class OnePortionIsAll(FlowRules):
    """A part of which some jobs were placed counts as settled."""

    def settle_part(self, part: MemoryPart, limit: int, now: datetime) -> int:
        done = super().settle_part(part, limit, now)
        part.counts.blocked = 0
        self._db.flows.look(part)
        return done


@fails(FlowEndConformance.test_settling_is_bounded_and_says_how_much_it_did)
class SettlesInOneGo(FlowRules):
    """All jobs that are due are settled at once, however many they are."""

    def settle(self, limit: int, now: datetime) -> int:
        return super().settle(10_000, now)


@fails(FlowEndConformance.test_an_opened_job_counts_against_its_limits)
class OpensWithoutLimits(MemoryDatabase):
    """A job whose turn has come starts whatever its limits say."""

    def unblock(self, row: JobRow, since: datetime, now: datetime) -> None:
        row.ask(replace(row.asked, limits=()))
        super().unblock(row, since, now)


@fails(FlowEndConformance.test_the_end_of_a_lost_run_counts)
class TrustsWorkersOnly(ApplyRules):
    """Only ends that come from the job's own worker count."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        place = row.flow
        if transition.by != row.worker:
            row.flow = None
        super().accept(row, transition, verb, now)
        row.flow = place


# --- failures ---------------------------------------------------------------------------------


@fails(FlowFailureConformance.test_a_failure_cancels_what_waits_for_it_at_once)
class TellsOfFailuresLate(FlowRows):
    """A failure is passed on when its part has ended."""

    def spread(self, part: MemoryPart, now: datetime) -> None:
        if not part.counts.open or not part.counts.failures:
            super().spread(part, now)


@fails(FlowFailureConformance.test_the_flow_fails_when_all_has_ended)
class FlowsSucceedAlways(FlowRows):
    """Every flow that has ended has succeeded."""

    def _end(self, flow: MemoryFlow, end: Tidings, now: datetime) -> None:
        super()._end(flow, end._replace(broken=False), now)


class _Redrawn(FlowRows):
    """Flows whose parts are stored otherwise than they were given."""

    def add(self, asked: NewFlow, now: datetime) -> MemoryFlow:
        parts = tuple(self.redraw(part) for part in asked.parts)
        return super().add(replace(asked, parts=parts), now)

    def redraw(self, part: NewPart) -> NewPart:
        return part


@fails(FlowFailureConformance.test_a_lenient_part_runs_when_the_failed_one_has_ended)
class EveryEdgeIsStrict(_Redrawn):
    """A failure matters to all parts after it."""

    def redraw(self, part: NewPart) -> NewPart:
        return replace(part, after=tuple(Edge(edge.part) for edge in part.after))


@fails(FlowFailureConformance.test_a_failed_group_stops_what_waits_for_the_group)
class JoinsAreLenient(_Redrawn):
    """A group passes on its end, and no failure."""

    def redraw(self, part: NewPart) -> NewPart:
        if part.kind is not PartKind.JOIN:
            return part
        return replace(part, after=tuple(Edge(edge.part, strict=False) for edge in part.after))


@fails(FlowFailureConformance.test_a_part_for_failures_runs_after_one_and_is_skipped_otherwise)
class OpensWhatIsNotNeeded(FlowRules):
    """A part for failures runs without one, too."""

    def settle_part(self, part: MemoryPart, limit: int, now: datetime) -> int:
        if part.asked.when == "failed" and part.decision is Decision.SKIP:
            part.gate.broken += 1
        return super().settle_part(part, limit, now)


@fails(FlowFailureConformance.test_the_cancel_of_a_member_is_a_failure_to_those_that_wait)
class CancelledIsNotNeeded(MemoryDatabase):
    """A cancelled member counts as one that was not needed."""

    def finish(
        self, row: JobRow, state: State, now: datetime, ended: MemberEnd | None = None
    ) -> None:
        if state is State.CANCELLED and ended is None:
            ended = MemberEnd.SKIPPED
        super().finish(row, state, now, ended)


@fails(FlowFailureConformance.test_the_expiry_of_a_member_is_a_failure_to_those_that_wait)
class ExpiredIsNotNeeded(MemoryDatabase):
    """An expired member counts as one that was not needed."""

    def expire(self, row: JobRow, now: datetime) -> None:
        row.explain("expired")
        self.finish(row, State.DISCARDED, now, MemberEnd.SKIPPED)


@fails(FlowFailureConformance.test_a_failed_member_that_is_discarded_does_not_count_again)
class DiscardsCountAgain(MemoryDatabase):
    """A failed member that is discarded counts as a second end."""

    def _end_member(self, row: JobRow, ended: MemberEnd, now: datetime) -> None:
        if row.is_terminal():
            self.part_of(row).count(row.seq, ended, 1)
        else:
            super()._end_member(row, ended, now)


@fails(FlowFailureConformance.test_a_lenient_follower_waits_for_the_end_of_a_whole_group)
class GroupsEndWithTheirFirstFailure(FlowRows):
    """A group has ended for those after it when one of its parts has failed."""

    def spread(self, part: MemoryPart, now: datetime) -> None:
        super().spread(part, now)
        for join in [one for one in part.flow.parts if one.asked.kind is PartKind.JOIN]:
            if join.gate.broken and join.gate.waiting:
                join.gate.waiting = 0
                super().spread(join, now)
