"""Circuit breakers: pause a task that keeps failing."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import msgspec

from windlass._core.values.instants import duration
from windlass._core.values.names import shown
from windlass.errors import InvalidArgument

__all__ = ["DEFAULT_FAILURES", "Breaker", "BreakerState", "record_failure", "record_success"]

DEFAULT_FAILURES = 10
_MOST_WAITS = 30
_MOST_FAILURES = 1_000_000


class Breaker(msgspec.Struct, frozen=True):
    """A circuit breaker: it opens after ``failures`` failed runs in a row, and stops the task's
    jobs.

    After ``cool_down`` one job runs as a test. If it succeeds, the breaker closes. If it fails, the
    breaker opens again, each time ``growth`` times as long, up to ``longest``.
    """

    failures: int = DEFAULT_FAILURES
    cool_down: timedelta = timedelta(seconds=30)
    growth: float = 2.0
    longest: timedelta = timedelta(hours=1)

    if TYPE_CHECKING:  # the record holds one kind of duration and takes both

        def __init__(
            self,
            failures: int = DEFAULT_FAILURES,
            cool_down: timedelta | float = ...,
            growth: float = 2.0,
            longest: timedelta | float = ...,
        ) -> None: ...

    def __post_init__(self) -> None:
        count: object = self.failures
        whole = isinstance(count, int) and not isinstance(count, bool)
        if not whole or not 1 <= self.failures <= _MOST_FAILURES:
            message = (
                f"a breaker opens after a whole number of failures in a row, at least 1, "
                f"got {shown(self.failures)}"
            )
            raise InvalidArgument(message)
        growth: object = self.growth
        number = isinstance(growth, int | float) and not isinstance(growth, bool)
        if not number or not 1 <= self.growth < math.inf:
            message = f"a breaker's growth is a number of at least 1, got {shown(self.growth)}"
            raise InvalidArgument(message)
        cool_down, longest = (
            duration(self.cool_down, "cool_down"),
            duration(self.longest, "longest"),
        )
        if cool_down <= timedelta(0):
            message = "a breaker's cool_down must be longer than nothing"
            raise InvalidArgument(message)
        if longest < cool_down:
            message = (
                f"a breaker's longest ({longest}) must not be below its cool_down ({cool_down})"
            )
            raise InvalidArgument(message)
        msgspec.structs.force_setattr(self, "cool_down", cool_down)
        msgspec.structs.force_setattr(self, "longest", longest)
        msgspec.structs.force_setattr(self, "growth", float(self.growth))

    @property
    def waits(self) -> tuple[timedelta, ...]:
        """Return how long it stays open, by the number of openings in a row. The last wait is
        repeated.
        """
        waits = [self.cool_down]
        while len(waits) < _MOST_WAITS and waits[-1] < self.longest and self.growth > 1:
            # Compared before it is multiplied: a large growth must give the longest wait, not
            # overflow.
            grown = waits[-1] < self.longest / self.growth
            waits.append(waits[-1] * self.growth if grown else self.longest)
        return tuple(waits)


class BreakerState(msgspec.Struct, frozen=True):
    """The state of one breaker, shared by the cluster."""

    failures: int = 0
    """Failures in a row."""
    opened: int = 0
    """Openings in a row."""
    open_until: datetime | None = None

    def holds(self, breaker: Breaker) -> bool:
        """Return whether it is open: it admits no jobs until ``open_until``, then one job at a
        time.
        """
        return self.failures >= breaker.failures


def record_failure(breaker: Breaker, state: BreakerState, now: datetime) -> BreakerState:
    """Return the state after one more failure. A failure while it is open counts, but does not
    prolong it.
    """
    failures = state.failures + 1
    is_open = state.open_until is not None and state.open_until > now
    if failures < breaker.failures or is_open:
        return BreakerState(failures, state.opened, state.open_until)
    waits = breaker.waits
    opened = state.opened + 1
    return BreakerState(failures, opened, now + waits[min(opened, len(waits)) - 1])


def record_success() -> BreakerState:
    """Return the state after a success."""
    return BreakerState()
