"""Decide the transition of a running job: one function decides, and one function per edge."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import assert_never

import msgspec

from windlass._core.flows.flow import NewFlow
from windlass._core.job.job import AttemptError, Claim, ClaimedJob, NewJob
from windlass._core.job.outcome import (
    SOLO_AFTER,
    Cancelled,
    Crashed,
    CutOff,
    GaveUp,
    Interrupted,
    Lost,
    Misfit,
    Missing,
    Outcome,
    Policy,
    Raised,
    Snoozed,
    Succeeded,
    Throttled,
)
from windlass._core.job.state import FINISHING, State, Verb
from windlass._core.limits.cooldown import MIN_COOL_DOWN, cool_down_steps
from windlass._core.values.metadata import Metadata

__all__ = [
    "Transition",
    "cancel",
    "decide",
    "fail",
    "missed_wait",
    "release",
    "retry",
    "snooze",
    "succeed",
    "throttle",
]

_NOW = timedelta(0)
_SHORTEST_WAIT, _LONGEST_WAIT = timedelta(seconds=15), timedelta(minutes=10)
_MAY_NOT_REPEAT = AttemptError(
    "Interrupted",
    "its worker stopped before the handler had ended, and on_lost='fail' allows no other run; "
    "requeue it if running it again is safe",
)
_WHY = 500
"""Characters that are kept of why a job waits."""


class Transition(msgspec.Struct, frozen=True):
    """A fenced write that ends one claim. Times are durations from the store's own now."""

    verb: Verb
    claim: Claim
    by: str
    """The worker or reaper that ends it, by id. It tells a repeat from a refusal."""
    delay: timedelta = _NOW
    """For the verbs that lead back to waiting: due this long after the store's now."""
    refund: bool = False
    """The attempt is given back, never below zero."""
    result: bytes | None = None
    error: AttemptError | None = None
    lost: int = 0
    """The lost-in-a-row count to store."""
    solo: bool = False
    missed: bool = False
    """RELEASE: this worker cannot run it. Stamp ``missed_at`` if it has no stamp, and keep the
    message of ``error`` as ``missed_why``; ``error`` is no error of the job's then."""
    started: bool = True
    """The handler was entered. False: the claim is given back as if it had never been taken."""
    if_cancelled: Verb | None = Verb.CANCEL
    """The verb that takes effect instead if the row has a cancel request; None: nothing changes.

    Success wins over a cancel request, every other outcome gives way to it. The store decides in
    the write itself, because only there the flag is known.
    """
    keep: bool = True
    """False deletes the row instead of keeping it: retention zero."""
    cools: tuple[timedelta, ...] = ()
    """THROTTLE: the durations of the queue's cool-down, by its number of cool-downs before."""
    drains: bool = False
    """THROTTLE: the rates this job draws on have nothing left."""
    then: tuple[NewJob, ...] = ()
    """Jobs that are inserted in the same transaction, if ``verb`` itself takes effect. One whose
    unique key is held is left out."""
    flows: tuple[NewFlow, ...] = ()
    """SUCCEED: flows that are added in the same transaction. See `FlowStore`."""
    metadata: Metadata | None = None
    """The facts that the handler noted. They are stored with any verb."""

    @property
    def state(self) -> State:
        """Return the state that the verb leads to."""
        return FINISHING[self.verb]

    @property
    def new_jobs(self) -> list[NewJob]:
        """Return all jobs that it stores."""
        return [*self.then, *(job for flow in self.flows for job in flow.new_jobs)]


# --- the decision ---


