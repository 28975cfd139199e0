from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.fixtures import few
from windlass._core.limits.backoff import DEFAULT_BACKOFF, Backoff, Curve, Jitter
from windlass._core.values.instants import LONGEST
from windlass.errors import InvalidArgument

SECOND = timedelta(seconds=1)
MICROSECOND = timedelta(microseconds=1)
MIDDLE = 0.5
"""The draw at which a spread bends nothing."""

spans = st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=2))
chances = st.floats(0, 1, exclude_max=True)
tries = st.integers(1, 100) | st.integers(1, 2**31)
curves = st.one_of(
    st.builds(Backoff.fixed, spans),
    st.builds(Backoff.linear, spans, step=st.none() | spans, cap=spans, jitter=st.just("none")),
    st.builds(
        Backoff.exponential, spans, factor=st.floats(1, 1e6), cap=spans, jitter=st.just("none")
    ),
    # In order: exact waits may be given in any, and are no curve then.
    st.builds(Backoff.waits, st.lists(spans, min_size=1, max_size=5).map(sorted)),
    st.just(Backoff.none()),
)


def seconds(backoff: Backoff, upto: int, chance: float = MIDDLE) -> list[float]:
    return [backoff.delay(n, chance) / SECOND for n in range(1, upto + 1)]


# --- the curves -------------------------------------------------------------------------------


def test_the_default_is_5_s_25_s_2_min_10_min_and_then_an_hour_at_most() -> None:
    assert seconds(DEFAULT_BACKOFF, 6) == [5, 25, 125, 625, 3125, 3600]
    assert DEFAULT_BACKOFF.jitter is Jitter.SPREAD


def test_exponential_grows_by_its_factor_until_the_cap() -> None:
    assert seconds(Backoff.exponential(1, factor=2, cap=10, jitter="none"), 6) == [
        1,
        2,
        4,
        8,
        10,
        10,
    ]


def test_exponential_with_factor_1_stays_where_it_began() -> None:
    assert seconds(Backoff.exponential(3, factor=1, jitter="none"), 4) == [3, 3, 3, 3]


def test_exponential_may_grow_by_less_than_doubling() -> None:
    grown = Backoff.exponential(100, factor=1.5, jitter="none")
    assert seconds(grown, 4) == [100, 150, 225, 337.5]


def test_linear_grows_by_its_step_until_the_cap() -> None:
    assert seconds(Backoff.linear(1, step=3, cap=9, jitter="none"), 5) == [1, 4, 7, 9, 9]


def test_linear_grows_by_its_first_delay_when_no_step_is_given() -> None:
    assert seconds(Backoff.linear(10, jitter="none"), 4) == [10, 20, 30, 40]


def test_linear_with_a_step_of_zero_stays_where_it_began() -> None:
    assert seconds(Backoff.linear(2, step=0, jitter="none"), 3) == [2, 2, 2]


def test_fixed_is_always_the_same() -> None:
    assert seconds(Backoff.fixed(90), 3) == [90, 90, 90]


def test_none_retries_at_once() -> None:
    assert seconds(Backoff.none(), 3) == [0, 0, 0]


def test_a_first_delay_above_the_cap_is_the_cap() -> None:
    made = Backoff.exponential(60, cap=5, jitter="none")
    assert seconds(made, 3) == [5, 5, 5]
    assert seconds(Backoff.linear(60, cap=5, jitter="none"), 3) == [5, 5, 5]


def test_an_exponential_from_zero_stays_at_zero() -> None:
    assert seconds(Backoff.exponential(0, jitter="none"), 3) == [0, 0, 0]


def test_tries_are_counted_from_1_and_anything_less_counts_as_1() -> None:
    assert DEFAULT_BACKOFF.delay(0, MIDDLE) == DEFAULT_BACKOFF.delay(1, MIDDLE) == 5 * SECOND
    assert DEFAULT_BACKOFF.delay(-3, MIDDLE) == 5 * SECOND


def test_delays_may_be_given_as_timedeltas() -> None:
    assert Backoff.exponential(timedelta(minutes=1), cap=timedelta(hours=2)) == Backoff.exponential(
        60, cap=7200
    )


@few
@given(backoff=curves, n=tries)
def test_a_curve_never_falls_and_never_passes_its_cap(backoff: Backoff, n: int) -> None:
    here, after = backoff.delay(n, MIDDLE), backoff.delay(n + 1, MIDDLE)
    assert timedelta(0) <= here <= after <= backoff.cap


@few
@given(backoff=curves)
def test_attempt_2000_is_no_overflow(backoff: Backoff) -> None:
    assert backoff.delay(2000, MIDDLE) <= backoff.cap


