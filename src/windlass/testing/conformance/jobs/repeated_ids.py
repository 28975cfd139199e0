"""`JobStore.insert` with an id that is stored: a repeated call, or another one."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from windlass._core.job.job import LimitUse, NewJob
from windlass._core.job.state import State
from windlass._core.job.unique import OnConflict, UniqueKey
from windlass._core.limits.limit import LimitSpec
from windlass._storage.protocol.jobs import Inserted
from windlass._storage.protocol.storage import Storage
from windlass.errors import IdConflict
from windlass.testing.conformance.steps import a_job, a_note, add, look, started, succeeded, total

__all__ = ["RepeatedIdConformance"]


async def _of_every_kind(storage: Storage) -> list[NewJob]:
    """Return jobs that stores may store in different ways."""
    await storage.limits.define([LimitSpec(name="api", concurrency=2)])
    return [
        a_job(),
        a_job(tags=("a",), timeout=timedelta(seconds=5)),
        a_job(limits=(LimitUse("api"),)),
        a_job(unique=UniqueKey("k")),
    ]


class RepeatedIdConformance:
    """The effect of an id that is sent again."""

    async def test_the_same_call_again_is_answered_as_the_first_one(self, storage: Storage) -> None:
        jobs = await _of_every_kind(storage)
        created = [Inserted(job.id, created=True) for job in jobs]
        assert list(await storage.jobs.insert(jobs)) == created
        again = [Inserted(job.id, created=True, repeated=True) for job in jobs]
        for _ in range(2):
            assert list(await storage.jobs.insert(jobs)) == again
        for job, answer in zip(jobs, again, strict=True):
            assert list(await storage.jobs.insert([job, job])) == [answer, answer]
            assert list(await storage.orders.insert([job], a_note())) == [answer]
        assert await total(storage) == len(jobs)

    async def test_the_answers_tell_what_is_new_from_what_was_stored_before(
        self, storage: Storage
    ) -> None:
        for job in await _of_every_kind(storage):
            like = {"limits": job.limits, "tags": job.tags, "timeout": job.timeout}
            keys = [job.unique and UniqueKey(f"{place}") for place in range(3)]
            first, second, third = (a_job(**like, unique=key) for key in keys)
            assert not (await storage.jobs.insert([second]))[0].repeated
            batch = [first, second, third, third]
            answers = await storage.jobs.insert(batch)
            assert [answer.repeated for answer in answers] == [False, True, False, True]
            assert all(answer.created for answer in answers)
            (answer,) = await storage.orders.insert([replace(job, unique=None)], a_note())
            assert not answer.repeated

    async def test_of_callers_who_say_one_id_at_once_one_has_stored_it(
        self, storage: Storage
    ) -> None:
        for job in await _of_every_kind(storage):
            calls = [storage.jobs.insert([job]) for _ in range(3)]
            orders = [storage.orders.insert([job], a_note()) for _ in range(3)]
            answers = [answer for (answer,) in await asyncio.gather(*calls, *orders)]
            assert {answer.id for answer in answers if answer.created} == {job.id}
            assert len(answers) == 6
            assert [answer.repeated for answer in answers].count(False) == 1

    async def test_an_id_that_names_another_call_is_refused_with_its_whole_batch(
        self, storage: Storage
    ) -> None:
        jobs = await _of_every_kind(storage)
        await add(storage, *jobs)
        for job in jobs:
            for other in ({"payload": b'{"other": true}'}, {"task": "another"}):
                again = replace(job, unique=None, **other)
                for batch in ([again], [a_job(), again, a_job(tags=("x",))]):
                    with pytest.raises(IdConflict) as caught:
                        await storage.jobs.insert(batch)
                    assert caught.value.job_id == job.id
            stored = await look(storage, job.id)
            assert (stored.task, stored.payload) == (job.task, job.payload)
        assert await total(storage) == len(jobs)

    async def test_an_audited_insert_with_the_id_of_another_call_is_refused(
        self, storage: Storage
    ) -> None:
        job = a_job()
        await add(storage, job)
        with pytest.raises(IdConflict):
            await storage.orders.insert([replace(job, payload=b"[]")], a_note())

    async def test_an_id_that_comes_twice_in_a_batch_names_one_call(self, storage: Storage) -> None:
        for job in await _of_every_kind(storage):
            other = replace(job, unique=None, payload=b"[]")
            with pytest.raises(IdConflict):
                await storage.jobs.insert([job, a_job(), other])
            with pytest.raises(IdConflict):
                await storage.jobs.insert([job, replace(other, unique=UniqueKey("another"))])
            assert await total(storage) == 0

    async def test_a_job_whose_arguments_were_replaced_is_still_its_own_call(
        self, storage: Storage
    ) -> None:
        replaces = UniqueKey("k", on_conflict=OnConflict.REPLACE)
        first = a_job(unique=replaces, payload=b"[1]")
        await add(storage, first)
        await storage.jobs.insert([a_job(unique=replaces, payload=b"[2]")])
        answer = Inserted(first.id, created=True, repeated=True)
        assert list(await storage.jobs.insert([first])) == [answer]
        assert (await look(storage, first.id)).payload == b"[2]"

    async def test_a_job_that_has_ended_keeps_its_id(self, storage: Storage) -> None:
        job = a_job()
        await succeeded(storage, await started(storage, job))
        answer = Inserted(job.id, created=True, repeated=True)
        assert list(await storage.jobs.insert([job])) == [answer]
        assert (await look(storage, job.id)).state is State.SUCCEEDED
        with pytest.raises(IdConflict):
            await storage.jobs.insert([replace(job, payload=b"[]")])
