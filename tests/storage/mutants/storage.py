"""Storages that wake nobody, or are wrong about themselves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta

from tests.storage.mutants.table import fails
from windlass._core.job.job import JobId, NewJob
from windlass._core.job.transition import Transition
from windlass._core.limits.limit import LimitSpec
from windlass._storage.memory import MemoryDatabase, MemoryStorage
from windlass._storage.memory.admin.actions import MemoryActions
from windlass._storage.memory.admin.admin import MemoryAdmin
from windlass._storage.memory.jobs.jobs import MemoryJobs
from windlass._storage.memory.maintenance import MemoryLimits, MemoryMaintenance
from windlass._storage.memory.storage import MemoryWakeups
from windlass._storage.memory.workers import MemoryWorkers
from windlass._storage.protocol.actions import ActionResult, AuditNote, JobAction
from windlass._storage.protocol.jobs import Applied, CancelAnswer, ClaimReply, Inserted, Want
from windlass._storage.protocol.wakeups import Topic
from windlass._storage.protocol.workers import WorkerStart
from windlass._storage.shared.subscribers import QueueNames, SharedWorkHints, Subscribers
from windlass.errors import StorageError
from windlass.testing.conformance import (
    QueueWakeupConformance,
    StorageConformance,
    WakeupConformance,
)


@contextmanager
def nobody_listens(database: MemoryDatabase) -> Iterator[None]:
    """What is changed inside wakes nobody."""
    subscribers, database.subscribers = database.subscribers, Subscribers()
    yield
    database.subscribers = subscribers


@fails(WakeupConformance.test_a_new_job_wakes)
class SilentInsert(MemoryJobs):
    """A new job wakes nobody."""

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        with nobody_listens(self._db):
            return await super().insert(jobs)


@fails(
    QueueWakeupConformance.test_a_new_job_leaves_the_workers_of_other_queues_alone,
    QueueWakeupConformance.test_a_resumed_queue_leaves_the_workers_of_others_alone,
)
class WakesEveryQueue(MemoryDatabase):
    """Every change wakes the workers of all queues."""

    def wake(self, queues: QueueNames = None) -> None:
        super().wake(queues and None)


@fails(
    WakeupConformance.test_a_new_job_wakes_who_serves_its_queue,
    WakeupConformance.test_a_resumed_queue_wakes_who_serves_it,
)
class WakesOnlyWhoServesAll(MemoryWakeups):
    """A worker is never woken by the name of a queue."""

    def work(self, callback: Callable[[], bool], queues: Collection[str]) -> SharedWorkHints:
        return super().work(callback, ())


@fails(WakeupConformance.test_a_batch_wakes_every_queue_it_is_for)
class WakesOneQueueOfABatch(MemoryDatabase):
    """Of a batch for several queues only one is woken."""

    def wake(self, queues: QueueNames = None) -> None:
        super().wake(queues and sorted(queues)[:1])


@fails(QueueWakeupConformance.test_a_deduplicated_job_wakes_no_subscriber)
class WakesForNothing(MemoryJobs):
    """A job that was not stored wakes the workers of its queue."""

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        answers = await super().insert(jobs)
        self._db.wake({job.queue for job in jobs})
        return answers


@fails(WakeupConformance.test_a_refused_batch_wakes_no_worker)
class WakesBeforeItStores(MemoryJobs):
    """Workers are woken before the batch is stored, whether it can be or not."""

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        self._db.wake({job.queue for job in jobs})
        with nobody_listens(self._db):
            return await super().insert(jobs)


@fails(WakeupConformance.test_a_replaced_job_wakes_who_serves_its_holders_queue)
class WakesTheWrongQueue(MemoryJobs):
    """A replaced job wakes the queue that was asked for, not the one it waits in."""

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        with nobody_listens(self._db):
            answers = await super().insert(jobs)
        self._db.wake({job.queue for job in jobs})
        return answers


@fails(WakeupConformance.test_a_freed_limit_wakes_other_queues_too)
class WakesTheQueueOfTheEndedClaim(MemoryJobs):
    """An ended claim wakes the workers of its own queue only."""

    async def apply(self, transitions: Sequence[Transition]) -> Applied:
        jobs = [self._db.by_id[each.claim.job].asked for each in transitions]
        with nobody_listens(self._db):
            applied = await super().apply(transitions)
        self._db.wake({job.queue for job in jobs})
        return applied


@fails(WakeupConformance.test_a_subscriber_without_queues_hears_of_every_queue)
class WakesOnlyWorkers(MemoryWakeups):
    """A subscriber to any change is not woken by what is about one queue."""

    def subscribe(
        self, callback: Callable[[], None], topic: Topic = Topic.ANY
    ) -> Callable[[], None]:
        return self._keep(self._db.subscribers.add(callback, (), topic=topic))


@fails(WakeupConformance.test_an_ended_claim_wakes)
class SilentApply(MemoryJobs):
    """An ended claim wakes nobody."""

    async def apply(self, transitions: Sequence[Transition]) -> Applied:
        with nobody_listens(self._db):
            return await super().apply(transitions)


@fails(WakeupConformance.test_a_cancel_request_wakes)
class SilentCancel(MemoryJobs):
    """A cancel request wakes nobody."""

    async def cancel(self, ids: Sequence[JobId]) -> Sequence[CancelAnswer]:
        with nobody_listens(self._db):
            return await super().cancel(ids)


@fails(WakeupConformance.test_a_requeue_wakes, WakeupConformance.test_making_a_job_due_wakes)
class SilentOrders(MemoryActions):
    """A job that is ready by somebody's order wakes nobody."""

    async def order(
        self, order: JobAction, ids: Sequence[JobId], note: AuditNote
    ) -> Sequence[ActionResult]:
        with nobody_listens(self._db):
            return await super().order(order, ids, note)


