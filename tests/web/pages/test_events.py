"""Events: what happened to jobs."""

from __future__ import annotations

from datetime import timedelta

from tests.web.fixtures import A_JOB, Room, opened, stocked
from tests.web.page_text import links, words
from windlass._app.parts import parts_of
from windlass._storage.protocol.journal import EventRecord
from windlass._web.pages.events import read_live_state
from windlass._web.security.roles import Role


async def logged(room: Room, count: int = 1, kind: str = "started", **more: str) -> None:
    storage = await parts_of(room.app).storage()
    now = await storage.now()
    await storage.journal.append_events(
        [
            EventRecord(
                at=now - timedelta(seconds=count - n),
                kind=kind,
                job=A_JOB,
                task="pay",
                queue=more.get("queue", f"q{n}"),
                worker="w1",
                attempt=n + 1,
            )
            for n in range(count)
        ]
    )


async def test_events_are_shown_newest_first_and_filtered() -> None:  # API-3
    async with opened() as room, await room.logged_in(Role.VIEWER) as viewer:
        assert "event_log=True" in (await viewer.get("/events")).text
        await stocked(room)
        await logged(room, 2)
        await logged(room, kind="failed", queue="money")
        page = (await viewer.get("/events")).text
        read = words(page)
        assert read.index("failed") < read.index("q1") < read.index("q0")
        assert links(page, f"/jobs/{A_JOB}")
        failed = words((await viewer.get("/events?kind=failed&task=pay&worker=w1")).text)
        assert "money" in failed
        assert "q1 w1" not in failed
        assert "q1 w1 2" in words((await viewer.get(f"/events?job={A_JOB}&queue=q1")).text)
        assert "No event matches" in (await viewer.get("/events?queue=nothing")).text


async def test_older_events_follow_page_by_page() -> None:
    async with opened() as room, await room.logged_in(Role.VIEWER) as viewer:
        await stocked(room)
        await logged(room, 70)
        first = (await viewer.get("/events")).text
        assert "q69 " in words(first)
        assert "q19 " not in words(first)
        (older,) = links(first, "/events?after=")
        second = (await viewer.get(older)).text
        assert "q19 " in words(second)
        assert "q20 " not in words(second)
        assert "No older entries" in second
        assert links(second, "/events")
        assert (await viewer.get("/events?after=x")).status_code == 400
        assert (await viewer.get("/events?job=ffff…ffff")).status_code == 404


async def test_a_new_event_changes_the_live_part() -> None:
    async with opened() as room:
        await stocked(room)
        before = await read_live_state(room.app.admin)
        await logged(room)
        assert await read_live_state(room.app.admin) != before