def test_steps_and_factors_of_any_size_are_no_overflow() -> None:
    huge = LONGEST
    assert Backoff.linear(1, step=huge, jitter="none").delay(2000, 0) == timedelta(hours=1)
    assert Backoff.linear(huge, jitter="none").delay(2, 0) == timedelta(hours=1)
    assert Backoff.exponential(1, factor=1e300, jitter="none").delay(2000, 0) == timedelta(hours=1)
    assert Backoff.exponential(huge, jitter="none").delay(2000, 0) == timedelta(hours=1)
    assert DEFAULT_BACKOFF.delay(2**62, MIDDLE) == timedelta(hours=1)


@few
@given(first=st.integers(1, 10**6), factor=st.integers(2, 10), n=st.integers(1, 12), cap=spans)
def test_an_exponential_below_its_cap_is_exact(
    first: int, factor: int, n: int, cap: timedelta
) -> None:
    exact = timedelta(microseconds=first * factor ** (n - 1))
    made = Backoff.exponential(first * MICROSECOND, factor=factor, cap=cap, jitter="none")
    assert abs(made.delay(n, 0) - min(exact, cap)) <= MICROSECOND


@few
@given(first=spans, step=spans, n=st.integers(1, 10_000), cap=spans)
def test_a_linear_curve_is_exact(first: timedelta, step: timedelta, n: int, cap: timedelta) -> None:
    made = Backoff.linear(first, step=step, cap=cap, jitter="none")
    assert made.delay(n, 0) == min(first + step * (n - 1), cap)


# --- jitter -----------------------------------------------------------------------------------


@few
@given(first=spans, n=st.integers(1, 50), chance=chances)
def test_a_spread_stays_within_a_quarter_of_the_curve(
    first: timedelta, n: int, chance: float
) -> None:
    straight = Backoff.exponential(first, factor=2, jitter="none").delay(n, chance)
    bent = Backoff.exponential(first, factor=2, jitter="spread").delay(n, chance)
    assert straight * 0.75 - MICROSECOND <= bent <= straight * 1.25 + MICROSECOND


@few
@given(first=spans, n=st.integers(1, 50), chance=chances)
def test_full_jitter_stays_between_nothing_and_the_curve(
    first: timedelta, n: int, chance: float
) -> None:
    straight = Backoff.exponential(first, factor=2, jitter="none").delay(n, chance)
    bent = Backoff.exponential(first, factor=2, jitter="full").delay(n, chance)
    assert timedelta(0) <= bent <= straight


@few
@given(backoff=curves, n=tries, chance=chances)
def test_without_jitter_chance_changes_nothing(backoff: Backoff, n: int, chance: float) -> None:
    assert backoff.delay(n, chance) == backoff.delay(n, 0.0)


@few
@given(jitter=st.sampled_from(["spread", "full"]), one=chances, other=chances)
def test_a_higher_draw_never_gives_a_shorter_wait(jitter: str, one: float, other: float) -> None:
    made = Backoff.fixed(100, jitter="spread" if jitter == "spread" else "full")
    low, high = sorted([one, other])
    assert made.delay(1, low) <= made.delay(1, high)


def test_a_spread_reaches_both_of_its_ends() -> None:
    made = Backoff.fixed(100, jitter="spread")
    assert made.delay(1, 0.0) == 75 * SECOND
    assert 124.99 * SECOND < made.delay(1, math.nextafter(1, 0)) <= 125 * SECOND


def test_a_crowd_at_the_cap_is_spread_too() -> None:
    made = Backoff.exponential(1, cap=100)
    assert {made.delay(50, chance) / SECOND for chance in (0.0, 0.5)} == {75, 100}


# --- the curves of the systems this one follows -----------------------------------------------


def test_250_ms_doubled_gives_500_ms_after_the_second_failure() -> None:
    made = Backoff.exponential(timedelta(milliseconds=250), factor=2, jitter="none")
    assert made.delay(2, MIDDLE) == timedelta(milliseconds=500)
    assert seconds(made, 4) == [0.25, 0.5, 1, 2]


@pytest.mark.parametrize("attempts", [1, 2, 3, 4, 5, 6, 30, 64])
def test_a_queue_curve_that_begins_at_twice_its_unit(attempts: int) -> None:
    # min(60 s x 2^attempts, 1800 s), attempts counted at the claim: the first wait is 120 s.
    made = Backoff.exponential(2 * 60, factor=2, cap=1800, jitter="none")
    assert made.delay(attempts, MIDDLE) / SECOND == min(60 * 2**attempts, 1800)


