"""Stores that remember the past wrongly, or count it wrongly."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.flows.part import MemberEnd
from windlass._core.job.job import Attempt, JobId
from windlass._core.job.state import State, Verb
from windlass._core.job.transition import Transition
from windlass._core.stats.rollup import Rollup
from windlass._storage.memory.admin.admin import MemoryAdmin
from windlass._storage.memory.flows.added import AddedFlows
from windlass._storage.memory.flows.settle import FlowRules
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.memory.jobs.apply import ApplyRules
from windlass._storage.memory.maintenance import MemoryMaintenance
from windlass._storage.protocol.jobs import TransitionAnswer, Verdict
from windlass.errors import JobNotFound
from windlass.testing.conformance import HistoryConformance, RollupConformance

MINUTE = timedelta(minutes=1)


@fails(HistoryConformance.test_every_claim_that_did_not_succeed_is_remembered_oldest_first)
class NewestFirst(MemoryAdmin):
    """The history comes newest first."""

    async def history(self, job: JobId) -> Sequence[Attempt]:
        return list(await super().history(job))[::-1]


@fails(HistoryConformance.test_a_success_adds_nothing)
class RemembersSuccess(ApplyRules):
    """A success is remembered among the claims that did not succeed."""

    def remember(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().remember(row, transition, verb, now)
        if verb is Verb.SUCCEED:
            super().remember(row, transition, Verb.RETRY, now)


@fails(HistoryConformance.test_claims_that_gave_their_attempt_back_are_remembered_by_claim_number)
class RemembersErrorsOnly(ApplyRules):
    """A claim that ended without an error leaves no trace."""

    def remember(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        if transition.error is not None:
            super().remember(row, transition, verb, now)


@fails(HistoryConformance.test_a_lost_claim_is_remembered_with_its_own_worker)
class BlamesTheReaper(ApplyRules):
    """A claim is remembered with whoever ended it."""

    def remember(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        worker, row.worker = row.worker, transition.by
        super().remember(row, transition, verb, now)
        row.worker = worker


@fails(HistoryConformance.test_attempts_without_an_error_push_no_error_out_of_the_history)
class RemembersTheNewestOnly(ApplyRules):
    """Errors are forgotten like everything else: the newest nine stay."""

    def remember(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().remember(row, transition, verb, now)
        row.history = row.history[-9:]


@fails(HistoryConformance.test_the_newest_thirty_two_are_kept)
class RemembersTheOldest(ApplyRules):
    """The history keeps the oldest 32."""

    def remember(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        before = list(row.history)
        super().remember(row, transition, verb, now)
        row.history = [*before, *row.history[-1:]][:32]


@fails(
    HistoryConformance.test_a_refused_write_leaves_history_and_error_alone,
    RollupConformance.test_a_refused_finish_is_not_counted,
)
class RefusedWritesLeaveTraces(ApplyRules):
    """A refused finish is remembered and counted."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        answer = super().end(transition, now)
        if answer.verdict is Verdict.REFUSED:
            row = self._db.by_id[transition.claim.job]
            self.remember(row, transition, transition.verb, now)
            self.count(row, transition.verb, now)
        return answer


