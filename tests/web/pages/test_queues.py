"""Queues: their pages, their settings."""

from __future__ import annotations

import re
from datetime import timedelta

from tests.web.fixtures import Room, opened
from tests.web.page_text import links, words
from windlass._app.parts import parts_of
from windlass._core.job.outcome import GaveUp, Succeeded
from windlass._core.limits.backoff import Backoff
from windlass._storage.protocol.workers import WorkerStart
from windlass._web.security.roles import Role
from windlass.testing.conformance.steps import OOPS, a_job, claim, enlist, happened

MAIL = {"queue": "mail"}


async def ended(room: Room, count: int, *, failed: int = 0) -> None:
    storage = await parts_of(room.app).storage()
    await storage.jobs.insert([a_job(queue="mail", task="send") for _ in range(count)])
    await enlist(storage)
    for n, job in enumerate(await claim(storage, count, queue="mail")):
        await happened(storage, job, GaveUp(OOPS) if n < failed else Succeeded(b"null"))


async def test_queues_show_how_they_go_and_who_serves_them() -> None:
    async with opened() as room, await room.logged_in(Role.VIEWER) as viewer:
        await ended(room, 10, failed=2)
        storage = await parts_of(room.app).storage()
        start = WorkerStart(
            id="w",
            host="box",
            pid=1,
            version="1",
            queues=["mail"],
            slots=8,
            lease=timedelta(seconds=30),
        )
        await storage.workers.register(start)
        await storage.jobs.insert([a_job(queue="money")])
        page = (await viewer.get("/queues")).text
        read = words(page)
        assert re.search(r"mail open 0 – 0 0 of 8 2 (2|1\.[6-9])", read)  # ten in five minutes
        assert "Finished jobs in the last hour: 10" in page
        assert "money open 1 now 0 no worker" in read
        assert links(page, "/errors?queue=mail")
        assert links(page, "/queues/one?queue=mail")


async def test_queues_count_the_slots_that_workers_have_for_them() -> None:
    async with opened() as room, await room.logged_in(Role.VIEWER) as viewer:
        storage = await parts_of(room.app).storage()
        start = WorkerStart(
            id="w",
            host="box",
            pid=1,
            version="1",
            queues=["mail", "slow"],
            slots=8,
            pools={"mail": 6, "slow": 2},
            lease=timedelta(seconds=30),
        )
        await storage.workers.register(start)
        await storage.jobs.insert([a_job(queue="mail"), a_job(queue="slow")])
        read = words((await viewer.get("/queues")).text)
        assert re.search(r"mail open 1 \S+ 0 0 of 6", read), read
        assert re.search(r"slow open 1 \S+ 0 0 of 2", read), read


async def test_the_page_of_a_queue_has_states_tasks_workers_and_actions() -> None:
    async with opened() as room, await room.logged_in() as admin:
        await ended(room, 4, failed=1)
        await room.app.admin.acting("ada").queues.pause("mail")
        page = (await admin.get("/queues/one", params=MAIL)).text
        read = words(page)
        assert "Paused by ada, now . It accepts jobs and starts none." in read
        assert "succeeded 3" in read
        assert "failed 1" in read
        assert "send 3 0 1 " in read  # the task, by outcome
        assert "pause ada now" in read
        assert "3 succeeded and 1 failed in this time" in page
        assert "range=6h" in page
        resumed = await room.order(admin, "/queues/resume", {**MAIL, "back": "queue"})
        assert resumed.headers["location"] == "/queues/one?queue=mail"
        assert "Paused by" not in (await admin.get("/queues/one", params=MAIL)).text
        nobody = await admin.get("/queues/one?queue=never-used")
        assert nobody.status_code == 200
        assert "Jobs of this queue wait until a worker serves it" in nobody.text


async def test_settings_are_changed_while_everything_runs() -> None:
    async with opened() as room, await room.logged_in() as admin:
        form = {
            "max_running": "1,000",
            "backoff": "exponential:2s,factor=3,cap=1h",
            "cool_down": "30s",
            "keep_succeeded": "2h",
            "keep_failed": "",
        }
        done = await room.order(admin, "/queues/settings", MAIL, **form)
        assert done.headers["location"] == "/queues/one?queue=mail"
        settings = (await room.app.admin.queues.get("mail")).settings
        assert settings.max_running == 1000
        assert settings.backoff == Backoff.exponential(2, factor=3)
        assert settings.cool_down == Backoff.fixed(30)
        assert settings.keep_succeeded == timedelta(hours=2)
        assert settings.keep_failed is None
        page = words((await admin.get("/queues/one", params=MAIL)).text)
        assert "1,000 over all workers" in page
        assert "2s, then × 3 each time, at most 1h" in page
        await room.order(admin, "/queues/settings", MAIL, max_running="")
        settings = (await room.app.admin.queues.get("mail")).settings
        assert settings.max_running is None
        assert settings.keep_succeeded == timedelta(hours=2)  # the rest stays
        newest = (await room.app.admin.audit.list())[0].note
        assert (newest.who, newest.detail) == ("dashboard:the-admin", "max_running=None")


async def test_a_setting_that_does_not_fit_is_explained_and_what_was_typed_stays() -> None:
    async with opened() as room, await room.logged_in() as admin:
        for field, value, said in (
            ("max_running", "many", "Max running must be a whole number"),
            ("max_running", "0", "to let nothing run, pause the queue"),
            ("backoff", "expo:1s", "is no curve"),
            ("keep_failed", "<i>", "Keep failed must be a duration"),
        ):
            form = {"keep_succeeded": "9h", field: value}
            answer = await room.order(admin, "/queues/settings", MAIL, **form)
            assert answer.status_code == 422
            assert said in words(answer.text)
            assert 'value="9h"' in answer.text
            assert "<i>" not in answer.text.replace("<i></i>", "")
        assert not await room.app.admin.audit.list()


async def test_settings_are_for_admins() -> None:
    async with opened() as room, await room.logged_in(Role.OPERATOR) as operator:
        assert (await operator.get("/queues/settings", params=MAIL)).status_code == 403
        page = (await operator.get("/queues/one", params=MAIL)).text
        assert not links(page, "/queues/settings")
        assert links(page, "/queues/pause")
