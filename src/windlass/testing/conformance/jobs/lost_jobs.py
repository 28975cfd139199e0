"""Jobs whose workers are lost: what that costs them, and when it is enough."""

from __future__ import annotations

from datetime import timedelta

from windlass._core.job.job import AttemptError, ClaimedJob
from windlass._core.job.outcome import Interrupted, Lost, Outcome, Raised, Snoozed, Throttled
from windlass._core.job.state import State
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.copy.dump import moved
from windlass.testing.conformance.steps import (
    HOUR,
    OOPS,
    a_job,
    add,
    claim,
    claim_one,
    enlist,
    happened,
    ids,
    look,
    requeue,
    started,
)

__all__ = ["LostJobConformance"]

GONE = AttemptError("WorkerLost", "killed")


async def _lose(storage: Storage, job: ClaimedJob) -> None:
    await happened(storage, job, Lost(GONE), by="reaper")


class LostJobConformance:
    """`NewJob.on_lost`, and `windlass._core.job.outcome.Lost` as it is stored."""

    async def test_a_loss_never_spends_the_last_attempt(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        running = await started(storage, a_job(max_attempts=2))
        for attempt, lost, left in ((1, 1, 1), (2, 2, 1)):
            assert running.attempt == attempt
            await _lose(storage, running)
            job = await look(storage, running)
            assert (job.state, job.attempt, job.lost) == (State.WAITING, left, lost)
            assert job.error == GONE
            clock.advance(HOUR)
            running = await claim_one(storage, solo=lost == 2)
        await happened(storage, running, Raised(OOPS))
        job = await look(storage, running)
        assert (job.state, job.attempt, job.error) == (State.FAILED, 2, OOPS)

    async def test_the_third_loss_in_a_row_ends_a_job_with_one_attempt(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        running = await started(storage, a_job(max_attempts=1))
        for lost in (1, 2):
            await _lose(storage, running)
            clock.advance(HOUR)
            running = await claim_one(storage, solo=lost == 2)
        await _lose(storage, running)
        job = await look(storage, running)
        assert (job.state, job.lost) == (State.FAILED, 3)
        assert job.error is not None
        assert job.error.kind == "Quarantined"
        (fresh,) = await add(storage, a_job())
        assert ids(await claim(storage, 10)) == [fresh]

    async def test_interrupted_snoozed_and_throttled_runs_keep_the_losses_and_the_solo_mark(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        running = await started(storage)
        for _ in range(2):
            await _lose(storage, running)
            clock.advance(HOUR)
            running = (await claim(storage) or await claim(storage, solo=True))[0]
        told: tuple[Outcome, ...] = (
            Interrupted(),
            Snoozed(timedelta(1)),
            Throttled(timedelta(1)),
        )
        for outcome in told:
            await happened(storage, running, outcome)
            job = await look(storage, running)
            assert (job.lost, job.solo) == (2, True), outcome
            clock.advance(timedelta(2))
            assert await claim(storage) == []
            running = await claim_one(storage, solo=True)
            assert (running.lost, running.solo) == (2, True), outcome
        await happened(storage, running, Raised(OOPS))
        job = await look(storage, running)
        assert (job.lost, job.solo) == (0, False)

    async def test_a_job_that_asks_for_it_fails_at_its_first_loss(self, storage: Storage) -> None:
        await enlist(storage)
        await add(storage, a_job(on_lost="fail"), a_job())
        never_twice, other = await claim(storage, 2)
        assert [job.on_lost for job in (never_twice, other)] == ["fail", "retry"]
        await storage.workers.bury(["w1"])
        for orphan in await storage.workers.orphans(10):
            await _lose(storage, orphan)
        job = await look(storage, never_twice)
        assert (job.state, job.attempt, job.error) == (State.FAILED, 1, GONE)
        assert (await look(storage, other)).state is State.WAITING

    async def test_the_rule_for_a_loss_is_stored_with_the_job(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        told, plain = await add(storage, a_job(on_lost="fail"), a_job())
        assert (await look(storage, told)).on_lost == "fail"
        assert (await look(storage, plain)).on_lost == "retry"
        running = await claim_one(storage)
        await happened(storage, running, Snoozed(HOUR))
        assert (await claim_one(storage)).on_lost == "retry"
        clock.advance(HOUR)
        await _lose(storage, await claim_one(storage))
        (back,) = await requeue(storage, told)
        assert back.on_lost == "fail"
        assert (await claim_one(storage)).on_lost == "fail"

    async def test_the_rule_for_a_loss_is_copied_to_another_store(
        self, storage: Storage, elsewhere: Storage
    ) -> None:
        told, plain = await add(storage, a_job(on_lost="fail"), a_job())
        await moved(storage, elsewhere)
        assert (await look(elsewhere, told)).on_lost == "fail"
        assert (await look(elsewhere, plain)).on_lost == "retry"
