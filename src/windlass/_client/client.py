"""The producer's side: puts jobs in, waits for results, cancels. Knows no worker."""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, Generic, TypeVar

import msgspec

from windlass._client.event_log import EventJournal
from windlass._client.flows import FlowStart, StoredFlows
from windlass._client.inserter import Inserter
from windlass._client.job_events import publish_expired_events
from windlass._client.new_jobs import (
    check_calls,
    job_for,
    needs_limits,
    new_job,
    new_jobs,
    note_ids,
)
from windlass._client.results import ResultWaiter, value_of
from windlass._client.room import WaitForRoom
from windlass._core.job.event import JobCoalesced, enqueued_event
from windlass._core.job.job import FlowId, JobId, JobRecord, NewJob
from windlass._core.limits.limit import LimitSpec
from windlass._core.values.instants import duration
from windlass._observe.bus import Bus
from windlass._settings.settings import Settings
from windlass._storage.protocol.flows import StartedFlow
from windlass._storage.protocol.jobs import (
    DirectInserts,
    Inserted,
    starts_inserts,
)
from windlass._storage.protocol.storage import Storage
from windlass._storage.shared.errors import copy_error, is_retryable
from windlass._system.seams import Seams
from windlass._tasks.flows.plan import FlowPlan
from windlass._tasks.handle import Job, JobClient
from windlass._tasks.limits import LimitDefinitions
from windlass._tasks.task import Call
from windlass.errors import (
    JobNotFound,
    KeyConflict,
    ResultTimeout,
)

__all__ = [
    "Batcher",
    "Client",
    "check_calls",
    "job_for",
    "needs_limits",
    "new_job",
    "new_jobs",
    "note_ids",
]

R = TypeVar("R")
Item = TypeVar("Item")
Reply = TypeVar("Reply")
_Call = tuple[Sequence[Item], "asyncio.Future[Sequence[Reply]]"]
_Start = Callable[
    [Sequence[Item], Callable[[Sequence[Reply]], None]], "asyncio.Future[Sequence[Reply]]"
]

_FLUSH = 1000
"""The largest number of jobs in a merged flush; one call may be larger."""
_UNTOLD = 10_000
"""Ids of failed calls that are remembered until they are repeated."""


class Batcher(Generic[Item, Reply]):
    """Merges concurrent calls into flushes. Calls are never split, and never fail because of
    another.

    While one flush is running, the next one collects. There is no timer: an idle system adds no
    latency, a busy one pays one round trip for many calls.

    A flush that fails for good is halved by calls until the failing call is alone and gets the
    error. Cancelling a caller never cancels a flush that others share.
    """

    def __init__(
        self,
        flush: Callable[[Sequence[Item]], Awaitable[Sequence[Reply]]],
        *,
        largest: int,
        start: _Start[Item, Reply] | None = None,
        tell: Callable[[Sequence[Item], Sequence[Reply]], None] = lambda _items, _replies: None,
    ) -> None:
        """``flush`` answers item by item; ``largest`` bounds what is merged, not a single call.
        ``start`` begins to flush a call that is alone: it costs neither a task nor a second future.
        ``tell`` hears of all that was flushed, here: a caller that is cancelled meanwhile cannot.
        """
        self._flush = flush
        self._start = start
        self._tell = tell
        self._largest = largest
        self._waiting: deque[_Call[Item, Reply]] = deque()
        self._alone: asyncio.Future[Sequence[Reply]] | None = None
        self._task: asyncio.Task[None] | None = None

    async def submit(self, items: Sequence[Item]) -> Sequence[Reply]:
        """Flush ``items`` together with other waiting calls; all or nothing for this call."""
        if not items:
            return []
        # Done: it was cancelled before its first step, so that it could not say so.
        drains = self._task is not None and not self._task.done()
        if self._start is not None and self._alone is None and not drains:
            self._alone = self._start(items, functools.partial(self._tell, items))
            self._alone.add_done_callback(self._after_one)
            return await self._alone
        future: asyncio.Future[Sequence[Reply]] = asyncio.get_running_loop().create_future()
        self._waiting.append((items, future))
        if self._alone is None and not drains:
            self._task = asyncio.get_running_loop().create_task(self._drain())
        return await future

    def _after_one(self, alone: asyncio.Future[Sequence[Reply]]) -> None:
        self._alone = None
        if self._waiting:
            self._task = alone.get_loop().create_task(self._drain())

    async def idle(self) -> None:
        """Wait until nothing is under way."""
        # A lone call that is done counts until `_after_one` has started those that wait behind it.
        while self._alone is not None or (self._task is not None and not self._task.done()):
            await asyncio.wait([under_way for under_way in (self._alone, self._task) if under_way])

    async def _drain(self) -> None:
        calls: list[_Call[Item, Reply]] = []
        batches: list[list[_Call[Item, Reply]]] = []
        try:
            while self._waiting:
                batches = [self._next() if len(self._waiting) > 1 else [self._waiting.popleft()]]
                while batches:
                    calls = batches.pop()
                    items = calls[0][0]
                    if len(calls) > 1:
                        items = [item for call in calls for item in call[0]]
                    try:
                        replies = await self._flush(items)
                        self._tell(items, replies)
                    except Exception as error:  # noqa: BLE001 -- delivered to whom it concerns
                        batches += _halved(calls, error)
                        continue
                    start = 0
                    for sent, future in calls:
                        end = start + len(sent)
                        if not future.done():
                            future.set_result(replies[start:end])
                        start = end
        except BaseException as error:
            # Cancelled by other code, or about to end the event loop: no caller may wait for ever.
            _answer_with(error, [*calls, *(call for batch in batches for call in batch)])
            _answer_with(error, self._waiting)
            self._waiting.clear()
            raise
        finally:
            self._task = None

    def _next(self) -> list[_Call[Item, Reply]]:
        calls = [self._waiting.popleft()]
        size = len(calls[0][0])
        while self._waiting and size + len(self._waiting[0][0]) <= self._largest:
            calls.append(self._waiting.popleft())
            size += len(calls[-1][0])
        return calls


