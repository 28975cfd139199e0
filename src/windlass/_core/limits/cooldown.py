"""Cool-downs: how long a whole queue rests after somebody upstream said "not now"."""

from __future__ import annotations

from datetime import timedelta

from windlass._core.limits.backoff import Backoff

__all__ = ["DEFAULT_COOL_DOWN", "MAX_STEPS", "MIN_COOL_DOWN", "RESET_AFTER", "cool_down_steps"]

DEFAULT_COOL_DOWN = Backoff.exponential(1, factor=2, cap=timedelta(minutes=5), jitter="none")

RESET_AFTER = timedelta(seconds=120)
"""A success forgets earlier cool-downs only when the last one ended at least this long ago: a
limiter that flaps is not forgiven by what slips through between two hits."""

MIN_COOL_DOWN = timedelta(milliseconds=100)
"""No free wait is shorter: a job that is put back at no cost must not run in a circle."""

MAX_STEPS = 30
"""Cool-downs in a row that are counted."""


def cool_down_steps(curve: Backoff, chance: float) -> tuple[timedelta, ...]:
    """How long the queue rests, by the number of cool-downs before; the last one for all beyond.

    Given to the store as a list: only the store knows the number, and it holds no policy.
    """
    waits = [max(curve.delay(count + 1, chance), MIN_COOL_DOWN) for count in range(MAX_STEPS + 1)]
    while len(waits) > 1 and waits[-1] == waits[-2]:
        waits.pop()
    return tuple(waits)
