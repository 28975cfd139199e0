"""The programs of one worker: a pool of warm processes for each, or one process for each run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from windlass._tasks.options import Program
from windlass._worker.child_process.warm_pool import Lent, WarmPool
from windlass._worker.program.group_guard import GroupGuard
from windlass._worker.program.process import ProgramProcess
from windlass._worker.program.protocol import ProgramCall
from windlass._worker.program.start_backoff import StartBackoff
from windlass._worker.run.execution import RunLimits
from windlass.errors import ChildNotStarted

__all__ = ["ProgramPools"]

log = logging.getLogger("windlass")


class ProgramPools:
    """Lends processes of programs. A pool is made for a program's first job."""

    def __init__(self, limits: RunLimits) -> None:
        """Make it; no process runs before the first job."""
        self._limits = limits
        self._guard = GroupGuard()
        self._pools: dict[int, _ProgramPool] = {}
        self._single: set[ProgramProcess] = set()

    def lend(self, program: Program) -> Lent[ProgramProcess]:
        """Lend a warm process of ``program`` for as long as a block lasts."""
        return self._pool_of(program).pool.lend()

    async def run_warm(self, lent: Lent[ProgramProcess], call: ProgramCall) -> Any:
        """Run a job in the lent process, or in another one if that has ended."""
        return await (await lent.usable()).value(call)

    async def run_once(
        self, program: Program, call: ProgramCall, started: Callable[[], None]
    ) -> Any:
        """Run a job in a process that runs no other one. Call ``started`` when it runs.

        It may do its work before it reads a request. So it starts here, once for each call, and
        is never replaced.
        """
        process = self._pool_of(program).make()
        self._single.add(process)
        process.death.add_done_callback(lambda _: self._single.discard(process))
        try:
            await process.start()
        except ChildNotStarted as error:
            log.error("%s could not start, its job waits: %s", program, error)  # noqa: TRY400
            raise
        started()
        return await process.value(call)

    async def leave(self) -> None:
        """Let the processes end in order."""
        for process in self._single:
            process.leave()
        deaths = [process.death for process in self._single]
        if deaths:
            await asyncio.wait(deaths)
        await asyncio.gather(*(each.pool.leave() for each in self._pools.values()))

    def close(self) -> None:
        """End all of them at once."""
        for process in list(self._single):
            process.close()
        self._single.clear()
        for each in self._pools.values():
            each.pool.close()
        self._guard.close()

    def _pool_of(self, program: Program) -> _ProgramPool:
        found = self._pools.get(id(program))
        if found is None:
            starts = StartBackoff()

            def make() -> ProgramProcess:
                starts.check()
                return ProgramProcess(program, self._limits, self._guard, starts)

            pool = WarmPool(str(program), make, self._limits.reuse)
            found = self._pools[id(program)] = _ProgramPool(program, make, pool)
        return found


class _ProgramPool(msgspec.Struct, frozen=True, eq=False):
    program: Program
    """Kept, so that its id stays its own."""
    make: Callable[[], ProgramProcess]
    pool: WarmPool[ProgramProcess]
