"""Queues with a bound on running jobs, in the whole cluster."""

from __future__ import annotations

import asyncio

from windlass._core.job.outcome import (
    Cancelled,
    Crashed,
    GaveUp,
    Interrupted,
    Lost,
    Outcome,
    Raised,
    Snoozed,
    Succeeded,
    Throttled,
)
from windlass._core.job.state import State
from windlass._core.job.transition import succeed
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._core.limits.queue_settings import QueueSettings
from windlass._storage.protocol.jobs import Want
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.jobs.solo_runs import suspected
from windlass.testing.conformance.queues.settings import settle
from windlass.testing.conformance.steps import (
    HOUR,
    MINUTE,
    OOPS,
    a_job,
    add,
    ask,
    claim,
    claim_one,
    ended,
    enlist,
    happened,
    ids,
    limited,
    look,
    requeue,
    started,
    succeeded,
)

__all__ = ["MaxRunningConformance"]

OUTCOMES: tuple[Outcome, ...] = (
    Succeeded(),
    Raised(OOPS),
    GaveUp(OOPS),
    Crashed(OOPS),
    Snoozed(HOUR),
    Throttled(HOUR),
    Interrupted(),
    Cancelled(),
    Lost(OOPS),
)


async def let_run(storage: Storage, most: int, queue: str = "default") -> None:
    """Set the bound of a queue, and return workers to claim with."""
    await enlist(storage, "w1", "w2")
    await settle(storage, QueueSettings(max_running=most), queue)


