"""The writer of the simulation: the same groups as `Writer`, on the event loop that submits."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from datetime import timedelta
from typing import Protocol, TypeVar

import apsw

from windlass._storage.sqlite.io.transactor import FailedOp, Transactor
from windlass._storage.sqlite.io.writer import (
    GROUP_OPS,
    AnsweredOp,
    Submit,
    Ticket,
    WriteQueue,
)
from windlass._storage.timings import Durations
from windlass.errors import StoreBusy

__all__ = ["InlineWriter", "SimulatedFaults"]

T = TypeVar("T")


class SimulatedFaults(Protocol):
    """Effects of the simulation around a group: take time, or fail.

    An error raised by ``before`` is the answer of a store that did nothing; one raised by ``after``
    hides the answer of a store that did everything.
    """

    async def before(self, op_count: int) -> None: ...

    async def after(self, op_count: int) -> None: ...


class InlineWriter:
    """Runs groups on the event loop that submits, everything submitted in one turn together."""

    def __init__(
        self,
        transactor: Transactor,
        timings: Durations | None = None,
        faults: SimulatedFaults | None = None,
    ) -> None:
        """Make a writer. ``timings`` counts how long ops take."""
        self._queue = WriteQueue(transactor, self._rouse, timings)
        self.submit: Submit = self._queue.submit
        self.transactor: Transactor = transactor
        self._faults = faults
        self._runner: asyncio.Task[None] | None = None

    def _rouse(self) -> None:
        if self._runner is None or self._runner.done():  # cancelled before its first step
            self._runner = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        """Run groups until nothing waits. The task starts in the loop's next turn."""
        try:
            while any(self._queue.lines):
                await self._turn()
        finally:
            self._runner = None

    async def _turn(self) -> None:
        if self._faults is None:
            self._queue.settle(self._now())
            await asyncio.sleep(0)
            return
        count = min(sum(map(len, self._queue.lines)), GROUP_OPS)
        try:
            await self._faults.before(count)
        except Exception as error:  # noqa: BLE001 -- planted for the submitters
            tickets: list[Ticket] = []
            for _ in self._queue.take(tickets, math.inf):
                pass
            self._queue.settle([(ticket, FailedOp(error)) for ticket in tickets])
            return
        pairs = self._now()
        try:
            await self._faults.after(len(pairs))
        except Exception as error:  # noqa: BLE001 -- planted for the submitters
            pairs = [(ticket, FailedOp(error)) for ticket, _ in pairs]
        self._queue.settle(pairs)

    def _now(self) -> list[AnsweredOp]:
        try:
            return self._queue.run_group(patience=0, seconds=math.inf)
        except StoreBusy as error:
            return [(ticket, FailedOp(error)) for ticket in self._queue.clear()]

    def run_here(self, op: Callable[[apsw.Connection, int], T]) -> T | None:  # noqa: ARG002
        """Run nothing: the simulation has one thread."""
        return None

    async def close(self, timeout: timedelta = timedelta(seconds=10)) -> None:
        """Write what waits, then close the connection."""
        self._queue.close()
        async with asyncio.timeout(timeout.total_seconds()):
            while self._runner is not None and not self._runner.done():
                await asyncio.wait([self._runner])
        self.transactor.close()
