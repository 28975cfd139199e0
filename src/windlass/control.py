"""What a handler raises to steer its own fate."""

from __future__ import annotations

from datetime import timedelta

from windlass.core.instant import capped
from windlass.errors import InvalidArgument

__all__ = ["Control", "GiveUp", "Retry", "Snooze", "Throttled"]


_PUBLIC = "windlass"
"""Where people import them from: stored errors and tracebacks name them so."""


class Control(Exception):
    """Base of the instructions a handler can raise."""


class Retry(Control):
    """Try again: costs an attempt. Without ``after`` the task's backoff decides when."""

    __module__ = _PUBLIC

    def __init__(self, reason: str = "", *, after: timedelta | float | None = None) -> None:
        super().__init__(reason or "the handler asked for a retry")
        self.after = None if after is None else capped(after, "after")


class Snooze(Control):
    """Run me later: free."""

    __module__ = _PUBLIC

    def __init__(self, after: timedelta | float) -> None:
        self.after = capped(after, "after")
        super().__init__(f"the handler asked to run again in {self.after}")


class Throttled(Control):
    """Somebody upstream limits us: free, and later, for everybody.

    The whole queue rests, in every worker: for ``after``, or as long as the queue's own curve says,
    whichever is longer. Many who hit the same limit are one hit, and hits in a row make it longer.
    ``cool_queue=False``: this job alone waits, for ``after``. ``drain``: the rates that the job
    draws on are spent, whatever we had counted ourselves.
    """

    __module__ = _PUBLIC

    def __init__(
        self,
        after: timedelta | float | None = None,
        *,
        cool_queue: bool = True,
        drain: bool = True,
    ) -> None:
        if after is None and not cool_queue:
            message = (
                "Throttled(cool_queue=False) needs after=: without a queue that rests, only you "
                "know when to try again"
            )
            raise InvalidArgument(message)
        self.after = None if after is None else capped(after, "after")
        self.cool_queue = cool_queue
        self.drain = drain
        super().__init__("throttled" if after is None else f"throttled for {self.after}")


class GiveUp(Control):
    """Never try this again: the job fails now, whatever attempts remain."""

    __module__ = _PUBLIC

    def __init__(self, reason: str = "the handler gave up") -> None:
        super().__init__(reason)
        self.reason = reason
