"""`ScheduleStore.write`: the jobs that come with a schedule, both or neither."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from windlass._core.job.job import JobId
from windlass._core.job.outcome import GaveUp, Raised
from windlass._core.job.state import State
from windlass._core.job.transition import succeed
from windlass._core.job.unique import OnConflict, UniqueKey, Window
from windlass._storage.protocol.schedules import ScheduleAnswer, Written
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import new_job_id
from windlass.errors import LimitUnknown
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.schedules.schedules import a_write, made, stored, written
from windlass.testing.conformance.steps import (
    HOUR,
    MINUTE,
    OOPS,
    a_job,
    add,
    at_most,
    claim,
    claim_one,
    ended,
    enlist,
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

__all__ = ["FireConformance", "OverlapConformance"]

WRITTEN, STALE, BUSY, HELD = Written.WRITTEN, Written.STALE, Written.BUSY, Written.HELD


class FireConformance:
    """A write and its jobs are one step."""

    async def test_jobs_come_with_the_write_in_their_order(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        jobs = [a_job(), a_job(payload=b'{"a":1}', at=clock.now() - HOUR), a_job(queue="other")]
        later = a_job(delay=HOUR, tags=("x",), correlation_id="c")
        await made(storage, jobs=(*jobs, later))
        assert [(await look(storage, job)).payload for job in jobs] == [b"{}", b'{"a":1}', b"{}"]
        kept = await look(storage, later)
        assert (kept.due, kept.tags, kept.correlation_id) == (clock.now() + HOUR, ("x",), "c")
        assert ids(await claim(storage, 10)) == [jobs[1].id, jobs[0].id]
        assert ids(await claim(storage, 10, queue="other")) == [jobs[2].id]

    async def test_jobs_of_several_writes_are_in_order(self, storage: Storage) -> None:
        await enlist(storage)
        jobs = [a_job() for _ in range(6)]
        writes = [a_write(f"s{9 - i}", jobs=tuple(jobs[2 * i : 2 * i + 2])) for i in range(3)]
        assert await written(storage, *writes) == [WRITTEN] * 3
        assert ids(await claim(storage, 10)) == [job.id for job in jobs]

    async def test_a_job_that_comes_with_a_write_wakes(self, storage: Storage) -> None:
        async with woken(storage):
            await made(storage, jobs=(a_job(),))

    async def test_a_stale_write_brings_no_job(self, storage: Storage) -> None:
        await made(storage)
        assert await written(storage, a_write(body=b"late", jobs=(a_job(),))) == [STALE]
        assert await total(storage) == 0

    async def test_a_repeated_write_brings_no_job_again(self, storage: Storage) -> None:
        await enlist(storage)
        job = a_job()
        await made(storage, jobs=(job,))
        claimed = await claim_one(storage)
        await ended(storage, succeed(claimed, by="w1", result=None, keep=False))
        assert await written(storage, a_write(jobs=(job,))) == [WRITTEN]
        assert await total(storage) == 0

    async def test_a_delete_may_bring_jobs_once(self, storage: Storage) -> None:
        await made(storage)
        job = a_job()
        delete = a_write(revision=1, body=None, jobs=(job,))
        assert await written(storage, delete) == [WRITTEN]
        await look(storage, job)
        again = a_write(revision=1, body=None, jobs=(a_job(),))
        assert await written(storage, delete, again) == [WRITTEN, WRITTEN]
        assert await total(storage) == 1

    async def test_a_job_that_is_stored_already_is_not_stored_again(self, storage: Storage) -> None:
        job = a_job(payload=b'"first"')
        await add(storage, job)
        await made(storage, jobs=(a_job(id=job.id, payload=b'"second"'), a_job()))
        assert await total(storage) == 2
        assert (await look(storage, job)).payload == b'"first"'

    async def test_a_key_that_is_held_holds_the_write_and_names_the_holder(
        self, storage: Storage
    ) -> None:
        (holder,) = await add(storage, keyed("k", payload=b'"first"'))
        plain, second = a_job(), keyed("k", payload=b'"second"')
        (answer,) = await storage.schedules.write([a_write(jobs=(second, plain))])
        assert answer == ScheduleAnswer(HELD, {second.id: holder})
        assert await storage.schedules.rows() == [], "nothing is written"
        assert await total(storage) == 1
        assert (await look(storage, holder)).payload == b'"first"'
        await made(storage, jobs=(plain,))
        await look(storage, plain)

    async def test_a_key_of_a_job_that_is_stored_holds_nothing(self, storage: Storage) -> None:
        job = keyed("k")
        await add(storage, job)
        (answer,) = await storage.schedules.write([a_write(jobs=(job, a_job()))])
        assert (answer.what, list(answer.known)) == (WRITTEN, [job.id])
        assert await total(storage) == 2

    async def test_a_repeated_write_does_not_take_its_own_jobs_for_anothers(
        self, storage: Storage
    ) -> None:
        write = a_write(jobs=(keyed("k"), a_job()))
        for _ in range(2):
            (answer,) = await storage.schedules.write([write])
            assert (answer.what, list(answer.known)) == (WRITTEN, [])

    async def test_a_holder_that_waits_past_its_expiry_is_discarded_and_named(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        (late, other) = await add(storage, keyed("k", expires=MINUTE), keyed("l", expires=MINUTE))
        clock.advance(HOUR)
        job, plain = keyed("k"), a_job()
        writes = [a_write("a", jobs=(plain,)), a_write("b", jobs=(job,)), a_write("c")]
        answers = await storage.schedules.write(writes)
        assert [list(answer.expired) for answer in answers] == [[], [late], []]
        assert (await look(storage, late)).state is State.DISCARDED
        assert (await look(storage, other)).state is State.WAITING
        assert (await look(storage, job)).key_held

    async def test_a_write_is_held_with_any_on_conflict_of_its_job(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        (holder,) = await add(storage, keyed("k", payload=b'"first"'))
        now = clock.now()
        for number, conflict in enumerate(OnConflict):
            unique = UniqueKey("k", on_conflict=conflict)
            for task in ("conform", "other"):
                job = a_job(task=task, unique=unique, payload=b'"second"', delay=HOUR)
                assert await written(storage, a_write(f"{task}{number}", jobs=(job,))) == [HELD]
        assert await total(storage) == 1
        job_now = await look(storage, holder)
        assert (job_now.payload, job_now.due) == (b'"first"', now)

    async def test_a_key_is_held_by_the_first_job_of_a_call(self, storage: Storage) -> None:
        first, second, third = keyed("k"), keyed("k"), keyed("k")
        both = a_write("a", jobs=(first, second))
        assert list(await storage.schedules.write([both])) == [
            ScheduleAnswer(HELD, {second.id: first.id})
        ]
        writes = [a_write("a", jobs=(first,)), a_write("b", jobs=(third,))]
        one, other = await storage.schedules.write(writes)
        assert (one.what, other) == (WRITTEN, ScheduleAnswer(HELD, {third.id: first.id}))
        assert await total(storage) == 1
        assert (await look(storage, first)).key_held

    async def test_a_key_whose_time_is_up_is_taken(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await add(storage, keyed("k", Window.FOR_A_TIME))
        clock.advance(HOUR)
        job = keyed("k", Window.FOR_A_TIME)
        await made(storage, jobs=(job,))
        assert (await look(storage, job)).key_held

    async def test_an_unknown_limit_is_refused_and_nothing_of_the_call_is_written(
        self, storage: Storage
    ) -> None:
        await at_most(storage, known=1)
        row = await made(storage, "old")
        writes = [
            a_write("new", jobs=(a_job(),)),
            a_write("old", 1, body=b"second", jobs=(limited("known"), limited("unknown"))),
            a_write("last"),
        ]
        with pytest.raises(LimitUnknown):
            await written(storage, *writes)
        assert await storage.schedules.rows() == [row]
        assert await total(storage) == 0

    async def test_jobs_with_limits_are_in_their_lane(self, storage: Storage) -> None:
        await at_most(storage, db=1)
        first, second, plain = limited("db"), limited("db"), a_job()
        await made(storage, jobs=(first, second, plain))
        running, other = await claim(storage, 10)
        assert ids([running, other]) == [first.id, plain.id]
        await succeeded(storage, running)
        assert ids(await claim(storage, 10)) == [second.id]

    async def test_of_many_who_fire_one_slot_exactly_one_brings_its_job(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await made(storage, next_at=clock.now())
        for revision in range(1, 6):
            jobs = [a_job() for _ in range(6)]
            writes = [a_write(revision=revision, body=job.id.encode(), jobs=(job,)) for job in jobs]
            answers = await asyncio.gather(*(written(storage, write) for write in writes))
            assert Counter(answer for (answer,) in answers) == {WRITTEN: 1, STALE: 5}
            row = await stored(storage)
            assert row.body == jobs[answers.index([WRITTEN])].id.encode()
            await look(storage, JobId(row.body.decode()))
            assert await total(storage) == revision

    async def test_many_who_fire_one_slot_alike_bring_one_job(self, storage: Storage) -> None:
        await at_most(storage, db=1)
        write = a_write(jobs=(a_job(), limited("db"), keyed("k")))
        answers = await asyncio.gather(*(written(storage, write) for _ in range(6)))
        assert answers == [[WRITTEN]] * 6
        assert await total(storage) == 3

    async def test_of_many_schedules_that_want_one_key_one_gets_it(self, storage: Storage) -> None:
        writes = [a_write(f"s{i}", jobs=(keyed("k"), a_job())) for i in range(6)]
        answers = await asyncio.gather(*(written(storage, write) for write in writes))
        assert Counter(answer for (answer,) in answers) == {WRITTEN: 1, HELD: 5}
        assert await total(storage) == 2


class OverlapConformance:
    """As many active jobs as may be: the write waits its turn."""

    async def test_a_waiting_job_is_active(self, storage: Storage) -> None:
        jobs = await add(storage, a_job(), a_job(delay=HOUR))
        for job in jobs:
            write = a_write(active=(job,), most_active=1)
            assert await written(storage, write) == [BUSY]

    async def test_a_running_job_is_active(self, storage: Storage) -> None:
        running = await started(storage)
        write = a_write(active=(running.claim.job,), most_active=1)
        assert await written(storage, write) == [BUSY]

    async def test_a_job_that_waits_for_its_retry_is_active(self, storage: Storage) -> None:
        running = await started(storage)
        await happened(storage, running, Raised(OOPS))
        write = a_write(active=(running.claim.job,), most_active=1)
        assert await written(storage, write) == [BUSY]

    async def test_jobs_that_have_ended_are_not_active(self, storage: Storage) -> None:
        done = await started(storage)
        await succeeded(storage, done)
        failed = await started(storage)
        await happened(storage, failed, GaveUp(OOPS))
        (cancelled,) = await add(storage, a_job())
        await storage.jobs.cancel([cancelled])
        active = (done.claim.job, failed.claim.job, cancelled)
        assert [(await look(storage, job)).state for job in active] == [
            State.SUCCEEDED,
            State.FAILED,
            State.CANCELLED,
        ]
        assert await written(storage, a_write(active=active, most_active=1)) == [WRITTEN]

    async def test_jobs_that_are_not_stored_are_not_active(self, storage: Storage) -> None:
        active = (new_job_id(), new_job_id())
        assert await written(storage, a_write(active=active, most_active=1)) == [WRITTEN]

    async def test_fewer_than_the_most_may_be_active(self, storage: Storage) -> None:
        active = tuple(await add(storage, a_job(), a_job(), a_job()))
        for most, answer in ((1, BUSY), (2, BUSY), (3, BUSY), (4, WRITTEN)):
            write = a_write(active=active, most_active=most)
            assert await written(storage, write) == [answer], most
        nobody = a_write("other", most_active=1)
        assert await written(storage, nobody) == [WRITTEN]

    async def test_any_number_may_be_active_where_nothing_is_said(self, storage: Storage) -> None:
        active = tuple(await add(storage, a_job(), a_job()))
        assert await written(storage, a_write(active=active)) == [WRITTEN]

    async def test_a_job_that_is_named_twice_counts_once(self, storage: Storage) -> None:
        (job,) = await add(storage, a_job())
        assert await written(storage, a_write(active=(job, job), most_active=2)) == [WRITTEN]

    async def test_nothing_is_written_while_too_many_are_active(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        row = await made(storage, next_at=clock.now())
        gone = await made(storage, "gone")
        (job,) = await add(storage, a_job())
        busy = a_write(revision=1, body=b"second", jobs=(a_job(),), active=(job,), most_active=1)
        delete = a_write("gone", 1, body=None, active=(job,), most_active=1)
        assert await written(storage, busy, delete, a_write("t")) == [BUSY, BUSY, WRITTEN]
        assert await storage.schedules.rows() == [gone, row, await stored(storage, "t")]
        assert await total(storage) == 1

    async def test_a_busy_write_may_be_tried_again(self, storage: Storage) -> None:
        running = await started(storage)
        job = a_job()
        write = a_write(jobs=(job,), active=(running.claim.job,), most_active=1)
        assert await written(storage, write) == [BUSY]
        await succeeded(storage, running)
        assert await written(storage, write) == [WRITTEN]
        await look(storage, job)

    async def test_a_repeat_is_known_before_anybody_is_counted(self, storage: Storage) -> None:
        job = a_job()
        write = a_write(jobs=(job,), active=(job.id,), most_active=1)
        assert await written(storage, write, write) == [WRITTEN, WRITTEN]
        assert await written(storage, write) == [WRITTEN]

    async def test_a_stale_write_is_stale_however_many_are_active(self, storage: Storage) -> None:
        await made(storage)
        (job,) = await add(storage, a_job())
        write = a_write(body=b"late", active=(job,), most_active=1)
        assert await written(storage, write) == [STALE]

    async def test_jobs_of_an_earlier_write_of_the_call_are_active(self, storage: Storage) -> None:
        job = a_job()
        first = a_write("a", jobs=(job,))
        second = a_write("b", jobs=(a_job(),), active=(job.id,), most_active=1)
        assert await written(storage, first, second) == [WRITTEN, BUSY]
        assert await total(storage) == 1
