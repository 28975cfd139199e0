"""Which holders can be replaced, by which jobs, and how often."""

from __future__ import annotations

import asyncio

import pytest

from windlass._core.job.job import LimitUse
from windlass._core.job.outcome import GaveUp, Raised, Succeeded
from windlass._core.job.state import State
from windlass._core.job.unique import OnConflict, Window
from windlass._storage.protocol.jobs import Inserted
from windlass._storage.protocol.storage import Storage
from windlass.errors import LimitUnknown
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
    claim,
    claim_one,
    enlist,
    happened,
    keyed,
    look,
    started,
    total,
)
from windlass.testing.conformance.storage import woken
from windlass.testing.conformance.unique_keys.replace import REPLACING, insert, meeting, replaced

__all__ = ["KeyHolderConformance"]


class KeyHolderConformance:
    """A holder that is not waiting stays as it is, with any new job."""

    async def test_a_retrying_job_is_replaced_and_keeps_what_it_has_behind_it(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        running = await started(storage, keyed("k", payload=b"old"))
        await happened(storage, running, Raised(OOPS))
        await replaced(
            storage, running.claim.job, meeting(OnConflict.REPLACE, payload=b"new", delay=HOUR)
        )
        job = await look(storage, running)
        assert (job.state, job.attempt, job.error) == (State.WAITING, 1, OOPS)
        assert (job.payload, job.due) == (b"new", clock.now() + HOUR)
        assert len(await storage.admin.history(job.id)) == 1

    async def test_a_job_to_run_alone_is_replaced_and_still_runs_alone(
        self, storage: Storage
    ) -> None:
        alone = await suspected(storage, keyed("k"))
        await replaced(storage, alone.claim.job, meeting(OnConflict.REPLACE, payload=b"new"))
        assert await claim(storage, 10) == []
        assert (await claim_one(storage, solo=True)).payload == b"new"

    async def test_the_answer_names_a_holder_that_was_discarded(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        old = keyed("k", expires=MINUTE)
        await add(storage, old, keyed("l", expires=MINUTE))
        clock.advance(HOUR)
        jobs = [a_job(), keyed("k"), keyed("k"), keyed("m")]
        answers = await storage.jobs.insert(jobs)
        assert [answer.expired for answer in answers] == [None, old.id, None, None]
        assert [answer.created for answer in answers] == [True, True, False, True]

    async def test_one_that_waits_past_its_expiry_is_discarded_and_not_reused(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await enlist(storage)
        old = keyed("k", expires=HOUR, delay=DAY)
        await add(storage, old)
        clock.advance(HOUR - INSTANT)
        assert await insert(storage, keyed("k")) == Inserted(old.id, created=False)
        clock.advance(INSTANT)
        first, second = keyed("k"), keyed("k")
        answers = list(await storage.jobs.insert([first, second]))
        assert answers == [
            Inserted(first.id, created=True, expired=old.id),
            Inserted(first.id, created=False),
        ]
        ended = await look(storage, old)
        assert (ended.state, ended.reason) == (State.DISCARDED, "expired")
        assert (ended.finished_at, ended.key_held) == (clock.now(), False)
        assert list(await storage.maintenance.expire(10)) == []
        assert (await claim_one(storage)).claim.job == first.id

    async def test_a_key_held_for_a_time_is_held_past_the_expiry_of_its_job(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        old = keyed("k", Window.FOR_A_TIME, expires=HOUR - INSTANT)
        await add(storage, old)
        clock.advance(HOUR - INSTANT)
        assert await insert(storage, keyed("k")) == Inserted(old.id, created=False)

    async def test_a_running_job_is_reused_past_its_expiry(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        running = await started(storage, keyed("k", expires=HOUR))
        clock.advance(HOUR)
        assert await insert(storage, keyed("k")) == Inserted(running.claim.job, created=False)
        assert (await look(storage, running)).state is State.RUNNING

    async def test_a_running_job_stays_as_it_is(self, storage: Storage) -> None:
        for what in REPLACING:
            running = await started(storage, keyed(what, payload=b"old"))
            before = await look(storage, running)
            new = meeting(what, what, payload=b"new", delay=DAY)
            answer = await insert(storage, new)
            assert answer == Inserted(running.claim.job, created=False, replaced=False)
            assert await look(storage, running) == before
            assert list(await storage.admin.get([new.id])) == [None]

    async def test_a_job_that_has_ended_and_still_holds_its_key_stays_as_it_is(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        done = await started(storage, keyed("k", Window.FOR_A_TIME))
        await happened(storage, done, Succeeded())
        before = await look(storage, done)
        for what in REPLACING:
            answer = await insert(storage, meeting(what, window=Window.FOR_A_TIME, payload=b"new"))
            assert answer == Inserted(done.claim.job, created=False, replaced=False)
        assert await look(storage, done) == before
        clock.advance(HOUR)
        await add(storage, meeting(OnConflict.REPLACE, window=Window.FOR_A_TIME))

    async def test_a_key_held_for_a_time_is_not_held_longer_by_being_replaced(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        (holder,) = await add(storage, keyed("k", Window.FOR_A_TIME, delay=DAY))
        clock.advance(HOUR - INSTANT)
        new = meeting(OnConflict.REPLACE, window=Window.FOR_A_TIME, delay=DAY)
        await replaced(storage, holder, new)
        clock.advance(INSTANT)
        await add(storage, meeting(OnConflict.REPLACE, window=Window.FOR_A_TIME))

    async def test_a_job_that_freed_its_key_is_not_replaced(self, storage: Storage) -> None:
        await started(storage, keyed("a", Window.UNTIL_STARTED))
        failed = await started(storage, keyed("b"))
        await happened(storage, failed, GaveUp(OOPS))
        await add(storage, meeting(OnConflict.REPLACE, "a"), meeting(OnConflict.REPLACE, "b"))

    async def test_in_one_batch_the_later_job_replaces_the_earlier_one(
        self, storage: Storage
    ) -> None:
        first = keyed("k", payload=b"1")
        second = meeting(OnConflict.REPLACE, payload=b"2")
        third = meeting(OnConflict.REPLACE_DUE, payload=b"3", delay=HOUR)
        answers = await storage.jobs.insert([first, second, a_job(), third])
        assert [(a.created, a.replaced) for a in answers] == [
            (True, False),
            (False, True),
            (True, False),
            (False, True),
        ]
        assert answers[1].id == answers[3].id == first.id
        job = await look(storage, first)
        assert job.payload == b"2"
        assert job.due == job.created_at + HOUR
        assert await total(storage) == 2

    async def test_a_repeated_call_finds_its_job_and_undoes_nothing(self, storage: Storage) -> None:
        first = meeting(OnConflict.REPLACE, payload=b"1")
        await add(storage, first)
        second = meeting(OnConflict.REPLACE, payload=b"2")
        await replaced(storage, first.id, second)
        again = Inserted(first.id, created=True, repeated=True)
        assert await insert(storage, first) == again
        assert (await look(storage, first)).payload == b"2"
        await replaced(storage, first.id, second)
        assert (await look(storage, first)).payload == b"2"

    async def test_an_undefined_limit_replaces_nothing(self, storage: Storage) -> None:
        (holder,) = await add(storage, keyed("k"))
        before = await look(storage, holder)
        new = meeting(OnConflict.REPLACE, payload=b"new", limits=(LimitUse("nobody"),))
        with pytest.raises(LimitUnknown):
            await storage.jobs.insert([a_job(), new])
        assert await look(storage, holder) == before
        assert await total(storage) == 1

    async def test_of_fifty_concurrent_producers_one_creates_and_the_rest_replace(
        self, storage: Storage
    ) -> None:
        news = [meeting(OnConflict.REPLACE, payload=b"%d" % n) for n in range(50)]
        answers = await asyncio.gather(*(insert(storage, new) for new in news))
        assert sum(answer.created for answer in answers) == 1
        assert sum(answer.replaced for answer in answers) == 49
        (holder,) = {answer.id for answer in answers}
        assert (await look(storage, holder)).payload in {new.payload for new in news}
        assert await total(storage) == 1

    async def test_a_claim_at_the_same_time_runs_what_was_taken_over_or_replaces_nothing(
        self, storage: Storage
    ) -> None:
        await enlist(storage)
        for n in range(10):
            await add(storage, keyed(f"k{n}", payload=b"old"))
            new = meeting(OnConflict.REPLACE, f"k{n}", payload=b"new")
            answer, jobs = await asyncio.gather(insert(storage, new), claim(storage))
            # One that is being replaced right then may be left to the next claim.
            (running,) = jobs or await claim(storage)
            assert running.payload == (b"new" if answer.replaced else b"old")
            assert (await look(storage, running)).payload == running.payload

    async def test_a_job_that_is_brought_forward_wakes(self, storage: Storage) -> None:
        await add(storage, keyed("k", delay=HOUR))
        async with woken(storage):
            await insert(storage, meeting(OnConflict.REPLACE))
