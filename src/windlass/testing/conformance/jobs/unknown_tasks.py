"""Jobs that a worker could not run: what is kept of them, and who may have them next."""

from __future__ import annotations

from datetime import timedelta

from windlass._core.job.job import AttemptError, ClaimedJob
from windlass._core.job.outcome import HEAD_START, Interrupted, Missing, Raised, Snoozed
from windlass._core.job.transition import release
from windlass._storage.protocol.jobs import ClaimReply, Want
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    HOUR,
    INSTANT,
    MINUTE,
    OOPS,
    a_job,
    add,
    claim,
    claim_one,
    ended,
    enlist,
    happened,
    ids,
    look,
    started,
)

__all__ = ["UnknownTaskConformance"]

_WHY = AttemptError("UnknownTask", "no such task")
_NOW = timedelta(0)


async def missed(storage: Storage, delay: timedelta = MINUTE) -> ClaimedJob:
    """Return a job that ``w1`` could not run, due again after ``delay``."""
    running = await started(storage)
    await ended(storage, release(running, by="w1", delay=delay, missed=_WHY))
    return running


async def politely(storage: Storage, limit: int = 10) -> ClaimReply:
    """Claim as a worker does that could not run something."""
    wants = [Want("default", limit)]
    return await storage.jobs.claim("w1", wants, total=limit, head_start=HEAD_START)


class UnknownTaskConformance:
    """Misses."""

    async def test_a_miss_says_why_and_leaves_history_and_last_error_alone(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        running = await started(storage)
        await happened(storage, running, Raised(OOPS, _NOW))
        before = await storage.admin.history(running.claim.job)
        for why in ("no such task", "other arguments"):
            await happened(storage, await claim_one(storage), Missing(AttemptError("M", why)))
            job = await look(storage, running)
            assert (job.missed_why, job.error) == (f"M: {why}", OOPS)
            assert await storage.admin.history(running.claim.job) == before
            clock.advance(HOUR)
        again = await claim_one(storage)
        assert again.attempt == 2, "nothing was paid for the misses"

    async def test_why_a_job_was_missed_is_kept_by_a_release_and_by_nothing_else(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await missed(storage)
        clock.advance(MINUTE)
        again = await claim_one(storage)
        await happened(storage, again, Interrupted())
        assert (await look(storage, again)).missed_why == _WHY.message
        await happened(storage, await claim_one(storage), Snoozed(MINUTE))
        job = await look(storage, again)
        assert (job.missed_at, job.missed_why) == (None, None)

    async def test_misses_push_nothing_out_of_the_history(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        running = await started(storage, a_job(max_attempts=50))
        await happened(storage, running, Raised(OOPS, _NOW))
        for _ in range(40):
            await happened(storage, await claim_one(storage), Missing(_WHY))
            clock.advance(timedelta(minutes=11))
        last = await claim_one(storage)
        await happened(storage, last, Raised(OOPS, _NOW))
        found = await storage.admin.history(last.claim.job)
        assert [past.claim_number for past in found] == [1, last.claim.number]

    async def test_others_have_a_head_start_for_a_missed_job(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        job = await missed(storage)
        clock.advance(MINUTE + HEAD_START - INSTANT)
        assert ids((await politely(storage)).jobs) == []
        assert ids(await claim(storage, 10)) == [job.claim.job]

    async def test_after_the_head_start_a_missed_job_is_for_everyone(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        job = await missed(storage)
        clock.advance(MINUTE + HEAD_START)
        assert ids((await politely(storage)).jobs) == [job.claim.job]

    async def test_a_head_start_holds_back_no_other_job(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await missed(storage)
        wanted = await add(storage, a_job(delay=MINUTE), a_job())
        clock.advance(MINUTE)
        assert ids((await politely(storage)).jobs) == wanted[::-1]

    async def test_a_claim_says_when_the_head_start_is_over(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await missed(storage)
        due = clock.now() + MINUTE
        clock.advance(MINUTE)
        assert (await politely(storage)).next_at == due + HEAD_START
        soon = HEAD_START / 2
        await add(storage, a_job(delay=soon))
        assert (await politely(storage)).next_at == due + soon

    async def test_promotion_leaves_missed_jobs_to_claims(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        job = await missed(storage)
        await add(storage, a_job(delay=MINUTE, queue="other"))
        clock.advance(MINUTE)
        assert await storage.maintenance.promote(10) == 1
        assert ids((await politely(storage)).jobs) == []
        assert ids(await claim(storage)) == [job.claim.job]

    async def test_a_missed_job_that_is_cancelled_leaves_its_place(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        job = await missed(storage)
        await storage.jobs.cancel([job.claim.job])
        clock.advance(HOUR)
        assert await storage.maintenance.next_due() is None
        assert ids(await claim(storage, 10)) == []

    async def test_a_missed_job_is_worth_a_claim_when_it_is_due(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await missed(storage)
        assert not (await storage.jobs.outlook(["default"])).claimable
        clock.advance(MINUTE)
        assert (await storage.jobs.outlook(["default"])).claimable
        assert await storage.jobs.active(["default"])
        await enlist(storage, "w2")
        assert len(await claim(storage, worker="w2")) == 1
