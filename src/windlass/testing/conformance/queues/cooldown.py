"""Throttled jobs, and queues that rest for everybody because one of them was."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from windlass._core.job.outcome import (
    Interrupted,
    Raised,
    Snoozed,
    Throttled,
)
from windlass._core.job.state import State, Verb
from windlass._core.job.transition import throttle
from windlass._storage.protocol.jobs import Verdict, Want
from windlass._storage.protocol.queues import QueueRecord
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.jobs.solo_runs import suspected
from windlass.testing.conformance.steps import (
    DAY,
    HOUR,
    INSTANT,
    MINUTE,
    OOPS,
    a_job,
    add,
    ask,
    at_most,
    claim,
    claim_one,
    end,
    ended,
    enlist,
    happened,
    ids,
    limited,
    look,
    queue_record,
    run_now,
    started,
    succeeded,
    throttled,
)

__all__ = ["CoolDownConformance", "ThrottleConformance"]

GRACE = timedelta(seconds=120)
MOST = 30


async def cooling(storage: Storage, *cools: timedelta, queue: str = "default") -> QueueRecord:
    """Send a queue to rest, by a job that is not in the way any more afterwards."""
    await enlist(storage)
    (job,) = await add(storage, a_job(queue=queue, priority=-99))
    (running,) = await claim(storage, queue=queue)
    assert running.claim.job == job
    answer = await throttled(storage, running, *cools)
    assert answer.cooled
    await storage.jobs.cancel([job])
    return await queue_record(storage, queue)


class ThrottleConformance:
    """The job: it comes back later, and it has cost nothing."""

    async def test_a_throttled_job_is_due_after_its_delay_and_has_spent_no_attempt(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # THROT-1
        running = await started(storage)
        answer = await throttled(storage, running, delay=MINUTE)
        assert (answer.verb, answer.cool_until, answer.cooled) == (Verb.THROTTLE, None, False)
        job = await look(storage, running)
        assert (job.state, job.due, job.attempt) == (State.WAITING, clock.now() + MINUTE, 0)
        assert list((await storage.workers.beat("w1")).holding) == []
        clock.advance(MINUTE - INSTANT)
        assert await claim(storage) == []
        clock.advance(INSTANT)
        assert ids(await claim(storage)) == [running.claim.job]

    async def test_every_throttle_is_counted_on_its_job_and_nothing_else_is(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # THROT-1
        running = await started(storage)
        assert (await look(storage, running)).throttled == 0
        for outcome in (Throttled(), Snoozed(0 * MINUTE), Throttled(cool_queue=False)):
            await happened(storage, running, outcome)
            clock.advance(MINUTE)
            running = await claim_one(storage)
        assert (await look(storage, running)).throttled == 2

    async def test_the_last_attempt_can_be_throttled_any_number_of_times(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # THROT-1
        running = await started(storage, a_job(max_attempts=1))
        for _ in range(5):
            await happened(storage, running, Throttled())
            clock.advance(MINUTE)
            running = await claim_one(storage)
            assert running.attempt == 1
        await succeeded(storage, running)
        assert (await look(storage, running)).state is State.SUCCEEDED

    async def test_a_throttle_leaves_the_last_error_as_it_was(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # THROT-1
        running = await started(storage)
        await happened(storage, running, Raised(OOPS))
        clock.advance(HOUR)
        await happened(storage, await claim_one(storage), Throttled())
        assert (await look(storage, running)).error == OOPS

    async def test_a_throttle_that_asks_for_no_rest_cools_nothing(self, storage: Storage) -> None:
        running = await started(storage)
        (other,) = await add(storage, a_job())
        await throttled(storage, running, delay=HOUR)
        assert await queue_record(storage) == QueueRecord(queue="default")
        assert ids(await claim(storage, 10)) == [other]


class CoolDownConformance:
    """No worker claims from the queue until the cool-down ends."""

    async def test_no_worker_gets_jobs_of_a_queue_before_its_cool_down_ends(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage, "w2")
        await at_most(storage, db=5)
        running = await started(storage)
        jobs = await add(storage, a_job(), limited("db"), a_job(priority=-5))
        await throttled(storage, running, MINUTE)
        for worker in ("w1", "w2"):
            assert await claim(storage, 10, worker=worker) == []
        clock.advance(MINUTE - INSTANT)
        assert await claim(storage, 10, worker="w2") == []
        clock.advance(INSTANT)
        assert set(ids(await claim(storage, 10, worker="w2"))) == {*jobs, running.claim.job}

    async def test_a_clock_that_is_set_back_prolongs_no_rest(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await cooling(storage, MINUTE)
        clock.jump(clock.now() - HOUR)
        (waiting,) = await add(storage, a_job())
        assert (await storage.jobs.outlook(["default"])).claimable
        assert (await ask(storage)).next_at == clock.now() + MINUTE
        outlook = await storage.jobs.outlook(["default"])
        assert (outlook.claimable, outlook.next_at) == (False, clock.now() + MINUTE)
        clock.advance(MINUTE - INSTANT)
        assert await claim(storage) == []
        clock.advance(INSTANT)
        assert ids(await claim(storage)) == [waiting]

    async def test_a_throttle_after_the_clock_was_set_back_cools_for_its_full_length(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        hit = await started(storage)
        await add(storage, a_job(queue="other"))
        (other,) = await claim(storage, queue="other")
        await cooling(storage, MINUTE)
        clock.jump(clock.now() - HOUR)
        for running, cooled in ((hit, False), (other, True)):
            answer = await throttled(storage, running, MINUTE)
            assert (answer.cool_until, answer.cooled) == (clock.now() + MINUTE, cooled)
            assert (await look(storage, running)).due == clock.now() + MINUTE
        for queue in ("default", "other"):
            assert (await ask(storage, queue=queue)).next_at == clock.now() + MINUTE
        clock.advance(MINUTE - INSTANT)
        assert await claim(storage, queue="other") == []
        clock.advance(INSTANT)
        assert ids(await claim(storage, queue="other")) == [other.claim.job]
        assert ids(await claim(storage)) == [hit.claim.job]

    async def test_the_reply_tells_when_the_rest_is_over(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await add(storage, a_job(delay=2 * HOUR))
        await cooling(storage, HOUR)
        await add(storage, a_job(), a_job(queue="b", delay=2 * HOUR))
        assert (await ask(storage)).next_at == clock.now() + HOUR
        wants = [Want("default", 1), Want("b", 1)]
        reply = await storage.jobs.claim("w1", wants, total=1)
        assert reply.next_at == clock.now() + HOUR

    async def test_other_queues_continue(self, storage: Storage) -> None:
        await cooling(storage, HOUR)
        await add(storage, a_job())
        (other,) = await add(storage, a_job(queue="b"))
        wants = [Want("default", 5), Want("b", 5)]
        reply = await storage.jobs.claim("w1", wants, total=5)
        assert [job.claim.job for job in reply.jobs] == [other]
        assert await queue_record(storage, "b") == QueueRecord(queue="b")

    async def test_a_cooling_queue_is_not_claimable_and_still_active(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await cooling(storage, MINUTE)
        await add(storage, a_job())
        assert not (await storage.jobs.outlook(["default"])).claimable
        assert await storage.jobs.active(["default"])
        clock.advance(MINUTE)
        assert (await storage.jobs.outlook(["default"])).claimable

    async def test_a_solo_job_cools_down_too_and_is_not_announced(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        alone = await suspected(storage)
        await cooling(storage, MINUTE)
        assert not (await ask(storage)).solo_due
        assert await claim(storage, solo=True) == []
        clock.advance(MINUTE)
        assert ids(await claim(storage, solo=True)) == [alone.claim.job]

    async def test_job_queue_and_answer_tell_one_instant(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # THROT-3, THROT-7
        clock.advance(0.123457)
        running = await started(storage)
        applied = await storage.jobs.apply(
            [throttle(running, by="w1", delay=0 * HOUR, cools=(HOUR,))]
        )
        (answer,) = applied.answers
        until = applied.at + HOUR
        assert (answer.verdict, answer.cool_until, answer.cooled) == (Verdict.APPLIED, until, True)
        assert await queue_record(storage) == QueueRecord(
            queue="default", cool_until=until, cool_downs=1
        )
        assert (await look(storage, running)).due == until

    async def test_a_hint_longer_than_the_curve_holds_for_the_whole_queue(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # C-16
        running = await started(storage)
        answer = await throttled(storage, running, MINUTE, delay=MINUTE + INSTANT)
        until = clock.now() + MINUTE + INSTANT
        assert answer.cool_until == (await queue_record(storage)).cool_until == until
        assert (await look(storage, running)).due == until

    async def test_a_hint_shorter_than_the_curve_gives_way_to_it(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # C-16
        running = await started(storage)
        answer = await throttled(storage, running, MINUTE, delay=MINUTE - INSTANT)
        until = clock.now() + MINUTE
        assert answer.cool_until == (await queue_record(storage)).cool_until == until
        assert (await look(storage, running)).due == until

    async def test_cool_downs_grow_with_the_hits_in_a_row_up_to_the_last_of_the_curve(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # THROT-3, THROT-6
        curve = (MINUTE, 5 * MINUTE, 7 * MINUTE)
        for count, rest in enumerate((*curve, curve[-1], curve[-1]), start=1):
            record = await cooling(storage, *curve)
            assert (record.cool_until, record.cool_downs) == (clock.now() + rest, count)
            clock.advance(rest)

    async def test_no_more_than_thirty_hits_in_a_row_are_counted(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # THROT-3
        curve = tuple(MINUTE * (count + 1) for count in range(MOST + 10))
        for hit in range(MOST + 3):
            record = await cooling(storage, *curve)
            assert record.cool_until == clock.now() + curve[min(hit, MOST)]
            assert record.cool_downs == min(hit + 1, MOST)
            clock.advance(HOUR)

    async def test_those_who_hit_one_limiter_together_are_one_hit(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # THROT-4
        first, second, third = [await started(storage) for _ in range(3)]
        batch = [
            throttle(job, by="w1", delay=0 * HOUR, cools=(MINUTE, DAY)) for job in (first, second)
        ]
        one, two = await end(storage, *batch)
        clock.advance(MINUTE - INSTANT)
        three = await throttled(storage, third, MINUTE, DAY)
        assert [answer.cooled for answer in (one, two, three)] == [True, False, False]
        until = clock.now() + INSTANT
        assert one.cool_until == two.cool_until == three.cool_until == until
        assert await queue_record(storage) == QueueRecord(
            queue="default", cool_until=until, cool_downs=1
        )
        assert [(await look(storage, job)).due for job in (first, second, third)] == [until] * 3

    async def test_of_many_concurrent_hits_one_counts(self, storage: Storage) -> None:  # THROT-4
        running = [await started(storage) for _ in range(20)]
        calls = [throttled(storage, job, MINUTE, DAY) for job in running]
        answers = await asyncio.gather(*calls)
        assert sum(answer.cooled for answer in answers) == 1
        assert (await queue_record(storage)).cool_downs == 1

    async def test_a_hit_during_a_cool_down_delays_only_its_own_job(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # THROT-4
        first, second = await started(storage), await started(storage)
        await throttled(storage, first, MINUTE)
        answer = await throttled(storage, second, MINUTE, delay=HOUR)
        assert (answer.cool_until, answer.cooled) == (clock.now() + MINUTE, False)
        assert (await look(storage, second)).due == clock.now() + HOUR
        assert (await queue_record(storage)).cool_until == clock.now() + MINUTE

    async def test_a_hit_at_the_very_end_of_a_rest_is_a_new_one(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # THROT-4: the deadline is reached at equality
        first, second = await started(storage), await started(storage)
        await throttled(storage, first, MINUTE, HOUR)
        clock.advance(MINUTE)
        answer = await throttled(storage, second, MINUTE, HOUR)
        assert (answer.cool_until, answer.cooled) == (clock.now() + HOUR, True)
        assert (await queue_record(storage)).cool_downs == 2

    async def test_every_queue_cools_down_separately(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await cooling(storage, MINUTE, HOUR, queue="a")
        record = await cooling(storage, MINUTE, HOUR, queue="b")
        assert (record.cool_until, record.cool_downs) == (clock.now() + MINUTE, 1)

    async def test_a_refused_throttle_changes_neither_row_nor_queue(
        self, storage: Storage
    ) -> None:  # THROT-8
        running = await started(storage)
        await happened(storage, running, Interrupted(), by="reaper")
        again = await claim_one(storage)
        before = await look(storage, again)
        late = throttle(running, by="w1", delay=HOUR, cools=(HOUR,))
        (answer,) = await end(storage, late)
        assert (answer.verdict, answer.cool_until, answer.cooled) == (Verdict.REFUSED, None, False)
        assert await look(storage, again) == before
        assert list(await storage.queues.queues()) == []

    async def test_a_repeated_throttle_counts_once(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # THROT-8
        running = await started(storage)
        hit = throttle(running, by="w1", delay=0 * HOUR, cools=(MINUTE, DAY))
        await ended(storage, hit)
        clock.advance(HOUR)
        (answer,) = await end(storage, hit)
        assert (answer.verdict, answer.verb) == (Verdict.REPEATED, Verb.THROTTLE)
        record = await queue_record(storage)
        assert (record.cool_until, record.cool_downs) == (clock.now() - HOUR + MINUTE, 1)
        assert (await look(storage, running)).throttled == 1

    async def test_a_throttle_that_gives_way_to_a_cancel_request_cools_nothing(
        self, storage: Storage
    ) -> None:
        running = await started(storage)
        await storage.jobs.cancel([running.claim.job])
        answer = await throttled(storage, running, HOUR)
        assert (answer.verb, answer.cool_until, answer.cooled) == (Verb.CANCEL, None, False)
        assert list(await storage.queues.queues()) == []
        assert (await look(storage, running)).throttled == 0

    async def test_neither_resuming_nor_run_now_ends_a_cool_down(self, storage: Storage) -> None:
        await cooling(storage, HOUR)
        jobs = await add(storage, a_job(delay=DAY))
        await storage.admin.pause("default")
        assert (await ask(storage)).next_at is None
        await storage.admin.resume("default")
        await run_now(storage, *jobs)
        assert await claim(storage, 10) == []

    async def test_a_rest_beyond_the_calendar_ends_within_it(self, storage: Storage) -> None:
        running = await started(storage)
        answer = await throttled(storage, running, 9_000 * 365 * DAY)
        assert answer.cool_until is not None
        assert answer.cool_until.year == 9000
        assert (await queue_record(storage)).cool_until == answer.cool_until
        assert (await look(storage, running)).due == answer.cool_until

    async def test_tidying_forgets_no_rest(self, storage: Storage) -> None:
        before = await cooling(storage, HOUR)
        await storage.maintenance.tidy()
        assert await queue_record(storage) == before
