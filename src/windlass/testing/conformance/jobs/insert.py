"""`JobStore.insert`: what is stored, when it is due, and who holds a unique key."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from windlass._core.job.job import LimitUse
from windlass._core.job.outcome import GaveUp, Raised, Succeeded
from windlass._core.job.state import State
from windlass._core.job.transition import retry, succeed
from windlass._core.job.unique import UniqueKey, Window
from windlass._core.limits.backoff import Backoff
from windlass._core.limits.limit import LimitSpec
from windlass._storage.protocol.jobs import Inserted
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import new_job_id
from windlass.errors import LimitUnknown
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    DAY,
    HOUR,
    INSTANT,
    MINUTE,
    OOPS,
    a_job,
    add,
    ask,
    claim,
    claim_one,
    ended,
    enlist,
    happened,
    ids,
    keyed,
    limited,
    look,
    requeue,
    started,
    total,
)

__all__ = ["InsertConformance", "UniqueConformance"]


class InsertConformance:
    """The stored values of a new job."""

    async def test_a_new_job_waits_with_attempt_and_claim_number_zero(
        self, storage: Storage
    ) -> None:  # ENQ-12
        (wanted,) = await add(storage, a_job())
        job = await look(storage, wanted)
        assert (job.state, job.attempt, job.claim_number) == (State.WAITING, 0, 0)
        assert (job.worker, job.started_at, job.finished_at) == (None, None, None)

    async def test_a_job_without_a_time_is_due_now(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # ENQ-12
        job = await look(storage, *await add(storage, a_job()))
        assert (job.created_at, job.due) == (clock.now(), clock.now())

    async def test_everything_asked_for_is_stored(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # ENQ-19
        await storage.limits.define([LimitSpec(name="api", concurrency=2)])
        asked = a_job(
            task="mail.send",
            queue="mail",
            payload=b'{"to": "\xc3\xa9"}',
            priority=-7,
            max_attempts=3,
            timeout=MINUTE,
            expires=HOUR,
            backoff=Backoff.linear(3, step=4, cap=HOUR, jitter="full"),
            unique=UniqueKey("mail.send/1"),
            limits=(LimitUse("api", "eu", 2.5),),
            tags=("a", "b"),
            tenant="acme",
            principal="42",
            correlation_id="c-1",
            trace="00-trace",
            parent=new_job_id(),
        )
        await add(storage, asked)
        job = await look(storage, asked)
        assert (job.id, job.task, job.queue, job.payload) == (
            asked.id,
            "mail.send",
            "mail",
            asked.payload,
        )
        assert (job.priority, job.max_attempts, job.budget) == (-7, 3, 3)
        assert (job.timeout, job.expires_at) == (MINUTE, clock.now() + HOUR)
        assert (job.backoff, job.limits, job.tags) == (asked.backoff, asked.limits, asked.tags)
        assert (job.key, job.key_held) == ("mail.send/1", True)
        assert (job.tenant, job.principal, job.correlation_id) == ("acme", "42", "c-1")
        assert (job.trace, job.parent) == ("00-trace", asked.parent)

    async def test_answers_come_in_the_order_of_the_batch(
        self, storage: Storage
    ) -> None:  # ENQ-2, ENQ-7
        first, second, again = a_job(), keyed("k"), keyed("k")
        assert list(await storage.jobs.insert([first, second, again])) == [
            Inserted(first.id, created=True),
            Inserted(second.id, created=True),
            Inserted(second.id, created=False),
        ]

    async def test_the_order_of_insertion_is_the_order_of_the_batch(
        self, storage: Storage
    ) -> None:  # ENQ-1, ENQ-7
        await enlist(storage)
        batch = [a_job() for _ in range(5)]
        wanted = [*await add(storage, *batch[:3]), *await add(storage, *batch[3:])]
        numbers = [(await look(storage, job)).seq for job in wanted]
        assert numbers == sorted(set(numbers))
        assert ids(await claim(storage, 5)) == wanted

    async def test_a_delay_counts_from_the_stores_now(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # PRIO-8
        job = await look(storage, *await add(storage, a_job(delay=MINUTE)))
        assert job.due == clock.now() + MINUTE

    async def test_a_job_for_an_instant_is_due_then(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # PRIO-8
        job = await look(storage, *await add(storage, a_job(at=clock.now() + DAY)))
        assert job.due == clock.now() + DAY

    async def test_an_instant_in_the_past_is_kept_and_orders_the_job(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # PRIO-8
        await enlist(storage)
        (fresh,) = await add(storage, a_job())
        (late,) = await add(storage, a_job(at=clock.now() - HOUR))
        assert (await look(storage, late)).due == clock.now() - HOUR
        assert ids(await claim(storage, 2)) == [late, fresh]

    async def test_times_beyond_the_calendar_block_no_job(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        ever = timedelta.max
        unique = UniqueKey("k", Window.FOR_A_TIME, ever)
        never = await add(
            storage, a_job(delay=ever), a_job(at=datetime.max.replace(tzinfo=UTC)), a_job(queue="b")
        )
        lasting = await add(storage, a_job(expires=ever, timeout=ever, unique=unique))
        reply = await ask(storage, 10)
        assert ids(list(reply.jobs)) == lasting
        assert [(await look(storage, job)).due.year for job in never[:2]] == [9000, 9000]
        assert reply.next_at is not None
        assert reply.next_at.year == 9000
        await ended(storage, retry(reply.jobs[0], by="w1", error=OOPS, delay=ever))
        assert (await look(storage, lasting[0])).due.year == 9000
        clock.advance(DAY)
        (answer,) = await storage.jobs.insert([a_job(unique=unique)])
        assert not answer.created

    async def test_an_id_that_is_stored_is_not_stored_again(
        self, storage: Storage
    ) -> None:  # guarantee 8: the answer to the first call was lost
        job = a_job(payload=b"1")
        await add(storage, job)
        await add(storage, a_job(id=job.id, payload=b"1", priority=3))
        assert (await look(storage, job)).payload == b"1"
        assert await total(storage) == 1

    async def test_repeating_an_insert_does_not_disturb_the_run_it_led_to(
        self, storage: Storage
    ) -> None:  # guarantee 8
        job = a_job()
        running = await started(storage, job)
        await add(storage, job)
        assert (await look(storage, running)).state is State.RUNNING
        assert await claim(storage) == []

    async def test_a_repeated_insert_with_a_key_is_not_its_own_duplicate(
        self, storage: Storage
    ) -> None:  # guarantee 8
        job = keyed("k")
        await add(storage, job)
        await add(storage, job)
        assert await total(storage) == 1

    async def test_a_batch_with_an_unknown_limit_stores_nothing(
        self, storage: Storage
    ) -> None:  # ENQ-8
        await storage.limits.define([LimitSpec(name="known", concurrency=1)])
        with pytest.raises(LimitUnknown, match="unheard-of"):
            await storage.jobs.insert([a_job(), limited("known"), limited("unheard-of")])
        assert await total(storage) == 0

    async def test_an_empty_batch_is_answered_with_nothing(self, storage: Storage) -> None:
        assert list(await storage.jobs.insert([])) == []


class UniqueConformance:
    """Keys: who holds one, from when, until when."""

    async def test_a_held_key_answers_with_its_holder(
        self, storage: Storage
    ) -> None:  # F2, ENQ-2, forge dedupe_returns_existing_active_id
        (holder,) = await add(storage, keyed("k"))
        second = keyed("k")
        assert list(await storage.jobs.insert([second])) == [Inserted(holder, created=False)]
        assert list(await storage.admin.get([second.id])) == [None]

    async def test_jobs_without_a_key_are_all_stored(self, storage: Storage) -> None:  # F2, ENQ-5
        await add(storage, a_job(), a_job())
        assert await total(storage) == 2

    async def test_a_key_is_held_within_its_own_batch(self, storage: Storage) -> None:  # ENQ-7
        first, second = keyed("k"), keyed("k")
        answers = await storage.jobs.insert([first, second])
        assert [answer.id for answer in answers] == [first.id, first.id]
        assert await total(storage) == 1

    async def test_a_key_is_held_across_queues(self, storage: Storage) -> None:  # ENQ-4
        (holder,) = await add(storage, keyed("k", queue="a"))
        (answer,) = await storage.jobs.insert([keyed("k", queue="b")])
        assert answer == Inserted(holder, created=False)

    async def test_different_keys_are_different_jobs(self, storage: Storage) -> None:
        await add(storage, keyed("k"), keyed("K"), keyed("k "))
        assert await total(storage) == 3

    async def test_of_fifty_concurrent_inserts_with_one_key_one_is_created(
        self, storage: Storage
    ) -> None:  # ENQ-6, guarantee 4
        calls = [storage.jobs.insert([keyed("k")]) for _ in range(50)]
        answers = [answer for (answer,) in await asyncio.gather(*calls)]
        assert sum(answer.created for answer in answers) == 1
        assert len({answer.id for answer in answers}) == 1
        assert await total(storage) == 1

    async def test_a_running_job_holds_its_key(self, storage: Storage) -> None:  # ENQ-3
        running = await started(storage, keyed("k"))
        (answer,) = await storage.jobs.insert([keyed("k")])
        assert answer == Inserted(running.claim.job, created=False)

    async def test_a_retrying_job_holds_its_key(
        self, storage: Storage
    ) -> None:  # guarantee 4; the sources free it
        running = await started(storage, keyed("k"))
        await happened(storage, running, Raised(OOPS))
        (answer,) = await storage.jobs.insert([keyed("k")])
        assert answer == Inserted(running.claim.job, created=False)

    async def test_a_succeeded_job_frees_its_key(self, storage: Storage) -> None:  # ENQ-3
        await happened(storage, await started(storage, keyed("k")), Succeeded())
        (free,) = await add(storage, keyed("k"))
        assert (await look(storage, free)).key_held

    async def test_a_failed_job_frees_its_key_and_still_shows_it(
        self, storage: Storage
    ) -> None:  # ENQ-3
        running = await started(storage, keyed("k"))
        await happened(storage, running, GaveUp(OOPS))
        failed = await look(storage, running)
        assert (failed.key, failed.key_held) == ("k", False)
        await add(storage, keyed("k"))

    async def test_a_cancelled_job_frees_its_key(self, storage: Storage) -> None:  # ENQ-3
        waiting = await add(storage, keyed("k"))
        await storage.jobs.cancel(waiting)
        await add(storage, keyed("k"))

    async def test_a_job_whose_retry_gave_way_to_a_cancel_frees_its_key(
        self, storage: Storage
    ) -> None:  # keys follow the verb that took effect
        running = await started(storage, keyed("k"))
        await storage.jobs.cancel([running.claim.job])
        await happened(storage, running, Raised(OOPS))
        await add(storage, keyed("k"))

    async def test_a_success_that_is_not_kept_frees_its_key(self, storage: Storage) -> None:
        running = await started(storage, keyed("k"))
        await ended(storage, succeed(running, by="w1", result=None, keep=False))
        await add(storage, keyed("k"))

    async def test_an_expired_job_frees_its_key(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        holder = await add(storage, keyed("k", expires=MINUTE))
        clock.advance(HOUR)
        assert list(await storage.maintenance.expire(10)) == holder
        await add(storage, keyed("k"))

    async def test_a_key_held_until_started_is_free_once_its_job_runs(
        self, storage: Storage
    ) -> None:  # ENQ-22
        await enlist(storage)
        (holder,) = await add(storage, keyed("k", Window.UNTIL_STARTED))
        (answer,) = await storage.jobs.insert([keyed("k", Window.UNTIL_STARTED)])
        assert answer == Inserted(holder, created=False)
        assert (await claim_one(storage)).claim.job == holder
        await add(storage, keyed("k", Window.UNTIL_STARTED))

    async def test_a_key_held_until_started_is_not_taken_again_by_a_retry(
        self, storage: Storage
    ) -> None:  # guarantee 4
        running = await started(storage, keyed("k", Window.UNTIL_STARTED))
        await happened(storage, running, Raised(OOPS))
        assert not (await look(storage, running)).key_held
        await add(storage, keyed("k", Window.UNTIL_STARTED))

    async def test_a_key_held_for_a_time_outlives_its_job(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # ENQ-22
        running = await started(storage, keyed("k", Window.FOR_A_TIME))
        await happened(storage, running, Succeeded())
        clock.advance(HOUR - INSTANT)
        (answer,) = await storage.jobs.insert([keyed("k", Window.FOR_A_TIME)])
        assert answer == Inserted(running.claim.job, created=False)

    async def test_a_key_held_for_a_time_is_free_when_the_time_is_up(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # ENQ-22
        (waiting,) = await add(storage, keyed("k", Window.FOR_A_TIME, delay=DAY))
        clock.advance(HOUR)
        (second,) = await add(storage, keyed("k", Window.FOR_A_TIME))
        assert (await look(storage, second)).key_held
        (answer,) = await storage.jobs.insert([keyed("k", Window.FOR_A_TIME)])
        assert answer == Inserted(second, created=False)
        assert (await look(storage, waiting)).state is State.WAITING

    async def test_a_key_held_for_a_time_goes_with_its_row(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        done = await started(storage, keyed("k", Window.FOR_A_TIME))
        await happened(storage, done, Succeeded())
        clock.advance(MINUTE)
        state = State.SUCCEEDED
        assert await storage.maintenance.prune(state=state, older_than=0 * HOUR, limit=9) == 1
        await add(storage, keyed("k", Window.FOR_A_TIME))

    async def test_a_requeue_takes_a_key_held_for_a_time_for_a_new_period(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        failed = await started(storage, keyed("k", Window.FOR_A_TIME))
        await happened(storage, failed, GaveUp(OOPS))
        clock.advance(DAY)
        await requeue(storage, failed.claim.job)
        clock.advance(HOUR - INSTANT)
        (answer,) = await storage.jobs.insert([keyed("k", Window.FOR_A_TIME)])
        assert answer == Inserted(failed.claim.job, created=False)
        clock.advance(INSTANT)
        await add(storage, keyed("k", Window.FOR_A_TIME))

    async def test_a_requeue_does_not_prolong_a_key_that_is_still_held(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        failed = await started(storage, keyed("k", Window.FOR_A_TIME))
        await happened(storage, failed, GaveUp(OOPS))
        clock.advance(HOUR / 2)
        await requeue(storage, failed.claim.job)
        clock.advance(HOUR / 2)
        await add(storage, keyed("k", Window.FOR_A_TIME))