@fails(
    HistoryConformance.test_a_repeated_write_adds_nothing,
    RollupConformance.test_a_repeated_finish_is_counted_once,
    RollupConformance.test_rollups_equal_a_recount,
)
class RepeatsCountAgain(ApplyRules):
    """A repeated finish is remembered and counted again."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        answer = super().end(transition, now)
        if answer.verdict is Verdict.REPEATED and answer.verb is not None:
            row = self._db.by_id[transition.claim.job]
            self.remember(row, transition, answer.verb, now)
            self.count(row, answer.verb, now)
        return answer


@fails(HistoryConformance.test_a_new_job_and_an_unknown_one_have_no_history)
class NoHistoryIsAnError(MemoryAdmin):
    """A job without a history is an error."""

    async def history(self, job: JobId) -> Sequence[Attempt]:
        past = await super().history(job)
        if not past:
            raise JobNotFound(job)
        return past


# --- rollups ----------------------------------------------------------------------------------


@fails(RollupConformance.test_a_finish_is_counted_with_how_long_it_waited_and_ran)
class CountsWaitingFromTheInsert(ApplyRules):
    """How long a job waited counts from its insert, not from its due time."""

    def count(self, row: JobRow, verb: Verb, now: datetime) -> None:
        due, row.due = row.due, row.created_at
        super().count(row, verb, now)
        row.due = due


@fails(RollupConformance.test_minutes_queues_and_tasks_are_counted_apart)
class MixesQueues(ApplyRules):
    """All queues are counted as one."""

    def count(self, row: JobRow, verb: Verb, now: datetime) -> None:
        asked, row.asked = row.asked, replace(row.asked, queue="all")
        super().count(row, verb, now)
        row.asked = asked


@fails(RollupConformance.test_verbs_that_lead_back_to_waiting_count_too)
class CountsTheEndOnly(ApplyRules):
    """Only verbs that end a job are counted."""

    def count(self, row: JobRow, verb: Verb, now: datetime) -> None:
        if verb in {Verb.SUCCEED, Verb.FAIL, Verb.CANCEL}:
            super().count(row, verb, now)


@fails(RollupConformance.test_a_finish_is_counted_under_the_verb_that_took_effect)
class CountsTheVerbAskedFor(ApplyRules):
    """A finish that gave way to a cancel request is counted as what it wanted to be."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().accept(row, transition, verb, now)
        (tally,) = self._db.tallies.values()
        tally.counts[verb.value] -= 1
        tally.counts[transition.verb.value] += 1


@fails(RollupConformance.test_a_finish_that_is_not_kept_is_counted)
class ForgetsWhatItDeletes(ApplyRules):
    """A finish whose row is deleted is not counted."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().accept(row, transition, verb, now)
        if not transition.keep:
            self._db.tallies.clear()


@fails(RollupConformance.test_jobs_released_by_a_leaving_worker_are_counted)
class CountsNoReleases(ApplyRules):
    """What is given back is not counted."""

    def count(self, row: JobRow, verb: Verb, now: datetime) -> None:
        if verb is not Verb.RELEASE:
            super().count(row, verb, now)


@fails(RollupConformance.test_waiting_jobs_that_end_without_a_claim_are_not_counted)
class CountsEveryEnd(MemoryDatabase):
    """A waiting job that ends is counted like a finish."""

    def finish(
        self, row: JobRow, state: State, now: datetime, ended: MemberEnd | None = None
    ) -> None:
        super().finish(row, state, now, ended)
        if not row.claim_number:
            rules = ApplyRules(self, AddedFlows(self, FlowRules(self)))
            rules.count(row, Verb.CANCEL, now)


@fails(RollupConformance.test_the_range_includes_its_start_and_excludes_its_end)
class RangesAreClosed(MemoryAdmin):
    """A range of rollups includes its end."""

    async def rollups(self, since: datetime, until: datetime) -> Sequence[Rollup]:
        return await super().rollups(since, until + MINUTE)


@fails(RollupConformance.test_the_finishes_of_several_workers_are_merged)
class RollupsOfTheLastWorker(ApplyRules):
    """What another worker counted is overwritten."""

    def count(self, row: JobRow, verb: Verb, now: datetime) -> None:
        self._db.tallies.clear()
        super().count(row, verb, now)


@fails(RollupConformance.test_old_rollups_are_pruned_in_chunks)
class PrunesAllRollups(MemoryMaintenance):
    """One call prunes all rollups that are old."""

    async def prune_rollups(self, *, older_than: timedelta, limit: int) -> int:
        return await super().prune_rollups(older_than=older_than, limit=1000)
