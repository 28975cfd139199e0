"""Many jobs that are stored with one success: all of them, or none."""

from __future__ import annotations

import pytest

from windlass._core.job.job import LimitUse, NewJob
from windlass._core.job.outcome import Interrupted
from windlass._core.job.state import State
from windlass._core.job.transition import succeed
from windlass._storage.protocol.jobs import Verdict
from windlass._storage.protocol.storage import Storage
from windlass.errors import LimitUnknown
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    HOUR,
    MINUTE,
    a_job,
    add,
    at_most,
    claim,
    end,
    ended,
    happened,
    ids,
    keyed,
    limited,
    look,
    started,
    succeeded,
    total,
)
from windlass.testing.conformance.storage import woken

__all__ = ["AddedJobConformance"]


def some(number: int) -> tuple[NewJob, ...]:
    """Return jobs that differ in their payloads."""
    return tuple(a_job(payload=b"%d" % n) for n in range(number))


class AddedJobConformance:
    """`Transition.then` with more than one job."""

    async def test_every_job_of_a_success_is_stored_in_order(self, storage: Storage) -> None:
        running, then = await started(storage), some(5)
        await ended(storage, succeed(running, by="w1", result=b"7", then=then))
        assert (await look(storage, running)).state is State.SUCCEEDED
        jobs = await claim(storage, 10)
        assert ids(jobs) == [job.id for job in then]
        assert [job.payload for job in jobs] == [job.payload for job in then]

    async def test_each_success_of_a_batch_brings_its_own_jobs(self, storage: Storage) -> None:
        running = [await started(storage) for _ in range(4)]
        thens = [some(2), (), some(3), some(1)]
        pairs = zip(running, thens, strict=True)
        await end(storage, *(succeed(job, by="w1", result=None, then=then) for job, then in pairs))
        assert ids(await claim(storage, 10)) == [job.id for then in thens for job in then]

    async def test_a_refused_success_stores_none_of_its_jobs(self, storage: Storage) -> None:
        running = await started(storage)
        await happened(storage, running, Interrupted(), by="reaper")
        (answer,) = await end(storage, succeed(running, by="w1", result=None, then=some(3)))
        assert answer.verdict is Verdict.REFUSED
        assert await total(storage) == 1

    async def test_a_repeated_success_stores_each_of_its_jobs_once(self, storage: Storage) -> None:
        running, then = await started(storage), some(3)
        success = succeed(running, by="w1", result=None, then=then)
        await ended(storage, success)
        first, *_ = await claim(storage, 1)
        await succeeded(storage, first)
        (answer,) = await end(storage, success)
        assert answer.verdict is Verdict.REPEATED
        assert await total(storage) == 4
        assert (await look(storage, first)).state is State.SUCCEEDED
        assert ids(await claim(storage, 10)) == [job.id for job in then[1:]]

    async def test_an_undefined_limit_of_one_job_stops_the_success_and_all_its_jobs(
        self, storage: Storage
    ) -> None:
        running = await started(storage)
        then = (a_job(), a_job(limits=(LimitUse("nobody"),)), a_job())
        with pytest.raises(LimitUnknown):
            await end(storage, succeed(running, by="w1", result=None, then=then))
        assert (await look(storage, running)).state is State.RUNNING
        assert await total(storage) == 1

    async def test_a_held_key_leaves_out_that_job_alone(self, storage: Storage) -> None:
        (holder,) = await add(storage, keyed("held", delay=HOUR))
        running = await started(storage)
        then = (a_job(), keyed("held"), keyed("free"), keyed("free"), a_job())
        await ended(storage, succeed(running, by="w1", result=None, then=then))
        stored = [then[0].id, then[2].id, then[4].id]
        assert ids(await claim(storage, 10)) == stored
        assert await total(storage) == 2 + len(stored)
        assert (await look(storage, holder)).key_held
        assert (await look(storage, then[2])).key_held

    async def test_limits_and_delays_hold_for_each_of_them(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await at_most(storage, db=1)
        running = await started(storage)
        clock.advance(MINUTE)
        then = (limited("db"), limited("db"), a_job(delay=MINUTE), a_job(priority=-1))
        await ended(storage, succeed(running, by="w1", result=None, then=then))
        first = await claim(storage, 10)
        assert sorted(ids(first)) == sorted([then[0].id, then[3].id])
        assert (await look(storage, then[2])).due == clock.now() + MINUTE
        for job in first:
            await succeeded(storage, job)
        clock.advance(MINUTE)
        assert sorted(ids(await claim(storage, 10))) == sorted([then[1].id, then[2].id])

    async def test_a_success_that_is_not_kept_brings_all_its_jobs(self, storage: Storage) -> None:
        running, then = await started(storage), some(3)
        await ended(storage, succeed(running, by="w1", result=None, keep=False, then=then))
        assert await total(storage) == 3
        assert ids(await claim(storage, 10)) == [job.id for job in then]

    async def test_a_success_may_bring_thousands_of_jobs(self, storage: Storage) -> None:
        running, then = await started(storage), some(3000)
        await ended(storage, succeed(running, by="w1", result=None, then=then))
        assert await total(storage) == 3001
        assert ids(await claim(storage, 3000)) == [job.id for job in then]

    async def test_workers_of_every_queue_are_woken(self, storage: Storage) -> None:
        for queue in ("b", "c"):
            running = await started(storage)
            then = (a_job(queue="b", delay=HOUR), a_job(queue="c", delay=HOUR), a_job(queue=queue))
            async with woken(storage, queue):
                await ended(storage, succeed(running, by="w1", result=None, then=then))
