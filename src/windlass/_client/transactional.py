"""Enqueueing inside the user's transaction: the jobs exist if it commits."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from windlass._client.client import new_jobs, note_ids
from windlass._client.connections import Connections
from windlass._client.flows import new_flow
from windlass._core.flows.flow import NewFlow
from windlass._core.job.job import JobId, NewJob
from windlass._settings.settings import Settings
from windlass._storage.open import TRANSACTIONAL, check_url
from windlass._storage.protocol.flows import StartedFlow
from windlass._storage.protocol.jobs import Inserted
from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.transactions import UserConnection, UserInsertStore
from windlass._tasks.flows.plan import FlowPlan
from windlass._tasks.options import check_wake
from windlass._tasks.task import Call
from windlass.errors import ConfigError, InvalidArgument

__all__ = ["Outbox", "Wake", "check_connection"]

Wake = Literal["commit"]


class Outbox:
    """Stores calls on connections of the user's. Keeps nothing."""

    def __init__(
        self,
        settings: Settings,
        connections: Connections,
        stamp: Callable[[list[NewJob]], list[NewJob]],
        start: Callable[[Coroutine[Any, Any, object]], None],
    ) -> None:
        """``stamp`` adds their trace to jobs; ``start`` runs something in the background, from any
        thread.
        """
        self._settings = settings
        self._connections = connections
        self._stamp = stamp
        self._start = start

    def store(self) -> UserInsertStore | None:
        """Return what inserts on users' connections. None: jobs run inline, in a test, so they are
        stored at once.
        """
        scheme = check_url(self._settings.url)
        if scheme not in TRANSACTIONAL:
            message = (
                f"connection= stores a job in your PostgreSQL transaction, and the jobs of this "
                f"app are in {scheme}://. Use postgresql:// for them, in the same database; or "
                f"leave connection= out and enqueue after your commit."
            )
            raise ConfigError(message)
        return self._connections.opener.transactions()

    async def insert(
        self,
        store: UserInsertStore,
        calls: Sequence[Call[Any]],
        connection: UserConnection,
        wake: Wake | None,
        ids: Sequence[JobId] | None = None,
    ) -> Sequence[Inserted]:
        """Insert on a connection that is awaited. The app is opened first, as for other calls."""
        client = await self._connections.client()
        news = self.new_jobs(calls, ids)
        with _noting(news):
            await client.define_for(calls)
            replies = await store.insert(connection, news, notify=wake == "commit")
        self._wake_at_commit(store, connection, wake, replies)
        return replies

    def insert_sync(
        self,
        store: UserInsertStore,
        calls: Sequence[Call[Any]],
        connection: UserConnection,
        wake: Wake | None,
        ids: Sequence[JobId] | None = None,
    ) -> Sequence[Inserted]:
        """Insert on a connection that blocks; nothing is opened."""
        news = self.new_jobs(calls, ids)
        with _noting(news):
            replies = store.insert_sync(connection, news, notify=wake == "commit")
        self._wake_at_commit(store, connection, wake, replies)
        return replies

    async def start(
        self,
        store: UserInsertStore,
        plan: FlowPlan,
        calls: Sequence[Call[Any]],
        connection: UserConnection,
        wake: Wake | None,
    ) -> StartedFlow:
        """Start a flow on a connection that is awaited. ``calls`` are those of the plan, with what
        the app added to them.
        """
        client = await self._connections.client()
        flow = self._new_flow(plan, calls)
        with _noting([job for _, job in flow.jobs]):
            await client.define_for(calls)
            answer = await store.start(connection, flow, notify=wake == "commit")
        self._wake_after_start(store, connection, wake, answer)
        return answer

    def start_sync(
        self,
        store: UserInsertStore,
        plan: FlowPlan,
        calls: Sequence[Call[Any]],
        connection: UserConnection,
        wake: Wake | None,
    ) -> StartedFlow:
        """Start a flow on a connection that blocks; nothing is opened."""
        flow = self._new_flow(plan, calls)
        with _noting([job for _, job in flow.jobs]):
            answer = store.start_sync(connection, flow, notify=wake == "commit")
        self._wake_after_start(store, connection, wake, answer)
        return answer

    def _new_flow(self, plan: FlowPlan, calls: Sequence[Call[Any]]) -> NewFlow:
        return new_flow(plan, self.new_jobs(calls, [job for _, job, _ in plan.calls]))

    def _wake_after_start(
        self,
        store: UserInsertStore,
        connection: UserConnection,
        wake: Wake | None,
        answer: StartedFlow,
    ) -> None:
        if wake is None and answer.created:
            store.on_commit(connection, self.wake)

    def new_jobs(
        self, calls: Sequence[Call[Any]], ids: Sequence[JobId] | None = None
    ) -> list[NewJob]:
        """Return calls as jobs that are stored with something else, with their trace."""
        ids = ids or self._connections.new_job_ids(len(calls))
        return self._stamp(new_jobs(calls, self._settings, ids))

    def _wake_at_commit(
        self,
        store: UserInsertStore,
        connection: UserConnection,
        wake: Wake | None,
        replies: Sequence[Inserted],
    ) -> None:
        if wake is None and any(reply.created or reply.replaced for reply in replies):
            store.on_commit(connection, self.wake)

    def wake(self) -> None:
        """Let workers look for what the user has committed. Called on any thread."""
        if not self._connections.tell_open_storage(_wake):
            self._start(self._open_and_wake())

    async def _open_and_wake(self) -> None:
        _wake(await self._connections.storage())


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
    """Check that no call brings another connection: a batch has one, given with it."""
    check_wake(wake, connection)
    for call in calls:
        own = call.options.connection
        if own is not None and own is not connection:
            message = (
                f"a call of {call.task.name} was made with options(connection=...), and one "
                f"transaction stores them all: give it once, enqueue_many(calls, connection=...)"
            )
            raise InvalidArgument(message)
