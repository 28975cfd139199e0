"""Every zone over its changes of the clocks, against arithmetic with nothing but zoneinfo."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from itertools import takewhile
from zoneinfo import ZoneInfo, available_timezones

import pytest

from windlass._core.schedule.rules import Cron, latest_slots

FROM, TO = datetime(2026, 1, 1, tzinfo=UTC), datetime(2028, 1, 1, tzinfo=UTC)
HOUR, DAY, MINUTE = timedelta(hours=1), timedelta(days=1), timedelta(minutes=1)
STEP = timedelta(days=5)
"""No zone changes its clocks and changes them back within so few days."""


def changes(zone: ZoneInfo) -> Iterator[tuple[datetime, timedelta]]:
    """The instants at which a zone's offset changes, to the second, and by how much."""
    at = FROM
    while at < TO:
        before, after = offset(zone, at), offset(zone, at + STEP)
        if before != after:
            low, high = at, at + STEP
            while high - low > timedelta(seconds=1):
                middle = low + (high - low) // 2
                middle = middle.replace(microsecond=0)
                if middle in (low, high):
                    break
                low, high = (middle, high) if offset(zone, middle) == before else (low, middle)
            yield high, after - before
        at += STEP


def offset(zone: ZoneInfo, at: datetime) -> timedelta:
    found = at.astimezone(zone).utcoffset()
    assert found is not None
    return found


def distinct() -> Iterator[tuple[str, list[tuple[datetime, timedelta]]]]:
    """One zone for all that have the same changes from the same offset in these years."""
    seen: set[tuple[object, ...]] = set()
    for name in sorted(available_timezones()):
        zone = ZoneInfo(name)
        found = list(changes(zone))
        likeness = (offset(zone, FROM), *found)
        if likeness not in seen:
            seen.add(likeness)
            yield name, found


@cache
def zones() -> dict[str, list[tuple[datetime, timedelta]]]:
    """When first asked: whoever only collects tests does not wait for it."""
    return dict(distinct())


def all_changes() -> list[tuple[str, datetime, timedelta]]:
    return [(name, at, by) for name, found in zones().items() for at, by in found]


def daily(zone: ZoneInfo, day: date, clock: time) -> datetime:
    """When a time of day comes on a day: the first time if twice, right after the gap if never."""
    local = datetime.combine(day, clock, tzinfo=zone)
    instant = local.astimezone(UTC)
    back = instant.astimezone(zone)
    if back.replace(tzinfo=None) == local.replace(tzinfo=None):
        return instant
    # It lies in a gap. Before the gap this reading is right, after it too late by the gap: the
    # first instant after it is where the two offsets change.
    low, high = instant - DAY, instant
    while high - low > timedelta(seconds=1):
        middle = (low + (high - low) // 2).replace(microsecond=0)
        if middle in (low, high):
            break
        same = offset(zone, middle) == offset(zone, instant)
        low, high = (low, middle) if same else (middle, high)
    return high


def test_there_are_changes_to_look_at() -> None:
    assert len(zones()) > 50
    assert 30 * MINUTE in {by for _, _, by in all_changes()}, "Lord Howe Island"
    assert {by > timedelta(0) for _, _, by in all_changes()} == {True, False}


@pytest.mark.parametrize("part", range(4))
def test_a_time_of_day_fires_once_a_day_across_clock_changes(part: int) -> None:
    for name, at, by in all_changes()[part::4]:
        zone = ZoneInfo(name)
        here = (at + offset(zone, at - MINUTE)).replace(tzinfo=None)
        for shift in (-30 * MINUTE, timedelta(0), abs(by) // 2, abs(by), -abs(by) // 2):
            clock = (here + shift).time().replace(second=0, microsecond=0)
            rule = Cron(f"{clock.minute} {clock.hour} * * *", name)
            start = at - 3 * DAY
            slots = list(takewhile(lambda slot: slot < at + 3 * DAY, rule.after(start)))  # noqa: B023
            first = start.astimezone(zone).date()
            expected = [daily(zone, first + day * DAY, clock) for day in range(-1, 9)]
            wanted = [slot for slot in expected if start < slot < at + 3 * DAY]
            assert slots == wanted, (name, at, clock)


@pytest.mark.parametrize("part", range(4))
def test_an_hourly_rule_fires_in_every_hour_there_is(part: int) -> None:
    for name, at, _ in all_changes()[part::4]:
        zone = ZoneInfo(name)
        rule = Cron("30 * * * *", name)
        start, end = at - 5 * HOUR, at + 5 * HOUR
        slots = list(takewhile(lambda slot: slot <= end, rule.after(start)))  # noqa: B023
        minutes = (start + count * MINUTE for count in range(1, 601))
        wanted = [m for m in minutes if m.astimezone(zone).minute == 30 and m <= end]
        assert slots == wanted, (name, at)


@pytest.mark.parametrize("part", range(4))
def test_backwards_and_forwards_give_the_same_slots(part: int) -> None:
    for name, at, _ in all_changes()[part::4]:
        for expression in ("15 2 * * *", "*/20 * * * *", "0 0 * * *", "30 1,2,3 * * *"):
            rule = Cron(expression, name)
            start, end = at - 2 * DAY, at + 2 * DAY
            forwards = list(takewhile(lambda slot: slot <= end, rule.after(start)))  # noqa: B023
            backwards = latest_slots(rule, start + timedelta(microseconds=1), end, 10_000)
            assert backwards == forwards, (name, at, expression)
