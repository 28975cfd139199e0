"""Storage: how it is, what was checked, and whose clock is off."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from tests.web.fixtures import BROWSER, Room, form_token, opened, shop
from tests.web.page_text import words
from tests.web.pages.test_hosts import charts
from windlass._admin.doctor.finding import Finding, bad, ok, warn
from windlass._admin.storage import StorageReport
from windlass._app.parts import parts_of
from windlass._storage.protocol.workers import WorkerStart
from windlass._storage.timings import Spread
from windlass._web.security.roles import Role


async def a_worker(room: Room, name: str, *, off: timedelta) -> None:
    storage = await parts_of(room.app).storage()
    await storage.workers.register(
        WorkerStart(
            id=name,
            host=f"host-{name}",
            pid=1,
            version="0.1.0",
            queues=["mail"],
            slots=1,
            lease=timedelta(seconds=30),
            clock=await storage.now() + off,
        )
    )


async def test_the_storage_says_what_it_is_in_units_people_read(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    async with opened(lambda: shop(url)) as room, await room.logged_in(Role.VIEWER) as viewer:
        page = words((await viewer.get("/storage")).text)
        assert "SQLite" in page
        assert "durability full" in page
        assert "iB" in page  # sizes
        assert "ok SQLite" in page  # judged at once
        assert "Run all checks" not in page  # a viewer only looks
        assert "No live worker" in page


async def test_no_answer_took_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened() as room, await room.logged_in(Role.VIEWER) as viewer:
        report = await room.app.admin.storage.report()
        short, none = timedelta(microseconds=90), timedelta(0)
        spread = Spread(
            count=9, failed=0, p50=short, p95=short, p99=timedelta(milliseconds=3), max=none
        )

        async def told() -> StorageReport:
            quick = {"answered_in": short, "timings": {"reads": spread}}
            return msgspec.structs.replace(report, **quick)

        monkeypatch.setattr(room.app.admin.storage, "report", told)
        page = words((await viewer.get("/storage")).text)
        assert "Answered in < 1 ms" in page
        assert "Median reads < 1 ms p95 < 1 ms, p99 3 ms, longest 0 ms" in page


async def test_clocks_that_are_off_are_marked() -> None:
    async with opened() as room, await room.logged_in() as admin:
        await a_worker(room, "well", off=timedelta(0))
        await a_worker(room, "ahead", off=timedelta(seconds=90))
        await a_worker(room, "behind", off=timedelta(seconds=-5))
        page = words((await admin.get("/storage")).text)
        assert "host-ahead ahead 1 m 30 s ahead" in page
        assert "behind 5 s behind" in page
        assert page.index("host-ahead") < page.index("host-behind") < page.index("host-well")


async def test_all_checks_run_on_request_and_give_advice() -> None:
    async with opened() as room, await room.logged_in(Role.OPERATOR) as operator:
        send = room.app.tasks.find("send")
        assert send is not None
        await send.enqueue("a@example.com")
        assert (await operator.get("/storage/checks")).headers["location"] == "/storage"
        token = form_token((await operator.get("/storage")).text)
        answer = await operator.post("/storage/checks", data={"token": token}, headers=BROWSER)
        page = words(answer.text)
        assert answer.status_code == 200
        assert "All checks" in page
        assert "on queue 'mail', which no live worker serves." in page
        assert "Start one" in page
        first, last = page.index(" problem "), page.rindex(" ok ")
        assert first < last  # the worst first


async def test_findings_are_counted_as_the_doctor_counts_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = [
        ok("a", "well"),
        warn("b", "late", "wait"),
        bad("c", "gone", "act"),
        bad("d", "x", "y"),
    ]

    async def doctor(*_: object, **__: object) -> list[Finding]:
        return found

    async with opened() as room, await room.logged_in(Role.OPERATOR) as operator:
        token = form_token((await operator.get("/storage")).text)
        monkeypatch.setattr(room.app.admin.doctor, "check", doctor)
        page = await operator.post("/storage/checks", data={"token": token}, headers=BROWSER)
    assert "All checks 1 ok, 1 warning, 2 problems" in words(page.text)


async def test_the_storage_over_time_is_drawn_as_far_as_it_was_measured() -> None:  # API-3
    async with opened() as room, await room.logged_in(Role.VIEWER) as viewer:
        assert "No measurement in this time" in (await viewer.get("/storage")).text
        await a_worker(room, "w1", off=timedelta(0))
        readings = {"": {"size": 4096.0, "jobs_ready": 3.0, "write_p95": 0.002}}
        storage = await parts_of(room.app).storage()
        await storage.workers.beat("w1", readings=readings)
        page = (await viewer.get("/storage?range=6h")).text
        size, jobs, answers = charts(page)
        assert (size["unit"], size["series"][0]["values"][-1]) == ("B", 4096.0)
        assert [line["label"] for line in jobs["series"]] == ["Ready"]
        assert (answers["unit"], answers["series"][0]["label"]) == ("s", "Write")
        assert "In the last 6 hours" in words(page)
        assert "Connections" not in page