class MaxRunningConformance:
    """`QueueSettings.max_running`: usage is what the running rows say."""

    async def test_no_more_than_may_run_are_claimed_across_workers(self, storage: Storage) -> None:
        await let_run(storage, 3)
        wanted = await add(storage, *(a_job() for _ in range(5)))
        assert ids(await claim(storage, 2)) == wanted[:2]
        assert ids(await claim(storage, 10, worker="w2")) == wanted[2:3]
        assert await claim(storage, 10) == []
        assert await claim(storage, 10, worker="w2") == []

    async def test_concurrent_claimers_never_exceed_it(self, storage: Storage) -> None:
        workers = [f"w{n}" for n in range(10)]
        await enlist(storage, *workers)
        await settle(storage, QueueSettings(max_running=4))
        await add(storage, *(a_job() for _ in range(40)))
        for _ in range(5):
            replies = await asyncio.gather(*(claim(storage, 3, worker=w) for w in workers))
            running = [job for jobs in replies for job in jobs]
            assert len(running) == 4
            assert len(set(ids(running))) == 4
            await asyncio.gather(*(succeeded(storage, job) for job in running))

    async def test_every_ending_makes_room_for_one(self, storage: Storage) -> None:
        await let_run(storage, 1)
        for outcome in OUTCOMES:
            running = await started(storage)
            (behind,) = await add(storage, a_job(priority=-1))
            assert await claim(storage, 10) == []
            await happened(storage, running, outcome, by="w1")
            following = await claim_one(storage)
            assert following.claim.job == behind, outcome
            await succeeded(storage, following)
            await storage.jobs.cancel([running.claim.job])

    async def test_a_success_that_is_not_kept_makes_room(self, storage: Storage) -> None:
        await let_run(storage, 1)
        running = await started(storage)
        (behind,) = await add(storage, a_job())
        await ended(storage, succeed(running, by="w1", result=None, keep=False))
        assert ids(await claim(storage, 10)) == [behind]

    async def test_a_cancel_request_makes_no_room_until_the_claim_ends(
        self, storage: Storage
    ) -> None:
        await let_run(storage, 1)
        running = await started(storage)
        (behind,) = await add(storage, a_job())
        await storage.jobs.cancel([running.claim.job])
        assert await claim(storage) == []
        await happened(storage, running, Raised(OOPS))
        assert ids(await claim(storage)) == [behind]

    async def test_declaring_a_worker_dead_makes_no_room_and_reaping_does(
        self, storage: Storage
    ) -> None:
        await let_run(storage, 1)
        await started(storage)
        (behind,) = await add(storage, a_job(priority=-1))
        await storage.workers.bury(["w1"])
        assert await claim(storage, worker="w2") == []
        (orphan,) = await storage.workers.orphans(10)
        await happened(storage, orphan, Lost(OOPS), by="w2")
        assert ids(await claim(storage, worker="w2")) == [behind]

    async def test_a_worker_that_leaves_makes_room(self, storage: Storage) -> None:
        await let_run(storage, 2)
        running = [await started(storage) for _ in range(2)]
        await add(storage, a_job())
        await storage.workers.leave("w1", [])
        assert ids(await claim(storage, 10, worker="w2")) == ids(running)

    async def test_cancelling_a_waiting_job_makes_no_room(self, storage: Storage) -> None:
        await let_run(storage, 1)
        await started(storage)
        head, _ = await add(storage, a_job(), a_job())
        await storage.jobs.cancel([head])
        assert await claim(storage, 10) == []

    async def test_a_requeued_job_counts_again(self, storage: Storage) -> None:
        await let_run(storage, 1)
        failed = await started(storage)
        await happened(storage, failed, GaveUp(OOPS))
        await started(storage)
        await requeue(storage, failed.claim.job)
        assert await claim(storage, 10) == []

    async def test_a_job_to_run_alone_counts_and_is_counted(self, storage: Storage) -> None:
        await let_run(storage, 1)
        await suspected(storage)
        assert (await ask(storage)).solo_due
        running = await started(storage)
        assert not (await ask(storage)).solo_due
        assert await claim(storage, 10, solo=True) == []
        await succeeded(storage, running)
        await add(storage, a_job())
        await claim_one(storage, solo=True)
        assert await claim(storage, 10) == []

    async def test_each_queue_of_one_claim_has_its_own_bound(self, storage: Storage) -> None:
        await let_run(storage, 1, "a")
        await let_run(storage, 2, "b")
        await add(storage, *(a_job(queue=queue) for queue in "aaabbbccc"))
        wants = [Want(queue, 5) for queue in "abc"]
        reply = await storage.jobs.claim("w1", wants, total=15)
        assert [job.queue for job in reply.jobs] == ["a", "b", "b", "c", "c", "c"]
        again = await storage.jobs.claim("w2", wants, total=15)
        assert list(again.jobs) == []

    async def test_a_queue_that_is_wanted_twice_has_one_bound(self, storage: Storage) -> None:
        await let_run(storage, 3)
        wanted = await add(storage, *(a_job() for _ in range(5)))
        wants = [Want("default", 2), Want("default", 2)]
        reply = await storage.jobs.claim("w1", wants, total=10)
        assert [job.claim.job for job in reply.jobs] == wanted[:3]

    async def test_a_full_queue_does_not_stop_others(self, storage: Storage) -> None:
        await let_run(storage, 1)
        await started(storage)
        await add(storage, a_job(priority=-5))
        (other,) = await add(storage, a_job(queue="b"))
        wants = [Want("default", 5), Want("b", 5)]
        reply = await storage.jobs.claim("w1", wants, total=10)
        assert [job.claim.job for job in reply.jobs] == [other]

    async def test_lowered_below_what_runs_it_stops_new_starts_and_no_running_ones(
        self, storage: Storage
    ) -> None:
        await let_run(storage, 3)
        running = [await started(storage) for _ in range(3)]
        await add(storage, a_job())
        await let_run(storage, 1)
        for job in running[:2]:
            assert (await look(storage, job)).state is State.RUNNING
            await succeeded(storage, job)
            assert await claim(storage, 10) == []
        await succeeded(storage, running[2])
        assert len(await claim(storage, 10)) == 1

    async def test_set_while_jobs_run_it_counts_them(self, storage: Storage) -> None:
        for _ in range(2):
            await started(storage)
        await add(storage, a_job(), a_job())
        await let_run(storage, 3)
        assert len(await claim(storage, 10, worker="w2")) == 1

    async def test_a_full_queue_is_not_claimable_until_there_is_room(
        self, storage: Storage
    ) -> None:
        await let_run(storage, 1)
        running = await started(storage)
        await add(storage, a_job())
        assert not (await storage.jobs.outlook(["default"])).claimable
        assert await storage.jobs.active(["default"])
        await succeeded(storage, running)
        assert (await storage.jobs.outlook(["default"])).claimable

    async def test_a_job_that_is_held_back_by_a_full_queue_spends_no_token(
        self, storage: Storage
    ) -> None:
        await let_run(storage, 1)
        await storage.limits.define([LimitSpec(name="api", rate=Rate(1, HOUR))])
        running = await started(storage)
        (limited_job,) = await add(storage, limited("api"))
        assert await claim(storage, 10) == []
        await succeeded(storage, running)
        assert ids(await claim(storage, 10)) == [limited_job]

    async def test_a_job_that_its_limits_hold_back_takes_no_room(self, storage: Storage) -> None:
        await let_run(storage, 2)
        await storage.limits.define([LimitSpec(name="db", concurrency=1)])
        await started(storage, limited("db"))
        await add(storage, limited("db", priority=-5))
        (plain,) = await add(storage, a_job())
        assert ids(await claim(storage, 10)) == [plain]

    async def test_jobs_that_fall_due_wait_for_room(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await let_run(storage, 1)
        running = await started(storage)
        (later,) = await add(storage, a_job(delay=MINUTE))
        clock.advance(MINUTE)
        assert await claim(storage, 10) == []
        assert not (await storage.jobs.outlook(["default"])).claimable
        await succeeded(storage, running)
        assert ids(await claim(storage, 10)) == [later]

    async def test_an_expired_job_takes_no_room(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await let_run(storage, 1)
        expired, plain = await add(storage, a_job(expires=MINUTE), a_job())
        clock.advance(MINUTE)
        assert ids(await claim(storage, 10)) == [plain]
        assert (await look(storage, expired)).state is State.DISCARDED
