"""However much is stored, an answer stays small, and its rest can be asked for."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Any

import httpx
import pytest

from tests.web.fixtures import READABLE, TOKENS, Room, opened, sample, stocked
from windlass._app.parts import parts_of
from windlass._core.job.job import AttemptError, ClaimedJob, JobId, LimitUse, NewJob
from windlass._core.job.transition import fail, retry, succeed
from windlass._core.limits.breaker import Breaker
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._core.schedule.rules import Every
from windlass._storage.protocol.jobs import Want
from windlass._storage.protocol.journal import LogChunk, LogLine
from windlass._storage.protocol.schedules import ScheduleWrite
from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.workers import WorkerStart
from windlass._web.api.endpoints import ENDPOINTS
from windlass._web.api.openapi import document
from windlass._web.security.cost_limits import ANSWER, PREVIEW, ROWS
from windlass._web.security.roles import Role

V1 = "/api/v1"
MIB = 1024 * 1024
MANY = 210
"""More than any page has rows."""


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    async with opened() as one:
        await stocked(one)
        yield one


def program(room: Room, role: Role = Role.VIEWER) -> httpx.AsyncClient:
    client = room.client()
    client.headers["authorization"] = f"Bearer {TOKENS[role]}"
    return client


async def running(storage: Storage, jobs: Sequence[NewJob]) -> Sequence[ClaimedJob]:
    """These, claimed, in their order."""
    await storage.workers.register(_worker("w-busy", slots=1000))
    await storage.jobs.insert(jobs)
    reply = await storage.jobs.claim("w-busy", [Want(jobs[0].queue, 1000)], total=1000)
    return sorted(reply.jobs, key=lambda job: job.claim.seq)


def _worker(name: str, slots: int = 1) -> WorkerStart:
    return WorkerStart(
        id=name,
        host="box",
        pid=7,
        version="0.1.0",
        queues=["mail"],
        slots=slots,
        lease=timedelta(minutes=5),
    )


def _job(n: int, payload: bytes = b"{}", queue: str = "long") -> NewJob:
    return NewJob(id=JobId(f"{n:032x}"), task="t", queue=queue, payload=payload)


# --- lists of jobs --------------------------------------------------------------------------------


async def test_payloads_are_shortened_in_lists_and_whole_at_the_address_of_the_job(
    room: Room,
) -> None:
    text = json.dumps({"text": "<" * 5000, "end": 1}).encode()
    jobs = await running(
        await parts_of(room.app).storage(), [_job(n, text) for n in range(1000, 1200)]
    )
    error = AttemptError("ValueError", "m" * 5000, "first\n" + "x" * 60_000 + "\nlast")
    await (await parts_of(room.app).storage()).jobs.apply(
        [
            fail(job, by="w-busy", error=error) if n % 2 else succeed(job, by="w-busy", result=text)
            for n, job in enumerate(jobs)
        ]
    )
    found: list[dict[str, Any]] = []
    async with program(room) as viewer:
        before = ""
        while True:
            page = await viewer.get(f"{V1}/jobs?queue=long&size=200{before}")
            assert len(page.content) <= ANSWER + 1000
            found += page.json()["jobs"]
            if page.json()["next"] is None:
                break
            before = f"&before={page.json()['next']}"
        assert [job["seq"] for job in found] == [job.claim.seq for job in reversed(jobs)]
        failed, succeeded = found[0], found[1]
        assert failed["shortened"] == ["arguments", "error"]
        assert succeeded["shortened"] == ["arguments", "result"]
        assert failed["arguments"] == text[:PREVIEW].decode() + "…"
        assert succeeded["result"] == text[:PREVIEW].decode() + "…"
        assert failed["error"]["message"] == "m" * PREVIEW + "…"
        assert failed["error"]["traceback"].endswith("\nlast")
        assert len(failed["error"]["traceback"]) == PREVIEW + 1
        whole = (await viewer.get(f"{V1}/jobs/{failed['id']}")).json()
        assert whole["arguments"] == json.loads(text)
        assert len(whole["error"]["traceback"]) > 60_000
        assert whole["shortened"] == []
    said = document()["components"]["schemas"]["JobBody"]["properties"]["shortened"]
    assert set(said["items"]["enum"]) == {"arguments", "result", "error"}


async def test_sixteen_megabytes_on_one_page_make_a_small_one(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even one that takes long: what is large is looked through for secrets once."""
    monkeypatch.setattr("windlass._web.security.guard.READ_TIMEOUT", 30.0)  # on a busy machine
    payload = json.dumps({"text": "lorem ipsum " * (MIB // 12)}).encode()
    storage = await parts_of(room.app).storage()
    await storage.jobs.insert([_job(n, payload) for n in range(1000, 1016)])
    async with program(room) as viewer:
        told = await viewer.get(f"{V1}/jobs?queue=long")
        assert len(told.json()["jobs"]) == 16
        shown = await viewer.get("/jobs?queue=long")
        assert shown.text.count('<tr id="job-') == 16
        for answer in (told, shown):
            assert len(answer.content) < 200_000


async def test_a_page_of_large_jobs_ends_early_and_the_next_continues_there(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass._web.jobs._WITHIN", -1.0)  # as if it had taken long
    storage = await parts_of(room.app).storage()
    large = json.dumps({"text": "x" * 40_000}).encode()
    await storage.jobs.insert([_job(n, large) for n in range(1000, 1040)])
    await storage.jobs.insert([_job(n, queue="short") for n in range(2000, 2040)])
    async with program(room) as viewer:
        assert len((await viewer.get(f"{V1}/jobs?queue=short")).json()["jobs"]) == 40
        first = (await viewer.get(f"{V1}/jobs?queue=long")).json()
        assert len(first["jobs"]) == 16
        seen = [job["id"] for job in first["jobs"]]
        while first["next"] is not None:
            first = (await viewer.get(f"{V1}/jobs?queue=long&before={first['next']}")).json()
            seen += [job["id"] for job in first["jobs"]]
        assert seen == [f"{n:032x}" for n in reversed(range(1000, 1040))]
        page = (await viewer.get("/jobs?queue=long")).text
        assert 'rel="next"' in page


async def test_a_job_that_was_tried_for_ever_has_a_page_and_answers_of_bounded_size(
    room: Room,
) -> None:
    storage = await parts_of(room.app).storage()
    (job,) = await running(storage, [_job(1000)])
    nasty = "<\x1b" * 30_000
    for number in range(1, 60):
        error = AttemptError("ValueError", nasty, nasty)
        await storage.jobs.apply([retry(job, by="w-busy", error=error, delay=timedelta(0))])
        reply = await storage.jobs.claim("w-busy", [Want("long", 1)], total=1)
        (job,) = reply.jobs
        lines = [LogLine(reply.at, 30, f"{number} {'<' * 1000}") for _ in range(60)]
        await storage.journal.append_logs([LogChunk(job.claim, 1, lines)])
    job_id = job.claim.job
    async with program(room) as viewer:
        page = await viewer.get(f"/jobs/{job_id}")
        assert page.status_code == 200
        assert len(page.content) < ANSWER
        assert "earlier runs have log lines, too" in page.text
        history = await viewer.get(f"{V1}/jobs/{job_id}/history")
        assert len(history.content) < ANSWER
        assert len(history.json()) == 32
        seen, after = [], ""
        while True:
            logs = await viewer.get(f"{V1}/jobs/{job_id}/logs{after}")
            assert len(logs.content) <= ANSWER + 1000
            if not logs.json():
                break
            seen += [chunk["claim"]["number"] for chunk in logs.json()]
            last = logs.json()[-1]
            after = f"?after_claim={last['claim']['number']}&after_number={last['number']}"
        assert seen == list(range(2, 61))


# --- other lists ----------------------------------------------------------------------------------

LISTS = {
    "counts": "queue",
    "queues": "queue",
    "limits": "spec.name",
    "breakers": "task",
    "schedules": "name",
    "workers": "start.id",
    "tasks": "",
    "activity": "name",
}


async def crowded(room: Room) -> None:
    """Many of everything, and all of it long."""
    storage = await parts_of(room.app).storage()
    await storage.limits.define(
        [
            spec
            for n in range(MANY)
            for spec in (
                LimitSpec(name=f"limit-{n:03}", rate=Rate(1000, 0.001, 1000), concurrency=1000),
                LimitSpec(name=f"breaker task-{n:03}", breaker=Breaker()),
            )
        ]
    )
    for n in range(MANY):
        await room.app.admin.queues.pause(f"queue-{n:03}-{'<' * 80}")
        await storage.workers.register(_worker(f"w-{n:03}"))
    call = room.app.tasks["send"].call("<" * 10_000)
    await room.app.admin.schedules.create("schedule-000", Every(3600), call)
    (row,) = [row for row in await storage.schedules.rows() if row.name == "schedule-000"]
    await storage.schedules.write(
        [
            ScheduleWrite(name=f"schedule-{n:03}", revision=0, body=row.body, next_at=row.next_at)
            for n in range(1, MANY)
        ]
    )
    jobs = await running(
        storage,
        [
            NewJob(
                id=JobId(f"{n:032x}"),
                task=f"task-{n:03}",
                queue="mail",
                limits=(LimitUse("limit-000", key=f"key-{n:03}"),),
            )
            for n in range(3000, 3000 + MANY)
        ],
    )
    frame = 'Traceback (most recent call last):\n  File "{n}.py", line 1, in f\n'
    errors = [
        AttemptError(f"Error{n}", "<" * 50_000, frame.replace("{n}", f"{n}"))
        for n in range(len(jobs))
    ]
    await storage.jobs.apply(
        [fail(job, by="w-busy", error=error) for job, error in zip(jobs, errors, strict=True)]
    )


def _named(line: Any, path: str) -> str:
    for step in filter(None, path.split(".")):
        line = line[step]
    return str(line)


async def test_no_list_is_long_and_every_line_is_reached(room: Room) -> None:
    await crowded(room)
    async with program(room) as viewer, await room.logged_in() as admin:
        for path, name in LISTS.items():
            seen: list[str] = []
            url = f"{V1}/{path}"
            while url:
                part = await viewer.get(url)
                assert part.status_code == 200, part.text
                assert len(part.json()) <= ROWS, path
                assert len(part.content) <= ANSWER + 1000, path
                seen += [_named(line, name) for line in part.json()]
                url = part.links["next"]["url"] if "next" in part.links else ""
            assert len(seen) >= MANY, path
            assert seen == sorted(set(seen)), path
            two = await viewer.get(f"{V1}/{path}?size=2&after={seen[3]}")
            assert [_named(line, name) for line in two.json()] == seen[4:6], path
        errors = (await viewer.get(f"{V1}/errors")).json()
        assert (len(errors["groups"]), errors["complete"]) == (ROWS, False)
        assert len((await viewer.get(f"{V1}/errors?size=3")).json()["groups"]) == 3
        for route in READABLE:
            if route.answers == "stream":
                continue
            answer = await admin.get(sample(route))
            refused = {409} if route.path == "/flows/retry" else set()  # the flow runs
            assert answer.status_code in {200, 303, *refused}, route.path
            assert len(answer.content) <= ANSWER, (route.path, len(answer.content))
        snapshot = (await viewer.get(f"{V1}/snapshot?page_size=100")).json()
        assert snapshot["failed"]["jobs"]
        assert len(snapshot["schedules"]) > 10
        await _in_parts(admin)


async def _in_parts(admin: httpx.AsyncClient) -> None:
    """Every row is on one of the pages, and these lead to each other."""
    names = {
        "/queues": "queue-{n:03}-",
        "/schedules": "schedule-{n:03}",
        "/limits": "limit-{n:03}",
        "/errors": "Error{n}",
        "/workers": "w-{n:03}",
    }
    for path, name in names.items():
        pages = [(await admin.get(f"{path}?page={page}")).text for page in (1, 2, 3)]
        for n in range(MANY):
            assert any(name.format(n=n) in page for page in pages), (path, n)
        assert f'href="{path}?page=2" rel="next"' in pages[0]
        assert f'href="{path}?page=3" rel="next"' in pages[1]
        assert f'href="{path}" rel="prev"' in pages[1]
        assert "1 to 100 of " in pages[0]
        beyond = await admin.get(f"{path}?page=999999999")
        assert beyond.text.count('rel="next"') == pages[2].count('rel="next"')
    for nonsense in ("0", "-1", "1e9", "x", "٣"):
        refused = await admin.get("/errors", params={"page": nonsense})
        assert refused.status_code == 400
        assert "number of a page" in refused.text
    assert "limit-000, key" in (await admin.get("/limits")).text
    assert "busiest of" in (await admin.get("/overview")).text


# --- what may be asked ----------------------------------------------------------------------------

SIZES = {"size", "limit", "most", "page_size"}
NONSENSE = ("1e9", "1000000000", "-1", "0", "many", "", " ", "1.5", "9" * 40, "null", "201", "٣")


async def test_how_many_rows_may_be_asked_for_is_bounded_everywhere_and_said(room: Room) -> None:
    asked = 0
    async with program(room) as viewer:
        for path, lines in document()["paths"].items():
            for parameter in lines.get("get", {}).get("parameters", []):
                if parameter["name"] not in SIZES:
                    continue
                asked += 1
                assert parameter["schema"]["maximum"] <= ROWS, path
                assert parameter["schema"]["minimum"] == 1, path
                for value in NONSENSE:
                    answer = await viewer.get(path, params={parameter["name"]: value})
                    assert answer.status_code == 422, (path, value)
                    assert answer.headers["content-type"] == "application/problem+json"
                    assert parameter["name"] in answer.json()["detail"], (path, value)
    assert asked >= 10
    assert f"at most {ROWS} rows" in document()["info"]["description"]


def test_every_list_can_be_read_in_parts() -> None:
    few = {"/plugins", "/jobs/{job}/history", "/jobs/{job}/logs"}
    """What is installed, what is kept of one job: bounded in other ways."""
    for line in ENDPOINTS:
        if line.method == "GET" and "Sequence" in str(line.told) and line.path not in few:
            assert SIZES & set(line.asked.__struct_fields__), line.path


async def test_a_cursor_however_deep_is_answered_at_once_and_nonsense_is_refused(
    room: Room,
) -> None:
    async with program(room) as viewer:
        for path in ("jobs", "audits"):
            for value in ("0", "1", str(2**53)):
                answer = await viewer.get(f"{V1}/{path}?before={value}")
                assert answer.status_code == 200, (path, value)
            for value in ("-1", str(2**53 + 1), "9" * 40, "x", "1e30", ""):
                answer = await viewer.get(f"{V1}/{path}?before={value}")
                assert answer.status_code == 422, (path, value)
                assert "before" in answer.json()["detail"]
        for path in LISTS:
            assert (await viewer.get(f"{V1}/{path}?after=~")).json() == []
            assert (await viewer.get(f"{V1}/{path}?offset=1000000000")).status_code == 422