@fails(WakeupConformance.test_resuming_a_queue_wakes)
class SilentResume(MemoryAdmin):
    """A resumed queue wakes nobody."""

    async def resume(self, queue: str, *, audit: AuditNote | None = None) -> None:
        with nobody_listens(self._db):
            await super().resume(queue)


@fails(WakeupConformance.test_promotion_wakes)
class SilentPromotion(MemoryMaintenance):
    """Promoted jobs wake nobody."""

    async def promote(self, limit: int) -> int:
        with nobody_listens(self._db):
            return await super().promote(limit)


@fails(WakeupConformance.test_an_expired_job_wakes_who_waits_for_its_result)
class SilentExpiry(MemoryMaintenance):
    """An expired job wakes nobody."""

    async def expire(self, limit: int) -> Sequence[JobId]:
        with nobody_listens(self._db):
            return await super().expire(limit)


@fails(WakeupConformance.test_an_expired_job_that_a_claim_meets_wakes_who_waits_for_its_result)
class SilentClaim(MemoryJobs):
    """A job that a claim discards wakes nobody."""

    async def claim(
        self,
        worker: str,
        wants: Sequence[Want],
        *,
        total: int,
        solo: bool = False,
        head_start: timedelta = timedelta(0),
    ) -> ClaimReply:
        with nobody_listens(self._db):
            return await super().claim(worker, wants, total=total, solo=solo)


@fails(WakeupConformance.test_subscribers_are_called_on_their_own_event_loop)
class WakesOnAnotherThread(MemoryWakeups):
    """Subscribers are called on a thread that is not theirs."""

    def subscribe(
        self, callback: Callable[[], None], topic: Topic = Topic.ANY
    ) -> Callable[[], None]:
        def elsewhere() -> None:
            thread = threading.Thread(target=callback)
            thread.start()
            thread.join()

        return super().subscribe(elsewhere, topic)


@fails(WakeupConformance.test_leaving_wakes)
class SilentFarewell(MemoryWorkers):
    """What a leaving worker gives back wakes nobody."""

    async def leave(self, worker: str, releases: Sequence[Transition]) -> Applied:
        with nobody_listens(self._db):
            return await super().leave(worker, releases)


@fails(WakeupConformance.test_a_raised_limit_wakes)
class SilentDefinition(MemoryLimits):
    """A changed limit wakes nobody."""

    async def define(self, specs: Sequence[LimitSpec], *, audit: AuditNote | None = None) -> None:
        with nobody_listens(self._db):
            await super().define(specs)


