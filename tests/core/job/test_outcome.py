from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.fixtures import ERROR, NOW, WORKER, claimed, few
from windlass._core.job.job import AttemptError, ClaimedJob, FlowId, FlowPlace
from windlass._core.job.outcome import (
    SOLO_AFTER,
    Cancelled,
    Crashed,
    CutOff,
    GaveUp,
    Interrupted,
    Lost,
    Misfit,
    Missing,
    Outcome,
    Policy,
    Raised,
    Snoozed,
    Succeeded,
    Throttled,
    barred,
)
from windlass._core.job.state import FINISHING, State, Verb
from windlass._core.job.transition import Transition, decide
from windlass._core.limits.backoff import DEFAULT_BACKOFF, Backoff
from windlass._core.limits.cooldown import DEFAULT_COOL_DOWN, cool_down_steps

STEADY = Policy(backoff=Backoff.exponential(first=1.0, factor=2.0, jitter="none"))
RETRY_CRASHES = Policy(backoff=STEADY.backoff, on_crash="retry")
DEATH = AttemptError("Lost", "worker w1 was last heard of 31 s ago")


def follow(job: ClaimedJob, outcome: Outcome, policy: Policy = STEADY) -> Transition:
    return decide(job, outcome, policy, by=WORKER, now=NOW, chance=0.5)


# --- success and what the handler asked for ---------------------------------------------------


def test_a_handler_that_returned_has_succeeded_with_its_result() -> None:
    made = follow(claimed(), Succeeded(b'"sent"'))
    assert (made.verb, made.result, made.keep) == (Verb.SUCCEED, b'"sent"', True)


def test_a_success_on_the_last_attempt_is_a_success() -> None:
    assert follow(claimed(attempt=5), Succeeded()).verb is Verb.SUCCEED


def test_with_retention_zero_a_success_deletes_its_row() -> None:
    made = follow(claimed(), Succeeded(b"1"), Policy(keep_succeeded=False))
    assert (made.keep, made.result) == (False, None)


def test_with_retention_zero_a_member_of_a_flow_is_kept_with_its_result() -> None:
    member = msgspec.structs.replace(claimed(), flow=FlowPlace(FlowId("f"), 0))
    made = follow(member, Succeeded(b"1"), Policy(keep_succeeded=False))
    assert (made.keep, made.result) == (True, b"1")


def test_retention_zero_keeps_everything_that_did_not_succeed() -> None:
    forgetful = Policy(keep_succeeded=False)
    assert all(follow(claimed(attempt=5), o, forgetful).keep for o in (GaveUp(ERROR), Cancelled()))


@pytest.mark.parametrize("attempt", [1, 5, 6])
def test_a_snooze_costs_nothing_even_on_the_last_attempt(attempt: int) -> None:
    made = follow(claimed(attempt=attempt), Snoozed(timedelta(hours=3)))
    assert (made.verb, made.delay, made.refund) == (Verb.SNOOZE, timedelta(hours=3), True)
    assert made.error is None


@pytest.mark.parametrize("attempt", [1, 5, 6])
def test_a_throttle_costs_nothing_even_on_the_last_attempt(attempt: int) -> None:
    made = follow(claimed(attempt=attempt), Throttled(timedelta(seconds=40)))
    assert (made.verb, made.delay, made.refund) == (Verb.THROTTLE, timedelta(seconds=40), True)


def test_a_throttle_cools_and_drains_only_if_so_asked() -> None:
    plain = follow(claimed(), Throttled(timedelta(seconds=40)))
    assert (plain.cools, plain.drains) == ((), False)
    drained = follow(claimed(), Throttled(drain=True))
    assert (drained.cools, drained.drains) == ((), True)


def test_the_cool_downs_of_a_queue_follow_the_policy() -> None:
    rests = Policy(cool_down=Backoff.waits([1, 60]))
    made = follow(claimed(), Throttled(timedelta(seconds=40), cool_queue=True), rests)
    assert made.cools == (timedelta(seconds=1), timedelta(seconds=60))
    assert (made.delay, made.drains) == (timedelta(seconds=40), False)
    unless_said_otherwise = follow(claimed(), Throttled(cool_queue=True))
    assert unless_said_otherwise.cools == cool_down_steps(DEFAULT_COOL_DOWN, 0.5)


