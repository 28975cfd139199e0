"""Results of other jobs as arguments: read before a run, all that ask at one moment together."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from windlass._core.flows.pending import Wanted, fill, wanted_in
from windlass._core.flows.results import READER, Outcome
from windlass._core.job.job import ClaimedJob, FlowId, JobId
from windlass._core.job.state import State
from windlass._core.values.payload import decode_any
from windlass._storage.protocol.jobs import Settled
from windlass._storage.protocol.storage import Storage

__all__ = ["FlowArguments", "StoredResults"]

_SLICE = 500
"""Jobs in one question to the store."""


class StoredResults:
    """Reads results for `Results`, on this event loop and for threads beside it."""

    def __init__(self, storage: Storage) -> None:
        self._flows = storage.flows
        self._loop = asyncio.get_running_loop()

    async def page(self, flow: FlowId, part: int, *, after: int, limit: int) -> Sequence[Outcome]:
        return await self._flows.members(flow, part, after=after, limit=limit)

    def page_here(self, flow: FlowId, part: int, *, after: int, limit: int) -> Sequence[Outcome]:
        work = self.page(flow, part, after=after, limit=limit)
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


class FlowArguments:
    """Fills in the arguments of members that take results of their flow."""

    def __init__(self, storage: Storage) -> None:
        self._jobs = storage.jobs
        self._storage = storage
        self._asked: dict[JobId, asyncio.Future[Settled | None]] = {}

    async def fill(self, job: ClaimedJob) -> ClaimedJob:
        """Return the job with its results in place. `Results` among them read through this store
        from now on, in the current context.
        """
        wanted = wanted_in(job.payload)
        READER.set(StoredResults(self._storage))
        values = [await self._value(one) for one in wanted]
        return msgspec.structs.replace(job, payload=fill(job.payload, values))

    async def _value(self, wanted: Wanted) -> object:
        if wanted.kind == "part":
            flow, _, part = wanted.source.partition("/")
            return {"flow": flow, "part": int(part)}
        settled = await self._settled(JobId(wanted.source))
        if settled is None or settled.state is not State.SUCCEEDED:
            return None  # it may fail: the job that takes its result waits for its end alone
        return decode_any(settled.result)

    async def _settled(self, job: JobId) -> Settled | None:
        future = self._asked.get(job)
        if future is None:
            loop = asyncio.get_running_loop()
            if not self._asked:  # after all that ask at this moment
                loop.call_soon(lambda: loop.create_task(self._ask()))
            future = self._asked[job] = loop.create_future()
        return await asyncio.shield(future)

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
