"""Errors: groups, what narrows them, and orders for a whole group."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import timedelta

import httpx
import pytest

from tests.web.fixtures import BROWSER, Room, form_token, opened
from tests.web.page_text import links, words
from tests.web.security.hostile_texts import HOSTILE, MARK
from windlass._app.parts import parts_of
from windlass._core.job.job import AttemptError
from windlass._core.job.outcome import GaveUp
from windlass._core.job.state import State
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.storage import Storage
from windlass._web.security.roles import Role
from windlass.testing.conformance.steps import a_job, claim, enlist, happened


def an_error(kind: str, place: str, text: str) -> AttemptError:
    trace = (
        f'Traceback (most recent call last):\n  File "/app/shop/{place}.py", line 3, in {place}\n'
    )
    return AttemptError(kind=kind, message=text, traceback=trace if place else "")


async def fail(storage: Storage, error: AttemptError, *, queue: str, task: str) -> str:
    job = a_job(queue=queue, task=task)
    await storage.jobs.insert([job])
    await enlist(storage)
    (claimed,) = await claim(storage, 1, queue=queue)
    await happened(storage, claimed, GaveUp(error))
    return job.id


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    async with opened() as one:
        storage = await parts_of(one.app).storage()
        for n in range(3):
            refused = an_error("ConnectionError", "pay", f"refused {n}")
            await fail(storage, refused, queue="money", task="pay")
        await fail(storage, an_error("ValueError", "send", "no @"), queue="mail", task="send")
        await fail(storage, an_error("ValueError", "", "lost"), queue="mail", task="send")
        yield one


async def test_failed_jobs_are_grouped_by_what_went_wrong_and_where(room: Room) -> None:
    async with await room.logged_in(Role.VIEWER) as viewer:
        page = (await viewer.get("/errors")).text
        read = words(page)
        assert "3 groups 5 jobs" in read
        assert "ConnectionError shop/pay.py pay refused 2 3 pay money" in read
        assert "ValueError shop/send.py send no @ 1 send mail" in read
        (jobs,) = links(page, "/jobs?state=failed&error=ConnectionError")
        assert "frame=shop%2Fpay.py+pay" in jobs
        found = words((await viewer.get(jobs)).text)
        assert found.count("refused") == 3
        assert "no @" not in found
        assert not links(page, "/errors/requeue")  # a viewer only looks


async def test_the_address_narrows_it_and_says_when_nothing_is_left(room: Room) -> None:
    async with await room.logged_in() as admin:
        page = words((await admin.get("/errors?queue=mail")).text)
        assert "2 groups 2 jobs" in page
        assert "ConnectionError" not in page
        assert "No failed job matches" in (await admin.get("/errors?task=nobody")).text
        late = (await admin.get("/errors?range=1h&queue=money")).text
        assert "1 group 3 jobs" in words(late)
        assert "range=24h&queue=money" in late.replace("&amp;", "&")  # other ranges keep the rest
    async with opened() as empty, await empty.logged_in() as admin:
        assert "No job has failed" in (await admin.get("/errors")).text


async def test_a_group_is_requeued_whole_and_alone_and_on_record(room: Room) -> None:
    elsewhere = an_error("ConnectionError", "pay", "refused elsewhere")
    await fail(await parts_of(room.app).storage(), elsewhere, queue="mail", task="send")
    async with await room.logged_in(Role.OPERATOR) as operator:
        (link,) = links((await operator.get("/errors?queue=money")).text, "/errors/requeue")
        question = await operator.get(link)
        assert "Requeue 3 jobs?" in words(question.text)
        assert "on queue money" in words(question.text)
        done = await sent(operator, link, question)
        assert done.headers["location"] == "/errors?queue=money"
        assert "3 jobs requeued." in (await operator.get("/errors")).text
        left = await room.app.admin.jobs.find(JobFilter(states=[State.FAILED]))
        assert len(left) == 3
        assert {job.task for job in left} == {"send"}
        (record,) = await room.app.admin.audit.list()
        assert (record.note.who, record.note.what) == ("dashboard:the-operator", "jobs.requeue")
        assert record.count == 3


async def test_errors_without_a_place_form_a_separate_group(room: Room) -> None:
    async with await room.logged_in() as admin:
        here = links((await admin.get("/errors?queue=mail")).text, "/errors/discard")
        (link,) = [one for one in here if "place=at+&" in one]
        question = await admin.get(link)
        assert "Discard 1 job?" in words(question.text)
        await sent(admin, link, question)
        counts = {one.queue: one for one in await room.app.admin.queues.counts()}
        assert (counts["mail"].failed, counts["mail"].discarded) == (1, 1)


async def test_jobs_that_fail_after_the_question_are_not_changed(room: Room) -> None:
    async with await room.logged_in() as admin:
        (link,) = links((await admin.get("/errors?queue=money")).text, "/errors/requeue")
        question = await admin.get(link)
        late = an_error("ConnectionError", "pay", "refused later")
        job = await fail(await parts_of(room.app).storage(), late, queue="money", task="pay")
        await sent(admin, link, question)
        assert (await room.app.admin.jobs.get(job)).state is State.FAILED
        bare = {"token": form_token(question.text)}
        unsaid = await admin.post(link, data=bare, headers=BROWSER)
        assert unsaid.status_code == 400  # a form that does not say until when does nothing


async def test_the_range_of_the_page_applies_to_its_actions(room: Room) -> None:
    async with await room.logged_in() as admin:
        now = await room.app.admin.storage.now()
        assert (await room.app.admin.errors.groups(since=now - timedelta(hours=1))).groups
        (link,) = links((await admin.get("/errors?queue=money&range=1h")).text, "/errors/requeue")
        assert "range=1h" in link
        assert "in the last 1 h" in words((await admin.get(link)).text)


async def test_hostile_errors_are_shown_as_text(room: Room) -> None:
    storage = await parts_of(room.app).storage()
    for text in HOSTILE:
        await fail(storage, an_error(text[:100], "x", text), queue="mail", task="send")
    async with await room.logged_in() as admin:
        page = (await admin.get("/errors")).text
        assert MARK in page
        assert not re.search(r"<(img|svg/|script)[^>]*(onerror|onload|alert)", page)
        for link in links(page, "/errors/requeue")[:20]:
            assert (await admin.get(link)).status_code == 200


async def sent(client: httpx.AsyncClient, link: str, question: httpx.Response) -> httpx.Response:
    """The form of a question as a browser sends it."""
    hidden = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', question.text))
    return await client.post(link, data=hidden, headers=BROWSER)
