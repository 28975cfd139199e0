"""The first start of a job ends its expiry, and releases a key held until then."""

from __future__ import annotations

from windlass._core.job.job import ClaimedJob
from windlass._core.job.outcome import Lost
from windlass._core.job.state import State
from windlass._core.job.transition import Transition, release, retry, snooze, throttle
from windlass._core.job.unique import Window
from windlass._storage.protocol.jobs import Inserted
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    DAY,
    HOUR,
    MINUTE,
    OOPS,
    a_job,
    add,
    at_most,
    claim,
    claim_one,
    end,
    ended,
    enlist,
    failed,
    happened,
    ids,
    keyed,
    limited,
    look,
    requeue,
    started,
)

__all__ = ["FirstStartConformance"]


def _given_back(job: ClaimedJob) -> Transition:
    """Return a release of a claim whose handler was never entered."""
    return release(job, by="w1", started=False)


class FirstStartConformance:
    """A job has started when its handler was entered; a claim alone is no start."""

    async def test_a_job_that_was_started_in_time_never_expires(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        jobs = await add(storage, *(a_job(expires=MINUTE, priority=p) for p in range(4)))
        first, second, third, fourth = await claim(storage, 4)
        await end(
            storage,
            retry(first, by="w1", error=OOPS, delay=HOUR),
            snooze(second, by="w1", delay=HOUR),
            throttle(third, by="w1", delay=HOUR),
            release(fourth, by="w1", delay=HOUR),
        )
        assert [(await look(storage, job)).expires_at for job in jobs] == [None] * 4
        clock.advance(DAY)
        assert list(await storage.maintenance.expire(10)) == []
        assert ids(await claim(storage, 4)) == jobs

    async def test_a_job_that_was_lost_has_been_started(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        running = await started(storage, a_job(expires=MINUTE), worker="gone")
        await happened(storage, running, Lost(OOPS), by="reaper")
        clock.advance(DAY)
        assert ids(await claim(storage, worker="gone")) == [running.claim.job]

    async def test_a_limited_job_that_was_started_in_time_never_expires(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await at_most(storage, api=1)
        running = await started(storage, limited("api", expires=MINUTE))
        await ended(storage, release(running, by="w1"))
        clock.advance(DAY)
        assert ids(await claim(storage)) == [running.claim.job]

    async def test_a_claim_that_was_given_back_before_the_start_keeps_the_expiry(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await at_most(storage, api=1)
        for job in (a_job(expires=MINUTE), limited("api", expires=MINUTE)):
            running = await started(storage, job)
            await ended(storage, _given_back(running))
            assert (await look(storage, running)).expires_at == clock.now() + MINUTE
            clock.advance(MINUTE)
            assert await claim(storage) == []
            assert (await look(storage, running)).state is State.DISCARDED

    async def test_claims_that_a_leaving_worker_does_not_mention_were_not_started(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        await add(storage, a_job(expires=MINUTE), keyed("k", Window.UNTIL_STARTED, expires=MINUTE))
        begun, other = await claim(storage, 2)
        await storage.workers.leave("w1", [release(begun, by="w1")])
        assert (await look(storage, begun)).expires_at is None
        kept = await look(storage, other)
        assert (kept.expires_at, kept.key_held) == (clock.now() + MINUTE, True)

    # --- keys held until the start --------------------------------------------------------------

    async def test_a_claim_that_was_given_back_before_the_start_takes_its_key_again(
        self, storage: Storage
    ) -> None:
        running = await started(storage, keyed("k", Window.UNTIL_STARTED))
        await ended(storage, _given_back(running))
        assert (await look(storage, running)).key_held
        (answer,) = await storage.jobs.insert([keyed("k", Window.UNTIL_STARTED)])
        assert answer == Inserted(running.claim.job, created=False)
        assert (await claim_one(storage)).claim.job == running.claim.job
        await add(storage, keyed("k", Window.UNTIL_STARTED))

    async def test_a_key_that_another_job_holds_by_now_stays_with_that_one(
        self, storage: Storage
    ) -> None:
        running = await started(storage, keyed("k", Window.UNTIL_STARTED))
        (other,) = await add(storage, keyed("k", Window.UNTIL_STARTED))
        await ended(storage, _given_back(running))
        assert not (await look(storage, running)).key_held
        (answer,) = await storage.jobs.insert([keyed("k", Window.UNTIL_STARTED)])
        assert answer == Inserted(other, created=False)

    async def test_of_several_given_back_together_the_one_that_came_first_takes_the_key(
        self, storage: Storage
    ) -> None:
        await enlist(storage)
        await add(storage, keyed("k", Window.UNTIL_STARTED))
        first = await claim_one(storage)
        await add(storage, keyed("k", Window.UNTIL_STARTED))
        second = await claim_one(storage)
        await end(storage, _given_back(second), _given_back(first))
        assert (await look(storage, first)).key_held
        assert not (await look(storage, second)).key_held

    async def test_a_job_that_was_started_once_does_not_take_its_key_again(
        self, storage: Storage
    ) -> None:
        running = await started(storage, keyed("k", Window.UNTIL_STARTED))
        await ended(storage, snooze(running, by="w1", delay=0 * MINUTE))
        await ended(storage, _given_back(await claim_one(storage)))
        assert not (await look(storage, running)).key_held

    async def test_a_requeued_job_does_not_take_its_key_again_either(
        self, storage: Storage
    ) -> None:
        dead = await failed(storage, keyed("k", Window.UNTIL_STARTED))
        await requeue(storage, dead)
        await ended(storage, _given_back(await claim_one(storage)))
        assert not (await look(storage, dead)).key_held

    async def test_a_copied_job_that_was_started_once_does_not_take_its_key_again(
        self, storage: Storage, elsewhere: Storage
    ) -> None:
        running = await started(storage, keyed("k", Window.UNTIL_STARTED))
        await ended(storage, snooze(running, by="w1", delay=0 * MINUTE))
        await elsewhere.moving.restore(await storage.moving.dump(after=0, limit=10))
        await enlist(elsewhere)
        await ended(elsewhere, _given_back(await claim_one(elsewhere)))
        assert not (await look(elsewhere, running.claim.job)).key_held
