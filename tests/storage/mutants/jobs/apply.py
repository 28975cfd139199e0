"""Stores that end claims wrongly: the fence, the verdicts, what is left behind."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.flows.part import MemberEnd
from windlass._core.job.job import AttemptError, Claim, JobId
from windlass._core.job.state import State, Verb
from windlass._core.job.transition import Transition
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.memory.jobs.apply import ApplyRules
from windlass._storage.memory.jobs.claim import ClaimProgress, ClaimRules
from windlass._storage.memory.jobs.jobs import MemoryJobs
from windlass._storage.protocol.jobs import Applied, Settled, TransitionAnswer, Verdict
from windlass.testing.conformance import (
    FenceConformance,
    OutcomeConformance,
    RetryConformance,
    WorkerDeathConformance,
)


@fails(
    FenceConformance.test_a_late_finish_after_another_claim_is_refused,
    FenceConformance.test_a_claim_of_the_same_worker_is_distinguished_from_its_earlier_one,
)
class AcceptsEarlierClaims(MemoryDatabase):
    """Any claim of a running job may end it."""

    def held(self, claim: Claim) -> JobRow | None:
        row = self.by_id.get(claim.job)
        return row if row is not None and row.state is State.RUNNING else None


@fails(
    FenceConformance.test_a_late_finish_after_reaping_is_refused,
    WorkerDeathConformance.test_a_dead_worker_may_finish_until_its_claim_is_ended,
)
class AcceptsEndedClaims(MemoryDatabase):
    """The last claim may end a job though it was ended before."""

    def held(self, claim: Claim) -> JobRow | None:
        row = self.by_id.get(claim.job)
        if row is not None and row.claim_number == claim.number:
            self.running[row.seq] = row
            return row
        return None


@fails(FenceConformance.test_a_number_that_was_never_claimed_is_refused)
class AcceptsLaterClaims(MemoryDatabase):
    """A claim number ahead of the row's is good enough."""

    def held(self, claim: Claim) -> JobRow | None:
        row = self.by_id.get(claim.job)
        if row is None or row.state is not State.RUNNING or row.claim_number > claim.number:
            return None
        return row


@fails(
    FenceConformance.test_a_repeated_finish_is_recognised,
    FenceConformance.test_one_transition_twice_in_a_batch_takes_effect_once,
)
class ForgetsHowClaimsEnded(ApplyRules):
    """A repeated finish looks like a late one."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().accept(row, transition, verb, now)
        row.ended = None


@fails(FenceConformance.test_a_repeated_retry_is_recognised_and_does_not_move_the_job)
class RepeatsMoveTheJob(ApplyRules):
    """A repeated retry counts its delay from the repeat."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        answer = super().end(transition, now)
        row = self._db.by_id.get(transition.claim.job)
        if row is not None and row.state is State.WAITING:
            self._db.stand(row, now + transition.delay, now)
        return answer


@fails(FenceConformance.test_a_repeat_is_recognised_while_the_next_claim_runs)
class ClaimsForgetEndings(ClaimRules):
    """A claim clears how the last one ended."""

    def start(self, visit: ClaimProgress, row: JobRow) -> None:
        super().start(visit, row)
        row.ended = None


@fails(FenceConformance.test_a_repeat_by_another_worker_is_refused)
class AnybodyMayRepeat(ApplyRules):
    """A repeat is recognised whoever makes it."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        answer = super().end(transition, now)
        row = self._db.by_id.get(transition.claim.job)
        if answer.verdict is Verdict.REFUSED and row and row.ended:
            return TransitionAnswer(Verdict.REPEATED, row.ended.verb)
        return answer


@fails(FenceConformance.test_the_answer_to_a_repeat_names_what_happened_then)
class RepeatsNameTheNewVerb(ApplyRules):
    """A repeat is answered with what it asked for."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        answer = super().end(transition, now)
        if answer.verdict is Verdict.REPEATED:
            return TransitionAnswer(Verdict.REPEATED, transition.verb)
        return answer


@fails(FenceConformance.test_an_unknown_job_is_answered_as_such)
class RefusesUnknownJobs(ApplyRules):
    """A job that is not stored is answered like one that is not held."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        answer = super().end(transition, now)
        return TransitionAnswer(Verdict.REFUSED) if answer.verdict is Verdict.UNKNOWN else answer


@fails(FenceConformance.test_each_transition_of_a_batch_is_decided_on_its_own_and_in_order)
class OneRefusalRefusesTheRest(MemoryJobs):
    """After a transition that is not accepted the rest of its batch is not looked at."""

    async def apply(self, transitions: Sequence[Transition]) -> Applied:
        answers: list[TransitionAnswer] = []
        for transition in transitions:
            if answers and answers[-1].verdict is Verdict.REFUSED:
                answers.append(TransitionAnswer(Verdict.REFUSED))
            else:
                answers += (await super().apply([transition])).answers
        return Applied(self._db.clock.now(), answers)


# --- what each verb leaves behind -------------------------------------------------------------


@fails(OutcomeConformance.test_success_stores_the_result_and_when_it_came)
class LosesResults(ApplyRules):
    """Results are not stored."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().accept(row, replace(transition, result=None), verb, now)


