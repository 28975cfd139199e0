"""Stores whose breakers open too soon, too late, or for the wrong reasons."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.job.job import LimitUse
from windlass._core.job.state import FAILURE_VERBS, Verb
from windlass._core.job.transition import Transition, release
from windlass._core.limits.breaker import Breaker, BreakerState, record_success
from windlass._core.limits.limit import LimitSpec
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.memory.jobs.apply import ApplyRules
from windlass._storage.memory.jobs.claim import ClaimProgress, ClaimRules
from windlass._storage.memory.limits.budgets import MemoryBudgets, StartBlocked, Usage
from windlass._storage.memory.maintenance import MemoryLimits
from windlass._storage.protocol.actions import AuditNote
from windlass._storage.protocol.jobs import TransitionAnswer, Verdict
from windlass._storage.protocol.limits import BreakerLook
from windlass.testing.conformance import BreakerConformance, BreakerTrialConformance

INSTANT = timedelta(microseconds=1)


class _Defined(MemoryBudgets):
    """Another breaker than the one that was asked for."""

    def instead(self, breaker: Breaker) -> Breaker:
        raise AssertionError("say which")

    def define(self, spec: LimitSpec, now: datetime) -> None:
        if spec.breaker is not None:
            spec = replace(spec, breaker=self.instead(spec.breaker))
        super().define(spec, now)


@fails(BreakerConformance.test_one_failure_is_enough_if_so_asked)
class OpensTooLate(_Defined):
    """It takes one failure more than was asked for."""

    def instead(self, breaker: Breaker) -> Breaker:
        return replace(breaker, failures=breaker.failures + 1)


@fails(BreakerConformance.test_an_attempt_that_will_be_repeated_is_a_failure_like_the_last_one)
class OpensTooSoon(_Defined):
    """It takes one failure less than was asked for."""

    def instead(self, breaker: Breaker) -> Breaker:
        return replace(breaker, failures=max(1, breaker.failures - 1))


@fails(BreakerConformance.test_a_breaker_is_defined_and_listed_like_any_limit)
class GrowsAsItLikes(_Defined):
    """Every breaker doubles its rests."""

    def instead(self, breaker: Breaker) -> Breaker:
        return replace(breaker, growth=2.0)


@fails(BreakerConformance.test_a_changed_threshold_holds_at_the_next_claim)
class BreakersNeverChange(MemoryBudgets):
    """A breaker keeps its first definition."""

    def define(self, spec: LimitSpec, now: datetime) -> None:
        super().define(self.specs.get(spec.name, spec), now)


@fails(BreakerConformance.test_a_success_in_between_starts_the_count_again)
class SuccessesInBetweenDoNotCount(MemoryBudgets):
    """A success closes what is open, and changes nothing before."""

    def close_breakers(self, uses: Sequence[LimitUse]) -> None:
        super().close_breakers(
            [use for use in uses if self.breakers.get(use.gate, record_success()).opened]
        )


# --- what is a failure ------------------------------------------------------------------------


class _Telling(ApplyRules):
    """Another idea of what is a failure and what a success."""

    def seen_as(self, row: JobRow, transition: Transition, verb: Verb) -> Verb:
        raise AssertionError("say how")

    def tell_gates(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().tell_gates(row, transition, self.seen_as(row, transition, verb), now)


@fails(BreakerTrialConformance.test_each_trial_that_fails_prolongs_the_next_rest_up_to_the_longest)
class CountsFinalFailures(_Telling):
    """An attempt that will be repeated is no failure."""

    def seen_as(self, row: JobRow, transition: Transition, verb: Verb) -> Verb:
        return Verb.SNOOZE if verb is Verb.RETRY else verb


@fails(
    BreakerConformance.test_outcomes_without_an_attempt_are_no_failure_and_no_success,
    BreakerTrialConformance.test_no_trial_starts_while_an_older_run_is_under_way,
)
class EverythingElseFails(_Telling):
    """Whatever did not succeed has failed."""

    def seen_as(self, row: JobRow, transition: Transition, verb: Verb) -> Verb:
        return verb if verb is Verb.SUCCEED else Verb.FAIL


@fails(BreakerTrialConformance.test_a_trial_that_proves_nothing_makes_way_for_another)
class EverythingElseSucceeds(_Telling):
    """Whatever did not fail has succeeded."""

    def seen_as(self, row: JobRow, transition: Transition, verb: Verb) -> Verb:
        return verb if verb in FAILURE_VERBS else Verb.SUCCEED


@fails(BreakerConformance.test_a_failure_that_gives_way_to_a_cancel_request_is_none)
class CountsWhatWasAsked(_Telling):
    """A failure that gives way to a cancel request counts."""

    def seen_as(self, row: JobRow, transition: Transition, verb: Verb) -> Verb:
        return transition.verb


@fails(BreakerConformance.test_a_success_that_is_not_kept_closes_too)
class KeptSuccessesClose(_Telling):
    """A success that is not kept closes nothing."""

    def seen_as(self, row: JobRow, transition: Transition, verb: Verb) -> Verb:
        return verb if transition.keep else Verb.SNOOZE


@fails(BreakerConformance.test_failures_of_all_workers_and_queues_are_counted_together)
class CountsOneQueue(_Telling):
    """Failures of other queues are not seen."""

    def seen_as(self, row: JobRow, transition: Transition, verb: Verb) -> Verb:
        return verb if row.asked.queue == "default" else Verb.SNOOZE


@fails(BreakerConformance.test_refused_and_repeated_finishes_count_nothing)
class RefusedFailuresCount(ApplyRules):
    """A failure that comes too late, or again, counts all the same."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        answer = super().end(transition, now)
        row = self._db.rows.get(transition.claim.seq)
        if row is not None and answer.verdict is not Verdict.APPLIED:
            self._db.gates.trip(row.asked.limits, now)
        return answer


