"""The settings of a queue that operators can change while workers run."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from windlass._core.limits.backoff import Backoff
from windlass._core.values.instants import duration
from windlass._core.values.names import shown
from windlass.errors import InvalidArgument

__all__ = ["QueueSettings"]

_RUNNING = range(1, 1_000_001)


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The settings of a queue. None follows the task, then the app."""

    max_running: int | None = None
    """Jobs of this queue that run at once, in the whole cluster."""
    backoff: Backoff | None = None
    """Waits between attempts, for jobs whose task has no backoff."""
    cool_down: Backoff | None = None
    """How long the queue pauses after `Throttled`, by the number of times in a row."""
    keep_succeeded: timedelta | None = None
    """How long succeeded, cancelled and discarded jobs are kept; 0 deletes them at once."""
    keep_failed: timedelta | None = None

    def __post_init__(self) -> None:
        most: object = self.max_running
        whole = isinstance(most, int) and not isinstance(most, bool) and most in _RUNNING
        if most is not None and not whole:
            message = (
                f"max_running is a whole number from 1 to {_RUNNING[-1]:,}, got {shown(most)}; "
                f"to let nothing run, pause the queue"
            )
            raise InvalidArgument(message)
        for name in ("backoff", "cool_down"):
            curve: object = getattr(self, name)
            if curve is not None and not isinstance(curve, Backoff):
                message = f"{name} must be a Backoff such as Backoff.fixed(5), got {shown(curve)}"
                raise InvalidArgument(message)
        for name in ("keep_succeeded", "keep_failed"):
            kept = getattr(self, name)
            if kept is not None:
                msgspec.structs.force_setattr(self, name, duration(kept, name))
