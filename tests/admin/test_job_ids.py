"""Shortened ids, wherever one job is named."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from windlass import Windlass
from windlass._admin.jobs import ids
from windlass._app.parts import parts_of
from windlass._core.job.ids import id_patterns_of, short_id
from windlass._core.job.job import JobId
from windlass._core.job.state import State
from windlass._storage.memory.admin.admin import MemoryAdmin
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass.errors import AmbiguousId, JobNotFound
from windlass.testing.conformance.steps import a_job, add

ONE = JobId("0192f3a1aaaa7000800000010d9c4e07")
TWO = JobId("0192f3a1bbbb7000800000020d9c4e07")
OTHER = JobId("0192f3a1cccc700080000000000000ff")


@pytest.fixture
async def app() -> AsyncIterator[Windlass]:
    async with Windlass("memory://") as app:
        yield app


@pytest.mark.parametrize(
    "given",
    [
        "0192f3a1…0000ff",
        "0192f3a1...0000ff",
        "0192f3a1..0000ff",
        "0192F3A10000FF",
        "0192f3a1ccc…000000ff",
        "000000ff",
        "c700080000000000000ff",
        OTHER,
        OTHER.upper(),
        "0192f3a1-cccc-7000-8000-0000000000ff",
    ],
)
async def test_a_shortened_id_names_its_job(app: Windlass, given: str) -> None:
    await add(await parts_of(app).storage(), a_job(id=ONE), a_job(id=OTHER))
    assert await app.admin.jobs.resolve(given) == OTHER
    assert (await app.admin.jobs.get(given)).id == OTHER


async def test_every_read_and_action_on_one_job_takes_a_shortened_id(app: Windlass) -> None:
    admin, name = app.admin, short_id(OTHER)
    await add(await parts_of(app).storage(), a_job(id=OTHER), a_job(id=ONE, parent=OTHER))
    assert (await admin.jobs.explain(name)).job.id == OTHER
    assert await admin.jobs.history(name) == []
    assert await admin.jobs.logs(name) == []
    assert (await admin.jobs.edit(name, priority=3)).id == OTHER
    assert await admin.jobs.run_now(name)
    await admin.jobs.cancel(name)
    assert (await admin.jobs.requeue(name)).state is State.WAITING
    assert [job.id for job in await admin.jobs.find(JobFilter(parent=JobId(name)))] == [ONE]
    assert (await admin.jobs.count(JobFilter(parent=JobId(name)))).number == 1
    assert await admin.jobs.delete(name)
    records = await admin.audit.list(subject=f"job {OTHER}")
    assert {record.note.subject for record in records} == {f"job {OTHER}"}
    assert len(records) == 5


async def test_of_several_that_may_be_meant_none_is_taken(app: Windlass) -> None:
    await add(await parts_of(app).storage(), a_job(id=ONE), a_job(id=TWO), a_job(id=OTHER))
    for given in (short_id(ONE), "0192f3a19c4e07", "0d9c4e07"):
        with pytest.raises(AmbiguousId, match="whole id") as told:
            await app.admin.jobs.cancel(given)
        assert sorted(told.value.candidates) == [ONE, TWO]
    assert (await app.admin.jobs.get(ONE)).state is State.WAITING


async def test_the_end_of_an_id_is_looked_for_among_the_newest_and_it_says_so(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = await parts_of(app).storage()
    await add(storage, a_job(id=OTHER), *(a_job() for _ in range(6)))
    monkeypatch.setattr(MemoryAdmin, "look", 3)
    monkeypatch.setattr(ids, "NEWEST", 6)
    with pytest.raises(JobNotFound, match="None of the newest 6 jobs has an id that ends with"):
        await app.admin.jobs.get(OTHER[-8:])
    monkeypatch.setattr(ids, "NEWEST", 7)
    assert (await app.admin.jobs.get(OTHER[-8:])).id == OTHER
    with pytest.raises(JobNotFound, match="Check the id"):
        await app.admin.jobs.get("0192f3a1…123456")


async def test_an_id_that_is_too_short_is_refused_with_the_valid_forms(app: Windlass) -> None:
    for question in (app.admin.jobs.get, app.admin.jobs.history, app.admin.jobs.cancel):
        with pytest.raises(JobNotFound, match=r"32 hex .* 0192f3a1…9c4e07, or its last eight"):
            await question("102259")


def test_a_text_that_is_too_short_is_no_id() -> None:
    for given in ("", "0192f3a", "0192f3a…9c4e07", "0192f3a1…9c4e0", "nope", "mail", OTHER):
        assert id_patterns_of(given) == []
