"""A job that is inserted together with the end of a run."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from windlass._core.job.job import ClaimedJob, FollowUp, LimitUse, NewJob
from windlass._core.job.outcome import GaveUp, Interrupted, Lost, Raised
from windlass._core.job.state import State, Verb
from windlass._core.job.transition import (
    Transition,
    cancel,
    fail,
    release,
    retry,
    snooze,
    succeed,
    throttle,
)
from windlass._core.job.unique import OnConflict, UniqueKey
from windlass._core.limits.backoff import Backoff
from windlass._storage.protocol.jobs import Verdict
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.storage import Storage
from windlass.errors import LimitUnknown
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
    requeue,
    started,
    succeeded,
    total,
)
from windlass.testing.conformance.storage import woken

__all__ = ["FollowUpConformance", "OnFailureConformance"]


def failing(job: ClaimedJob, then: NewJob, *, by: str = "") -> Transition:
    """Return a final failure, and what is to follow it."""
    return replace(fail(job, by=by or job.worker, error=OOPS), then=(then,))


async def is_stored(storage: Storage, job: NewJob) -> bool:
    return list(await storage.admin.get([job.id])) != [None]


class FollowUpConformance:
    """`Transition.then`: inserted in the transaction that ends the claim, or not at all."""

    async def test_the_job_is_stored_and_ready_when_the_failure_is(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        running = await started(storage)
        then = a_job(task="sorry", queue="b", payload=b"why", parent=running.claim.job)
        answer = await ended(storage, failing(running, then))
        assert answer.verb is Verb.FAIL
        assert (await look(storage, running)).state is State.FAILED
        job = await look(storage, then)
        assert (job.state, job.attempt, job.claim_number) == (State.WAITING, 0, 0)
        assert job.due == job.created_at == clock.now()
        assert (job.payload, job.parent) == (b"why", running.claim.job)
        (following,) = await claim(storage, queue="b")
        assert (following.claim.job, following.task) == (then.id, "sorry")

    async def test_it_is_stored_as_any_other_job(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        running = await started(storage)
        asked = a_job(
            task="sorry",
            priority=-3,
            delay=MINUTE,
            max_attempts=7,
            timeout=HOUR,
            expires=2 * HOUR,
            backoff=Backoff.fixed(2),
            tags=("one", "two"),
            tenant="acme",
            principal="ann",
            correlation_id="c",
            trace="t",
            on_failure=FollowUp(task="very sorry"),
        )
        await ended(storage, failing(running, asked))
        inserted = replace(asked, id=a_job().id)
        await add(storage, inserted)
        followed, plain = await look(storage, asked), await look(storage, inserted)
        assert replace(followed, id=plain.id, seq=plain.seq) == plain
        assert followed.seq < plain.seq
        assert followed.due == clock.now() + MINUTE

    async def test_a_failure_that_gives_way_to_a_cancel_request_is_followed_by_nothing(
        self, storage: Storage
    ) -> None:
        running, then = await started(storage), a_job()
        await storage.jobs.cancel([running.claim.job])
        answer = await ended(storage, failing(running, then))
        assert answer.verb is Verb.CANCEL
        assert not await is_stored(storage, then)

    async def test_a_refused_failure_is_followed_by_nothing(self, storage: Storage) -> None:
        running, then = await started(storage), a_job()
        await happened(storage, running, Interrupted(), by="reaper")
        (answer,) = await end(storage, failing(running, then))
        assert answer.verdict is Verdict.REFUSED
        assert not await is_stored(storage, then)

    async def test_a_failure_of_a_job_that_is_gone_is_followed_by_nothing(
        self, storage: Storage
    ) -> None:
        running, then = await started(storage), a_job()
        await ended(storage, succeed(running, by="w1", result=None, keep=False))
        (answer,) = await end(storage, failing(running, then))
        assert answer.verdict is Verdict.UNKNOWN
        assert not await is_stored(storage, then)

    async def test_a_repeated_failure_is_followed_once(self, storage: Storage) -> None:
        running, then = await started(storage), a_job()
        await ended(storage, failing(running, then))
        await succeeded(storage, await claim_one(storage))
        (answer,) = await end(storage, failing(running, then))
        assert answer.verdict is Verdict.REPEATED
        assert (await look(storage, then)).state is State.SUCCEEDED
        (answer,) = await end(storage, failing(running, other := a_job()))
        assert answer.verdict is Verdict.REPEATED
        assert not await is_stored(storage, other)

    async def test_a_follow_up_that_is_stored_already_is_not_stored_again(
        self, storage: Storage
    ) -> None:  # the caller that ends the claim makes its id, as all ids are made
        first, second = await started(storage), await started(storage)
        then = a_job(payload=b"first")
        await ended(storage, failing(first, then))
        await ended(storage, failing(second, replace(then, payload=b"second")))
        assert (await look(storage, then)).payload == b"first"
        assert await total(storage) == 3

    async def test_every_verb_that_takes_effect_is_followed(self, storage: Storage) -> None:
        running = [await started(storage) for _ in range(6)]
        endings = [
            succeed(running[0], by="w1", result=None),
            retry(running[1], by="w1", error=OOPS, delay=HOUR),
            snooze(running[2], by="w1", delay=HOUR),
            throttle(running[3], by="w1", delay=HOUR),
            release(running[4], by="w1", delay=HOUR),
            cancel(running[5], by="w1"),
        ]
        for transition in endings:
            then = a_job()
            await ended(storage, replace(transition, then=(then,)))
            assert ids(await claim(storage, 10)) == [then.id], transition.verb

    async def test_each_failure_of_a_batch_is_followed_by_its_own(self, storage: Storage) -> None:
        running = [await started(storage) for _ in range(3)]
        thens = [a_job(payload=b"%d" % n) for n in range(3)]
        await end(storage, *(failing(job, then) for job, then in zip(running, thens, strict=True)))
        assert ids(await claim(storage, 10)) == [then.id for then in thens]

    async def test_its_limits_hold_for_it(self, storage: Storage) -> None:
        await at_most(storage, db=1)
        busy, running = await started(storage, limited("db")), await started(storage)
        then = limited("db")
        await ended(storage, failing(running, then))
        assert await claim(storage, 10) == []
        await succeeded(storage, busy)
        assert ids(await claim(storage, 10)) == [then.id]

    async def test_it_may_take_the_unit_that_the_failed_job_gave_back(
        self, storage: Storage
    ) -> None:
        await at_most(storage, db=1)
        running, then = await started(storage, limited("db")), limited("db")
        await ended(storage, failing(running, then))
        assert ids(await claim(storage, 10)) == [then.id]

    async def test_it_may_take_a_key_that_any_of_the_call_gives_up(self, storage: Storage) -> None:
        first, second = await started(storage), await started(storage, keyed("k"))
        then = keyed("k")
        await end(storage, failing(first, then), succeed(second, by="w1", result=None))
        assert (await look(storage, then)).key_held

    async def test_it_may_take_the_key_of_the_job_it_follows(self, storage: Storage) -> None:
        running, then = await started(storage, keyed("k")), keyed("k")
        await ended(storage, failing(running, then))
        assert (await look(storage, then)).key_held
        assert not (await look(storage, running)).key_held

    async def test_while_its_key_is_held_it_is_left_out_with_any_on_conflict(
        self, storage: Storage
    ) -> None:
        (holder,) = await add(storage, keyed("k", delay=HOUR, payload=b"old"))
        before = await look(storage, holder)
        for what in OnConflict:
            running = await started(storage)
            then = a_job(unique=UniqueKey("k", on_conflict=what), payload=b"new", task="other")
            await ended(storage, failing(running, then))
            assert (await look(storage, running)).state is State.FAILED
            assert not await is_stored(storage, then)
        assert await look(storage, holder) == before

    async def test_of_two_with_one_key_the_first_of_the_call_is_stored(
        self, storage: Storage
    ) -> None:
        running = [await started(storage) for _ in range(2)]
        one, two = keyed("k"), keyed("k")
        await end(storage, failing(running[0], one), failing(running[1], two))
        assert (await look(storage, one)).key_held
        assert not await is_stored(storage, two)

    async def test_an_undefined_limit_is_an_error_and_changes_nothing(
        self, storage: Storage
    ) -> None:
        other, running = await started(storage), await started(storage)
        then = a_job(limits=(LimitUse("nobody"),))
        with pytest.raises(LimitUnknown):
            await end(storage, succeed(other, by="w1", result=None), failing(running, then))
        for job in (other, running):
            assert (await look(storage, job)).state is State.RUNNING
        assert not await is_stored(storage, then)
        await happened(storage, running, GaveUp(OOPS))

    async def test_such_a_limit_is_an_error_also_where_nothing_would_follow(
        self, storage: Storage
    ) -> None:
        refused, cancelled = await started(storage), await started(storage)
        await happened(storage, refused, Interrupted(), by="reaper")
        await storage.jobs.cancel([cancelled.claim.job])
        for running in (refused, cancelled):
            with pytest.raises(LimitUnknown):
                await end(storage, failing(running, a_job(limits=(LimitUse("nobody"),))))
        assert (await look(storage, cancelled)).state is State.RUNNING

    async def test_a_failure_that_is_not_kept_is_followed_too(self, storage: Storage) -> None:
        running, then = await started(storage), a_job()
        await ended(storage, replace(failing(running, then), keep=False))
        assert list(await storage.admin.get([running.claim.job])) == [None]
        assert ids(await claim(storage)) == [then.id]

    async def test_the_reaper_brings_it_too(self, storage: Storage) -> None:
        await enlist(storage, "w2")
        await started(storage)
        await storage.workers.bury(["w1"])
        (orphan,) = await storage.workers.orphans(10)
        then = a_job()
        await ended(storage, failing(orphan, then, by="w2"))
        assert ids(await claim(storage, worker="w2")) == [then.id]

    async def test_it_wakes_who_waits_for_work(self, storage: Storage) -> None:
        running = await started(storage)
        async with woken(storage):
            await ended(storage, failing(running, a_job(queue="b")))


FULL = FollowUp(
    task="sorry",
    queue="letters",
    priority=-2,
    max_attempts=9,
    timeout=timedelta(seconds=1.5),
    expires=HOUR,
    limits=(LimitUse("db", "x", 2.5), LimitUse("api")),
    tags=("one", "two"),
)


class OnFailureConformance:
    """`NewJob.on_failure`: kept with the job for the worker that ends it."""

    async def test_it_comes_back_by_claim_and_by_every_look(self, storage: Storage) -> None:
        running = await started(storage, a_job(on_failure=FULL))
        assert running.on_failure == FULL
        assert (await look(storage, running)).on_failure == FULL
        (found,) = await storage.admin.find(JobFilter(), limit=10)
        assert found.on_failure == FULL

    async def test_omitted_fields_of_a_follow_up_come_back_as_defaults(
        self, storage: Storage
    ) -> None:
        running = await started(storage, a_job(on_failure=FollowUp(task="sorry")))
        assert running.on_failure == FollowUp(task="sorry")

    async def test_most_jobs_have_none(self, storage: Storage) -> None:
        await enlist(storage)
        plain, followed, _ = await add(storage, a_job(), a_job(on_failure=FULL), a_job())
        jobs = await claim(storage, 10)
        assert [job.on_failure for job in jobs] == [None, FULL, None]
        assert (await look(storage, plain)).on_failure is None
        assert (await look(storage, followed)).on_failure == FULL

    async def test_the_reaper_gets_the_follow_up_with_the_orphan(self, storage: Storage) -> None:
        await started(storage, a_job(on_failure=FULL))
        await storage.workers.bury(["w1"])
        (orphan,) = await storage.workers.orphans(10)
        assert orphan.on_failure == FULL

    async def test_it_survives_retries_and_losses(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        running = await started(storage, a_job(on_failure=FULL))
        for outcome in (Raised(OOPS), Lost(OOPS), Interrupted()):
            await happened(storage, running, outcome, by="w1")
            clock.advance(HOUR)
            running = await claim_one(storage)
            assert running.on_failure == FULL

    async def test_it_survives_the_end_and_a_requeue(self, storage: Storage) -> None:
        running = await started(storage, a_job(on_failure=FULL))
        await happened(storage, running, GaveUp(OOPS))
        assert (await look(storage, running)).on_failure == FULL
        (requeued,) = await requeue(storage, running.claim.job)
        assert requeued.on_failure == FULL
        assert (await claim_one(storage)).on_failure == FULL

    async def test_storing_it_inserts_nothing(self, storage: Storage) -> None:
        running = await started(storage, a_job(on_failure=FULL))
        await happened(storage, running, GaveUp(OOPS))
        assert await total(storage) == 1

    async def test_its_limits_need_not_be_defined_when_it_is_stored(self, storage: Storage) -> None:
        await add(storage, keyed("k", on_failure=FULL))
