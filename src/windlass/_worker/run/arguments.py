"""Results of other jobs as arguments: read before a run, all that ask at one moment together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
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
_FIRST_SLICE = 32
"""Jobs in the first one, when the size of their results is not known."""
MOST_BYTES = 32 * 1024 * 1024
"""Results that the jobs of one claim load. A worker has to keep all of them in memory."""
_TOO_MUCH = (
    f"the jobs of this claim take more than {MOST_BYTES // 1024**2} MiB of results: this one is "
    f"given back and claimed again"
)

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


_Loaded = Mapping[JobId, Settled | None]


class _TakenResults:
    """The results that one job takes."""

    def __init__(self, jobs: Sequence[JobId], answer: asyncio.Future[_Loaded]) -> None:
        self.jobs = jobs
        """One for each place: a result in two places takes twice the memory."""
        self.answer = answer

    def size(self, loaded: _Loaded) -> int:
        """Return the bytes of all that it takes, when that is loaded."""
        found = (loaded[job] for job in self.jobs)
        return sum(len(one.result or b"") for one in found if one is not None)

    def give(self, loaded: _Loaded) -> None:
        """Answer with what it takes."""
        if not self.answer.done():
            self.answer.set_result({job: loaded[job] for job in self.jobs})

    def refuse(self, error: Exception) -> None:
        """Answer with an error, if there is no answer yet."""
        if not self.answer.done():
            self.answer.set_exception(error)


class FlowArguments:
    """Fills in the arguments of members that take results of their flow."""

    def __init__(self, storage: Storage) -> None:
        self._jobs = storage.jobs
        self._storage = storage
        self._requests: list[_TakenResults] = []
        self._asking: asyncio.Task[None] | None = None
        """Kept: an event loop keeps no task alive."""

    async def fill(self, job: ClaimedJob) -> Filled:
        """Return the job with its results in place. `Results` among them read through this store
        from now on, in the current context.

        Jobs that ask at one moment get at most `MOST_BYTES`, but for the first of them. The others
        get ResultsUnavailable. A result counts for each job that takes it, which has its own copy.
        """
        wanted = wanted_in(job.payload)
        READER.set(StoredResults(self.read))
        sources = [JobId(one.source) for one in wanted if one.kind == "job"]
        settled = await self._settled(sources) if sources else {}
        found = [_value(one, settled) for one in wanted]
        missing = [one for one, (_, there) in zip(wanted, found, strict=True) if not there]
        payload = fill(job.payload, [value for value, _ in found])
        return Filled(msgspec.structs.replace(job, payload=payload), missing)

    async def read(self, flow: FlowId, part: int, after: int, limit: int) -> Sequence[Member]:
        """Read jobs of a part."""
        return await self._storage.flows.members(flow, part, after=after, limit=limit)

    async def _settled(self, jobs: Sequence[JobId]) -> _Loaded:
        loop = asyncio.get_running_loop()
        if not self._requests:  # after all that ask at this moment
            loop.call_soon(self._begin)
        request = _TakenResults(jobs, loop.create_future())
        self._requests.append(request)
        return await request.answer

    def _begin(self) -> None:
        self._asking = asyncio.create_task(self._ask())

    async def _ask(self) -> None:
        requests, self._requests = self._requests, []
        try:
            await self._load(requests)
        except Exception as error:  # noqa: BLE001 -- delivered to those who wait
            for request in requests:
                request.refuse(error)

    async def _load(self, requests: Sequence[_TakenResults]) -> None:
        """Load results in the order of the jobs that take them, and answer these in order. The
        first job gets all that it takes, however large they are.
        """
        place: dict[JobId, int] = {}
        for request in requests:
            for job in request.jobs:
                place.setdefault(job, len(place))
        ids, loaded = list(place), dict[JobId, Settled | None]()
        room, read = _FIRST_SLICE, 0
        given = taken = 0
        for number, request in enumerate(requests):
            last = max(place[job] for job in request.jobs)
            while last >= len(loaded) and (read < MOST_BYTES or not number):
                some = ids[len(loaded) : len(loaded) + room]
                found = {one.id: one for one in await self._jobs.settled(some)}
                loaded |= {job: found.get(job) for job in some}
                read += sum(len(one.result or b"") for one in found.values())
                # As many as fit by what they were so far.
                room = max(1, min(_SLICE, (MOST_BYTES - read) // max(1, read // len(loaded))))
            if last >= len(loaded):
                break
            taken += request.size(loaded)
            if number and taken > MOST_BYTES:
                break
            request.give(loaded)
            given += 1
        for request in requests[given:]:
            request.refuse(ResultsUnavailable(_TOO_MUCH))


def _value(wanted: Wanted, settled: Mapping[JobId, Settled | None]) -> tuple[object, bool]:
    """Return the value for a place, and whether there is one: a job that waits for the end of
    another alone gets None if that one did not succeed.
    """
    if wanted.kind == "part":
        flow, parts = wanted.parts()
        return {"flow": flow, "parts": parts}, True
    found = settled[JobId(wanted.source)]
    if found is None or found.state is not State.SUCCEEDED:
        return None, False
    return decode_any(found.result), True
