"""Rules: the slots they give, what is refused, and how they read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass._core.schedule.describe import describe_rule
from windlass._core.schedule.rules import (
    ALIASES,
    Cron,
    Every,
    Manual,
    Once,
    Rule,
    latest_slots,
    next_slot,
)
from windlass._core.values.instants import EPOCH
from windlass.errors import InvalidArgument

NOON = datetime(2026, 3, 27, 12, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
US = timedelta(microseconds=1)


def test_the_next_slot_is_strictly_after() -> None:
    for rule in (Cron("0 12 * * *"), Every(HOUR)):
        assert next_slot(rule, NOON - US) == NOON
        assert next_slot(rule, NOON) != NOON
    assert next_slot(Once(NOON), NOON - US) == NOON
    assert next_slot(Once(NOON), NOON) is None
    assert next_slot(Manual(), NOON) is None


def test_five_fields_six_fields_and_names() -> None:
    assert next_slot(Cron("*/15 * * * *"), NOON) == NOON + 15 * MINUTE
    assert next_slot(Cron("*/15 * * * * *"), NOON) == NOON + timedelta(seconds=15)
    assert next_slot(Cron("@hourly"), NOON) == NOON + HOUR
    assert next_slot(Cron("0 8 * * mon-fri", "Europe/Berlin"), NOON) == datetime(
        2026, 3, 30, 6, tzinfo=UTC
    )
    for name in ALIASES:
        assert next_slot(Cron(name.upper()), NOON) is not None


def test_a_period_is_counted_from_the_epoch_and_never_drifts() -> None:
    rule = Every(timedelta(seconds=7))
    slots = list(islice(_slots(rule, NOON), 1000))
    assert all((slot - EPOCH) % rule.period == timedelta(0) for slot in slots)
    assert slots[-1] - slots[0] == 999 * rule.period
    anchored = Every(DAY, anchor=NOON + 5 * MINUTE)
    assert next_slot(anchored, NOON) == NOON + 5 * MINUTE
    assert next_slot(anchored, NOON + HOUR) == NOON + 5 * MINUTE + DAY


def _slots(rule: Rule, after: datetime) -> Any:
    while (slot := next_slot(rule, after)) is not None:
        yield slot
        after = slot


@given(
    period=st.timedeltas(timedelta(milliseconds=1), timedelta(days=3)),
    back=st.timedeltas(timedelta(0), timedelta(days=30)),
    most=st.integers(1, 20),
)
def test_the_latest_slots_are_the_last_of_all_between(
    period: timedelta, back: timedelta, most: int
) -> None:
    rule = Every(period)
    slots = latest_slots(rule, NOON - back, NOON, most)
    assert all(NOON - back <= slot <= NOON for slot in slots)
    assert slots == sorted(slots)
    assert len(slots) == min(most, rule.number(NOON) - rule.number(NOON - back - US))
    if slots:
        assert next_slot(rule, slots[-1]) > NOON  # type: ignore[operator]


@pytest.mark.parametrize("expression", ["* * * * * *", "* * * * *", "0 3 * * 0", "0 0 29 2 *"])
def test_the_latest_slots_of_a_long_sleep_are_found_quickly(expression: str) -> None:
    rule = Cron(expression)
    slots = latest_slots(rule, NOON - 3650 * DAY, NOON, 3)
    first = list(islice(rule.after(slots[0] - US), 3))
    assert first[: len(slots)] == slots
    assert next(rule.after(slots[-1])) > NOON


@pytest.mark.parametrize(
    "bad",
    ["", "x", "* * * *", "61 * * * *", "* 24 * * *", "0 0 30 2 *", "@nightly", "* * * * * * *",
     "*/0 * * * *", "5-1 * * * *", "* * * * mun", None, 5],
)  # fmt: skip
def test_a_bad_expression_is_refused_when_it_is_written(bad: Any) -> None:
    with pytest.raises(InvalidArgument):
        Cron(bad)


def test_a_bad_zone_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(InvalidArgument, match="Europe/Berlin"):
        Cron("* * * * *", "Europe/Berln")
    with pytest.raises(InvalidArgument, match="zone such as"):
        Cron("* * * * *", None)  # type: ignore[arg-type]


@pytest.mark.parametrize("period", [0, -1, timedelta(microseconds=999), float("nan"), "soon"])
def test_a_period_of_nothing_is_refused(period: Any) -> None:
    with pytest.raises(InvalidArgument):
        Every(period)


def test_an_anchor_and_after_the_end_contradict_each_other() -> None:
    with pytest.raises(InvalidArgument, match="anchor"):
        Every(5, "end", anchor=NOON)
    with pytest.raises(InvalidArgument, match="'start' or 'end'"):
        Every(5, "middle")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "rule", [Cron("0 8 * * 1", "Asia/Tokyo"), Every(5), Every(5, "end"), Once(NOON), Manual()]
)
def test_a_rule_survives_being_stored(rule: Rule) -> None:
    assert msgspec.json.decode(msgspec.json.encode(rule), type=Rule) == rule


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (Cron("0 8 * * mon-fri", "Europe/Berlin"), "at 08:00 on Monday to Friday, Europe/Berlin"),
        (Cron("*/5 * * * *"), "every 5 minutes, UTC"),
        (Cron("15 * * * *"), "15 minutes past every hour, UTC"),
        (Cron("@daily"), "at 00:00 every day, UTC"),
        (Cron("@hourly"), "every hour, UTC"),
        (Cron("0 0 1 1 *"), "at 00:00 on day 1 of the month in January, UTC"),
        (Cron("*/10 8-17 * * 1-5"), "every 10 minutes in the hours 8 to 17 on Monday to Friday, UTC"),  # noqa: E501
        (Cron("0 0 L * *"), "at 00:00 on the last day of the month, UTC"),
        (Cron("0 9 * * 1#1"), "at 09:00 on the first Monday of the month, UTC"),
        (Cron("0 9 * * 5L"), "at 09:00 on the last Friday of the month, UTC"),
        (Cron("0 0 13 * 5"), "at 00:00 on day 13 of the month and on Friday, UTC"),
        (Cron("*/5 * * * * *"), "every 5 seconds, UTC"),
        (Cron("30 15 8 * * *"), "at 08:15:30 every day, UTC"),
        (Cron("0 0 * * 6,0"), "at 00:00 on Saturday and Sunday, UTC"),
        (Cron("0 */8 * * *"), "at 00:00, 08:00 and 16:00 every day, UTC"),
        (Cron("0 */2 * * *"), "every 2 hours, UTC"),
        (Every(90), "every 1 minute 30 seconds"),
        (Every(HOUR), "every hour"),
        (Every(0.05), "every 50 milliseconds"),
        (Every(MINUTE, "end"), "1 minute after the last run has ended"),
        (Once(NOON), "once, at 2026-03-27 12:00:00 UTC"),
        (Manual(), "only when triggered"),
    ],
)  # fmt: skip
def test_a_rule_in_plain_words(rule: Rule, words: str) -> None:
    assert describe_rule(rule) == words
