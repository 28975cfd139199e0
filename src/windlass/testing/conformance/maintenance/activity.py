"""Whether there is anything to do: what loops ask before they take a write lock or go home."""

from __future__ import annotations

from windlass._core.job.outcome import Succeeded
from windlass._core.limits.limit import LimitSpec
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.jobs.solo_runs import suspected
from windlass.testing.conformance.steps import (
    MINUTE,
    a_job,
    add,
    happened,
    limited,
    started,
)

__all__ = ["ActivityConformance"]


class ActivityConformance:
    """`JobStore.active`: running, or due and not paused. `JobStore.claimable`: worth a claim."""

    async def test_a_paused_queue_is_not_claimable(self, storage: Storage) -> None:
        await add(storage, a_job(), a_job(queue="b"))
        await storage.admin.pause("default")
        assert not (await storage.jobs.outlook(["default"])).claimable
        assert (await storage.jobs.outlook(["default", "b"])).claimable
        await storage.admin.resume("default")
        assert (await storage.jobs.outlook(["default"])).claimable

    async def test_a_job_to_run_alone_is_claimable_only_if_its_limits_admit_it(
        self, storage: Storage
    ) -> None:
        await storage.limits.define([LimitSpec(name="db", concurrency=1)])
        await suspected(storage, limited("db"))
        assert (await storage.jobs.outlook(["default"])).claimable
        running = await started(storage, limited("db"))
        assert not (await storage.jobs.outlook(["default"])).claimable
        await happened(storage, running, Succeeded())
        assert (await storage.jobs.outlook(["default"])).claimable

    async def test_a_due_job_is_activity_in_its_own_queue(self, storage: Storage) -> None:
        assert not await storage.jobs.active(["a", "b"])
        await add(storage, a_job(queue="a"))
        assert await storage.jobs.active(["b", "a"])
        assert not await storage.jobs.active(["b"])
        assert not await storage.jobs.active([])

    async def test_a_running_job_is_activity_until_it_ends(self, storage: Storage) -> None:
        job = await started(storage)
        assert await storage.jobs.active(["default"])
        assert not await storage.jobs.active(["other"])
        await happened(storage, job, Succeeded())
        assert not await storage.jobs.active(["default"])

    async def test_a_later_job_is_activity_from_when_it_is_due(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await add(storage, a_job(delay=MINUTE))
        assert not await storage.jobs.active(["default"])
        clock.advance(MINUTE)
        assert await storage.jobs.active(["default"])

    async def test_a_job_that_waits_for_its_limit_is_activity(self, storage: Storage) -> None:
        await storage.limits.define([LimitSpec(name="db", concurrency=1)])
        await started(storage, limited("db"))
        await add(storage, limited("db", queue="other"))
        assert await storage.jobs.active(["other"])

    async def test_a_paused_queue_is_active_only_while_something_runs(
        self, storage: Storage
    ) -> None:
        job = await started(storage)
        await add(storage, a_job())
        await storage.admin.pause("default")
        assert await storage.jobs.active(["default"])
        await happened(storage, job, Succeeded())
        assert not await storage.jobs.active(["default"])
        await storage.admin.resume("default")
        assert await storage.jobs.active(["default"])
