"""A screen that nobody sits at is locked in time, whatever its page does by itself; and a page that
was locked says so instead of trying for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import httpx
import pytest
from starlette.requests import Request

from tests.web.fixtures import BROWSER, TOKENS, Room, form_token, opened, use_storage
from windlass._web.security.authentication import (
    AuthenticatedPerson,
    BuiltinAuthentication,
    HostAuthentication,
)
from windlass._web.security.roles import Role
from windlass._web.security.sessions import IDLE_SECONDS, LIFETIME_SECONDS
from windlass.errors import StorageUnavailable

OPENED = {"sec-fetch-mode": "navigate", "sec-fetch-site": "none", "sec-fetch-dest": "document"}
FETCHED = {"sec-fetch-mode": "cors", "sec-fetch-site": "same-origin", "sec-fetch-dest": "empty"}
PART = {"hx-request": "true"}
ITSELF: list[tuple[str, str, dict[str, str]]] = [
    ("GET", "/queues", {**FETCHED, **PART}),
    ("GET", "/queues", PART),  # a browser that says nothing of how it came to it
    ("GET", "/queues/pause?queue=mail", {**FETCHED, **PART}),
    ("HEAD", "/live", FETCHED),
    ("HEAD", "/live", {}),
    ("GET", "/api/v1/counts", FETCHED),
    ("GET", "/api/v1/counts", {}),
    ("GET", "/assets/nothing.css", {**FETCHED, "sec-fetch-mode": "no-cors"}),
]


async def test_automatic_requests_of_a_page_do_not_prolong_a_session() -> None:
    async with opened() as room:
        for method, path, headers in ITSELF:
            async with await room.logged_in() as browser:
                for _ in range(3):
                    room.clock.now += IDLE_SECONDS / 3
                    answer = await browser.request(method, path, headers=headers)
                    assert answer.status_code in {200, 404}, (method, path)
                room.clock.now += 1
                answer = await browser.get("/queues", headers=OPENED)
                assert answer.status_code == 401, (method, path, headers)


async def test_clicks_of_a_person_prolong_the_session() -> None:
    async with opened() as room:
        for headers in (OPENED, {}):
            async with await room.logged_in() as browser:
                for _ in range(4):
                    room.clock.now += IDLE_SECONDS - 1
                    page = await browser.get("/queues/pause?queue=mail", headers=headers)
                    assert page.status_code == 200
                    room.clock.now += IDLE_SECONDS - 1
                    form = {"token": form_token(page.text)}
                    sent = await browser.post(
                        "/queues/pause?queue=mail", data=form, headers={**BROWSER, **FETCHED}
                    )
                    assert sent.status_code == 303


async def test_a_page_that_reloads_in_an_outage_does_not_prolong_a_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def away() -> object:
        message = "down"
        raise StorageUnavailable(message)

    async with opened() as room, await room.logged_in() as browser:
        use_storage(room.app, monkeypatch, away)
        for _ in range(3):
            room.clock.now += IDLE_SECONDS / 3
            assert (await browser.get("/queues", headers=OPENED)).status_code == 503
        room.clock.now += 1
        assert (await browser.get("/queues", headers=OPENED)).status_code == 401


async def test_a_signed_out_user_gets_a_message_and_returns_to_the_page() -> None:
    async with opened() as room, await room.logged_in() as browser, room.client() as stranger:
        room.clock.now += IDLE_SECONDS + 1
        page = (await browser.get("/queues?x=1", headers=OPENED)).text
        assert "You were logged out. Log in to return to the page." in page
        assert 'name="wanted" value="/queues?x=1"' in page
        assert "logged out" not in (await stranger.get("/queues")).text
        form = {"name": "the-admin", "password": TOKENS[Role.ADMIN], "wanted": "/queues?x=1"}
        back = await browser.post("/login", data=form, headers=BROWSER)
        assert back.headers["location"] == "/queues?x=1"


# --- streams --------------------------------------------------------------------------------------


async def _log_out(room: Room, browser: httpx.AsyncClient) -> None:
    form = {"token": form_token((await browser.get("/queues")).text)}
    assert (await browser.post("/logout", data=form, headers=BROWSER)).status_code == 303


async def _revoke(room: Room, browser: httpx.AsyncClient) -> None:
    assert room.door.sessions.revoke("the-admin") == 1


async def _go_away(room: Room, browser: httpx.AsyncClient) -> None:
    room.clock.now += IDLE_SECONDS + 1


async def _stay_all_day(room: Room, browser: httpx.AsyncClient) -> None:
    while room.clock.now < 1_000 + LIFETIME_SECONDS:
        room.clock.now += IDLE_SECONDS - 1
        await browser.get("/queues", headers=OPENED)


@pytest.mark.parametrize("leave", [_log_out, _revoke, _go_away, _stay_all_day])
async def test_a_stream_ends_soon_after_its_session_and_says_why(
    leave: Callable[[Room, httpx.AsyncClient], Awaitable[None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened() as room, await room.logged_in() as browser:
        looks = _looked_at(room.door, monkeypatch)
        stream = asyncio.create_task(browser.get("/live?parts=queues"))
        for _ in range(4):  # as long as somebody is there, it stays
            await looks.acquire()
        assert not stream.done()
        await leave(room, browser)
        async with asyncio.timeout(30):
            told = (await stream).text
        assert told.endswith("event: out\ndata: session\n\n")
        assert (await browser.head("/live")).status_code == 401


def _looked_at(
    door: BuiltinAuthentication | HostAuthentication, monkeypatch: pytest.MonkeyPatch
) -> asyncio.Semaphore:
    """Released by every look whether somebody is still let in, which is taken often."""
    looks = asyncio.Semaphore(0)
    find = door.find

    async def counted(request: Request) -> AuthenticatedPerson | None:
        looks.release()
        return await find(request)

    monkeypatch.setattr(door, "find", counted)
    monkeypatch.setattr(door, "look_again", 0.01)
    return looks


async def test_the_host_is_asked_again_too_while_a_stream_lasts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = ["viewer"]
    door = HostAuthentication(lambda _: known[0] if known else None)
    async with opened(door=door) as room, room.client() as browser:
        looks = _looked_at(door, monkeypatch)
        stream = asyncio.create_task(browser.get("/live?parts=queues"))
        for _ in range(2):
            await looks.acquire()
        known.clear()
        async with asyncio.timeout(30):
            assert "event: out" in (await stream).text


def test_a_session_that_is_over_is_noticed_within_seconds() -> None:
    assert BuiltinAuthentication.look_again <= 3
    assert HostAuthentication.look_again <= 30
