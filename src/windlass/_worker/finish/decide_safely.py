"""What becomes of an ended run, whatever the rules themselves do: every run ends with a word."""

from __future__ import annotations

import logging
from collections.abc import Callable

from windlass._core.job.job import ClaimedJob
from windlass._core.job.outcome import (
    Crashed,
    GaveUp,
    Lost,
    Misfit,
    Missing,
    Outcome,
    Policy,
    Raised,
    decide,
)
from windlass._core.job.transition import Transition
from windlass._worker.run.error_text import attempt_error_of

__all__ = ["decide_safely"]

log = logging.getLogger("windlass")

_ERROR_LIMIT = 16 * 1024
_SAFE = Policy()


def decide_safely(
    job: ClaimedJob,
    outcome: Outcome,
    policy: Callable[[ClaimedJob], Policy],
    *,
    by: str,
    chance: Callable[[], float],
) -> Transition:
    """Decide by the rules of the job; rules that raise must not keep the job and its slot."""
    try:
        rules, drawn = policy(job), chance()
        return decide(job, outcome, rules, by=by, now=job.started_at, chance=drawn)
    except BaseException as error:
        log.exception(
            "the rules of task %s raised when job %s ended; correct them (its backoff, for "
            "example), then requeue the failed jobs",
            job.task,
            job.claim.job,
        )
        # What needs no rule means what it meant; what needs one cannot be retried without it.
        needs_a_rule = isinstance(outcome, Raised | Crashed | Missing | Misfit | Lost)
        if needs_a_rule:
            outcome = GaveUp(attempt_error_of(error, limit=_ERROR_LIMIT))
        return decide(job, outcome, _SAFE, by=by, now=job.started_at, chance=0.5)
