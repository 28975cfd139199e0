"""The page of one job: what became of it, why, and what it carries."""

from __future__ import annotations

import asyncio
import logging
import re
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import httpx
import msgspec
import pytest

from tests.web.fixtures import BROWSER, Room, form_fields, opened, shop
from tests.web.page_shape import shape
from tests.web.pages.test_pages import words
from tests.web.security.hostile_texts import HOSTILE, MARK
from windlass._app.parts import parts_of
from windlass._core.job.job import (
    Attempt,
    AttemptError,
    Claim,
    ClaimedJob,
    JobId,
    JobRecord,
    Progress,
)
from windlass._core.job.outcome import GaveUp, Raised
from windlass._core.job.state import State, Verb
from windlass._core.job.transition import retry, succeed
from windlass._core.values.metadata import Metadata
from windlass._storage.protocol.journal import LogChunk, LogLine
from windlass._storage.protocol.storage import Storage
from windlass._web.pages.jobs.job_page import format_json, log_runs, read_live_item
from windlass._web.pages.jobs.timeline import timeline_of
from windlass._web.security.roles import Role
from windlass.testing.conformance.steps import (
    OOPS,
    a_job,
    add,
    claim_one,
    ended,
    failed,
    happened,
    limited,
    started,
    succeeded,
)

NOW = datetime(2030, 1, 1, 12, tzinfo=UTC)
FAULT = AttemptError(
    "shop.BankError",
    "no money",
    'Traceback\n  File "/srv/shop/pay.py", line 3, in pay\n    raise BankError\n',
)


async def storage_of(room: Room) -> Storage:
    return await parts_of(room.app).storage()


def at(minutes: float) -> datetime:
    return NOW + timedelta(minutes=minutes)


async def logged(storage: Storage, claim: Claim, number: int, *texts: str) -> None:
    lines = [LogLine(NOW, logging.WARNING, text) for text in texts]
    await storage.journal.append_logs([LogChunk(claim, number, lines)])


async def test_a_shortened_id_leads_to_its_job_and_of_several_to_a_choice() -> None:
    one, two = JobId("0192f3a1" + "1" * 18 + "9c4e07"), JobId("0192f3a1" + "2" * 18 + "9c4e07")
    async with opened() as room, await room.logged_in() as admin:
        await add(await storage_of(room), a_job(id=one))
        for name in ("0192f3a1…9c4e07", "0192f3a1...9c4e07", "0192f3a19c4e07", "119c4e07"):
            led = await admin.get(f"/jobs/{name}")
            assert (led.status_code, led.headers["location"]) == (303, f"/jobs/{one}"), name
            told = await admin.get(f"/api/v1/jobs/{name}")
            assert told.json()["id"] == one
        searched = await admin.get("/jobs", params={"text": "0192f3a1…9c4e07"})
        assert searched.headers["location"] == f"/jobs/{one}"
        assert (await admin.get("/jobs/0192f3a1…9c4e07/arguments.json")).status_code == 200
        assert "0192f3a1…9c4e07" in (await admin.get("/jobs")).text
        await add(await storage_of(room), a_job(id=two))
        page = await admin.get("/jobs/0192f3a1…9c4e07", headers=BROWSER)
        assert page.status_code == 409
        for job in (one, two):
            assert f'href="/jobs/{job}"' in page.text
        told = await admin.get("/api/v1/jobs/0192f3a1…9c4e07/history")
        assert (told.status_code, told.json()["code"]) == (409, "ambiguous")
        assert sorted(told.json()["candidates"]) == [one, two]
        assert (await admin.get("/api/v1/jobs/0192f3a1…9c4e08")).status_code == 404


