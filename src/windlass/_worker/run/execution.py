"""One run of a job in this process: its state, and what is handed on when it has ended."""

from __future__ import annotations

import asyncio
import inspect
from datetime import timedelta
from enum import IntEnum
from typing import Any, Protocol

import msgspec

from windlass._core.job.job import Claim, ClaimedJob, Progress
from windlass._core.job.outcome import Outcome, Succeeded
from windlass._core.values.metadata import Metadata
from windlass._tasks.context import CancelToken
from windlass._tasks.options import first_set
from windlass._worker.child_process.warm_pool import ReuseLimits
from windlass._worker.run.threads import Return
from windlass.errors import JobTimeout

__all__ = [
    "ActiveRuns",
    "EndedRuns",
    "Execution",
    "OwnTask",
    "RunEnded",
    "RunLimits",
    "StopCause",
    "has_begun",
    "timed_out",
]


class RunLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of runs: time, memory, and size of what they store."""

    result_limit: int
    error_limit: int
    timeout: timedelta | None = None
    """The app's."""
    memory_limit: int | None = None
    """MiB at which a run in another process is ended."""
    reuse: ReuseLimits = ReuseLimits()

    def time_of(self, job: ClaimedJob, own: timedelta | None) -> timedelta | None:
        """Return the time limit of a run: the job's, then the task's ``own``, then the app's."""
        limit = first_set(job.timeout, own, self.timeout)
        return limit or None  # no time at all says: no limit


class StopCause(IntEnum):
    """Why a run was asked to end. The higher reason wins."""

    CANCEL = 1
    """A stored request."""
    INTERRUPT = 2
    """The worker stops."""
    LOST = 3
    """The worker was declared dead: the claim is another worker's, or soon will be."""


class Execution(CancelToken, kw_only=True):
    """One execution in this process. It is its own cancel token: one object less per job."""

    job: ClaimedJob
    why: StopCause | None = None
    entered: bool = True
    """False while it waits for a child process, before the handler is entered there."""
    on_loop: bool = False
    """Cancelling the body reaches what runs: a plain function gave back something to await, there
    is middleware around it, or it runs in a child process."""
    detached: asyncio.Future[Return] | None = None
    """A thread that outlived its timeout: it keeps the slot until it ends."""

    def stop(self, why: StopCause) -> bool:
        """Ask it to end. False: it was asked already, and for as good a reason."""
        self.set()  # every time: a thread that makes its own event at this moment hears the next
        if self.why is not None and self.why >= why:
            return False
        self.why = why
        return True

    def take(self, job: ClaimedJob) -> None:
        """Run the job with other arguments: the results that it waited for are among them."""
        self.job = job

    def move(self, *, on_loop: bool) -> None:
        """Note whether cancelling the body reaches what runs now."""
        self.on_loop = on_loop

    def enter(self, *, entered: bool) -> None:
        """Note whether the handler has been entered."""
        self.entered = entered

    def take_metadata(self, metadata: Metadata) -> None:
        """Add the facts that its handler has noted in a child process."""
        self.metadata = {**(self.metadata or {}), **metadata}

    def with_added(self, outcome: Outcome) -> Outcome:
        """Return the outcome with all that was added to a success. The run is closed."""
        added = self.take_added()
        if type(outcome) is not Succeeded:  # one that is committed already: its jobs are, too
            return outcome
        return outcome.adding(added)

    def detach(self, thread: asyncio.Future[Return]) -> None:
        """Ask it to end, and wait no longer for its thread."""
        self.set()
        self.detached = thread


ActiveRuns = dict[Claim, Execution]
"""The runs of one worker, by claim. The runner changes it, others look."""


class RunEnded(msgspec.Struct, frozen=True):
    """A run that has ended, on its way to be stored."""

    job: ClaimedJob
    outcome: Outcome
    progress: Progress | None = None
    """Its last report, if the store may not have it yet."""
    metadata: Metadata | None = None
    """The facts that its handler noted."""


class EndedRuns(Protocol):
    """Takes runs that have ended: the finisher, in a worker."""

    def add(self, ended: RunEnded, /) -> None:
        """Take one. Called once for every started run."""
        ...


class OwnTask:
    """The task that a worker runs in: whether it is being cancelled, and what that means."""

    def __init__(self, *, obeys_cancel: bool) -> None:
        """``obeys_cancel``: cancelling the worker is an order to leave at once."""
        self.obeys_cancel: bool = obeys_cancel
        self._task: asyncio.Task[Any] | None = None

    def enter(self) -> None:
        """Take the current task for the worker's own."""
        self._task = asyncio.current_task()

    @property
    def cancelled(self) -> bool:
        """Whether it is being cancelled."""
        return self._task is not None and self._task.cancelling() > 0


def has_begun(body: asyncio.Task[None]) -> bool:
    """Tell whether the task of a run has taken its first step."""
    coroutine = body.get_coro()
    return not inspect.iscoroutine(coroutine) or (
        inspect.getcoroutinestate(coroutine) != inspect.CORO_CREATED
    )


def timed_out(limit: timedelta) -> JobTimeout:
    """Return the error of a run that exceeded its time limit."""
    return JobTimeout(f"ran longer than its timeout of {limit.total_seconds():g} s")
