"""A worker's turn: outcomes and the claim for their slots, asked for at once, in one transaction.

A worker with few slots ends a few jobs, claims a few, and waits for the disk each time. Together
they take one round trip and one sync. What is asked for within one step of the event loop goes out
together. What is asked for while a statement is under way goes out after it, as on any connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from windlass._storage.postgres.io.connection import Row
from windlass._storage.shared.errors import copy_error, is_retryable
from windlass._system.seams import monotonic

__all__ = ["Turns"]

_APART = 2
"""The number in the first row of an answer: nothing was done, because the halves must go apart."""
_APART_SECONDS = 1.0
"""How long the halves go apart after that."""

Args = Sequence[Any]
Fetch = Callable[[Args], Awaitable[list[Row]]]


class _Half(msgspec.Struct, frozen=True, eq=False):
    """One of the two, and the caller that waits for its rows."""

    args: Args
    future: asyncio.Future[list[Row]]
    fetch: Fetch
    """Carries it out alone."""

    async def go_alone(self) -> None:
        try:
            self.answer(await self.fetch(self.args))
        except Exception as error:  # noqa: BLE001 -- it is the caller's
            self.fail(error)

    def answer(self, rows: list[Row]) -> None:
        if not self.future.done():  # else its caller was cancelled
            self.future.set_result(rows)

    def fail(self, error: BaseException) -> None:
        if not self.future.done():
            self.future.set_exception(error)


class Turns:
    """Sends the two halves of a turn together where that is possible, and apart elsewhere."""

    def __init__(self, together: Callable[[Args, Args], Awaitable[list[Row]]]) -> None:
        """``together`` carries out both, and answers as ``end_and_claim`` in SQL does."""
        self._together = together
        self._ends: _Half | None = None
        self._claim: _Half | None = None
        self._task: asyncio.Task[None] | None = None
        self._apart_until = 0.0

    async def end(self, args: Args, alone: Fetch) -> list[Row]:
        """End claims; the rows are those of ``succeed`` in jobs.sql."""
        if self._ends is not None:
            return await alone(args)
        half = self._ends = _Half(args, asyncio.get_running_loop().create_future(), alone)
        self._start()
        return await half.future

    async def claim(self, args: Args, alone: Fetch) -> list[Row]:
        """Claim jobs; the rows are those of ``claim_jobs``."""
        if self._claim is not None:
            return await alone(args)
        half = self._claim = _Half(args, asyncio.get_running_loop().create_future(), alone)
        self._start()
        return await half.future

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._serve())

    async def _serve(self) -> None:
        while self._ends is not None or self._claim is not None:
            ends, claim = self._ends, self._claim
            self._ends = self._claim = None
            if claim is not None and claim.future.done():
                claim = None  # its caller is gone: no worker would run the jobs. Outcomes are kept.
            halves = [half for half in (ends, claim) if half is not None]
            try:
                if ends is None or claim is None or monotonic() < self._apart_until:
                    await asyncio.gather(*(half.go_alone() for half in halves))
                else:
                    await self._go_together(ends, claim)
            except BaseException:
                # Only a loop that ends comes here: no caller may wait for ever.
                for half in halves:
                    half.future.cancel()
                raise

    async def _go_together(self, ends: _Half, claim: _Half) -> None:
        try:
            first, *rows = await self._together(ends.args, claim.args)
        except Exception as error:  # noqa: BLE001 -- it is the callers'
            if is_retryable(error):  # the server is away, which each waits out in its way
                ends.fail(error)
                claim.fail(copy_error(error))
            else:  # one of them is refused: alone, each gets its own answer
                await asyncio.gather(ends.go_alone(), claim.go_alone())
            return
        if first["number"] == _APART:
            self._apart_until = monotonic() + _APART_SECONDS
            await asyncio.gather(ends.go_alone(), claim.go_alone())
            return
        words = first["extras"]
        half = len(words) // 2 if words is not None else 0
        verdicts, verbs = (words[:half], words[half:]) if words is not None else (None, None)
        opened = first["timeout"]
        # If this turn has claimed the only job that the ends made ready, nobody else is woken.
        frees = first["attempt"] == 1 and (
            opened is None or all(row["seq"] != opened for row in rows)
        )
        ends.answer([(first["due"], verdicts, verbs, frees)])
        claim.answer(rows)