async def test_a_failed_job_is_shown_with_all_its_runs() -> None:
    async with opened() as room, await room.logged_in() as admin:
        storage = await storage_of(room)
        parent = await failed(storage)
        new = a_job(
            task="pay",
            payload=b'{"order":7,"password":"hunter22"}',
            tags=("vip", "secret:card"),
            tenant="acme",
            principal="ada",
            correlation_id="req-1",
            trace="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            parent=parent,
        )
        run = await started(storage, new)
        await logged(storage, run.claim, 1, "asked the bank", "it said hunter22")
        await happened(storage, run, GaveUp(FAULT))
        child = a_job(task="tell", parent=new.id)
        await storage.jobs.insert([child])
        answer = await admin.get(f"/jobs/{new.id}")
        page = words(answer.text)
        assert "It failed for good" in page
        assert "shop.BankError: no money" in page
        assert "raise BankError" in page
        same = "/jobs?state=failed&amp;error=shop.BankError&amp;frame=shop%2Fpay.py+pay"
        assert f'href="{same}"' in answer.text
        assert '"order": 7, "password": "***"' in page
        assert "hunter22" not in answer.text
        assert "warning asked the bank" in page
        assert f'href="/jobs/{parent}"' in answer.text
        assert f'id="job-{child.id}"' in answer.text
        assert "Trace id 0af7651916cd43dd8448eb211c80319c" in page
        assert 'href="/jobs?correlation_id=req-1"' in answer.text
        assert "secret:card" not in page
        assert "1 run ended in the last 24 hours" in page
        for verb in ("requeue", "discard", "copy", "delete"):
            assert f'href="/jobs/{verb}?job={new.id}&amp;from=job"' in answer.text


async def test_why_a_job_does_not_run_is_said() -> None:
    async with opened() as room, await room.logged_in() as admin:
        storage = await storage_of(room)
        await parts_of(
            room.app
        ).workers.dependencies()  # what a worker does first: it defines what tasks need
        new = limited("smtp:ada", queue="mail")
        await storage.jobs.insert([new])
        await room.app.admin.acting("grace").queues.pause("mail")
        page = words((await admin.get(f"/jobs/{new.id}")).text)
        assert "Why it is not running" in page
        assert "grace" in page
        assert "Resume it Resume queue" in page
        assert "smtp:ada" in page
        assert "Edit Cancel" in page


