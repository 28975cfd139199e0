"""`JobStore.cancel`: at once while a job waits, by request while it runs."""

from __future__ import annotations

import asyncio

from windlass._core.job.job import JobId
from windlass._core.job.outcome import (
    Cancelled,
    Crashed,
    GaveUp,
    Interrupted,
    Lost,
    Raised,
    Snoozed,
    Succeeded,
    Throttled,
)
from windlass._core.job.state import State, Verb
from windlass._core.job.transition import retry, succeed
from windlass._storage.protocol.jobs import CancelAnswer, TransitionAnswer, Verdict
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import new_job_id
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    DAY,
    HOUR,
    MINUTE,
    OOPS,
    a_job,
    add,
    claim,
    end,
    enlist,
    happened,
    ids,
    look,
    started,
    total,
)

__all__ = ["CancelConformance"]


class CancelConformance:
    """Guarantee 7, as far as it is the store's."""

    async def test_a_waiting_job_is_cancelled_at_once_and_never_runs(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # A1, CANCEL-2, forge delete_pending_still_removes_row
        await enlist(storage)
        (wanted,) = await add(storage, a_job())
        assert list(await storage.jobs.cancel([wanted])) == [CancelAnswer.CANCELLED]
        job = await look(storage, wanted)
        assert (job.state, job.finished_at) == (State.CANCELLED, clock.now())
        assert await claim(storage) == []

    async def test_a_scheduled_job_is_cancelled_at_once(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        (wanted,) = await add(storage, a_job(delay=MINUTE))
        assert list(await storage.jobs.cancel([wanted])) == [CancelAnswer.CANCELLED]
        clock.advance(HOUR)
        assert await claim(storage) == []

    async def test_a_retrying_job_is_cancelled_at_once(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # H-20
        running = await started(storage)
        await happened(storage, running, Raised(OOPS))
        assert list(await storage.jobs.cancel([running.claim.job])) == [CancelAnswer.CANCELLED]
        clock.advance(HOUR)
        assert await claim(storage) == []

    async def test_a_running_job_is_asked_and_keeps_running(
        self, storage: Storage
    ) -> None:  # CANCEL-5, forge delete_in_progress_sets_cancel_flag_and_keeps_row
        running = await started(storage)
        assert list(await storage.jobs.cancel([running.claim.job])) == [CancelAnswer.REQUESTED]
        job = await look(storage, running)
        assert (job.state, job.cancel_requested) == (State.RUNNING, True)

    async def test_the_worker_gets_the_request_with_its_next_heartbeat(
        self, storage: Storage
    ) -> None:  # CANCEL-6, LEASE-12
        running, spared = await started(storage), await started(storage)
        await storage.jobs.cancel([running.claim.job])
        beat = await storage.workers.beat("w1")
        assert list(beat.cancelled) == [running.claim]
        assert set(beat.holding) == {running.claim, spared.claim}

    async def test_the_worker_may_read_cancel_requests_between_heartbeats(
        self, storage: Storage
    ) -> None:  # CANCEL-6
        asked, _ = await started(storage), await started(storage)
        foreign = await started(storage, worker="w2")
        await storage.jobs.cancel([asked.claim.job, foreign.claim.job])
        assert list(await storage.workers.cancel_requests("w1")) == [asked.claim]
        await happened(storage, asked, Cancelled())
        assert list(await storage.workers.cancel_requests("w1")) == []

    async def test_asking_what_is_to_be_cancelled_is_no_sign_of_life(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # read-only
        await started(storage)
        clock.advance(HOUR)
        await storage.workers.cancel_requests("w1")
        assert list(await storage.workers.overdue()) == ["w1"]

    async def test_a_job_that_has_ended_is_too_late_to_cancel(
        self, storage: Storage
    ) -> None:  # CANCEL-1
        running = await started(storage)
        await happened(storage, running, Succeeded(b"1"))
        before = await look(storage, running)
        assert list(await storage.jobs.cancel([running.claim.job])) == [CancelAnswer.TOO_LATE]
        assert await look(storage, running) == before

    async def test_a_job_that_is_not_stored_is_unknown(self, storage: Storage) -> None:
        assert list(await storage.jobs.cancel([new_job_id()])) == [CancelAnswer.UNKNOWN]

    async def test_answers_come_in_the_order_of_the_ids(self, storage: Storage) -> None:
        running, failed = await started(storage), await started(storage)
        await happened(storage, failed, GaveUp(OOPS))
        (waiting,) = await add(storage, a_job())
        asked = [new_job_id(), failed.claim.job, waiting, running.claim.job]
        assert list(await storage.jobs.cancel(asked)) == [
            CancelAnswer.UNKNOWN,
            CancelAnswer.TOO_LATE,
            CancelAnswer.CANCELLED,
            CancelAnswer.REQUESTED,
        ]

    async def test_repeating_a_cancel_changes_nothing(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # guarantee 8
        running = await started(storage)
        (waiting,) = await add(storage, a_job())
        await storage.jobs.cancel([running.claim.job, waiting])
        before = [await look(storage, running), await look(storage, waiting)]
        clock.advance(MINUTE)
        again = await storage.jobs.cancel([running.claim.job, waiting])
        assert again[0] is CancelAnswer.REQUESTED
        assert again[1] in {CancelAnswer.CANCELLED, CancelAnswer.TOO_LATE}
        assert [await look(storage, running), await look(storage, waiting)] == before

    async def test_success_wins_over_a_request(self, storage: Storage) -> None:  # CANCEL-7
        running = await started(storage)
        await storage.jobs.cancel([running.claim.job])
        answer = await happened(storage, running, Succeeded(b"1"))
        assert answer.verb is Verb.SUCCEED
        job = await look(storage, running)
        assert (job.state, job.result) == (State.SUCCEEDED, b"1")

    async def test_every_other_outcome_gives_way_to_a_request(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # CANCEL-7, decided in the write itself
        for outcome in (
            Raised(OOPS),
            GaveUp(OOPS),
            Crashed(OOPS),
            Snoozed(MINUTE),
            Throttled(MINUTE),
            Interrupted(),
            Cancelled(),
            Lost(OOPS),
        ):
            running = await started(storage)
            await storage.jobs.cancel([running.claim.job])
            answer = await happened(storage, running, outcome)
            assert answer.verb is Verb.CANCEL, outcome
            job = await look(storage, running)
            assert (job.state, job.finished_at) == (State.CANCELLED, clock.now()), outcome
            (past,) = await storage.admin.history(running.claim.job)
            assert past.verb is Verb.CANCEL, outcome
        clock.advance(DAY)
        assert await claim(storage) == []

    async def test_a_request_that_comes_after_the_finish_is_too_late(
        self, storage: Storage
    ) -> None:
        running = await started(storage)
        back = retry(running, by="w1", error=OOPS, delay=0 * MINUTE)
        assert await end(storage, back) == [TransitionAnswer(Verdict.APPLIED, Verb.RETRY)]
        await storage.jobs.cancel([running.claim.job])
        assert await end(storage, back) == [TransitionAnswer(Verdict.REPEATED, Verb.RETRY)]
        assert (await look(storage, running)).state is State.CANCELLED

    async def test_a_repeated_finish_is_answered_with_the_cancel_that_won(
        self, storage: Storage
    ) -> None:  # guarantee 8
        running = await started(storage)
        await storage.jobs.cancel([running.claim.job])
        back = retry(running, by="w1", error=OOPS, delay=0 * MINUTE)
        assert await end(storage, back, back) == [
            TransitionAnswer(Verdict.APPLIED, Verb.CANCEL),
            TransitionAnswer(Verdict.REPEATED, Verb.CANCEL),
        ]

    async def test_of_a_cancel_and_a_claim_exactly_one_comes_first(
        self, storage: Storage
    ) -> None:  # CANCEL-3
        await enlist(storage)
        wanted = await add(storage, *(a_job() for _ in range(20)))
        taken: set[JobId] = set()
        answers: dict[JobId, CancelAnswer] = {}

        async def take() -> None:
            taken.update(ids(await claim(storage)))

        async def cancel(job: JobId) -> None:
            (answers[job],) = await storage.jobs.cancel([job])

        await asyncio.gather(*(turn for job in wanted for turn in (cancel(job), take())))
        for job, answer in answers.items():
            if job in taken:
                assert (await look(storage, job)).state is State.RUNNING
                assert answer is CancelAnswer.REQUESTED
            else:
                assert (await look(storage, job)).state is State.CANCELLED
                assert answer is CancelAnswer.CANCELLED
        assert await total(storage) == len(wanted)

    async def test_cancelling_costs_no_other_job_its_run(self, storage: Storage) -> None:
        await enlist(storage)
        first, second, third = await add(storage, a_job(), a_job(), a_job())
        await storage.jobs.cancel([second])
        assert ids(await claim(storage, 10)) == [first, third]

    async def test_a_success_after_a_request_is_repeated_as_success(self, storage: Storage) -> None:
        running = await started(storage)
        done = succeed(running, by="w1", result=None)
        await end(storage, done)
        await storage.jobs.cancel([running.claim.job])
        assert await end(storage, done) == [TransitionAnswer(Verdict.REPEATED, Verb.SUCCEED)]
