"""`AdminStore.find` in the order of a time: what comes first, and pages that agree."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from windlass._core.job.job import ClaimedJob, JobId
from windlass._core.job.outcome import GaveUp
from windlass._core.job.state import Shown, State
from windlass._storage.protocol.actions import Cancel
from windlass._storage.protocol.lists.job_list import JobFilter, ListOrder
from windlass._storage.protocol.storage import Storage
from windlass.errors import InvalidArgument
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    DAY,
    HOUR,
    INSTANT,
    MINUTE,
    OOPS,
    a_job,
    add,
    claim,
    discard,
    enlist,
    every,
    happened,
    obeyed,
    requeue,
    succeeded,
)

__all__ = ["SortConformance"]

FAILED = JobFilter(states=[State.FAILED])
ENDED = JobFilter(
    states=[State.SUCCEEDED, State.FAILED, State.CANCELLED, State.DISCARDED],
)
SCHEDULED = JobFilter(shown=[Shown.SCHEDULED])
RUNNING = JobFilter(states=[State.RUNNING])
REFUSED = (
    (JobFilter(), "-finished"),
    (JobFilter(states=[State.WAITING]), "due"),
    (JobFilter(shown=[Shown.READY]), "-due"),
    (JobFilter(states=[State.FAILED, State.RUNNING]), "-finished"),
    (FAILED, "-started"),
    (RUNNING, "due"),
)


def ordered(wanted: JobFilter, order: str) -> JobFilter:
    """Return the same jobs in this order."""
    return msgspec.structs.replace(wanted, order=ListOrder(order))


async def _claimed(storage: Storage, *queues: str) -> list[ClaimedJob]:
    """Return a new job of each queue, running."""
    await enlist(storage)
    jobs: list[ClaimedJob] = []
    for queue in queues:
        await add(storage, a_job(queue=queue))
        jobs += await claim(storage, queue=queue)
    return jobs


async def _failed(storage: Storage, clock: VirtualClock, jobs: Sequence[ClaimedJob]) -> list[JobId]:
    for job in jobs:
        clock.advance(MINUTE)
        await happened(storage, job, GaveUp(OOPS))
    return [job.claim.job for job in jobs]


class SortConformance:
    """A list in the order of a time holds every matching job once, in that order."""

    async def test_failed_jobs_are_listed_by_when_they_failed(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        a, b, c, d, e = await _claimed(storage, "x", "y", "x", "z", "y")
        failed = await _failed(storage, clock, [d, a, e, c, b])
        for limit in (1, 2, 100):
            latest = await every(storage, ordered(FAILED, "-finished"), limit=limit)
            assert latest == failed[::-1], limit
            assert await every(storage, ordered(FAILED, "finished"), limit=limit) == failed, limit
        of_y = msgspec.structs.replace(ordered(FAILED, "-finished"), queue="y")
        assert await every(storage, of_y, limit=1) == [b.claim.job, e.claim.job]

    async def test_ended_jobs_of_every_state_are_listed_by_their_end(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        a, b, c = await _claimed(storage, "x", "y", "x")
        waiting = await add(storage, a_job(queue="y"), a_job(queue="z"))
        clock.advance(MINUTE)
        await obeyed(storage, Cancel(), waiting[1])
        failed = await _failed(storage, clock, [c, a])
        clock.advance(MINUTE)
        await succeeded(storage, b)
        clock.advance(MINUTE)
        await discard(storage, failed[1])
        clock.advance(MINUTE)
        await obeyed(storage, Cancel(), waiting[0])
        wanted = [waiting[1], failed[0], b.claim.job, failed[1], waiting[0]]
        for limit in (1, 2, 100):
            assert await every(storage, ordered(ENDED, "finished"), limit=limit) == wanted, limit
            assert await every(storage, ordered(ENDED, "-finished"), limit=limit) == wanted[::-1]
        until = clock.now()
        between = msgspec.structs.replace(
            JobFilter(finished_from=until - 3 * MINUTE, finished_until=until),
            order=ListOrder.FINISHED_LAST,
        )
        assert await every(storage, between, limit=1) == wanted[3:1:-1]

    async def test_scheduled_jobs_are_listed_by_when_they_are_due(self, storage: Storage) -> None:
        delays = (3 * HOUR, HOUR, DAY, 2 * HOUR, HOUR + INSTANT)
        jobs = await add(
            storage,
            *(a_job(queue="xyxyz"[n], delay=delay) for n, delay in enumerate(delays)),
        )
        await add(storage, a_job(), a_job(queue="x"))
        by_due = [jobs[1], jobs[4], jobs[3], jobs[0], jobs[2]]
        for limit in (1, 2, 100):
            assert await every(storage, ordered(SCHEDULED, "due"), limit=limit) == by_due, limit
            latest = await every(storage, ordered(SCHEDULED, "-due"), limit=limit)
            assert latest == by_due[::-1], limit
        of_x = msgspec.structs.replace(ordered(SCHEDULED, "due"), queue="x")
        assert await every(storage, of_x, limit=1) == [jobs[0], jobs[2]]

    async def test_running_jobs_are_listed_by_when_they_started(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage, "w1", "w2")
        jobs = await add(storage, *(a_job(queue="xyxyx"[n]) for n in range(5)))
        began: list[JobId] = []
        for queue, worker in (("y", "w1"), ("x", "w2"), ("x", "w1"), ("y", "w2"), ("x", "w1")):
            clock.advance(MINUTE)
            (job,) = await claim(storage, queue=queue, worker=worker)
            began.append(job.claim.job)
        assert set(began) == set(jobs)
        for limit in (1, 2, 100):
            assert await every(storage, ordered(RUNNING, "started"), limit=limit) == began, limit
            latest = await every(storage, ordered(RUNNING, "-started"), limit=limit)
            assert latest == began[::-1], limit
        of_w2 = msgspec.structs.replace(ordered(RUNNING, "started"), worker="w2")
        assert await every(storage, of_w2, limit=1) == [began[1], began[3]]

    async def test_jobs_are_listed_from_the_oldest_on(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await _failed(storage, clock, (await _claimed(storage, "x", "x", "x"))[::-1])
        jobs = await add(storage, *(a_job(tags=("even", "odd")[n % 2 :][:1]) for n in range(6)))
        oldest = ListOrder.OLDEST
        for limit in (1, 2, 100):
            even = JobFilter(tag="even", order=oldest)
            assert await every(storage, even, limit=limit) == jobs[::2], limit
            waiting = JobFilter(states=[State.WAITING], order=oldest)
            assert await every(storage, waiting, limit=limit) == jobs, limit
            newest = await every(storage, JobFilter(), limit=limit)
            assert await every(storage, JobFilter(order=oldest), limit=limit) == newest[::-1]

    async def test_pages_of_one_instant_hold_every_job_once(self, storage: Storage) -> None:
        running = await _claimed(storage, *"xyxxyzx")
        ids = {job.claim.job for job in running}
        later = {*await add(storage, *(a_job(queue=queue, delay=HOUR) for queue in "xyxxy"))}
        for limit in (1, 2, 3):
            for order in ("started", "-started"):
                found = await every(storage, ordered(RUNNING, order), limit=limit)
                assert (len(found), {*found}) == (len(ids), ids), (order, limit)
            for order in ("due", "-due"):
                for text in (None, "{}"):
                    wanted = msgspec.structs.replace(ordered(SCHEDULED, order), text=text)
                    found = await every(storage, wanted, limit=limit)
                    assert (len(found), {*found}) == (len(later), later), (order, limit)
        for job in running:
            await happened(storage, job, GaveUp(OOPS))
        for limit in (1, 2, 3):
            for order in ("finished", "-finished"):
                for text in (None, "{}"):
                    wanted = msgspec.structs.replace(ordered(FAILED, order), text=text)
                    found = await every(storage, wanted, limit=limit)
                    assert (len(found), {*found}) == (len(ids), ids), (order, limit)

    async def test_a_job_that_changes_between_pages_moves_no_other(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        running = await _claimed(storage, *"xyxyx")
        failed = await _failed(storage, clock, running[:4])
        wanted = ordered(FAILED, "-finished")
        page = await storage.admin.find(wanted, limit=2)
        assert [job.id for job in page] == [failed[3], failed[2]]
        await _failed(storage, clock, running[4:])
        await requeue(storage, failed[2], failed[3])
        rest = msgspec.structs.replace(wanted, before=page.next)
        assert await every(storage, rest, limit=1) == [failed[1], failed[0]]

    async def test_an_order_that_no_index_has_is_refused(self, storage: Storage) -> None:
        for wanted, order in REFUSED:
            with pytest.raises(InvalidArgument, match=r"scheduled.*running.*succeeded, failed"):
                await storage.admin.find(ordered(wanted, order), limit=1)

    async def test_the_cursor_of_another_order_is_refused(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await _failed(storage, clock, await _claimed(storage, "x", "x"))
        by_time = (await storage.admin.find(ordered(FAILED, "finished"), limit=1)).next
        by_number = (await storage.admin.find(FAILED, limit=1)).next
        for order, cursor in (("finished", by_number), ("enqueued", by_time), ("finished", "1.ü")):
            wanted = msgspec.structs.replace(ordered(FAILED, order), before=cursor)
            with pytest.raises(InvalidArgument, match="no cursor"):
                await storage.admin.find(wanted, limit=1)
