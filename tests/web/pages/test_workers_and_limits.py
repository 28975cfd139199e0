"""Workers one by one; limits and breakers with other numbers."""

from __future__ import annotations

from datetime import timedelta

from tests.web.fixtures import Room, opened, stocked
from tests.web.page_text import links, words
from windlass import Limit
from windlass._app.parts import parts_of
from windlass._core.job.job import LimitUse
from windlass._core.limits.breaker import Breaker
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._storage.protocol.workers import WorkerStart
from windlass._web.security.roles import Role
from windlass.testing.conformance.steps import a_job, claim, enlist

SMTP = {"limit": "smtp"}


async def test_a_worker_has_a_page_with_what_it_runs_and_could_run() -> None:
    async with opened() as room, await room.logged_in(Role.VIEWER) as viewer:
        storage = await parts_of(room.app).storage()
        await storage.jobs.insert([a_job(queue="mail", task="send") for _ in range(2)])
        await enlist(storage)
        first, _ = await claim(storage, 2, queue="mail")
        worker = (await room.app.admin.jobs.get(first.claim.job)).worker or ""
        page = (await viewer.get("/workers/one", params={"worker": worker})).text
        assert words(page).count("send") >= 2
        assert "Running jobs" in page
        assert links(page, f"/jobs?state=running&worker={worker}")
        assert links((await viewer.get("/workers")).text, "/workers/one?worker=")
        gone = await viewer.get("/workers/one?worker=<i>")
        assert gone.headers["location"] == "/workers"
        assert "Worker &lt;i&gt; is not stored" in (await viewer.get("/workers")).text


async def test_dead_and_silent_workers_say_why() -> None:
    async with opened() as room, await room.logged_in() as admin:
        await stocked(room)
        storage = await parts_of(room.app).storage()
        await storage.workers.leave("w1", [])
        page = words((await admin.get("/workers/one?worker=w1")).text)
        assert "Gone: it stopped." in page
        assert "Runs now" not in page


async def test_a_worker_is_quieted_resumed_and_stopped() -> None:
    async with opened() as room, await room.logged_in() as admin:
        await enlist(await parts_of(room.app).storage(), "w1")
        one = "/workers/one?worker=w1"
        listed = (await admin.get("/workers")).text
        assert links(listed, "/workers/quiet?worker=w1")
        assert not links(listed, "/workers/resume?worker=w1")
        await room.order(admin, "/workers/quiet", {"worker": "w1"})
        page = (await admin.get(one)).text
        assert "Quiet: it takes no new jobs" in words(page)
        assert not links(page, "/workers/quiet?")
        assert "1 paused or stopping" in words((await admin.get("/workers")).text)
        await room.order(admin, "/workers/resume", {"worker": "w1"})
        assert "Quiet:" not in words((await admin.get(one)).text)
        await room.order(admin, "/workers/stop", {"worker": "w1"})
        page = (await admin.get(one)).text
        assert "Stopping: it takes no new jobs and stops" in words(page)
        assert not links(page, "/workers/resume?")
        told = [audit.note.what for audit in await room.app.admin.audit.list()]
        assert told == ["workers.stop", "workers.resume", "workers.quiet"]


async def test_a_silent_worker_is_asked_for_what_it_was_not_asked_before() -> None:
    async with opened() as room, await room.logged_in() as admin:
        storage = await parts_of(room.app).storage()
        start = WorkerStart(
            id="w9", host="h", pid=1, version="0", queues=["mail"], slots=4, lease=timedelta(0)
        )
        await storage.workers.register(start)
        for order, offered in (("quiet", "quiet"), ("resume", "resume"), ("stop", "quiet")):
            page = (await admin.get("/workers")).text
            assert "silent" in words(page)
            assert links(page, f"/workers/{offered}?worker=w9")
            await room.order(admin, f"/workers/{order}", {"worker": "w9"})
        page = (await admin.get("/workers")).text
        assert not links(page, "/workers/stop?worker=w9")
        assert not links(page, "/workers/quiet?worker=w9")


