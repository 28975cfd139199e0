"""What a handler raises to steer its own fate."""

from __future__ import annotations

import math
from datetime import timedelta

from windlass._core.values.instants import LONGEST, capped
from windlass._core.values.names import shown

__all__ = ["Control", "GiveUp", "Retry", "Snooze", "Throttled"]


_PUBLIC = "windlass"
"""Where people import them from: stored errors and tracebacks name them so."""

_NONSENSE = timedelta(seconds=60)
"""What is waited where the wait that was given makes no sense."""


def _sensible(after: object) -> timedelta | None:
    """A wait from nothing to `LONGEST`; None: NaN, or no number at all."""
    if isinstance(after, timedelta):
        return min(max(after, timedelta(0)), LONGEST)
    if isinstance(after, bool) or not isinstance(after, (int, float)):
        return None
    if isinstance(after, float) and math.isnan(after):  # asked of a huge integer it would raise
        return None
    if after >= LONGEST.total_seconds():  # infinity, too
        return LONGEST
    return timedelta(seconds=max(after, 0))


def _wish(after: timedelta | float) -> timedelta | None:
    """The same; what is no number is refused, since it comes from the handler's own code."""
    if isinstance(after, bool) or not isinstance(after, (timedelta, int, float)):
        capped(after, "after")
    return _sensible(after)


def _makes_sense(after: object, *, cool_queue: bool) -> bool:
    if after is None:
        return cool_queue
    below = isinstance(after, timedelta) and after < timedelta(0)
    below = below or (isinstance(after, (int, float)) and after < 0)
    return _sensible(after) is not None and not below


class Control(Exception):
    """Base of the instructions a handler can raise."""


class Retry(Control):
    """Try again: costs an attempt. Without ``after`` the task's backoff decides when.

    A negative ``after`` is none, NaN is left to the backoff.
    """

    __module__ = _PUBLIC

    def __init__(self, reason: str = "", *, after: timedelta | float | None = None) -> None:
        super().__init__(reason or "the handler asked for a retry")
        self.after: timedelta | None = None if after is None else _wish(after)


class Snooze(Control):
    """Run me later: free, and never sooner than a tenth of a second.

    A negative ``after`` is a time that has passed: the job runs again soon. NaN is a minute.
    """

    __module__ = _PUBLIC

    def __init__(self, after: timedelta | float) -> None:
        wish = _wish(after)
        self.after: timedelta = _NONSENSE if wish is None else wish
        super().__init__(f"the handler asked to run again in {self.after}")


class Throttled(Control):
    """Somebody upstream limits us: free, and later, for everybody.

    The whole queue rests, in every worker: for ``after``, or as long as the queue's own curve says,
    whichever is longer. Many who hit the same limit are one hit, and hits in a row make it longer.
    ``cool_queue=False``: this job alone waits, for ``after``. ``drain``: the rates that the job
    draws on are spent, whatever we had counted ourselves.

    ``after`` often comes from the other side, so nothing in it costs an attempt or stops a queue
    for good: more than the setting ``max_throttle`` (an hour) is taken for that, and what makes no
    sense (negative, NaN, no number, none where ``cool_queue=False`` needs one) for a minute.
    Workers log a warning once for each task. No wait is shorter than a tenth of a second.
    """

    __module__ = _PUBLIC

    def __init__(
        self,
        after: timedelta | float | None = None,
        *,
        cool_queue: bool = True,
        drain: bool = True,
    ) -> None:
        self.odd: str = (
            "" if _makes_sense(after, cool_queue=cool_queue) else f"after={shown(after)}"
        )
        """What was given, if it makes no sense."""
        self.after: timedelta | None = _NONSENSE if self.odd else _sensible(after)
        self.cool_queue = cool_queue
        self.drain = drain
        super().__init__("throttled" if self.after is None else f"throttled for {self.after}")


class GiveUp(Control):
    """Never try this again: the job fails now, whatever attempts remain."""

    __module__ = _PUBLIC

    def __init__(self, reason: str = "the handler gave up") -> None:
        super().__init__(reason)
        self.reason = reason