async def test_a_button_ends_what_holds_a_job_and_a_command_tells_who_may_not_press_it(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with opened(lambda: shop(url)) as room:
        storage = await storage_of(room)
        await storage.jobs.insert([new := a_job(queue="mail")])
        await room.app.admin.queues.pause("mail")
        await storage.jobs.insert([later := a_job(delay=timedelta(hours=1))])
        over = await failed(storage)
        buttons = {
            new.id: "/queues/resume?queue=mail",
            later.id: f"/jobs/run-now?job={later.id}&amp;from=job",
            over: f"/jobs/requeue?job={over}&amp;from=job",
        }
        async with await room.logged_in(Role.OPERATOR) as operator:
            for job, button in buttons.items():
                page = (await operator.get(f"/jobs/{job}")).text
                causes = page.partition('class="causes"')[2].partition("</section>")[0]
                assert f'href="{button}"' in causes
                assert not re.search("<code>windlass (queues|jobs)", causes)
                assert (await operator.get(button.replace("&amp;", "&"))).status_code == 200
        async with await room.logged_in(Role.VIEWER) as viewer:
            page = (await viewer.get(f"/jobs/{new.id}")).text
            assert "/queues/resume" not in page
            assert f"<code>windlass queues resume --url {url} mail</code>" in page
        parts_of(room.app).location.loaded_from("shop:app")
        del room.dashboard.__dict__["_target"]
        async with await room.logged_in(Role.VIEWER) as viewer:
            page = (await viewer.get(f"/jobs/{new.id}")).text
            assert "<code>windlass queues resume shop:app mail</code>" in page


async def test_a_parent_counts_its_children_by_state() -> None:
    async with opened() as room, await room.logged_in() as admin:
        storage = await storage_of(room)
        parent = await failed(storage)
        children = [a_job(queue="fan", parent=parent) for _ in range(3)]
        await storage.jobs.insert(children)
        await storage.jobs.cancel([children[0].id])
        page = await admin.get(f"/jobs/{parent}")
        assert "It enqueued 2 waiting 1 cancelled" in words(page.text)
        assert f'href="/jobs?parent={parent}&amp;state=waiting"' in page.text
        await storage.jobs.insert([a_job(queue="fan", parent=parent) for _ in range(20)])
        page = await admin.get(f"/jobs/{parent}")
        assert "It enqueued 22 waiting 1 cancelled" in words(page.text)


async def test_a_running_job_shows_how_far_it_is() -> None:
    async with opened() as room, await room.logged_in() as admin:
        storage = await storage_of(room)
        run = await started(storage)
        await storage.jobs.report([(run.claim, Progress(0.25, "page 3"))])
        page = words((await admin.get(f"/jobs/{run.claim.job}")).text)
        assert "25 % page 3" in page
        assert "running" in page
        assert "You need not do anything. To stop the job, cancel it Cancel" in page


@pytest.mark.parametrize(("ticked", "left"), [({"children": "1"}, 0), ({}, 1)])
async def test_a_job_is_cancelled_with_the_jobs_below_it_if_the_box_is_ticked(
    ticked: dict[str, str], left: int
) -> None:
    async with opened() as room, await room.logged_in() as admin:
        storage = await storage_of(room)
        (parent,) = await add(storage, a_job())
        (child,) = await add(storage, a_job(parent=parent))
        question = await admin.get("/jobs/cancel", params={"job": parent})
        assert "Also cancel the jobs that it has enqueued" in question.text
        fields = {**form_fields(question.text), **ticked}
        await admin.post("/jobs/cancel", params={"job": parent}, data=fields, headers=BROWSER)
        states = [(await room.app.admin.jobs.get(job)).state for job in (parent, child)]
        assert states == [State.CANCELLED, State.WAITING if left else State.CANCELLED]


async def test_a_copy_of_a_succeeded_job_is_a_new_one() -> None:
    async with opened() as room, await room.logged_in() as admin:
        storage = await storage_of(room)
        run = await started(storage, a_job(task="pay", payload=b'{"order":7}'))
        await succeeded(storage, run)
        answer = await room.order(admin, "/jobs/copy", {"job": run.claim.job})
        new = answer.headers["location"].removeprefix("/jobs/")
        assert new != run.claim.job
        copy = await room.app.admin.jobs.get(new)
        assert (copy.task, copy.payload, copy.state) == ("pay", b'{"order":7}', State.WAITING)
        (record,) = await room.app.admin.audit.list(limit=1)
        assert record.note.who == "dashboard:the-admin"


async def test_a_form_for_a_copy_that_is_sent_twice_makes_one() -> None:
    async with opened() as room, await room.logged_in() as admin:
        storage = await storage_of(room)
        run = await started(storage)
        await succeeded(storage, run)
        asked = {"job": run.claim.job}
        fields = form_fields((await admin.get("/jobs/copy", params=asked)).text)

        async def send() -> str:
            answer = await admin.post("/jobs/copy", params=asked, data=fields, headers=BROWSER)
            return answer.headers["location"]

        (first,) = {*await asyncio.gather(send(), send(), send())}
        await room.app.admin.jobs.cancel(first.removeprefix("/jobs/"))
        assert await send() == first  # "back", and once more
        another = await room.order(admin, "/jobs/copy", asked)
        assert another.headers["location"] != first
        assert len(await room.app.admin.audit.list(subject=f"job {run.claim.job}")) == 2


@pytest.mark.parametrize("unknown", [f"{1:032x}", "x", "%00", "0" * 33, "requeue%00"])
async def test_a_job_that_is_not_there_is_said_so(unknown: str) -> None:
    async with opened() as room, await room.logged_in() as admin:
        for path in (unknown, f"{unknown}/arguments.json", f"{unknown}/result.json"):
            answer = await admin.get(f"/jobs/{path}")
            assert answer.status_code == 404
        too_short = await admin.get("/jobs/102259")
        assert "0192f3a1…9c4e07, or its last eight digits" in words(too_short.text)


# --- what it carries ------------------------------------------------------------------------------


async def test_large_arguments_are_cut_and_can_be_had_whole_by_operators() -> None:
    async with opened() as room:
        storage = await storage_of(room)
        payload = b'{"text":"' + b"x" * 1_000_000 + b'","token":"tok_secret"}'
        run = await started(storage, a_job(payload=payload))
        job = run.claim.job
        result = b'"' + b"y" * 100_000 + b'"'
        await ended(storage, succeed(run, by="w1", result=result))
        async with await room.logged_in(Role.OPERATOR) as operator:
            page = await operator.get(f"/jobs/{job}")
            assert len(page.text) < 100_000
            assert "976.6 KiB, the beginning" in page.text
            assert f"/jobs/{job}/arguments.json" in page.text
            whole = await operator.get(f"/jobs/{job}/arguments.json")
            assert whole.headers["content-type"] == "application/json"
            named = f'attachment; filename="windlass-{job}-arguments.json"'
            assert whole.headers["content-disposition"] == named
            assert len(whole.json()["text"]) == 1_000_000
            assert whole.json()["token"] == "***"
            assert (await operator.get(f"/jobs/{job}/result.json")).content == result
        async with await room.logged_in(Role.VIEWER) as viewer:
            assert "arguments.json" not in (await viewer.get(f"/jobs/{job}")).text
            assert (await viewer.get(f"/jobs/{job}/arguments.json")).status_code == 403


def test_values_that_are_no_json_are_shown_as_they_are() -> None:
    assert format_json(b"\xffnot json").text.endswith("not json")
    assert format_json(b'{"a":[1]}').text == '{\n  "a": [\n    1\n  ]\n}'
    assert format_json(b"[" * 20_000).cut


def test_a_long_log_is_shown_from_its_end_newest_run_first() -> None:
    chunks = [
        LogChunk(
            Claim(JobId("x"), claim, 1), 1, [LogLine(NOW, 20, f"{claim}.{n}") for n in range(600)]
        )
        for claim in (1, 2)
    ]
    second, first = log_runs(chunks)
    assert (second.claim_number, first.claim_number) == (2, 1)
    assert (second.left_out, second.lines[0].text, second.lines[-1].text) == (100, "2.100", "2.599")


# --- the timeline ---------------------------------------------------------------------------------


def lived(state: State, **more: object) -> JobRecord:
    job = JobRecord(
        id=JobId("x"),
        seq=1,
        task="t",
        queue="q",
        payload=b"{}",
        state=state,
        priority=0,
        created_at=at(0),
        due=at(0),
        attempt=1,
        max_attempts=5,
        budget=5,
        claim_number=0,
    )
    return msgspec.structs.replace(job, **more)


def tried(number: int, start: float, end: float, verb: Verb = Verb.RETRY) -> Attempt:
    return Attempt(
        claim_number=number,
        attempt=number,
        verb=verb,
        worker="w1",
        started_at=at(start),
        ended_at=at(end),
        error=OOPS,
    )


def test_each_claim_has_its_wait_and_its_run() -> None:
    job = lived(State.SUCCEEDED, claim_number=2, attempt=2, started_at=at(8), finished_at=at(10))
    first, second = timeline_of(job, [tried(1, 2, 4)], at(60))
    assert (first.outcome, first.waited, first.ran) == ("retried", at(2) - NOW, at(2) - NOW)
    assert (second.outcome, second.waited, second.ran) == ("succeeded", at(4) - NOW, at(2) - NOW)
    assert (first.wait_bar.x, first.wait_bar.width) == (0, 200)
    assert first.run_bar is not None
    assert (first.run_bar.x, first.run_bar.width) == (200, 200)
    assert second.run_bar is not None
    assert (second.run_bar.x, second.run_bar.width) == (800, 200)


def test_a_current_run_ends_now_in_the_timeline() -> None:
    (running,) = timeline_of(lived(State.RUNNING, claim_number=1, started_at=at(1)), [], at(4))
    assert (running.outcome, running.waited, running.ran) == ("running", at(1) - NOW, at(3) - NOW)
    past, waiting = timeline_of(lived(State.WAITING), [tried(1, 1, 2)], at(8))
    assert (waiting.outcome, waiting.waited, waiting.ran) == ("waiting", at(6) - NOW, None)
    assert past.error == OOPS


def test_a_failure_is_shown_once_and_a_job_that_never_ran_has_no_run() -> None:
    job = lived(State.FAILED, claim_number=1, started_at=at(1), finished_at=at(2))
    (only,) = timeline_of(job, [tried(1, 1, 2, Verb.FAIL)], at(9))
    assert (only.outcome, only.tone) == ("failed", "bad")
    (never,) = timeline_of(lived(State.CANCELLED, finished_at=at(3)), [], at(9))
    assert (never.outcome, never.waited, never.run_bar) == ("cancelled", at(3) - NOW, None)


def test_a_short_run_in_a_long_life_is_still_seen() -> None:
    day = timedelta(days=1) / timedelta(minutes=1)
    job = lived(State.SUCCEEDED, claim_number=1, started_at=at(day), finished_at=at(day + 0.001))
    (one,) = timeline_of(job, [], at(2 * day))
    assert one.run_bar is not None
    assert one.run_bar.width >= 4
    assert one.run_bar.x + one.run_bar.width <= 1000


# --- live, and hostile ----------------------------------------------------------------------------


async def test_the_look_changes_with_progress_lines_and_state_and_forgets_a_deleted_job() -> None:
    async with opened() as room:
        storage, admin = await storage_of(room), room.app.admin
        run: ClaimedJob = await started(storage)
        job = run.claim.job
        seen = [await read_live_item(admin, job)]
        assert await read_live_item(admin, job) == seen[0]
        await storage.jobs.report([(run.claim, Progress(0.5))])
        seen.append(await read_live_item(admin, job))
        await logged(storage, run.claim, 1, "hello")
        seen.append(await read_live_item(admin, job))
        await succeeded(storage, run)
        seen.append(await read_live_item(admin, job))
        assert all(one != other for one, other in pairwise(seen))
        await admin.jobs.delete(job)
        assert await read_live_item(admin, job) is None


async def test_a_part_that_is_fetched_again_asks_for_no_kin() -> None:
    async with opened() as room, await room.logged_in() as admin:
        job = await failed(await storage_of(room))
        assert "This task" in (await admin.get(f"/jobs/{job}")).text
        part = (await admin.get(f"/jobs/{job}", headers={"hx-request": "true"})).text
        assert "This task" not in part
        assert f'id="live-job-{job}"' in part


async def pages_of(room: Room, admin: httpx.AsyncClient, text: str) -> list[str]:
    """The page of a job that carries it everywhere, while it runs and when it waits again."""
    storage = await storage_of(room)
    new = a_job(
        task="x",
        payload=msgspec.json.encode({text: text}),
        tags=(text[:60],),
        tenant=text[:100],
        principal=text[:100],
        correlation_id=text[:100],
        trace=text[:100],
    )
    run = await started(storage, new)
    await storage.jobs.report([(run.claim, Progress(0.1, text))])
    await logged(storage, run.claim, 1, text)
    running = (await admin.get(f"/jobs/{new.id}")).text
    await happened(storage, run, Raised(AttemptError(text, text, text)))
    return [running, (await admin.get(f"/jobs/{new.id}")).text]


async def test_hostile_texts_in_every_field_of_a_job_stay_text() -> None:
    async with opened() as room, await room.logged_in() as admin:
        usual = [shape(page) for page in await pages_of(room, admin, f"plain {MARK}")]
        for text in HOSTILE:
            for page, made_of in zip(await pages_of(room, admin, text), usual, strict=True):
                assert MARK in page
                assert shape(page) <= made_of, (text, shape(page) - made_of)


async def test_the_page_and_the_api_show_the_data_of_progress_without_its_secrets() -> None:
    async with opened() as room, await room.logged_in() as admin:
        storage = await storage_of(room)
        run: ClaimedJob = await started(storage)
        job, data = run.claim.job, {"rows": 12, "password": "p4nama-42", "text": "<b>" * 900}
        await storage.jobs.report([(run.claim, Progress(0.5, "half", data))])
        page = (await admin.get(f"/jobs/{job}")).text
        assert "&#34;rows&#34;:12" in page
        assert "p4nama" not in page
        assert "<b><b>" not in page
        told = (await admin.get(f"/api/v1/jobs/{job}")).json()
        assert told["progress"]["data"]["rows"] == 12
        assert told["progress"]["data"]["password"] == "***"


async def test_the_page_and_the_api_show_metadata_of_each_run_without_its_secrets() -> None:
    async with opened() as room, await room.logged_in() as admin:
        storage = await storage_of(room)
        run: ClaimedJob = await started(storage)
        facts: Metadata = {"rows": 12, "password": "p4nama-42", "text": "<b>bold</b>"}
        again = retry(run, by="w1", error=OOPS, delay=timedelta(0))
        await ended(storage, msgspec.structs.replace(again, metadata=facts))
        second = await claim_one(storage)
        success = succeed(second, by="w1", result=None)
        await ended(storage, msgspec.structs.replace(success, metadata={"rows": 24}))
        job = run.claim.job
        page = (await admin.get(f"/jobs/{job}")).text
        assert "Metadata" in words(page)
        assert "rows: 12" in words(page)
        assert "rows: 24" in words(page)
        assert "p4nama" not in page
        assert "<b>bold" not in page
        told = (await admin.get(f"/api/v1/jobs/{job}")).json()
        assert told["metadata"] == {"rows": 24}
        (past,) = (await admin.get(f"/api/v1/jobs/{job}/history")).json()
        assert past["metadata"] == {**facts, "password": "***"}
