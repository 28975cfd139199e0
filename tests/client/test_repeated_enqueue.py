"""An enqueue that ended in an error says which ids it used, and is repeated with them safely."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from tests.client.fakes import Wrapped, wrapping
from windlass import Job, Windlass, testing
from windlass._client import client
from windlass._core.job.job import NewJob
from windlass._storage.protocol.jobs import Inserted
from windlass._tasks.task import Task
from windlass.errors import IdConflict, InvalidArgument, StorageUnavailable, ids_of
from windlass.testing import VirtualClock


def mail_of(app: Windlass) -> Task[..., None]:
    @app.task(name="mail")
    async def mail(to: str = "ada") -> None: ...

    return mail


async def count(app: Windlass) -> int:
    return len(await app.admin.jobs.find())


class LosesAnswers(Wrapped):
    """Stores what it is given and says that the server is gone."""

    failures = 5

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        replies = await self.inner.insert(jobs)
        if self.failures:
            self.failures -= 1
            raise StorageUnavailable("the store is away")
        return replies


async def test_a_call_repeated_with_the_ids_of_its_error_is_stored_once(app: Windlass) -> None:
    mail = mail_of(app)
    with wrapping(app, LosesAnswers):
        async with app:
            ids: tuple[str, ...] = ()
            for _ in range(5):
                with pytest.raises(StorageUnavailable) as caught:
                    await mail.options(id=ids[0] if ids else None).enqueue()
                assert not ids or caught.value.ids == ids
                ids = caught.value.ids
            job = await mail.options(id=ids[0]).enqueue()
            assert (job.id, job.created) == (ids[0], True)
            assert await count(app) == 1


async def test_many_repeated_with_the_ids_of_their_error_are_stored_once(app: Windlass) -> None:
    mail = mail_of(app)
    calls = [mail.call(str(number)) for number in range(3)]
    with wrapping(app, LosesAnswers):
        async with app:
            with pytest.raises(StorageUnavailable) as caught:
                await app.enqueue_many(calls)
            LosesAnswers.of(app).failures = 0
            jobs = await app.enqueue_many(calls, ids=caught.value.ids)
            assert tuple(job.id for job in jobs) == ids_of(caught.value)
            assert await count(app) == 3


async def test_an_enqueue_that_is_cancelled_after_it_was_stored_says_its_id(
    app: Windlass, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = asyncio.Event()

    async def never_ends(*_: object) -> None:
        told.set()
        await asyncio.Event().wait()

    @app.task(name="mail", unique=True, expires=timedelta(seconds=1))
    async def mail() -> None: ...

    monkeypatch.setattr(client, "publish_expired_events", never_ends)
    app.on_transition(lambda _: None)
    async with app:
        for enqueue in (mail.enqueue, lambda: app.enqueue_many([mail.call()])):
            told.clear()
            await app.admin.jobs.enqueue(mail.call())
            clock.advance(timedelta(seconds=1))
            storing = asyncio.create_task(enqueue())
            await told.wait()
            storing.cancel()
            with pytest.raises(asyncio.CancelledError) as caught:
                await storing
            assert [job.id for job in await app.admin.jobs.find(limit=1)] == [*ids_of(caught.value)]


async def test_callers_of_one_flush_have_ids_of_their_own(app: Windlass) -> None:
    mail = mail_of(app)
    with wrapping(app, LosesAnswers):
        async with app:
            errors = await asyncio.gather(
                *(mail.enqueue(str(number)) for number in range(9)), return_exceptions=True
            )
            LosesAnswers.of(app).failures = 0
            found = [ids_of(error) for error in errors if isinstance(error, StorageUnavailable)]
            assert len({*found}) == 9
            stored = {job.id: job.payload for job in await app.admin.jobs.find()}
            assert {ids[0] for ids in found} == {*stored}


class Hangs(Wrapped):
    """Stores what it is given and does not answer before it may."""

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        replies = await self.inner.insert(jobs)
        await asyncio.sleep(0.2)
        return replies


async def test_a_call_that_is_cancelled_says_its_ids_too(app: Windlass) -> None:
    mail = mail_of(app)
    with wrapping(app, Hangs):
        async with app:
            with pytest.raises(TimeoutError) as caught:
                async with asyncio.timeout(0.05):
                    await mail.enqueue()
            (job_id,) = ids_of(caught.value)
            sending = asyncio.create_task(mail.options(id=job_id).enqueue())
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError) as cancelled:
                await sending
            assert ids_of(cancelled.value) == (job_id,)
            assert (await mail.options(id=job_id).enqueue()).created
            assert await count(app) == 1


class NeverOpens(Wrapped):
    def __init__(self, storage: Any) -> None:
        raise StorageUnavailable("no server is there")


async def test_callers_who_wait_for_one_storage_that_does_not_open_have_ids_of_their_own(
    app: Windlass,
) -> None:
    mail = mail_of(app)
    with wrapping(app, NeverOpens):
        errors = await asyncio.gather(
            *(mail.enqueue() for _ in range(3)),
            app.enqueue_many([mail.call(), mail.call()]),
            return_exceptions=True,
        )
    found = [ids_of(error) for error in errors if isinstance(error, StorageUnavailable)]
    assert [len(ids) for ids in found] == [1, 1, 1, 2]
    assert len({one for ids in found for one in ids}) == 5


async def test_the_same_id_with_another_call_is_refused(app: Windlass) -> None:
    mail = mail_of(app)

    @app.task(name="other")
    async def other(to: str = "ada") -> None: ...

    job = await mail.options(id=uuid.uuid4()).enqueue("ada")
    for call in (mail.options(id=job.id).enqueue("bob"), other.options(id=job.id).enqueue("ada")):
        with pytest.raises(IdConflict, match="stored with another task or other arguments"):
            await call
    with pytest.raises(IdConflict):
        await app.enqueue_many([mail.call("x"), mail.call("y")], ids=[uuid.uuid4(), job.id])
    assert await count(app) == 1


async def test_one_conflict_does_not_fail_the_others_in_its_batch(app: Windlass) -> None:
    mail = mail_of(app)
    job_id = uuid.uuid4().hex
    answers = await asyncio.gather(
        *(mail.options(id=job_id).enqueue(str(number)) for number in range(3)),
        *(mail.enqueue() for _ in range(3)),
        return_exceptions=True,
    )
    assert [isinstance(answer, Job) for answer in answers] == [True, False, False, True, True, True]
    assert all(isinstance(answer, IdConflict) for answer in answers[1:3])


async def test_a_call_has_no_id_and_is_two_jobs_when_it_is_enqueued_twice(app: Windlass) -> None:
    mail = mail_of(app)
    call = mail.call()
    one, two = await app.enqueue_many([call, call])
    assert one.id != two.id
    with pytest.raises(InvalidArgument, match="a call has no id"):
        mail.options(id=uuid.uuid4()).call()


async def test_an_id_may_be_written_as_uuids_are(app: Windlass) -> None:
    mail = mail_of(app)
    given = uuid.uuid4()
    spelled: list[str | uuid.UUID] = [given, given.hex, str(given), str(given).upper()]
    jobs = [await mail.options(id=one).enqueue() for one in spelled]
    assert {job.id for job in jobs} == {given.hex}


@pytest.mark.parametrize(
    "given", ["", "x", "0" * 31, "0" * 33, 5, 1.5, b"0" * 32, "g" * 32, "0" * 12 + "8" + "0" * 19]
)
async def test_an_invalid_id_is_refused(app: Windlass, given: Any) -> None:
    mail = mail_of(app)
    with pytest.raises(InvalidArgument):
        mail.options(id=given)
    with pytest.raises(InvalidArgument):
        await app.enqueue_many([mail.call()], ids=[given])


async def test_ids_are_one_for_each_call(app: Windlass) -> None:
    mail, one = mail_of(app), uuid.uuid4()
    with pytest.raises(InvalidArgument, match="one id for each of the 2 calls, got 1"):
        await app.enqueue_many([mail.call(), mail.call()], ids=[one])
    with pytest.raises(InvalidArgument, match="the same id twice"):
        await app.enqueue_many([mail.call(), mail.call()], ids=[one, one])


def test_blocking_calls_take_ids_too() -> None:
    app = Windlass("memory://")
    mail = mail_of(app)
    ids = [uuid.uuid4().hex for _ in range(3)]
    try:
        for _ in range(2):
            assert mail.options(id=ids[0]).enqueue_sync().id == ids[0]
            calls = [mail.call(), mail.call()]
            jobs = app.blocking.enqueue_many(calls, ids=ids[1:])
            assert [job.id for job in jobs] == ids[1:]
    finally:
        app.blocking.close()


async def test_actions_take_ids_too(app: Windlass) -> None:
    mail = mail_of(app)
    one = uuid.uuid4()
    for _ in range(2):
        assert (await app.admin.jobs.enqueue(mail.call(), id=one)).id == one.hex
    with pytest.raises(IdConflict):
        await app.admin.jobs.enqueue(mail.call("bob"), id=one)
    assert await count(app) == 1


async def test_inline_jobs_take_ids_too() -> None:
    app = Windlass("memory://")
    mail, one = mail_of(app), uuid.uuid4()
    with testing.inline(app):
        assert (await mail.options(id=one).enqueue()).id == one.hex


async def test_a_repeated_id_is_published_once(app: Windlass) -> None:
    mail = mail_of(app)
    heard: list[str] = []
    app.on_transition(lambda event: heard.append(type(event).__name__))
    async with app:
        given = uuid.uuid4()
        for _ in range(2):
            await mail.options(id=given).enqueue()
            await app.enqueue_many([mail.call()], ids=[given])
            await app.admin.jobs.enqueue(mail.call(), id=given)
        assert heard == ["JobEnqueued"]


async def test_callers_who_repeat_one_id_at_once_tell_of_it_once(app: Windlass) -> None:
    mail, given = mail_of(app), uuid.uuid4()
    heard: list[str] = []
    app.on_transition(lambda event: heard.append(type(event).__name__))
    async with app:
        await asyncio.gather(
            *(mail.options(id=given).enqueue() for _ in range(3)),
            *(app.enqueue_many([mail.call()], ids=[given]) for _ in range(3)),
            *(app.admin.jobs.enqueue(mail.call(), id=given) for _ in range(3)),
        )
    assert heard == ["JobEnqueued"]


async def test_a_repeat_of_a_call_that_ended_in_an_error_is_published(app: Windlass) -> None:
    mail = mail_of(app)
    heard: list[str] = []
    app.on_transition(lambda event: heard.append(type(event).__name__))
    with wrapping(app, LosesAnswers):
        async with app:
            with pytest.raises(StorageUnavailable) as caught:
                await mail.enqueue()
            LosesAnswers.of(app).failures = 0
            for _ in range(2):
                await mail.options(id=caught.value.ids[0]).enqueue()
    assert heard == ["JobEnqueued"]


async def test_a_uuid_with_dashes_names_the_same_job(app: Windlass) -> None:
    mail = mail_of(app)
    async with app:
        given = uuid.uuid4()
        job = await mail.options(id=given).enqueue()
        for name in (given, str(given), str(given).upper(), given.hex):
            assert (await app.job(name).refresh()).id == job.id
            assert mail.job(name).id == job.id
        assert (await app.admin.jobs.get(str(given))).id == job.id
        assert (await app.admin.jobs.cancel(str(given))).value == "cancelled"
