"""Reads of an `AdminStore`, and the effects of actions on jobs."""

from __future__ import annotations

import asyncio

import pytest

from windlass._core.job.outcome import GaveUp, Lost, Raised, Succeeded
from windlass._core.job.state import State
from windlass._core.job.unique import Window
from windlass._storage.protocol.admin import QueueCounts
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import new_job_id
from windlass.errors import JobNotFound, KeyConflict, WrongState
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    DAY,
    HOUR,
    MINUTE,
    OOPS,
    a_job,
    add,
    ask,
    claim,
    claim_one,
    discard,
    enlist,
    failed,
    happened,
    ids,
    keyed,
    look,
    requeue,
    run_now,
    started,
    total,
)

__all__ = ["JobReadConformance", "OperatorConformance", "QueueConformance"]


class JobReadConformance:
    """Looking at jobs."""

    async def test_jobs_are_read_in_the_order_asked_for(self, storage: Storage) -> None:
        first, second = await add(storage, a_job(), a_job())
        found = await storage.admin.get([second, new_job_id(), first])
        assert [job and job.id for job in found] == [second, None, first]

    async def test_a_job_tells_how_long_it_holds_its_key(self, storage: Storage) -> None:
        asked = [keyed(window, window) for window in Window]
        ids = await add(storage, *asked, a_job())
        for found in (
            await storage.admin.get(ids),
            list(await storage.admin.find(JobFilter(), limit=10))[::-1],
        ):
            told = [job and job.unique for job in found]
            assert told == [*(job.unique for job in asked), None]

    async def test_jobs_are_found_newest_first(self, storage: Storage) -> None:  # ADMIN-23
        wanted = await add(storage, *(a_job() for _ in range(3)))
        found = await storage.admin.find(JobFilter(), limit=10)
        assert [job.id for job in found] == wanted[::-1]

    async def test_pages_hold_every_job_once_and_end(self, storage: Storage) -> None:  # ADMIN-5
        wanted = await add(storage, *(a_job() for _ in range(5)))
        seen: list[str] = []
        before: int | None = None
        for size in (2, 2, 1, 0):
            page = await storage.admin.find(JobFilter(before=before), limit=2)
            assert len(page) == size
            seen += [job.id for job in page]
            before = page[-1].seq if page else before
        assert seen == wanted[::-1]

    async def test_jobs_are_found_by_state(self, storage: Storage) -> None:  # ADMIN-1
        dead = await failed(storage)
        running = await started(storage)
        await add(storage, a_job())
        wanted = JobFilter(states=[State.FAILED, State.RUNNING])
        found = await storage.admin.find(wanted, limit=10)
        assert [job.id for job in found] == [running.claim.job, dead]

    async def test_jobs_are_found_by_queue_and_task(self, storage: Storage) -> None:
        await add(storage, a_job(queue="a", task="x"), a_job(queue="b", task="y"))
        (wanted,) = await add(storage, a_job(queue="a", task="y"))
        by_queue = await storage.admin.find(JobFilter(queue="a"), limit=10)
        by_both = await storage.admin.find(JobFilter(queue="a", task="y"), limit=10)
        assert [job.task for job in by_queue] == ["y", "x"]
        assert [job.id for job in by_both] == [wanted]

    async def test_an_empty_choice_of_states_finds_nothing(self, storage: Storage) -> None:
        await add(storage, a_job())
        assert list(await storage.admin.find(JobFilter(states=[]), limit=10)) == []

    async def test_counts_say_how_many_jobs_are_where(
        self, storage: Storage
    ) -> None:  # STATE-*, forge count_by_status_groups_correctly
        await failed(storage, queue="default")
        await happened(storage, await started(storage), Succeeded())
        await started(storage)
        waiting = await add(storage, a_job(), a_job(), a_job(delay=DAY), a_job(queue="b"))
        await storage.jobs.cancel(waiting[:1])
        await discard(storage, await failed(storage, priority=-1))
        now = await storage.now()
        assert list(await storage.admin.counts()) == [
            QueueCounts(queue="b", ready=1, oldest_due=now),
            QueueCounts(
                queue="default",
                oldest_due=now,
                ready=1,
                scheduled=1,
                running=1,
                succeeded=1,
                failed=1,
                cancelled=1,
                discarded=1,
            ),
        ]

    async def test_a_job_counts_as_ready_from_the_instant_it_is_due(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # PRIO-4, inclusive; not promoted before
        await add(storage, a_job(delay=MINUTE))
        assert [(c.ready, c.scheduled) for c in await storage.admin.counts()] == [(0, 1)]
        clock.advance(MINUTE)
        assert [(c.ready, c.scheduled) for c in await storage.admin.counts()] == [(1, 0)]


class OperatorConformance:
    """Requeue, discard, run now."""

    async def test_a_requeued_job_waits_again_under_its_own_id(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # A2, STATE-11, Q6, forge requeue_batch_by_status_resets_pending
        job = await failed(storage, max_attempts=3, payload=b"[1]")
        clock.advance(HOUR)
        (back,) = await requeue(storage, job)
        assert (back.id, back.state, back.due) == (job, State.WAITING, clock.now())
        assert (back.attempt, back.max_attempts, back.budget) == (1, 4, 3)
        assert (back.finished_at, back.error) == (None, OOPS)
        assert len(await storage.admin.history(job)) == 1
        again = await claim_one(storage)
        assert (again.claim.job, again.payload, again.attempt) == (job, b"[1]", 2)

    async def test_cancelled_and_discarded_jobs_may_be_requeued(self, storage: Storage) -> None:
        await enlist(storage)
        (cancelled,) = await add(storage, a_job())
        await storage.jobs.cancel([cancelled])
        discarded = await failed(storage)
        await discard(storage, discarded)
        await requeue(storage, cancelled, discarded)
        assert sorted(ids(await claim(storage, 10))) == sorted([cancelled, discarded])

    async def test_a_requeue_forgets_expiry_suspicion_and_cancel_request(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # TTL-10
        running = await started(storage, a_job(expires=MINUTE, max_attempts=1))
        await storage.jobs.cancel([running.claim.job])
        await happened(storage, running, Lost(OOPS), by="reaper")
        clock.advance(HOUR)
        (back,) = await requeue(storage, running.claim.job)
        assert (back.expires_at, back.missed_at, back.cancel_requested) == (None, None, False)
        assert (back.lost, back.solo) == (0, False)
        assert ids(await claim(storage)) == [running.claim.job]

    async def test_a_quarantined_job_is_requeued_among_the_others(
        self, storage: Storage
    ) -> None:  # A27, LEASE-16
        running = await started(storage, a_job(on_lost="fail"))
        await happened(storage, running, Lost(OOPS), by="reaper")
        assert (await look(storage, running)).lost == 1
        (back,) = await requeue(storage, running.claim.job)
        assert back.lost == 0
        assert ids(await claim(storage)) == [running.claim.job]

    async def test_of_two_concurrent_requeues_exactly_one_succeeds(
        self, storage: Storage
    ) -> None:  # A4, A5, ADMIN-9
        job = await failed(storage)
        calls = [requeue(storage, job) for _ in range(2)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        assert sum(isinstance(answer, WrongState) for answer in answers) == 1
        assert len(await claim(storage, 10)) == 1

    async def test_a_job_that_will_be_retried_cannot_be_requeued(
        self, storage: Storage
    ) -> None:  # A11, RETRY-12
        running = await started(storage)
        await happened(storage, running, Raised(OOPS))
        with pytest.raises(WrongState):
            await requeue(storage, running.claim.job)

    async def test_a_requeued_job_takes_its_key_again(self, storage: Storage) -> None:
        running = await started(storage, keyed("k"))
        await happened(storage, running, GaveUp(OOPS))
        (back,) = await requeue(storage, running.claim.job)
        assert back.key_held
        (answer,) = await storage.jobs.insert([keyed("k")])
        assert (answer.id, answer.created) == (running.claim.job, False)

    async def test_a_requeue_against_a_held_key_is_a_conflict_and_changes_nothing(
        self, storage: Storage
    ) -> None:  # A3, ADMIN-18, forge requeue_single_skips_when_dedupe_sibling_is_active
        running = await started(storage, keyed("k"))
        await happened(storage, running, GaveUp(OOPS))
        (holder,) = await add(storage, keyed("k"))
        with pytest.raises(KeyConflict) as conflict:
            await requeue(storage, running.claim.job)
        assert conflict.value.holder == holder
        assert (await look(storage, running)).state is State.FAILED

    async def test_a_key_held_until_started_stays_free_after_a_requeue(
        self, storage: Storage
    ) -> None:
        running = await started(storage, keyed("k", Window.UNTIL_STARTED))
        await happened(storage, running, GaveUp(OOPS))
        await add(storage, keyed("k", Window.UNTIL_STARTED, delay=DAY))
        (back,) = await requeue(storage, running.claim.job)
        assert not back.key_held

    async def test_a_failed_job_is_discarded_with_a_reason(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # A1, ADMIN-13
        job = await failed(storage)
        await discard(storage, job)
        found = await look(storage, job)
        assert (found.state, found.reason, found.error) == (State.DISCARDED, "no use", OOPS)
        clock.advance(DAY)
        assert await claim(storage) == []

    async def test_only_failed_jobs_can_be_discarded(
        self, storage: Storage
    ) -> None:  # ADMIN-13, ADMIN-14
        (waiting,) = await add(storage, a_job())
        with pytest.raises(WrongState):
            await discard(storage, waiting)
        with pytest.raises(JobNotFound):
            await discard(storage, new_job_id())
        assert (await look(storage, waiting)).state is State.WAITING

    async def test_retention_of_a_discarded_job_counts_from_the_discard(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # "reached this terminal state longer ago than that"
        job = await failed(storage)
        clock.advance(DAY)
        await discard(storage, job)
        prune = storage.maintenance.prune
        assert await prune(state=State.DISCARDED, older_than=HOUR, limit=10) == 0
        clock.advance(DAY)
        assert await prune(state=State.DISCARDED, older_than=HOUR, limit=10) == 1
        assert await total(storage) == 0

    async def test_a_waiting_job_can_be_made_due_now(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # PRIO-5, forge run_now_advances_pending_scheduled_at
        await enlist(storage)
        (later,) = await add(storage, a_job(delay=DAY))
        assert await run_now(storage, later) == [True]
        assert (await look(storage, later)).due == clock.now()
        assert ids(await claim(storage, 10)) == [later]
        clock.advance(2 * DAY)
        assert await claim(storage, 10) == []

    async def test_a_job_that_is_due_keeps_its_place(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        first, second = await add(storage, a_job(), a_job(delay=MINUTE))
        clock.advance(HOUR)
        assert await run_now(storage, first, second) == [True, True]
        assert ids(await claim(storage, 10)) == [first, second]
        assert (await look(storage, second)).due == clock.now() - HOUR + MINUTE

    async def test_only_waiting_jobs_can_be_made_due(
        self, storage: Storage
    ) -> None:  # PRIO-5, forge run_now_no_op_on_non_pending
        running, dead = await started(storage), await failed(storage)
        asked = [running.claim.job, dead, new_job_id()]
        assert await run_now(storage, *asked) == [False, False, False]
        assert (await look(storage, running)).state is State.RUNNING
        assert (await look(storage, dead)).state is State.FAILED


class QueueConformance:
    """Pause and resume."""

    async def test_only_the_paused_queue_gives_no_jobs(self, storage: Storage) -> None:
        await enlist(storage)
        await add(storage, a_job(queue="a"), a_job(queue="b"))
        await storage.admin.pause("a")
        assert await claim(storage, 10, queue="a") == []
        assert len(await claim(storage, 10, queue="b")) == 1

    async def test_a_resumed_queue_gives_again(self, storage: Storage) -> None:
        await enlist(storage)
        wanted = await add(storage, a_job())
        await storage.admin.pause("default")
        await storage.admin.pause("default")
        await storage.admin.resume("default")
        assert ids(await claim(storage, 10)) == wanted

    async def test_pausing_touches_no_running_job(self, storage: Storage) -> None:
        running = await started(storage)
        await storage.admin.pause("default")
        await happened(storage, running, Succeeded())
        assert (await look(storage, running)).state is State.SUCCEEDED

    async def test_a_paused_queue_accepts_jobs_and_shows_that_it_is_paused(
        self, storage: Storage
    ) -> None:
        await storage.admin.pause("default")
        await add(storage, a_job())
        assert list(await storage.admin.counts()) == [
            QueueCounts(queue="default", ready=1, oldest_due=await storage.now(), paused=True)
        ]

    async def test_a_paused_queue_promises_nothing(self, storage: Storage) -> None:
        await enlist(storage)
        await add(storage, a_job(), a_job(delay=MINUTE))
        await storage.admin.pause("default")
        reply = await ask(storage, 10)
        assert (list(reply.jobs), reply.next_at) == ([], None)