def test_only_a_throttle_cools_or_drains_and_nothing_follows_by_itself() -> None:
    outcomes: list[Outcome] = [Succeeded(), Raised(ERROR), GaveUp(ERROR), Snoozed(timedelta(1))]
    for outcome in outcomes:
        made = follow(claimed(), outcome)
        assert (made.cools, made.drains, made.then) == ((), False, ())


def test_giving_up_is_final_with_attempts_left() -> None:
    made = follow(claimed(attempt=1), GaveUp(ERROR))
    assert (made.verb, made.error) == (Verb.FAIL, ERROR)


# --- the retry rule ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attempt", "max_attempts", "verb"),
    [
        (1, 1, Verb.FAIL),
        (1, 2, Verb.RETRY),
        (2, 2, Verb.FAIL),
        (1, 3, Verb.RETRY),
        (2, 3, Verb.RETRY),
        (3, 3, Verb.FAIL),
        (4, 5, Verb.RETRY),
        (5, 5, Verb.FAIL),
        (6, 5, Verb.FAIL),  # max_attempts was lowered under a running job
    ],
)
def test_an_attempt_is_followed_by_another_while_it_is_below_the_maximum(
    attempt: int, max_attempts: int, verb: Verb
) -> None:
    job = claimed(attempt=attempt, max_attempts=max_attempts, budget=max_attempts)
    assert follow(job, Raised(ERROR)).verb is verb
    assert follow(job, Crashed(ERROR), RETRY_CRASHES).verb is verb


@few
@given(attempt=st.integers(1, 50), max_attempts=st.integers(1, 50))
def test_n_attempts_mean_n_runs(attempt: int, max_attempts: int) -> None:
    job = claimed(attempt=attempt, max_attempts=max_attempts, budget=max_attempts)
    goes_on = follow(job, Raised(ERROR)).verb is Verb.RETRY
    assert goes_on == (attempt < max_attempts)


def test_a_retry_keeps_the_error_and_spends_the_attempt() -> None:
    made = follow(claimed(attempt=2), Raised(ERROR))
    assert (made.error, made.refund) == (ERROR, False)


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 1), (2, 2), (3, 4), (4, 8)])
def test_a_retry_waits_as_the_backoff_says(attempt: int, seconds: int) -> None:
    assert follow(claimed(attempt=attempt), Raised(ERROR)).delay == timedelta(seconds=seconds)


def test_backoff_counts_from_the_last_requeue() -> None:
    # Failed on attempt 5 of 5, requeued: attempt 6 of 10 is its first try again.
    first_again = claimed(attempt=6, max_attempts=10, budget=5)
    assert first_again.tries == 1
    assert follow(first_again, Raised(ERROR)).delay == timedelta(seconds=1)
    assert follow(claimed(attempt=9, max_attempts=10, budget=5), Raised(ERROR)).delay == timedelta(
        seconds=8
    )
    assert follow(claimed(attempt=10, max_attempts=10, budget=5), Raised(ERROR)).verb is Verb.FAIL


def test_a_job_requeued_early_gets_a_whole_budget() -> None:
    # Gave up on attempt 2 of 5, requeued: max_attempts is 2 + 5.
    assert claimed(attempt=3, max_attempts=7, budget=5).tries == 1
    assert follow(claimed(attempt=6, max_attempts=7, budget=5), Raised(ERROR)).verb is Verb.RETRY
    assert follow(claimed(attempt=7, max_attempts=7, budget=5), Raised(ERROR)).verb is Verb.FAIL


def test_the_jobs_own_backoff_goes_before_that_of_its_task() -> None:
    job = claimed(attempt=3, backoff=Backoff.fixed(90))
    assert follow(job, Raised(ERROR)).delay == timedelta(seconds=90)
    assert follow(job, Lost(DEATH)).delay == timedelta(seconds=90)


def test_a_handler_that_names_its_own_delay_gets_it() -> None:
    made = follow(claimed(attempt=1), Raised(ERROR, after=timedelta(minutes=7)))
    assert (made.verb, made.delay) == (Verb.RETRY, timedelta(minutes=7))


