"""Logging in, staying in, and being out again."""

from __future__ import annotations

import pytest

from tests.web.fixtures import BROWSER, TOKENS, Clock, form_token, opened
from windlass._web.security.roles import Person, Role
from windlass._web.security.sessions import IDLE_SECONDS, LIFETIME_SECONDS, MAX_SESSIONS, Sessions

LOGIN = {"name": "the-admin", "password": TOKENS[Role.ADMIN]}


def cookies(answer: object) -> list[str]:
    headers = getattr(answer, "headers")  # noqa: B009 -- httpx's
    return [value for name, value in headers.multi_items() if name == "set-cookie"]


async def test_an_anonymous_visitor_is_asked_to_log_in_at_the_same_address() -> None:
    async with opened() as room, room.client() as browser:
        page = await browser.get("/queues?x=1")
        assert page.status_code == 401
        assert 'name="password"' in page.text
        assert 'name="wanted" value="/queues?x=1"' in page.text
        answer = await browser.post(
            "/login", data={**LOGIN, "wanted": "/queues?x=1"}, headers=BROWSER
        )
        assert answer.status_code == 303
        assert answer.headers["location"] == "/queues?x=1"
        assert (await browser.get("/queues")).status_code == 200


@pytest.mark.parametrize(
    "wanted",
    [
        "//evil.test/x",
        "https://evil.test",
        "/\\evil.test",
        "\\\\evil.test",
        "javascript:alert(1)",
        "/\n//evil.test",
        "evil.test",
        "http:///evil.test",
        "//[",
        "",
    ],
)
async def test_log_in_leads_nowhere_else(wanted: str) -> None:
    async with opened() as room, room.client() as browser:
        answer = await browser.post("/login", data={**LOGIN, "wanted": wanted}, headers=BROWSER)
        assert answer.status_code == 303
        assert answer.headers["location"] == "/"


async def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites() -> None:
    async with opened() as room:
        async with room.client() as browser:
            (cookie,) = cookies(await browser.post("/login", data=LOGIN, headers=BROWSER))
        assert "httponly" in cookie.lower()
        assert "samesite=strict" in cookie.lower()
        assert "secure" not in cookie.lower()
        async with room.client(base="https://dashboard.test") as browser:
            secure = {**BROWSER, "origin": "https://dashboard.test"}
            (cookie,) = cookies(await browser.post("/login", data=LOGIN, headers=secure))
        assert cookie.startswith("__Host-")
        assert "; secure" in cookie.lower()
        assert "path=/" in cookie.lower()
        assert "domain" not in cookie.lower()


async def test_log_in_takes_a_new_name_for_the_session_each_time() -> None:
    """A cookie that somebody planted, or saw, before log-in opens nothing afterwards."""
    async with opened() as room, room.client() as browser:
        await browser.post("/login", data=LOGIN, headers=BROWSER)
        (name, first) = next(iter(browser.cookies.items()))
        again = await browser.post("/login", data=LOGIN, headers=BROWSER)
        assert again.status_code == 303
        second = browser.cookies[name]
        assert second != first
        planted = {"cookie": f"{name}={first}"}
        async with room.client() as thief:
            assert (await thief.get("/queues", headers=planted)).status_code == 401
            chosen = {"cookie": f"{name}=chosen-by-me"}
            await thief.post("/login", data=LOGIN, headers={**BROWSER, **chosen})
            thief.cookies.clear()
            assert (await thief.get("/queues", headers=chosen)).status_code == 401


async def test_after_log_out_a_copy_of_the_cookie_opens_nothing() -> None:
    async with opened() as room, await room.logged_in() as browser:
        copy = {"cookie": "; ".join(f"{name}={value}" for name, value in browser.cookies.items())}
        page = await browser.get("/queues")
        answer = await browser.post(
            "/logout", data={"token": form_token(page.text)}, headers=BROWSER
        )
        assert answer.status_code == 303
        async with room.client() as thief:
            assert (await thief.get("/queues", headers=copy)).status_code == 401
        assert (await browser.get("/queues")).status_code == 401


async def test_a_session_ends_when_unused_and_after_half_a_day_in_any_case() -> None:
    async with opened() as room, await room.logged_in() as browser:
        room.clock.now += IDLE_SECONDS - 1
        assert (await browser.get("/queues")).status_code == 200
        room.clock.now += IDLE_SECONDS + 1
        assert (await browser.get("/queues")).status_code == 401
    async with opened() as room, await room.logged_in() as browser:
        begun = room.clock.now
        while room.clock.now + IDLE_SECONDS < begun + LIFETIME_SECONDS:
            room.clock.now += IDLE_SECONDS - 1
            assert (await browser.get("/queues")).status_code == 200
        room.clock.now = begun + LIFETIME_SECONDS + 1
        assert (await browser.get("/queues")).status_code == 401


async def test_the_sessions_of_a_user_can_be_revoked() -> None:
    async with opened() as room, await room.logged_in() as one, await room.logged_in() as two:
        assert room.door.sessions.revoke("the-admin") == 2
        assert (await one.get("/queues")).status_code == 401
        assert (await two.get("/queues")).status_code == 401


