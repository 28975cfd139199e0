"""Limits as values: what a rate or a concurrency bound allows at an instant."""

from __future__ import annotations

import math
from datetime import datetime, timedelta

import msgspec

from windlass.core.instant import duration
from windlass.core.job import LimitUse
from windlass.errors import InvalidArgument

__all__ = ["Admitted", "Closed", "LimitSpec", "Rate", "admit", "lane_key", "tokens_free"]


class Rate(msgspec.Struct, frozen=True):
    """At most ``n + burst - 1`` starts in any half-open window of ``per``."""

    n: float
    per: timedelta
    burst: int = 1

    def __post_init__(self) -> None:
        if not (0 < self.n < math.inf):
            message = f"a rate needs n above 0, got {self.n!r}"
            raise InvalidArgument(message)
        if duration(self.per, "per") <= timedelta(0):
            message = f"a rate needs a period above 0, got {self.per!r}"
            raise InvalidArgument(message)
        if self.burst < 1:
            message = f"a rate needs burst of at least 1, got {self.burst!r}"
            raise InvalidArgument(message)

    def span(self, tokens: float) -> timedelta:
        """How long ``tokens`` take to refill, rounded up: rounding never gives a token away."""
        period = self.per / timedelta(microseconds=1)
        return timedelta(microseconds=math.ceil(period / self.n * tokens))


class LimitSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A named budget for the whole cluster, for each key apart."""

    name: str
    rate: Rate | None = None
    concurrency: int | None = None

    def __post_init__(self) -> None:
        if not self.name or ":" in self.name:
            message = f"a limit's name must not be empty or contain ':', got {self.name!r}"
            raise InvalidArgument(message)
        if self.rate is None and self.concurrency is None:
            message = f"limit {self.name!r} needs rate= or concurrency="
            raise InvalidArgument(message)
        if self.concurrency is not None and self.concurrency < 1:
            message = f"limit {self.name!r} needs concurrency of at least 1, got {self.concurrency}"
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
    # Count by the same rounded spans as `admit`, so the two never disagree by one.
    debt = spent_until - now
    free = 0
    while free < rate.burst and debt <= rate.span(rate.burst) - rate.span(free + 1):
        free += 1
    return free


def lane_key(uses: tuple[LimitUse, ...]) -> str:
    """The lane of a combination of limits: jobs that need the same budgets wait in one line."""
    return "\x1f".join(sorted({use.gate for use in uses}))
