"""One typed API over what the store can tell and do."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from windlass.admin.explain import ExplainDesk
from windlass.admin.limits import BreakerReport, LimitDesk, LimitReport
from windlass.admin.queues import QueueDesk
from windlass.admin.schedules import ScheduleDesk, ScheduleReport
from windlass.core.event import ordered
from windlass.core.job import Attempt, Job, JobId
from windlass.core.rollup import Rollup
from windlass.core.state import Verb
from windlass.errors import JobNotFound
from windlass.storage.protocol import (
    CancelAnswer,
    JobFilter,
    QueueCounts,
    WorkerRecord,
)

__all__ = ["Admin", "BreakerReport", "LimitReport", "ScheduleReport"]


class Admin(ExplainDesk, LimitDesk, QueueDesk, ScheduleDesk):
    """``app.admin``. From code without a loop: ``app.blocking.run(app.admin.counts())``."""

    async def get(self, job_id: str) -> Job:
        """The stored job, whole; JobNotFound for an unknown id."""
        (job,) = await (await self._storage()).admin.get([JobId(job_id)])
        if job is None:
            raise JobNotFound(job_id)
        return job

    async def find(self, wanted: JobFilter | None = None, *, limit: int = 25) -> Sequence[Job]:
        """Matching jobs, newest first. The next page: the same filter with ``before=`` the
        last one's ``seq``.
        """
        return await (await self._storage()).admin.find(
            wanted or JobFilter(), limit=min(max(limit, 1), 1000)
        )

    async def history(self, job_id: str) -> Sequence[Attempt]:
        """The ended attempts of a job that did not succeed, oldest first."""
        return await (await self._storage()).admin.history(JobId(job_id))

    async def counts(self) -> Sequence[QueueCounts]:
        """How many jobs of each queue are where."""
        return await (await self._storage()).admin.counts()

    async def workers(self) -> Sequence[WorkerRecord]:
        """Every worker's row, dead ones included."""
        return await (await self._storage()).workers.workers()

    async def rollups(self, since: datetime, until: datetime) -> Sequence[Rollup]:
        """What happened per minute, queue and task."""
        return await (await self._storage()).admin.rollups(since, until)

    async def cancel(self, job_id: str) -> CancelAnswer:
        """Ask for a job's end."""
        (answer,) = await (await self._storage()).jobs.cancel([JobId(job_id)])
        if answer is CancelAnswer.CANCELLED:
            await self._tell(Verb.CANCEL, job_id)
        return answer

    async def requeue(self, job_id: str) -> Job:
        """Run a failed, cancelled or discarded job again, with a fresh budget of attempts."""
        (job,) = await (await self._storage()).admin.requeue([JobId(job_id)])
        await self._tell(Verb.REQUEUE, job_id)
        return job

    async def discard(self, job_id: str, *, reason: str = "discarded by an operator") -> None:
        """Give up on a failed job for good."""
        await (await self._storage()).admin.discard([JobId(job_id)], reason=reason)
        await self._tell(Verb.DISCARD, job_id)

    async def _tell(self, verb: Verb, job_id: str) -> None:
        """One event per transition: the job is read again only if somebody listens."""
        if self._bus.heard:
            storage = await self._storage()
            (job,) = await storage.admin.get([JobId(job_id)])
            if job is not None:
                self._bus.publish(ordered(verb, job, await storage.now()))

    async def run_now(self, job_id: str) -> bool:
        """Make a waiting job due now; False when it is not waiting."""
        (done,) = await (await self._storage()).admin.run_now([JobId(job_id)])
        return done
