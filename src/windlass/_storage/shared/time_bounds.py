"""The end of time: what is stored is kept within it, and what is read is brought back into it.

An integer of microseconds reaches further than a datetime. One job due beyond the calendar would
fail every claim that looks at its queue.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from windlass._core.values.instants import EPOCH, to_us

__all__ = [
    "FIRST_INSTANT",
    "LAST_INSTANT",
    "LAST_US",
    "add_clamped",
    "add_clamped_us",
    "clamp_instant",
    "instant_of",
]

# A thousand years before the calendar's own end: whoever adds to an instant stays within it.
LAST_INSTANT = datetime(9000, 1, 1, tzinfo=UTC)
LAST_US = to_us(LAST_INSTANT)
FIRST_INSTANT = datetime(1, 1, 2, tzinfo=UTC)
_FIRST_US = to_us(FIRST_INSTANT)


def clamp_instant(instant: datetime) -> datetime:
    """The instant, or the last one."""
    return min(instant, LAST_INSTANT)


def add_clamped(now: datetime, span: timedelta) -> datetime:
    """``span`` after ``now``, or the last instant."""
    return now + span if span < LAST_INSTANT - now else LAST_INSTANT


def add_clamped_us(now: int, span: int) -> int:
    """The same in microseconds."""
    return min(now + span, LAST_US)


def instant_of(us: int) -> datetime:
    """A stored number as an instant, whoever wrote it."""
    return EPOCH + timedelta(microseconds=min(max(us, _FIRST_US), LAST_US))
