"""Limits as values: what a rate or a concurrency limit allows at an instant."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from functools import lru_cache
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
"""A clock further back than this, compared with the last use of a bucket, was set back. Each bucket
is then as full as it was at that moment, debts included. Otherwise jobs would wait until the clock
comes there again.
"""
_KEPT_US = 100_000
"""Microseconds of tokens that a bucket holds by default: a worker needs some of them to wake up."""
_MOST = 1_000_000_000
"""Largest number of tokens in a bucket and of jobs at once. Every store can count this far."""


class Rate(msgspec.Struct, frozen=True):
    """A rate: ``n`` starts per ``per``. In any window of ``per``, at most ``n + burst - 1`` jobs
    start.

    ``burst``: tokens that are saved while jobs are idle. Default: the tokens of 100 ms, at least 1.

    If there is enough work, one idle worker reaches at least 95 % of the rate. Above ten starts per
    second this needs a burst that holds the tokens of 100 ms. Tokens that arrive at a full bucket,
    while the worker wakes up, are lost.

    ``n`` may be a fraction. A window counts it as the next whole number: 2.5 per second are 400 ms
    apart, so a second may contain three starts.
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
        """Return how long one token takes to refill, rounded up."""
        return timedelta(microseconds=math.ceil(span_us(self.per) / self.n))

    def span(self, tokens: float) -> timedelta:
        """Return how long ``tokens`` take to refill.

        It is a multiple of the rounded spacing, not a rounded multiple. Three single tokens must
        cost the same as a burst of three, or the third would wait a microsecond too long. The
        result is bounded: an absurd cost must not push an instant past the calendar and stop other
        claims.
        """
        us = span_us(self.spacing) * tokens
        return timedelta(microseconds=math.ceil(min(us, span_us(_LONGEST))))


class LimitSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A limit as it is stored: a named budget of the cluster, separate for each key."""

    name: str
    rate: Rate | None = None
    concurrency: int | None = None
    breaker: Breaker | None = None
    """A circuit breaker. It has no rate, no concurrency and no keys."""

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
    """The job may start. Store ``spent_until`` for this budget."""

    spent_until: datetime


class Closed(msgspec.Struct, frozen=True):
    """The job may not start yet. The same cost fits at ``open_at``."""

    open_at: datetime


def admit(
    rate: Rate, spent_until: datetime | None, *, cost: float, now: datetime
) -> Admitted | Closed:
    """Take ``cost`` from a token bucket, stored as one instant: when it would be full again.

    A cost above the burst starts when the bucket is full, and leaves a debt.
    """
    full_at = max(spent_until, now) if spent_until is not None else now
    room, price = _spans(rate, cost)
    if full_at - now > room:
        return Closed(open_at=full_at - room)
    return Admitted(spent_until=full_at + price)


@lru_cache(maxsize=1024)  # asked for every start under a rate
def _spans(rate: Rate, cost: float) -> tuple[timedelta, timedelta]:
    """Return the debt beside which a cost fits, and the debt that it leaves."""
    return rate.span(rate.burst) - rate.span(min(cost, rate.burst)), rate.span(cost)


def tokens_free(rate: Rate, spent_until: datetime | None, now: datetime) -> int:
    """Return the whole tokens in the bucket: how many starts of cost one fit now."""
    if spent_until is None or spent_until <= now:
        return rate.burst
    # By the same rounded spacing as `admit`, so the two never disagree by one.
    room = rate.span(rate.burst) - (spent_until - now)
    return max(0, room // rate.spacing)


def drained(rate: Rate, spent_until: datetime | None, now: datetime) -> datetime:
    """Return ``spent_until`` of an empty bucket. A debt stays."""
    empty = now + rate.span(rate.burst)
    return empty if spent_until is None else max(spent_until, empty)


def rescale_debt(
    rate: Rate, spent_until: datetime | None, *, before: Rate, now: datetime
) -> datetime | None:
    """Return ``spent_until`` for a changed rate. A debt is counted in tokens, not in time."""
    if spent_until is None or spent_until <= now:
        return spent_until
    return now + rate.span((spent_until - now) / before.spacing)


@lru_cache(maxsize=4096)
def lane_key(uses: tuple[LimitUse, ...]) -> str:
    """Return the lane of a combination of limits. Jobs that need the same budgets wait in one
    lane.
    """
    # Escaped: a key made from arguments may contain the separator, and must not lead into the lane
    # of another combination.
    gates = {use.gate.replace("\\", "\\\\").replace("\x1f", "\\x1f") for use in uses}
    return "\x1f".join(sorted(gates))
