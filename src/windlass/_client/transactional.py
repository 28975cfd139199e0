"""The producer's side inside somebody else's transaction: jobs that exist if that one commits."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Literal, Protocol

from windlass._client.client import Client, job_for, new_jobs, note_ids
from windlass._core.job.job import JobId, NewJob
from windlass._settings.settings import Settings
from windlass._storage.open import TRANSACTIONAL, StorageOpener, check_url
from windlass._storage.protocol.jobs import Inserted
from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.transactions import UserConnection, UserInsertStore
from windlass._system.seams import Seams
from windlass._tasks.handle import Job, JobClient
from windlass._tasks.options import check_wake
from windlass._tasks.task import Call
from windlass.errors import ConfigError, InvalidArgument

__all__ = ["Outbox", "OutboxHost", "Wake", "check_connection"]

Wake = Literal["commit"]


class _HasStorage(Protocol):
    @property
    def storage(self) -> Storage: ...


class _Stamps(Protocol):
    def stamp(self, news: Sequence[NewJob]) -> list[NewJob]: ...


class _HasTracing(Protocol):
    @property
    def tracing(self) -> _Stamps | None: ...


class OutboxHost(JobClient, Protocol):
    """What an outbox needs from its app."""

    settings: Settings
    _opener: StorageOpener
    _seams: Seams
    _pid: int

    @property
    def watch(self) -> _HasTracing: ...
    @property
    def _links(self) -> Mapping[asyncio.AbstractEventLoop, _HasStorage]: ...
    async def _client(self) -> Client: ...
    async def storage(self) -> Storage:
        """Opened for this event loop."""
        ...


class Outbox:
    """Stores calls on connections of the user's. Keeps nothing."""

    def __init__(
        self, home: OutboxHost, start: Callable[[Coroutine[Any, Any, object]], None]
    ) -> None:
        """``start`` runs something in the background, from any thread."""
        self._home = home
        self._start = start

    async def enqueue(
        self,
        calls: Sequence[Call[Any]],
        connection: UserConnection,
        wake: Wake | None,
        ids: Sequence[JobId] | None = None,
    ) -> list[Job[Any]]:
        """For connections that are awaited. The app is opened first, as for any other call."""
        store = self._store()
        client = await self._home._client()  # noqa: SLF001 -- a part of the app
        if store is None:
            return await client.enqueue_many(calls, ids)
        news = self._new(calls, ids)
        with _noting(news):
            await client.define_for(calls)
            replies = await store.insert(connection, news, notify=wake == "commit")
        if wake is None and any(reply.created or reply.replaced for reply in replies):
            store.on_commit(connection, self.wake)
        return self._handles(calls, replies)

    def enqueue_sync(
        self,
        calls: Sequence[Call[Any]],
        connection: UserConnection,
        wake: Wake | None,
        ids: Sequence[JobId] | None = None,
    ) -> list[Job[Any]] | None:
        """For connections that block; nothing is opened. None: jobs run inline, in a test."""
        store = self._store()
        if store is None:
            return None
        news = self._new(calls, ids)
        with _noting(news):
            replies = store.insert_sync(connection, news, notify=wake == "commit")
        if wake is None and any(reply.created or reply.replaced for reply in replies):
            store.on_commit(connection, self.wake)
        return self._handles(calls, replies)

    def _store(self) -> UserInsertStore | None:
        """None: jobs run inline, in a test, so they are stored at once."""
        scheme = check_url(self._home.settings.url)
        if scheme not in TRANSACTIONAL:
            message = (
                f"connection= stores a job in your PostgreSQL transaction, and the jobs of this "
                f"app are in {scheme}://. Use postgresql:// for them, in the same database; or "
                f"leave connection= out and enqueue after your commit."
            )
            raise ConfigError(message)
        return self._home._opener.transactions()  # noqa: SLF001

    def _new(self, calls: Sequence[Call[Any]], ids: Sequence[JobId] | None) -> list[NewJob]:
        home = self._home
        ids = ids or home._seams.new_job_ids(len(calls))  # noqa: SLF001
        news = new_jobs(calls, home.settings, ids)
        return news if home.watch.tracing is None else home.watch.tracing.stamp(news)

    def _handles(self, calls: Sequence[Call[Any]], replies: Sequence[Inserted]) -> list[Job[Any]]:
        return [
            job_for(self._home, call, reply) for call, reply in zip(calls, replies, strict=True)
        ]

    def wake(self) -> None:
        """Let workers look for what the user has committed. Called on any thread."""
        if self._home._pid == os.getpid():  # noqa: SLF001 -- what a parent opened is the parent's
            for loop, link in list(self._home._links.items()):  # noqa: SLF001
                # A loop that ends just now takes no more calls; the next one may.
                with suppress(RuntimeError):
                    if loop.is_running():
                        loop.call_soon_threadsafe(_wake, link.storage)
                        return
        self._start(self._open_and_wake())

    async def _open_and_wake(self) -> None:
        _wake(await self._home.storage())


@contextmanager
def _noting(news: Sequence[NewJob]) -> Iterator[None]:
    """Errors say which ids were used. They are the driver's own: the transaction is the user's."""
    try:
        yield
    except BaseException as error:
        note_ids(error, [new.id for new in news])
        raise


def _wake(storage: Storage) -> None:
    if storage.transactions is not None:
        storage.transactions.wake()


def check_connection(
    calls: Sequence[Call[Any]], connection: UserConnection | None, wake: Wake | None
) -> None:
    """A batch has one connection, given with it: no call may bring another one."""
    check_wake(wake, connection)
    for call in calls:
        own = call.options.connection
        if own is not None and own is not connection:
            message = (
                f"a call of {call.task.name} was made with options(connection=...), and one "
                f"transaction stores them all: give it once, enqueue_many(calls, connection=...)"
            )
            raise InvalidArgument(message)
