"""Audit: who ordered what."""

from __future__ import annotations

import re

from tests.web.fixtures import opened
from tests.web.page_text import links, words
from tests.web.security.hostile_texts import HOSTILE
from windlass._app.parts import parts_of
from windlass._core.job.state import State
from windlass._storage.protocol.actions import Cancel
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._web.security.roles import Role
from windlass.testing.conformance.steps import a_job


async def test_actions_are_shown_with_user_action_and_count() -> None:
    async with opened() as room, await room.logged_in(Role.VIEWER) as viewer:
        assert "No action yet" in (await viewer.get("/audit")).text
        ada = room.app.admin.acting("ada")
        await ada.queues.pause("mail")
        await ada.queues.set("money", max_running=3)
        page = (await viewer.get("/audit")).text
        read = words(page)
        assert "set queues max_running=3 queue money only this 1 ada" in read
        assert "pause queues queue mail only this 1 ada" in read
        assert read.index("set queues") < read.index("pause queues")
        assert links(page, "/queues/one?queue=mail")
        (only,) = links(page, "/audit?subject=queue+mail")
        narrowed = words((await viewer.get(only)).text)
        assert "pause queues queue mail 1 ada" in narrowed
        assert "set queues" not in narrowed
        assert "No action" in (await viewer.get("/audit?subject=queue+nobody")).text


async def test_a_bulk_action_is_one_row_for_any_number_of_parts() -> None:
    async with opened() as room, await room.logged_in() as admin:
        storage = await parts_of(room.app).storage()
        await storage.jobs.insert([a_job(queue="mail") for _ in range(450)])
        wanted = JobFilter(states=[State.WAITING], queue="mail")
        report = await room.app.admin.acting("ada").jobs.bulk(Cancel(), wanted)
        assert report.done == 450
        assert len(await room.app.admin.audit.list()) > 1
        page = words((await admin.get("/audit")).text)
        assert page.count("cancel jobs") == 1
        assert re.search(r"450 in \d+ parts ada", page)
        assert "bulk" not in page


async def test_older_actions_follow_page_by_page() -> None:
    async with opened() as room, await room.logged_in() as admin:
        for n in range(60):
            await room.app.admin.queues.pause(f"q{n}")
        first = (await admin.get("/audit")).text
        assert "queue q59" in first
        assert "queue q9 " not in words(first)
        (older,) = links(first, "/audit?before=")
        second = (await admin.get(older)).text
        assert "queue q9 " in words(second)
        assert "queue q59" not in second
        assert "No older entries" in second
        assert (await admin.get("/audit?before=x")).status_code == 400


async def test_hostile_names_and_details_are_escaped() -> None:
    async with opened() as room, await room.logged_in() as admin:
        for text in HOSTILE:
            name = "".join(c if c.isprintable() and c != " " else "_" for c in text)[:128]
            await room.app.admin.acting(text[:100].strip() or "x").queues.pause(name)
        page = (await admin.get("/audit")).text
        assert "<script>alert" not in page
        assert "<img" not in page
        assert (await admin.get("/audit", params={"subject": HOSTILE[0]})).status_code == 200
