"""Limits as values: what a rate or a concurrency bound allows at an instant."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, cast

import msgspec

from windlass._core.job.job import LimitUse
from windlass._core.limits.breaker import Breaker
from windlass._core.values.instants import duration, span_us
from windlass.errors import InvalidArgument

__all__ = [
    "CLOCK_SLACK",
    "Admitted",
    "Closed",
    "LimitSpec",
    "Rate",
    "admit",
    "drained",
    "lane_key",
    "rescale_debt",
    "tokens_free",
]

_LONGEST = timedelta(days=36_525)
CLOCK_SLACK = timedelta(seconds=1)
"""A clock that is further back than this, against when tokens were last taken, was set back. Then
every bucket is as full as it was at that moment, debts included, instead of waiting for the clock
to come there again."""
_KEPT_US = 100_000
"""Microseconds whose tokens a bucket holds, unless its burst is given: a worker needs some of them
to wake up and ask."""
_MOST = 1_000_000_000
"""Tokens in a bucket, and jobs at a time: what every store can count, and more than anybody has."""


class Rate(msgspec.Struct, frozen=True):
    """At most ``n + burst - 1`` starts in any half-open window of ``per``.

    A fractional ``n`` counts as the next whole number there: 2.5 a second are 400 ms apart, and
    three such starts fit into a second.

    Where there is enough to do, one idle worker starts ``n`` per ``per``, within 5 %, up to ten a
    second; beyond that if ``burst`` holds what comes in 100 ms: tokens that find the bucket full
    while the worker wakes up are lost. So ``burst`` is, unless it is given, as many as come in
    100 ms, at least 1.
    """

    n: float
    per: timedelta
    burst: int = msgspec.field(default_factory=lambda: cast("int", None))

    if TYPE_CHECKING:  # the record holds one kind of duration and takes both, and a whole burst

        def __init__(
            self, n: float, per: timedelta | float | str, burst: int | None = None
        ) -> None: ...

    def __post_init__(self) -> None:
        given: tuple[object, object] = self.n, self.burst
        numbers = given if given[1] is not None else given[:1]
        if not all(isinstance(x, int | float) and not isinstance(x, bool) for x in numbers):
            message = f"a rate is Rate(n, per, burst) in numbers, got {self!r}"
            raise InvalidArgument(message)
        if not (0 < self.n < math.inf):
            message = f"a rate needs n above 0, got {self.n!r}"
            raise InvalidArgument(message)
        period = duration(self.per, "per")
        if period <= timedelta(0):
            message = f"a rate needs a period above 0, got {self.per!r}"
            raise InvalidArgument(message)
        msgspec.structs.force_setattr(self, "per", period)
        if given[1] is None:
            kept = math.ceil(min(self.n * _KEPT_US / span_us(period), _MOST))
            msgspec.structs.force_setattr(self, "burst", max(1, kept))
        if not 1 <= self.burst <= _MOST or self.burst != int(self.burst):
            message = (
                f"a rate needs a whole burst of at least 1 and at most {_MOST:,}, "
                f"got {self.burst!r}"
            )
            raise InvalidArgument(message)
        # 5.0 is a whole number, too, but written as such it could not be read back.
        msgspec.structs.force_setattr(self, "burst", int(self.burst))
        if period.total_seconds() / self.n * self.burst > _LONGEST.total_seconds():
            message = f"a rate must refill its burst within {_LONGEST.days} days, got {self!r}"
            raise InvalidArgument(message)

    @property
    def spacing(self) -> timedelta:
        """How long one token takes to refill, rounded up: rounding never gives a token away."""
        return timedelta(microseconds=math.ceil(span_us(self.per) / self.n))

    def span(self, tokens: float) -> timedelta:
        """How long ``tokens`` take to refill.

        A multiple of the rounded spacing, not a rounded multiple: three single tokens must cost
        what a burst of three holds, or the third would wait for a microsecond nobody asked for.
        A debt has an end: an absurd cost must not push an instant past the calendar, where it
        would stop the claims of everybody else.
        """
        us = span_us(self.spacing) * tokens
        return timedelta(microseconds=math.ceil(min(us, span_us(_LONGEST))))


class LimitSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A named budget for the whole cluster, for each key apart."""

    name: str
    rate: Rate | None = None
    concurrency: int | None = None
    breaker: Breaker | None = None
    """A gate that failures shut: it has neither of the others, and no keys."""

    def __post_init__(self) -> None:
        if not self.name or ":" in self.name:
            message = f"a limit's name must not be empty or contain ':', got {self.name!r}"
            raise InvalidArgument(message)
        if self.breaker is not None and (self.rate is not None or self.concurrency is not None):
            message = f"limit {self.name!r} is a breaker, which has no rate and no concurrency"
            raise InvalidArgument(message)
        if self.rate is None and self.concurrency is None and self.breaker is None:
            message = f"limit {self.name!r} needs rate= or concurrency="
            raise InvalidArgument(message)
        if self.concurrency is not None and not 1 <= self.concurrency <= _MOST:
            message = (
                f"limit {self.name!r} needs concurrency of at least 1 and at most {_MOST:,}, "
                f"got {self.concurrency}"
            )
            raise InvalidArgument(message)


class Admitted(msgspec.Struct, frozen=True):
    """Go ahead; store ``spent_until`` for this budget."""

    spent_until: datetime


class Closed(msgspec.Struct, frozen=True):
    """Not now; the same cost fits at ``open_at``."""

    open_at: datetime


def admit(
    rate: Rate, spent_until: datetime | None, *, cost: float, now: datetime
) -> Admitted | Closed:
    """One step of the bucket, kept as one instant: the moment it would be full again.

    A cost above the burst starts on a full bucket and leaves a debt behind.
    """
    full_at = max(spent_until, now) if spent_until is not None else now
    room = rate.span(rate.burst) - rate.span(min(cost, rate.burst))
    if full_at - now > room:
        return Closed(open_at=full_at - room)
    return Admitted(spent_until=full_at + rate.span(cost))


def tokens_free(rate: Rate, spent_until: datetime | None, now: datetime) -> int:
    """Whole tokens in the bucket: how many starts of cost one fit now."""
    if spent_until is None or spent_until <= now:
        return rate.burst
    # By the same rounded spacing as `admit`, so the two never disagree by one.
    room = rate.span(rate.burst) - (spent_until - now)
    return max(0, room // rate.spacing)


def drained(rate: Rate, spent_until: datetime | None, now: datetime) -> datetime:
    """``spent_until`` of a bucket with nothing in it. A debt is not forgiven."""
    empty = now + rate.span(rate.burst)
    return empty if spent_until is None else max(spent_until, empty)


def rescale_debt(
    rate: Rate, spent_until: datetime | None, *, before: Rate, now: datetime
) -> datetime | None:
    """``spent_until`` when a rate is changed: what is owed are tokens, not time."""
    if spent_until is None or spent_until <= now:
        return spent_until
    return now + rate.span((spent_until - now) / before.spacing)


def lane_key(uses: tuple[LimitUse, ...]) -> str:
    """The lane of a combination of limits: jobs that need the same budgets wait in one line."""
    # Escaped: a key taken from the arguments may hold the separator, and must not lead into the
    # lane of another combination.
    gates = {use.gate.replace("\\", "\\\\").replace("\x1f", "\\x1f") for use in uses}
    return "\x1f".join(sorted(gates))
