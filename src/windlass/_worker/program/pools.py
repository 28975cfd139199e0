"""The programs of one worker: a pool of processes for each."""

from __future__ import annotations

import asyncio

import msgspec

from windlass._tasks.options import Program
from windlass._worker.child_process.warm_pool import Lent, WarmPool
from windlass._worker.program.group_guard import GroupGuard
from windlass._worker.program.process import ProgramProcess
from windlass._worker.program.start_backoff import StartBackoff
from windlass._worker.run.execution import RunLimits

__all__ = ["ProgramPools"]


class ProgramPools:
    """Lends processes of programs. A pool is made for a program's first job."""

    def __init__(self, limits: RunLimits) -> None:
        """Make it; no process runs before the first job."""
        self._limits = limits
        self._guard = GroupGuard()
        self._pools: dict[int, _ProgramPool] = {}

    def lend(self, program: Program) -> Lent[ProgramProcess]:
        """Lend a process of ``program`` for as long as a block lasts."""
        found = self._pools.get(id(program))
        if found is None:
            found = _ProgramPool(program, self._pool(program))
            self._pools[id(program)] = found
        return found.pool.lend()

    async def leave(self) -> None:
        """Let the processes end in order."""
        await asyncio.gather(*(each.pool.leave() for each in self._pools.values()))

    def close(self) -> None:
        """End all of them at once."""
        for each in self._pools.values():
            each.pool.close()
        self._guard.close()

    def _pool(self, program: Program) -> WarmPool[ProgramProcess]:
        starts = StartBackoff()

        def make() -> ProgramProcess:
            starts.check()
            return ProgramProcess(program, self._limits, self._guard, starts)

        return WarmPool(str(program), make, self._limits.reuse)


class _ProgramPool(msgspec.Struct, frozen=True, eq=False):
    program: Program
    """Kept, so that its id stays its own."""
    pool: WarmPool[ProgramProcess]
