"""One typed API over what the store can tell and do."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

import msgspec

from windlass.core.event import ordered
from windlass.core.job import Attempt, Job, JobId
from windlass.core.limit import LimitSpec, Rate
from windlass.core.rollup import Rollup
from windlass.core.state import Verb
from windlass.errors import InvalidArgument, JobNotFound, LimitUnknown
from windlass.limits import Limit, is_written
from windlass.observe.bus import Bus
from windlass.storage.protocol import (
    CancelAnswer,
    JobFilter,
    LimitState,
    QueueCounts,
    Storage,
    WorkerRecord,
)

__all__ = ["Admin", "LimitReport"]


class LimitReport(msgspec.Struct, frozen=True):
    """A limit's numbers, and its budgets that are in use or were a short while ago."""

    spec: LimitSpec
    budgets: Sequence[LimitState]
    """By key."""


class Admin:
    """``app.admin``. From code without a loop: ``app.blocking.run(app.admin.counts())``."""

    def __init__(self, storage: Callable[[], Awaitable[Storage]], bus: Bus) -> None:
        """``storage`` opens on first use; accepted orders are told on ``bus``."""
        self._storage = storage
        self._bus = bus

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

    async def pause(self, queue: str) -> None:
        """Claim nothing from this queue until it is resumed."""
        await (await self._storage()).admin.pause(queue)

    async def resume(self, queue: str) -> None:
        """Undo `pause`."""
        await (await self._storage()).admin.resume(queue)

    async def limits(self) -> Sequence[LimitReport]:
        """Every limit, by name."""
        store = (await self._storage()).limits
        specs = [spec for spec in await store.specs() if not is_written(spec)]
        return [LimitReport(spec, await store.states(spec.name)) for spec in specs]

    async def set_limit(
        self, name: str, *, rate: Rate | None = None, concurrency: int | None = None
    ) -> LimitSpec:
        """Change a limit for the whole cluster, from the next claim on. What is left out stays.

        It holds until the numbers in the code change: a restart does not bring the old ones back.
        """
        if rate is None and concurrency is None:
            message = f"say what limit {name!r} should be: rate=Rate(n, per) or concurrency=n"
            raise InvalidArgument(message)
        Limit(name, rate, concurrency)  # refuses what no task could ask for
        store = (await self._storage()).limits
        specs = {spec.name: spec for spec in await store.specs() if not is_written(spec)}
        if name not in specs:
            raise LimitUnknown(name, specs)
        old = specs[name]
        new = msgspec.structs.replace(
            old, rate=rate or old.rate, concurrency=concurrency or old.concurrency
        )
        await store.define([new])
        return new