def test_a_delay_of_zero_is_a_wish_and_not_an_absent_one() -> None:
    assert follow(claimed(), Raised(ERROR, after=timedelta(0))).delay == timedelta(0)


def test_a_wish_for_a_retry_buys_no_further_attempt() -> None:
    made = follow(claimed(attempt=5), Raised(ERROR, after=timedelta(minutes=7)))
    assert (made.verb, made.error) == (Verb.FAIL, ERROR)


def test_chance_bends_the_delay_and_nothing_else() -> None:
    policy = Policy()  # spread by a quarter
    low = decide(claimed(), Raised(ERROR), policy, by=WORKER, now=NOW, chance=0.0)
    high = decide(claimed(), Raised(ERROR), policy, by=WORKER, now=NOW, chance=0.999999)
    assert low.delay == timedelta(seconds=3.75)
    assert timedelta(seconds=6.2) < high.delay < timedelta(seconds=6.25)
    assert low.verb is high.verb is Verb.RETRY


# --- crashes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("attempt", [1, 2, 4, 5])
def test_a_crash_is_final_by_default_though_attempts_remain(attempt: int) -> None:
    made = follow(claimed(attempt=attempt), Crashed(ERROR))
    assert (made.verb, made.error) == (Verb.FAIL, ERROR)


def test_a_crash_is_retried_like_an_error_where_the_task_says_so() -> None:
    made = follow(claimed(attempt=2), Crashed(ERROR), RETRY_CRASHES)
    assert (made.verb, made.delay, made.error) == (Verb.RETRY, timedelta(seconds=2), ERROR)


# --- a task this worker does not know ---------------------------------------------------------


def test_a_job_of_an_unknown_task_waits_without_cost_and_is_stamped() -> None:
    made = follow(claimed(), Missing(ERROR))
    assert (made.verb, made.refund, made.missed) == (Verb.RELEASE, True, True)
    assert made.delay == timedelta(seconds=15)
    assert made.error == AttemptError(ERROR.kind, f"ValueError: {ERROR.message}")


@pytest.mark.parametrize(
    ("missed_for", "verb"),
    [
        (timedelta(0), Verb.RELEASE),
        (timedelta(hours=24) - timedelta(microseconds=1), Verb.RELEASE),
        (timedelta(hours=24), Verb.FAIL),
        (timedelta(days=9), Verb.FAIL),
    ],
)
def test_a_job_of_an_unknown_task_fails_a_day_after_the_first_miss(
    missed_for: timedelta, verb: Verb
) -> None:
    made = follow(claimed(missed_at=NOW - missed_for), Missing(ERROR))
    assert made.verb is verb


@pytest.mark.parametrize("outcome", [Missing(ERROR), Misfit(ERROR)])
@pytest.mark.parametrize(
    ("missed_for", "wait"),
    [(0, 15), (59, 15), (60, 15), (61, 15.25), (100, 25), (2400, 600), (3000, 600)],
)
def test_a_missed_job_waits_a_quarter_of_the_time_since_the_first_miss(
    outcome: Missing | Misfit, missed_for: int, wait: float
) -> None:
    made = follow(claimed(missed_at=NOW - timedelta(seconds=missed_for)), outcome)
    assert (made.verb, made.delay) == (Verb.RELEASE, timedelta(seconds=wait))


def test_a_missed_job_waits_longer_where_many_others_come_first() -> None:
    behind = timedelta(seconds=400)
    assert follow(claimed(), Misfit(ERROR, behind=behind)).delay == behind
    late = claimed(missed_at=NOW - timedelta(minutes=59))
    assert follow(late, Misfit(ERROR, behind=behind)).delay == timedelta(minutes=10)


@pytest.mark.parametrize(
    ("missed_for", "verb"), [(3599, Verb.RELEASE), (3600, Verb.FAIL), (9999, Verb.FAIL)]
)
def test_a_job_whose_arguments_do_not_fit_fails_an_hour_after_the_first_miss(
    missed_for: int, verb: Verb
) -> None:
    made = follow(claimed(missed_at=NOW - timedelta(seconds=missed_for)), Misfit(ERROR))
    assert made.verb is verb


