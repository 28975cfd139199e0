from __future__ import annotations

import math
from datetime import datetime, timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.fixtures import NOW, few
from windlass._core.job.job import LimitUse
from windlass._core.limits.limit import (
    Admitted,
    Closed,
    LimitSpec,
    Rate,
    admit,
    drained,
    lane_key,
    rescale_debt,
    tokens_free,
)
from windlass.errors import InvalidArgument

MICROSECOND = timedelta(microseconds=1)
SECOND = timedelta(seconds=1)

# Periods that the count does not divide are the interesting ones: there rounding shows.
rates = st.builds(
    Rate,
    st.integers(1, 12),
    st.integers(1, 10**7).map(lambda us: us * MICROSECOND),
    st.integers(1, 6),
)
fractional_rates = st.builds(
    Rate,
    st.floats(0.01, 20),
    st.integers(1, 10**7).map(lambda us: us * MICROSECOND),
    st.integers(1, 6),
)


@st.composite
def used_buckets(draw: st.DrawFn) -> tuple[Rate, datetime | None]:
    """A rate and a bucket in any state that starts can leave behind, or that time has filled."""
    rate = draw(rates)
    spent = draw(st.none() | st.integers(-10, 20 * rate.burst))
    return rate, None if spent is None else NOW + rate.spacing * spent / 10


def starts(rate: Rate, asked: list[tuple[int, int]]) -> list[tuple[datetime, int]]:
    """Who starts when requests come so many tenths of a spacing apart; a closed one is dropped."""
    now, spent_until, begun = NOW, None, []
    for wait, cost in asked:
        now += rate.spacing * wait / 10
        answer = admit(rate, spent_until, cost=cost, now=now)
        if isinstance(answer, Admitted):
            begun.append((now, cost))
            spent_until = answer.spent_until
    return begun


requests = st.lists(
    st.tuples(st.integers(0, 12), st.sampled_from([1, 1, 1, 2, 3, 9])), min_size=1, max_size=30
)


# --- the promise ------------------------------------------------------------------------------


@given(rate=rates, asked=requests)
def test_no_half_open_window_holds_more_than_n_plus_burst_minus_1_starts(
    rate: Rate, asked: list[tuple[int, int]]
) -> None:
    begun = starts(rate, asked)
    for first, _ in begun:
        window = [cost for at, cost in begun if first <= at < first + rate.per]
        assert len(window) <= rate.n + rate.burst - 1
        # The same holds for what they cost, up to the debt that the last one may leave.
        debt = max(window[-1] - rate.burst, 0)
        assert sum(window) - debt <= rate.n + rate.burst - 1


@few
@given(rate=fractional_rates, asked=requests)
def test_a_fractional_count_holds_for_the_next_whole_one(
    rate: Rate, asked: list[tuple[int, int]]
) -> None:
    begun = starts(rate, asked)
    for first, _ in begun:
        window = [at for at, _ in begun if first <= at < first + rate.per]
        assert len(window) <= math.ceil(rate.n) + rate.burst - 1


@given(rate=rates | fractional_rates)
def test_asking_exactly_at_open_at_uses_the_whole_rate_and_no_more(rate: Rate) -> None:
    whole = math.ceil(rate.n)
    now, spent_until, begun = NOW, None, []
    for _ in range(rate.burst + 2 * whole):
        answer = admit(rate, spent_until, cost=1, now=now)
        if isinstance(answer, Closed):
            now = answer.open_at
            answer = admit(rate, spent_until, cost=1, now=now)
        assert isinstance(answer, Admitted)
        spent_until = answer.spent_until
        begun.append(now)

    assert begun[: rate.burst] == [NOW] * rate.burst
    assert now == NOW + rate.spacing * 2 * whole
    for first in begun:
        assert sum(first <= at < first + rate.per for at in begun) <= whole + rate.burst - 1


# --- opening ----------------------------------------------------------------------------------


@given(bucket=used_buckets(), cost=st.integers(1, 9) | st.floats(0, 9))
def test_the_promised_opening_is_honest_to_the_microsecond(
    bucket: tuple[Rate, datetime | None], cost: float
) -> None:
    rate, spent_until = bucket
    answer = admit(rate, spent_until, cost=cost, now=NOW)
    if isinstance(answer, Closed):
        assert answer.open_at > NOW
        then = admit(rate, spent_until, cost=cost, now=answer.open_at)
        assert isinstance(then, Admitted)
        before = admit(rate, spent_until, cost=cost, now=answer.open_at - MICROSECOND)
        assert before == answer


