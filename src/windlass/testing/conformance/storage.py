"""`Storage` and `Wakeups`: what holds for the backend as a whole."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager, closing

import msgspec
import pytest

from windlass._core.job.outcome import GaveUp, Succeeded
from windlass._core.job.unique import OnConflict, UniqueKey
from windlass._core.limits.limit import LimitSpec
from windlass._storage.protocol.actions import Cancel
from windlass._storage.protocol.schedules import ScheduleWrite
from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.wakeups import Topic, WorkHints
from windlass.errors import LimitUnknown
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    HOUR,
    MINUTE,
    OOPS,
    a_job,
    a_worker,
    add,
    claim,
    enlist,
    happened,
    keyed,
    limited,
    obeyed,
    requeue,
    run_now,
    started,
)

__all__ = ["QueueWakeupConformance", "StorageConformance", "WakeupConformance"]

PATIENCE = 5.0
"""Seconds a hint may take. It comes at once; the time bounds a store that sends none."""
QUIET = 0.03
"""Seconds without a hint after which none is under way any more."""


class Ear:
    """A subscriber to any change or to one topic, or a worker that waits for jobs of queues."""

    def __init__(
        self,
        storage: Storage,
        *queues: str,
        topic: Topic = Topic.ANY,
        takes: bool = True,
    ) -> None:
        """``takes``: what a worker answers that is woken."""
        self.called: asyncio.Event = asyncio.Event()
        self._queues, self._takes = queues, takes
        self._hints: WorkHints | None = None
        if queues:
            self._hints = storage.wakeups.work(self._hear, queues)
            self.close: Callable[[], None] = self._hints.close
        else:
            self.close = storage.wakeups.subscribe(self.called.set, topic)
        self.listen()

    def _hear(self) -> bool:
        self.called.set()
        return self._takes

    def listen(self) -> None:
        """Hear what comes from now on."""
        self.called.clear()
        if self._hints is not None:
            self._hints.want(self._queues)

    async def hears(self, patience: float | None = None) -> bool:
        """Return whether it is called in that time, by default within PATIENCE."""
        try:
            async with asyncio.timeout(PATIENCE if patience is None else patience):
                return await self.called.wait()
        except TimeoutError:
            return False

    async def in_silence(self) -> Ear:
        """Wait until no hint is under way any more: it would prove nothing."""
        while await self.hears(QUIET):
            self.listen()
        return self


@asynccontextmanager
async def woken(storage: Storage, *queues: str, topic: Topic = Topic.ANY) -> AsyncIterator[None]:
    """Check that the block wakes a subscriber; a worker of these queues, if some are named."""
    with closing(Ear(storage, *queues, topic=topic)) as ear:
        await ear.in_silence()
        yield
        assert await ear.hears(), "nobody was woken"


async def left_alone(storage: Storage, act: Callable[[], Awaitable[object]], *queues: str) -> bool:
    """Return whether what is done does not wake a subscriber, for these queues if some
    are named.
    """
    for _ in range(3):  # one hint may be that of a connection that begins to listen
        with closing(Ear(storage, *queues)) as ear:
            await ear.in_silence()
            await act()
            if not await ear.hears(2 * QUIET):
                return True
    return False


class WakeupConformance:
    """Hints: all subscribers poll too, but should not have to."""

    async def test_a_new_job_wakes(self, storage: Storage) -> None:  # ENQ-10
        async with woken(storage):
            await add(storage, a_job())

    async def test_a_new_job_wakes_who_serves_its_queue(self, storage: Storage) -> None:  # ENQ-10
        async with woken(storage, "bulk", "mail"):
            await add(storage, a_job(queue="mail"))
        async with woken(storage, "mail"):
            await add(storage, a_job(queue="mail", delay=MINUTE))

    async def test_a_batch_wakes_every_queue_it_is_for(self, storage: Storage) -> None:  # ENQ-10
        queues = [f"q{number}" for number in range(40)]
        for some in (queues, queues[:3]):
            async with woken(storage, "q0"), woken(storage, "q1"), woken(storage, some[-1]):
                await storage.jobs.insert([a_job(queue=queue) for queue in some])

    async def test_a_replaced_job_wakes_who_serves_its_holders_queue(
        self, storage: Storage
    ) -> None:
        await add(storage, keyed("only one", queue="slow", delay=HOUR))
        unique = UniqueKey("only one", on_conflict=OnConflict.REPLACE)
        async with woken(storage, "slow"):
            (answer,) = await storage.jobs.insert([a_job(queue="fast", unique=unique)])
            assert answer.replaced

    async def test_a_resumed_queue_wakes_who_serves_it(self, storage: Storage) -> None:
        await storage.admin.pause("mail")
        async with woken(storage, "mail"):
            await storage.admin.resume("mail")

    async def test_a_refused_batch_wakes_no_worker(self, storage: Storage) -> None:  # ENQ-8
        async def refused() -> None:
            with pytest.raises(LimitUnknown):
                await storage.jobs.insert([a_job(), limited("undefined")])

        assert await left_alone(storage, refused)
        assert await left_alone(storage, refused, "default")

    async def test_a_freed_limit_wakes_other_queues_too(self, storage: Storage) -> None:
        await storage.limits.define([LimitSpec(name="db", concurrency=1)])
        running = await started(storage, limited("db"))
        await add(storage, limited("db", queue="bulk"))
        assert not await claim(storage, queue="bulk")
        async with woken(storage, "bulk"):
            await happened(storage, running, Succeeded())

    async def test_a_subscriber_without_queues_hears_of_every_queue(self, storage: Storage) -> None:
        async with woken(storage):
            await add(storage, a_job(queue="mail"))

    async def test_as_many_workers_are_woken_as_jobs_come(self, storage: Storage) -> None:
        with ExitStack() as stack:
            ears = [stack.enter_context(closing(Ear(storage, "mail"))) for _ in range(3)]
            for ear in ears:
                await ear.in_silence()
            await storage.jobs.insert([a_job(queue="mail") for _ in range(3)])
            assert [await ear.hears() for ear in ears] == [True] * 3

    async def test_a_worker_that_takes_nothing_leaves_its_hint_to_another(
        self, storage: Storage
    ) -> None:
        with (
            closing(Ear(storage, "mail", takes=False)) as full,
            closing(Ear(storage, "mail")) as idle,
        ):
            await full.in_silence()
            await idle.in_silence()
            await add(storage, a_job(queue="mail"))
            assert await idle.hears()

    async def test_work_that_no_worker_waited_for_wakes_the_next_that_waits(
        self, storage: Storage
    ) -> None:
        called = asyncio.Event()

        def hear() -> bool:
            called.set()
            return True

        hints = storage.wakeups.work(hear, ["mail"])
        await add(storage, a_job(queue="mail"))
        hints.want(["mail"])
        try:
            await asyncio.wait_for(called.wait(), PATIENCE)
        finally:
            hints.close()

    async def test_a_worker_that_closed_its_hints_is_not_called(self, storage: Storage) -> None:
        gone = Ear(storage, "mail")
        await gone.in_silence()
        gone.close()
        gone.close()
        async with woken(storage):
            await add(storage, a_job(queue="mail"))
        assert not await gone.hears(QUIET)

    async def test_a_cancel_request_wakes_who_waits_for_those(self, storage: Storage) -> None:
        running = await started(storage)
        async with woken(storage, topic=Topic.CANCEL):
            await storage.jobs.cancel([running.claim.job])
        async with woken(storage, topic=Topic.CANCEL):
            await obeyed(storage, Cancel(), running.claim.job)

    async def test_a_written_schedule_wakes_who_waits_for_those(self, storage: Storage) -> None:
        write = ScheduleWrite(name="nightly", revision=0, body=b"{}")
        async with woken(storage, topic=Topic.SCHEDULE):
            await storage.schedules.write([write])

    async def test_an_ended_claim_wakes(self, storage: Storage) -> None:
        running = await started(storage)
        async with woken(storage):
            await happened(storage, running, Succeeded())

    async def test_a_cancel_request_wakes(self, storage: Storage) -> None:
        running = await started(storage)
        async with woken(storage):
            await storage.jobs.cancel([running.claim.job])

    async def test_a_requeue_wakes(self, storage: Storage) -> None:  # H-16
        running = await started(storage)
        await happened(storage, running, GaveUp(OOPS))
        async with woken(storage):
            await requeue(storage, running.claim.job)

    async def test_making_a_job_due_wakes(self, storage: Storage) -> None:  # H-16
        jobs = await add(storage, a_job(delay=HOUR))
        async with woken(storage):
            await run_now(storage, *jobs)

    async def test_resuming_a_queue_wakes(self, storage: Storage) -> None:
        await storage.admin.pause("default")
        async with woken(storage):
            await storage.admin.resume("default")

    async def test_promotion_wakes(self, storage: Storage, clock: VirtualClock) -> None:
        await add(storage, a_job(delay=MINUTE))
        clock.advance(MINUTE)
        async with woken(storage):
            await storage.maintenance.promote(10)

    async def test_an_expired_job_wakes_who_waits_for_its_result(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await add(storage, a_job(expires=MINUTE))
        clock.advance(HOUR)
        async with woken(storage):
            await storage.maintenance.expire(10)

    async def test_an_expired_job_that_a_claim_meets_wakes_who_waits_for_its_result(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        await add(storage, a_job(expires=MINUTE))
        clock.advance(HOUR)
        async with woken(storage):
            assert await claim(storage) == []

    async def test_subscribers_are_called_on_their_own_event_loop(self, storage: Storage) -> None:
        threads: list[int] = []
        unsubscribe = storage.wakeups.subscribe(lambda: threads.append(threading.get_ident()))
        async with woken(storage):
            await add(storage, a_job())
        unsubscribe()
        assert set(threads) == {threading.get_ident()}

    async def test_leaving_wakes(self, storage: Storage) -> None:
        await started(storage)
        async with woken(storage):
            await storage.workers.leave("w1", [])

    async def test_a_raised_limit_wakes(self, storage: Storage) -> None:
        await storage.limits.define([LimitSpec(name="db", concurrency=1)])
        async with woken(storage):
            await storage.limits.define([LimitSpec(name="db", concurrency=2)])

    async def test_every_subscriber_is_woken_and_again_each_time(self, storage: Storage) -> None:
        async with woken(storage), woken(storage):
            await add(storage, a_job())
        async with woken(storage):
            await add(storage, a_job())

    async def test_an_unsubscribed_callback_is_not_called(self, storage: Storage) -> None:
        calls: list[None] = []
        unsubscribe = storage.wakeups.subscribe(lambda: calls.append(None))
        unsubscribe()
        unsubscribe()
        async with woken(storage):
            await add(storage, a_job())
        assert calls == []


class QueueWakeupConformance:
    """Hints that name queues: who serves others is left alone."""

    async def test_a_deduplicated_job_wakes_no_subscriber(self, storage: Storage) -> None:  # ENQ-10
        await add(storage, keyed("only one"))

        async def again() -> None:
            (answer,) = await storage.jobs.insert([keyed("only one")])
            assert not answer.created

        assert await left_alone(storage, again)
        assert await left_alone(storage, again, "default")

    async def test_a_new_job_leaves_the_workers_of_other_queues_alone(
        self, storage: Storage
    ) -> None:  # ENQ-10
        async def store() -> None:
            await storage.jobs.insert([a_job(queue="mail"), a_job(queue="post", delay=HOUR)])

        assert await left_alone(storage, store, "bulk", "reports")

    async def test_a_resumed_queue_leaves_the_workers_of_others_alone(
        self, storage: Storage
    ) -> None:
        async def resume() -> None:
            await storage.admin.pause("mail")
            await storage.admin.resume("mail")

        assert await left_alone(storage, resume, "bulk")


class StorageConformance:
    """The backend itself."""

    async def test_the_clock_is_the_storages_own(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # guarantee 9
        clock.advance(HOUR)
        assert await storage.now() == clock.now()

    async def test_it_describes_itself_in_one_line(self, storage: Storage) -> None:
        assert storage.describe()
        assert "\n" not in storage.describe()

    async def test_it_says_how_it_is(self, storage: Storage) -> None:  # DBH-1
        await add(storage, a_job())
        health = await storage.health()
        assert health.get("durability")
        assert all(isinstance(value, str | int | float) for value in health.values())
        assert "size" not in health or float(health["size"]) > 0

    async def test_the_death_of_a_worker_that_lives_is_never_proven(self, storage: Storage) -> None:
        boot_id, device, inode = storage.hold_worker_lock("w1")
        start = msgspec.structs.replace(
            a_worker("w1"), boot_id=boot_id, lock_device=device, lock_inode=inode
        )
        assert not storage.prove_dead(start)
        storage.release_worker_lock("w1")

    async def test_closing_again_is_harmless(self, storage: Storage) -> None:
        await storage.close()
        await storage.close()
