"""Jobs that may not start any more."""

from __future__ import annotations

from windlass._core.job.job import LimitUse
from windlass._core.job.state import State
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    DAY,
    HOUR,
    INSTANT,
    MINUTE,
    a_job,
    add,
    ask,
    claim,
    enlist,
    ids,
    look,
    started,
    total,
)

__all__ = ["ExpiryConformance"]


class ExpiryConformance:
    """Discarded when they are met, never claimed."""

    async def test_an_expired_job_is_discarded_and_never_claimed(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        stale, fresh = await add(storage, a_job(expires=MINUTE), a_job())
        clock.advance(HOUR)
        assert ids(await claim(storage, 10)) == [fresh]
        job = await look(storage, stale)
        assert (job.state, job.reason, job.finished_at) == (
            State.DISCARDED,
            "expired",
            clock.now(),
        )
        assert job.attempt == 0

    async def test_a_claim_names_the_jobs_it_discarded(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        stale = await add(storage, *(a_job(expires=MINUTE, priority=p) for p in (0, 1)))
        await add(storage, a_job())
        clock.advance(HOUR)
        assert list((await ask(storage, 10)).expired) == stale
        assert list((await ask(storage, 10)).expired) == []

    async def test_a_job_is_claimed_before_its_expiry(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        (wanted,) = await add(storage, a_job(expires=MINUTE))
        clock.advance(MINUTE - INSTANT)
        assert ids(await claim(storage)) == [wanted]

    async def test_a_job_expires_at_the_very_instant(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # inclusive
        await enlist(storage)
        (wanted,) = await add(storage, a_job(expires=MINUTE))
        clock.advance(MINUTE)
        assert await claim(storage) == []
        assert (await look(storage, wanted)).state is State.DISCARDED

    async def test_a_running_job_does_not_expire(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        running = await started(storage, a_job(expires=MINUTE))
        clock.advance(HOUR)
        assert list(await storage.maintenance.expire(10)) == []
        assert (await look(storage, running)).state is State.RUNNING

    async def test_an_expired_head_of_a_closed_lane_is_worth_a_claim(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        await storage.limits.define([LimitSpec(name="api", rate=Rate(1, DAY, 5))])
        await started(storage, a_job(limits=(LimitUse("api", cost=3.0),)))
        await add(storage, a_job(limits=(LimitUse("api", cost=5.0),), expires=MINUTE))
        (behind,) = await add(storage, a_job(limits=(LimitUse("api"),)))
        assert await claim(storage, 10) == []
        assert not (await storage.jobs.outlook(["default"])).claimable
        clock.advance(MINUTE)
        assert (await storage.jobs.outlook(["default"])).claimable
        assert ids(await claim(storage, 10)) == [behind]
        assert not (await storage.jobs.outlook(["default"])).claimable

    async def test_one_claim_discards_a_bounded_number_of_expired_jobs(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        await add(storage, *(a_job(expires=MINUTE) for _ in range(3000)))
        clock.advance(HOUR)
        await claim(storage, 10)
        (counts,) = await storage.admin.counts()
        assert 0 < counts.discarded < 3000

    async def test_a_claim_that_stopped_at_a_bound_tells_to_ask_again_at_once(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        await add(storage, *(a_job(expires=MINUTE) for _ in range(3000)))
        await add(storage, a_job(), a_job(delay=DAY))
        clock.advance(HOUR)
        reply = await ask(storage, 10)
        assert list(reply.jobs) == []
        assert reply.next_at == clock.now()

    async def test_claims_get_past_any_number_of_expired_jobs(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        await add(storage, *(a_job(expires=MINUTE) for _ in range(1500)))
        (fresh,) = await add(storage, a_job())
        clock.advance(HOUR)
        for _ in range(await total(storage)):
            if jobs := await claim(storage):
                assert ids(jobs) == [fresh]
                return
        raise AssertionError("the job behind the expired ones was never claimed")
