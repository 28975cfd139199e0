from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from tests.core.fixtures import ERROR, NOW, WORKER, claimed
from windlass._core.job import transition
from windlass._core.job.state import FINISHING, State, Verb
from windlass._core.job.transition import Transition

DELAY = timedelta(seconds=25)
SUSPECT = claimed(lost=2, solo=True, missed_at=NOW)

EVERY = {
    Verb.SUCCEED: transition.succeed(SUSPECT, by=WORKER, result=b"1"),
    Verb.RETRY: transition.retry(SUSPECT, by=WORKER, error=ERROR, delay=DELAY),
    Verb.SNOOZE: transition.snooze(SUSPECT, by=WORKER, delay=DELAY),
    Verb.THROTTLE: transition.throttle(SUSPECT, by=WORKER, delay=DELAY),
    Verb.RELEASE: transition.release(SUSPECT, by=WORKER),
    Verb.FAIL: transition.fail(SUSPECT, by=WORKER, error=ERROR),
    Verb.CANCEL: transition.cancel(SUSPECT, by=WORKER),
}


def test_there_is_one_function_per_finishing_edge() -> None:
    assert set(EVERY) == set(FINISHING)
    assert all(made.verb is verb for verb, made in EVERY.items())


@pytest.mark.parametrize("verb", EVERY)
def test_a_transition_leads_where_the_table_says(verb: Verb) -> None:
    assert EVERY[verb].state is FINISHING[verb]


@pytest.mark.parametrize("made", EVERY.values(), ids=EVERY)
def test_a_transition_carries_the_fence_and_who_ends_the_claim(made: Transition) -> None:
    assert made.claim == SUSPECT.claim
    assert made.by == WORKER


def test_only_the_verbs_that_cost_nothing_give_the_attempt_back() -> None:
    refunded = {verb for verb, made in EVERY.items() if made.refund}
    assert refunded == {Verb.SNOOZE, Verb.THROTTLE, Verb.RELEASE}


def test_every_outcome_but_success_gives_way_to_a_cancel_request() -> None:
    giving_way = {verb for verb, made in EVERY.items() if made.if_cancelled is Verb.CANCEL}
    assert giving_way == set(FINISHING) - {Verb.SUCCEED, Verb.CANCEL}
    assert EVERY[Verb.SUCCEED].if_cancelled is None
    assert EVERY[Verb.CANCEL].if_cancelled is None


def test_the_alternative_to_a_finishing_verb_is_itself_one() -> None:
    assert all(m.if_cancelled is None or m.if_cancelled in FINISHING for m in EVERY.values())


def test_only_what_costs_nothing_keeps_the_marks_of_suspicion() -> None:
    free = {Verb.SNOOZE, Verb.THROTTLE, Verb.RELEASE}
    marked = {verb for verb, made in EVERY.items() if (made.lost, made.solo) == (2, True)}
    assert marked == free
    assert all(m.lost == 0 and not m.solo for v, m in EVERY.items() if v not in free)


def test_an_unsuspicious_job_is_released_without_marks() -> None:
    made = transition.release(claimed(), by=WORKER)
    assert (made.lost, made.solo, made.missed, made.delay) == (0, False, False, timedelta(0))


def test_a_release_by_a_worker_without_the_task_asks_for_the_stamp_and_a_delay() -> None:
    made = transition.release(claimed(), by=WORKER, delay=DELAY, missed=ERROR)
    assert made.missed
    assert made.delay == DELAY


def test_a_retry_keeps_its_error_and_says_when() -> None:
    made = EVERY[Verb.RETRY]
    assert (made.error, made.delay, made.state) == (ERROR, DELAY, State.WAITING)


def test_a_retry_after_a_loss_stores_the_suspicion_it_was_given() -> None:
    made = transition.retry(claimed(), by="reaper", error=ERROR, delay=DELAY, lost=2, solo=True)
    assert (made.lost, made.solo, made.by) == (2, True, "reaper")


def test_a_success_keeps_its_result_and_its_row_by_default() -> None:
    assert EVERY[Verb.SUCCEED].result == b"1"
    assert EVERY[Verb.SUCCEED].keep
    assert not transition.succeed(claimed(), by=WORKER, result=None, keep=False).keep


def test_only_success_can_delete_its_row() -> None:
    assert all(made.keep for made in EVERY.values())


def test_a_cancel_may_keep_what_the_handler_raised_on_its_way_out() -> None:
    assert EVERY[Verb.CANCEL].error is None
    assert transition.cancel(claimed(), by=WORKER, error=ERROR).error == ERROR


def test_a_failure_after_losses_keeps_their_number() -> None:
    made = transition.fail(claimed(), by="reaper", error=ERROR, lost=3)
    assert (made.lost, made.error, made.state) == (3, ERROR, State.FAILED)


def test_a_transition_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        EVERY[Verb.FAIL].verb = Verb.SUCCEED  # type: ignore[misc]


def test_a_transition_is_a_value() -> None:
    again = transition.fail(SUSPECT, by=WORKER, error=ERROR)
    assert again == EVERY[Verb.FAIL]
    assert msgspec.structs.replace(again, by="somebody else") != again
