"""The producer's side: puts jobs in, waits for results, cancels. Knows no worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Protocol, TypeVar

import msgspec

from windlass._client.event_log import EventJournal
from windlass._client.job_events import publish_expired_events
from windlass._client.results import ResultWaiter
from windlass._core.job.caller import CORRELATION_KEYS, PRINCIPAL_KEYS, first_usable
from windlass._core.job.event import enqueued_event
from windlass._core.job.job import JobId, JobRecord, NewJob
from windlass._core.job.state import State
from windlass._core.limits.limit import LimitSpec
from windlass._core.values.instants import duration
from windlass._core.values.names import MAX_TEXT, shown
from windlass._observe.bus import Bus
from windlass._settings.settings import Settings
from windlass._storage.protocol.jobs import Inserted, Settled
from windlass._storage.protocol.storage import Storage
from windlass._storage.shared.batcher import Batcher
from windlass._system.seams import Seams
from windlass._tasks.handle import Job, JobClient
from windlass._tasks.limits import JOB_ATTRIBUTES, LimitDefinitions
from windlass._tasks.options import first_set
from windlass._tasks.task import Call, JobOptions, Task
from windlass.errors import (
    InvalidArgument,
    JobCancelled,
    JobDiscarded,
    JobExpired,
    JobFailed,
    JobNotFound,
    ResultTimeout,
)

__all__ = [
    "Client",
    "Inserter",
    "check_calls",
    "job_for",
    "needs_limits",
    "new_job",
    "new_jobs",
    "note_ids",
]

R = TypeVar("R")

_FLUSH = 1000
"""The most jobs that strangers' calls are merged into; one call may be larger."""
_UNTOLD = 10_000
"""Ids of failed calls that are remembered until they are repeated."""
_MOST = 100_000
"""Calls in one transaction, which keeps every other writer out as long as it takes."""


def check_calls(calls: Sequence[Call[Any]]) -> None:
    """Refuse what cannot, or should not, go into one transaction."""
    if len(calls) > _MOST:
        message = (
            f"enqueue_many got {len(calls):,} calls, and one transaction blocks every other "
            f"writer. Enqueue them in slices of at most {_MOST:,}."
        )
        raise InvalidArgument(message)
    for call in calls:
        given: object = call
        if not isinstance(given, Call):
            message = f"enqueue_many takes calls made by task.call(...), got {shown(given)}"
            raise InvalidArgument(message)


def new_job(call: Call[Any], settings: Settings, job_id: JobId) -> NewJob:
    """A call as the store wants it: task options filled in, identity read from the arguments."""
    ask, task = call.options, call.task.settings
    principal, correlation_id = ask.principal, ask.correlation_id
    if call.arguments is not None:
        principal = principal or _found(call.arguments, PRINCIPAL_KEYS)
        correlation_id = correlation_id or _found(call.arguments, CORRELATION_KEYS)
    new = NewJob(
        id=job_id,
        task=task.name,
        queue=ask.queue or task.queue or settings.default_queue,
        payload=call.payload,
        priority=task.priority if ask.priority is None else ask.priority,
        delay=ask.delay,
        at=ask.at,
        max_attempts=ask.max_attempts or task.max_attempts or settings.max_attempts,
        timeout=first_set(ask.timeout, task.timeout, settings.timeout),
        expires=ask.expires or task.expires,
        backoff=ask.backoff,
        limits=call.limits,
        unique=call.unique or ask.unique,
        tags=(*(task.tags if ask.tags is None else ask.tags), *call.task.codec.marks),
        tenant=ask.tenant,
        principal=principal,
        correlation_id=correlation_id,
        parent=None if ask.parent is None else JobId(ask.parent),
        on_failure=call.task.follow_up(settings),
        on_lost=ask.on_lost or task.on_lost,
    )
    return _with_keys(new, call) if call.task.reads_job else new


def _with_keys(new: NewJob, call: Call[Any]) -> NewJob:
    """With limits whose keys name what only the finished job has, such as an inherited tenant."""
    ask, secrets = call.options, call.task.codec.secrets
    hidden = [
        name
        for name, said, keys in (
            ("principal", ask.principal, PRINCIPAL_KEYS),
            ("correlation_id", ask.correlation_id, CORRELATION_KEYS),
        )
        if said is None and not secrets.isdisjoint(keys)
    ]
    attributes = {name: getattr(new, name) for name in JOB_ATTRIBUTES}
    limits = call.task.limits_of(call, attributes, hidden)
    return msgspec.structs.replace(new, limits=limits)


