from __future__ import annotations

from datetime import timedelta
from itertools import product

import pytest

from tests.core.fixtures import NOW
from windlass._core.job.state import (
    FINISHING,
    TERMINAL,
    TRANSITIONS,
    State,
    Verb,
    shown_state,
    target_state,
)
from windlass.errors import IllegalTransition, WindlassError

# Written out a second time on purpose: a changed table must be meant.
EDGES = {
    (State.WAITING, Verb.CLAIM): State.RUNNING,
    (State.WAITING, Verb.CANCEL): State.CANCELLED,
    (State.WAITING, Verb.EXPIRE): State.DISCARDED,
    (State.RUNNING, Verb.SUCCEED): State.SUCCEEDED,
    (State.RUNNING, Verb.RETRY): State.WAITING,
    (State.RUNNING, Verb.SNOOZE): State.WAITING,
    (State.RUNNING, Verb.THROTTLE): State.WAITING,
    (State.RUNNING, Verb.RELEASE): State.WAITING,
    (State.RUNNING, Verb.FAIL): State.FAILED,
    (State.RUNNING, Verb.CANCEL): State.CANCELLED,
    (State.FAILED, Verb.REQUEUE): State.WAITING,
    (State.FAILED, Verb.DISCARD): State.DISCARDED,
    (State.CANCELLED, Verb.REQUEUE): State.WAITING,
    (State.DISCARDED, Verb.REQUEUE): State.WAITING,
}
ABSENT = [pair for pair in product(State, Verb) if pair not in EDGES]


@pytest.mark.parametrize(("state", "verb"), EDGES)
def test_an_edge_of_the_table_leads_where_the_design_says(state: State, verb: Verb) -> None:
    assert target_state(state, verb) is EDGES[state, verb]


@pytest.mark.parametrize(("state", "verb"), ABSENT)
def test_a_verb_without_an_edge_is_refused_and_the_message_lists_what_is_allowed(
    state: State, verb: Verb
) -> None:
    with pytest.raises(IllegalTransition) as refused:
        target_state(state, verb)

    text = str(refused.value)
    assert f"Cannot {verb.value} a job that is {state.value}" in text
    allowed = [known.value for (source, known) in EDGES if source is state]
    assert all(word in text.partition("which allows")[2] for word in allowed)
    assert allowed or "nothing: the state is final" in text
    assert (refused.value.state, refused.value.verb) == (state, verb)


def test_the_table_holds_exactly_these_edges() -> None:
    assert {
        (state, verb): after
        for state, edges in TRANSITIONS.items()
        for verb, after in edges.items()
    } == EDGES
    assert len(ABSENT) == len(State) * len(Verb) - len(EDGES)


def test_an_illegal_transition_is_caught_as_any_error_of_the_library() -> None:
    with pytest.raises(WindlassError):
        target_state(State.SUCCEEDED, Verb.CLAIM)


def test_every_state_is_reached_and_every_verb_is_used() -> None:
    assert set(EDGES.values()) == set(State)
    assert {verb for _, verb in EDGES} == set(Verb)


def test_nothing_runs_from_a_terminal_state_without_a_person() -> None:
    by_people = {Verb.REQUEUE, Verb.DISCARD}
    assert {state for state in State if set(TRANSITIONS[state]) <= by_people} == TERMINAL


def test_success_is_the_only_state_that_allows_nothing() -> None:
    assert [state for state, edges in TRANSITIONS.items() if not edges] == [State.SUCCEEDED]


def test_the_finishing_verbs_are_those_that_end_a_claim() -> None:
    assert set(FINISHING) == {
        Verb.SUCCEED,
        Verb.RETRY,
        Verb.SNOOZE,
        Verb.THROTTLE,
        Verb.RELEASE,
        Verb.FAIL,
        Verb.CANCEL,
    }
    assert State.RUNNING not in FINISHING.values()


def test_states_and_verbs_are_their_stored_words() -> None:
    assert [str(state) for state in State] == [
        "waiting",
        "running",
        "succeeded",
        "failed",
        "cancelled",
        "discarded",
    ]
    assert f"{Verb.REQUEUE}" == "requeue"


@pytest.mark.parametrize(
    ("due", "failed_before", "shown"),
    [
        (timedelta(microseconds=1), False, "scheduled"),
        (timedelta(0), False, "ready"),
        (timedelta(microseconds=-1), False, "ready"),
        (timedelta(hours=1), True, "retrying"),
        (timedelta(0), True, "retrying"),
    ],
)
def test_a_waiting_job_is_shown_as_scheduled_ready_or_retrying(
    due: timedelta, *, failed_before: bool, shown: str
) -> None:
    seen = shown_state(State.WAITING, due=NOW + due, now=NOW, failed_before=failed_before)
    assert seen == shown


@pytest.mark.parametrize("state", [state for state in State if state is not State.WAITING])
@pytest.mark.parametrize("failed_before", [True, False])
def test_every_other_state_is_shown_as_it_is_stored(state: State, *, failed_before: bool) -> None:
    later = NOW + timedelta(days=1)
    assert shown_state(state, due=later, now=NOW, failed_before=failed_before) == state.value