def test_a_queue_curve_that_is_switched_off_is_due_at_once() -> None:
    assert Backoff.none().delay(7, MIDDLE) == timedelta(0)


@few
@given(n=st.integers(1, 40), chance=chances)
def test_a_second_doubled_up_to_15_minutes_give_or_take_a_quarter(n: int, chance: float) -> None:
    made = Backoff.exponential(1, factor=2, cap=900)
    assert made.jitter is Jitter.SPREAD
    straight = min(2.0 ** (n - 1), 900)
    assert straight * 0.75 <= made.delay(n, chance) / SECOND <= straight * 1.25


@few
@given(n=st.integers(1, 40), chance=chances)
def test_initial_plus_increments_up_to_a_maximum_give_or_take_a_quarter(
    n: int, chance: float
) -> None:
    made = Backoff.linear(2, step=3, cap=60)
    straight = min(2 + 3 * (n - 1), 60)
    assert straight * 0.75 <= made.delay(n, chance) / SECOND <= straight * 1.25


@few
@given(n=st.integers(1, 40), chance=chances)
def test_anything_from_nothing_to_5_s_doubled_up_to_15_minutes(n: int, chance: float) -> None:
    made = Backoff.exponential(2 * 5, factor=2, cap=900, jitter="full")
    assert 0 <= made.delay(n, chance) / SECOND <= min(5 * 2.0**n, 900)


# --- what makes no sense ----------------------------------------------------------------------


@pytest.mark.parametrize("factor", [0, 0.99, -2, math.nan, math.inf])
def test_a_factor_that_would_shrink_or_explode_is_refused(factor: float) -> None:
    with pytest.raises(InvalidArgument, match="factor must be at least 1"):
        Backoff.exponential(1, factor=factor)


@pytest.mark.parametrize("first", [-1, -0.5, math.nan, math.inf, timedelta(seconds=-1)])
def test_a_delay_that_is_no_duration_is_refused_by_name(first: float | timedelta) -> None:
    for make in (Backoff.exponential, Backoff.linear):
        with pytest.raises(InvalidArgument, match="first"):
            make(first)
    with pytest.raises(InvalidArgument, match="delay"):
        Backoff.fixed(first)
    with pytest.raises(InvalidArgument, match="step"):
        Backoff.linear(1, step=first)
    with pytest.raises(InvalidArgument, match="cap"):
        Backoff.exponential(1, cap=first)


def test_exact_waits_are_taken_one_after_the_other_and_the_last_one_again() -> None:
    backoff = Backoff.waits([1, timedelta(minutes=1), 3600])
    waits = [backoff.delay(tries, 0.9).total_seconds() for tries in (1, 2, 3, 4, 2000)]
    assert waits == [1, 60, 3600, 3600, 3600]
    assert Backoff.waits([5, 0]).delay(2, 0.5) == timedelta(0)


@pytest.mark.parametrize("times", [[], 5, "60", [-1], ["soon"], [float("nan")], [[1]]])
def test_exact_waits_that_make_no_sense_are_refused(times: Any) -> None:
    with pytest.raises(InvalidArgument, match="wait"):
        Backoff.waits(times)


def test_a_list_of_waits_belongs_to_its_own_curve() -> None:
    with pytest.raises(InvalidArgument, match=r"Backoff\.waits"):
        Backoff(curve=Curve.FIXED, times=(timedelta(1),))
    with pytest.raises(msgspec.ValidationError, match=r"Backoff\.waits"):
        msgspec.json.decode(b'{"curve":"listed"}', type=Backoff)


def test_no_wait_is_longer_than_a_year() -> None:
    with pytest.raises(InvalidArgument, match="365 days"):
        Backoff.fixed(timedelta(days=366))
    with pytest.raises(InvalidArgument, match="365 days"):
        Backoff.exponential(1, cap=timedelta(days=366))


def test_an_unknown_jitter_is_refused() -> None:
    with pytest.raises(ValueError, match="wild"):
        Backoff.exponential(1, jitter="wild")  # type: ignore[arg-type]


# --- stored with the job ----------------------------------------------------------------------


@few
@given(backoff=curves)
def test_a_backoff_survives_being_stored(backoff: Backoff) -> None:
    stored = msgspec.json.encode(backoff)
    assert msgspec.json.decode(stored, type=Backoff) == backoff


def test_a_stored_backoff_that_makes_no_sense_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="factor"):
        msgspec.json.decode(b'{"curve":"exponential","factor":0.5}', type=Backoff)


def test_backoffs_are_values() -> None:
    assert len({Backoff.fixed(1), Backoff.fixed(timedelta(seconds=1)), Backoff.none()}) == 2
