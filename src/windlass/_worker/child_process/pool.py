"""The warm pool behind ``run_in="process"``: one job per child at a time, one child per slot."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

from windlass._core.flows.flow import Addition
from windlass._core.job import outcome as core
from windlass._core.job.control import GiveUp, Retry, Snooze, Throttled
from windlass._core.job.job import ClaimedJob
from windlass._core.job.outcome import Outcome
from windlass._core.values.payload import decode_any
from windlass._settings.settings import Settings
from windlass._tasks.app_location import AppLocation
from windlass._tasks.context import ContextHost
from windlass._tasks.task import Task
from windlass._worker.child_process.process import ChildProcess
from windlass._worker.child_process.protocol import Hello, levels
from windlass._worker.child_process.warm_pool import Lent, ReuseLimits, WarmPool
from windlass._worker.run.arguments import ReadPage
from windlass._worker.run.log_store import LogCollector, level_of
from windlass.errors import ChildDied, ChildError, ChildNotStarted, ConfigError

__all__ = ["AssignedChild", "ChildPool", "outcome_of_error", "reuse_limits", "unwrap_outcome"]


def reuse_limits(settings: Settings) -> ReuseLimits:
    """Return when processes of an app are replaced."""
    return ReuseLimits(max_jobs=settings.child_max_jobs, max_megabytes=settings.child_max_megabytes)


class ChildPool:
    """The children of one worker."""

    def __init__(
        self,
        locate: Callable[[], AppLocation],
        settings: Settings,
        host: ContextHost,
        task_named: Callable[[str], Task[..., Any]],
        lines: LogCollector,
        *,
        read: ReadPage,
    ) -> None:
        """Make a pool; no child runs before the first job, or `warm`. ``task_named`` finds the
        tasks of their calls; ``lines`` stores the log lines of its runs, ``read`` reads results.
        """
        self._read = read
        self._lines = lines
        self._locate = locate
        self._settings = settings
        self._host = host
        self._task_named = task_named
        self._pool = WarmPool("a child process", self._child, reuse_limits(settings))

    def warm(self) -> None:
        """Start one now, so that the first job need not wait for the imports."""
        self._pool.warm()

    @asynccontextmanager
    async def seat(self) -> AsyncIterator[AssignedChild]:
        """Yield a child for one run."""
        async with self._pool.lend() as lent:
            yield AssignedChild(lent)

    async def leave(self) -> None:
        """Let all of them end in order."""
        await self._pool.leave()

    def close(self) -> None:
        """End all of them at once."""
        self._pool.close()

    def _child(self) -> ChildProcess:
        settings = self._settings
        try:
            address = self._locate()
        except ConfigError as error:  # a task was defined after the worker had started
            raise ChildNotStarted(str(error)) from None
        hello = Hello(
            address,
            levels(),
            settings.result_limit,
            settings.error_limit,
            level_of(settings.stored_logs),
        )
        limit = settings.child_memory_limit
        return ChildProcess(
            hello, self._host, self._task_named, limit, self._lines, read=self._read
        )


class AssignedChild:
    """A child for one run."""

    def __init__(self, lent: Lent[ChildProcess]) -> None:
        """Made by `ChildPool.seat`."""
        self._lent = lent

    async def run(self, job: ClaimedJob) -> Outcome:
        """Run ``job`` in the child."""
        return await (await self._lent.usable()).run(job)

    async def value(self, job: ClaimedJob, add: Callable[[Sequence[Addition]], None]) -> Any:
        """Return the same for middleware: what was returned, or an exception that says what
        happened. ``add`` gets what the handler added.
        """
        outcome = await self.run(job)
        if isinstance(outcome, core.Succeeded) and (outcome.then or outcome.flows):
            add((*outcome.then, *outcome.flows))
        return unwrap_outcome(outcome)


def unwrap_outcome(outcome: Outcome) -> Any:
    """Return an outcome as middleware knows it: a value, or an exception that carries
    the outcome.
    """
    error: Exception
    match outcome:
        case core.Succeeded(result):
            return decode_any(result)
        case core.Snoozed(after):
            error = Snooze(after)
        case core.Throttled(after, cool_queue, drain):
            error = Throttled(after, cool_queue=cool_queue, drain=drain)
        case core.GaveUp(told):
            error = GiveUp(told.message)
        case core.Raised(told, after) if told.kind == "windlass.Retry":
            error = Retry(told.message, after=after)
        case core.Lost(told):
            error = ChildDied(told.kind, told.message)
        case core.Raised(told) | core.Crashed(told) | core.Missing(told) | core.Misfit(told):
            error = ChildError(told.kind, told.message)
        case _:
            error = ChildError(type(outcome).__name__, "")
    vars(error)["outcome"] = outcome
    raise error


def outcome_of_error(error: Exception) -> Outcome | None:
    """Return the outcome of a child process, if ``error`` is the form in which middleware saw it
    and let it pass.
    """
    kept = vars(error).get("outcome")
    return kept if isinstance(kept, core.Outcome) else None