@fails(OutcomeConformance.test_success_clears_the_last_error)
class SuccessKeepsTheError(ApplyRules):
    """A job that succeeded shows the error of an earlier attempt."""

    def remember(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        error = row.error
        super().remember(row, transition, verb, now)
        row.error = row.error or error


@fails(
    OutcomeConformance.test_a_success_that_is_not_kept_leaves_no_row,
    OutcomeConformance.test_a_batch_of_successes_that_are_not_kept_leaves_no_row,
)
class KeepsEverything(ApplyRules):
    """A row is kept also when it should be deleted."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().accept(row, replace(transition, keep=True), verb, now)


@fails(
    OutcomeConformance.test_a_retry_waits_for_its_delay_and_keeps_attempt_and_error,
    OutcomeConformance.test_a_snoozed_job_waits_and_gets_its_attempt_back,
    RetryConformance.test_the_second_of_four_failures_doubles_the_delay,
    RetryConformance.test_a_job_that_will_be_retried_is_not_failed,
    RetryConformance.test_after_a_requeue_the_whole_budget_and_backoff_start_again,
)
class RetriesAtOnce(ApplyRules):
    """Delays are ignored."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().accept(row, replace(transition, delay=timedelta(0)), verb, now)


@fails(
    OutcomeConformance.test_a_retry_without_delay_is_ready_at_once,
)
class AlwaysDelays(ApplyRules):
    """Whatever returns waits at least a second."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        delay = max(transition.delay, timedelta(seconds=1))
        super().accept(row, replace(transition, delay=delay), verb, now)


@fails(
    OutcomeConformance.test_a_throttled_job_waits_and_gets_its_attempt_back,
    OutcomeConformance.test_a_released_job_is_ready_at_once_and_gets_its_attempt_back,
    RetryConformance.test_an_unknown_task_waits_and_fails_a_day_after_its_first_miss,
)
class ForgetsTheRefund(ApplyRules):
    """An attempt that should be given back is spent."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().accept(row, replace(transition, refund=False), verb, now)


@fails(OutcomeConformance.test_a_verb_without_an_error_keeps_the_last_one)
class DropsTheLastError(ApplyRules):
    """A verb without an error clears the last one."""

    def remember(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().remember(row, transition, verb, now)
        row.error = transition.error


@fails(
    OutcomeConformance.test_a_failure_stores_the_error_and_when_it_came,
    OutcomeConformance.test_a_handler_that_gave_way_leaves_a_cancelled_job,
)
class ForgetsWhenJobsEnded(MemoryDatabase):
    """The instant of the end is not stored."""

    def finish(
        self, row: JobRow, state: State, now: datetime, ended: MemberEnd | None = None
    ) -> None:
        super().finish(row, state, now, ended)
        row.finished_at = row.started_at - timedelta(hours=1)


@fails(OutcomeConformance.test_a_miss_is_stamped_once)
class StampsEveryMiss(ApplyRules):
    """A miss is stamped with its own instant each time."""

    def missed_at(
        self, row: JobRow, transition: Transition, verb: Verb, now: datetime
    ) -> datetime | None:
        return now if transition.missed else super().missed_at(row, transition, verb, now)


@fails(OutcomeConformance.test_a_release_keeps_the_stamp_of_a_miss)
class ReleaseClearsTheMiss(ApplyRules):
    """A release that is no miss clears the stamp."""

    def missed_at(
        self, row: JobRow, transition: Transition, verb: Verb, now: datetime
    ) -> datetime | None:
        return super().missed_at(row, transition, verb, now) if transition.missed else None


@fails(OutcomeConformance.test_every_other_verb_clears_the_stamp_of_a_miss)
class KeepsTheMiss(ApplyRules):
    """The stamp of a miss stays for ever."""

    def missed_at(
        self, row: JobRow, transition: Transition, verb: Verb, now: datetime
    ) -> datetime | None:
        return super().missed_at(row, transition, Verb.RELEASE, now)


@fails(OutcomeConformance.test_settled_tells_terminal_and_unknown_jobs_apart_from_active_ones)
class SettledKnowsNoStrangers(MemoryJobs):
    """Who waits for a job that is not stored waits for ever."""

    async def settled(self, ids: Sequence[JobId]) -> Sequence[Settled]:
        return [word for word in await super().settled(ids) if word.state is not None]


@fails(OutcomeConformance.test_settled_tells_why_a_job_was_discarded)
class SettledGivesNoReason(MemoryJobs):
    """A discarded job does not say why."""

    async def settled(self, ids: Sequence[JobId]) -> Sequence[Settled]:
        return [replace(word, reason=None) for word in await super().settled(ids)]


# --- the retry rule ---------------------------------------------------------------------------


@fails(
    RetryConformance.test_n_attempts_are_n_runs,
    RetryConformance.test_the_last_failure_fails_the_job_with_its_error,
)
class CountsAttemptsTwice(ClaimRules):
    """An attempt counts at the claim, and again when it is retried."""

    def start(self, visit: ClaimProgress, row: JobRow) -> None:
        if row.attempt:
            row.attempt += 1
        super().start(visit, row)


@fails(RetryConformance.test_an_attempt_before_the_last_comes_back_as_the_same_job)
class RetriesLoseTheirPayload(ApplyRules):
    """A retried job comes back without its arguments."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().accept(row, transition, verb, now)
        if verb is Verb.RETRY:
            row.asked = replace(row.asked, payload=b"{}")


@fails(
    RetryConformance.test_the_only_attempt_is_the_last,
    RetryConformance.test_a_crash_fails_the_job_though_attempts_remain,
    RetryConformance.test_giving_up_fails_the_job_though_attempts_remain,
)
class FailuresComeBack(ApplyRules):
    """A failed job waits to be tried again."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().accept(row, transition, verb, now)
        if verb is Verb.FAIL:
            self._db.stand(row, now, now)


@fails(RetryConformance.test_a_lost_attempt_is_spent_and_the_job_comes_back_with_the_reason)
class LosesTheReason(ApplyRules):
    """What a worker died of is not stored."""

    def remember(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        if transition.error is not None and transition.by != row.worker:
            transition = replace(transition, error=AttemptError("Lost", ""))
        super().remember(row, transition, verb, now)