@fails(WakeupConformance.test_every_subscriber_is_woken_and_again_each_time)
class WakesTheFirstOnly(MemoryDatabase):
    """Only one subscriber is woken."""

    def wake(self, queues: QueueNames = None) -> None:
        for subscriber in self.subscribers._all[:1]:
            subscriber.hear(queues)


@fails(WakeupConformance.test_an_unsubscribed_callback_is_not_called)
class SubscribesForGood(MemoryWakeups):
    """A subscription cannot be undone."""

    def subscribe(
        self, callback: Callable[[], None], topic: Topic = Topic.ANY
    ) -> Callable[[], None]:
        super().subscribe(callback, topic)
        return lambda: None


@fails(WakeupConformance.test_a_worker_that_closed_its_hints_is_not_called)
class HintsForGood(MemoryWakeups):
    """Hints cannot be ended."""

    def work(self, callback: Callable[[], bool], queues: Collection[str]) -> SharedWorkHints:
        super().work(callback, queues)
        return SharedWorkHints(lambda: None)


@fails(
    WakeupConformance.test_as_many_workers_are_woken_as_jobs_come,
    WakeupConformance.test_a_worker_that_takes_nothing_leaves_its_hint_to_another,
)
class WakesTheFirstWorkerOnly(MemoryWakeups):
    """One worker is woken, whatever it answers and however many jobs come."""

    def work(self, callback: Callable[[], bool], queues: Collection[str]) -> SharedWorkHints:
        return SharedWorkHints(lambda: None) if self._own else super().work(callback, queues)


@fails(WakeupConformance.test_work_that_no_worker_waited_for_wakes_the_next_that_waits)
class WakesOnlyWhoWaitsAlready(MemoryWakeups):
    """Work that became ready while no worker waited wakes nobody."""

    def work(self, callback: Callable[[], bool], queues: Collection[str]) -> WaitingHints:
        return WaitingHints(super().work, callback, queues)


class WaitingHints(SharedWorkHints):
    """Hints that are lost while the worker does not wait."""

    def __init__(
        self,
        work: Callable[[Callable[[], bool], Collection[str]], SharedWorkHints],
        callback: Callable[[], bool],
        queues: Collection[str],
    ) -> None:
        self._waits = False
        super().__init__(work(lambda: self._waits and callback(), queues).close)

    def want(self, queues: Collection[str]) -> None:
        asyncio.get_running_loop().call_soon(setattr, self, "_waits", True)


@fails(
    WakeupConformance.test_a_cancel_request_wakes_who_waits_for_those,
    WakeupConformance.test_a_written_schedule_wakes_who_waits_for_those,
)
class KnowsNoTopics(MemoryWakeups):
    """A subscriber to one topic is never woken."""

    def subscribe(
        self, callback: Callable[[], None], topic: Topic = Topic.ANY
    ) -> Callable[[], None]:
        return super().subscribe(callback) if topic is Topic.ANY else lambda: None


@fails(StorageConformance.test_the_clock_is_the_storages_own)
class TellsAnotherTime(MemoryStorage):
    """The storage tells another time than it goes by."""

    async def now(self) -> datetime:
        return await super().now() + timedelta(seconds=1)


@fails(StorageConformance.test_it_describes_itself_in_one_line)
class SaysTooMuch(MemoryStorage):
    """The description has two lines."""

    def describe(self) -> str:
        return super().describe() + "\n"


@fails(StorageConformance.test_it_says_how_it_is)
class SaysNothing(MemoryStorage):
    """Nothing is known of the storage."""

    async def health(self) -> Mapping[str, float | str]:
        return {}


@fails(StorageConformance.test_the_death_of_a_worker_that_lives_is_never_proven)
class ProvesEverybodyDead(MemoryStorage):
    """Everybody is provably dead."""

    def prove_dead(self, worker: WorkerStart) -> bool:
        return True


@fails(StorageConformance.test_closing_again_is_harmless)
class ClosesOnce(MemoryStorage):
    """A second close is an error."""

    closed = False

    async def close(self) -> None:
        if self.closed:
            raise StorageError("closed already")
        self.closed = True
        await super().close()