def test_a_misfit_that_no_other_worker_could_run_fails_at_once() -> None:
    made = follow(claimed(), Misfit(ERROR, hopeless=True))
    assert (made.verb, made.error) == (Verb.FAIL, ERROR)


def test_the_strict_fail_a_misfit_at_once() -> None:
    made = follow(claimed(), Misfit(ERROR), Policy(missing_task="fail"))
    assert (made.verb, made.error) == (Verb.FAIL, ERROR)


def test_a_miss_on_the_last_attempt_still_waits() -> None:
    assert follow(claimed(attempt=5), Missing(ERROR)).verb is Verb.RELEASE


def test_the_strict_fail_a_job_of_an_unknown_task_at_once() -> None:
    made = follow(claimed(), Missing(ERROR), Policy(missing_task="fail"))
    assert (made.verb, made.error) == (Verb.FAIL, ERROR)


def test_a_miss_leaves_suspicion_as_it_was() -> None:
    made = follow(claimed(lost=2, solo=True), Missing(ERROR))
    assert (made.lost, made.solo) == (2, True)


# --- lost workers -----------------------------------------------------------------------------


def test_a_first_loss_is_a_retry_with_backoff_that_is_counted() -> None:
    made = follow(claimed(attempt=1), Lost(DEATH))
    assert (made.verb, made.error, made.delay) == (Verb.RETRY, DEATH, timedelta(seconds=1))
    assert (made.lost, made.solo, made.refund) == (1, False, False)


def test_after_a_second_loss_in_a_row_the_job_runs_alone() -> None:
    made = follow(claimed(attempt=2, lost=1), Lost(DEATH))
    assert (made.verb, made.lost, made.solo) == (Verb.RETRY, SOLO_AFTER, True)


def test_a_loss_while_running_alone_quarantines_the_job_with_the_cause_of_death() -> None:
    made = follow(claimed(attempt=3, lost=2, solo=True), Lost(DEATH))
    assert (made.verb, made.lost, made.state) == (Verb.FAIL, 3, State.FAILED)
    assert made.error is not None
    assert made.error.kind == "Quarantined"
    assert DEATH.message in made.error.message
    assert "lost 3 times in a row" in made.error.message


def test_a_suspect_that_was_not_alone_is_not_convicted() -> None:
    made = follow(claimed(attempt=3, lost=2, solo=False), Lost(DEATH))
    assert (made.verb, made.lost, made.solo) == (Verb.RETRY, 3, True)


def test_a_loss_gives_the_last_attempt_back() -> None:
    made = follow(claimed(attempt=5), Lost(DEATH))
    assert (made.verb, made.error, made.lost, made.refund) == (Verb.RETRY, DEATH, 1, True)


@pytest.mark.parametrize("attempt", [1, 5])
def test_a_job_that_must_not_run_twice_fails_at_its_first_loss(attempt: int) -> None:
    made = follow(claimed(attempt=attempt, on_lost="fail"), Lost(DEATH))
    assert (made.verb, made.error, made.lost) == (Verb.FAIL, DEATH, 1)


def test_a_job_that_must_not_run_twice_fails_when_its_worker_stops_on_the_last_attempt() -> None:
    made = follow(claimed(attempt=5, on_lost="fail", lost=1), Interrupted())
    assert (made.verb, made.lost) == (Verb.FAIL, 1)
    assert made.error is not None
    assert made.error.kind == "Interrupted"


@pytest.mark.parametrize(
    ("job", "outcome"),
    [
        (claimed(attempt=4, on_lost="fail"), Interrupted()),
        (claimed(attempt=5, on_lost="fail"), Interrupted(started=False)),
        (claimed(attempt=5), Interrupted()),
    ],
    ids=["attempts left", "never entered", "may run twice"],
)
def test_other_jobs_are_given_back_when_their_worker_stops(
    job: ClaimedJob, outcome: Interrupted
) -> None:
    made = follow(job, outcome)
    assert (made.verb, made.refund) == (Verb.RELEASE, True)