def test_sessions_of_a_person_are_bounded_and_the_longest_unused_goes_first() -> None:
    sessions = Sessions(Clock())
    person = Person("ada", Role.VIEWER)
    other = sessions.open(Person("grace", Role.ADMIN))
    first = sessions.open(person)
    kept = sessions.open(person)
    for _ in range(MAX_SESSIONS - 2):
        sessions.open(person)
    sessions.use(kept)
    assert sessions.find(first) is not None
    for _ in range(MAX_SESSIONS - 1):
        sessions.open(person)
    assert sessions.find(first) is None
    assert sessions.find(kept) is not None
    sessions.open(person)
    assert sessions.find(kept) is None
    assert sessions.find(other) is not None


def test_the_stored_form_of_a_session_does_not_open_it() -> None:
    sessions = Sessions(Clock())
    cookie = sessions.open(Person("ada", Role.VIEWER))
    (kept,) = sessions._open
    assert cookie not in kept
    assert sessions.find(kept) is None


async def test_a_link_from_another_site_opens_the_page_it_names() -> None:
    """The browser keeps the cookie back; asked again by a page of ours, it sends it."""
    async with opened() as room, room.client() as browser:
        arriving = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
        page = await browser.get("/queues?x=1", headers=arriving)
        assert page.status_code == 401
        assert 'http-equiv="refresh" content="0"' in page.text
        assert 'name="password"' not in page.text


# --- the link -------------------------------------------------------------------------------------


async def test_a_link_lets_one_browser_in_once_and_does_not_stay_in_the_address() -> None:
    async with opened(lines=False) as room, room.client() as browser:
        printed: list[str] = []
        link = room.door.new_link(lambda: printed.append(room.door.new_link()))
        asked = await browser.get("/queues")
        assert "terminal" in asked.text
        assert 'name="password"' not in asked.text
        answer = await browser.get("/enter", params={"link": link})
        assert answer.status_code == 303
        assert answer.headers["location"] == "/"
        assert (await browser.get("/queues")).status_code == 200
        again = await browser.get("/enter", params={"link": link})
        assert again.headers["location"] == "/"
        async with room.client() as second:
            used = await second.get("/enter", params={"link": link})
            assert used.status_code == 401
            assert link not in used.text
            assert len(printed) == 1
            assert (await second.get("/enter", params={"link": "wrong"})).status_code == 401
            assert len(printed) == 1  # one is waiting to be used: no more are printed
            entered = await second.get("/enter", params={"link": printed[0]})
            assert entered.status_code == 303


async def test_another_site_cannot_try_links() -> None:
    async with opened(lines=False) as room, room.client() as browser:
        link = room.door.new_link()
        headers = {"sec-fetch-site": "cross-site"}
        for _ in range(20):
            answer = await browser.get("/enter?link=guess", headers=headers)
            assert answer.status_code == 403
        assert (await browser.get("/enter", params={"link": link})).status_code == 303


async def test_without_a_link_that_was_printed_an_empty_one_opens_nothing() -> None:
    async with opened(lines=False) as room, room.client() as browser:
        assert (await browser.get("/enter")).status_code == 401
        assert (await browser.get("/enter?link=")).status_code == 401


async def test_a_link_is_not_used_up_by_a_look_whether_it_answers() -> None:
    async with opened(lines=False) as room, room.client() as browser:
        link = f"/enter?link={room.door.new_link()}"
        looked = await browser.head(link)
        assert looked.status_code == 200
        assert "set-cookie" not in looked.headers
        assert (await browser.get(link)).status_code == 303


# --- guessing -------------------------------------------------------------------------------------


async def test_ten_wrong_logins_in_a_minute_block_an_address() -> None:
    async with opened() as room, room.client() as browser:
        wrong = {"name": "the-admin", "password": "guess"}
        codes = []
        for n in range(30):
            # What such a header says counts for nothing: nobody said whom to believe.
            headers = {**BROWSER, "x-forwarded-for": f"198.51.100.{n}"}
            codes.append((await browser.post("/login", data=wrong, headers=headers)).status_code)
        assert codes == [401] * 10 + [429] * 20
        right = await browser.post("/login", data=LOGIN, headers=BROWSER)
        assert right.status_code == 429
        assert 0 < int(right.headers["retry-after"]) <= 60
        room.clock.now += 61
        assert (await browser.post("/login", data=LOGIN, headers=BROWSER)).status_code == 303


async def test_an_unknown_name_and_a_wrong_password_look_the_same() -> None:
    async with opened() as room, room.client() as browser:
        pages = [
            await browser.post("/login", data={"name": name, "password": "guess"}, headers=BROWSER)
            for name in ("the-admin", "nobody-at-all")
        ]
        first, second = (page.text.replace("the-admin", "nobody-at-all") for page in pages)
        assert first == second


async def test_tokens_are_guessed_no_faster_and_who_has_the_right_one_is_not_locked_out() -> None:
    async with opened() as room, room.client() as machine:
        wrong = {"authorization": "Bearer guess"}
        right = {"authorization": f"Bearer {TOKENS[Role.VIEWER]}"}
        codes = [(await machine.get("/queues", headers=wrong)).status_code for _ in range(12)]
        assert codes == [401] * 10 + [429] * 2
        told = await machine.get("/api/v1/me", headers=wrong)
        assert told.json()["code"] == "too_many_guesses"
        assert 0 < int(told.headers["retry-after"]) <= 60
        # Behind one proxy everybody has the same address.
        assert (await machine.get("/queues", headers=right)).status_code == 200
        room.clock.now += 61
        assert (await machine.get("/queues", headers=wrong)).status_code == 401
