"""`AdminStore.counts`: what is where, since when, and no further than is asked."""

from __future__ import annotations

from windlass._core.job.outcome import Raised, Snoozed
from windlass._core.limits.queue_settings import QueueSettings
from windlass._storage.protocol.actions import Requeue
from windlass._storage.protocol.admin import QueueCounts
from windlass._storage.protocol.storage import Storage
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.jobs.solo_runs import suspected
from windlass.testing.conformance.steps import (
    DAY,
    HOUR,
    MINUTE,
    OOPS,
    a_job,
    add,
    at_most,
    claim_one,
    failed,
    happened,
    limited,
    obeyed,
    started,
    succeeded,
    throttled,
)

__all__ = ["QueueCountConformance"]


async def counted(storage: Storage, cap: int | None = None) -> QueueCounts:
    """Return the counts of the only queue."""
    (counts,) = await storage.admin.counts(cap=cap)
    return counts


class QueueCountConformance:
    """Counts per queue."""

    async def test_jobs_that_are_retried_are_counted_among_the_ready_and_scheduled_ones(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await happened(storage, await started(storage), Raised(OOPS, MINUTE))
        await happened(storage, await started(storage), Raised(OOPS, HOUR))
        await add(storage, a_job(), a_job(delay=HOUR))
        counts = await counted(storage)
        assert (counts.ready, counts.scheduled, counts.retrying) == (1, 3, 2)
        clock.advance(MINUTE)
        counts = await counted(storage)
        assert (counts.ready, counts.scheduled, counts.retrying) == (2, 2, 2)

    async def test_a_requeued_job_is_retried_only_when_it_has_spent_an_attempt_again(
        self, storage: Storage
    ) -> None:
        job = await failed(storage)
        assert (await counted(storage)).retrying == 0
        await obeyed(storage, Requeue(), job)
        assert (await counted(storage)).retrying == 0
        running = await claim_one(storage)
        assert (await counted(storage)).retrying == 0
        await happened(storage, running, Raised(OOPS))
        assert (await counted(storage)).retrying == 1

    async def test_a_job_that_got_its_attempt_back_is_not_retried(self, storage: Storage) -> None:
        await happened(storage, await started(storage), Snoozed(HOUR))
        await throttled(storage, await started(storage), delay=HOUR)
        counts = await counted(storage)
        assert (counts.scheduled, counts.retrying) == (2, 0)

    async def test_the_oldest_due_job_is_the_one_that_has_been_ready_for_longest(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # STAT-4
        start = clock.now()
        await add(storage, a_job(delay=DAY))
        assert (await counted(storage)).oldest_due is None
        await add(storage, a_job(delay=MINUTE, priority=9))
        clock.advance(HOUR)
        await add(storage, a_job(priority=-9), a_job())
        assert (await counted(storage)).oldest_due == start + MINUTE  # not promoted before
        await storage.maintenance.promote(10)
        assert (await counted(storage)).oldest_due == start + MINUTE

    async def test_jobs_in_lanes_and_suspects_are_ready_too(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        start = clock.now()
        await at_most(storage, one=1)
        await started(storage, limited("one"))
        await add(storage, limited("one"), limited("one"))
        await suspected(storage, a_job(priority=-1))
        clock.advance(HOUR)
        await add(storage, a_job())
        counts = await counted(storage)
        assert (counts.ready, counts.running, counts.oldest_due) == (4, 1, start)

    async def test_a_queue_with_settings_is_listed_without_jobs(self, storage: Storage) -> None:
        await storage.queues.change("set", QueueSettings(max_running=1), old=QueueSettings())
        await storage.admin.pause("paused")
        await storage.admin.pause("resumed")
        await storage.admin.resume("resumed")
        assert list(await storage.admin.counts()) == [
            QueueCounts(queue="paused", paused=True),
            QueueCounts(queue="set"),
        ]

    async def test_no_number_is_counted_further_than_the_cap(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # STAT-9
        start = clock.now()
        for _ in range(3):
            await failed(storage)
            await succeeded(storage, await started(storage))
            await happened(storage, await started(storage), Raised(OOPS))
        await add(storage, *(a_job() for _ in range(3)))
        exact = await counted(storage)
        assert (exact.ready, exact.failed, exact.cap) == (3, 3, None)
        capped = QueueCounts(
            queue="default",
            ready=2,
            scheduled=2,
            succeeded=2,
            failed=2,
            retrying=2,
            oldest_due=start,
            cap=2,
        )
        assert await counted(storage, cap=2) == capped
        below = await counted(storage, cap=4)
        assert (below.ready, below.scheduled, below.failed, below.cap) == (3, 3, 3, 4)

    async def test_a_cap_applies_to_every_kind_of_waiting(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await at_most(storage, one=1)
        await add(storage, a_job(delay=MINUTE), limited("one"), limited("one"))
        await suspected(storage, a_job(priority=-1))
        clock.advance(MINUTE)
        await add(storage, a_job(), a_job(delay=HOUR))
        assert (await counted(storage, cap=10)).ready == 5
        assert (await counted(storage, cap=5)).ready == 5
        assert (await counted(storage, cap=4)).ready == 4
        assert (await counted(storage, cap=4)).scheduled == 1

    async def test_queues_are_capped_each_on_its_own(self, storage: Storage) -> None:
        await add(storage, *(a_job(queue="a") for _ in range(3)), a_job(queue="b"))
        job = a_job(queue="c")
        await add(storage, job)
        await storage.jobs.cancel([job.id])
        counts = await storage.admin.counts(cap=2)
        assert [(one.queue, one.ready, one.cancelled) for one in counts] == [
            *(("a", 2, 0), ("b", 1, 0), ("c", 0, 1))
        ]
        assert {one.cap for one in counts} == {2}
