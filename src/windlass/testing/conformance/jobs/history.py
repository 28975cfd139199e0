"""The ended claims a job remembers."""

from __future__ import annotations

from windlass._core.job.job import Attempt, AttemptError
from windlass._core.job.outcome import GaveUp, Interrupted, Lost, Raised, Snoozed, Succeeded
from windlass._core.job.state import Verb
from windlass._core.job.transition import fail, retry, snooze
from windlass._storage.protocol.jobs import Verdict
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import new_job_id
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    HOUR,
    MINUTE,
    OOPS,
    a_job,
    claim_one,
    end,
    ended,
    happened,
    look,
    started,
)

__all__ = ["HistoryConformance"]


class HistoryConformance:
    """`AdminStore.history`, written by `JobStore.apply`."""

    async def test_every_claim_that_did_not_succeed_is_remembered_oldest_first(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # ERRH-1, forge finalize_failed_appends_error_history
        began = clock.now()
        first = await started(storage)
        clock.advance(MINUTE)
        await happened(storage, first, Raised(OOPS))
        clock.advance(MINUTE)
        second = await claim_one(storage)
        clock.advance(MINUTE)
        await happened(storage, second, GaveUp(OOPS))
        assert list(await storage.admin.history(first.claim.job)) == [
            Attempt(
                claim_number=1,
                attempt=1,
                verb=Verb.RETRY,
                worker="w1",
                started_at=began,
                ended_at=began + MINUTE,
                error=OOPS,
            ),
            Attempt(
                claim_number=2,
                attempt=2,
                verb=Verb.FAIL,
                worker="w1",
                started_at=began + 2 * MINUTE,
                ended_at=began + 3 * MINUTE,
                error=OOPS,
            ),
        ]

    async def test_a_success_adds_nothing(self, storage: Storage) -> None:
        running = await started(storage)
        await happened(storage, running, Succeeded())
        assert list(await storage.admin.history(running.claim.job)) == []

    async def test_claims_that_gave_their_attempt_back_are_remembered_by_claim_number(
        self, storage: Storage
    ) -> None:
        first = await started(storage)
        await happened(storage, first, Interrupted())
        second = await claim_one(storage)
        await happened(storage, second, Snoozed(HOUR))
        history = await storage.admin.history(first.claim.job)
        assert [(past.claim_number, past.attempt, past.verb) for past in history] == [
            (1, 1, Verb.RELEASE),
            (2, 1, Verb.SNOOZE),
        ]
        assert [past.error for past in history] == [None, None]

    async def test_a_lost_claim_is_remembered_with_its_own_worker(
        self, storage: Storage
    ) -> None:  # LEASE-4
        running = await started(storage, worker="gone")
        await happened(storage, running, Lost(OOPS), by="reaper")
        (past,) = await storage.admin.history(running.claim.job)
        assert (past.worker, past.verb, past.error) == ("gone", Verb.RETRY, OOPS)

    async def test_the_newest_thirty_two_are_kept(self, storage: Storage) -> None:  # ERRH-2
        running = await started(storage, a_job(max_attempts=99))
        for _ in range(40):
            await ended(storage, retry(running, by="w1", error=OOPS, delay=0 * MINUTE))
            running = await claim_one(storage)
        history = await storage.admin.history(running.claim.job)
        assert [past.claim_number for past in history] == list(range(9, 41))

    async def test_attempts_without_an_error_push_no_error_out_of_the_history(
        self, storage: Storage
    ) -> None:
        running = await started(storage, a_job(max_attempts=99))
        for number in range(1, 46):
            at_once = 0 * MINUTE
            if number <= 2:
                await ended(storage, retry(running, by="w1", error=OOPS, delay=at_once))
            else:
                await ended(storage, snooze(running, by="w1", delay=at_once))
            running = await claim_one(storage)
        history = await storage.admin.history(running.claim.job)
        assert [past.claim_number for past in history] == [1, 2, *range(38, 46)]
        assert [past.error for past in history[:3]] == [OOPS, OOPS, None]

    async def test_a_refused_write_leaves_history_and_error_alone(
        self, storage: Storage
    ) -> None:  # ERRH-3
        running = await started(storage)
        await ended(storage, retry(running, by="reaper", error=OOPS, delay=HOUR))
        late = AttemptError("TooLate", "nobody listens")
        (answer,) = await end(storage, fail(running, by="w1", error=late))
        assert answer.verdict is Verdict.REFUSED
        assert len(await storage.admin.history(running.claim.job)) == 1
        assert (await look(storage, running)).error == OOPS

    async def test_a_repeated_write_adds_nothing(self, storage: Storage) -> None:  # guarantee 8
        running = await started(storage)
        again = retry(running, by="w1", error=OOPS, delay=HOUR)
        await end(storage, again, again)
        await end(storage, again)
        assert len(await storage.admin.history(running.claim.job)) == 1

    async def test_a_new_job_and_an_unknown_one_have_no_history(self, storage: Storage) -> None:
        running = await started(storage)
        assert list(await storage.admin.history(running.claim.job)) == []
        assert list(await storage.admin.history(new_job_id())) == []
