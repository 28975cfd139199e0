"""Jobs under suspicion: they wait apart and run alone."""

from __future__ import annotations

from windlass._core.job.job import AttemptError, ClaimedJob, NewJob
from windlass._core.job.outcome import Interrupted, Lost, Raised
from windlass._core.job.state import State
from windlass._core.job.transition import retry
from windlass._core.limits.limit import LimitSpec
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    HOUR,
    MINUTE,
    OOPS,
    a_job,
    add,
    ask,
    at_most,
    claim,
    claim_one,
    ended,
    happened,
    ids,
    limited,
    look,
    started,
    succeeded,
)

__all__ = ["SoloConformance"]

GONE = AttemptError("WorkerLost", "the worker did not come back")


async def suspected(storage: Storage, job: NewJob | None = None) -> ClaimedJob:
    """Return a job that waits to run alone, due now."""
    running = await started(storage, job)
    await ended(storage, retry(running, by="w1", error=GONE, delay=0 * MINUTE, lost=2, solo=True))
    return running


class SoloConformance:
    """The solo mark, and the lost-in-a-row count it comes from."""

    async def test_a_job_marked_solo_is_not_claimed_with_others(self, storage: Storage) -> None:
        await suspected(storage, a_job(priority=-1))
        (plain,) = await add(storage, a_job())
        assert ids(await claim(storage, 10)) == [plain]

    async def test_callers_learn_that_a_solo_job_waits(self, storage: Storage) -> None:
        await suspected(storage)
        assert (await ask(storage, 10)).solo_due
        assert not (await ask(storage, 10, queue="other")).solo_due

    async def test_a_solo_claim_returns_exactly_one_such_job(self, storage: Storage) -> None:
        first = await suspected(storage)
        await suspected(storage)
        await add(storage, a_job(priority=-9))
        (alone,) = await claim(storage, 10, solo=True)
        assert (alone.claim.job, alone.solo, alone.lost) == (first.claim.job, True, 2)

    async def test_a_solo_claim_brings_no_ordinary_job(self, storage: Storage) -> None:
        await started(storage)
        await add(storage, a_job())
        assert await claim(storage, 10, solo=True) == []

    async def test_a_job_marked_solo_waits_for_its_due_time(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        running = await started(storage)
        await ended(storage, retry(running, by="w1", error=GONE, delay=MINUTE, lost=2, solo=True))
        assert not (await ask(storage, 10)).solo_due
        assert await claim(storage, 10, solo=True) == []
        clock.advance(MINUTE)
        assert (await ask(storage, 10)).solo_due
        assert ids(await claim(storage, 10, solo=True)) == [running.claim.job]

    async def test_limits_hold_for_jobs_that_run_alone(self, storage: Storage) -> None:
        await storage.limits.define([LimitSpec(name="one", concurrency=1)])
        await suspected(storage, limited("one"))
        await started(storage, limited("one"))
        assert await claim(storage, 10, solo=True) == []

    async def test_a_solo_job_with_closed_limits_is_not_announced(
        self, storage: Storage
    ) -> None:  # an empty worker would wait for it in vain
        await at_most(storage, one=1)
        await suspected(storage, limited("one"))
        assert (await ask(storage)).solo_due
        running = await started(storage, limited("one"))
        assert not (await ask(storage)).solo_due
        await succeeded(storage, running)
        assert (await ask(storage)).solo_due

    async def test_a_job_that_runs_alone_counts_against_its_limits(self, storage: Storage) -> None:
        await storage.limits.define([LimitSpec(name="one", concurrency=1)])
        await suspected(storage, limited("one"))
        await add(storage, limited("one"))
        await claim_one(storage, solo=True)
        assert await claim(storage, 10) == []

    async def test_after_two_losses_in_a_row_a_job_runs_alone(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        running = await started(storage)
        for lost in (1, 2):
            await happened(storage, running, Lost(GONE), by="reaper")
            clock.advance(HOUR)
            running = await claim_one(storage, solo=lost == 2)
            assert (running.lost, running.solo) == (lost, lost == 2)

    async def test_a_third_loss_alone_fails_the_job(self, storage: Storage) -> None:
        await suspected(storage)
        alone = await claim_one(storage, solo=True)
        await happened(storage, alone, Lost(GONE), by="reaper")
        job = await look(storage, alone)
        assert (job.state, job.lost) == (State.FAILED, 3)
        assert job.error is not None
        assert job.error.kind == "Quarantined"

    async def test_an_ordinary_error_clears_the_suspicion(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await suspected(storage)
        alone = await claim_one(storage, solo=True)
        await happened(storage, alone, Raised(OOPS))
        clock.advance(HOUR)
        again = await claim_one(storage)
        assert (again.lost, again.solo) == (0, False)

    async def test_a_release_keeps_the_suspicion(self, storage: Storage) -> None:
        await suspected(storage)
        await happened(storage, await claim_one(storage, solo=True), Interrupted())
        assert await claim(storage) == []
        again = await claim_one(storage, solo=True)
        assert (again.lost, again.solo) == (2, True)
