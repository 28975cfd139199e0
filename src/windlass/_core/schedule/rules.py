"""The rules of schedules as values, and the slots they give.

A slot is an instant at which a schedule fires. Slots depend on the rule alone, so every process
computes the same ones, before and after a restart.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import TYPE_CHECKING, Literal, assert_never

import msgspec

from windlass._core.values.instants import EPOCH, aware, duration
from windlass._core.values.names import shown
from windlass.errors import InvalidArgument, suggestion

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

__all__ = ["ALIASES", "Cron", "Every", "Manual", "Once", "Rule", "latest_slots", "next_slot"]

ALIASES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_SHORTEST = timedelta(milliseconds=1)
_SECOND, _US = timedelta(seconds=1), timedelta(microseconds=1)
_LOOK_BACK = timedelta(minutes=2)
_SOME_DAY = datetime(2024, 1, 1, tzinfo=UTC)


class Cron(msgspec.Struct, frozen=True, tag="cron"):
    """A cron expression of five fields, or six with seconds first, in a time zone.

    When clocks go forward, a skipped time of day fires right after the gap. When they go back, a
    time that comes twice fires once. Expressions with ``*`` in the minute or hour, and those with
    seconds, follow elapsed time instead: they fire in every hour.
    """

    expression: str
    tz: str = "UTC"

    def __post_init__(self) -> None:
        given: object = self.expression
        if not isinstance(given, str):
            message = f"a cron expression is text such as '0 8 * * mon-fri', got {shown(given)}"
            raise InvalidArgument(message)
        zone: object = self.tz
        if not isinstance(zone, str) or zone not in _zones():
            near = suggestion(zone, _zones()) if isinstance(zone, str) else ""
            message = f"tz must be a zone such as 'Europe/Berlin', got {shown(zone)}.{near}"
            raise InvalidArgument(message)
        from cronsim import CronSimError  # noqa: PLC0415 -- as in `_times`

        try:
            first = next(_times(self.fields, _SOME_DAY), None)
        except CronSimError as error:
            message = (
                f"{self.expression!r} is no cron expression: {error}. It has five fields, minute "
                f"hour day month weekday, six with seconds first, or is one of {', '.join(ALIASES)}"
            )
            raise InvalidArgument(message) from None
        except Exception as error:  # noqa: BLE001 -- the parser may raise anything
            message = f"{self.expression!r} is no cron expression: {error}"
            raise InvalidArgument(message) from None
        if first is None:
            message = f"{self.expression!r} names a day that never comes"
            raise InvalidArgument(message)

    @property
    def fields(self) -> str:
        """The expression with a name such as @daily spelled out."""
        return ALIASES.get(self.expression.strip().lower(), self.expression)

    def after(self, instant: datetime) -> Iterator[datetime]:
        """Yield the slots strictly after ``instant``, in order."""
        from zoneinfo import ZoneInfo  # noqa: PLC0415 -- as in `_times`

        zone = ZoneInfo(self.tz)
        fields = self.fields.split()
        fixed = len(fields) == 5 and not fields[0].startswith("*") and not fields[1].startswith("*")
        if fixed:
            return _rising(_times(self.fields, instant.astimezone(zone)), instant)
        return _elapsed(self.fields, zone, instant)


def _times(fields: str, start: datetime) -> Iterator[datetime]:
    """Yield the times of a cron expression after ``start``, on the clock that ``start`` is of."""
    from cronsim import CronSim  # noqa: PLC0415 -- most programs have no cron schedule

    return CronSim(fields, start)


def _rising(sim: Iterator[datetime], instant: datetime) -> Iterator[datetime]:
    """Yield instants in UTC that only rise. A change of the clocks may reorder or double some."""
    last = instant
    for at in sim:
        slot = at.astimezone(UTC)
        if slot > last:
            last = slot
            yield slot


def _elapsed(fields: str, zone: ZoneInfo, instant: datetime) -> Iterator[datetime]:
    """Yield the slots of a rule that follows elapsed time. Between two changes of the clocks the
    offset is constant, and the rule is read in local time.
    """
    at, offset = instant, _offset(zone, instant)
    wall = (at + offset).replace(tzinfo=None)
    while True:
        for local in _times(fields, wall):
            slot = (local - offset).replace(tzinfo=UTC)
            if _offset(zone, slot) != offset:
                break
            yield slot
            at = slot
        else:
            return
        # From the change on, including the change itself.
        at = _change(zone, at, slot)
        offset = _offset(zone, at)
        wall = (at + offset).replace(tzinfo=None) - _SECOND


def _offset(zone: ZoneInfo, at: datetime) -> timedelta:
    return at.astimezone(zone).utcoffset() or timedelta(0)


def _change(zone: ZoneInfo, before: datetime, after: datetime) -> datetime:
    """Find when the offset changes between two instants with different offsets, to the second."""
    low, high = before.replace(microsecond=0), after
    old = _offset(zone, low)
    while high - low > _SECOND:
        middle = (low + (high - low) / 2).replace(microsecond=0)
        low, high = (middle, high) if _offset(zone, middle) == old else (low, middle)
    return high


class Every(msgspec.Struct, frozen=True, tag="every"):
    """A fixed period: ``Every("10m")``.

    Slots are counted from ``anchor``, by default from the epoch: a period of an hour fires on the
    hour, and no restart moves the slots. With ``after="end"`` the period begins when the last run
    has ended.
    """

    period: timedelta
    after: Literal["start", "end"] = "start"
    anchor: datetime | None = None

    if TYPE_CHECKING:  # the record holds one kind of duration and takes both

        def __init__(
            self,
            period: timedelta | float | str,
            after: Literal["start", "end"] = "start",
            anchor: datetime | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        period = duration(self.period, "period")
        if period < _SHORTEST:
            message = f"a period must be at least a millisecond, got {self.period!r}"
            raise InvalidArgument(message)
        msgspec.structs.force_setattr(self, "period", period)
        if self.after not in ("start", "end"):
            message = f"after must be 'start' or 'end', got {shown(self.after)}"
            raise InvalidArgument(message)
        if self.anchor is not None:
            msgspec.structs.force_setattr(self, "anchor", aware(self.anchor, "anchor"))
            if self.after == "end":
                message = "an anchor fixes the slots; with after='end' the last run's end does"
                raise InvalidArgument(message)

    def number(self, instant: datetime) -> int:
        """Return the number of the last slot at or before ``instant``."""
        return (instant - (self.anchor or EPOCH)) // self.period

    def slot(self, number: int) -> datetime:
        """Return the slot with this number."""
        return (self.anchor or EPOCH) + self.period * number


class Once(msgspec.Struct, frozen=True, tag="once"):
    """One instant."""

    at: datetime

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "at", aware(self.at, "at"))


class Manual(msgspec.Struct, frozen=True, tag="manual"):
    """No slots. An operator or your code triggers the schedule."""


Rule = Cron | Every | Once | Manual


def next_slot(rule: Rule, after: datetime) -> datetime | None:
    """Return the first slot strictly after an instant; None: there is none."""
    match rule:
        case Cron():
            return next(rule.after(after), None)
        case Every():
            return rule.slot(rule.number(after) + 1)
        case Once(at):
            return at if at > after else None
        case Manual():
            return None
        case _:
            assert_never(rule)


def latest_slots(rule: Rule, first: datetime, now: datetime, most: int) -> list[datetime]:
    """List the last ``most`` slots from ``first`` to ``now``, both included, oldest first.

    It looks back a little, then further: a rule for each second that did not fire for a year has
    thirty million slots, of which only the last are needed.
    """
    match rule:
        case Cron():
            return _latest(rule, first, now, most)
        case Every():
            last = rule.number(now)
            count = min(most, last - rule.number(first - _US))
            return [rule.slot(last - back) for back in reversed(range(count))]
        case Once(at):
            return [at] if first <= at <= now else []
        case Manual():
            return []
        case _:
            assert_never(rule)


def _latest(rule: Cron, first: datetime, now: datetime, most: int) -> list[datetime]:
    back = _LOOK_BACK
    while True:
        start = max(first, now - back)
        slots = deque(takewhile(lambda slot: slot <= now, rule.after(start - _US)), maxlen=most)
        if len(slots) == most or start == first:
            return list(slots)
        back *= 2


@functools.cache
def _zones() -> frozenset[str]:
    """List every known zone; read once."""
    from zoneinfo import available_timezones  # noqa: PLC0415 -- as in `_times`

    return frozenset(available_timezones())