def _halved(
    calls: list[_Call[Item, Reply]], error: Exception
) -> Sequence[list[_Call[Item, Reply]]]:
    """Return the halves of a flush that failed, the first one last. Where halving is of no use, its
    calls get the error.
    """
    if len(calls) > 1 and not is_retryable(error):
        half = len(calls) // 2
        return [calls[half:], calls[:half]]
    _answer_with(error, calls)
    return []


def _answer_with(error: BaseException, calls: Sequence[_Call[Item, Reply]]) -> None:
    """Raise ``error`` in the callers that wait for these calls."""
    for _, future in calls:
        if future.done():
            continue
        if isinstance(error, asyncio.CancelledError):
            future.cancel()
        else:
            future.set_exception(error if len(calls) == 1 else copy_error(error))


class Client:
    """Everything a producer does, on one event loop, over one opened storage."""

    def __init__(
        self, storage: Storage, settings: Settings, seams: Seams, bus: Bus, handles: JobClient
    ) -> None:
        """Made by the app for each event loop it is used on.

        Handles go through ``handles``, the app, because they may outlive this event loop.
        """
        self._storage = storage
        self._handles = handles
        self._settings = settings
        self._new_ids = seams.new_job_ids
        self._bus = bus
        start = storage.jobs.start_insert if starts_inserts(storage.jobs) else None
        insert, tell = storage.jobs.insert, self._tell
        self._inserts: Inserter = Batcher(insert, largest=_FLUSH, start=start, tell=tell)
        # Separate, because a unique conflict may wait for another client's open transaction.
        self._keyed: Inserter = Batcher(insert, largest=_FLUSH, tell=tell)
        self._last: tuple[Call[Any] | None, NewJob | None] = (None, None)
        self._untold: set[JobId] = set()  # may be stored: their enqueues ended in errors here
        self._direct = storage.jobs if isinstance(storage.jobs, DirectInserts) else None
        self._waiter = ResultWaiter(storage)
        self.flows: StoredFlows = StoredFlows(storage)
        self._around: list[Callable[[Inserter], Inserter]] = []
        if not storage.shared:  # no other storage has a bound
            self.surround(WaitForRoom)
        self._definitions = LimitDefinitions(storage.limits)
        self._journal = EventJournal(storage, bus) if settings.event_log else None

    def surround(self, wrap: Callable[[Inserter], Inserter]) -> None:
        """Wrap every insert. Without a wrapper it costs nothing."""
        self._direct = None  # it would go past the wrapper
        self._around.append(wrap)
        self._inserts, self._keyed = wrap(self._inserts), wrap(self._keyed)

    def _tell(self, news: Sequence[NewJob], replies: Sequence[Inserted]) -> None:
        if not self._bus.heard:
            return
        for new, reply in zip(news, replies, strict=True):
            if reply.created and (not reply.repeated or new.id in self._untold):
                self._untold.discard(new.id)
                self._bus.publish(enqueued_event(new))
            elif not reply.created:
                self._bus.publish(
                    JobCoalesced(
                        job=reply.id, task=new.task, queue=new.queue, replaced=reply.replaced
                    )
                )

    async def enqueue(self, call: Call[R], job_id: JobId | None = None) -> Job[R]:
        """Store one call, merged with calls that are enqueued at the same time."""
        new = self._new(call, job_id)
        try:
            if new.limits or new.on_failure is not None:
                await self.define(call.task.needs)
            (reply,) = await (self._inserts if new.unique is None else self._keyed).submit((new,))
        except BaseException as error:
            self._failed(error, (new.id,))
            raise
        if reply.expired is not None:
            await self._tell_expired([reply.expired], (new.id,))
        if reply.created:
            return Job(self._handles, reply.id, created=True, task=call.task)
        return job_for(self._handles, call, reply)

    def enqueue_here(self, call: Call[R], job_id: JobId) -> Job[R] | None:
        """Store one call on this thread, which is not the event loop's. None: the store cannot do
        that now, or something on the event loop takes part. Then `enqueue` it with the same id.
        """
        direct = self._direct
        if direct is None or self._bus.heard:
            return None
        new = self._new(call, job_id)
        if new.limits or new.on_failure is not None or new.unique is not None:
            return None
        try:
            replies = direct.insert_here((new,))
        except BaseException as error:
            note_ids(error, (new.id,))
            raise
        return None if replies is None else job_for(self._handles, call, replies[0])

    async def _tell_expired(self, expired: Sequence[JobId], ids: Sequence[JobId]) -> None:
        """``ids``: of the jobs that are stored by now, which a cancellation has to name."""
        try:
            await publish_expired_events(self._storage, self._bus, expired)
        except BaseException as error:
            note_ids(error, ids)
            raise

    def _failed(self, error: BaseException, ids: Sequence[JobId]) -> None:
        note_ids(error, ids)
        # A cancelled caller leaves its flush under way, which tells.
        if isinstance(error, Exception) and self._bus.heard and len(self._untold) < _UNTOLD:
            self._untold.update(ids)

    def _new(self, call: Call[Any], job_id: JobId | None) -> NewJob:
        """Make new jobs. Calls in a row differ mostly in their arguments alone."""
        if job_id is None:
            (job_id,) = self._new_ids(1)
        last, model = self._last
        same = last is not None and call.task is last.task and call.options is last.options
        if model is not None and same and call.arguments is None:
            return msgspec.structs.replace(model, id=job_id, payload=call.payload)
        new = new_job(call, self._settings, job_id)
        if call.arguments is None:  # identity is read from them: such calls share nothing
            empty = msgspec.structs.replace(call, payload=b"")
            self._last = (empty, msgspec.structs.replace(new, payload=b""))
        return new

    async def enqueue_many(
        self, calls: Sequence[Call[R]], ids: Sequence[JobId] | None = None
    ) -> list[Job[R]]:
        """Store calls, all or none, in order."""
        news = self._new_many(calls, ids or self._new_ids(len(calls)))
        try:
            await self.define_for(calls)
            keyed = any(new.unique is not None for new in news)
            replies = await (self._keyed if keyed else self._inserts).submit(news)
        except BaseException as error:
            self._failed(error, [new.id for new in news])
            raise
        if self._bus.heard:
            expired = [reply.expired for reply in replies if reply.expired is not None]
            await self._tell_expired(expired, [new.id for new in news])
        return [
            job_for(self._handles, call, reply) for call, reply in zip(calls, replies, strict=True)
        ]

    def _new_many(self, calls: Sequence[Call[Any]], ids: Sequence[JobId]) -> list[NewJob]:
        return new_jobs(calls, self._settings, ids)

    async def define(self, specs: Iterable[LimitSpec]) -> None:
        """Let jobs use these; costs nothing the second time."""
        await self._definitions.keep(specs)

    async def define_for(self, calls: Sequence[Call[Any]]) -> None:
        """Let these calls use their limits."""
        tasks = dict.fromkeys(call.task for call in calls)  # not a set: in the order of the calls
        await self.define(spec for task in tasks for spec in task.needs)

    async def refresh(self, job: JobId) -> JobRecord:
        """Return the stored job, or JobNotFound."""
        (found,) = await self._storage.admin.get([job])
        if found is None:
            raise JobNotFound(job)
        return found

    async def result(self, job: JobId, timeout: timedelta | float | None) -> bytes | None:
        """Wait until the job is terminal and answer with its encoded result, or raise why not."""
        seconds = None if timeout is None else duration(timeout, "timeout").total_seconds()
        scope = asyncio.timeout(seconds)
        try:
            async with scope:
                return value_of(await self._waiter.wait(job))
        except TimeoutError:
            if not scope.expired():
                raise
        # Time is up. A short wait may have ended before the first look: what is settled counts.
        for settled in await self._storage.jobs.settled([job]):
            return value_of(settled)
        raise ResultTimeout(job, (await self.refresh(job)).state)

    # --- flows ---

    async def start_flow(
        self, plan: FlowPlan, calls: Sequence[Call[Any]], into: FlowId | None = None
    ) -> StartedFlow:
        """Store a flow. ``calls``: of the plan, completed by the app. ``into``: add it there."""
        ids = [job for _, job, _ in plan.calls]
        try:
            await self.define_for(calls)
            jobs = self._new_many(calls, ids)
            start = FlowStart(self._storage.flows, plan, into)
            inserter: Inserter = start
            for wrap in self._around:
                inserter = wrap(inserter)
            await inserter.submit(jobs)
        except KeyConflict as error:
            raise KeyConflict(error.key, error.holder, of_flow=True) from None
        except BaseException as error:
            self._failed(error, ids)
            raise
        answer = start.answer
        if answer.created and not answer.repeated and self._bus.heard:
            for job in jobs:
                self._bus.publish(enqueued_event(job))
        return answer

    async def close(self) -> None:
        """Finish what is under way."""
        await self._inserts.idle()
        await self._keyed.idle()
        await self._waiter.close()
        if self._journal is not None:
            await self._journal.close()
