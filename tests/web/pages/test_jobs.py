"""The list of jobs: filters in the address, pages, and orders for some or all."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape

import httpx
import pytest

from tests.web.fixtures import BROWSER, Room, form_token, opened
from tests.web.page_shape import shape
from tests.web.pages.test_pages import words
from tests.web.security.hostile_texts import HOSTILE, MARK
from windlass._admin.jobs.jobs import JobAdmin
from windlass._app.parts import parts_of
from windlass._core.job.job import AttemptError, JobId
from windlass._core.job.outcome import GaveUp, Raised
from windlass._core.job.state import State
from windlass._storage.protocol.lists.job_list import JobFilter, Page
from windlass._storage.protocol.storage import Storage
from windlass._web.pages.jobs import job_list as jobs_page
from windlass._web.security.roles import Role
from windlass.testing.conformance.steps import (
    OOPS,
    a_job,
    failed,
    happened,
    keyed,
    look,
    started,
    succeeded,
)


async def storage_of(room: Room) -> Storage:
    return await parts_of(room.app).storage()


async def one_of_each(room: Room) -> dict[str, JobId]:
    """A job in every state that people see."""
    storage, admin = await storage_of(room), room.app.admin
    found = {state: await failed(storage) for state in ("failed", "cancelled", "discarded")}
    await admin.jobs.discard(found["discarded"])
    await admin.jobs.requeue(found["cancelled"])
    await admin.jobs.cancel(found["cancelled"])
    done = await started(storage)
    await succeeded(storage, done)
    again = await started(storage)
    await happened(storage, again, Raised(OOPS))
    running = await started(storage)
    ready, later = a_job(), a_job(delay=timedelta(hours=1))
    await storage.jobs.insert([ready, later])
    return {
        **found,
        "succeeded": done.claim.job,
        "retrying": again.claim.job,
        "running": running.claim.job,
        "ready": ready.id,
        "scheduled": later.id,
    }


def listed(page: httpx.Response) -> list[str]:
    assert page.status_code == 200, page.text
    return re.findall(r'<tr id="job-([0-9a-f]{32})"', page.text)


def link(page: httpx.Response, relation: str) -> str:
    """The address of the page that is ``next`` or ``prev``."""
    found = re.search(rf'href="([^"]+)" rel="{relation}"', page.text)
    assert found is not None, "there is no such page"
    return unescape(found[1])


async def test_each_state_has_a_tab_with_its_jobs_and_their_number() -> None:
    async with opened() as room, await room.logged_in() as admin:
        jobs = await one_of_each(room)
        assert set(listed(await admin.get("/jobs"))) == set(jobs.values())
        for state, job in jobs.items():
            page = await admin.get("/jobs", params={"state": state})
            assert listed(page) == [job], state
            assert f"{state.capitalize()} 1" in words(page.text)
            assert "All 8" in words(page.text)
        waiting = listed(await admin.get("/jobs?state=waiting"))
        assert set(waiting) == {jobs["ready"], jobs["scheduled"], jobs["retrying"]}


async def test_every_filter_of_the_address_narrows_the_list() -> None:
    async with opened() as room, await room.logged_in() as admin:
        storage = await storage_of(room)
        parent = await failed(storage)
        error = AttemptError("BankError", "no", 'File "/x/shop/pay.py", line 3, in pay\n')
        run = await started(storage, a_job(task="pay"))
        await happened(storage, run, GaveUp(error))
        new = keyed(
            "charge/order-7",
            queue="money",
            task="charge",
            tags=("vip",),
            tenant="acme",
            principal="ada",
            correlation_id="req-1",
            parent=parent,
            payload=b'{"to":"grace@example.com"}',
        )
        await storage.jobs.insert([new])
        for name, value in {
            "queue": "money",
            "task": "charge",
            "tag": "vip",
            "tenant": "acme",
            "principal": "ada",
            "key": "charge/order-7",
            "correlation_id": "req-1",
            "parent": parent,
            "text": "grace@",
        }.items():
            page = await admin.get("/jobs", params={name: value})
            assert listed(page) == [new.id], name
            assert f'name="{name}" type=' in page.text
            assert f'value="{value}"' in page.text, "the field says what it was asked"
            assert listed(await admin.get("/jobs", params={name: f"{value}x"})) == []
        for name, value in {"error": "BankError", "frame": "shop/pay.py pay"}.items():
            assert listed(await admin.get("/jobs", params={name: value})) == [run.claim.job]
        assert listed(await admin.get("/jobs?worker=w1&error=BankError")) == [run.claim.job]


async def test_times_are_instants_or_how_long_ago() -> None:
    async with opened() as room, await room.logged_in() as admin:
        job = await failed(await storage_of(room))
        assert listed(await admin.get("/jobs?created_from=1h&finished_from=5m")) == [job]
        assert listed(await admin.get("/jobs?created_until=1h")) == []
        assert listed(await admin.get("/jobs?created_from=2020-01-01T00:00")) == [job]
        assert listed(await admin.get("/jobs?finished_until=2020-01-01T00:00%2B01:00")) == []
        for wrong in ("yesterday", "99999999d", "999999d", "-1h"):
            answer = await admin.get("/jobs", params={"created_from": wrong})
            assert answer.status_code == 400, wrong
            assert "is not a time" in answer.text
        assert (await admin.get("/jobs?state=stuck")).status_code == 400


async def test_pages_are_walked_to_older_ones_and_back() -> None:
    async with opened() as room, await room.logged_in() as admin:
        storage = await storage_of(room)
        new = [a_job(queue="mail") for _ in range(120)]
        await storage.jobs.insert(new)
        ids = [job.id for job in reversed(new)]
        first = await admin.get("/jobs?queue=mail")
        second = await admin.get(link(first, "next"))
        third = await admin.get(link(second, "next"))
        assert [listed(page) for page in (first, second, third)] == [
            ids[:50],
            ids[50:100],
            ids[100:],
        ]
        assert "No older jobs" in third.text
        assert listed(await admin.get(link(third, "prev"))) == ids[50:100]
        assert listed(await admin.get(link(second, "prev"))) == ids[:50]
        assert 'rel="prev"' not in first.text
        assert "queue=mail" in link(third, "prev"), "filters stay"


async def test_headers_order_the_list_and_its_pages_follow() -> None:
    async with opened() as room, await room.logged_in() as admin:
        storage = await storage_of(room)
        new = [a_job(delay=timedelta(hours=1 + n * 7 % 60)) for n in range(60)]
        await storage.jobs.insert(new)
        by_due = [job.id for job in sorted(new, key=lambda job: job.delay or timedelta(0))]
        first = await admin.get("/jobs?state=scheduled")
        assert listed(first) == by_due[:50]
        assert 'aria-sort="ascending"' in first.text
        assert "next due first" in first.text
        second = await admin.get(link(first, "next"))
        assert listed(second) == by_due[50:]
        assert "No more" in second.text
        assert listed(await admin.get(link(second, "prev"))) == by_due[:50]
        last = await admin.get("/jobs?state=scheduled&order=-due")
        assert listed(last) == by_due[:9:-1]
        assert "order=-enqueued" in last.text
        for wrong in ("/jobs?order=-finished", "/jobs?order=size", "/jobs?state=failed&order=due"):
            assert (await admin.get(wrong)).status_code == 400, wrong


async def test_a_search_says_how_far_back_it_went() -> None:
    async with opened() as room, await room.logged_in() as admin:
        storage = await storage_of(room)
        old = a_job(payload=b'{"to":"grace"}')
        await storage.jobs.insert([old])
        for _ in range(8):
            await storage.jobs.insert([a_job() for _ in range(500)])
        page = await admin.get("/jobs?text=grace")
        for _ in range(20):
            if listed(page):
                break
            assert "Searched back to" in page.text
            page = await admin.get(link(page, "next"))
        assert listed(page) == [old.id]


async def test_an_empty_list_says_what_to_do() -> None:
    async with opened() as room, await room.logged_in() as admin:
        assert "No job yet" in (await admin.get("/jobs")).text
        await failed(await storage_of(room))
        page = await admin.get("/jobs?queue=nowhere")
        assert "No job matches" in page.text
        assert 'href="/jobs">Show all jobs' in page.text


# --- orders ---------------------------------------------------------------------------------------


async def ordered(
    room: Room, client: httpx.AsyncClient, verb: str, query: object, **form: str
) -> httpx.Response:
    """Ask for the question and answer it as its form does."""
    params = httpx.QueryParams(query)  # type: ignore[arg-type]
    question = await client.get(f"/jobs/{verb}", params=params)
    assert question.status_code == 200, question.text
    upto = re.search(r'name="upto" value="(\d+)"', question.text)
    sent = {"token": form_token(question.text), **({"upto": upto[1]} if upto else {}), **form}
    return await client.post(f"/jobs/{verb}", params=params, data=sent, headers=BROWSER)


async def test_actions_on_selected_jobs_are_done_and_recorded() -> None:
    async with opened() as room, await room.logged_in(Role.OPERATOR) as operator:
        storage = await storage_of(room)
        broken = [await failed(storage) for _ in range(3)]
        fine = a_job()
        await storage.jobs.insert([fine])
        ticked = {"job": [broken[0], broken[1], fine.id], "state": "failed"}
        question = await operator.get("/jobs/requeue", params=ticked)
        assert "Requeue 3 jobs?" in question.text
        answer = await ordered(room, operator, "requeue", ticked)
        assert answer.headers["location"] == "/jobs?state=failed"
        page = words((await operator.get("/jobs?state=failed")).text)
        assert "2 jobs requeued. 1 job not changed" in page
        states = [(await look(storage, job)).state for job in broken]
        assert states == [State.WAITING, State.WAITING, State.FAILED]
        notes = [one.note for one in await room.app.admin.audit.list(limit=2)]
        assert {note.subject for note in notes} == {f"job {job}" for job in broken[:2]}
        assert {note.who for note in notes} == {"dashboard:the-operator"}


async def test_a_slow_search_is_not_counted_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with opened() as room, await room.logged_in(Role.OPERATOR) as operator:
        storage = await storage_of(room)
        await storage.jobs.insert([a_job(tags=("rare",))])
        (job,) = await room.app.admin.jobs.find()
        in_time = Page([job], job.seq, job.created_at)

        async def found(*_: object, **__: object) -> Page:
            return in_time

        monkeypatch.setattr(jobs_page, "find_page", found)
        with monkeypatch.context() as patch:
            patch.delattr(JobAdmin, "count")
            page = words((await operator.get("/jobs?tag=rare")).text)
        assert "All that match" in page


async def test_all_matching_jobs_are_counted_confirmed_and_changed() -> None:
    async with opened() as room, await room.logged_in(Role.OPERATOR) as operator:
        storage = await storage_of(room)
        for _ in range(3):
            await failed(storage, queue="default", task="pay")
        other = await failed(storage, task="send")
        query = {"scope": "all", "state": "failed", "task": "pay"}
        question = words((await operator.get("/jobs/requeue", params=query)).text)
        assert "Requeue all 3 matching jobs?" in question
        assert "Jobs with state failed, task pay." in question
        answer = await ordered(room, operator, "requeue", query)
        assert answer.headers["location"] == "/jobs?state=failed&task=pay"
        assert "3 jobs requeued." in (await operator.get("/jobs")).text
        assert (await look(storage, other)).state is State.FAILED
        (record,) = await room.app.admin.audit.list(limit=1)
        assert (record.note.what, record.count) == ("jobs.requeue", 3)


async def test_jobs_that_were_not_counted_are_not_changed() -> None:
    async with opened() as room, await room.logged_in(Role.OPERATOR) as operator:
        storage = await storage_of(room)
        await failed(storage)
        question = await operator.get("/jobs/delete?scope=all&state=failed")
        upto = re.search(r'name="upto" value="(\d+)"', question.text)
        assert upto is not None
        late = await failed(storage)
        form = {"token": form_token(question.text), "upto": upto[1]}
        await operator.post("/jobs/delete?scope=all&state=failed", data=form, headers=BROWSER)
        left = await room.app.admin.jobs.find(JobFilter(states=[State.FAILED]))
        assert [job.id for job in left] == [late]
        forged = {"token": form_token(question.text)}
        await operator.post("/jobs/delete?scope=all&state=failed", data=forged, headers=BROWSER)
        assert "go back and choose again" in (await operator.get("/jobs")).text
        assert (await look(storage, late)).state is State.FAILED


async def test_no_action_applies_to_every_stored_job() -> None:
    async with opened() as room, await room.logged_in() as admin:
        job = await failed(await storage_of(room))
        assert 'value="all"' not in (await admin.get("/jobs")).text
        assert 'value="all"' in (await admin.get("/jobs?state=failed")).text
        question = await admin.get("/jobs/delete?scope=all")
        assert "another filter first" in question.text
        answer = await ordered(room, admin, "delete", {"scope": "all"})
        assert answer.status_code == 303
        assert (await room.app.admin.jobs.get(job)).id == job


async def test_an_action_without_jobs_asks_for_a_selection() -> None:
    async with opened() as room, await room.logged_in() as admin:
        answer = await admin.get("/jobs/cancel?queue=mail")
        assert answer.headers["location"] == "/jobs?queue=mail"
        assert "Select jobs first" in (await admin.get("/jobs")).text


@pytest.mark.parametrize(
    ("verb", "state", "told"),
    [
        ("requeue", "failed", "The job is requeued."),
        ("discard", "failed", "The job is discarded."),
        ("cancel", "ready", "The job is cancelled."),
        ("cancel", "running", "Its worker was asked to stop it"),
        ("run-now", "scheduled", "The job is due now."),
        ("delete", "succeeded", "The job is deleted."),
        ("delete", "running", "asked to stop. Delete it when it has ended"),
    ],
)
async def test_one_job_is_changed_from_its_own_page(verb: str, state: str, told: str) -> None:
    async with opened() as room, await room.logged_in() as admin:
        job = (await one_of_each(room))[state]
        answer = await ordered(room, admin, verb, {"job": job, "from": "job"})
        gone = verb == "delete"
        assert answer.headers["location"] == ("/jobs" if gone else f"/jobs/{job}")
        assert told in (await admin.get(answer.headers["location"])).text
        (record,) = await room.app.admin.audit.list(limit=1)
        assert (record.note.what, record.note.subject) == (f"jobs.{verb}", f"job {job}")


async def test_an_action_that_comes_too_late_says_so() -> None:
    async with opened() as room, await room.logged_in() as admin:
        job = (await one_of_each(room))["succeeded"]
        for verb in ("requeue", "discard", "cancel", "run-now"):
            answer = await ordered(room, admin, verb, {"job": job, "from": "job"})
            page = await admin.get(answer.headers["location"])
            assert 'class="notice bad"' in page.text
            assert "it is succeeded" in page.text, verb
        unknown = f"{1:032x}"
        assert (await admin.get(f"/jobs/requeue?job={unknown}")).status_code == 404


async def test_waiting_jobs_are_edited_one_or_many() -> None:
    async with opened() as room, await room.logged_in() as admin:
        storage = await storage_of(room)
        new = [a_job(queue="mail") for _ in range(2)]
        await storage.jobs.insert(new)
        one = {"job": new[0].id, "from": "job"}
        await ordered(
            room, admin, "edit", one, priority="-5", queue="urgent", due="2040-01-02T03:04"
        )
        job = await look(storage, new[0])
        assert (job.priority, job.queue) == (-5, "urgent")
        assert job.due.isoformat() == "2040-01-02T03:04:00+00:00"
        await ordered(room, admin, "edit", {"scope": "all", "queue": "mail"}, priority="7")
        assert (await look(storage, new[1])).priority == 7
        for form, wrong in [
            ({}, "nothing to change"),
            ({"priority": "high"}, "whole number"),
            ({"priority": "99999999"}, "16 bits"),
            ({"due": "soon"}, "not a time"),
        ]:
            answer = await ordered(room, admin, "edit", one, **form)
            assert wrong in unescape((await admin.get(answer.headers["location"])).text)


async def test_a_viewer_is_offered_no_action() -> None:
    async with opened() as room, await room.logged_in(Role.VIEWER) as viewer:
        await failed(await storage_of(room))
        page = (await viewer.get("/jobs?state=failed")).text
        assert 'name="job"' not in page
        assert "Requeue" not in page
        assert (await viewer.get("/jobs/requeue?scope=all&state=failed")).status_code == 403


async def with_text(room: Room, *texts: str) -> None:
    """Failed jobs that carry it wherever the list shows something."""
    storage = await storage_of(room)
    for text in texts:
        new = a_job(task=text[:100], tags=(text[:60],), payload=text.encode())
        run = await started(storage, new)
        await happened(storage, run, GaveUp(AttemptError(text, text, text)))


async def test_hostile_texts_of_jobs_and_of_the_address_stay_text() -> None:
    async with opened() as room, await room.logged_in() as admin:
        await with_text(room, "plain")
        usual = {
            path: shape((await admin.get(path)).text)
            for path in (
                "/jobs?state=failed&text=plain",
                "/overview",
                "/jobs?key=no/where",
                "/jobs?key=nowhere",
            )
        }
        made_of = set[tuple[str, str]]().union(*usual.values())
        for texts in (HOSTILE[:8], HOSTILE[8:16], HOSTILE[16:24], HOSTILE[24:32], HOSTILE[32:]):
            await with_text(room, *texts)
            pages = [(await admin.get(path)).text for path in ("/jobs?state=failed", "/overview")]
            for text in texts:
                asked = await admin.get("/jobs", params={"text": text, "queue": text, "key": text})
                pages.append(asked.text)
            for page in pages:
                assert MARK in page
                assert shape(page) <= made_of | {("a", "rel")}, shape(page) - made_of


async def test_a_key_without_its_task_is_refused_on_pages_and_by_the_api() -> None:
    async with opened() as room, await room.logged_in() as admin:
        assert (
            'name="key" type="text" value="" placeholder="task/key"'
            in (await admin.get("/jobs")).text
        )
        page = await admin.get("/jobs", params={"key": "42"})
        assert page.status_code == 400
        assert "TASK/KEY, such as send_digest/42" in words(page.text)
        told = await admin.get("/api/v1/jobs", params={"key": "42"})
        assert told.status_code == 422
        assert "TASK/KEY, such as send_digest/42" in told.text
