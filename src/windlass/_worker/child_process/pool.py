"""The warm pool behind ``run_in="process"``: one job per child at a time, one child per slot."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

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
from windlass._worker.run.log_store import LogCollector, level_of
from windlass.errors import ChildDied, ChildError, ChildNotStarted, ConfigError

__all__ = ["AssignedChild", "ChildPool", "outcome_of_error", "unwrap_outcome"]

log = logging.getLogger("windlass")

_IDLE = 300.0
"""A child that was idle for this long is ended, except the last one."""


class ChildPool:
    """Starts children when they are needed, keeps them warm, and lets go of those worn out."""

    def __init__(
        self,
        locate: Callable[[], AppLocation],
        settings: Settings,
        host: ContextHost,
        task_named: Callable[[str], Task[..., Any]],
        lines: LogCollector,
    ) -> None:
        """Make a pool; no child runs before the first job, or `warm`. ``task_named`` finds the
        tasks of their calls; ``lines`` stores the log lines of its runs.
        """
        self._lines = lines
        self._locate = locate
        self._settings = settings
        self._host = host
        self._task_named = task_named
        self._all: set[ChildProcess] = set()
        self._idle: list[ChildProcess] = []
        self._starting: set[asyncio.Task[ChildProcess]] = set()
        self._spare: asyncio.Task[ChildProcess] | None = None

    def warm(self) -> None:
        """Start one now, so that the first job need not wait for the imports."""
        if not self._all and self._spare is None:
            self._spare = self._begin()
            self._spare.add_done_callback(self._spare_ready)

    def seat(self) -> AssignedChild:
        """Yield a child for one run."""
        return AssignedChild(self)

    async def take(self) -> ChildProcess:
        """Return a child that waits for a job."""
        while self._idle:
            child = self._idle.pop()
            if child.usable:
                return child
        starting = self._spare or self._begin()
        self._spare = None
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(self._keep)  # another job will need it
            raise

    def give(self, child: ChildProcess) -> None:
        """Return a child after its job: the next job may have it, unless it is worn out."""
        if not child.usable:
            return
        most, large = self._settings.child_max_jobs, self._settings.child_max_megabytes
        if (most is not None and child.jobs >= most) or (
            large is not None and child.megabytes > large
        ):
            log.debug("a child process is replaced: %d jobs, %.0f MiB", child.jobs, child.megabytes)
            child.leave()
            return
        self._idle.append(child)
        loop = asyncio.get_running_loop()
        loop.call_later(_IDLE, self._let_go, child, child.jobs)

    async def leave(self) -> None:
        """Let all of them end in order."""
        for child in self._all:
            child.leave()
        deaths = [child.death for child in self._all]
        if deaths:
            await asyncio.wait(deaths)

    def close(self) -> None:
        """End all of them at once."""
        for starting in self._starting:
            starting.cancel()
        for child in list(self._all):
            child.close()
        self._all.clear()
        self._idle.clear()

    def _begin(self) -> asyncio.Task[ChildProcess]:
        starting = asyncio.get_running_loop().create_task(self._start())
        self._starting.add(starting)
        starting.add_done_callback(self._starting.discard)
        return starting

    async def _start(self) -> ChildProcess:
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
        child = ChildProcess(hello, self._host, self._task_named, limit, self._lines)
        self._all.add(child)
        child.death.add_done_callback(functools.partial(self._gone, child))
        try:
            await child.start()
        except ChildNotStarted as error:
            child.end_now()
            log.error("a child process could not start, its job waits: %s", error)  # noqa: TRY400
            raise
        return child

    def _spare_ready(self, starting: asyncio.Task[ChildProcess]) -> None:
        if starting is self._spare:  # else a job has waited for it
            self._spare = None
            self._keep(starting)

    def _keep(self, starting: asyncio.Task[ChildProcess]) -> None:
        if not starting.cancelled() and starting.exception() is None:
            self.give(starting.result())

    def _gone(self, child: ChildProcess, _: object) -> None:
        self._all.discard(child)
        if child in self._idle:
            self._idle.remove(child)

    def _let_go(self, child: ChildProcess, jobs: int) -> None:
        if child in self._idle and child.jobs == jobs and len(self._all) > 1:
            self._idle.remove(child)
            child.leave()


class AssignedChild:
    """A child for one run, and another one if that dies and the middleware tries again."""

    def __init__(self, children: ChildPool) -> None:
        """Made by `ChildPool.seat`."""
        self._children = children
        self._child: ChildProcess | None = None

    async def __aenter__(self) -> Self:
        """Wait for a child: what that takes is not the run's own time."""
        self._child = await self._children.take()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give it back."""
        if self._child is not None:
            self._children.give(self._child)

    async def run(self, job: ClaimedJob) -> Outcome:
        """Run ``job`` in the child."""
        if self._child is None or not self._child.usable:
            self._child = await self._children.take()
        return await self._child.run(job)

    async def value(self, job: ClaimedJob) -> Any:
        """Return the same for middleware: what was returned, or an exception that says what
        happened.
        """
        return unwrap_outcome(await self.run(job))


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
