"""Cool-downs: how long a queue pauses after a handler raised `Throttled`."""

from __future__ import annotations

from datetime import timedelta

from windlass._core.limits.backoff import Backoff

__all__ = ["DEFAULT_COOL_DOWN", "MAX_STEPS", "MIN_COOL_DOWN", "RESET_AFTER", "cool_down_steps"]

DEFAULT_COOL_DOWN = Backoff.exponential(1, factor=2, cap=timedelta(minutes=5), jitter="none")

RESET_AFTER = timedelta(seconds=120)
"""A success resets the count of cool-downs only if the last one ended at least this long ago. A
service that is overloaded answers some requests between two refusals.
"""

MIN_COOL_DOWN = timedelta(milliseconds=100)
"""Shortest wait of a job that is put back without using an attempt. It must not run in a circle."""

MAX_STEPS = 30
"""Cool-downs in a row that are counted."""


def cool_down_steps(curve: Backoff, chance: float) -> tuple[timedelta, ...]:
    """List how long the queue pauses, by the number of cool-downs before. The last one is repeated.

    The store gets the list: only the store knows the number, and it decides no policy.
    """
    waits = [max(curve.delay(count + 1, chance), MIN_COOL_DOWN) for count in range(MAX_STEPS + 1)]
    while len(waits) > 1 and waits[-1] == waits[-2]:
        waits.pop()
    return tuple(waits)