async def test_an_impossible_worker_action_is_explained() -> None:
    async with opened() as room, await room.logged_in() as admin:
        storage = await parts_of(room.app).storage()
        await enlist(storage, "w1", "dead")
        await storage.workers.bury(["dead"])
        await room.order(admin, "/workers/stop", {"worker": "dead"})
        assert "Worker 'dead' is dead." in words((await admin.get("/workers")).text)
        async with await room.logged_in(Role.VIEWER) as viewer:
            assert "/workers/stop" not in (await viewer.get("/workers")).text
            assert (await viewer.get("/workers/stop?worker=w1")).status_code == 403


async def held(room: Room, limit: str) -> str:
    storage = await parts_of(room.app).storage()
    await storage.limits.define([LimitSpec(name="elsewhere", concurrency=3)])
    uses = (LimitUse(limit),)
    await storage.jobs.insert([a_job(queue="mail", task="send", limits=uses)])
    await enlist(storage)
    (job,) = await claim(storage, 1, queue="mail")
    return job.claim.job


async def test_a_limit_says_which_jobs_hold_it() -> None:
    async with opened() as room, await room.logged_in(Role.VIEWER) as viewer:
        await stocked(room)
        assert (
            "No running job counts against"
            in (await viewer.get("/limits/holders", params=SMTP)).text
        )
        other = await held(room, "elsewhere")
        job = await held(room, "smtp")
        page = (await viewer.get("/limits/holders", params=SMTP)).text
        assert links(page, f"/jobs/{job}")
        assert not links(page, f"/jobs/{other}")
        assert links((await viewer.get("/limits")).text, "/limits/holders?limit=smtp")
        assert (await viewer.get("/limits/holders?limit=smpt")).status_code == 404


async def test_a_limit_gets_other_numbers() -> None:
    async with opened() as room, await room.logged_in() as admin:
        await stocked(room)
        await room.order(admin, "/limits/set", SMTP, concurrency="", rate="100/1m:5")
        (report,) = await room.app.admin.limits.list()
        assert report.spec.concurrency is None
        assert report.spec.rate == Rate(100, timedelta(minutes=1), 5)
        assert (await room.app.admin.audit.list())[0].note.what == "limits.set"
        assert "100 per 1 m, bursts of 5" in words((await admin.get("/limits")).text)
        for fields, said in (
            ({"concurrency": "", "rate": ""}, "neither rate nor concurrency"),
            ({"concurrency": "x", "rate": ""}, "Concurrency must be a whole number"),
            ({"concurrency": "", "rate": "fast"}, "is no rate"),
        ):
            wrong = await room.order(admin, "/limits/set", SMTP, **fields)
            assert wrong.status_code == 422
            assert said in words(wrong.text)


async def test_a_breaker_gets_other_numbers() -> None:
    async with opened() as room, await room.logged_in() as admin:
        await stocked(room)
        task = {"task": "pay"}
        numbers = {"failures": "7", "cool_down": "10s", "growth": "1.5", "longest": "5m"}
        await room.order(admin, "/breakers/set", task, **numbers)
        (report,) = [one for one in await room.app.admin.breakers.list() if one.task == "pay"]
        assert report.breaker == Breaker(7, 10, 1.5, 300)
        page = words((await admin.get("/limits")).text)
        assert "pay open for 10 s, then × 1.5 each time, at most 5 m closed 0 of 7" in page
        wrong = await room.order(admin, "/breakers/set", task, growth="fast")
        assert "Growth must be a number" in words(wrong.text)
        wrong = await room.order(admin, "/breakers/set", task, longest="1s")
        assert wrong.status_code == 422


async def test_a_limit_with_keys_says_that_its_numbers_hold_for_each_of_them() -> None:
    async with opened() as room, await room.logged_in() as admin:
        limits = [Limit("api", key="{tenant}", concurrency=3), Limit("all", concurrency=4)]

        @room.app.task(name="call", queue="calls", limits=limits)
        async def call(tenant: str) -> None: ...

        await parts_of(room.app).workers.dependencies()
        await call.enqueue("acme")
        for page in ("/limits", "/queues/one?queue=calls"):
            told = words((await admin.get(page)).text)
            assert "api 3 at once, for each key" in told
            assert "all 4 at once, for each key" not in told
            assert "all 4 at once" in told
