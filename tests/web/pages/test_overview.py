"""The overview: what it says of a store in this or that state."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from html import unescape

import httpx

from tests.admin.fixtures import BOOM
from tests.web.fixtures import Room, opened
from tests.web.pages.test_pages import words
from windlass import Windlass
from windlass._app.parts import parts_of
from windlass._core.stats.rollup import minute_of
from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.workers import WorkerStart
from windlass._web.pages.overview.overview import read_live_minutes, read_live_state
from windlass.testing.conformance.steps import a_job, claim, enlist, happened, started, succeeded


async def storage_of(room: Room) -> Storage:
    return await parts_of(room.app).storage()


def charts(page: httpx.Response) -> list[dict[str, object]]:
    return [json.loads(unescape(told)) for told in re.findall(r'data-chart="([^"]*)"', page.text)]


async def busy(storage: Storage) -> None:
    """Three jobs succeeded, one failed for good, one runs, two are ready, one is due later."""
    for _ in range(3):
        await succeeded(storage, await started(storage))
    await happened(storage, await started(storage, a_job(task="shop.pay")), BOOM)
    await started(storage)
    await storage.jobs.insert([a_job(), a_job(), a_job(delay=timedelta(hours=1))])


async def test_a_store_where_nothing_has_happened_teaches_how_to_begin() -> None:
    async with opened(lambda: Windlass("memory://")) as room, await room.logged_in() as admin:
        page = words((await admin.get("/overview")).text)
        assert "No jobs yet" in page
        assert "windlass worker" in page


async def test_everything_is_understood_from_the_figures() -> None:
    async with opened() as room, await room.logged_in() as admin:
        await busy(await storage_of(room))
        page = words((await admin.get("/overview")).text)
        assert "1 job failed for good in the last hour." in page
        assert "Ready to run 2 oldest for" in page
        assert "Busy slots 1 of 10 9 free, 1 worker" in page
        assert "Scheduled 1" in page
        assert "Finished 4 0.1 per minute" in page
        assert "Failed for good 1 25 % of finished jobs" in page
        assert re.search(r"Wait time (< )?\S+ \w+ p95 median", page)
        assert "ValueError: boom" in page
        assert "shop.pay" in page


async def test_recent_failures_are_those_that_failed_last() -> None:
    async with opened() as room, await room.logged_in() as admin:
        storage = await storage_of(room)
        running = [await started(storage, a_job(task=f"shop.task{n}")) for n in range(10)]
        for job in reversed(running):
            await happened(storage, job, BOOM)
        page = (await admin.get("/overview")).text
        shown = re.findall(r'<tr id="failure-(\w+)"', page)
        assert shown == [job.claim.job for job in running[:8]]


async def test_charts_show_what_happened_by_outcome_and_its_percentiles() -> None:
    async with opened() as room, await room.logged_in() as admin:
        await busy(await storage_of(room))
        outcomes, wait, run = charts(await admin.get("/overview?range=15m"))
        assert outcomes["stack"] is True
        sums = {one["label"]: sum(one["values"]) for one in outcomes["series"]}  # type: ignore[attr-defined]
        assert (sums["Succeeded"], sums["Failed"], sums["Retried"]) == (3, 1, 0)
        assert len(outcomes["times"]) in {15, 16}  # type: ignore[arg-type]
        for chart in (wait, run):
            assert [one["label"] for one in chart["series"]] == ["p99", "p95", "p50"]  # type: ignore[attr-defined]


async def test_the_range_is_in_the_address_and_an_unknown_one_is_the_default() -> None:
    async with opened() as room, await room.logged_in() as admin:
        await busy(await storage_of(room))
        page = await admin.get("/overview?range=7d")
        assert 'range=7d" aria-current="true">7 days' in page.text
        assert "In the last 7 days" in page.text
        assert "In the last hour" in (await admin.get("/overview?range=<b>")).text


async def test_charts_of_days_are_fetched_once_a_minute_and_the_rest_without_them() -> None:
    async with opened() as room, await room.logged_in() as admin:
        await busy(await storage_of(room))
        page = await admin.get("/overview?range=24h")
        assert 'data-part="minutes"' in page.text
        assert len(charts(page)) == 3
        quick = await admin.get("/overview?range=24h&part=now", headers={"hx-request": "true"})
        assert charts(quick) == []
        assert "Busy slots" in quick.text
        short = await admin.get("/overview?range=1h&part=now")
        assert 'data-part="minutes"' not in short.text


async def test_problems_that_need_attention_come_first() -> None:
    async with opened() as room, await room.logged_in() as admin:
        storage = await storage_of(room)
        await storage.jobs.insert([a_job(queue="mail")])
        page = words((await admin.get("/overview")).text)
        assert "Jobs are ready, but no worker is live." in page
        await enlist(storage)
        await room.app.admin.queues.pause("mail")
        page = words((await admin.get("/overview")).text)
        assert "no worker is live" not in page
        assert "Queue mail is paused and has ready jobs." in page
        await room.app.admin.queues.resume("mail")
        await claim(storage, queue="mail")
        assert "none failed in the last hour" in words((await admin.get("/overview")).text)


async def test_workers_that_rest_have_no_free_slots_and_it_is_said_when_all_of_them_do() -> None:
    async with opened() as room, await room.logged_in() as admin:
        storage = await storage_of(room)
        await enlist(storage, "w1", "w2")
        seen = await read_live_state(room.app.admin)
        await room.app.admin.workers.quiet("w1")
        assert await read_live_state(room.app.admin) != seen
        page = words((await admin.get("/overview")).text)
        assert "0 of 20 10 free, 2 workers, 1 paused or stopping" in page
        assert "0 of 20 10 free" in words((await admin.get("/workers")).text)
        await room.app.admin.workers.stop("w2")
        assert "Every worker is paused or stopping" in words((await admin.get("/overview")).text)
        await storage.jobs.insert([a_job()])
        page = words((await admin.get("/overview")).text)
        assert "Jobs are ready, but every worker is paused or stopping." in page


async def test_workers_that_are_not_heard_of_have_no_slots() -> None:
    async with opened() as room, await room.logged_in() as admin:
        storage = await storage_of(room)
        lease = timedelta(0)
        start = WorkerStart(
            id="w9", host="h", pid=1, version="0", queues=["mail"], slots=4, lease=lease
        )
        await storage.workers.register(start)
        await storage.jobs.insert([a_job()])
        assert "0 of 0 0 free, 0 workers" in words((await admin.get("/overview")).text)


async def test_a_count_that_was_not_taken_to_its_end_has_a_plus() -> None:
    async with opened() as room, await room.logged_in() as admin:
        storage = await storage_of(room)
        for _ in range(10):
            await storage.jobs.insert([a_job() for _ in range(1_001)])
        page = words((await admin.get("/overview")).text)
        assert "Ready to run 10k+" in page
        assert 'title="10,000 or more"' in (await admin.get("/overview")).text


async def test_the_look_changes_with_what_is_shown() -> None:
    async with opened() as room:
        admin, storage = room.app.admin, await storage_of(room)
        before = await read_live_state(admin)
        assert await read_live_state(admin) == before
        job = await started(storage)
        running = await read_live_state(admin)
        assert running != before
        await succeeded(storage, job)
        assert await read_live_state(admin) != running
        earliest = minute_of(await admin.storage.now())
        minute = await read_live_minutes(admin)
        assert minute in {earliest, minute_of(await admin.storage.now())}
