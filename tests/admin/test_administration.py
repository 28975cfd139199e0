"""What earlier systems' admin and storage tests hold, on every backend: each names its origin."""

from __future__ import annotations

import pytest

from tests.admin.fixtures import a_failed_job, admin_of, stored
from windlass._core.job.outcome import Lost, Raised
from windlass._core.job.state import Shown, State
from windlass._storage.protocol.jobs import CancelAnswer
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.storage import Storage
from windlass.errors import KeyConflict, WrongState
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    HOUR,
    OOPS,
    SECOND,
    a_job,
    add,
    ask,
    claim_one,
    enlist,
    happened,
    keyed,
    started,
    succeeded,
)


async def test_a_new_job_that_cannot_be_stored_leaves_the_failed_one_as_it_was(
    storage: Storage,
) -> None:
    """A3."""
    await enlist(storage)
    job = await started(storage, keyed("k", max_attempts=1))
    await happened(storage, job, Raised(OOPS))
    await add(storage, keyed("k", queue="elsewhere"))
    admin = admin_of(storage)
    with pytest.raises(KeyConflict):
        await admin.jobs.requeue(job.claim.job, as_new=True)
    failed = await stored(storage, job.claim.job)
    assert (failed.state, failed.error) == (State.FAILED, OOPS)
    assert (await admin.jobs.count(JobFilter(queue="default", states=[State.WAITING]))).number == 0


async def test_a_job_that_will_be_retried_is_no_failed_job(
    storage: Storage, clock: VirtualClock
) -> None:
    """A11."""
    await enlist(storage)
    job = await started(storage, a_job(max_attempts=3))
    await happened(storage, job, Raised(OOPS))
    admin = admin_of(storage)
    assert (await admin.overview.snapshot()).failed.total == 0
    assert [one.id for one in await admin.jobs.find(JobFilter(shown=[Shown.RETRYING]))] == [
        job.claim.job
    ]
    with pytest.raises(WrongState):
        await admin.jobs.requeue(job.claim.job)
    assert (await ask(storage)).jobs == []


async def test_a_dashboard_sees_the_whole_cluster_and_acts_on_it(storage: Storage) -> None:
    """A22."""
    await enlist(storage)
    await succeeded(storage, await started(storage))
    first, second = await a_failed_job(storage), await a_failed_job(storage)
    await started(storage)
    (waiting,) = await add(storage, a_job(correlation_id="r-9"))
    admin = admin_of(storage)
    told = await admin.overview.snapshot()
    totals = (told.enqueued, told.running, told.completed, told.failed)
    assert [one.total for one in totals] == [1, 1, 1, 2]
    assert told.enqueued.jobs[0].correlation_id == "r-9"
    assert await admin.jobs.cancel(waiting) is CancelAnswer.CANCELLED
    await admin.jobs.requeue(first)
    await admin.jobs.discard(second)
    after = await admin.overview.snapshot()
    assert (after.enqueued.total, after.failed.total) == (1, 0)


async def test_a_job_lost_once_too_often_can_be_run_again(storage: Storage) -> None:
    """A27."""
    await enlist(storage)
    job = await started(storage, a_job(max_attempts=1, on_lost="fail"))
    await happened(storage, job, Lost(OOPS))
    admin = admin_of(storage)
    assert (await admin.jobs.get(job.claim.job)).state is State.FAILED
    await admin.jobs.requeue(job.claim.job)
    assert (await admin.overview.snapshot()).failed.total == 0
    assert (await claim_one(storage)).claim.job == job.claim.job


async def test_scheduled_jobs_are_listed_and_past_ones_are_not(
    storage: Storage, clock: VirtualClock
) -> None:
    """Forge: list_scheduled_after."""
    soon, late, _ = await add(storage, a_job(delay=SECOND), a_job(delay=HOUR), a_job())
    listed = await admin_of(storage).jobs.find(JobFilter(shown=[Shown.SCHEDULED]))
    assert {job.id for job in listed} == {soon, late}
    clock.advance(SECOND)
    listed = await admin_of(storage).jobs.find(JobFilter(shown=[Shown.SCHEDULED]))
    assert [job.id for job in listed] == [late]


async def test_counts_tell_what_waits_what_failed_once_and_what_is_done(storage: Storage) -> None:
    """Forge: count_by_status_groups_correctly."""
    await enlist(storage)
    await succeeded(storage, await started(storage))
    await happened(storage, await started(storage, a_job(max_attempts=2)), Raised(OOPS))
    await add(storage, *[a_job() for _ in range(3)])
    (counts,) = await admin_of(storage).queues.counts()
    assert (counts.ready, counts.scheduled, counts.retrying) == (3, 1, 1)
    assert (counts.running, counts.succeeded) == (0, 1)


async def test_run_now_is_for_waiting_jobs(storage: Storage) -> None:
    """Forge: run_now_advances_pending, run_now_no_op_on_non_pending."""
    (later,) = await add(storage, a_job(delay=HOUR))
    await enlist(storage)
    admin = admin_of(storage)
    assert await admin.jobs.run_now(later)
    job = await claim_one(storage)
    assert job.claim.job == later
    assert not await admin.jobs.run_now(later)
    await succeeded(storage, job)
    assert not await admin.jobs.run_now(later)


async def test_the_next_claim_knows_nothing_of_a_cancel_request_before_it(
    storage: Storage,
) -> None:
    """Forge: claim_next_clears_stale_cancel_flag."""
    await enlist(storage)
    job = await started(storage, a_job(max_attempts=3))
    assert not await admin_of(storage).jobs.delete(job.claim.job)
    assert [one.job for one in (await storage.workers.beat("w1")).cancelled] == [job.claim.job]
    await happened(storage, job, Raised(OOPS))
    assert (await stored(storage, job.claim.job)).state is State.CANCELLED
    await admin_of(storage).jobs.requeue(job.claim.job)
    await claim_one(storage)
    assert (await storage.workers.beat("w1")).cancelled == []
