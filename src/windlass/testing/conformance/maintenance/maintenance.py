"""`MaintenanceStore`: background work in bounded steps."""

from __future__ import annotations

from windlass._core.job.outcome import GaveUp, Lost, Succeeded
from windlass._core.job.state import State
from windlass._core.limits.limit import LimitSpec
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    DAY,
    HOUR,
    INSTANT,
    MINUTE,
    OOPS,
    a_job,
    add,
    at_most,
    claim,
    enlist,
    happened,
    ids,
    keyed,
    limited,
    look,
    requeue,
    started,
    total,
)

__all__ = ["MaintenanceConformance"]


class MaintenanceConformance:
    """Promotion, expiry, retention."""

    async def test_promotion_continues_in_chunks_until_nothing_is_due(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await add(storage, *(a_job(delay=MINUTE, queue=queue) for queue in "ababa"))
        assert await storage.maintenance.promote(10) == 0
        clock.advance(MINUTE)
        assert [await storage.maintenance.promote(2) for _ in range(4)] == [2, 2, 1, 0]

    async def test_promotion_changes_neither_order_nor_due_time(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        (late,) = await add(storage, a_job(delay=2 * MINUTE))
        (soon,) = await add(storage, a_job(delay=MINUTE))
        due = (await look(storage, soon)).due
        clock.advance(HOUR)
        await storage.maintenance.promote(10)
        assert (await look(storage, soon)).due == due
        assert ids(await claim(storage, 10)) == [soon, late]

    async def test_a_promoted_job_is_claimed_once(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        wanted = await add(storage, a_job(delay=MINUTE))
        clock.advance(MINUTE)
        await storage.maintenance.promote(10)
        assert ids(await claim(storage, 10)) == wanted
        assert await storage.maintenance.promote(10) == 0
        assert await claim(storage, 10) == []

    async def test_a_limited_job_is_promoted_into_its_lane(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await storage.limits.define([LimitSpec(name="db", concurrency=1)])
        await started(storage, limited("db"))
        await add(storage, limited("db", delay=MINUTE))
        clock.advance(MINUTE)
        await storage.maintenance.promote(10)
        assert await claim(storage, 10) == []

    async def test_the_next_due_time_is_known(self, storage: Storage, clock: VirtualClock) -> None:
        assert await storage.maintenance.next_due() is None
        await add(storage, a_job(), a_job(delay=HOUR), a_job(delay=MINUTE, queue="b"))
        assert await storage.maintenance.next_due() == clock.now() + MINUTE

    async def test_the_next_due_time_of_some_queues_is_known(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await add(storage, a_job(delay=MINUTE), *(a_job(delay=HOUR, queue=q) for q in "ab"))
        next_due = storage.maintenance.next_due
        assert await next_due(["default", "a"]) == clock.now() + MINUTE
        assert await next_due(["b", "a"]) == clock.now() + HOUR
        assert await next_due(["empty"]) is None
        assert await next_due([]) is None

    async def test_a_cancelled_job_is_not_the_next_due(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        soon, _ = await add(storage, a_job(delay=MINUTE), a_job(delay=HOUR))
        await storage.jobs.cancel([soon])
        assert await storage.maintenance.next_due() == clock.now() + HOUR

    async def test_expired_jobs_are_named(self, storage: Storage, clock: VirtualClock) -> None:
        await at_most(storage, db=1)
        late = await add(storage, a_job(expires=MINUTE), limited("db", expires=MINUTE))
        await add(storage, a_job(expires=DAY), a_job())
        clock.advance(HOUR)
        assert {*await storage.maintenance.expire(10)} == {*late}

    async def test_expired_jobs_are_discarded_in_chunks(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        jobs = await add(storage, *(a_job(expires=MINUTE, delay=DAY) for _ in range(3)))
        (spared,) = await add(storage, a_job(expires=DAY))
        assert list(await storage.maintenance.expire(10)) == []
        clock.advance(HOUR)
        told = [list(await storage.maintenance.expire(2)) for _ in range(3)]
        assert [len(chunk) for chunk in told] == [2, 1, 0]
        job = await look(storage, jobs[0])
        assert (job.state, job.reason, job.finished_at) == (
            State.DISCARDED,
            "expired",
            clock.now(),
        )
        assert (await look(storage, spared)).state is State.WAITING

    async def test_jobs_are_pruned_by_state_and_age(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # TTL-4: strictly older
        won, lost = await started(storage), await started(storage)
        await happened(storage, won, Succeeded())
        await happened(storage, lost, GaveUp(OOPS))
        clock.advance(DAY)
        prune = storage.maintenance.prune
        assert await prune(state=State.SUCCEEDED, older_than=DAY, limit=10) == 0
        clock.advance(INSTANT)
        assert await prune(state=State.SUCCEEDED, older_than=DAY, limit=10) == 1
        assert list(await storage.admin.get([won.claim.job])) == [None]
        assert (await look(storage, lost)).state is State.FAILED

    async def test_pruning_deletes_in_chunks_with_the_history(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # TTL-4, ADMIN-20, forge delete_batch_by_status_processes_in_chunks
        jobs = [await started(storage) for _ in range(5)]
        for job in jobs:
            await happened(storage, job, GaveUp(OOPS))
        running = await started(storage)
        clock.advance(HOUR)
        prune = storage.maintenance.prune
        counts = [await prune(state=State.FAILED, older_than=MINUTE, limit=2) for _ in range(4)]
        assert counts == [2, 2, 1, 0]
        assert list(await storage.admin.history(jobs[0].claim.job)) == []
        assert (await look(storage, running)).state is State.RUNNING

    async def test_a_job_that_is_back_at_work_is_not_pruned(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # TTL-10, H-7
        failed = await started(storage)
        await happened(storage, failed, GaveUp(OOPS))
        await requeue(storage, failed.claim.job)
        clock.advance(DAY)
        for state in State:
            assert await storage.maintenance.prune(state=state, older_than=MINUTE, limit=9) == 0
        assert ids(await claim(storage)) == [failed.claim.job]

    async def test_a_pruned_job_is_gone_for_good(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        done = await started(storage, keyed("k"))
        await happened(storage, done, Succeeded())
        clock.advance(HOUR)
        await storage.maintenance.prune(state=State.SUCCEEDED, older_than=MINUTE, limit=10)
        (word,) = await storage.jobs.settled([done.claim.job])
        assert word.state is None
        assert await total(storage) == 0

    async def test_workers_that_ended_long_ago_are_forgotten(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage, "gone", "dead", "live")
        await storage.workers.leave("gone", [])
        await storage.workers.bury(["dead"])
        assert await storage.maintenance.prune_workers(older_than=HOUR, limit=10) == 0
        clock.advance(DAY)
        assert await storage.maintenance.prune_workers(older_than=HOUR, limit=1) == 1
        assert await storage.maintenance.prune_workers(older_than=HOUR, limit=10) == 1
        (record,) = await storage.workers.workers()
        assert record.start.id == "live"

    async def test_a_worker_that_holds_a_claim_is_not_forgotten(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        running = await started(storage)
        await storage.workers.bury(["w1"])
        clock.advance(DAY)
        assert await storage.maintenance.prune_workers(older_than=HOUR, limit=10) == 0
        await happened(storage, running, Lost(OOPS), by="reaper")
        assert await storage.maintenance.prune_workers(older_than=HOUR, limit=10) == 1

    async def test_tidying_loses_nothing(self, storage: Storage) -> None:
        await storage.limits.define([LimitSpec(name="db", concurrency=1)])
        running = await started(storage, limited("db"))
        (waiting,) = await add(storage, limited("db"))
        await storage.maintenance.tidy()
        assert (await look(storage, running)).state is State.RUNNING
        assert (await look(storage, waiting)).state is State.WAITING
        assert await claim(storage) == []
