from __future__ import annotations

import math
from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.fixtures import NOW, few
from windlass._core.job.state import FAILURE_VERBS, Verb
from windlass._core.limits.breaker import Breaker, BreakerState, record_failure, record_success
from windlass._core.limits.limit import LimitSpec, Rate
from windlass.errors import InvalidArgument

INSTANT = timedelta(microseconds=1)
SECOND = timedelta(seconds=1)
SHOP = Breaker(3, cool_down=30, growth=2, longest=120)

breakers = st.builds(
    Breaker,
    st.integers(1, 5),
    cool_down=st.integers(1, 100).map(lambda n: n * SECOND),
    growth=st.floats(1, 10),
    longest=st.integers(100, 10**6).map(lambda n: n * SECOND),
)


def after(breaker: Breaker, failures: int) -> BreakerState:
    """So many failures at one instant."""
    state = record_success()
    for _ in range(failures):
        state = record_failure(breaker, state, NOW)
    return state


# --- opening ----------------------------------------------------------------------------------


def test_unless_said_otherwise_ten_failures_open_it_for_thirty_seconds() -> None:
    breaker = Breaker()
    assert (breaker.failures, breaker.waits[0]) == (10, 30 * SECOND)
    assert not after(breaker, 9).holds(breaker)
    assert after(breaker, 10) == BreakerState(10, 1, NOW + 30 * SECOND)


@few
@given(breaker=breakers)
def test_it_is_closed_below_its_number_and_not_from_there_on(breaker: Breaker) -> None:
    below = after(breaker, breaker.failures - 1)
    assert below == BreakerState(breaker.failures - 1, 0, None)
    assert not below.holds(breaker)
    assert after(breaker, breaker.failures).holds(breaker)


def test_late_failures_count_and_do_not_prolong_it() -> None:
    state = after(SHOP, 3)
    for late in (INSTANT, 29 * SECOND, 30 * SECOND - INSTANT):
        assert record_failure(SHOP, state, NOW + late) == BreakerState(4, 1, NOW + 30 * SECOND)


def test_a_failure_at_the_very_end_of_the_rest_opens_it_again() -> None:
    then = NOW + 30 * SECOND
    assert record_failure(SHOP, after(SHOP, 3), then) == BreakerState(4, 2, then + 60 * SECOND)


@few
@given(breaker=breakers, trials=st.integers(1, 40))
def test_each_failed_trial_waits_by_the_list_and_its_last_for_ever(
    breaker: Breaker, trials: int
) -> None:
    state = after(breaker, breaker.failures)
    for opened in range(2, trials + 2):
        assert state.open_until is not None
        now = state.open_until
        state = record_failure(breaker, state, now)
        assert state.opened == opened
        assert state.open_until == now + breaker.waits[min(opened, len(breaker.waits)) - 1]


def test_a_success_forgets_everything() -> None:
    assert record_success() == BreakerState(0, 0, None)
    assert not record_success().holds(Breaker(1))


def test_an_attempt_that_was_spent_is_a_failure_and_nothing_else_is() -> None:
    assert set(FAILURE_VERBS) == {Verb.RETRY, Verb.FAIL}


def test_after_a_lowered_number_what_has_failed_is_enough() -> None:
    state = after(Breaker(9), 3)
    assert state.holds(SHOP)
    assert state.open_until is None
    assert not after(SHOP, 3).holds(Breaker(4))


# --- waits ------------------------------------------------------------------------------------


def test_waits_grow_up_to_the_longest() -> None:
    assert SHOP.waits == (30 * SECOND, 60 * SECOND, 120 * SECOND)
    assert Breaker(1, cool_down=1, growth=3, longest=10).waits == (
        1 * SECOND,
        3 * SECOND,
        9 * SECOND,
        10 * SECOND,
    )


@given(breaker=breakers)
def test_waits_never_fall_never_pass_the_longest_and_have_an_end(breaker: Breaker) -> None:
    waits = breaker.waits
    assert waits[0] == breaker.cool_down
    assert list(waits) == sorted(waits)
    assert max(waits) <= breaker.longest
    assert len(waits) <= 30


def test_without_growth_there_is_one_wait() -> None:
    assert Breaker(1, cool_down=7, growth=1).waits == (7 * SECOND,)
    assert Breaker(1, cool_down=7, longest=7).waits == (7 * SECOND,)


def test_an_absurd_growth_gives_the_longest_and_no_overflow() -> None:
    assert Breaker(1, growth=1e300).waits == (30 * SECOND, timedelta(hours=1))


# --- definitions ------------------------------------------------------------------------------


@pytest.mark.parametrize("failures", [0, -1, 1.5, True, "3", 1_000_001, None])
def test_a_number_of_failures_that_is_none_is_refused(failures: int) -> None:
    with pytest.raises(InvalidArgument, match="whole number of failures"):
        Breaker(failures)


@pytest.mark.parametrize("growth", [0.99, 0, -2, math.inf, math.nan, "2", True])
def test_a_growth_that_shrinks_or_is_no_number_is_refused(growth: float) -> None:
    with pytest.raises(InvalidArgument, match="growth"):
        Breaker(3, growth=growth)


@pytest.mark.parametrize("cool_down", [0, timedelta(0)])
def test_a_rest_of_nothing_is_refused(cool_down: timedelta | float) -> None:
    with pytest.raises(InvalidArgument, match="longer than nothing"):
        Breaker(3, cool_down=cool_down)


@pytest.mark.parametrize("field", ["cool_down", "longest"])
@pytest.mark.parametrize("value", [-1, math.nan, "soon", timedelta(days=40_000)])
def test_a_rest_that_is_no_duration_is_refused(field: str, value: float) -> None:
    with pytest.raises(InvalidArgument, match=field):
        Breaker(3, **{field: value})


def test_a_longest_rest_below_the_first_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="longest"):
        Breaker(3, cool_down=31, longest=30)
    assert Breaker(3, cool_down=30, longest=30).waits == (30 * SECOND,)


def test_a_breaker_may_be_given_in_seconds_and_survives_being_stored() -> None:
    spec = LimitSpec(name="shop", breaker=Breaker(3, cool_down=1.5, growth=3, longest=60))
    assert spec.breaker == Breaker(3, timedelta(seconds=1.5), 3.0, timedelta(minutes=1))
    assert msgspec.json.decode(msgspec.json.encode(spec), type=LimitSpec) == spec


def test_a_limit_that_is_a_breaker_is_nothing_else() -> None:
    for other in ({"concurrency": 1}, {"rate": Rate(1, 1)}):
        with pytest.raises(InvalidArgument, match="no rate and no concurrency"):
            LimitSpec(name="shop", breaker=SHOP, **other)
