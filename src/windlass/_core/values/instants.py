"""Instants and durations at the edges: aware datetimes inside, integer microseconds on the wire.

An integer of microseconds reaches further than a datetime. One job due beyond the calendar would
fail every claim that looks at its queue. So what is stored is kept within the bounds of the
calendar, and what is read is brought back into them.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from windlass._core.values.names import shown
from windlass.errors import InvalidArgument

__all__ = [
    "EPOCH",
    "FIRST_INSTANT",
    "LAST_INSTANT",
    "LAST_US",
    "LONGEST",
    "add_clamped",
    "add_clamped_us",
    "aware",
    "capped",
    "clamp_instant",
    "duration",
    "from_us",
    "instant_of",
    "parse_seconds",
    "span_us",
    "to_us",
    "us_or_none",
]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LONGEST = timedelta(days=36_525)
"""A hundred years. A stored instant beyond the calendar would fail every reader."""
_LAST_YEAR = 9000
"""Far enough for anybody, and a hundred years more still fit the calendar."""
_US = timedelta(microseconds=1)
_TEXT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)?\s*")
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def to_us(instant: datetime) -> int:
    """Microseconds since the epoch. Exact: no float is involved."""
    return (instant - EPOCH) // _US


def us_or_none(instant: datetime | None) -> int | None:
    """`to_us` of an instant that may be missing."""
    return None if instant is None else to_us(instant)


def from_us(us: int) -> datetime:
    """Return the inverse of `to_us`."""
    return EPOCH + timedelta(microseconds=us)


# A thousand years before the calendar's own end: code that adds to an instant stays within it.
LAST_INSTANT = datetime(9000, 1, 1, tzinfo=UTC)
LAST_US = to_us(LAST_INSTANT)
FIRST_INSTANT = datetime(1, 1, 2, tzinfo=UTC)
_FIRST_US = to_us(FIRST_INSTANT)


def instant_of(us: int) -> datetime:
    """Turn a stored number into an instant within the calendar."""
    return EPOCH + timedelta(microseconds=min(max(us, _FIRST_US), LAST_US))


def clamp_instant(instant: datetime) -> datetime:
    """Return the instant, or the last one."""
    return min(instant, LAST_INSTANT)


def add_clamped(now: datetime, span: timedelta) -> datetime:
    """Return ``span`` after ``now``, or the last instant."""
    return now + span if span < LAST_INSTANT - now else LAST_INSTANT


def add_clamped_us(now: int, span: int) -> int:
    """Do the same in microseconds."""
    return min(now + span, LAST_US)


def span_us(span: timedelta) -> int:
    """Return a duration in whole microseconds."""
    return span // _US


def aware(instant: object, what: str) -> datetime:
    """Return ``instant`` in UTC; a naive one is refused, because its hour is ambiguous."""
    if not isinstance(instant, datetime):
        message = f"{what} must be a datetime with a time zone, got {instant!r}"
        raise InvalidArgument(message)
    if instant.tzinfo is None or instant.utcoffset() is None:
        message = (
            f"{what} is a naive datetime ({instant.isoformat()}). Give it a time zone, for "
            f"example datetime.now(UTC) + timedelta(...), or use delay=..."
        )
        raise InvalidArgument(message)
    try:
        turned = instant.astimezone(UTC)
    except OverflowError as error:
        message = f"{what} is out of range: {instant.isoformat()} has no UTC equivalent"
        raise InvalidArgument(message) from error
    if turned.year > _LAST_YEAR:
        message = f"{what} is out of range: {instant.isoformat()} is after the year {_LAST_YEAR}"
        raise InvalidArgument(message)
    return turned


def parse_seconds(text: str) -> float | None:
    """Text with a unit, 250ms, 30s, 5m, 2h, 7d or 2w, in seconds; without a unit it is seconds.

    None: it is no such text.
    """
    found = _TEXT.fullmatch(text)
    return None if found is None else float(found[1]) * _UNITS[found[2] or "s"]


def duration(value: timedelta | float | str, what: str) -> timedelta:
    """Return a duration given as a timedelta, in seconds, or as text such as ``"30s"``, from
    nothing to `LONGEST`.
    """
    seconds = parse_seconds(value) if isinstance(value, str) else None
    span = _span(value if seconds is None else seconds, what)
    if span > LONGEST:
        message = (
            f"{what} may be at most {LONGEST.days:,} days (a hundred years), got {shown(value)}"
        )
        raise InvalidArgument(message)
    return span


def capped(value: timedelta | float, what: str) -> timedelta:
    """Return the same, not as text, and more than `LONGEST` is taken for it."""
    return min(_span(value, what), LONGEST)


def _span(value: timedelta | float | str, what: str) -> timedelta:
    # Callers come from outside the type checker, too.
    if isinstance(value, bool) or not isinstance(value, (timedelta, int, float)):
        message = (
            f"{what} must be a timedelta, a number of seconds, or text such as '30s', "
            f"got {shown(value)}"
        )
        raise InvalidArgument(message)
    try:
        span = value if isinstance(value, timedelta) else timedelta(seconds=value)
    except (OverflowError, ValueError) as error:
        message = f"{what} is out of range: {shown(value)}"
        raise InvalidArgument(message) from error
    if span < timedelta(0):
        message = f"{what} must not be negative, got {shown(value)}"
        raise InvalidArgument(message)
    return span
