"""The retry rule through the store: what `decide` says, what `apply` makes of it."""

from __future__ import annotations

from datetime import timedelta

from windlass._core.job.job import AttemptError
from windlass._core.job.outcome import Crashed, GaveUp, Lost, Missing, Policy, Raised
from windlass._core.job.state import State, Verb
from windlass._core.limits.backoff import Backoff
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    DAY,
    HOUR,
    OOPS,
    a_job,
    add,
    claim,
    claim_one,
    enlist,
    happened,
    look,
    requeue,
    started,
)

__all__ = ["RetryConformance"]

GONE = AttemptError("WorkerLost", "w1 did not come back; claimed 10 min ago")


class RetryConformance:
    """Terminal when ``attempt >= max_attempts``, for any end of the attempt."""

    async def test_n_attempts_are_n_runs(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # RETRY-1, RETRY-3, A24
        await enlist(storage)
        (wanted,) = await add(storage, a_job(max_attempts=3))
        runs = 0
        while jobs := await claim(storage):
            runs += 1
            assert jobs[0].attempt == runs
            await happened(storage, jobs[0], Raised(OOPS))
            clock.advance(HOUR)
        assert runs == 3
        assert (await look(storage, wanted)).state is State.FAILED

    async def test_an_attempt_before_the_last_comes_back_as_the_same_job(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # A9, RETRY-10
        first = await started(storage, a_job(max_attempts=2, payload=b"[1]"))
        await happened(storage, first, Raised(OOPS))
        clock.advance(HOUR)
        second = await claim_one(storage)
        assert (second.claim.job, second.payload, second.attempt) == (first.claim.job, b"[1]", 2)

    async def test_the_only_attempt_is_the_last(self, storage: Storage) -> None:  # A10
        running = await started(storage, a_job(max_attempts=1))
        answer = await happened(storage, running, Raised(OOPS))
        assert answer.verb is Verb.FAIL
        assert (await look(storage, running)).state is State.FAILED

    async def test_the_second_of_four_failures_doubles_the_delay(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # A16
        policy = Policy(backoff=Backoff.exponential(0.25, factor=2, jitter="none"))
        first = await started(storage, a_job(max_attempts=4))
        await happened(storage, first, Raised(OOPS), policy)
        clock.advance(HOUR)
        await happened(storage, await claim_one(storage), Raised(OOPS), policy)
        job = await look(storage, first)
        assert (job.due, job.attempt) == (clock.now() + timedelta(milliseconds=500), 2)
        assert (job.state, job.error) == (State.WAITING, OOPS)

    async def test_the_last_failure_fails_the_job_with_its_error(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # A17
        running = await started(storage, a_job(max_attempts=3))
        for _ in range(2):
            await happened(storage, running, Raised(OOPS))
            clock.advance(HOUR)
            running = await claim_one(storage)
        last = AttemptError("KeyError", "the last one")
        await happened(storage, running, Raised(last))
        job = await look(storage, running)
        assert (job.state, job.attempt, job.error) == (State.FAILED, 3, last)

    async def test_a_crash_fails_the_job_though_attempts_remain(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # A8, A18, A25, CRASH-3
        running = await started(storage, a_job(max_attempts=3))
        await happened(storage, running, Crashed(OOPS))
        job = await look(storage, running)
        assert (job.state, job.attempt, job.error) == (State.FAILED, 1, OOPS)
        assert job.finished_at == clock.now()
        clock.advance(DAY)
        assert await claim(storage) == []

    async def test_giving_up_fails_the_job_though_attempts_remain(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # Q3, RETRY-9
        running = await started(storage, a_job(max_attempts=3))
        await happened(storage, running, GaveUp(OOPS))
        clock.advance(DAY)
        assert await claim(storage) == []
        assert (await look(storage, running)).state is State.FAILED

    async def test_a_lost_attempt_is_spent_and_the_job_comes_back_with_the_reason(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # A19, A26, F3, LEASE-3, LEASE-4
        await enlist(storage, "w2")
        running = await started(storage, a_job(max_attempts=3))
        await happened(storage, running, Lost(GONE), by="w2")
        clock.advance(HOUR)
        again = await claim_one(storage, "w2")
        assert (again.claim.job, again.attempt, again.lost) == (running.claim.job, 2, 1)
        assert again.error == GONE

    async def test_after_a_requeue_the_whole_budget_and_backoff_start_again(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # Q6, RETRY-17
        policy = Policy(backoff=Backoff.exponential(1, factor=2, jitter="none"))
        running = await started(storage, a_job(max_attempts=2))
        for _ in range(2):
            await happened(storage, running, Raised(OOPS), policy)
            clock.advance(HOUR)
            if running.attempt == running.max_attempts:
                await requeue(storage, running.claim.job)
            running = await claim_one(storage)
        assert (running.attempt, running.max_attempts, running.tries) == (3, 4, 1)
        await happened(storage, running, Raised(OOPS), policy)
        assert (await look(storage, running)).due == clock.now() + timedelta(seconds=1)

    async def test_an_unknown_task_waits_and_fails_a_day_after_its_first_miss(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # DEF-5, decided otherwise: a rolling deploy fails nothing
        missing = Missing(AttemptError("UnknownTask", "no such task"))
        running = await started(storage)
        await happened(storage, running, missing)
        assert (await look(storage, running)).attempt == 0
        clock.advance(DAY - HOUR)
        again = await claim_one(storage)
        assert (await happened(storage, again, missing)).verb is Verb.RELEASE
        clock.advance(HOUR)
        last = await claim_one(storage)
        assert (await happened(storage, last, missing)).verb is Verb.FAIL

    async def test_a_job_that_will_be_retried_is_not_failed(
        self, storage: Storage
    ) -> None:  # A11, RETRY-12
        running = await started(storage)
        await happened(storage, running, Raised(OOPS))
        (counts,) = await storage.admin.counts()
        assert (counts.failed, counts.scheduled) == (0, 1)
