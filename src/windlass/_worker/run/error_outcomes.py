"""Exceptions of handlers → Outcomes. Knows no retry rule."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from datetime import timedelta

from windlass._core.job import outcome as core
from windlass._core.job.control import GiveUp, Retry, Snooze, Throttled
from windlass._core.job.job import AttemptError
from windlass._core.job.outcome import Outcome
from windlass._core.values.payload import is_json
from windlass._core.values.redaction import secret_names, secret_values
from windlass._tasks.task import TaskRegistry
from windlass._worker.child_process.pool import outcome_of_error
from windlass._worker.run.error_text import attempt_error_of
from windlass._worker.run.exception_groups import deciding_error, group_forbids_retry
from windlass._worker.run.execution import Execution, StopCause
from windlass.errors import (
    ChildNotStarted,
    DefinitionError,
    PayloadError,
    ProgramFailed,
    ResultsUnavailable,
)

__all__ = ["FARTHEST", "ErrorOutcomes", "UnfitArguments", "stopped_outcome"]

FARTHEST = timedelta(days=3650)
"""A handler that asks for more time is asked again then; beyond the calendar no store could keep
it."""
_NO_TIME = timedelta(0)
_CUT_OFF = AttemptError("RunCancelled", "other code on the worker's event loop cancelled its task")


class UnfitArguments(Exception):
    """The stored arguments do not fit the function; the cause says why."""


def stopped_outcome(why: StopCause, *, started: bool = True) -> Outcome:
    """Return what the end of a run means that was asked for."""
    if why is StopCause.CANCEL:
        return core.Cancelled(AttemptError("Cancelled", "cancelled on request"))
    return core.Interrupted(started)


class ErrorOutcomes:
    """Says what a run comes to that ended in an exception."""

    def __init__(self, tasks: TaskRegistry, error_limit: int, leaving: Callable[[], bool]) -> None:
        """``leaving``: whether this worker is itself being cancelled; then a cancelled run is
        released.
        """
        self._tasks = tasks
        self._error_limit = error_limit
        self._leaving = leaving

    def judge(self, run: Execution, error: BaseException) -> Outcome:
        """Turn what a run raised into its outcome."""
        try:
            return self._outcome_of(run, error)
        except BaseException as worse:  # noqa: BLE001 -- an unreported run would hold its slot
            return self._outcome_of(run, worse)

    def describe(self, run: Execution, error: BaseException, *, trace: bool = True) -> AttemptError:
        """Describe an error without the secrets that the handler was given: many people read it."""
        values = secret_values(run.job.payload, secret_names(run.job.tags))
        return attempt_error_of(error, limit=self._error_limit, secrets=values, trace=trace)

    def _outcome_of(self, run: Execution, error: BaseException) -> Outcome:
        if run.why is not None and run.why is not StopCause.CANCEL:
            return stopped_outcome(run.why, started=run.entered)
        match deciding_error(error, functools.partial(self._bars, run)):
            case Exception() as said if (kept := outcome_of_error(said)) is not None:
                return kept
            case UnfitArguments(__cause__=Exception() as cause):
                told = self.describe(run, cause, trace=not isinstance(cause, PayloadError))
                hopeless = isinstance(cause, DefinitionError) or not is_json(run.job.payload)
                return core.GaveUp(told) if hopeless else core.Misfit(told)
            case asyncio.CancelledError():
                return self._cancelled(run, error)
            case ResultsUnavailable() | ChildNotStarted() as said:
                return self._not_now(run, error, said)
            case Retry(after=wish):
                after = None if wish is None else min(wish, FARTHEST)
                return core.Raised(self.describe(run, error), after)
            case Snooze(after=wish):
                return core.Snoozed(min(wish, FARTHEST))
            case Throttled() as said:
                after = min(said.after or _NO_TIME, FARTHEST)
                return core.Throttled(after, said.cool_queue, said.drain, said.odd)
            case ProgramFailed(retry=retry, after=wish):
                after = None if wish is None else min(wish, FARTHEST)
                barred = not retry or self._bars(run, error)
                return core.Raised(self.describe(run, error, trace=False), after, barred=barred)
            case GiveUp():
                return core.GaveUp(self.describe(run, error))
            case Exception():
                return self._raised(run, error)
            case _:
                return core.Crashed(self.describe(run, error))

    def _not_now(self, run: Execution, error: BaseException, said: Exception) -> Outcome:
        """Return how a run ends that this worker cannot carry out at this time."""
        if isinstance(said, ResultsUnavailable):
            return core.Interrupted()
        return core.Missing(self.describe(run, error))

    def _cancelled(self, run: Execution, error: BaseException) -> Outcome:
        if run.why is not None:
            return stopped_outcome(run.why)
        body = asyncio.current_task()
        if body is None or not body.cancelling():
            return self._raised(run, error)  # of something that the handler awaited
        # By code that had no order to: one of its neighbours, perhaps.
        return core.Interrupted() if self._leaving() else core.CutOff(_CUT_OFF)

    def _raised(self, run: Execution, error: BaseException) -> Outcome:
        """Look at the error's class here: what is stored of it, or sent to a worker, is text."""
        return core.Raised(self.describe(run, error), barred=self._bars(run, error))

    def _bars(self, run: Execution, error: BaseException) -> bool:
        """Return whether the task's lists rule out another attempt."""
        task = self._tasks.find(run.job.task)
        lists = None if task is None else (task.settings.retry_on, task.settings.give_up_on)
        return lists is not None and group_forbids_retry(error, *lists)
