"""Unique keys that are held, and jobs that may not meet their holder."""

from __future__ import annotations

import asyncio

import pytest

from windlass._core.job.job import LimitUse
from windlass._core.job.outcome import Raised, Succeeded
from windlass._core.job.unique import OnConflict, Window
from windlass._storage.protocol.jobs import Inserted
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.storage import Storage
from windlass.errors import KeyConflict
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    HOUR,
    INSTANT,
    OOPS,
    a_job,
    add,
    at_most,
    claim,
    happened,
    ids,
    keyed,
    look,
    started,
    total,
)
from windlass.testing.conformance.unique_keys.replace import REPLACING, insert, meeting

__all__ = ["KeyConflictConformance"]


class KeyConflictConformance:
    """A job that may not meet another one with its key."""

    async def test_a_held_key_is_an_error_that_names_the_holder(self, storage: Storage) -> None:
        (holder,) = await add(storage, keyed("k"))
        with pytest.raises(KeyConflict) as caught:
            await insert(storage, meeting(OnConflict.RAISE))
        assert (caught.value.key, caught.value.holder) == ("k", holder)

    async def test_any_holder_of_the_key_is_an_error(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await started(storage, keyed("running"))
        retrying = await started(storage, keyed("retrying"))
        await happened(storage, retrying, Raised(OOPS))
        done = await started(storage, keyed("ended", Window.FOR_A_TIME))
        await happened(storage, done, Succeeded())
        await add(storage, keyed("later", delay=HOUR))
        for key in ("running", "retrying", "ended", "later"):
            with pytest.raises(KeyConflict):
                await insert(storage, meeting(OnConflict.RAISE, key))
        clock.advance(HOUR)
        await add(storage, meeting(OnConflict.RAISE, "ended"))

    async def test_nothing_of_the_batch_is_stored_or_replaced(self, storage: Storage) -> None:
        one, two = await add(storage, keyed("one", payload=b"old"), keyed("two"))
        batch = [
            a_job(),
            meeting(OnConflict.REPLACE, "one", payload=b"new"),
            keyed("three"),
            meeting(OnConflict.RAISE, "two"),
        ]
        with pytest.raises(KeyConflict):
            await storage.jobs.insert(batch)
        assert (await look(storage, one)).payload == b"old"
        stored = await storage.admin.find(JobFilter(), limit=10)
        assert [job.id for job in stored] == [two, one]
        await add(storage, keyed("three"))

    async def test_two_of_one_batch_may_not_meet_either(self, storage: Storage) -> None:
        with pytest.raises(KeyConflict):
            await storage.jobs.insert([keyed("k"), meeting(OnConflict.RAISE)])
        assert await total(storage) == 0

    async def test_a_repeated_call_does_not_meet_itself(self, storage: Storage) -> None:
        job = meeting(OnConflict.RAISE)
        await add(storage, job)
        answer = Inserted(job.id, created=True, repeated=True)
        assert await insert(storage, job) == answer

    async def test_an_expired_holder_refuses_no_job(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        old = keyed("k", expires=HOUR, limits=(LimitUse("db"),))
        await at_most(storage, db=9)
        await add(storage, old)
        clock.advance(HOUR - INSTANT)
        with pytest.raises(KeyConflict):
            await insert(storage, meeting(OnConflict.RAISE))
        clock.advance(INSTANT)
        new = meeting(OnConflict.RAISE, task="other")
        assert await insert(storage, new) == Inserted(new.id, created=True, expired=old.id)
        assert (await look(storage, old)).reason == "expired"
        assert ids(await claim(storage, 10)) == [new.id]

    async def test_the_same_id_twice_in_one_batch_is_a_repeat_as_well(
        self, storage: Storage
    ) -> None:
        for what in OnConflict:
            job = meeting(what, what)
            answers = list(await storage.jobs.insert([job, a_job(), job]))
            assert answers[0] == Inserted(job.id, created=True)
            assert answers[2] == Inserted(job.id, created=True, repeated=True)
        assert await total(storage) == 2 * len(OnConflict)

    async def test_arguments_of_one_task_are_not_given_to_another(self, storage: Storage) -> None:
        (holder,) = await add(storage, keyed("k", task="one", payload=b"old"))
        before = await look(storage, holder)
        for what in REPLACING:
            with pytest.raises(KeyConflict) as caught:
                await insert(storage, meeting(what, task="two", payload=b"new"))
            assert caught.value.holder == holder
        assert await look(storage, holder) == before
        answer = await insert(storage, meeting(OnConflict.REUSE, task="two"))
        assert answer == Inserted(holder, created=False)

    async def test_nor_are_they_within_one_batch(self, storage: Storage) -> None:
        batch = [keyed("k", task="one"), meeting(OnConflict.REPLACE, task="two")]
        with pytest.raises(KeyConflict):
            await storage.jobs.insert(batch)
        assert await total(storage) == 0

    async def test_of_fifty_concurrent_producers_one_creates_and_the_rest_are_refused(
        self, storage: Storage
    ) -> None:
        calls = [insert(storage, meeting(OnConflict.RAISE)) for _ in range(50)]
        answers = await asyncio.gather(*calls, return_exceptions=True)
        created = [answer for answer in answers if isinstance(answer, Inserted)]
        assert [answer.created for answer in created] == [True]
        assert sum(isinstance(answer, KeyConflict) for answer in answers) == 49
        assert await total(storage) == 1
