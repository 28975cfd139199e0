"""The dashboard for programs: what pages show and do, as JSON."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import pytest

from tests.web.fixtures import A_JOB, BROWSER, TOKENS, Room, opened, stocked, use_storage
from windlass._app.parts import parts_of
from windlass._core.job.job import JobId, NewJob
from windlass._storage.protocol.journal import EventRecord
from windlass._web.security.roles import Role
from windlass.errors import StorageUnavailable
from windlass.testing.conformance.steps import enlist

V1 = "/api/v1"
SEND: Any = {"task": "send", "queue": "mail"}
READ = (
    *("snapshot", "series", "activity?by=queue", "errors", "workers", "tasks", "audits", "storage"),
    *("tasks/stats", "events", "hosts/series", "storage/series"),
    *("plugins", "queues", "limits", "breakers", "schedules"),
)


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    async with opened() as one:
        await stocked(one)
        yield one


def program(room: Room, role: Role = Role.ADMIN) -> httpx.AsyncClient:
    """Somebody with a token and no cookies."""
    client = room.client()
    client.headers["authorization"] = f"Bearer {TOKENS[role]}"
    return client


def problem(answer: httpx.Response, code: int) -> dict[str, Any]:
    assert answer.status_code == code, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    told: dict[str, Any] = answer.json()
    assert told["status"] == code
    assert told["title"]
    assert told["detail"]
    return told


async def test_jobs_are_found_by_the_same_filters_as_on_the_page(room: Room) -> None:
    storage = await parts_of(room.app).storage()
    for n in range(5):
        await storage.jobs.insert(
            [NewJob(id=JobId(f"{100 + n:032x}"), task="send", queue="mail", tags=(f"t{n}",))]
        )
    async with program(room, Role.VIEWER) as viewer:
        found = (await viewer.get(f"{V1}/jobs?queue=mail&size=2")).json()
        assert [job["id"][-2:] for job in found["jobs"]] == ["68", "67"]
        rest = (await viewer.get(f"{V1}/jobs?queue=mail&before={found['next']}")).json()
        assert len(rest["jobs"]) == 3
        assert rest["next"] is None
        ready = (await viewer.get(f"{V1}/jobs?state=ready&state=failed&tag=t3")).json()
        assert [job["tags"] for job in ready["jobs"]] == [["t3"]]
        assert ready["jobs"][0]["arguments"] == {}
        count = (await viewer.get(f"{V1}/jobs/count?state=waiting&queue=mail")).json()
        assert count == {"number": 5, "exact": True}
        counts = (await viewer.get(f"{V1}/counts")).json()
        ready = {one["queue"]: one["ready"] for one in counts}
        assert (ready["mail"], ready["money"]) == (5, 1)


async def test_a_filter_with_a_slip_in_it_is_refused_and_does_not_match_everything(
    room: Room,
) -> None:
    async with program(room) as admin:
        for query in ("quue=mail", "size=0", "size=1001", "state=asleep", "created_from=today"):
            assert problem(await admin.get(f"{V1}/jobs?{query}"), 422)["code"] == "invalid"
        naive = await admin.get(f"{V1}/jobs?created_from=2030-01-01T00:00:00")
        problem(naive, 422)
        problem(await admin.get(f"{V1}/jobs?queue=a&queue=b"), 422)
        slip = {"order": "delete", "filter": {"quue": "mail"}}
        problem(await admin.post(f"{V1}/orders", json=slip), 422)
        everything: dict[str, Any] = {"order": "delete", "filter": {}}
        assert (
            "every job" in problem(await admin.post(f"{V1}/orders", json=everything), 422)["detail"]
        )
    assert (await room.app.admin.jobs.get(A_JOB)).id == A_JOB


async def test_one_job_is_returned_with_all_fields(room: Room) -> None:
    async with program(room, Role.VIEWER) as viewer:
        job = (await viewer.get(f"{V1}/jobs/{A_JOB}")).json()
        assert (job["task"], job["state"], job["shown"]) == ("pay", "waiting", "ready")
        assert (await viewer.get(f"{V1}/jobs/{A_JOB}/history")).json() == []
        assert (await viewer.get(f"{V1}/jobs/{A_JOB}/logs")).json() == []
        told = (await viewer.get(f"{V1}/jobs/{A_JOB}/explain")).json()
        assert told["job"] == A_JOB
        assert told["causes"][0]["sentence"]
        for unknown in ("0" * 32, "x", "0" * 31 + "G"):
            for rest in ("", "/history", "/logs", "/explain"):
                problem(await viewer.get(f"{V1}/jobs/{unknown}{rest}"), 404)


async def test_arguments_that_are_no_json_do_no_harm(room: Room) -> None:
    storage = await parts_of(room.app).storage()
    for n, payload in enumerate((b"{", b"\xff\xfe", b"[" * 4000, b'"\\ud800"')):
        await storage.jobs.insert(
            [NewJob(id=JobId(f"{200 + n:032x}"), task="odd", payload=payload)]
        )
    async with program(room) as admin:
        page = await admin.get(f"{V1}/jobs?task=odd")
        assert page.status_code == 200
        assert [job["unreadable"] for job in page.json()["jobs"]] == [True] * 4


async def test_a_job_is_cancelled_with_the_jobs_below_it(room: Room) -> None:
    storage = await parts_of(room.app).storage()
    child = NewJob(id=JobId(f"{300:032x}"), task="odd", parent=JobId(A_JOB))
    await storage.jobs.insert([child])
    async with program(room, Role.OPERATOR) as operator:
        answer = await operator.post(f"{V1}/jobs/{A_JOB}/cancel", json={"children": True})
        assert answer.json() == {"answer": "cancelled"}
        below = (await operator.get(f"{V1}/jobs/{child.id}")).json()
        assert below["state"] == "cancelled"
        problem(await operator.post(f"{V1}/jobs/{A_JOB}/cancel", json={"children": 1}), 422)


async def test_actions_on_one_job_change_it_and_are_recorded_under_the_name(room: Room) -> None:
    async with program(room, Role.OPERATOR) as operator:
        edited = await operator.post(f"{V1}/jobs/{A_JOB}/edit", json={"priority": 7})
        assert edited.json()["priority"] == 7
        assert (await operator.post(f"{V1}/jobs/{A_JOB}/run-now")).json()["shown"] == "ready"
        problem(await operator.post(f"{V1}/jobs/{A_JOB}/requeue"), 409)
        problem(await operator.post(f"{V1}/jobs/{A_JOB}/discard"), 409)
        cancelled = await operator.post(f"{V1}/jobs/{A_JOB}/cancel")
        assert cancelled.json() == {"answer": "cancelled"}
        problem(await operator.post(f"{V1}/jobs/{A_JOB}/run-now"), 409)
        again = await operator.post(f"{V1}/jobs/{A_JOB}/requeue", json={"as_new": True})
        assert again.json()["id"] != A_JOB
        asked = {"as_new": True, "key": "order 7"}
        keyed = [await operator.post(f"{V1}/jobs/{A_JOB}/requeue", json=asked) for _ in range(2)]
        (copy,) = {answer.json()["id"] for answer in keyed}
        assert copy not in (A_JOB, again.json()["id"])
        assert (await operator.post(f"{V1}/jobs/{A_JOB}/requeue")).json()["state"] == "waiting"
        assert (await operator.post(f"{V1}/jobs/{A_JOB}/delete")).json() == {"deleted": True}
        for verb in ("requeue", "discard", "cancel", "run-now", "delete"):
            problem(await operator.post(f"{V1}/jobs/{A_JOB}/{verb}"), 404)
        problem(await operator.post(f"{V1}/jobs/{A_JOB}/edit", json={}), 422)
        audits = (await operator.get(f"{V1}/audits")).json()
    done = [(one["note"]["who"], one["note"]["what"]) for one in audits]
    assert ("dashboard:the-operator", "jobs.cancel") in done
    assert ("dashboard:the-operator", "jobs.delete") in done


async def test_a_bulk_action_is_counted_first_and_then_done(room: Room) -> None:
    order = {"order": "cancel", "filter": {"queue": "money"}}
    async with program(room, Role.OPERATOR) as operator:
        dry = (await operator.post(f"{V1}/orders", json={**order, "dry_run": True})).json()
        assert (dry["matched"], dry["done"], dry["dry_run"]) == (1, 0, True)
        done = (await operator.post(f"{V1}/orders", json=order)).json()
        assert (done["matched"], done["done"]) == (1, 1)
        edit = {"order": "edit", "filter": {"queue": "money"}}
        problem(await operator.post(f"{V1}/orders", json=edit), 422)


async def test_a_task_is_enqueued_by_name_with_arguments_that_fit(room: Room) -> None:
    async with program(room, Role.OPERATOR) as operator:
        body = {"task": "pay", "arguments": {"order": 7}, "key": "order-7", "tags": ["by-hand"]}
        made = await operator.post(f"{V1}/enqueue", json=body)
        assert made.status_code == 201
        assert made.json()["created"]
        job = await room.app.admin.jobs.get(made.json()["id"])
        assert (job.payload, job.queue, job.key) == (b'{"order":7}', "money", "pay/order-7")
        met = (
            await operator.post(f"{V1}/enqueue", json={**body, "arguments": {"order": 8}})
        ).json()
        assert (met["id"], met["created"]) == (job.id, False)
        for arguments in ({}, {"order": "seven"}, {"order": 1, "more": 2}, {"self": 1}):
            wrong = {"task": "pay", "arguments": arguments}
            problem(await operator.post(f"{V1}/enqueue", json=wrong), 422)
        problem(await operator.post(f"{V1}/enqueue", json={"task": "pya"}), 404)
        known: dict[str, Any] = {"task": "pay", "arguments": {"order": 7}, "id": str(uuid.uuid4())}
        answers = [await operator.post(f"{V1}/enqueue", json=known) for _ in range(2)]
        assert {told.json()["id"] for told in answers} == {uuid.UUID(known["id"]).hex}
        other = {**known, "arguments": {"order": 99}}
        problem(await operator.post(f"{V1}/enqueue", json=other), 409)
        (record, *_) = await room.app.admin.audit.list(subject=f"job {job.id}")
        assert (record.note.who, record.note.what) == ("dashboard:the-operator", "jobs.enqueue")
    async with program(room, Role.VIEWER) as viewer:
        problem(await viewer.post(f"{V1}/enqueue", json=body), 403)


async def test_queues_limits_and_breakers_are_steered(room: Room) -> None:
    async with program(room) as admin:
        mail = {"queue": "mail"}
        assert (await admin.post(f"{V1}/queues/pause", json=mail)).json()["paused"]
        assert (await admin.get(f"{V1}/queues/one?queue=mail")).json()["paused"]
        assert not (await admin.post(f"{V1}/queues/resume", json=mail)).json()["paused"]
        changed = await admin.post(
            f"{V1}/queues/set", json={**mail, "max_running": 3, "keep_failed": "P2D"}
        )
        assert changed.json()["settings"] == {"max_running": 3, "keep_failed": "P2D"}
        problem(await admin.post(f"{V1}/queues/set", json=mail), 422)
        limit = {"limit": "smtp", "rate": {"n": 9, "per": "PT1S"}}
        assert (await admin.post(f"{V1}/limits/set", json=limit)).json()["rate"]["n"] == 9
        drained = await admin.post(f"{V1}/limits/drain", json={"limit": "smtp"})
        assert drained.json()[0]["spec"]["name"] == "smtp"
        assert (await admin.post(f"{V1}/limits/fill", json={"limit": "smtp"})).status_code == 200
        problem(await admin.post(f"{V1}/limits/fill", json={"limit": "smpt"}), 404)
        closed = await admin.post(f"{V1}/breakers/close", json={"task": "pay"})
        assert closed.json()[0]["state"] == "closed"
        set_to = await admin.post(f"{V1}/breakers/set", json={"task": "pay", "failures": 9})
        assert set_to.json()["failures"] == 9


async def test_workers_are_steered(room: Room) -> None:
    await enlist(await parts_of(room.app).storage(), "w7")
    worker = {"worker": "w7"}
    async with program(room) as admin:
        for order, duty in (("quiet", "quiet"), ("resume", "work"), ("stop", "stop")):
            told = (await admin.post(f"{V1}/workers/{order}", json=worker)).json()
            assert (told["start"]["id"], told["duty"]) == ("w7", duty)
        problem(await admin.post(f"{V1}/workers/resume", json=worker), 422)
        problem(await admin.post(f"{V1}/workers/quiet", json={"worker": "nobody"}), 422)


async def test_schedules_are_steered(room: Room) -> None:
    nightly = {"schedule": "nightly"}
    async with program(room) as admin:
        one = (await admin.get(f"{V1}/schedules/one?schedule=nightly")).json()
        assert one["arguments"] == {"to": "a@example.com"}
        assert one["rule"] == {"type": "cron", "expression": "0 3 * * *", "tz": "UTC"}
        assert (await admin.post(f"{V1}/schedules/pause", json=nightly)).json()["state"] == "paused"
        await admin.post(f"{V1}/schedules/resume", json=nightly)
        job = (await admin.post(f"{V1}/schedules/run", json=nightly)).json()["job"]
        assert (await room.app.admin.jobs.get(job)).task == "send"
        problem(await admin.post(f"{V1}/schedules/run", json=nightly), 409)
        every = {"type": "every", "period": "PT10M"}
        changed = await admin.post(f"{V1}/schedules/change", json={**nightly, "rule": every})
        assert changed.json()["rule"]["type"] == "every", changed.text
        ahead = await admin.post(f"{V1}/schedules/preview", json={"rule": every, "most": 3})
        assert len(ahead.json()) == 3
        wrong = {"type": "cron", "expression": "whenever"}
        problem(await admin.post(f"{V1}/schedules/preview", json={"rule": wrong}), 422)
        assert (await admin.post(f"{V1}/schedules/forget", json=nightly)).status_code == 200
        problem(await admin.post(f"{V1}/schedules/run", json=nightly), 404)


async def test_all_schedules_are_paused_and_resumed(room: Room) -> None:
    async with program(room) as admin:
        assert (await admin.get(f"{V1}/schedules/paused")).json() == {
            "paused": False,
            "since": None,
        }
        paused = (await admin.post(f"{V1}/schedules/pause-all")).json()
        assert paused["paused"]
        assert (await admin.get(f"{V1}/schedules/paused")).json() == paused
        resumed = (await admin.post(f"{V1}/schedules/resume-all")).json()
        assert resumed == {"paused": False, "since": None}


async def test_a_sweep_says_what_it_did(room: Room) -> None:
    storage = await parts_of(room.app).storage()
    await enlist(storage, "w7")
    await storage.workers.bury(["w7"])
    async with program(room) as admin:
        told = (await admin.post(f"{V1}/workers/sweep")).json()
    assert told == {"dead": [], "released": 0, "promoted": 0}


async def test_tasks_show_their_jobs_outcomes_and_last_error(room: Room) -> None:  # API-2
    storage = await parts_of(room.app).storage()
    await storage.jobs.insert([NewJob(id=JobId(f"{900:032x}"), task="send", queue="mail")])
    async with program(room, Role.VIEWER) as viewer:
        told = {one["task"]: one for one in (await viewer.get(f"{V1}/tasks/stats")).json()}
        assert told["send"]["waiting"] == 1
        assert {"running", "succeeded", "failed", "last_error"} <= told["send"].keys()
        (first,) = (await viewer.get(f"{V1}/tasks/stats?size=1&within=3600")).json()
        assert first["task"] == min(told)
        problem(await viewer.get(f"{V1}/tasks/stats?within=1"), 422)


async def test_hosts_and_the_storage_have_series(room: Room) -> None:  # METR-8, API-3
    storage = await parts_of(room.app).storage()
    async with program(room, Role.VIEWER) as viewer:
        assert (await viewer.get(f"{V1}/hosts/series")).json() == []
        assert (await viewer.get(f"{V1}/storage/series")).json()["latest"] is None
        readings = {"a": {"cpu": 0.5}, "b": {"cpu": 1.0}, "": {"size": 4096.0}}
        await storage.workers.beat("w1", readings=readings)
        first = await viewer.get(f"{V1}/hosts/series?size=1&step=300")
        (one,) = first.json()
        assert (one["source"], one["step"], one["latest"]["mean"]) == ("a", "PT300S", {"cpu": 0.5})
        rest = (await viewer.get(first.links["next"]["url"])).json()
        assert [host["source"] for host in rest] == ["b"]
        (only,) = (await viewer.get(f"{V1}/hosts/series?host=b")).json()
        assert only["whole"]["peak"] == {"cpu": 1.0}
        assert (await viewer.get(f"{V1}/hosts/series?host=c")).json() == []
        told = (await viewer.get(f"{V1}/storage/series?step=3600")).json()
        assert (told["source"], told["latest"]["mean"]) == ("", {"size": 4096.0})
        problem(await viewer.get(f"{V1}/storage/series?since=1970-01-01T00:00:00Z"), 422)
        problem(await viewer.get(f"{V1}/hosts/series?step=1"), 422)
        problem(await viewer.get(f"{V1}/storage/series?host=a"), 422)


async def test_the_event_log_is_filtered_and_paged_in_both_orders(room: Room) -> None:  # API-3
    storage = await parts_of(room.app).storage()
    jobs = [JobId(f"{910 + n:032x}") for n in range(4)]
    await storage.jobs.insert([NewJob(id=job, task="send") for job in jobs])
    now = await storage.now()
    await storage.journal.append_events(
        [EventRecord(at=now, kind="enqueued", job=job, worker="w1", **SEND) for job in jobs]
    )
    async with program(room, Role.VIEWER) as viewer:
        for order, expected in (("oldest", jobs), ("newest", jobs[::-1])):
            url: str | None = f"{V1}/events?order={order}&size=3&kind=enqueued&kind=failed"
            found: list[str] = []
            while url is not None:
                answer = await viewer.get(url)
                found += [event["job"] for event in answer.json()]
                url = answer.links.get("next", {}).get("url")
            assert found == expected
        for none in ("kind=failed", "task=pay", "queue=money", "worker=w2"):
            assert (await viewer.get(f"{V1}/events?{none}")).json() == []
        assert len((await viewer.get(f"{V1}/events?queue=mail&worker=w1&task=send")).json()) == 4
        problem(await viewer.get(f"{V1}/events?after=soon"), 422)
        problem(await viewer.get(f"{V1}/events?order=random"), 422)


async def test_the_event_log_is_read_oldest_first(room: Room) -> None:  # API-3
    storage = await parts_of(room.app).storage()
    first, second = JobId(f"{901:032x}"), JobId(f"{902:032x}")
    await storage.jobs.insert([NewJob(id=job, task="send") for job in (first, second)])
    now = await storage.now()
    await storage.journal.append_events(
        [
            EventRecord(at=now - timedelta(minutes=30), kind="enqueued", job=first, **SEND),
            EventRecord(at=now - timedelta(minutes=20), kind="enqueued", job=second, **SEND),
            EventRecord(at=now - timedelta(hours=2), kind="started", job=first, **SEND),
        ]
    )
    async with program(room, Role.VIEWER) as viewer:
        lately = (await viewer.get(f"{V1}/events")).json()
        assert [(one["kind"], one["job"]) for one in lately] == [
            ("enqueued", first),
            ("enqueued", second),
        ]
        since = (now - timedelta(hours=3)).isoformat()
        asked: dict[str, Any] = {"since": since, "job": first, "size": 1}
        (oldest,) = (await viewer.get(f"{V1}/events", params=asked)).json()
        assert oldest["kind"] == "started"
        problem(await viewer.get(f"{V1}/events?since=yesterday"), 422)
        problem(await viewer.get(f"{V1}/events", params={"job": "0198c3a7…9c4e07"}), 404)


async def test_a_viewer_may_read_everything(room: Room) -> None:
    async with program(room, Role.VIEWER) as viewer:
        for path in READ:
            answer = await viewer.get(f"{V1}/{path}")
            assert answer.status_code == 200, (path, answer.text)
        me = (await viewer.get(f"{V1}/me")).json()
        assert me == {"name": "the-viewer", "role": "viewer", "token": ""}
        problem(await viewer.post(f"{V1}/doctor"), 403)


async def test_a_browser_needs_the_token_of_its_session_for_actions(room: Room) -> None:
    async with await room.logged_in() as admin:
        body = {"queue": "mail"}
        problem(await admin.post(f"{V1}/queues/pause", json=body, headers=BROWSER), 403)
        token = (await admin.get(f"{V1}/me")).json()["token"]
        headers = {**BROWSER, "x-windlass-token": token}
        plain = {**headers, "content-type": "text/plain"}
        refused = await admin.post(f"{V1}/queues/pause", content=b'{"queue":"mail"}', headers=plain)
        problem(refused, 422)
        assert not (await room.app.admin.queues.get("mail")).paused
        done = await admin.post(f"{V1}/queues/pause", json=body, headers=headers)
        assert done.status_code == 200
    assert (await room.app.admin.queues.get("mail")).paused


async def test_anonymous_and_unknown_requests_get_a_problem_too(room: Room) -> None:
    async with room.client() as stranger:
        problem(await stranger.get(f"{V1}/jobs"), 401)
        problem(await stranger.get(f"{V1}/nothing"), 404)
        wrong = await stranger.post(f"{V1}/jobs")
        problem(wrong, 405)
        assert "GET" in wrong.headers["allow"]


async def test_an_unreachable_storage_is_reported_and_comes_back(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away() -> object:
        message = "postgres://u:secret@db is down"
        raise StorageUnavailable(message)

    async with program(room) as admin:
        with monkeypatch.context() as patch:
            use_storage(room.app, patch, away)
            for path in ("jobs", "snapshot", "counts", "series", f"jobs/{A_JOB}", "storage"):
                answer = await admin.get(f"{V1}/{path}")
                assert problem(answer, 503)["code"] == "storage_unavailable"
                assert answer.headers["retry-after"] == "5"
                assert "secret" not in answer.text
        assert (await admin.get(f"{V1}/jobs")).status_code == 200