def test_a_job_that_must_not_run_twice_fails_when_other_code_cancels_it() -> None:
    made = follow(claimed(attempt=1, on_lost="fail"), CutOff(DEATH))
    assert (made.verb, made.error, made.lost) == (Verb.FAIL, DEATH, 1)


def test_a_loss_alone_on_the_last_attempt_is_still_a_quarantine() -> None:
    made = follow(claimed(attempt=5, lost=2, solo=True), Lost(DEATH))
    assert made.error is not None
    assert made.error.kind == "Quarantined"


@pytest.mark.parametrize("outcome", [Snoozed(timedelta(1)), Throttled(timedelta(1))])
def test_a_free_wait_keeps_suspicion_because_nothing_was_learnt(outcome: Outcome) -> None:
    made = follow(claimed(lost=2, solo=True), outcome)
    assert (made.refund, made.lost, made.solo) == (True, 2, True)


def test_a_release_keeps_suspicion_because_nothing_was_learnt() -> None:
    made = follow(claimed(lost=2, solo=True), Interrupted())
    assert (made.verb, made.refund, made.lost, made.solo) == (Verb.RELEASE, True, 2, True)
    assert made.delay == timedelta(0)
    assert not made.missed


@pytest.mark.parametrize(
    "outcome",
    [
        Succeeded(),
        Raised(ERROR),
        GaveUp(ERROR),
        Crashed(ERROR),
        Cancelled(),
    ],
    ids=lambda outcome: type(outcome).__name__,
)
def test_an_attempt_its_worker_survived_clears_suspicion(outcome: Outcome) -> None:
    made = follow(claimed(attempt=3, lost=2, solo=True), outcome)
    assert (made.lost, made.solo) == (0, False)


def test_three_losses_in_a_row_walk_from_retry_through_solo_to_quarantine() -> None:
    job, verbs = claimed(attempt=1), []
    for _ in range(3):
        made = follow(job, Lost(DEATH))
        verbs.append(made.verb)
        job = claimed(attempt=job.attempt + 1, lost=made.lost, solo=made.solo)
    assert verbs == [Verb.RETRY, Verb.RETRY, Verb.FAIL]


# --- cancelling -------------------------------------------------------------------------------


def test_a_handler_that_gave_way_is_cancelled() -> None:
    made = follow(claimed(), Cancelled(ERROR))
    assert (made.verb, made.error, made.state) == (Verb.CANCEL, ERROR, State.CANCELLED)


@pytest.mark.parametrize(
    "outcome",
    [
        Raised(ERROR),
        GaveUp(ERROR),
        Crashed(ERROR),
        Snoozed(timedelta(1)),
        Throttled(timedelta(1)),
        Interrupted(),
        Missing(ERROR),
        Lost(DEATH),
    ],
    ids=lambda outcome: type(outcome).__name__,
)
@pytest.mark.parametrize("attempt", [1, 5])
def test_everything_but_success_becomes_cancelled_when_the_row_asks_for_it(
    outcome: Outcome, attempt: int
) -> None:
    assert follow(claimed(attempt=attempt), outcome).if_cancelled is Verb.CANCEL


def test_a_success_is_kept_although_the_row_asks_for_cancelling() -> None:
    assert follow(claimed(), Succeeded()).if_cancelled is None


# --- every decision ---------------------------------------------------------------------------

outcomes = st.one_of(
    st.builds(Succeeded, st.none() | st.binary(max_size=4)),
    st.builds(Raised, st.just(ERROR), st.none() | st.just(timedelta(seconds=3))),
    st.sampled_from([GaveUp(ERROR), Crashed(ERROR), Interrupted(), Missing(ERROR), Lost(DEATH)]),
    st.sampled_from(
        [Snoozed(timedelta(1)), Throttled(timedelta(1)), Cancelled(), Cancelled(ERROR)]
    ),
)
jobs = st.builds(
    lambda attempt, left, budget, lost, solo, missed: claimed(
        attempt=attempt,
        max_attempts=attempt + left,
        budget=min(budget, attempt + left),
        lost=lost,
        solo=solo,
        missed_at=None if missed is None else NOW - timedelta(hours=missed),
    ),
    st.integers(1, 2000),
    st.integers(-1, 5),
    st.integers(1, 5),
    st.integers(0, 4),
    st.booleans(),
    st.none() | st.integers(0, 48),
)