def decide(
    job: ClaimedJob,
    outcome: Outcome,
    policy: Policy,
    *,
    by: str,
    now: datetime,
    chance: float,
) -> Transition:
    """Decide the transition of a running job. The only place that knows the retry rule."""
    match outcome:
        case Succeeded(result, then, flows):
            # Members of flows are kept with their flow. What is deleted needs no result.
            keep = policy.keep_succeeded or job.flow is not None
            result = result if keep else None
            return succeed(job, by=by, result=result, keep=keep, then=then, flows=flows)
        case Raised(error, barred=False, after=after):
            return _try_again(job, error, policy, by=by, chance=chance, after=after)
        case Raised(error) | GaveUp(error):
            return fail(job, by=by, error=error)
        case Crashed(error):
            if policy.on_crash == "retry":
                return _try_again(job, error, policy, by=by, chance=chance)
            return fail(job, by=by, error=error)
        case Snoozed(after):
            return snooze(job, by=by, delay=max(after, MIN_COOL_DOWN))
        case Throttled(after, cool_queue, drain):
            cools = cool_down_steps(policy.cool_down, chance) if cool_queue else ()
            wait = max(after, MIN_COOL_DOWN)
            return throttle(job, by=by, delay=wait, cools=cools, drains=drain)
        case Interrupted() | CutOff():
            return _given_back(job, outcome, by=by)
        case Missing() | Misfit():
            return _missed(job, outcome, policy, by=by, now=now)
        case Cancelled(cause):
            return cancel(job, by=by, error=cause)
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
        return fail(job, by=by, error=error)
    delay = _backoff(job, policy, chance) if after is None else after
    return retry(job, by=by, error=error, delay=delay)


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
        return fail(job, by=by, error=quarantine, lost=lost)
    if job.on_lost == "fail":
        return fail(job, by=by, error=error, lost=lost)
    return retry(
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
            return fail(job, by=by, error=_MAY_NOT_REPEAT, lost=job.lost)
        return release(job, by=by, started=outcome.started)
    # Without cost, but as suspect: it may be the one that cancels its neighbours.
    error, lost = outcome.error, job.lost + 1
    if job.solo:
        message = f"{error.message}; lost {lost} times in a row, the last time running alone"
        return fail(job, by=by, error=AttemptError("Quarantined", message), lost=lost)
    if job.on_lost == "fail":
        return fail(job, by=by, error=error, lost=lost)
    back = release(job, by=by)
    return msgspec.structs.replace(back, error=error, lost=lost, solo=lost >= SOLO_AFTER)


def missed_wait(missed_at: datetime | None, now: datetime) -> timedelta:
    """Return the wait of a job that a worker could not run: a quarter of the time since the first
    miss, at least 15 seconds, at most ten minutes.
    """
    since = timedelta(0) if missed_at is None else now - missed_at
    return min(max(since / 4, _SHORTEST_WAIT), _LONGEST_WAIT)


def _missed(
    job: ClaimedJob, outcome: Missing | Misfit, policy: Policy, *, by: str, now: datetime
) -> Transition:
    """Give the job back at no cost, or fail it if waiting is of no use."""
    error, since = outcome.error, job.missed_at
    patience, hopeless = policy.missing_for, policy.missing_task == "fail"
    if isinstance(outcome, Misfit):
        patience, hopeless = policy.misfit_for, hopeless or outcome.hopeless
    if hopeless or (since is not None and now - since >= patience):
        return fail(job, by=by, error=error)
    kind = "Misfit" if isinstance(outcome, Misfit) else error.kind.rpartition(".")[2]
    why = AttemptError(error.kind, f"{kind}: {error.message}"[:_WHY])
    delay = max(missed_wait(since, now), outcome.behind)
    return release(job, by=by, delay=delay, missed=why, started=False)


def _backoff(job: ClaimedJob, policy: Policy, chance: float) -> timedelta:
    return (job.backoff or policy.backoff).delay(job.tries, chance)


# --- the edges ---


def succeed(
    job: ClaimedJob,
    *,
    by: str,
    result: bytes | None,
    keep: bool = True,
    then: tuple[NewJob, ...] = (),
    flows: tuple[NewFlow, ...] = (),
) -> Transition:
    """Return running → succeeded, and the jobs and flows that the handler added."""
    return Transition(
        Verb.SUCCEED,
        job.claim,
        by,
        result=result,
        if_cancelled=None,
        keep=keep,
        then=then,
        flows=flows,
    )


def retry(
    job: ClaimedJob,
    *,
    by: str,
    error: AttemptError,
    delay: timedelta,
    lost: int = 0,
    solo: bool = False,
    refund: bool = False,
) -> Transition:
    """Return running → waiting with its error; the attempt is spent unless ``refund`` gives it
    back.
    """
    return Transition(
        Verb.RETRY,
        job.claim,
        by,
        delay=delay,
        refund=refund,
        error=error,
        lost=lost,
        solo=solo,
    )


def snooze(job: ClaimedJob, *, by: str, delay: timedelta) -> Transition:
    """Return running → waiting without cost: the handler asked for time.

    Here and below the suspicion marks stay as they were: only a success or an ordinary failure
    shows that a run does not kill its worker.
    """
    return Transition(
        Verb.SNOOZE, job.claim, by, delay=delay, refund=True, lost=job.lost, solo=job.solo
    )


def throttle(
    job: ClaimedJob,
    *,
    by: str,
    delay: timedelta,
    cools: tuple[timedelta, ...] = (),
    drains: bool = False,
) -> Transition:
    """Return running → waiting without cost: another service answered "not now"."""
    return Transition(
        Verb.THROTTLE,
        job.claim,
        by,
        delay=delay,
        refund=True,
        lost=job.lost,
        solo=job.solo,
        cools=cools,
        drains=drains,
    )


def release(
    job: ClaimedJob,
    *,
    by: str,
    delay: timedelta = _NOW,
    missed: AttemptError | None = None,
    started: bool = True,
) -> Transition:
    """Return running → waiting without cost: this worker will not run it, or cannot (``missed``
    says why).

    ``started``: whether its handler was entered here.
    """
    return Transition(
        Verb.RELEASE,
        job.claim,
        by,
        delay=delay,
        refund=True,
        lost=job.lost,
        solo=job.solo,
        error=missed,
        missed=missed is not None,
        started=started,
    )


def fail(job: ClaimedJob, *, by: str, error: AttemptError, lost: int = 0) -> Transition:
    """Return running → failed. No worker runs it again until an operator requeues it."""
    return Transition(Verb.FAIL, job.claim, by, error=error, lost=lost)


def cancel(job: ClaimedJob, *, by: str, error: AttemptError | None = None) -> Transition:
    """Return running → cancelled: the handler gave way to a request."""
    return Transition(Verb.CANCEL, job.claim, by, error=error, if_cancelled=None)
