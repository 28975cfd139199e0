"""What becomes of a running job: one function per edge, each returning a small value."""

from __future__ import annotations

from datetime import timedelta

import msgspec

from windlass._core.job.job import AttemptError, Claim, ClaimedJob, NewJob
from windlass._core.job.state import FINISHING, State, Verb

__all__ = [
    "Transition",
    "cancel",
    "fail",
    "release",
    "retry",
    "snooze",
    "succeed",
    "throttle",
]

_NOW = timedelta(0)


class Transition(msgspec.Struct, frozen=True):
    """A fenced write that ends one claim. Times are durations from the store's own now."""

    verb: Verb
    claim: Claim
    by: str
    """Who ends it: the worker's id, or the reaper's. Tells a repeat from a refusal."""
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
    """What happens instead when the row carries a cancel request; None: nothing changes.

    Success wins over a cancel request, every other outcome gives way to it. The store decides
    in the write itself, because only there the flag is known.
    """
    keep: bool = True
    """False deletes the row instead of keeping it: retention zero."""
    cools: tuple[timedelta, ...] = ()
    """THROTTLE: the queue cools down for so long, by its number of cool-downs before."""
    drains: bool = False
    """THROTTLE: the rates this job draws on have nothing left."""
    then: NewJob | None = None
    """A job that is inserted in the same transaction, if ``verb`` itself takes effect."""

    @property
    def state(self) -> State:
        """Where the verb leads."""
        return FINISHING[self.verb]


def succeed(job: ClaimedJob, *, by: str, result: bytes | None, keep: bool = True) -> Transition:
    """running → succeeded."""
    return Transition(Verb.SUCCEED, job.claim, by, result=result, if_cancelled=None, keep=keep)


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
    """running → waiting with its error; the attempt is spent unless ``refund`` gives it back."""
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
    """running → waiting without cost: the handler asked for time.

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
    """running → waiting without cost: somebody upstream said "not now"."""
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
    """running → waiting without cost: this worker will not run it, or cannot (``missed`` says why).

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
    """running → failed. Nothing runs it again until someone requeues it."""
    return Transition(Verb.FAIL, job.claim, by, error=error, lost=lost)


def cancel(job: ClaimedJob, *, by: str, error: AttemptError | None = None) -> Transition:
    """running → cancelled: the handler gave way to a request."""
    return Transition(Verb.CANCEL, job.claim, by, error=error, if_cancelled=None)
