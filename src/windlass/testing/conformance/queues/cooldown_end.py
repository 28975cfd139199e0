"""Queues that have rested: what is forgotten of it, and when."""

from __future__ import annotations

from datetime import timedelta

from windlass._core.job.outcome import (
    Cancelled,
    GaveUp,
    Interrupted,
    Lost,
    Outcome,
    Raised,
    Snoozed,
    Throttled,
)
from windlass._core.job.transition import succeed, throttle
from windlass._storage.protocol.queues import QueueRecord
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.queues.cooldown import cooling
from windlass.testing.conformance.steps import (
    DAY,
    HOUR,
    INSTANT,
    MINUTE,
    OOPS,
    a_job,
    add,
    claim,
    end,
    ended,
    happened,
    ids,
    queue_record,
    started,
    succeeded,
)
from windlass.testing.conformance.storage import woken

__all__ = ["CooldownEndConformance"]

GRACE = timedelta(seconds=120)


class CooldownEndConformance:
    """When a queue is as if it had never been turned away."""

    async def test_a_success_that_was_under_way_ends_no_rest(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # THROT-5
        running = await started(storage)
        before = await cooling(storage, HOUR)
        clock.advance(MINUTE)
        await succeeded(storage, running)
        assert await queue_record(storage) == before
        await add(storage, a_job())
        assert await claim(storage) == []

    async def test_a_success_resets_cool_downs_that_ended_two_minutes_ago_not_sooner(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # THROT-5, THROT-6
        early, late = await started(storage), await started(storage)
        before = await cooling(storage, MINUTE)
        clock.advance(MINUTE + GRACE - INSTANT)
        await succeeded(storage, early)
        assert await queue_record(storage) == before
        clock.advance(INSTANT)
        await succeeded(storage, late)
        assert list(await storage.queues.queues()) == []

    async def test_within_the_grace_jobs_start_and_the_next_rest_is_longer(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # THROT-6: a limiter that flaps
        await cooling(storage, MINUTE, HOUR)
        clock.advance(MINUTE + GRACE - INSTANT)
        await succeeded(storage, await started(storage))
        record = await cooling(storage, MINUTE, HOUR)
        assert (record.cool_until, record.cool_downs) == (clock.now() + HOUR, 2)

    async def test_after_it_was_forgiven_a_queue_begins_at_the_first_rest(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await cooling(storage, MINUTE, HOUR)
        clock.advance(MINUTE + GRACE)
        await succeeded(storage, await started(storage))
        record = await cooling(storage, MINUTE, HOUR)
        assert (record.cool_until, record.cool_downs) == (clock.now() + MINUTE, 1)

    async def test_time_alone_forgives_nothing(self, storage: Storage, clock: VirtualClock) -> None:
        await cooling(storage, MINUTE, HOUR)
        clock.advance(DAY)
        assert (await cooling(storage, MINUTE, HOUR)).cool_downs == 2

    async def test_only_a_success_forgives(self, storage: Storage, clock: VirtualClock) -> None:
        outcomes: tuple[Outcome, ...] = (
            Raised(OOPS),
            GaveUp(OOPS),
            Snoozed(HOUR),
            Throttled(HOUR),
            Interrupted(),
            Cancelled(),
            Lost(OOPS),
        )
        running = [await started(storage) for _ in outcomes]
        before = await cooling(storage, MINUTE)
        clock.advance(DAY)
        for job, outcome in zip(running, outcomes, strict=True):
            await happened(storage, job, outcome)
            assert await queue_record(storage) == before, outcome

    async def test_a_success_in_another_queue_forgives_nothing(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        before = await cooling(storage, MINUTE, queue="b")
        clock.advance(DAY)
        await succeeded(storage, await started(storage))
        assert await queue_record(storage, "b") == before

    async def test_a_success_that_is_not_kept_forgives_too(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await cooling(storage, MINUTE)
        clock.advance(DAY)
        running = await started(storage)
        await ended(storage, succeed(running, by="w1", result=None, keep=False))
        assert list(await storage.queues.queues()) == []

    async def test_a_refused_success_forgives_nothing(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # THROT-8
        before = await cooling(storage, MINUTE)
        clock.advance(DAY)
        running = await started(storage)
        await happened(storage, running, Interrupted(), by="reaper")
        await end(storage, succeed(running, by="w1", result=None))
        assert await queue_record(storage) == before

    async def test_within_one_batch_each_finish_sees_what_the_one_before_it_left(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await cooling(storage, MINUTE, HOUR)
        clock.advance(DAY)
        won, hit, late = [await started(storage) for _ in range(3)]
        await end(
            storage,
            succeed(won, by="w1", result=None),
            throttle(hit, by="w1", delay=0 * HOUR, cools=(MINUTE, HOUR)),
            succeed(late, by="w1", result=None),
        )
        record = await queue_record(storage)
        assert (record.cool_until, record.cool_downs) == (clock.now() + MINUTE, 1)

    async def test_warming_a_queue_ends_its_rest_and_forgets_those_before(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await cooling(storage, MINUTE, HOUR)
        clock.advance(MINUTE)
        await cooling(storage, MINUTE, HOUR)
        (waiting,) = await add(storage, a_job())
        await storage.queues.warm("default")
        assert list(await storage.queues.queues()) == []
        assert (await storage.jobs.outlook(["default"])).claimable
        assert ids(await claim(storage)) == [waiting]
        assert (await cooling(storage, MINUTE, HOUR)).cool_until == clock.now() + MINUTE

    async def test_warming_leaves_everything_else_of_the_queue_as_it_is(
        self, storage: Storage
    ) -> None:
        await cooling(storage, HOUR, queue="other")
        await cooling(storage, HOUR)
        await storage.admin.pause("default")
        await storage.queues.warm("default")
        assert await queue_record(storage) == QueueRecord(queue="default", paused=True)
        assert (await queue_record(storage, "other")).cool_downs == 1

    async def test_warming_a_queue_that_does_not_rest_is_harmless(self, storage: Storage) -> None:
        await storage.queues.warm("default")
        assert list(await storage.queues.queues()) == []

    async def test_warming_wakes(self, storage: Storage) -> None:
        await cooling(storage, HOUR)
        async with woken(storage):
            await storage.queues.warm("default")
