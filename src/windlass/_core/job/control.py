"""Exceptions that a handler raises to decide what happens to its job."""

from __future__ import annotations

import math
from datetime import timedelta

from windlass._core.values.instants import LONGEST, capped
from windlass._core.values.names import shown

__all__ = ["Control", "GiveUp", "Retry", "Snooze", "Throttled"]


_PUBLIC = "windlass"
"""The module users import them from. Stored errors and tracebacks show this name."""

_NONSENSE = timedelta(seconds=60)
"""The wait that replaces an invalid one."""


def _sensible(after: object) -> timedelta | None:
    """Read a wait from nothing to `LONGEST`. None: NaN, or no number."""
    if isinstance(after, timedelta):
        return min(max(after, timedelta(0)), LONGEST)
    if isinstance(after, bool) or not isinstance(after, (int, float)):
        return None
    if isinstance(after, float) and math.isnan(after):  # a huge integer would raise here
        return None
    if after >= LONGEST.total_seconds():  # infinity, too
        return LONGEST
    return timedelta(seconds=max(after, 0))


def _wish(after: timedelta | float) -> timedelta | None:
    """Read a wait that the handler's own code gave; refuse one that is no number."""
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
    """Base class of the exceptions that steer a job."""


class Retry(Control):
    """Run this job again. It uses an attempt.

    ``after``: the wait. Default: the task's backoff. A negative wait is none; NaN is the backoff.
    """

    __module__ = _PUBLIC

    def __init__(self, reason: str = "", *, after: timedelta | float | None = None) -> None:
        super().__init__(reason or "the handler asked for a retry")
        self.after: timedelta | None = None if after is None else _wish(after)


class Snooze(Control):
    """Run this job later without using an attempt, at the earliest in a tenth of a second.

    ``after``: the wait. A negative one is a time that has passed, so the job runs soon. NaN is a
    minute.
    """

    __module__ = _PUBLIC

    def __init__(self, after: timedelta | float) -> None:
        wish = _wish(after)
        self.after: timedelta = _NONSENSE if wish is None else wish
        super().__init__(f"the handler asked to run again in {self.after}")


class Throttled(Control):
    """Run this job later and pause its queue on all workers, without using an attempt.

    Raise it when a service answers "too many requests". The pause lasts for ``after``, or as long
    as the queue's cool-down curve says, whichever is longer. Each pause in a row is longer. Further
    hits during a pause do not extend it.

    - ``after``: shortest pause, in seconds or as a timedelta.
    - ``cool_queue``: False delays only this job, for ``after``.
    - ``drain``: empty the token buckets of the job's rates (default), because the service counted
      more requests than you did.

    ``after`` often comes from the service, so no value of it fails the job. More than the setting
    ``max_throttle`` (an hour) counts as that. An invalid value counts as a minute: negative, NaN,
    no number, or none with ``cool_queue=False``. Workers log a warning once for each task. No wait
    is shorter than a tenth of a second.
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
        """The given value, if it is invalid."""
        self.after: timedelta | None = _NONSENSE if self.odd else _sensible(after)
        self.cool_queue = cool_queue
        self.drain = drain
        super().__init__("throttled" if self.after is None else f"throttled for {self.after}")


class GiveUp(Control):
    """Fail this job now, without further attempts."""

    __module__ = _PUBLIC

    def __init__(self, reason: str = "the handler gave up") -> None:
        super().__init__(reason)
        self.reason = reason
