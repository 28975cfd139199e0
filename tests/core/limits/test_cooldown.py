from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from tests.core.fixtures import few
from windlass._core.limits.backoff import Backoff
from windlass._core.limits.cooldown import (
    DEFAULT_COOL_DOWN,
    MAX_STEPS,
    MIN_COOL_DOWN,
    RESET_AFTER,
    cool_down_steps,
)

SECOND = timedelta(seconds=1)

curves = st.one_of(
    st.builds(Backoff.exponential, st.floats(0.1, 60), factor=st.floats(1, 9)),
    st.builds(Backoff.linear, st.floats(0, 60), step=st.floats(0, 60)),
    st.builds(Backoff.fixed, st.floats(0, 60)),
    st.builds(Backoff.waits, st.lists(st.floats(0, 60), min_size=1, max_size=40)),
    st.just(Backoff.none()),
)


def test_the_numbers_are_those_that_were_promised() -> None:
    assert (RESET_AFTER, MAX_STEPS, MIN_COOL_DOWN) == (120 * SECOND, 30, SECOND / 10)


def test_by_default_cool_downs_double_from_a_second_to_five_minutes() -> None:
    waits = cool_down_steps(DEFAULT_COOL_DOWN, 0.5)
    assert waits[:4] == (1 * SECOND, 2 * SECOND, 4 * SECOND, 8 * SECOND)
    assert waits[-1] == 300 * SECOND
    assert waits == cool_down_steps(DEFAULT_COOL_DOWN, 0.0)


@few
@given(curve=curves, chance=st.floats(0, 1, exclude_max=True), hits=st.integers(0, MAX_STEPS))
def test_the_list_of_cool_downs_follows_the_curve(curve: Backoff, chance: float, hits: int) -> None:
    waits = cool_down_steps(curve, chance)
    assert waits[min(hits, len(waits) - 1)] == max(curve.delay(hits + 1, chance), MIN_COOL_DOWN)


@few
@given(curve=curves, chance=st.floats(0, 1, exclude_max=True))
def test_the_list_is_as_short_as_it_can_be_and_never_empty(curve: Backoff, chance: float) -> None:
    waits = cool_down_steps(curve, chance)
    assert 1 <= len(waits) <= MAX_STEPS + 1
    assert len(waits) == 1 or waits[-1] != waits[-2]


def test_a_curve_that_is_flat_is_one_rest() -> None:
    assert cool_down_steps(Backoff.fixed(7), 0.5) == (7 * SECOND,)
    assert cool_down_steps(Backoff.none(), 0.5) == (MIN_COOL_DOWN,)
    assert cool_down_steps(Backoff.waits([1, 1, 1]), 0.5) == (1 * SECOND,)


def test_a_curve_that_comes_back_to_its_last_rest_keeps_what_is_between() -> None:
    assert cool_down_steps(Backoff.waits([5, 1, 5]), 0.5) == (5 * SECOND, 1 * SECOND, 5 * SECOND)


def test_chance_bends_a_curve_that_wants_it() -> None:
    curve = Backoff.fixed(8, jitter="full")
    assert cool_down_steps(curve, 0.25) == (2 * SECOND,)