@few
@given(bucket=used_buckets(), cost=st.integers(1, 9), later=st.integers(0, 10**7))
def test_a_job_admitted_now_would_be_admitted_later(
    bucket: tuple[Rate, datetime | None], cost: int, later: int
) -> None:
    rate, spent_until = bucket
    if isinstance(admit(rate, spent_until, cost=cost, now=NOW), Admitted):
        then = NOW + later * MICROSECOND
        assert isinstance(admit(rate, spent_until, cost=cost, now=then), Admitted)


def test_an_untouched_bucket_is_full() -> None:
    rate = Rate(10, SECOND, burst=3)
    assert admit(rate, None, cost=1, now=NOW) == Admitted(NOW + SECOND / 10)
    long_ago = NOW - timedelta(days=400)
    assert admit(rate, long_ago, cost=1, now=NOW) == Admitted(NOW + SECOND / 10)


def test_a_burst_of_three_in_a_period_that_three_does_not_divide_starts_three_at_once() -> None:
    begun = starts(Rate(3, SECOND, burst=3), [(0, 1)] * 4)
    assert len(begun) == 3


def test_without_a_burst_starts_are_evenly_spaced() -> None:
    rate = Rate(4, SECOND)
    first = admit(rate, None, cost=1, now=NOW)
    assert isinstance(first, Admitted)
    assert admit(rate, first.spent_until, cost=1, now=NOW) == Closed(NOW + SECOND / 4)


# --- costs ------------------------------------------------------------------------------------


def test_a_cost_above_the_burst_starts_on_a_full_bucket_and_leaves_a_debt() -> None:
    rate = Rate(1, SECOND, burst=2)
    assert admit(rate, None, cost=5, now=NOW) == Admitted(NOW + 5 * SECOND)
    in_debt = NOW + 5 * SECOND
    assert admit(rate, in_debt, cost=1, now=NOW) == Closed(NOW + 4 * SECOND)
    assert tokens_free(rate, in_debt, NOW) == 0
    assert tokens_free(rate, in_debt, NOW + 3 * SECOND) == 0
    assert tokens_free(rate, in_debt, NOW + 4 * SECOND) == 1


@few
@given(bucket=used_buckets(), above=st.integers(1, 100))
def test_a_cost_above_the_burst_waits_for_a_full_bucket_and_no_longer(
    bucket: tuple[Rate, datetime | None], above: int
) -> None:
    rate, spent_until = bucket
    answer = admit(rate, spent_until, cost=rate.burst + above, now=NOW)
    if spent_until is not None and spent_until > NOW:
        assert answer == Closed(spent_until)
    else:
        assert answer == Admitted(NOW + rate.spacing * (rate.burst + above))


@few
@given(rate=rates, cost=st.integers(1, 6))
def test_a_cost_is_that_many_single_starts(rate: Rate, cost: int) -> None:
    once = admit(rate, None, cost=cost, now=NOW)
    spent_until = None
    for _ in range(min(cost, rate.burst)):
        answer = admit(rate, spent_until, cost=1, now=NOW)
        assert isinstance(answer, Admitted)
        spent_until = answer.spent_until
    if cost <= rate.burst:
        assert once == Admitted(spent_until or NOW)


def test_a_fraction_of_a_token_can_be_spent() -> None:
    rate = Rate(1, SECOND)
    assert admit(rate, None, cost=0.25, now=NOW) == Admitted(NOW + SECOND / 4)


def test_an_absurd_cost_leaves_a_long_debt_and_not_an_overflow() -> None:
    answer = admit(Rate(1, timedelta(days=1)), None, cost=1e300, now=NOW)
    assert isinstance(answer, Admitted)
    assert answer.spent_until.year < 2200


# --- counting what is free --------------------------------------------------------------------


@given(bucket=used_buckets())
def test_as_many_starts_fit_as_tokens_are_free(bucket: tuple[Rate, datetime | None]) -> None:
    rate, spent_until = bucket
    free = tokens_free(rate, spent_until, NOW)
    assert 0 <= free <= rate.burst
    for _ in range(free):
        answer = admit(rate, spent_until, cost=1, now=NOW)
        assert isinstance(answer, Admitted)
        spent_until = answer.spent_until
    assert isinstance(admit(rate, spent_until, cost=1, now=NOW), Closed)