@fails(BreakerConformance.test_a_batch_of_failures_counts_each_of_them_in_order)
class SuccessesComeFirst(ApplyRules):
    """Of a batch the successes are stored before everything else."""

    def end_all(self, transitions: Sequence[Transition], now: datetime) -> list[TransitionAnswer]:
        order = sorted(transitions, key=lambda transition: transition.verb is not Verb.SUCCEED)
        answers = dict(zip(map(id, order), super().end_all(order, now), strict=True))
        return [answers[id(transition)] for transition in transitions]


@fails(BreakerConformance.test_a_job_that_names_it_twice_is_one_failure)
class EveryUseCounts(MemoryBudgets):
    """A run fails as often as it names the breaker."""

    def trip(self, uses: Sequence[LimitUse], now: datetime) -> None:
        for use in uses:
            super().trip([use], now)


@fails(BreakerConformance.test_a_job_behind_two_breakers_counts_on_both_and_waits_for_both)
class OneBreakerOnly(MemoryBudgets):
    """Of several breakers only the first counts."""

    def trip(self, uses: Sequence[LimitUse], now: datetime) -> None:
        super().trip(uses[:1], now)


# --- open -------------------------------------------------------------------------------------


@fails(BreakerConformance.test_while_it_is_open_no_attempt_is_spent_and_nothing_else_stops)
class OpenBurnsAttempts(ClaimRules):
    """A job that a breaker holds spends an attempt."""

    def admit(self, visit: ClaimProgress, row: JobRow) -> bool:
        admitted = super().admit(visit, row)
        row.attempt += not admitted
        return admitted


