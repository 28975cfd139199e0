"""The ended claims a job remembers, and what their handlers noted."""

from __future__ import annotations

from msgspec.structs import replace

from windlass._core.job.job import Attempt, AttemptError
from windlass._core.job.outcome import GaveUp, Interrupted, Lost, Raised, Snoozed, Succeeded
from windlass._core.job.state import State, Verb
from windlass._core.job.transition import fail, release, retry, snooze, succeed, throttle
from windlass._core.limits.limit import LimitSpec
from windlass._core.values.metadata import Metadata
from windlass._storage.protocol.jobs import Verdict
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import new_job_id
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.copy.dump import moved
from windlass.testing.conformance.steps import (
    HOUR,
    MINUTE,
    OOPS,
    a_job,
    add,
    claim,
    claim_one,
    end,
    ended,
    enlist,
    happened,
    keyed,
    limited,
    look,
    started,
    succeeded,
)

__all__ = ["HistoryConformance", "MetadataConformance"]

FACTS: Metadata = {
    "rows": 120,
    "source": "s3 – \u0000 'é\U0001f680\"",
    "ratio": 0.25,
    "whole": True,
    "last": None,
    "least": -(2**63),
}


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


class MetadataConformance:
    """Facts that a handler noted are stored with any end of its run, and with that alone."""

    async def test_a_success_stores_what_was_noted(self, storage: Storage) -> None:  # STATE-5
        running = await started(storage)
        await ended(storage, replace(succeed(running, by="w1", result=b"1"), metadata=FACTS))
        job = await look(storage, running)
        assert (job.state, job.result, job.metadata) == (State.SUCCEEDED, b"1", FACTS)

    async def test_jobs_with_keys_or_limits_or_follow_ups_store_it_too(
        self, storage: Storage
    ) -> None:
        await storage.limits.define([LimitSpec(name="db", concurrency=5)])
        for job in (keyed("k"), limited("db"), a_job()):
            running = await started(storage, job)
            success = succeed(running, by="w1", result=None)
            await ended(storage, replace(success, metadata=FACTS, then=(a_job(queue="next"),)))
            assert (await look(storage, running)).metadata == FACTS

    async def test_a_batch_stores_what_each_has_noted(self, storage: Storage) -> None:
        await enlist(storage)
        await add(storage, *(a_job() for _ in range(6)))
        running = await claim(storage, 6)
        noted: list[Metadata | None] = [{"n": 1}, None, {"n": 2}, {"n": 2}, None, {"n": 3}]
        answers = await end(
            storage,
            *(
                replace(succeed(job, by="w1", result=None), metadata=facts)
                for job, facts in zip(running, noted, strict=True)
            ),
        )
        assert {answer.verdict for answer in answers} == {Verdict.APPLIED}
        assert [(await look(storage, job)).metadata for job in running] == noted

    async def test_a_run_that_did_not_succeed_keeps_it_in_the_history(
        self, storage: Storage
    ) -> None:
        first = await started(storage)
        again = retry(first, by="w1", error=OOPS, delay=first.due - first.due)
        await ended(storage, replace(again, metadata={"try": 1}))
        second = await claim_one(storage)
        assert (await look(storage, first)).metadata == {"try": 1}
        await ended(storage, replace(fail(second, by="w1", error=OOPS), metadata=FACTS))
        job = await look(storage, first)
        assert (job.error, job.metadata) == (OOPS, FACTS)
        history = await storage.admin.history(job.id)
        assert [(past.error, past.metadata) for past in history] == [
            (OOPS, {"try": 1}),
            (OOPS, FACTS),
        ]

    async def test_a_run_that_gives_its_job_back_stores_it(self, storage: Storage) -> None:
        running = await started(storage)
        now = running.due - running.due
        for number, back in enumerate((snooze, throttle, release)):
            returned = back(running, by="w1", delay=now)
            await ended(storage, replace(returned, metadata={"n": number}))
            assert (await look(storage, running)).metadata == {"n": number}
            running = await claim_one(storage)
        await storage.jobs.cancel([running.claim.job])
        stopped = retry(running, by="w1", error=OOPS, delay=now)
        await ended(storage, replace(stopped, metadata={"n": 3}))
        job = await look(storage, running)
        assert (job.state, job.metadata) == (State.CANCELLED, {"n": 3})
        history = await storage.admin.history(job.id)
        assert [past.metadata for past in history] == [{"n": number} for number in range(4)]

    async def test_a_worker_that_leaves_stores_it(self, storage: Storage) -> None:
        running = await started(storage)
        await storage.workers.leave("w1", [replace(release(running, by="w1"), metadata=FACTS)])
        assert (await look(storage, running)).metadata == FACTS

    async def test_the_run_that_ended_last_counts_also_if_it_noted_nothing(
        self, storage: Storage
    ) -> None:
        first = await started(storage)
        now = first.due - first.due
        await ended(storage, replace(snooze(first, by="w1", delay=now), metadata=FACTS))
        second = await claim_one(storage)
        await ended(storage, snooze(second, by="w1", delay=now))
        assert (await look(storage, first)).metadata is None
        third = await claim_one(storage)
        await ended(storage, replace(snooze(third, by="w1", delay=now), metadata={"n": 3}))
        await succeeded(storage, await claim_one(storage))
        assert (await look(storage, first)).metadata is None
        history = await storage.admin.history(first.claim.job)
        assert [past.metadata for past in history] == [FACTS, None, {"n": 3}]

    async def test_a_claim_that_was_lost_notes_nothing(self, storage: Storage) -> None:
        first = await started(storage)
        await ended(storage, snooze(first, by="reaper", delay=first.due - first.due))
        late = replace(succeed(first, by="w1", result=None), metadata=FACTS)
        (answer,) = await end(storage, late)
        assert answer.verdict is Verdict.REFUSED
        assert (await look(storage, first)).metadata is None

    async def test_a_copy_has_it(self, storage: Storage, elsewhere: Storage) -> None:
        first = await started(storage)
        again = snooze(first, by="w1", delay=first.due - first.due)
        await ended(storage, replace(again, metadata={"try": 1}))
        second = await claim_one(storage)
        await ended(storage, replace(succeed(second, by="w1", result=None), metadata=FACTS))
        await moved(storage, elsewhere)
        assert (await look(elsewhere, first)).metadata == FACTS
        (past,) = await elsewhere.admin.history(first.claim.job)
        assert past.metadata == {"try": 1}
