"""Rules and outcomes of schedules in plain words."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import assert_never

from cronsim import CronSim

from windlass._core.schedule.rules import Cron, Every, Manual, Once, Rule

__all__ = ["describe_duration", "describe_outcome", "describe_rule"]

_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_MONTHS = (
    "",
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_NTH = ("", "first", "second", "third", "fourth", "fifth")
_SOME_DAY = datetime(2024, 1, 1, tzinfo=UTC)
_FEW_TIMES = 6
_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def describe_outcome(outcome: str) -> str:
    """Describe how a run ended. A slot without a run is stored as ``left out: …``."""
    skipped = outcome.startswith("left out")
    return f"skipped{outcome.removeprefix('left out')}" if skipped else outcome


def describe_rule(rule: Rule) -> str:
    """Describe a rule: "at 08:00 on Monday to Friday, Europe/Berlin"."""
    match rule:
        case Cron():
            return _cron(rule)
        case Every(period, "end"):
            return f"{describe_duration(period)} after the last run has ended"
        case Every(period):
            since = "" if rule.anchor is None else f", counted from {rule.anchor:%Y-%m-%d %H:%M:%S}"
            return f"every {describe_duration(period, one='')}{since}"
        case Once(at):
            return f"once, at {at:%Y-%m-%d %H:%M:%S} UTC"
        case Manual():
            return "only when triggered"
        case _:
            assert_never(rule)


def describe_duration(span: timedelta, one: str = "1 ") -> str:
    """Return a duration in words: "90 seconds" is "1 minute 30 seconds"; ``one`` precedes a single
    unit.
    """
    seconds, parts = span.total_seconds(), []
    if seconds < 1:
        return f"{seconds * 1000:g} milliseconds"
    rest = seconds
    for size, unit in _UNITS:
        count = rest if unit == "second" else rest // size
        rest -= count * size
        if count:
            parts.append(f"{count:g} {unit}{'' if count == 1 else 's'}")
    text = " ".join(parts)
    return text.replace("1 ", one, 1) if text.startswith("1 ") and len(parts) == 1 else text


def _cron(rule: Cron) -> str:
    sim = CronSim(rule.fields, _SOME_DAY)
    when = _time(sorted(sim.seconds), sorted(sim.minutes), sorted(sim.hours))
    days = _days(sim) or ("every day" if when.startswith("at ") and ":" in when else "")
    return f"{when}{f' {days}' if days else ''}, {rule.tz}"


def _time(seconds: Sequence[int], minutes: Sequence[int], hours: Sequence[int]) -> str:
    if seconds != [0]:
        return _with_seconds(seconds, minutes, hours)
    if len(hours) * len(minutes) <= _FEW_TIMES:
        return f"at {_and([f'{hour:02}:{minute:02}' for hour in hours for minute in minutes])}"
    all_day = len(hours) == 24
    between = "" if all_day else f" in the hours {_ranges(hours, [str(h) for h in range(24)])}"
    if minutes == [0]:
        step = _step(hours, 24)
        if step == 1:
            return "every hour"
        return f"every {step} hours" if step else f"at the hours {_ranges(hours, _NUMBERS)}"
    if len(minutes) == 1:
        past = f"{minutes[0]} minute{'' if minutes[0] == 1 else 's'} past every hour"
        return f"{past}{between}"
    return f"{_every(minutes, 60, 'minute')}{between}"


def _with_seconds(seconds: Sequence[int], minutes: Sequence[int], hours: Sequence[int]) -> str:
    every_minute, every_hour = len(minutes) == 60, len(hours) == 24
    if len(seconds) * len(minutes) * len(hours) <= _FEW_TIMES:
        times = [f"{h:02}:{m:02}:{s:02}" for h in hours for m in minutes for s in seconds]
        return f"at {_and(times)}"
    parts = [_every(seconds, 60, "second")]
    if not every_minute:
        parts.append(f"in the minutes {_ranges(minutes, _NUMBERS)}")
    if not every_hour:
        parts.append(f"in the hours {_ranges(hours, _NUMBERS)}")
    return " ".join(parts)


_NUMBERS = [str(number) for number in range(61)]


def _every(values: Sequence[int], size: int, unit: str) -> str:
    step = _step(values, size)
    if step == 1:
        return f"every {unit}"
    if step:
        return f"every {step} {unit}s"
    return f"at the {unit}s {_ranges(values, _NUMBERS)}"


def _step(values: Sequence[int], size: int) -> int:
    """Return the step of values that run evenly from zero round the clock; 0: they do not."""
    if len(values) < 2 or values[0] != 0:
        return 0
    step = values[1]
    return step if list(values) == list(range(0, size, step)) and size % step == 0 else 0


def _days(sim: CronSim) -> str:
    every_day = len(sim.days) == 31
    weekdays = {day if not isinstance(day, int) else day % 7 for day in sim.weekdays}
    every_weekday = len([d for d in weekdays if isinstance(d, int)]) == 7
    parts: list[str] = []
    if not every_day:
        parts.append(f"on {_month_days(sim.days)}")
    if not every_weekday:
        joint = "" if every_day else ("that is " if sim.day_and else "and on ")
        parts.append(f"{joint or 'on '}{_weekdays(weekdays)}")
    if len(sim.months) < 12:
        parts.append(f"in {_ranges(sorted(sim.months), _MONTHS)}")
    return " ".join(parts)


def _month_days(days: Collection[int]) -> str:
    if CronSim.LAST in days:
        return "the last day of the month"
    if CronSim.LAST_WEEKDAY in days:
        return "the last working day of the month"
    plain = sorted(days)
    return f"day{'s' if len(plain) > 1 else ''} {_ranges(plain, _NUMBERS)} of the month"


def _weekdays(days: Collection[int | tuple[int, int]]) -> str:
    named = [
        f"the {'last' if nth == CronSim.LAST else _NTH[nth]} {_DAYS[day % 7]} of the month"
        for day, nth in sorted(day for day in days if not isinstance(day, int))
    ]
    # Monday first, so that a working week is one range.
    plain = sorted((day for day in days if isinstance(day, int)), key=lambda day: (day - 1) % 7)
    order = [(day - 1) % 7 for day in plain]
    names = (*_DAYS[1:], _DAYS[0])
    return _and([*([_ranges(order, names)] if order else []), *named])


def _ranges(values: Sequence[int], names: Sequence[str]) -> str:
    """Neighbours as ranges: 1, 2, 3 and 5 are "1 to 3 and 5"."""
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    parts: list[str] = []
    for run in runs:
        if len(run) > 2:
            parts.append(f"{names[run[0]]} to {names[run[-1]]}")
        else:
            parts += [names[value] for value in run]
    return _and(parts)


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
