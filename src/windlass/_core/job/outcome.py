"""The outcome of a handler. `windlass._core.job.transition` decides what follows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

import msgspec

from windlass._core.flows.flow import Addition, NewFlow
from windlass._core.job.job import AttemptError, NewJob
from windlass._core.limits.backoff import DEFAULT_BACKOFF, Backoff
from windlass._core.limits.cooldown import DEFAULT_COOL_DOWN

__all__ = [
    "HEAD_START",
    "SOLO_AFTER",
    "Cancelled",
    "Crashed",
    "CutOff",
    "GaveUp",
    "Interrupted",
    "Lost",
    "Misfit",
    "Missing",
    "Outcome",
    "Policy",
    "Raised",
    "Snoozed",
    "Succeeded",
    "Throttled",
    "barred",
]

SOLO_AFTER = 2
"""Lost this many times in a row, a job runs alone: its neighbours are not convicted with it."""


HEAD_START = timedelta(seconds=1)
"""A job that a worker could not run is due for the other workers so much earlier."""


class Succeeded(msgspec.Struct, frozen=True):
    """The handler returned."""

    result: bytes | None = None
    then: tuple[NewJob, ...] = ()
    """The jobs that it added. They are stored with the success or not at all."""
    flows: tuple[NewFlow, ...] = ()
    """The flows that it added, likewise."""

    def adding(self, more: Sequence[Addition]) -> Succeeded:
        """Return the success with more jobs and flows."""
        jobs = tuple(one for one in more if isinstance(one, NewJob))
        flows = tuple(one for one in more if isinstance(one, NewFlow))
        return Succeeded(self.result, (*self.then, *jobs), (*self.flows, *flows))


class Raised(msgspec.Struct, frozen=True):
    """The handler raised an ordinary exception, asked for a retry, or ran out of time."""

    error: AttemptError
    after: timedelta | None = None
    """The handler's own wish; None follows the backoff."""
    barred: bool = False
    """The task's lists say that no further attempt can help against such an exception."""


class GaveUp(msgspec.Struct, frozen=True):
    """No further attempt can help: the handler said so, or its stored arguments are damaged."""

    error: AttemptError


class Crashed(msgspec.Struct, frozen=True):
    """Something that is no ordinary exception escaped, such as SystemExit."""

    error: AttemptError


class Snoozed(msgspec.Struct, frozen=True):
    """The handler asked to be run later."""

    after: timedelta


class Throttled(msgspec.Struct, frozen=True):
    """The handler met the rate limit of another service."""

    after: timedelta = timedelta(0)
    cool_queue: bool = False
    """No worker claims from the job's queue until the cool-down ends."""
    drain: bool = False
    """Empty the buckets of the job's rates."""
    odd: str = ""
    """The wait that the handler gave, if it made no sense and another was taken for it."""


class Interrupted(msgspec.Struct, frozen=True):
    """The worker stopped before the handler finished."""

    started: bool = True
    """False: before the handler was entered."""


class CutOff(msgspec.Struct, frozen=True):
    """Code outside the run cancelled it, and neither a request nor a stop was the reason."""

    error: AttemptError


class Missing(msgspec.Struct, frozen=True):
    """This worker does not know the task."""

    error: AttemptError
    behind: timedelta = timedelta(0)
    """The job waits at least this long: see `Misfit.behind`."""


class Misfit(msgspec.Struct, frozen=True):
    """The stored arguments do not fit the function that this worker has."""

    error: AttemptError
    hopeless: bool = False
    """No live worker of the queue has another version of the code."""
    behind: timedelta = timedelta(0)
    """The job waits at least this long, because many others that were missed come before it."""


class Cancelled(msgspec.Struct, frozen=True):
    """A stored cancel request reached the handler and it ended."""

    error: AttemptError | None = None


class Lost(msgspec.Struct, frozen=True):
    """The worker is presumed dead."""

    error: AttemptError


Outcome = (
    Succeeded
    | Raised
    | GaveUp
    | Crashed
    | Snoozed
    | Throttled
    | Interrupted
    | CutOff
    | Missing
    | Misfit
    | Cancelled
    | Lost
)


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The rules a task's outcomes are decided by."""

    backoff: Backoff = DEFAULT_BACKOFF
    cool_down: Backoff = DEFAULT_COOL_DOWN
    on_crash: Literal["fail", "retry"] = "fail"
    missing_task: Literal["wait", "fail"] = "wait"
    """Whether a job that a worker cannot run, for want of its task or because its arguments do
    not fit, waits for another worker or fails at once."""
    missing_for: timedelta = timedelta(hours=24)
    misfit_for: timedelta = timedelta(hours=1)
    keep_succeeded: bool = True


def barred(
    kind: type[BaseException],
    retry_on: tuple[type[BaseException], ...] | None,
    give_up_on: tuple[type[BaseException], ...],
) -> bool:
    """Return whether a task's lists rule out another attempt. An exception on both is ruled out.

    Asked where the exception still is one: what is stored of it is text.
    """
    return issubclass(kind, give_up_on) or (retry_on is not None and not issubclass(kind, retry_on))