@given(
    job=jobs,
    outcome=outcomes,
    on_crash=st.sampled_from(["fail", "retry"]),
    chance=st.floats(0, 1, exclude_max=True),
)
def test_every_decision_ends_the_claim_by_a_legal_edge(
    job: ClaimedJob, outcome: Outcome, on_crash: str, chance: float
) -> None:
    policy = Policy(on_crash="retry" if on_crash == "retry" else "fail")
    made = decide(job, outcome, policy, by=WORKER, now=NOW, chance=chance)

    assert made.verb in FINISHING
    assert (made.claim, made.by) == (job.claim, WORKER)
    assert made.delay >= timedelta(0)
    assert made.delay == timedelta(0) or made.state is State.WAITING
    spent = made.verb is Verb.RETRY and job.attempt >= job.max_attempts
    assert not spent or (isinstance(outcome, Lost) and made.refund)
    assert made.error is not None or made.verb not in {Verb.RETRY, Verb.FAIL}
    assert made.result is None or made.verb is Verb.SUCCEED


def test_the_defaults_are_those_of_the_design() -> None:
    policy = Policy()
    assert policy.backoff == DEFAULT_BACKOFF
    assert (policy.on_crash, policy.missing_task, policy.keep_succeeded) == ("fail", "wait", True)
    assert policy.missing_for == timedelta(hours=24)
    assert SOLO_AFTER == 2


# --- the boundaries of the systems this one follows -------------------------------------------


def test_failing_attempt_2_of_4_with_250_ms_doubled_is_due_500_ms_later() -> None:
    policy = Policy(backoff=Backoff.exponential(0.25, factor=2, jitter="none"))
    made = follow(claimed(attempt=2, max_attempts=4, budget=4), Raised(ERROR), policy)
    assert (made.verb, made.delay) == (Verb.RETRY, timedelta(milliseconds=500))


def test_failing_attempt_3_of_3_is_final_and_keeps_the_error() -> None:
    made = follow(claimed(attempt=3, max_attempts=3, budget=3), Raised(ERROR))
    assert (made.verb, made.error) == (Verb.FAIL, ERROR)


@pytest.mark.parametrize(("finished", "verb"), [(0, Verb.RETRY), (1, Verb.RETRY), (2, Verb.FAIL)])
def test_counting_finished_attempts_gives_the_same_boundary(finished: int, verb: Verb) -> None:
    # "Park when attempts + 1 >= max", with attempts counted when they end; ours at the claim.
    job = claimed(attempt=finished + 1, max_attempts=3, budget=3)
    assert follow(job, Raised(ERROR)).verb is verb


@pytest.mark.parametrize(("run", "verb"), [(1, Verb.RETRY), (2, Verb.FAIL)])
def test_one_retry_means_two_runs(run: int, verb: Verb) -> None:
    # max_retries = 1 there is max_attempts = 2 here.
    assert follow(claimed(attempt=run, max_attempts=2, budget=2), Raised(ERROR)).verb is verb


# --- which exceptions are worth another attempt -------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "retry_on", "give_up_on", "final"),
    [
        (ValueError, None, (), False),
        (ValueError, None, (ValueError,), True),
        (ValueError, (OSError,), (), True),
        (ConnectionError, (OSError,), (), False),
        (ConnectionError, (OSError,), (ConnectionError,), True),
        (OSError, (OSError,), (ConnectionError,), False),
        (ConnectionError, (ConnectionError,), (OSError,), True),
    ],
)
def test_lists_say_what_is_worth_another_attempt_and_giving_up_wins(
    kind: type[Exception],
    retry_on: tuple[type[Exception], ...] | None,
    give_up_on: tuple[type[Exception], ...],
    *,
    final: bool,
) -> None:
    assert barred(kind, retry_on, give_up_on) is final


def test_a_barred_exception_is_final_with_attempts_left() -> None:
    assert follow(claimed(attempt=1), Raised(ERROR, barred=True)).verb is Verb.FAIL
    assert follow(claimed(attempt=1), Raised(ERROR, barred=False)).verb is Verb.RETRY
