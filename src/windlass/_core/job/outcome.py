"""What happened in a handler, and the one function that decides what follows."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal, assert_never

import msgspec

from windlass._core.job import transition
from windlass._core.job.job import AttemptError, ClaimedJob
from windlass._core.job.transition import Transition
from windlass._core.limits.backoff import DEFAULT_BACKOFF, Backoff
from windlass._core.limits.cooldown import DEFAULT_COOL_DOWN, MIN_COOL_DOWN, cool_down_steps

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
    "decide",
    "missed_wait",
]

SOLO_AFTER = 2
"""Lost this many times in a row, a job runs alone: its neighbours are not convicted with it."""


HEAD_START = timedelta(seconds=1)
"""A job that a worker could not run is due for the other workers so much earlier."""

_SHORTEST_WAIT, _LONGEST_WAIT = timedelta(seconds=15), timedelta(minutes=10)
_MAY_NOT_REPEAT = AttemptError(
    "Interrupted",
    "its worker stopped before the handler had ended, and on_lost='fail' allows no other run; "
    "requeue it if running it again is safe",
)
_WHY = 500
"""Characters that are kept of why a job waits."""


class Succeeded(msgspec.Struct, frozen=True):
    """The handler returned."""

    result: bytes | None = None


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
    """The handler met somebody else's rate limit."""

    after: timedelta = timedelta(0)
    cool_queue: bool = False
    """Nobody takes anything from the job's queue until it has rested."""
    drain: bool = False
    """The rates the job draws on are spent, whatever their buckets say."""
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
    """Whether a task's lists rule out another attempt. What is on both is ruled out.

    Asked where the exception still is one: what is stored of it is text.
    """
    return issubclass(kind, give_up_on) or (retry_on is not None and not issubclass(kind, retry_on))


def decide(
    job: ClaimedJob,
    outcome: Outcome,
    policy: Policy,
    *,
    by: str,
    now: datetime,
    chance: float,
) -> Transition:
    """What becomes of a running job. The only place that knows the retry rule."""
    match outcome:
        case Succeeded(result):
            return transition.succeed(job, by=by, result=result, keep=policy.keep_succeeded)
        case Raised(error, barred=False, after=after):
            return _try_again(job, error, policy, by=by, chance=chance, after=after)
        case Raised(error) | GaveUp(error):
            return transition.fail(job, by=by, error=error)
        case Crashed(error):
            if policy.on_crash == "retry":
                return _try_again(job, error, policy, by=by, chance=chance)
            return transition.fail(job, by=by, error=error)
        case Snoozed(after):
            return transition.snooze(job, by=by, delay=max(after, MIN_COOL_DOWN))
        case Throttled(after, cool_queue, drain):
            cools = cool_down_steps(policy.cool_down, chance) if cool_queue else ()
            wait = max(after, MIN_COOL_DOWN)
            return transition.throttle(job, by=by, delay=wait, cools=cools, drains=drain)
        case Interrupted() | CutOff():
            return _given_back(job, outcome, by=by)
        case Missing() | Misfit():
            return _missed(job, outcome, policy, by=by, now=now)
        case Cancelled(cause):
            return transition.cancel(job, by=by, error=cause)
        case Lost(error):
            return _lost(job, error, policy, by=by, chance=chance)
        case _:
            assert_never(outcome)


def _try_again(
    job: ClaimedJob,
    error: AttemptError,
    policy: Policy,
    *,
    by: str,
    chance: float,
    after: timedelta | None = None,
) -> Transition:
    if job.attempt >= job.max_attempts:
        return transition.fail(job, by=by, error=error)
    delay = _backoff(job, policy, chance) if after is None else after
    return transition.retry(job, by=by, error=error, delay=delay)


def _lost(
    job: ClaimedJob, error: AttemptError, policy: Policy, *, by: str, chance: float
) -> Transition:
    lost = job.lost + 1
    if job.solo:
        # It was alone when the worker died, so the death is its own.
        quarantine = AttemptError(
            kind="Quarantined",
            message=f"{error.message}; lost {lost} times in a row, the last time running alone",
        )
        return transition.fail(job, by=by, error=quarantine, lost=lost)
    if job.on_lost == "fail":
        return transition.fail(job, by=by, error=error, lost=lost)
    return transition.retry(
        job,
        by=by,
        error=error,
        delay=_backoff(job, policy, chance),
        lost=lost,
        solo=lost >= SOLO_AFTER,
        # A loss spends its attempt, but never the last one: that one is for the job to fail.
        refund=job.attempt >= job.max_attempts,
    )


def _given_back(job: ClaimedJob, outcome: Interrupted | CutOff, *, by: str) -> Transition:
    if isinstance(outcome, Interrupted):
        if outcome.started and job.on_lost == "fail" and job.attempt >= job.max_attempts:
            return transition.fail(job, by=by, error=_MAY_NOT_REPEAT, lost=job.lost)
        return transition.release(job, by=by, started=outcome.started)
    # Without cost, but as suspect: it may be the one that cancels its neighbours.
    error, lost = outcome.error, job.lost + 1
    if job.solo:
        message = f"{error.message}; lost {lost} times in a row, the last time running alone"
        return transition.fail(job, by=by, error=AttemptError("Quarantined", message), lost=lost)
    if job.on_lost == "fail":
        return transition.fail(job, by=by, error=error, lost=lost)
    back = transition.release(job, by=by)
    return msgspec.structs.replace(back, error=error, lost=lost, solo=lost >= SOLO_AFTER)


def missed_wait(missed_at: datetime | None, now: datetime) -> timedelta:
    """How long a job waits that a worker could not run: a quarter of the time since the first
    miss, at least 15 seconds, at most ten minutes.
    """
    since = timedelta(0) if missed_at is None else now - missed_at
    return min(max(since / 4, _SHORTEST_WAIT), _LONGEST_WAIT)


def _missed(
    job: ClaimedJob, outcome: Missing | Misfit, policy: Policy, *, by: str, now: datetime
) -> Transition:
    """Give the job back at no cost, or fail it where waiting has been, or is, of no use."""
    error, since = outcome.error, job.missed_at
    patience, hopeless = policy.missing_for, policy.missing_task == "fail"
    if isinstance(outcome, Misfit):
        patience, hopeless = policy.misfit_for, hopeless or outcome.hopeless
    if hopeless or (since is not None and now - since >= patience):
        return transition.fail(job, by=by, error=error)
    kind = "Misfit" if isinstance(outcome, Misfit) else error.kind.rpartition(".")[2]
    why = AttemptError(error.kind, f"{kind}: {error.message}"[:_WHY])
    delay = max(missed_wait(since, now), outcome.behind)
    return transition.release(job, by=by, delay=delay, missed=why, started=False)


def _backoff(job: ClaimedJob, policy: Policy, chance: float) -> timedelta:
    return (job.backoff or policy.backoff).delay(job.tries, chance)
