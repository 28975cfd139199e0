"""When a part of a flow opens, and what it tells the parts after it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.fixtures import few
from windlass._core.flows.flow import PartKind
from windlass._core.flows.part import (
    NOTHING,
    Counts,
    Decision,
    Gate,
    MemberEnd,
    Tidings,
    coming_back,
    decide,
    ended_as,
    is_due,
    tidings,
)
from windlass._core.job.state import State

JOBS, JOIN, END, CALLBACK, ADDED = PartKind
OVER = Tidings(over=True, broken=False, unneeded=False)

kinds = st.sampled_from(PartKind)
whens = st.sampled_from(["succeeded", "failed"])
gates = st.builds(Gate, st.integers(0, 2), st.integers(0, 2), st.integers(0, 2))


@st.composite
def jobs(draw: st.DrawFn) -> Counts:
    """The counts of any part that has jobs."""
    ends = {str(end): draw(st.integers(0, 2)) for end in MemberEnd}
    free, blocked = draw(st.integers(0, 2)), draw(st.integers(0, 2))
    total = free + blocked + sum(ends.values())
    return Counts(total=total, open=free + blocked, blocked=blocked, **ends)


# --- what becomes of blocked jobs ---------------------------------------------------------------


@pytest.mark.parametrize("kind", PartKind)
def test_a_part_opens_when_all_that_it_waits_for_has_ended_well(kind: PartKind) -> None:
    assert decide(kind, "succeeded", Gate(waiting=1)) is Decision.WAIT
    assert decide(kind, "succeeded", Gate()) is Decision.OPEN


@pytest.mark.parametrize(
    ("kind", "waits"), [(JOBS, False), (JOIN, False), (ADDED, False), (END, True)]
)
def test_a_failure_stops_members_and_joins_at_once_and_the_end_in_the_end(
    kind: PartKind, *, waits: bool
) -> None:
    running = decide(kind, "succeeded", Gate(waiting=1, broken=1))
    assert running is (Decision.WAIT if waits else Decision.STOP)
    assert decide(kind, "succeeded", Gate(broken=1)) is Decision.STOP


def test_a_part_for_failures_waits_for_the_last_end_and_opens_only_after_a_failure() -> None:
    assert decide(JOBS, "failed", Gate(waiting=1, broken=1)) is Decision.WAIT
    assert decide(JOBS, "failed", Gate(broken=1)) is Decision.OPEN
    assert decide(JOBS, "failed", Gate()) is Decision.SKIP


def test_a_part_after_one_that_was_not_needed_is_not_needed() -> None:
    assert decide(JOBS, "succeeded", Gate(unneeded=1)) is Decision.SKIP
    assert decide(JOBS, "succeeded", Gate(waiting=1, unneeded=1)) is Decision.WAIT


def test_a_failure_counts_more_than_a_part_that_was_not_needed() -> None:
    assert decide(JOBS, "succeeded", Gate(broken=1, unneeded=1)) is Decision.STOP


def test_a_flow_whose_last_parts_were_not_needed_has_succeeded() -> None:
    assert decide(END, "succeeded", Gate(unneeded=2)) is Decision.OPEN


def test_a_callback_for_the_other_end_is_not_needed() -> None:
    assert decide(CALLBACK, "succeeded", Gate(broken=1)) is Decision.SKIP
    assert decide(CALLBACK, "failed", Gate()) is Decision.SKIP
    assert decide(CALLBACK, "failed", Gate(broken=1)) is Decision.OPEN


def test_of_a_cancelled_flow_only_callbacks_run_that_do_not_ask_how_it_ended() -> None:
    # A lenient callback does not learn of the failure: its gate counts none.
    assert decide(CALLBACK, "succeeded", Gate(), cancelled=True) is Decision.OPEN
    assert decide(CALLBACK, "succeeded", Gate(broken=1), cancelled=True) is Decision.SKIP
    assert decide(CALLBACK, "failed", Gate(broken=1), cancelled=True) is Decision.SKIP
    assert decide(CALLBACK, "succeeded", Gate(waiting=1), cancelled=True) is Decision.WAIT


@few
@given(kind=st.sampled_from([JOBS, JOIN]), when=whens, gate=gates)
def test_every_blocked_member_of_a_cancelled_flow_is_stopped(
    kind: PartKind, when: Any, gate: Gate
) -> None:
    assert decide(kind, when, gate, cancelled=True) is Decision.STOP


@few
@given(kind=kinds, when=whens, gate=gates, cancelled=st.booleans())
def test_nothing_opens_while_something_is_waited_for(
    kind: PartKind, when: Any, gate: Gate, *, cancelled: bool
) -> None:
    decision = decide(kind, when, gate, cancelled=cancelled)
    if gate.waiting:
        assert decision in (Decision.WAIT, Decision.STOP)
    else:
        assert decision is not Decision.WAIT


# --- what a part tells --------------------------------------------------------------------------


def test_a_part_with_open_jobs_tells_nothing() -> None:
    counts = Counts(total=3, open=1, succeeded=2)
    assert tidings(JOBS, "succeeded", Gate(), counts) == NOTHING


def test_a_part_is_over_with_its_last_job() -> None:
    assert tidings(JOBS, "succeeded", Gate(), Counts(total=2, succeeded=2)) == OVER


@pytest.mark.parametrize("ended", [MemberEnd.FAILED, MemberEnd.CANCELLED, MemberEnd.STOPPED])
def test_a_failure_is_told_before_its_part_is_over(ended: MemberEnd) -> None:
    counts = Counts(total=2, open=1, **{ended: 1})
    assert tidings(JOBS, "succeeded", Gate(), counts) == Tidings(
        over=False, broken=True, unneeded=False
    )


def test_a_part_was_not_needed_if_none_of_its_jobs_was() -> None:
    none = Counts(total=2, skipped=2)
    assert tidings(JOBS, "failed", Gate(), none) == OVER._replace(unneeded=True)
    assert tidings(JOBS, "failed", Gate(), Counts(total=2, skipped=1, succeeded=1)) == OVER


@pytest.mark.parametrize(
    ("gate", "told"),
    [
        (Gate(waiting=1), NOTHING),
        (Gate(), OVER),
        (Gate(waiting=1, broken=1), NOTHING._replace(broken=True)),
        (Gate(broken=1), OVER._replace(broken=True)),
        (Gate(unneeded=1), OVER._replace(unneeded=True)),
    ],
)
def test_a_part_without_jobs_passes_on_what_was_decided_about_it(gate: Gate, told: Tidings) -> None:
    assert tidings(JOIN, "succeeded", gate, Counts()) == told


@few
@given(kind=kinds, when=whens, gate=gates, counts=jobs(), other=gates, cancelled=st.booleans())
def test_a_part_with_jobs_tells_of_its_jobs_alone(
    *, kind: PartKind, when: Any, gate: Gate, counts: Counts, other: Gate, cancelled: bool
) -> None:
    if counts.total:
        assert tidings(kind, when, gate, counts, cancelled=cancelled) == tidings(
            kind, when, other, counts
        )


# --- parts that are due -------------------------------------------------------------------------


def test_a_part_with_blocked_jobs_is_due_when_something_is_decided_about_it() -> None:
    counts = Counts(total=1, open=1, blocked=1)
    assert not is_due(JOBS, "succeeded", Gate(waiting=1), counts)
    assert is_due(JOBS, "succeeded", Gate(), counts)
    assert is_due(JOBS, "succeeded", Gate(waiting=1, broken=1), counts)


def test_a_part_whose_jobs_are_placed_is_not_due() -> None:
    assert not is_due(JOBS, "succeeded", Gate(), Counts(total=2, open=1, succeeded=1))


@pytest.mark.parametrize("ended", [MemberEnd.STOPPED, MemberEnd.SKIPPED])
def test_what_a_flow_has_ended_comes_back_when_the_reason_is_gone(ended: MemberEnd) -> None:
    counts = Counts(total=1, **{ended: 1})
    assert is_due(JOBS, "succeeded", Gate(waiting=1), counts)
    assert is_due(JOBS, "succeeded", Gate(), counts)
    assert not is_due(JOBS, "succeeded", Gate(broken=1), counts)


def test_a_stopped_job_comes_back_to_be_skipped_and_a_skipped_one_stays() -> None:
    """A stopped job counts as a failure, and nothing failed."""
    not_needed = Gate(unneeded=1)
    assert is_due(JOBS, "succeeded", not_needed, Counts(total=1, stopped=1))
    assert not is_due(JOBS, "succeeded", not_needed, Counts(total=1, skipped=1))


@pytest.mark.parametrize("ended", [MemberEnd.SUCCEEDED, MemberEnd.FAILED, MemberEnd.CANCELLED])
def test_no_other_end_comes_back_by_itself(ended: MemberEnd) -> None:
    counts = Counts(total=1, **{ended: 1})
    for gate in (Gate(), Gate(waiting=1), Gate(broken=1)):
        assert not is_due(JOBS, "succeeded", gate, counts)


@few
@given(kind=kinds, when=whens, gate=gates, counts=jobs(), cancelled=st.booleans())
def test_settling_a_part_leaves_nothing_due(
    kind: PartKind, when: Any, gate: Gate, counts: Counts, *, cancelled: bool
) -> None:
    for _ in range(2):  # what comes back is blocked first, and then placed
        decision = decide(kind, when, gate, cancelled=cancelled)
        settle(decision, counts)
    assert not is_due(kind, when, gate, counts, cancelled=cancelled)


def settle(decision: Decision, counts: Counts) -> None:
    """Do to the counts what a store does to the jobs."""
    ends = coming_back(decision)
    back = sum(getattr(counts, end) for end in ends)
    if back:
        for end in ends:
            setattr(counts, end, 0)
        counts.open += back
        counts.blocked += back
    elif decision is not Decision.WAIT:
        ended, counts.blocked = counts.blocked, 0
        if decision is Decision.STOP:
            counts.stopped += ended
            counts.open -= ended
        elif decision is Decision.SKIP:
            counts.skipped += ended
            counts.open -= ended


@pytest.mark.parametrize(
    ("state", "ended"),
    [
        (State.SUCCEEDED, MemberEnd.SUCCEEDED),
        (State.FAILED, MemberEnd.FAILED),
        (State.CANCELLED, MemberEnd.CANCELLED),
        (State.DISCARDED, MemberEnd.CANCELLED),
    ],
)
def test_how_a_member_ended_follows_from_its_state(state: State, ended: MemberEnd) -> None:
    assert ended_as(state) is ended
