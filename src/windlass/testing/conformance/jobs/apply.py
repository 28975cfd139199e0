"""`JobStore.apply`: the fence, the verdicts, and what each verb leaves behind."""

from __future__ import annotations

from windlass._core.job.job import AttemptError, Claim
from windlass._core.job.outcome import (
    Cancelled,
    GaveUp,
    Interrupted,
    Missing,
    Raised,
    Snoozed,
    Succeeded,
    Throttled,
)
from windlass._core.job.state import State, Verb
from windlass._core.job.transition import Transition, fail, release, retry, snooze, succeed
from windlass._storage.protocol.jobs import TransitionAnswer, Verdict
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import new_job_id
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
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
    happened,
    ids,
    keyed,
    limited,
    look,
    started,
    succeeded,
)

__all__ = ["FenceConformance", "OutcomeConformance"]

NOW = 0 * MINUTE


class FenceConformance:
    """Only the claim that holds may end a run, and once."""

    async def test_a_late_finish_after_another_claim_is_refused(
        self, storage: Storage
    ) -> None:  # LEASE-9, forge finalize_owner_guard_blocks_stale_worker_clobber
        slow = await started(storage, worker="slow")
        await enlist(storage, "quick")
        await ended(storage, retry(slow, by="reaper", error=OOPS, delay=NOW, lost=1))
        current = await claim_one(storage, "quick")
        assert await end(storage, succeed(slow, by="slow", result=b"1")) == [
            TransitionAnswer(Verdict.REFUSED)
        ]
        job = await look(storage, current)
        assert (job.state, job.worker, job.result) == (State.RUNNING, "quick", None)
        await succeeded(storage, current)

    async def test_a_late_finish_after_reaping_is_refused(
        self, storage: Storage
    ) -> None:  # LEASE-9, H-15
        slow = await started(storage)
        await ended(storage, retry(slow, by="reaper", error=OOPS, delay=HOUR, lost=1))
        before = await look(storage, slow)
        assert await end(storage, fail(slow, by="w1", error=OOPS)) == [
            TransitionAnswer(Verdict.REFUSED)
        ]
        assert await look(storage, slow) == before

    async def test_a_claim_of_the_same_worker_is_distinguished_from_its_earlier_one(
        self, storage: Storage
    ) -> None:  # LEASE-10
        former = await started(storage)
        await ended(storage, retry(former, by="reaper", error=OOPS, delay=NOW, lost=1))
        current = await claim_one(storage)
        assert await end(storage, succeed(former, by="w1", result=None)) == [
            TransitionAnswer(Verdict.REFUSED)
        ]
        assert (await look(storage, current)).state is State.RUNNING

    async def test_a_number_that_was_never_claimed_is_refused(self, storage: Storage) -> None:
        running = await started(storage)
        ahead = Claim(running.claim.job, running.claim.number + 1, running.claim.seq)
        assert await end(storage, Transition(Verb.SUCCEED, ahead, "w1")) == [
            TransitionAnswer(Verdict.REFUSED)
        ]
        assert (await look(storage, running)).state is State.RUNNING

    async def test_a_repeated_finish_is_recognised(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # guarantee 8: the answer to the first one was lost
        running = await started(storage)
        done = succeed(running, by="w1", result=b"1")
        assert await end(storage, done) == [TransitionAnswer(Verdict.APPLIED, Verb.SUCCEED)]
        before = await look(storage, running)
        clock.advance(MINUTE)
        assert await end(storage, done) == [TransitionAnswer(Verdict.REPEATED, Verb.SUCCEED)]
        assert await look(storage, running) == before

    async def test_a_repeated_retry_is_recognised_and_does_not_move_the_job(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # guarantee 8
        running = await started(storage)
        again = retry(running, by="w1", error=OOPS, delay=HOUR)
        await ended(storage, again)
        before = await look(storage, running)
        clock.advance(MINUTE)
        assert await end(storage, again) == [TransitionAnswer(Verdict.REPEATED, Verb.RETRY)]
        assert await look(storage, running) == before

    async def test_a_repeat_is_recognised_while_the_next_claim_runs(
        self, storage: Storage
    ) -> None:  # guarantee 8
        running = await started(storage)
        back = release(running, by="w1")
        await ended(storage, back)
        current = await claim_one(storage)
        assert await end(storage, back) == [TransitionAnswer(Verdict.REPEATED, Verb.RELEASE)]
        assert (await look(storage, current)).state is State.RUNNING

    async def test_a_repeat_by_another_worker_is_refused(self, storage: Storage) -> None:
        running = await started(storage)
        await succeeded(storage, running)
        assert await end(storage, succeed(running, by="other", result=None)) == [
            TransitionAnswer(Verdict.REFUSED)
        ]

    async def test_the_answer_to_a_repeat_names_what_happened_then(self, storage: Storage) -> None:
        running = await started(storage)
        await ended(storage, snooze(running, by="w1", delay=HOUR))
        assert await end(storage, fail(running, by="w1", error=OOPS)) == [
            TransitionAnswer(Verdict.REPEATED, Verb.SNOOZE)
        ]

    async def test_one_transition_twice_in_a_batch_takes_effect_once(
        self, storage: Storage
    ) -> None:
        running = await started(storage)
        back = release(running, by="w1")
        assert await end(storage, back, back) == [
            TransitionAnswer(Verdict.APPLIED, Verb.RELEASE),
            TransitionAnswer(Verdict.REPEATED, Verb.RELEASE),
        ]
        assert (await look(storage, running)).attempt == 0

    async def test_an_unknown_job_is_answered_as_such(self, storage: Storage) -> None:
        nobody = Transition(Verb.SUCCEED, Claim(new_job_id(), 1, 999_999), "w1")
        assert await end(storage, nobody) == [TransitionAnswer(Verdict.UNKNOWN)]

    async def test_each_transition_of_a_batch_is_decided_on_its_own_and_in_order(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        lost, first, second = (
            await started(storage),
            await started(storage),
            await started(storage),
        )
        await ended(storage, retry(lost, by="reaper", error=OOPS, delay=HOUR))
        clock.advance(MINUTE)
        applied = await storage.jobs.apply(
            [
                fail(second, by="w1", error=OOPS),
                succeed(lost, by="w1", result=None),
                Transition(Verb.SUCCEED, Claim(new_job_id(), 1, 999_999), "w1"),
                succeed(first, by="w1", result=None),
            ]
        )
        assert applied.at == clock.now()
        assert [answer.verdict for answer in applied.answers] == [
            Verdict.APPLIED,
            Verdict.REFUSED,
            Verdict.UNKNOWN,
            Verdict.APPLIED,
        ]
        assert (await look(storage, second)).state is State.FAILED
        assert (await look(storage, first)).state is State.SUCCEEDED


class OutcomeConformance:
    """The effect of each verb on the job."""

    async def test_success_stores_the_result_and_when_it_came(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # Q1, STATE-6, forge finalize_done_marks_completed
        running = await started(storage)
        clock.advance(MINUTE)
        await happened(storage, running, Succeeded(b'{"x": 1}'))
        job = await look(storage, running)
        assert (job.state, job.result) == (State.SUCCEEDED, b'{"x": 1}')
        assert (job.finished_at, job.attempt, job.worker) == (clock.now(), 1, "w1")

    async def test_success_clears_the_last_error(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # STATE-12
        await happened(storage, await started(storage), Raised(OOPS))
        clock.advance(HOUR)
        again = await claim_one(storage)
        await happened(storage, again, Succeeded())
        assert (await look(storage, again)).error is None

    async def test_a_success_that_is_not_kept_leaves_no_row(
        self, storage: Storage
    ) -> None:  # TTL-9
        running = await started(storage)
        done = succeed(running, by="w1", result=None, keep=False)
        await ended(storage, done)
        assert list(await storage.admin.get([running.claim.job])) == [None]
        assert await end(storage, done) == [TransitionAnswer(Verdict.UNKNOWN)]

    async def test_a_batch_of_successes_that_are_not_kept_leaves_no_row(
        self, storage: Storage
    ) -> None:  # TTL-9
        await at_most(storage, db=2)
        await enlist(storage)
        asked = [a_job(), a_job(), keyed("k"), limited("db"), limited("db")]
        await add(storage, *asked)
        jobs = await claim(storage, 5)
        await ended(storage, release(jobs[0], by="w1"))  # its claim does not hold any more
        done = [succeed(job, by="w1", result=None, keep=False) for job in jobs]
        answers = await end(storage, *done)
        assert [answer.verdict for answer in answers] == [Verdict.REPEATED, *4 * [Verdict.APPLIED]]
        kept = await storage.admin.get([job.claim.job for job in jobs])
        assert [None if job is None else job.state for job in kept] == [State.WAITING, *4 * [None]]
        await add(storage, keyed("k"), limited("db"), limited("db"))
        assert len(await claim(storage, 5)) == 4

    async def test_a_retry_waits_for_its_delay_and_keeps_attempt_and_error(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # A16, RETRY-11, forge finalize_failed_appends_error_history
        running = await started(storage)
        clock.advance(HOUR)
        await happened(storage, running, Raised(OOPS))
        job = await look(storage, running)
        assert (job.state, job.due) == (State.WAITING, clock.now() + MINUTE)
        assert (job.attempt, job.error, job.finished_at) == (1, OOPS, None)
        assert await claim(storage) == []
        clock.advance(MINUTE)
        assert ids(await claim(storage)) == [running.claim.job]

    async def test_a_retry_without_delay_is_ready_at_once(self, storage: Storage) -> None:
        running = await started(storage)
        await ended(storage, retry(running, by="w1", error=OOPS, delay=NOW))
        assert ids(await claim(storage)) == [running.claim.job]

    async def test_a_snoozed_job_waits_and_gets_its_attempt_back(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        running = await started(storage)
        await happened(storage, running, Snoozed(HOUR))
        job = await look(storage, running)
        assert (job.state, job.due, job.attempt) == (State.WAITING, clock.now() + HOUR, 0)

    async def test_a_throttled_job_waits_and_gets_its_attempt_back(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # THROT-1, forge finalize_throttled_bumps_scheduled_at_and_un_attempts
        running = await started(storage)
        await happened(storage, running, Throttled(MINUTE))
        job = await look(storage, running)
        assert (job.state, job.due, job.attempt) == (State.WAITING, clock.now() + MINUTE, 0)
        assert job.error is None

    async def test_a_released_job_is_ready_at_once_and_gets_its_attempt_back(
        self, storage: Storage
    ) -> None:  # CANCEL-13
        running = await started(storage)
        await happened(storage, running, Interrupted())
        job = await look(storage, running)
        assert (job.state, job.attempt) == (State.WAITING, 0)
        assert ids(await claim(storage)) == [running.claim.job]

    async def test_a_verb_without_an_error_keeps_the_last_one(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await happened(storage, await started(storage), Raised(OOPS))
        clock.advance(HOUR)
        again = await claim_one(storage)
        await happened(storage, again, Snoozed(HOUR))
        assert (await look(storage, again)).error == OOPS

    async def test_a_failure_stores_the_error_and_when_it_came(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # Q3, A10, STATE-7, forge finalize_dead_marks_terminal
        running = await started(storage)
        clock.advance(MINUTE)
        await happened(storage, running, GaveUp(OOPS))
        job = await look(storage, running)
        assert (job.state, job.error, job.finished_at) == (State.FAILED, OOPS, clock.now())
        assert await claim(storage) == []

    async def test_a_handler_that_gave_way_leaves_a_cancelled_job(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        running = await started(storage)
        await happened(storage, running, Cancelled())
        job = await look(storage, running)
        assert (job.state, job.finished_at) == (State.CANCELLED, clock.now())

    async def test_a_miss_is_stamped_once(self, storage: Storage, clock: VirtualClock) -> None:
        first = clock.now()
        missing = Missing(AttemptError("UnknownTask", "no such task"))
        await happened(storage, await started(storage), missing)
        clock.advance(HOUR)
        again = await claim_one(storage)
        assert again.missed_at == first
        await happened(storage, again, missing)
        assert (await look(storage, again)).missed_at == first

    async def test_a_release_keeps_the_stamp_of_a_miss(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        first = clock.now()
        missing = Missing(AttemptError("UnknownTask", "no such task"))
        await happened(storage, await started(storage), missing)
        clock.advance(HOUR)
        again = await claim_one(storage)
        await happened(storage, again, Interrupted())
        assert (await look(storage, again)).missed_at == first

    async def test_every_other_verb_clears_the_stamp_of_a_miss(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        missing = Missing(AttemptError("UnknownTask", "no such task"))
        for outcome in (Raised(OOPS), Snoozed(MINUTE), Throttled(MINUTE), GaveUp(OOPS)):
            await happened(storage, await started(storage), missing)
            clock.advance(HOUR)
            again = await claim_one(storage)
            await happened(storage, again, outcome)
            assert (await look(storage, again)).missed_at is None
            await storage.jobs.cancel([again.claim.job])

    async def test_settled_tells_terminal_and_unknown_jobs_apart_from_active_ones(
        self, storage: Storage
    ) -> None:
        won, lost, busy = await started(storage), await started(storage), await started(storage)
        (waiting,) = await add(storage, a_job())
        await happened(storage, won, Succeeded(b"7"))
        await happened(storage, lost, GaveUp(OOPS))
        nobody = new_job_id()
        jobs = [won.claim.job, lost.claim.job, busy.claim.job, waiting, nobody]
        settled = {word.id: word for word in await storage.jobs.settled(jobs)}
        assert settled.keys() == {won.claim.job, lost.claim.job, nobody}
        assert settled[nobody].state is None
        success, failure = settled[won.claim.job], settled[lost.claim.job]
        assert (success.state, success.result) == (State.SUCCEEDED, b"7")
        assert (failure.state, failure.error_kind, failure.error_message) == (
            State.FAILED,
            OOPS.kind,
            OOPS.message,
        )

    async def test_settled_tells_why_a_job_was_discarded(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        jobs = await add(storage, a_job(expires=MINUTE))
        clock.advance(HOUR)
        await storage.maintenance.expire(10)
        (word,) = await storage.jobs.settled(jobs)
        assert (word.state, word.reason) == (State.DISCARDED, "expired")