@few
@given(bucket=used_buckets())
def test_a_closed_bucket_opens_with_exactly_the_tokens_asked_for(
    bucket: tuple[Rate, datetime | None],
) -> None:
    rate, spent_until = bucket
    answer = admit(rate, spent_until, cost=1, now=NOW)
    if isinstance(answer, Closed):
        assert tokens_free(rate, spent_until, answer.open_at) == 1
        assert tokens_free(rate, spent_until, answer.open_at - MICROSECOND) == 0


# --- draining and changing --------------------------------------------------------------------


@given(bucket=used_buckets())
def test_a_drained_bucket_has_nothing_left_and_forgives_no_debt(
    bucket: tuple[Rate, datetime | None],
) -> None:
    rate, spent_until = bucket
    empty = drained(rate, spent_until, NOW)
    assert tokens_free(rate, empty, NOW) == 0
    assert empty >= NOW + rate.span(rate.burst)
    assert spent_until is None or empty >= spent_until
    assert drained(rate, empty, NOW) == empty


def test_a_drained_bucket_fills_token_by_token() -> None:
    rate = Rate(1, SECOND, burst=3)
    empty = drained(rate, None, NOW)
    assert admit(rate, empty, cost=1, now=NOW) == Closed(NOW + SECOND)
    assert [tokens_free(rate, empty, NOW + n * SECOND) for n in range(5)] == [0, 1, 2, 3, 3]


def test_a_debt_is_counted_in_tokens_and_not_in_time() -> None:
    slow, fast = Rate(1, 60 * SECOND, 4), Rate(1, SECOND, 4)
    assert rescale_debt(fast, NOW + 150 * SECOND, before=slow, now=NOW) == NOW + 2.5 * SECOND
    assert rescale_debt(slow, NOW + 2.5 * SECOND, before=fast, now=NOW) == NOW + 150 * SECOND


@given(bucket=used_buckets())
def test_a_rate_that_does_not_change_leaves_what_is_owed(
    bucket: tuple[Rate, datetime | None],
) -> None:
    rate, spent_until = bucket
    changed = rescale_debt(rate, spent_until, before=rate, now=NOW)
    if spent_until is None or spent_until <= NOW:
        assert changed == spent_until
    else:
        assert changed is not None
        assert timedelta(0) <= changed - spent_until <= MICROSECOND


@given(bucket=used_buckets(), rate=rates)
def test_as_many_whole_tokens_are_owed_after_a_change_as_before(
    bucket: tuple[Rate, datetime | None], rate: Rate
) -> None:
    before, spent_until = bucket
    after = rescale_debt(rate, spent_until, before=before, now=NOW)
    if spent_until is None or spent_until <= NOW:
        assert after == spent_until
    else:
        assert after is not None
        ours, theirs = (after - NOW) / rate.spacing, (spent_until - NOW) / before.spacing
        # Rounded up to the microsecond: never a token that nobody paid for.
        assert theirs <= ours + 1e-9
        assert ours - theirs <= MICROSECOND / rate.spacing + 1e-9


def test_nothing_is_owed_of_a_bucket_that_is_full() -> None:
    fast, slow = Rate(1, SECOND), Rate(1, 60 * SECOND)
    assert rescale_debt(slow, None, before=fast, now=NOW) is None
    assert rescale_debt(slow, NOW, before=fast, now=NOW) == NOW
    assert rescale_debt(slow, NOW - SECOND, before=fast, now=NOW) == NOW - SECOND


def test_an_absurd_debt_stays_within_the_calendar_when_the_rate_changes() -> None:
    fast, slow = Rate(1000, SECOND), Rate(1, timedelta(days=300))
    after = rescale_debt(slow, NOW + timedelta(days=36_000), before=fast, now=NOW)
    assert after is not None
    assert after.year < 2200


# --- definitions ------------------------------------------------------------------------------


def test_a_period_may_be_given_in_seconds() -> None:
    assert Rate(5, 60) == Rate(5, timedelta(minutes=1))
    assert Rate(5, 0.5).spacing == timedelta(milliseconds=100)


@pytest.mark.parametrize("n", [0, -1, math.nan, math.inf])
def test_a_rate_of_nothing_or_of_everything_is_refused(n: float) -> None:
    with pytest.raises(InvalidArgument, match="n above 0"):
        Rate(n, SECOND)


