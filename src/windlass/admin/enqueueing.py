"""Jobs that people ask for, recorded like every other order."""

from __future__ import annotations

from windlass.admin.desk import Desk
from windlass.client import needs_limits, new_job
from windlass.core.event import enqueued
from windlass.limits import Definitions
from windlass.storage.answers import Inserted
from windlass.task import Call

__all__ = ["EnqueueDesk"]


class EnqueueDesk(Desk):
    """The part of ``app.admin`` that enqueues."""

    async def enqueue(self, call: Call) -> Inserted:
        """Store a call made by ``task.call(…)`` or ``task.options(…).call(…)``, with a record of
        who asked for it. Code of an application uses ``task.enqueue``, which is quicker.
        """
        storage = await self._storage()
        (job_id,) = self._new_ids(1)
        new = new_job(call, self._settings, job_id)
        if needs_limits(call):
            await Definitions(storage.limits).keep(call.task.needs)
        note = self._note("jobs.enqueue", f"job {job_id}", f"task {new.task}, queue {new.queue}")
        (answer,) = await storage.orders.insert([new], note)
        if answer.created and self._bus.heard:
            self._bus.publish(enqueued(new))
        return answer
