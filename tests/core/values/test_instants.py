from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.fixtures import few
from windlass._core.values.instants import (
    EPOCH,
    LONGEST,
    aware,
    capped,
    duration,
    from_us,
    span_us,
    to_us,
)
from windlass.errors import InvalidArgument

NOON = datetime(2026, 3, 1, 12, 0)  # noqa: DTZ001 -- naive on purpose
LAST = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
instants = st.datetimes(
    min_value=datetime(1970, 1, 1),  # noqa: DTZ001 -- Hypothesis adds the zone
    max_value=LAST.replace(tzinfo=None),
    timezones=st.just(UTC),
)


# --- on the wire ------------------------------------------------------------------------------


@given(instants)
def test_an_instant_comes_back_from_the_wire_exactly(instant: datetime) -> None:
    assert from_us(to_us(instant)) == instant


@few
@given(st.integers(0, to_us(LAST)))
def test_microseconds_come_back_from_an_instant_exactly(us: int) -> None:
    assert to_us(from_us(us)) == us


def test_the_ends_of_the_calendar_are_exact() -> None:
    assert to_us(EPOCH) == 0
    assert to_us(LAST) == 253_402_300_799_999_999
    assert from_us(253_402_300_799_999_999) == LAST


def test_an_instant_before_the_epoch_is_a_negative_number() -> None:
    assert to_us(EPOCH - timedelta(microseconds=1)) == -1
    assert from_us(-1) == EPOCH - timedelta(microseconds=1)


@few
@given(instants, instants)
def test_the_wire_keeps_the_order_of_time(one: datetime, other: datetime) -> None:
    assert (to_us(one) < to_us(other)) == (one < other)


@few
@given(instants, st.integers(-14, 14))
def test_the_wire_does_not_care_about_the_zone(instant: datetime, hours: int) -> None:
    zone = timezone(timedelta(hours=hours))
    if EPOCH + timedelta(days=1) < instant < LAST - timedelta(days=1):
        assert to_us(instant.astimezone(zone)) == to_us(instant)


@few
@given(st.timedeltas())
def test_a_span_comes_back_from_the_wire_exactly(span: timedelta) -> None:
    assert timedelta(microseconds=span_us(span)) == span


# --- aware ------------------------------------------------------------------------------------


class Undecided(tzinfo):
    """A zone that cannot say its offset: such a datetime is naive by Python's own rule."""

    def utcoffset(self, dt: datetime | None) -> None:
        return None

    def dst(self, dt: datetime | None) -> None:
        return None

    def tzname(self, dt: datetime | None) -> None:
        return None


@pytest.mark.parametrize("naive", [NOON, NOON.replace(tzinfo=Undecided())], ids=["none", "mute"])
def test_a_naive_datetime_is_refused_and_the_message_shows_the_way_out(naive: datetime) -> None:
    with pytest.raises(InvalidArgument) as refused:
        aware(naive, "at")

    text = str(refused.value)
    assert text.startswith("at is a naive datetime (2026-03-01T12:00:00)")
    assert "datetime.now(UTC)" in text
    assert "delay=" in text


def test_an_aware_datetime_is_turned_into_utc() -> None:
    berlin = NOON.replace(tzinfo=ZoneInfo("Europe/Berlin"))
    turned = aware(berlin, "at")
    assert turned == berlin
    assert turned.tzinfo is UTC
    assert turned.hour == 11


def test_both_readings_of_a_repeated_hour_are_told_apart() -> None:
    twice = datetime(2026, 10, 25, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"))
    assert aware(twice.replace(fold=1), "at") - aware(twice, "at") == timedelta(hours=1)


@pytest.mark.parametrize("wrong", ["2026-03-01T12:00:00Z", date(2026, 3, 1), 1_772_366_400, None])
def test_a_value_that_is_no_datetime_is_refused_by_name(wrong: object) -> None:
    with pytest.raises(InvalidArgument, match="at must be a datetime with a time zone"):
        aware(wrong, "at")


@pytest.mark.parametrize(
    "edge",
    [
        datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-5))),
        datetime(1, 1, 1, 1, tzinfo=timezone(timedelta(hours=5))),
    ],
)
def test_an_instant_that_utc_cannot_write_is_refused(edge: datetime) -> None:
    with pytest.raises(InvalidArgument, match="out of range"):
        aware(edge, "at")


def test_an_instant_after_the_year_9000_is_refused() -> None:
    last = datetime(9000, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert aware(last, "at") == last
    assert last + LONGEST < datetime.max.replace(tzinfo=UTC)
    with pytest.raises(InvalidArgument, match=r"at is out of range: .* after the year 9000"):
        aware(last + timedelta(seconds=1), "at")


# --- durations --------------------------------------------------------------------------------


@few
@given(st.timedeltas(min_value=timedelta(0), max_value=LONGEST))
def test_a_timedelta_is_taken_as_it_is(span: timedelta) -> None:
    assert duration(span, "delay") is span


@pytest.mark.parametrize(
    ("value", "span"),
    [
        (0, timedelta(0)),
        (-0.0, timedelta(0)),
        (60, timedelta(minutes=1)),
        (0.25, timedelta(milliseconds=250)),
        (1e-7, timedelta(0)),
    ],
)
def test_a_number_counts_seconds(value: float, span: timedelta) -> None:
    assert duration(value, "delay") == span


@pytest.mark.parametrize("value", [-1, -0.001, timedelta(microseconds=-1), timedelta.min])
def test_a_negative_duration_is_refused(value: timedelta | float) -> None:
    with pytest.raises(InvalidArgument, match="delay must not be negative"):
        duration(value, "delay")


@pytest.mark.parametrize("value", [LONGEST + timedelta(microseconds=1), timedelta.max, 3.2e9])
def test_more_than_a_hundred_years_are_refused_or_capped(value: timedelta | float) -> None:
    with pytest.raises(InvalidArgument, match=r"delay may be at most 36,525 days \(a hundred"):
        duration(value, "delay")
    assert capped(value, "delay") == LONGEST


@pytest.mark.parametrize("value", ["5m", -1, math.nan, None])
def test_a_cap_refuses_what_is_no_duration(value: float) -> None:
    with pytest.raises(InvalidArgument, match="after"):
        capped(value, "after")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e30, 10**400])
def test_a_duration_that_no_timedelta_holds_is_refused(value: float) -> None:
    with pytest.raises(InvalidArgument, match="delay is out of range"):
        duration(value, "delay")


@pytest.mark.parametrize("value", [True, False, "soon", "-1s", "1 month", None, Decimal(60), [60]])
def test_a_value_that_is_no_number_is_refused_by_name(value: float) -> None:
    with pytest.raises(
        InvalidArgument, match="delay must be a timedelta, a number of seconds, or text"
    ):
        duration(value, "delay")