def note_ids(error: BaseException, ids: Iterable[JobId]) -> None:
    """Say on an error, or a cancellation, which ids the call that it ends has used."""
    vars(error)["ids"] = tuple(ids)


def needs_limits(call: Call[Any]) -> bool:
    """Whether something must be defined before the call is stored."""
    return bool(call.limits) or call.task.settings.on_failure is not None


def job_for(handles: JobClient, call: Call[R], reply: Inserted) -> Job[R]:
    """What a producer gets for a call that was stored."""
    return Job(handles, reply.id, created=reply.created, replaced=reply.replaced, task=call.task)


def _found(arguments: Mapping[str, object], keys: Sequence[str]) -> str | None:
    """Cut to what may be given: nobody asked for it, so it must not fail the call, or the next
    one that inherits it.
    """
    found = first_usable(arguments, keys)
    return None if found is None else found[:MAX_TEXT]


def new_jobs(calls: Sequence[Call[Any]], settings: Settings, ids: Sequence[JobId]) -> list[NewJob]:
    """The same for many. Neighbours that differ in their arguments alone share the rest."""
    news: list[NewJob] = []
    model: NewJob | None = None
    task: Task[..., Any] | None = None
    options: JobOptions | None = None
    for call, job_id in zip(calls, ids, strict=True):
        if model is None or call.task is not task or call.options is not options:
            model = new_job(call, settings, job_id)
            news.append(model)
            # Identity is read from the arguments: such calls share nothing.
            task, options = (call.task, call.options) if call.arguments is None else (None, None)
        else:
            news.append(msgspec.structs.replace(model, id=job_id, payload=call.payload))
    return news


class Inserter(Protocol):
    """The way from a call to the store. What surrounds it, such as tracing, looks the same."""

    async def submit(self, items: Sequence[NewJob], /) -> Sequence[Inserted]:
        """Store jobs, all or none."""
        ...

    async def idle(self) -> None:
        """Wait until nothing is under way."""
        ...


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
        self._inserts: Inserter = Batcher(self._insert, largest=_FLUSH)
        # Apart, because a unique conflict may wait for a stranger's open transaction.
        self._keyed: Inserter = Batcher(self._insert, largest=_FLUSH)
        self._last: tuple[Call[Any] | None, NewJob | None] = (None, None)
        self._untold: set[JobId] = set()  # may be stored: their enqueues ended in errors here
        self._waiter = ResultWaiter(storage)
        self._definitions = LimitDefinitions(storage.limits)
        self._journal = EventJournal(storage, bus) if settings.event_log else None

    def surround(self, wrap: Callable[[Inserter], Inserter]) -> None:
        """Put something around every insert. Whoever does not pays nothing for it."""
        self._inserts, self._keyed = wrap(self._inserts), wrap(self._keyed)

    async def _insert(self, news: Sequence[NewJob]) -> Sequence[Inserted]:
        """Store jobs and tell of them, here: a caller that is cancelled meanwhile cannot."""
        replies = await self._storage.jobs.insert(news)
        if self._bus.heard:
            for new, reply in zip(news, replies, strict=True):
                if reply.created and (not reply.repeated or new.id in self._untold):
                    self._untold.discard(new.id)
                    self._bus.publish(enqueued_event(new))
        return replies

    async def enqueue(self, call: Call[R], job_id: JobId | None = None) -> Job[R]:
        """Store one call, merged with whatever is enqueued at the same time."""
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
        """Calls in a row differ mostly in their arguments alone."""
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
        """The stored job, or JobNotFound."""
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
                return _value(await self._waiter.wait(job))
        except TimeoutError:
            if not scope.expired():
                raise
        # Time is up. A short wait may have ended before the first look: what is settled counts.
        for settled in await self._storage.jobs.settled([job]):
            return _value(settled)
        raise ResultTimeout(job, (await self.refresh(job)).state)

    async def close(self) -> None:
        """Finish what is under way."""
        await self._inserts.idle()
        await self._keyed.idle()
        await self._waiter.close()
        if self._journal is not None:
            await self._journal.close()


def _value(settled: Settled) -> bytes | None:
    match settled.state:
        case None:
            raise JobNotFound(settled.id)
        case State.FAILED:
            raise JobFailed(settled.id, settled.error_kind, settled.error_message)
        case State.CANCELLED:
            raise JobCancelled(settled.id)
        case State.DISCARDED if settled.reason == "expired":
            raise JobExpired(settled.id)
        case State.DISCARDED:
            raise JobDiscarded(settled.id, settled.reason or "no reason given")
        case _:
            return settled.result
