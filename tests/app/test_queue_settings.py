"""Queue settings through ``app.admin``: what is set, left alone, taken away and refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from windlass import Backoff, Windlass
from windlass._app.parts import parts_of
from windlass._core.job.job import NewJob
from windlass._core.limits.queue_settings import QueueSettings
from windlass._system.seams import new_job_id
from windlass.errors import InvalidArgument


@pytest.fixture
async def app() -> AsyncIterator[Windlass]:
    async with Windlass("memory://") as app:
        yield app


async def test_an_untouched_queue_has_default_settings(app: Windlass) -> None:
    record = await app.admin.queues.get("mail")
    assert record.settings == QueueSettings()
    assert not record.paused
    assert await app.admin.queues.list() == []


async def test_omitted_settings_stay_and_none_removes_them(app: Windlass) -> None:
    await app.admin.queues.set("mail", max_running=3, backoff=Backoff.fixed(5), keep_failed=60)
    await app.admin.queues.set("mail", max_running=None, keep_succeeded=0)
    assert (await app.admin.queues.get("mail")).settings == QueueSettings(
        backoff=Backoff.fixed(5), keep_failed=timedelta(seconds=60), keep_succeeded=timedelta(0)
    )


async def test_settings_changed_at_the_same_time_do_not_undo_each_other(app: Windlass) -> None:
    await asyncio.gather(
        app.admin.queues.set("mail", max_running=3),
        app.admin.queues.set("mail", backoff=Backoff.fixed(5)),
        app.admin.queues.set("mail", keep_failed=60),
    )
    settings = (await app.admin.queues.get("mail")).settings
    assert settings.max_running == 3
    assert settings.backoff == Backoff.fixed(5)
    assert settings.keep_failed == timedelta(seconds=60)


async def test_the_answer_is_the_queue_as_it_is_now(app: Windlass) -> None:
    await app.admin.queues.pause("mail")
    answer = await app.admin.queues.set("mail", max_running=3)
    assert answer == await app.admin.queues.get("mail")
    assert answer.paused


async def test_settings_are_set_from_code_without_a_loop() -> None:
    app = Windlass("memory://")

    def blocking() -> int | None:
        app.blocking.run(app.admin.queues.set("mail", max_running=2))
        most = app.blocking.run(app.admin.queues.get("mail")).settings.max_running
        app.blocking.close()
        return most

    assert await asyncio.to_thread(blocking) == 2


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, "nothing to change"),
        ({"max_running": 0}, "pause the queue"),
        ({"max_running": True}, "whole number"),
        ({"backoff": 5}, "Backoff.fixed"),
        ({"cool_down": "long"}, "Backoff"),
        ({"keep_failed": -1}, "keep_failed"),
    ],
)
async def test_nonsense_is_refused_and_changes_nothing(
    app: Windlass, changes: dict[str, object], says: str
) -> None:
    with pytest.raises(InvalidArgument, match=says):
        await app.admin.queues.set("mail", **changes)  # type: ignore[arg-type]
    assert await app.admin.queues.list() == []


async def test_a_queue_s_name_is_checked(app: Windlass) -> None:
    admin = app.admin
    for name in ("", "two words", None):
        for order in (admin.queues.pause, admin.queues.resume, admin.queues.warm, admin.queues.get):
            with pytest.raises(InvalidArgument, match="a queue's name"):
                await order(name)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="a queue's name"):
        await admin.queues.set("two words", max_running=1)


async def test_jobs_of_a_queue_that_the_command_line_cannot_name_can_be_moved_and_run(
    app: Windlass,
) -> None:
    @app.task(name="job")
    async def job() -> str:
        return "done"

    storage = await parts_of(app).storage()
    new = NewJob(id=new_job_id(), task="job", queue="a,b")
    await storage.jobs.insert([new])
    with pytest.raises(InvalidArgument, match="must not contain"):
        await app.admin.jobs.edit(new.id, queue="c,d")
    await app.admin.queues.pause("a,b")
    await app.admin.queues.resume("a,b")
    await app.admin.jobs.edit(new.id, queue="plain")
    async with app.worker(queues=["plain"], until_empty=True) as worker:
        await worker.wait()
    assert await app.job(new.id).result(timeout=30) == "done"
    assert all(count.ready == 0 for count in await app.admin.queues.counts())