@fails(BreakerConformance.test_those_that_ran_already_run_on)
class OpeningStopsWhatRuns(ApplyRules):
    """A breaker that opens sends home what runs behind it."""

    def tell_gates(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().tell_gates(row, transition, verb, now)
        if verb is Verb.FAIL:
            for other in [r for r in self._db.running.values() if r.asked.limits]:
                self.end(release(other.to_claimed(), by="breaker"), now)


@fails(BreakerConformance.test_a_job_that_its_breaker_holds_spends_no_token_of_its_rate)
class OpenSpendsTokens(ClaimRules):
    """A job that a breaker holds spends the tokens of its rates."""

    def admit(self, visit: ClaimProgress, row: JobRow) -> bool:
        gates, uses = self._db.gates, row.asked.limits
        if gates.shut(uses, visit.usage, visit.now) is not None:
            for use in uses:
                if gates.shut([use], visit.usage, visit.now) is None:
                    gates.charge([use], visit.usage, visit.now)
        return super().admit(visit, row)


@fails(BreakerTrialConformance.test_late_failures_count_while_it_is_open_without_prolonging_it)
class LateFailuresDoNotCount(MemoryBudgets):
    """What fails while it is open is not counted."""

    def trip(self, uses: Sequence[LimitUse], now: datetime) -> None:
        states = [(use, self.breakers.get(use.gate, record_success())) for use in uses]
        closed = [use for use, s in states if s.open_until is None or s.open_until <= now]
        super().trip(closed, now)


@fails(BreakerConformance.test_every_failure_of_many_concurrent_ones_is_counted)
class LateFailuresProlong(MemoryBudgets):
    """What fails while it is open prolongs the rest."""

    def trip(self, uses: Sequence[LimitUse], now: datetime) -> None:
        for use in uses:
            state = self.breakers.get(use.gate)
            if state is not None:
                self.breakers[use.gate] = replace(state, open_until=None)
        super().trip(uses, now)


@fails(BreakerConformance.test_it_opens_at_its_number_of_failures_and_not_before)
class TheEndIsStillOpen(MemoryBudgets):
    """What fails at the very end of the rest is taken for late."""

    def reckon(self, now: datetime) -> datetime:
        return super().reckon(now) - INSTANT


@fails(BreakerTrialConformance.test_after_it_closed_the_waits_begin_at_the_first_again)
class LateSuccessesDoNotCount(MemoryBudgets):
    """What succeeds while it is open changes nothing, nor does anything else."""

    def close_breakers(self, uses: Sequence[LimitUse]) -> None:
        super().close_breakers(
            [use for use in uses if not self.breakers.get(use.gate, record_success()).opened]
        )


@fails(BreakerConformance.test_a_threshold_lowered_below_what_failed_lets_one_at_a_time_through)
class LoweredIsClosed(MemoryBudgets):
    """A breaker that never opened is closed, whatever has failed."""

    def _holding(self, spec: LimitSpec, use: LimitUse) -> BreakerState | None:
        state = super()._holding(spec, use)
        return state if state is not None and state.open_until is not None else None


@fails(BreakerConformance.test_the_state_of_a_breaker_is_shown_and_of_no_other_limit)
class HidesBreakers(MemoryBudgets):
    """Nobody sees the state of a breaker."""

    def state(self, name: str, gate: str) -> BreakerState | None:
        return None


@fails(BreakerConformance.test_tidying_forgets_no_failure)
class TidyingCloses(MemoryBudgets):
    """Tidying takes failures along."""

    def forget(self, usage: Usage, now: datetime) -> None:
        super().forget(usage, now)
        self.breakers.clear()


# --- trials -----------------------------------------------------------------------------------


@fails(BreakerTrialConformance.test_of_many_concurrent_claimers_one_gets_the_trial)
class OpensAnInstantLater(MemoryBudgets):
    """At ``open_until`` it is still shut."""

    def shut(self, uses: Sequence[LimitUse], usage: Usage, now: datetime) -> StartBlocked | None:
        return super().shut(uses, usage, now - INSTANT)


@fails(BreakerTrialConformance.test_nothing_starts_before_the_rest_is_over_and_then_one_job_does)
class EverybodyTries(MemoryBudgets):
    """After the rest all are let through."""

    def shut(self, uses: Sequence[LimitUse], usage: Usage, now: datetime) -> StartBlocked | None:
        return super().shut(uses, Usage(), now)


@fails(BreakerTrialConformance.test_a_trial_that_succeeds_closes_it_for_everybody)
class NeverCloses(MemoryBudgets):
    """No trial is good enough."""

    def close_breakers(self, uses: Sequence[LimitUse]) -> None:
        pass


@fails(BreakerTrialConformance.test_a_failure_at_the_very_end_of_the_rest_opens_it_again)
class RestsNeverGrow(MemoryBudgets):
    """Every rest is the first one."""

    def trip(self, uses: Sequence[LimitUse], now: datetime) -> None:
        for use in uses:
            state = self.breakers.get(use.gate)
            if state is not None and state.open_until is not None and state.open_until <= now:
                self.breakers[use.gate] = replace(state, opened=0)
        super().trip(uses, now)


@fails(BreakerTrialConformance.test_a_late_success_closes_it)
class RemembersOldRests(MemoryBudgets):
    """A breaker that closed goes on where it was."""

    def close_breakers(self, uses: Sequence[LimitUse]) -> None:
        for use in uses:
            if (state := self.breakers.get(use.gate)) is not None:
                self.breakers[use.gate] = BreakerState(0, state.opened, None)


@fails(
    BreakerTrialConformance.test_a_trial_whose_worker_dies_blocks_until_it_is_reaped_and_counts_as_failed
)
class DeadTrialsDoNotCount(ClaimRules):
    """A trial whose worker died is forgotten."""

    def admit(self, visit: ClaimProgress, row: JobRow) -> bool:
        live = [row for row in self._db.running.values() if self.is_live(row.worker)]
        visit.usage = self._db.gates.usage(live)
        return super().admit(visit, row)


@fails(BreakerTrialConformance.test_a_job_to_run_alone_waits_for_the_breaker)
class LonelyJobsPass(ClaimRules):
    """A job that runs alone passes an open breaker."""

    def admit(self, visit: ClaimProgress, row: JobRow) -> bool:
        return visit.solo or super().admit(visit, row)


@fails(BreakerTrialConformance.test_a_retrying_trial_waits_like_the_others)
class RetriesPass(ClaimRules):
    """A job that was admitted once is not asked again."""

    def admit(self, visit: ClaimProgress, row: JobRow) -> bool:
        return row.attempt > 0 or super().admit(visit, row)


@fails(BreakerTrialConformance.test_resetting_a_breaker_closes_it_at_once)
class ResetsBucketsOnly(MemoryBudgets):
    """A reset leaves breakers as they are."""

    def reset(self, gate: str) -> None:
        breakers = dict(self.breakers)
        super().reset(gate)
        self.breakers = breakers


@fails(BreakerTrialConformance.test_resetting_one_breaker_leaves_others_open)
class ResetsEveryBreaker(MemoryBudgets):
    """A reset closes all breakers."""

    def reset(self, gate: str) -> None:
        super().reset(gate)
        self.breakers.clear()


@fails(BreakerTrialConformance.test_resetting_a_breaker_wakes)
class ResetsSilently(MemoryLimits):
    """Nobody is told of a reset."""

    async def reset(self, name: str, key: str = "", *, audit: AuditNote | None = None) -> None:
        self._db.gates.reset(self._use(name, key).gate)


@fails(BreakerTrialConformance.test_resetting_an_undefined_limit_is_an_error)
class ResetsWhateverIsSaid(MemoryLimits):
    """A name nobody defined can be reset and drained."""

    def _use(self, name: str, key: str) -> LimitUse:
        return LimitUse(name, key) if name in self._db.gates.specs else LimitUse("", "")

    async def drain(self, name: str, key: str = "", *, audit: AuditNote | None = None) -> None:
        if name in self._db.gates.specs:
            await super().drain(name, key)


@fails(BreakerTrialConformance.test_draining_a_breaker_does_nothing)
class DrainsBreakers(MemoryLimits):
    """Draining a breaker opens it."""

    async def drain(self, name: str, key: str = "", *, audit: AuditNote | None = None) -> None:
        await super().drain(name, key)
        for _ in range(9):
            self._db.gates.trip([self._use(name, key)], self._db.clock.now())


@fails(BreakerConformance.test_many_breakers_are_read_at_once_in_order)
class TellsOnlyOfThoseThatFailed(MemoryLimits):
    """Breakers that are closed are left out of the answer."""

    async def breakers(self, names: Sequence[str]) -> Sequence[BreakerLook]:
        return [one for one in await super().breakers(names) if one != BreakerLook()]
