"""Few large pages are made at once; one more waits a little and is asked to come back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from starlette.responses import Response

from tests.web.fixtures import BROWSER, TOKENS, Room, form_token, opened, sample, stocked
from windlass._admin.jobs import bulk, jobs
from windlass._web.request import PageRequest
from windlass._web.routes import ROUTES
from windlass._web.security import concurrency, guard
from windlass._web.security.concurrency import ReadLimiter, TooManyOwnReads, TooManyReads
from windlass._web.security.roles import Role
from windlass.admin import (
    DoctorAdmin,
    ErrorAdmin,
    JobAdmin,
    OverviewAdmin,
    QueueAdmin,
    StatsAdmin,
    StorageAdmin,
)

LARGE: tuple[tuple[Any, str], ...] = (
    (jobs, "count_jobs"),
    (bulk, "count_jobs"),
    (JobAdmin, "search"),
    (StatsAdmin, "series"),
    (StatsAdmin, "activity"),
    (StatsAdmin, "hosts"),
    (StatsAdmin, "storage"),
    (StorageAdmin, "timeline"),
    (OverviewAdmin, "snapshot"),
    (ErrorAdmin, "groups"),
    (DoctorAdmin, "check"),
    (QueueAdmin, "counts"),
)
BEARER = {"authorization": f"Bearer {TOKENS[Role.ADMIN]}"}


@asynccontextmanager
async def taken(
    room: Room, monkeypatch: pytest.MonkeyPatch, *people: Role
) -> AsyncIterator[asyncio.Event]:
    """These have two pages each whose storage is slow, until the event is set."""
    go_on, begun = asyncio.Event(), asyncio.Semaphore(0)
    groups = room.app.admin.errors.groups

    async def slow(**asked: Any) -> object:
        begun.release()
        await go_on.wait()
        return await groups(**asked)

    monkeypatch.setattr(room.app.admin.errors, "groups", slow)
    monkeypatch.setattr(guard, "READ_TIMEOUT", 30.0)
    room.dashboard.places = ReadLimiter(waits=0.02)
    async with room.client() as program:
        asked = [
            asyncio.create_task(program.get(path, headers=_bearer(role)))
            for role in people
            for path in ("/errors", "/api/v1/errors")
        ]
        for _ in asked:
            await begun.acquire()
        yield go_on
        go_on.set()
        assert {answer.status_code for answer in await asyncio.gather(*asked)} == {200}


def _bearer(role: Role) -> dict[str, str]:
    return {"authorization": f"Bearer {TOKENS[role]}"}


async def test_one_person_takes_some_of_the_places_and_waits_for_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with (
        opened() as room,
        await room.logged_in(Role.VIEWER) as viewer,
        await room.logged_in() as admin,
        taken(room, monkeypatch, Role.VIEWER) as go_on,
    ):
        for path in ("/api/v1/jobs?text=x", "/api/v1/jobs/count?text=x"):
            told = await viewer.get(path)
            assert (told.status_code, told.json()["code"]) == (429, "too_many_reads")
            assert told.headers["retry-after"] == "2"
        page = await viewer.get("/jobs?text=x")
        assert page.status_code == 429
        assert "Too many of your pages" in page.text
        assert (await viewer.get("/workers")).status_code == 200
        assert (await admin.get("/jobs?text=x")).status_code == 200
        room.dashboard.places._waits = 30.0
        fifth = asyncio.create_task(viewer.get("/api/v1/jobs?text=x"))
        await asyncio.sleep(0)
        go_on.set()
        assert (await fifth).status_code == 200


@pytest.mark.parametrize(
    "path", ["/audit", "/workers", "/plugins", "/api/v1/storage", "/api/v1/me"]
)
async def test_of_small_pages_one_person_has_two_at_a_time_and_takes_none_of_others(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, begun = asyncio.Event(), asyncio.Semaphore(0)
    monkeypatch.setattr(guard, "READ_TIMEOUT", 30.0)
    line = next(line for line in ROUTES if line.path == path)

    async def slow(visit: PageRequest) -> Response:
        begun.release()
        await go_on.wait()
        return await line.page(visit)

    slowed = msgspec.structs.replace(line, page=slow)
    routes = [slowed if other is line else other for other in ROUTES]
    async with opened(routes=routes) as room, room.client() as program:
        room.dashboard.small_places = ReadLimiter(4, waits=0.02)
        viewer, admin = _bearer(Role.VIEWER), _bearer(Role.ADMIN)
        asked = [asyncio.create_task(program.get(path, headers=viewer)) for _ in range(2)]
        for _ in asked:
            await begun.acquire()
        assert (await program.get(path, headers=viewer)).status_code == 429
        assert (await program.get("/queues", headers=viewer)).status_code == 200
        asked.append(asyncio.create_task(program.get(path, headers=admin)))
        await begun.acquire()
        go_on.set()
        assert {answer.status_code for answer in await asyncio.gather(*asked)} == {200}


async def test_the_line_of_one_person_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "OWN_LINE", 1)
    room = ReadLimiter(4, each=1, waits=30)
    async with room.one("ada"):
        waiting = asyncio.create_task(_seen(room, "ada"))
        await asyncio.sleep(0)
        with pytest.raises(TooManyOwnReads):
            await _seen(room, "ada")
        await _seen(room, "eve")
    await waiting
    assert not room._own


async def test_a_fifth_large_page_must_wait_and_small_pages_and_actions_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with opened() as room, await room.logged_in() as admin:
        await stocked(room)
        token = form_token((await admin.get("/queues")).text)
        async with taken(room, monkeypatch, Role.VIEWER, Role.OPERATOR) as go_on:
            page = await admin.get("/overview")
            assert page.status_code == 503
            assert page.headers["retry-after"] == "2"
            assert 'http-equiv="refresh" content="2"' in page.text
            assert "loads again in a moment" in page.text
            part = await admin.get("/overview", headers={"hx-request": "true"})
            assert part.status_code == 503
            assert part.headers["retry-after"] == "2"
            assert part.headers["content-type"] == "application/problem+json"
            told = await admin.get("/api/v1/series")
            assert (told.status_code, told.json()["code"]) == (503, "busy")
            for small in ("/audit", "/workers", "/api/v1/me", "/queues/pause?queue=mail"):
                assert (await admin.get(small)).status_code == 200
            for order in ("/queues/pause?queue=mail", "/jobs/cancel?scope=all&queue=money"):
                sent = {"token": token, "upto": "9" * 9}
                assert (await admin.post(order, data=sent, headers=BROWSER)).status_code == 303
            go_on.set()
        assert (await admin.get("/overview")).status_code == 200


async def test_checks_that_take_long_take_no_place_of_a_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slow(**_: Any) -> object:
        begun.set()
        await go_on.wait()
        return []

    async with opened() as room, room.client() as program:
        monkeypatch.setattr(room.app.admin.doctor, "check", slow)
        room.dashboard.places = ReadLimiter(1, waits=0.02)
        room.dashboard.check_places = ReadLimiter(1, waits=0.02)
        first = asyncio.create_task(program.post("/api/v1/doctor", headers=BEARER))
        await begun.wait()
        second = await program.post("/api/v1/doctor", headers=BEARER)
        assert (second.status_code, second.json()["code"]) == (503, "busy")
        assert (await program.get("/overview", headers=BEARER)).status_code == 200
        go_on.set()
        assert (await first).status_code == 200


async def test_waiting_requests_get_free_places_in_order() -> None:
    room = ReadLimiter(2, each=4, waits=30)
    order: list[int] = []
    go_on = [asyncio.Event() for _ in range(4)]

    async def look(n: int) -> None:
        async with room.one("ada"):
            order.append(n)
            await go_on[n].wait()

    tasks = []
    for n in range(4):
        tasks.append(asyncio.create_task(look(n)))
        await asyncio.sleep(0)
    assert order == [0, 1]
    go_on[1].set()
    await tasks[1]
    await asyncio.sleep(0)
    assert order == [0, 1, 2]
    tasks[3].cancel()  # who leaves the line takes no place with them
    for event in go_on:
        event.set()
    await asyncio.gather(*tasks, return_exceptions=True)
    async with room.one("ada"), room.one("ada"):
        pass


async def test_the_line_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(concurrency, "IN_LINE", 1)
    room = ReadLimiter(1, waits=30)
    async with room.one("ada"):
        waiting = asyncio.create_task(_seen(room, "eve"))
        await asyncio.sleep(0)
        with pytest.raises(TooManyReads):
            await _seen(room, "joe")
    await waiting


async def _seen(room: ReadLimiter, who: str) -> None:
    async with room.one(who):
        pass


async def test_a_page_that_takes_too_long_is_given_up_and_leaves_its_place(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened() as room, await room.logged_in() as admin:
        monkeypatch.setattr(guard, "READ_TIMEOUT", 0.02)
        with monkeypatch.context() as patch:
            patch.setattr(room.app.admin.queues, "counts", asyncio.Event().wait)
            for _ in range(6):
                page = await admin.get("/overview")
                assert page.status_code == 503
                assert page.headers["retry-after"] == "5"
                assert "did not answer in time" in page.text
        monkeypatch.setattr(guard, "READ_TIMEOUT", 30.0)
        assert (await admin.get("/overview")).status_code == 200
    assert "did not answer in time" in caplog.text


async def test_every_expensive_route_is_marked_in_the_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Asked of the pages themselves: one that begins to count is found here."""
    called: list[str] = []
    for part, name in LARGE:
        monkeypatch.setattr(part, name, _noting(name, getattr(part, name), called))
    async with opened() as room, room.client() as program:
        await stocked(room)
        found = set()
        for route in ROUTES:
            if route.answers == "stream":
                continue
            for method in route.methods:
                called.clear()
                more = "&text=x" if route.path == "/jobs" else ""
                await program.request(method, sample(route) + more, headers=BEARER)
                # What somebody orders is never kept waiting by what others look at.
                if called and (method == "GET" or "GET" not in route.methods):
                    assert method in route.heavy, (method, route.path, called)
                    found.update(called)
        assert found == {name for _, name in LARGE}


def _noting(name: str, method: Any, called: list[str]) -> Any:
    def noting(*given: Any, **asked: Any) -> Any:
        called.append(name)
        return method(*given, **asked)

    return noting
