"""Jobs that people ask for, recorded like every other order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from windlass.admin.desk import Desk
from windlass.client import needs_limits, new_job, note_ids
from windlass.core.event import enqueued
from windlass.core.ids import job_id_of
from windlass.core.job import JobId
from windlass.limits import Definitions
from windlass.storage.answers import Inserted
from windlass.task import Call
from windlass.telling import tell_expired

if TYPE_CHECKING:
    from uuid import UUID

__all__ = ["EnqueueDesk"]


class EnqueueDesk(Desk):
    """The part of ``app.admin`` that enqueues."""

    async def enqueue(self, call: Call[Any], *, id: str | UUID | None = None) -> Inserted:  # noqa: A002
        """Store a call made by ``task.call(…)`` or ``task.options(…).call(…)``, with a record of
        who asked for it. Code of an application uses ``task.enqueue``, which is quicker.

        ``id``: the job's; the same call with the same id stores nothing twice.
        """
        job_id = self._new_ids(1)[0] if id is None else job_id_of(id)
        try:
            return await self._enqueue(call, job_id)
        except BaseException as error:
            note_ids(error, (job_id,))
            raise

    async def _enqueue(self, call: Call[Any], job_id: JobId) -> Inserted:
        storage = await self._storage()
        new = new_job(call, self._settings, job_id)
        if needs_limits(call):
            await Definitions(storage.limits).keep(call.task.needs)
        note = self._note("jobs.enqueue", f"job {job_id}", f"task {new.task}, queue {new.queue}")
        (answer,) = await storage.orders.insert([new], note)
        if answer.created and not answer.repeated and self._bus.heard:
            self._bus.publish(enqueued(new))
        if answer.expired is not None:
            await tell_expired(storage, self._bus, [answer.expired])
        return answer
