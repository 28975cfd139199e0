"""Processes that are kept warm: one job each at a time, at most one for each slot."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from types import TracebackType
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from windlass.errors import ChildNotStarted

__all__ = ["Lent", "PooledProcess", "ReuseLimits", "WarmPool"]

log = logging.getLogger("windlass")

_IDLE = 300.0
"""A process that was idle for this long is ended, except the last one."""


class PooledProcess(Protocol):
    """A process that runs one job at a time."""

    @property
    def usable(self) -> bool:
        """Whether it can be given a job."""
        ...

    @property
    def jobs(self) -> int:
        """How many it was given."""
        ...

    @property
    def megabytes(self) -> float:
        """The memory it used after the last run."""
        ...

    @property
    def death(self) -> asyncio.Future[Any]:
        """Done once it has ended."""
        ...

    async def start(self) -> None:
        """Bring it up to where it can be given a job; ChildNotStarted."""
        ...

    def leave(self) -> None:
        """Let it end in order."""
        ...

    def end_now(self) -> None:
        """End it at once."""
        ...

    def close(self) -> None:
        """End it, and wait for it."""
        ...


P = TypeVar("P", bound=PooledProcess)


class ReuseLimits(msgspec.Struct, frozen=True, kw_only=True):
    """When a process is replaced after a job; None: never."""

    max_jobs: int | None = None
    max_megabytes: int | None = None


class WarmPool(Generic[P]):
    """Starts processes when they are needed, keeps them warm, and lets go of those worn out."""

    def __init__(self, what: str, make: Callable[[], P], limits: ReuseLimits) -> None:
        """Make a pool; no process runs before the first job, or `warm`. ``what`` names one of them
        in log lines; ``make`` makes one that is not started.
        """
        self._what = what
        self._make = make
        self._limits = limits
        self._all: set[P] = set()
        self._idle: list[P] = []
        self._starting: set[asyncio.Task[P]] = set()
        self._spare: asyncio.Task[P] | None = None

    def warm(self) -> None:
        """Start one now, so that the first job need not wait for it."""
        if not self._all and self._spare is None:
            self._spare = self._begin()
            self._spare.add_done_callback(self._spare_ready)

    def lend(self) -> Lent[P]:
        """Lend a process for as long as a block lasts."""
        return Lent(self)

    async def take(self) -> P:
        """Return a process that waits for a job."""
        while self._idle:
            process = self._idle.pop()
            if process.usable:
                return process
        starting = self._spare or self._begin()
        self._spare = None
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(self._keep)  # another job will need it
            raise

    def give(self, process: P) -> None:
        """Return a process after its job: the next job may have it, unless it is worn out."""
        if not process.usable:
            return
        most, large = self._limits.max_jobs, self._limits.max_megabytes
        if (most is not None and process.jobs >= most) or (
            large is not None and process.megabytes > large
        ):
            log.debug(
                "%s is replaced: %d jobs, %.0f MiB", self._what, process.jobs, process.megabytes
            )
            process.leave()
            return
        self._idle.append(process)
        asyncio.get_running_loop().call_later(_IDLE, self._let_go, process, process.jobs)

    async def leave(self) -> None:
        """Let all of them end in order."""
        for process in self._all:
            process.leave()
        deaths = [process.death for process in self._all]
        if deaths:
            await asyncio.wait(deaths)

    def close(self) -> None:
        """End all of them at once."""
        for starting in self._starting:
            starting.cancel()
        for process in list(self._all):
            process.close()
        self._all.clear()
        self._idle.clear()

    def _begin(self) -> asyncio.Task[P]:
        starting = asyncio.get_running_loop().create_task(self._start())
        self._starting.add(starting)
        starting.add_done_callback(self._starting.discard)
        return starting

    async def _start(self) -> P:
        process = self._make()
        self._all.add(process)
        process.death.add_done_callback(functools.partial(self._gone, process))
        try:
            await process.start()
        except ChildNotStarted as error:
            process.end_now()
            log.error("%s could not start, its job waits: %s", self._what, error)  # noqa: TRY400
            raise
        return process

    def _spare_ready(self, starting: asyncio.Task[P]) -> None:
        if starting is self._spare:  # else a job has waited for it
            self._spare = None
            self._keep(starting)

    def _keep(self, starting: asyncio.Task[P]) -> None:
        if not starting.cancelled() and starting.exception() is None:
            self.give(starting.result())

    def _gone(self, process: P, _: object) -> None:
        self._all.discard(process)
        if process in self._idle:
            self._idle.remove(process)

    def _let_go(self, process: P, jobs: int) -> None:
        if process in self._idle and process.jobs == jobs and len(self._all) > 1:
            self._idle.remove(process)
            process.leave()


class Lent(Generic[P]):
    """A process for one run, and another one if that dies and the middleware tries again."""

    def __init__(self, pool: WarmPool[P]) -> None:
        """Made by `WarmPool.lend`."""
        self._pool = pool
        self._process: P | None = None

    async def __aenter__(self) -> Lent[P]:
        """Wait for a process: what that takes is not the run's own time."""
        self._process = await self._pool.take()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Give it back."""
        if self._process is not None:
            self._pool.give(self._process)

    async def usable(self) -> P:
        """Return the process, or another one if it has ended."""
        if self._process is None or not self._process.usable:
            self._process = await self._pool.take()
        return self._process
