"""Backoff: how long a failed job waits before its next attempt."""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import timedelta
from enum import StrEnum
from typing import Literal, assert_never

import msgspec

from windlass._core.values.instants import duration
from windlass._core.values.names import shown
from windlass.errors import InvalidArgument

__all__ = ["DEFAULT_BACKOFF", "Backoff", "Curve", "Jitter"]

JitterName = Literal["none", "spread", "full"]
_SPREAD = 0.25
_LONGEST = timedelta(days=365)


class Curve(StrEnum):
    """The shape of the delays."""

    NONE = "none"
    FIXED = "fixed"
    LINEAR = "linear"
    EXPONENTIAL = "exponential"
    LISTED = "listed"


class Jitter(StrEnum):
    """How delays are randomized, to avoid a thundering herd."""

    NONE = "none"
    SPREAD = "spread"
    """A quarter less to a quarter more."""
    FULL = "full"
    """From nothing to the whole delay."""


class Backoff(msgspec.Struct, frozen=True, kw_only=True):
    """The waits between attempts: a curve with a cap, and jitter. Make one with the class methods.

    The cap bounds the curve. Jitter "spread" is added after the cap, so that jobs at the cap are
    spread too: a wait can be a quarter longer than the cap.
    """

    curve: Curve
    first: timedelta = timedelta(0)
    factor: float = 1.0
    step: timedelta = timedelta(0)
    cap: timedelta = timedelta(hours=1)
    jitter: Jitter = Jitter.NONE
    times: tuple[timedelta, ...] = ()

    def __post_init__(self) -> None:
        if self.curve is Curve.EXPONENTIAL and not (1.0 <= self.factor < math.inf):
            message = f"factor must be at least 1, got {self.factor!r}"
            raise InvalidArgument(message)
        if not timedelta(0) <= self.cap <= _LONGEST:
            message = f"a backoff waits between 0 and {_LONGEST.days} days, got {self.cap!r}"
            raise InvalidArgument(message)
        if (self.curve is Curve.LISTED) != bool(self.times):
            message = "times belong to the curve 'listed': make one with Backoff.waits([1, 60])"
            raise InvalidArgument(message)

    @classmethod
    def exponential(
        cls,
        first: timedelta | float = 5.0,
        *,
        factor: float = 5.0,
        cap: timedelta | float = timedelta(hours=1),
        jitter: JitterName = "spread",
    ) -> Backoff:
        """Wait ``first``, then ``factor`` times as long each time, at most ``cap``.

        ``jitter``: "spread" varies each wait by up to a quarter, "full" from 0 to the whole wait.
        """
        return cls(
            curve=Curve.EXPONENTIAL,
            first=duration(first, "first"),
            factor=float(factor),
            cap=duration(cap, "cap"),
            jitter=Jitter(jitter),
        )

    @classmethod
    def linear(
        cls,
        first: timedelta | float = 5.0,
        *,
        step: timedelta | float | None = None,
        cap: timedelta | float = timedelta(hours=1),
        jitter: JitterName = "spread",
    ) -> Backoff:
        """Wait ``first``, then ``step`` longer each time (default: ``first``), at most ``cap``."""
        start = duration(first, "first")
        return cls(
            curve=Curve.LINEAR,
            first=start,
            step=start if step is None else duration(step, "step"),
            cap=duration(cap, "cap"),
            jitter=Jitter(jitter),
        )

    @classmethod
    def fixed(cls, delay: timedelta | float, *, jitter: JitterName = "none") -> Backoff:
        """Wait ``delay`` each time."""
        span = duration(delay, "delay")
        return cls(curve=Curve.FIXED, first=span, cap=span, jitter=Jitter(jitter))

    @classmethod
    def none(cls) -> Backoff:
        """Retry at once."""
        return cls(curve=Curve.NONE, cap=timedelta(0))

    @classmethod
    def waits(cls, times: Iterable[timedelta | float], *, jitter: JitterName = "none") -> Backoff:
        """Wait these times in turn. Further attempts wait as long as the last one."""
        given: object = times
        if isinstance(given, str) or not isinstance(given, Iterable) or not (listed := [*given]):
            message = f"waits takes a list of durations such as [1, 60, 3600], got {shown(times)}"
            raise InvalidArgument(message)
        spans = tuple(duration(time, "a wait") for time in listed)
        return cls(curve=Curve.LISTED, times=spans, cap=max(spans), jitter=Jitter(jitter))

    def delay(self, tries: int, chance: float) -> timedelta:
        """Return the wait after failed attempt number ``tries``, from 1. ``chance`` is in [0,
        1).
        """
        return self._bend(min(self._straight(max(tries, 1)), self.cap), chance)

    def _straight(self, tries: int) -> timedelta:
        match self.curve:
            case Curve.NONE:
                return timedelta(0)
            case Curve.FIXED:
                return self.first
            case Curve.LINEAR:
                return self._linear(tries)
            case Curve.EXPONENTIAL:
                return self._exponential(tries)
            case Curve.LISTED:
                return self.times[min(tries, len(self.times)) - 1]
            case _:
                assert_never(self.curve)

    def _linear(self, tries: int) -> timedelta:
        if self.cap <= self.first:
            return self.cap
        # Counted before it is multiplied: attempt 2,000 must give the cap, not an overflow.
        if self.step > timedelta(0) and tries - 1 > (self.cap - self.first) // self.step:
            return self.cap
        return self.first + self.step * (tries - 1)

    def _exponential(self, tries: int) -> timedelta:
        if self.first <= timedelta(0) or self.cap <= self.first:
            return self.first
        if self.factor == 1.0:
            return self.first
        # Compare exponents, not products: attempt 2,000 must give the cap, not an overflow.
        if (tries - 1) * math.log(self.factor) >= math.log(self.cap / self.first):
            return self.cap
        return self.first * math.pow(self.factor, tries - 1)

    def _bend(self, delay: timedelta, chance: float) -> timedelta:
        match self.jitter:
            case Jitter.NONE:
                return delay
            case Jitter.SPREAD:
                return delay * (1.0 - _SPREAD + 2.0 * _SPREAD * chance)
            case Jitter.FULL:
                return delay * chance
            case _:
                assert_never(self.jitter)


DEFAULT_BACKOFF = Backoff.exponential()
"""5 s, 25 s, about 2 min, about 10 min, spread by a quarter."""
