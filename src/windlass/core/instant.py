"""Instants and durations at the edges: aware datetimes inside, integer microseconds on the wire."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from windlass.errors import InvalidArgument

__all__ = ["EPOCH", "LONGEST", "aware", "capped", "duration", "from_us", "span_us", "to_us"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LONGEST = timedelta(days=36_525)
"""A hundred years. An instant beyond the calendar, once stored, would fail whoever reads it."""
_LAST_YEAR = 9000
"""Far enough for anybody, and a hundred years more still fit the calendar."""
_US = timedelta(microseconds=1)


def to_us(instant: datetime) -> int:
    """Microseconds since the epoch. Exact: no float is involved."""
    return (instant - EPOCH) // _US


def from_us(us: int) -> datetime:
    """The inverse of `to_us`."""
    return EPOCH + timedelta(microseconds=us)


def span_us(span: timedelta) -> int:
    """A duration in whole microseconds."""
    return span // _US


def aware(instant: object, what: str) -> datetime:
    """``instant`` in UTC; a naive one is refused, because nobody knows which hour it means."""
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


def duration(value: timedelta | float, what: str) -> timedelta:
    """A duration given as a timedelta or in seconds, from nothing to `LONGEST`."""
    span = _span(value, what)
    if span > LONGEST:
        message = f"{what} may be at most {LONGEST.days:,} days (a hundred years), got {value!r}"
        raise InvalidArgument(message)
    return span


def capped(value: timedelta | float, what: str) -> timedelta:
    """The same, but more than `LONGEST` is taken for it."""
    return min(_span(value, what), LONGEST)


def _span(value: timedelta | float, what: str) -> timedelta:
    given: object = value  # callers come from outside the type checker, too
    if isinstance(given, bool) or not isinstance(given, (timedelta, int, float)):
        message = f"{what} must be a timedelta or a number of seconds, got {value!r}"
        raise InvalidArgument(message)
    try:
        span = value if isinstance(value, timedelta) else timedelta(seconds=value)
    except (OverflowError, ValueError) as error:
        message = f"{what} is out of range: {value!r}"
        raise InvalidArgument(message) from error
    if span < timedelta(0):
        message = f"{what} must not be negative, got {value!r}"
        raise InvalidArgument(message)
    return span