@pytest.mark.parametrize("per", [timedelta(0), -SECOND, math.nan, "soon"])
def test_a_period_that_is_no_duration_is_refused(per: timedelta) -> None:
    with pytest.raises(InvalidArgument, match="per"):
        Rate(1, per)


@pytest.mark.parametrize(
    ("n", "per", "burst"),
    [(1, 1, 1), (10, 1, 1), (11, 1, 2), (30, 1, 3), (1000, 1, 100), (100, 60, 1), (1e15, 1, 10**9)],
)
def test_unless_it_is_given_a_burst_holds_what_comes_in_a_tenth_of_a_second(
    n: float, per: float, burst: int
) -> None:
    assert Rate(n, per) == Rate(n, per, None) == Rate(n, per, burst)


def test_a_rate_that_was_stored_keeps_the_burst_it_was_stored_with() -> None:
    stored = b'{"n":1000,"per":"PT1S","burst":1}'
    assert msgspec.json.decode(stored, type=Rate).burst == 1


def test_a_burst_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="burst"):
        Rate(1, SECOND, burst=0)


@pytest.mark.parametrize("n", [1e-9, 5e-324])
def test_a_rate_that_takes_centuries_to_refill_is_refused(n: float) -> None:
    with pytest.raises(InvalidArgument, match="refill"):
        Rate(n, timedelta(days=365))


def test_a_rate_survives_being_stored() -> None:
    spec = LimitSpec(name="api", rate=Rate(2.5, timedelta(minutes=1), burst=4), concurrency=3)
    assert msgspec.json.decode(msgspec.json.encode(spec), type=LimitSpec) == spec


@pytest.mark.parametrize("name", ["", "api:eu"])
def test_a_limit_without_a_name_or_with_a_colon_in_it_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgument, match="name"):
        LimitSpec(name=name, concurrency=1)


def test_a_limit_that_limits_nothing_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="needs rate= or concurrency="):
        LimitSpec(name="api")
    with pytest.raises(InvalidArgument, match="concurrency of at least 1"):
        LimitSpec(name="api", concurrency=0)


# --- lanes ------------------------------------------------------------------------------------


def test_a_lane_does_not_depend_on_order_and_repetition_of_its_limits() -> None:
    one, two = LimitUse("api", "eu"), LimitUse("mail")
    assert lane_key((one, two)) == lane_key((two, one)) == lane_key((one, two, one))


def test_jobs_of_different_cost_wait_in_one_line() -> None:
    assert lane_key((LimitUse("api", cost=1),)) == lane_key((LimitUse("api", cost=7),))


def test_a_key_that_holds_the_separator_does_not_lead_into_another_lane() -> None:
    two = (LimitUse("api", "x"), LimitUse("mail"))
    for forged in ("x\x1fmail", "x\\x1fmail", "x\\\x1fmail"):
        assert lane_key((LimitUse("api", forged),)) != lane_key(two)
    assert lane_key((LimitUse("api", "\x1f"),)) != lane_key((LimitUse("api", "\\x1f"),))


names = st.text(st.sampled_from("ab\x1f\\x"), min_size=1, max_size=4)
keys = st.text(st.sampled_from("ab\x1f\\:x1f"), max_size=6)
combinations = st.lists(st.builds(LimitUse, names, keys), min_size=1, max_size=3).map(tuple)


@few
@given(one=combinations, other=combinations)
def test_different_combinations_never_share_a_lane(
    one: tuple[LimitUse, ...], other: tuple[LimitUse, ...]
) -> None:
    same_gates = {use.gate for use in one} == {use.gate for use in other}
    assert (lane_key(one) == lane_key(other)) == same_gates


def test_a_whole_burst_that_is_written_as_a_float_can_be_read_back() -> None:
    rate = Rate(10, SECOND, burst=5.0)  # type: ignore[arg-type]
    assert isinstance(rate.burst, int)
    spec = LimitSpec(name="api", rate=rate)
    assert msgspec.json.decode(msgspec.json.encode(spec), type=LimitSpec) == spec


def test_numbers_that_a_store_could_not_count_to_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="at most 1,000,000,000"):
        LimitSpec(name="api", concurrency=2**63)
    with pytest.raises(InvalidArgument, match="at most 1,000,000,000"):
        Rate(1e30, SECOND, burst=10**25)
