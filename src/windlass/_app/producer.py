"""The part of an app that enqueues, and that handles of jobs ask."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from windlass._app.plugins import Installer
from windlass._app.sync import BlockingClient
from windlass._client.client import Client, check_calls, note_ids
from windlass._client.transactional import Outbox, Wake, check_connection
from windlass._core.job.ids import id_as_stored, job_ids_of
from windlass._core.job.job import JobId, JobRecord
from windlass._observe.current_run import RUN
from windlass._storage.protocol.jobs import CancelAnswer
from windlass._storage.protocol.transactions import UserConnection
from windlass._storage.shared.errors import copy_error
from windlass._system.seams import Seams
from windlass._tasks.context import report_wait, running_job
from windlass._tasks.handle import Job
from windlass._tasks.propagation import inherit_options, inherit_options_many
from windlass._tasks.task import Call, Task

if TYPE_CHECKING:
    from uuid import UUID

    from windlass.admin import Admin

__all__ = ["Producer"]

R = TypeVar("R")


class Producer(Installer):
    """Stores calls, on this app's storage or on connections of the user's."""

    admin: Admin
    blocking: BlockingClient
    _outbox: Outbox
    _seams: Seams

    async def enqueue_call(self, call: Call[R], *, job_id: JobId | None = None) -> Job[R]:
        """Store one call made by ``task.call(...)``."""
        ask = call.options
        if ask.connection is not None:
            ids = None if job_id is None else [job_id]
            jobs = await self.enqueue_many(
                [call], ids=ids, connection=ask.connection, wake=ask.wake
            )
            return jobs[0]
        if self.tasks.by_name.get(call.task.name) is not call.task or type(call.task) is not Task:
            self._check_own((call,))
        if (context := RUN.get(None)) is not None:
            call = inherit_options(call, context.claimed)
        try:
            client = await self._client()
        except BaseException as error:  # noqa: BLE001 -- raised again, with the id
            own = self._unopened(error, None if job_id is None else [job_id], 1)
            raise own from own.__cause__
        return await client.enqueue(call, job_id)

    def enqueue_call_sync(self, call: Call[R], *, job_id: JobId | None = None) -> Job[R]:
        """The same, from code without an event loop."""
        ask = call.options
        if ask.connection is not None:
            ids = None if job_id is None else [job_id]
            jobs = self.blocking.enqueue_many(
                [call], ids=ids, connection=ask.connection, wake=ask.wake
            )
            return jobs[0]
        instead = f"{call.task.name.rpartition('.')[2]}.enqueue(...)"
        return self.blocking.run(self.enqueue_call(call, job_id=job_id), instead=instead)

    async def enqueue_many(
        self,
        calls: Iterable[Call[R]],
        *,
        ids: Iterable[str | UUID] | None = None,
        connection: UserConnection | None = None,
        wake: Wake | None = None,
    ) -> list[Job[R]]:
        """Store calls in one transaction, all or none; the handles are in order.

        ``ids``: one for each call, such as the ``ids`` of the error that ended the same call
        before: what was stored then is not stored again. ``connection``: yours; the jobs are part
        of the transaction that is open on it.
        """
        every = self._checked(calls, connection, wake)
        given = None if ids is None else job_ids_of(ids, len(every))
        if connection is not None:
            return await self._outbox.enqueue(every, connection, wake, given)
        try:
            client = await self._client()
        except BaseException as error:  # noqa: BLE001 -- raised again, with the ids
            own = self._unopened(error, given, len(every))
            raise own from own.__cause__
        return await client.enqueue_many(every, given)

    def _unopened(
        self, error: BaseException, ids: Sequence[JobId] | None, many: int
    ) -> BaseException:
        """The error of a call whose storage could not be opened. Each caller gets its own, with
        ids that nothing is stored under.
        """
        own = copy_error(error) if isinstance(error, Exception) else error
        note_ids(own, ids or self._seams.new_job_ids(many))
        return own

    def _checked(
        self, calls: Iterable[Call[R]], connection: UserConnection | None, wake: Wake | None
    ) -> list[Call[R]]:
        every = list(calls)
        check_calls(every)
        check_connection(every, connection, wake)
        self._check_own(every)
        return every if (job := running_job()) is None else inherit_options_many(every, job)

    async def _define_for(self, calls: Sequence[Call[Any]]) -> None:
        await (await self._client()).define_for(calls)

    async def _client(self) -> Client:
        """The client of this event loop."""
        raise NotImplementedError

    # --- jobs ---

    def job(self, job_id: str | UUID) -> Job[Any]:
        """A handle for an id you kept. Nothing is looked up until you ask it something.

        ``task.job(id)`` is the same for jobs of one task, with the type of its results.
        """
        return Job(self, id_as_stored(job_id), created=False, task=None)

    def job_of(self, job_id: str | UUID, task: Task[..., R]) -> Job[R]:
        """What ``task.job(id)`` gives."""
        return Job(self, id_as_stored(job_id), created=False, task=task)

    async def refresh(self, job: JobId) -> JobRecord:
        """The stored job, or JobNotFound."""
        return await (await self._client()).refresh(job)

    async def result(self, job: JobId, timeout: timedelta | float | None = None) -> bytes | None:
        """A job's encoded result; handles decode it."""
        report_wait(job)
        return await (await self._client()).result(job, timeout)

    async def cancel(self, job: JobId) -> CancelAnswer:
        """Ask for a job's end."""
        return await self.admin.cancel(job)
