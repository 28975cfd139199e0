"""Schedules: what they show, what is ordered, and the preview before anything is saved."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import pytest

from tests.web.fixtures import BROWSER, Room, form_token, opened
from tests.web.page_text import links, words
from tests.web.security.hostile_texts import HOSTILE, MARK
from tests.worker.fixtures import eventually
from windlass._app.parts import parts_of
from windlass._core.job.outcome import GaveUp
from windlass._core.schedule.rules import Cron, Every, Manual
from windlass._core.schedule.schedule import Missed
from windlass._storage.protocol.schedules import ScheduleWrite
from windlass._web.pages.schedules import schedule_list as pages
from windlass._web.pages.schedules.schedule_list import read_live_state
from windlass._web.security.roles import Role
from windlass.errors import ScheduleUnknown
from windlass.testing.conformance.steps import OOPS, claim, enlist, happened

NIGHTLY = {"schedule": "nightly"}


async def made(room: Room, name: str, rule: Any, *args: str, **options: Any) -> None:
    send = room.app.tasks.find("send")
    assert send is not None
    await parts_of(room.app).workers.dependencies()
    await room.app.admin.schedules.create(name, rule, send.call(*args), **options)


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    async with opened() as one:
        await made(one, "nightly", Cron("30 3 * * *", tz="Europe/Berlin"), "ada@example.com")
        yield one


async def edited(client: httpx.AsyncClient, **fields: str) -> httpx.Response:
    """The form of the edit page, sent with these fields changed."""
    page = (await client.get("/schedules/edit", params=NIGHTLY)).text
    sent = {"token": form_token(page), **fields}
    return await client.post("/schedules/edit", params=NIGHTLY, data=sent, headers=BROWSER)


async def test_schedules_are_shown_in_plain_words_with_next_and_last_runs(room: Room) -> None:
    await made(room, "by-hand", Manual(), "b@example.com")
    await room.app.admin.schedules.trigger("by-hand")
    storage = await parts_of(room.app).storage()
    await enlist(storage)
    (job,) = await claim(storage, 1, queue="mail")
    await happened(storage, job, GaveUp(OOPS))
    async with await room.logged_in(Role.VIEWER) as viewer:
        page = (await viewer.get("/schedules")).text
        read = words(page)
        assert "nightly send at 03:30 every day, Europe/Berlin active in " in read
        assert "none yet" in read
        assert "by-hand send only when triggered active" in read
        _, _, cell = page.partition('<li class="red"')
        assert f'href="/jobs/{job.claim.job}"' in cell.partition("</li>")[0]  # its run
        assert not links(page, "/schedules/run")
        one = words((await viewer.get("/schedules/one?schedule=by-hand")).text)
        assert "failed" in one
        assert "api" in one  # who triggered it
        assert (await viewer.get("/schedules/one?schedule=nobody")).status_code == 404
    async with opened() as empty, await empty.logged_in() as admin:
        assert "No schedule yet" in (await admin.get("/schedules")).text


async def test_actions_on_schedules_are_done_and_recorded(room: Room) -> None:
    async with await room.logged_in() as admin:
        done = await room.order(admin, "/schedules/run", NIGHTLY)
        assert done.headers["location"] == "/schedules"
        (run,) = (await room.app.admin.schedules.get("nightly")).runs
        assert run.by == "dashboard:the-admin"
        here = {**NIGHTLY, "back": "schedule"}
        paused = await room.order(admin, "/schedules/pause", here)
        assert paused.headers["location"] == "/schedules/one?schedule=nightly"
        page = words((await admin.get("/schedules/one", params=NIGHTLY)).text)
        assert "Paused by dashboard:the-admin, " in page
        await room.order(admin, "/schedules/resume", NIGHTLY)
        assert (await room.app.admin.schedules.get("nightly")).state == "active"
        await room.order(admin, "/schedules/remove", NIGHTLY)
        with pytest.raises(ScheduleUnknown):
            await room.app.admin.schedules.get("nightly")
        assert "nightly" not in words((await admin.get("/schedules")).text).split("removed.")[1]
        assert "nightly" in words((await admin.get("/schedules?removed=yes")).text)
        one = words((await admin.get("/schedules/one", params=NIGHTLY)).text)
        assert "Removed by dashboard:the-admin, " in one
        await room.order(admin, "/schedules/forget", NIGHTLY)
        assert not await room.app.admin.schedules.list(removed=True)
        records = await room.app.admin.audit.list(subject="schedule nightly")
        verbs = ["delete", "remove", "resume", "pause", "trigger", "create"]
        assert [one.note.what for one in records] == [f"schedules.{verb}" for verb in verbs]
        assert {one.note.who for one in records[:-1]} == {"dashboard:the-admin"}


async def test_all_schedules_are_paused_and_resumed_on_the_page(room: Room) -> None:
    before = await read_live_state(room.app.admin)
    async with await room.logged_in() as admin:
        await room.order(admin, "/schedules/pause-all", {})
        assert await room.app.admin.schedules.paused() is not None
        assert await read_live_state(room.app.admin) != before
        page = (await admin.get("/schedules")).text
        assert "All schedules are paused by dashboard:the-admin, " in words(page)
        assert links(page, "/schedules/resume-all")
        one = words((await admin.get("/schedules/one", params=NIGHTLY)).text)
        assert "This one fires again when all are resumed" in one
        await room.order(admin, "/schedules/resume-all", {})
        assert await room.app.admin.schedules.paused() is None
        assert not links((await admin.get("/schedules")).text, "/schedules/resume-all")
    told = [one.note.what for one in await room.app.admin.audit.list(subject="all schedules")]
    assert told == ["schedules.resume_all", "schedules.pause_all"]


async def test_changes_of_schedules_are_noticed_without_reading_all_of_them(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin, storage = room.app.admin, await parts_of(room.app).storage()
    await made(room, "by-hand", Manual(), "b@example.com")
    monkeypatch.setattr(pages, "minute_of", lambda _: None)  # whatever the time is
    with monkeypatch.context() as patch:  # neither their jobs nor what their tasks wait for
        for store, name in ((storage.admin, "get"), (storage.limits, "states")):
            patch.setattr(store, name, None)
        seen = [await read_live_state(admin)]
        assert seen == [await read_live_state(admin)]
        job = await admin.schedules.trigger("by-hand")
        seen.append(await read_live_state(admin))
        await enlist(storage)
        (claimed,) = await claim(storage, 1, queue="mail")
        assert job is not None
        assert claimed.claim.job == job.id
        assert await read_live_state(admin) == seen[-1]
        await happened(storage, claimed, GaveUp(OOPS))
        seen.append(await read_live_state(admin))
        await storage.schedules.write([ScheduleWrite(name="odd", revision=0, body=b"{")])
        seen.append(await read_live_state(admin))
    await admin.schedules.pause("nightly")
    seen.append(await read_live_state(admin))
    for before, after in itertools.pairwise(seen):
        assert before != after


async def test_reset_of_what_no_code_declares_says_why_not(room: Room) -> None:
    async with await room.logged_in() as admin:
        await room.order(admin, "/schedules/reset", NIGHTLY)
        assert "was created at run time" in (await admin.get("/schedules")).text


async def test_changing_a_schedule_is_for_admins(room: Room) -> None:
    async with await room.logged_in(Role.OPERATOR) as operator:
        for verb in ("edit", "remove", "reset", "forget"):
            answer = await operator.get(f"/schedules/{verb}", params=NIGHTLY)
            assert answer.status_code == 403, verb
        page = (await operator.get("/schedules/one", params=NIGHTLY)).text
        assert links(page, "/schedules/run")
        assert not links(page, "/schedules/edit")


async def test_the_next_firings_are_seen_before_anything_is_saved(room: Room) -> None:
    async with await room.logged_in() as admin:
        page = (await admin.get("/schedules/edit", params=NIGHTLY)).text
        assert 'value="30 3 * * *"' in page
        assert 'value="Europe/Berlin"' in page
        seen = await edited(admin, cron="15 9 * * mon", tz="UTC", preview="yes")
        assert seen.status_code == 200
        read = words(seen.text)
        assert "It would fire at 09:15 on Monday, UTC" in read
        assert read.count(" 09:15:00 UTC") == 5
        assert "Mon " in read
        assert 'value="15 9 * * mon"' in seen.text  # what was typed stays
        plan = (await room.app.admin.schedules.get("nightly")).plan
        assert plan is not None
        assert plan.rule == Cron("30 3 * * *", "Europe/Berlin")  # and nothing was saved


async def test_only_changed_fields_are_saved(room: Room) -> None:
    async with await room.logged_in() as admin:
        saved = await edited(
            admin,
            kind="every",
            period="5m",
            missed="skip",
            overlap="some",
            most_active="3",
            jitter="20s",
            ends="2090-01-01 00:00",
        )
        assert saved.headers["location"] == "/schedules/one?schedule=nightly"
        plan = (await room.app.admin.schedules.get("nightly")).plan
        assert plan is not None
        assert plan.rule == Every(300)
        assert (plan.missed, plan.overlap, plan.jitter) == (Missed.SKIP, 3, timedelta(seconds=20))
        assert plan.ends is not None
        (record, *_) = await room.app.admin.audit.list()
        assert record.note.detail == "rule, missed, overlap, jitter, ends"
        page = words((await admin.get("/schedules/one", params=NIGHTLY)).text)
        assert "every 5 minutes" in page
        assert "skipped while 3 runs are active" in page
        nothing = await edited(admin)
        assert nothing.status_code == 303
        assert (await room.app.admin.audit.list())[0].number == record.number


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"cron": "61 * * * *"}, "is no cron expression"),
        ({"tz": "Europe/Berlyn"}, "Europe/Berlin"),
        ({"kind": "every", "period": "soon"}, "Period must be a duration"),
        ({"kind": "once", "at": ""}, "At must be a time"),
        ({"most_missed": "many"}, "At most must be a whole number"),
        ({"starts": "tomorrow"}, "Starts must be a time"),
        ({"starts": "2031-01-01", "ends": "2030-01-01"}, "must be after starts"),
        ({"kind": "sometimes"}, "a rule is cron"),
        ({"overlap": "maybe"}, "overlap must be"),
    ],
)
async def test_a_field_that_does_not_fit_is_explained_and_kept(
    room: Room, fields: dict[str, str], said: str
) -> None:
    async with await room.logged_in() as admin:
        for button in ({}, {"preview": "yes"}):
            answer = await edited(admin, **fields, **button)
            assert answer.status_code == 422
            assert said in words(answer.text)
        assert len(await room.app.admin.audit.list()) == 1  # that it was made


async def test_secret_arguments_are_not_shown(room: Room) -> None:
    token = room.app.task(name="call", queue="mail")(_call)
    admin_api = room.app.admin
    await admin_api.schedules.create("secret", Manual(), token.call("x", password="hunter2hunter2"))
    async with await room.logged_in() as admin:
        page = (await admin.get("/schedules/one?schedule=secret")).text
        assert "hunter2" not in page
        assert "password" in page


async def _call(to: str, password: str) -> None: ...


async def test_hostile_names_and_arguments_are_text(room: Room) -> None:
    async with await room.logged_in() as admin:
        for n, text in enumerate(HOSTILE):
            await made(room, f"n{n}", Manual(), text)
            page = (await admin.get(f"/schedules/one?schedule=n{n}")).text
            assert MARK in page
            assert "<script>alert" not in page
            assert "<img" not in page
        name = "<img/src=x>"
        await made(room, name, Manual(), "x")
        page = (await admin.get("/schedules")).text
        assert "<img" not in page
        (link,) = [one for one in links(page, "/schedules/one") if "img" in one]
        assert (await admin.get(link)).status_code == 200


async def _as_admin(room: Room, path: str) -> httpx.Response:
    async with await room.logged_in() as admin:
        return await admin.get(path)


async def test_a_schedule_of_every_worker_is_marked_and_shows_its_workers(room: Room) -> None:
    send = room.app.tasks.find("send")
    assert send is not None
    room.app.schedule(Every(0.05), name="refresh", on="every_worker")(send.call("a@example.com"))
    admin = room.app.admin

    async def ran() -> bool:
        return bool((await admin.schedules.get("refresh")).on_workers)

    async with room.app.worker(queues=["mail"]):
        await eventually(ran)
    (run,) = (await admin.schedules.get("refresh")).on_workers
    async with await room.logged_in(Role.VIEWER) as viewer:
        assert "on every worker" in words((await viewer.get("/schedules")).text)
        params = {"schedule": "refresh"}
        page = words((await viewer.get("/schedules/one", params=params)).text)
        assert "Last run on each worker" in page
        assert run.worker in page
        told = (await viewer.get("/api/v1/schedules/one", params=params)).json()
        assert told["on"] == "every_worker"
        assert told["on_workers"][0]["worker"] == run.worker
