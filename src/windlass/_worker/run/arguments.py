"""Results of other jobs as arguments: read before a run, all that ask at one moment together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from windlass._core.flows.pending import Wanted, fill, wanted_in
from windlass._core.flows.results import READER, Outcome
from windlass._core.job.control import GiveUp
from windlass._core.job.job import ClaimedJob, FlowId, JobId
from windlass._core.job.state import State
from windlass._core.values.payload import decode_any
from windlass._storage.protocol.flows import Member
from windlass._storage.protocol.jobs import Settled
from windlass._storage.protocol.storage import Storage
from windlass._storage.shared.errors import is_retryable
from windlass._tasks.task import Task
from windlass._worker.run.error_text import missing_results
from windlass._worker.run.threads import wait_on_loop
from windlass.errors import PayloadError, ResultsUnavailable

__all__ = ["Filled", "FlowArguments", "ReadPage", "StoredResults"]

_SLICE = 500
"""Jobs in one question to the store."""

ReadPage = Callable[[FlowId, int, int, int], Awaitable[Sequence[Member]]]
"""Reads jobs of a part: the flow, the part's number, after which one, at most how many."""


class StoredResults:
    """Reads results for `Results`, on this event loop and for threads beside it."""

    def __init__(self, read: ReadPage) -> None:
        """Make it on the worker's event loop, where ``read`` asks the store."""
        self._read = read
        self._loop = asyncio.get_running_loop()

    async def page(self, flow: FlowId, part: int, *, after: int, limit: int) -> Sequence[Outcome]:
        work = self._asked(flow, part, after, limit)
        if asyncio.get_running_loop() is self._loop:
            return await work
        # A plain function may run an event loop of its own on its thread.
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def page_here(self, flow: FlowId, part: int, *, after: int, limit: int) -> Sequence[Outcome]:
        work = self._asked(flow, part, after, limit)
        return wait_on_loop(work, self._loop, "async for value in results")

    async def _asked(self, flow: FlowId, part: int, after: int, limit: int) -> Sequence[Member]:
        try:
            return await self._read(flow, part, after, limit)
        except ResultsUnavailable:
            raise
        except Exception as error:
            if is_retryable(error):
                raise ResultsUnavailable(str(error)) from error
            raise


class Filled(NamedTuple):
    """A job with the results that it takes."""

    job: ClaimedJob
    missing: Sequence[Wanted]
    """Results of jobs that did not succeed. They are None."""

    def check(self, task: Task[..., Any] | None) -> None:
        """Give the job up if it cannot do without a missing result: no attempt would have it."""
        if task is None or not self.missing:
            return
        try:
            task.codec.decode(self.job.payload)
        except PayloadError as error:
            raise GiveUp(missing_results(self.missing)) from error


class FlowArguments:
    """Fills in the arguments of members that take results of their flow."""

    def __init__(self, storage: Storage) -> None:
        self._jobs = storage.jobs
        self._storage = storage
        self._asked: dict[JobId, asyncio.Future[Settled | None]] = {}
        self._asking: asyncio.Task[None] | None = None
        """Kept: an event loop keeps no task alive."""

    async def fill(self, job: ClaimedJob) -> Filled:
        """Return the job with its results in place. `Results` among them read through this store
        from now on, in the current context.
        """
        wanted = wanted_in(job.payload)
        READER.set(StoredResults(self.read))
        found = await asyncio.gather(*map(self._value, wanted))
        missing = [one for one, (_, there) in zip(wanted, found, strict=True) if not there]
        payload = fill(job.payload, [value for value, _ in found])
        return Filled(msgspec.structs.replace(job, payload=payload), missing)

    async def read(self, flow: FlowId, part: int, after: int, limit: int) -> Sequence[Member]:
        """Read jobs of a part."""
        return await self._storage.flows.members(flow, part, after=after, limit=limit)

    async def _value(self, wanted: Wanted) -> tuple[object, bool]:
        """Return the value for a place, and whether there is one: a job that waits for the end of
        another alone gets None if that one did not succeed.
        """
        if wanted.kind == "part":
            flow, parts = wanted.parts()
            return {"flow": flow, "parts": parts}, True
        settled = await self._settled(JobId(wanted.source))
        if settled is None or settled.state is not State.SUCCEEDED:
            return None, False
        return decode_any(settled.result), True

    async def _settled(self, job: JobId) -> Settled | None:
        future = self._asked.get(job)
        if future is None:
            loop = asyncio.get_running_loop()
            if not self._asked:  # after all that ask at this moment
                loop.call_soon(self._begin)
            future = self._asked[job] = loop.create_future()
        return await asyncio.shield(future)

    def _begin(self) -> None:
        self._asking = asyncio.create_task(self._ask())

    async def _ask(self) -> None:
        asked, self._asked = self._asked, {}
        ids = list(asked)
        for start in range(0, len(ids), _SLICE):
            some = ids[start : start + _SLICE]
            try:
                found = {one.id: one for one in await self._jobs.settled(some)}
            except Exception as error:  # noqa: BLE001 -- delivered to those who wait
                for job in ids[start:]:
                    asked[job].set_exception(error)
                return
            for job in some:
                asked[job].set_result(found.get(job))
