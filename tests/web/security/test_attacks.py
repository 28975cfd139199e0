"""The dashboard attacked: what no single page is about."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest

from tests.web.fixtures import (
    A_JOB,
    BROWSER,
    CHANGING,
    HOST,
    READABLE,
    TOKENS,
    Room,
    form_token,
    opened,
    sample,
    stocked,
)
from windlass._web import request
from windlass._web.live.changes import LiveChanges
from windlass._web.render.templates import Templates
from windlass._web.security import credentials
from windlass._web.security.credentials import Credentials, password_line, token_line
from windlass._web.security.headers import SECURITY
from windlass._web.security.login_throttle import LOGINS, MAX_FAILURES, PER_ADDRESS, WINDOW_SECONDS
from windlass._web.security.roles import Person, Role
from windlass.admin import Admin

LOGIN = {"name": "the-admin", "password": TOKENS[Role.ADMIN]}


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    async with opened() as one:
        await stocked(one)
        yield one


# --- guessing -------------------------------------------------------------------------------------


async def test_guesses_that_are_made_at_once_are_counted_like_others(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []
    go_on = asyncio.Event()

    async def slow(_: Credentials, name: str, secret: str) -> Person | None:
        checked.append(secret)
        await go_on.wait()
        return None

    monkeypatch.setattr(Credentials, "check", slow)
    async with room.client() as browser:
        guesses = [
            asyncio.create_task(
                browser.post(
                    "/login", data={"name": "the-admin", "password": f"{n}"}, headers=BROWSER
                )
            )
            for n in range(5 * PER_ADDRESS)
        ]
        refused = asyncio.gather(*guesses[PER_ADDRESS:])
        assert {answer.status_code for answer in await refused} == {429}
        go_on.set()
        assert {answer.status_code for answer in await asyncio.gather(*guesses)} == {401, 429}
    assert len(checked) == PER_ADDRESS


async def test_a_successful_login_does_not_count_as_a_guess(room: Room) -> None:
    async with room.client() as browser:
        for _ in range(MAX_FAILURES + 5):
            answer = await browser.post("/login", data=LOGIN, headers=BROWSER)
            assert answer.status_code == 303
            room.clock.now += WINDOW_SECONDS / LOGINS


async def test_one_person_logs_in_only_so_often_and_ends_no_session_of_another(room: Room) -> None:
    viewer = {"name": "the-viewer", "password": TOKENS[Role.VIEWER]}
    async with await room.logged_in() as admin, room.client() as browser:
        answers = [
            await browser.post("/login", data=viewer, headers=BROWSER) for _ in range(LOGINS)
        ]
        assert {answer.status_code for answer in answers} == {303}
        one_more = await browser.post("/login", data=viewer, headers=BROWSER)
        assert one_more.status_code == 429
        assert 0 < int(one_more.headers["retry-after"]) <= WINDOW_SECONDS
        assert (await admin.get("/api/v1/me")).status_code == 200
        assert (await browser.post("/login", data=LOGIN, headers=BROWSER)).status_code == 303


async def test_a_log_in_of_ones_own_gives_no_more_guesses_at_another(room: Room) -> None:
    viewer = {"name": "the-viewer", "password": TOKENS[Role.VIEWER]}
    guess = {"name": "the-admin", "password": "guess"}
    codes = []
    async with room.client() as browser:
        for _ in range(3 * PER_ADDRESS):
            await browser.post("/login", data=viewer, headers=BROWSER)
            codes.append((await browser.post("/login", data=guess, headers=BROWSER)).status_code)
    assert codes == [401] * PER_ADDRESS + [429] * 2 * PER_ADDRESS


async def test_wrong_links_do_not_lock_out_the_right_one() -> None:
    async with opened(lines=False) as room, room.client() as stranger, room.client() as owner:
        link = room.door.new_link()
        codes = [(await stranger.get(f"/enter?link={n}")).status_code for n in range(12)]
        assert codes == [401] * PER_ADDRESS + [429] * 2
        assert (await owner.get("/enter", params={"link": link})).status_code == 303


async def test_time_does_not_tell_which_names_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    worked: list[int] = []

    def counted(password: str, salt: str, cost: int) -> str:
        worked.append(cost)
        return "0" * 64

    line = password_line("ada", Role.VIEWER, "correct horse")
    monkeypatch.setattr(credentials, "_scrypt", counted)
    known = Credentials([line, token_line("ci", Role.VIEWER, "t" * 43)])
    for name in ("ada", "ci", "nobody-at-all"):
        assert await known.check(name, "guess") is None
    assert worked == [credentials._COST] * 3
    assert await known.check("ci", "t" * 43) == Person("ci", Role.VIEWER)
    assert await known.check("nobody", "") is None


async def test_few_passwords_are_checked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now, most = 0, 0

    async def counted(*_: object) -> str:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1
        return "0" * 64

    line = password_line("ada", Role.VIEWER, "correct horse")
    monkeypatch.setattr(credentials, "run_in_threadpool", counted)
    known = Credentials([line])
    await asyncio.gather(*(known.check("ada", "guess") for _ in range(20)))
    assert most == credentials._AT_ONCE


# --- what a request may be made of ----------------------------------------------------------------

HOSTS = [
    "evil.test#",
    "a/b?c",
    "user@dashboard.test",
    "[",
    "[::1",
    "dashboard.test:99999999",
    "dashboard.test evil.test",
    "\\evil.test",
]


@pytest.mark.parametrize("host", HOSTS)
async def test_a_host_that_is_none_is_refused_and_shows_nothing(room: Room, host: str) -> None:
    async with await room.logged_in() as admin:
        for path in ("/queues", f"/queues?x={'y' * 5000}", "/", "/enter?link=x", "/live"):
            answer = await admin.get(path, headers={"host": host})
            assert answer.status_code in {400, 414}, path
            assert "evil" not in answer.text
            assert "set-cookie" not in answer.headers
        nothing = await admin.get("/nothing", headers={"host": host})
        assert nothing.status_code == 404
        assert nothing.headers["x-frame-options"] == "DENY"


async def test_the_length_of_an_address_is_limited_with_any_host(room: Room) -> None:
    async with await room.logged_in() as admin:
        long = f"/queues?x={'y' * 5000}"
        for host in (HOST, "other.test", "[::1]:80"):
            assert (await admin.get(long, headers={"host": host})).status_code == 414


@pytest.mark.parametrize("origin", ["http://[", "http://]", "x", "", "file://"])
async def test_an_origin_that_is_none_is_somewhere_else(room: Room, origin: str) -> None:
    async with await room.logged_in() as admin:
        token = form_token((await admin.get("/queues")).text)
        answer = await admin.post(
            "/queues/pause?queue=mail", data={"token": token}, headers={"origin": origin}
        )
        assert answer.status_code == 403
    assert not (await room.app.admin.queues.get("mail")).paused


async def test_a_form_that_never_arrives_holds_nothing_for_long(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request, "BODY_TIMEOUT", 0.01)
    sent: list[Any] = []
    never = asyncio.Event()

    async def receive() -> dict[str, Any]:
        if not sent:
            sent.append(None)
            return {"type": "http.request", "body": b"name=the", "more_body": True}
        await never.wait()
        raise AssertionError

    async def send(event: Any) -> None:
        sent.append(event)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/login",
        "query_string": b"",
        "root_path": "",
        "scheme": "http",
        "headers": [(b"host", HOST.encode())],
        "client": ("203.0.113.9", 1),
    }
    await room.asgi(scope, receive, send)
    assert sent[1]["status"] == 408


CALENDARS = ["0001-01-01T00:00+23:59", "9999-12-31T23:59:59-23:59"]
NASTY = [*CALENDARS, "9" * 18, "9" * 40, "-1", "\x00", "x" * 1500, "１٣", "nan", "1e400", "%s{0}"]
FILTERS = {
    "/jobs": ["created_from", "finished_until", "before", "trail", "state", "parent", "text"],
    "/jobs/requeue": ["created_from", "scope", "job"],
    "/errors": ["range", "queue"],
    "/audit": ["before", "subject"],
    "/overview": ["range"],
    "/queues/one": ["queue", "range"],
    "/schedules/one": ["schedule"],
    "/workers/one": ["worker"],
    "/limits/holders": ["limit", "key"],
}


async def test_no_query_breaks_a_page(room: Room) -> None:
    async with await room.logged_in() as admin:
        for path, names in FILTERS.items():
            for name in names:
                for value in NASTY:
                    answer = await admin.get(f"{path}?{urlencode({name: value})}")
                    assert answer.status_code < 500, (path, name, value)


FORMS: list[tuple[str, dict[str, str], list[str]]] = [
    (f"/jobs/edit?job={A_JOB}", {}, ["due", "priority", "queue"]),
    ("/jobs/requeue?scope=all&queue=money", {}, ["upto"]),
    ("/errors/requeue?error=ValueError&place=at+x", {}, ["until"]),
    ("/limits/set?limit=smtp", {}, ["concurrency", "rate"]),
    ("/breakers/set?task=pay", {}, ["failures", "cool_down", "growth"]),
    ("/queues/settings?queue=mail", {}, ["max_running", "cool_down"]),
    ("/schedules/edit?schedule=nightly", {"kind": "once", "preview": "1"}, ["at", "starts"]),
    ("/schedules/edit?schedule=nightly", {"kind": "cron", "preview": "1"}, ["cron", "tz"]),
    ("/schedules/edit?schedule=nightly", {"kind": "every", "preview": "1"}, ["period", "jitter"]),
]


async def test_no_field_of_a_form_breaks_its_action(room: Room) -> None:
    async with await room.logged_in() as admin:
        token = form_token((await admin.get("/queues")).text)
        for path, rest, names in FORMS:
            for name in names:
                for value in NASTY:
                    sent = {"token": token, **rest, name: value}
                    answer = await admin.post(path, data=sent, headers=BROWSER)
                    assert answer.status_code < 500, (path, name, value)


async def test_a_bulk_action_without_any_filter_does_nothing(room: Room) -> None:
    async with await room.logged_in() as admin:
        token = form_token((await admin.get("/queues")).text)
        for verb in ("delete", "cancel", "requeue", "discard"):
            for query in ("scope=all", "scope=all&queue=", "scope=all&state=%20"):
                sent = {"token": token, "upto": "9" * 18}
                await admin.post(f"/jobs/{verb}?{query}", data=sent, headers=BROWSER)
    assert (await room.app.admin.jobs.get(A_JOB)).state == "waiting"


async def test_api_actions_are_bounded_and_filtered_like_those_of_pages(
    room: Room,
) -> None:
    async with room.client() as machine:
        operator = {"authorization": f"Bearer {TOKENS[Role.OPERATOR]}"}
        for body in (
            {"order": "delete", "filter": {}},
            {"order": "delete", "filter": {"queue": "money"}, "most": 10_001},
            {"order": "delete", "filter": {"queue": "money"}, "most": 0},
            {"order": "delete", "filter": {"que": "money"}},
        ):
            answer = await machine.post("/api/v1/orders", json=body, headers=operator)
            assert answer.status_code == 422, body
    assert (await room.app.admin.jobs.get(A_JOB)).state == "waiting"


# --- whatever goes wrong --------------------------------------------------------------------------


async def test_not_even_a_page_that_cannot_be_made_lacks_the_headers(
    room: Room, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("secret-detail")

    monkeypatch.setattr(Templates, "respond", broken)
    async with await room.logged_in() as admin:
        for path in ("/queues", "/nothing"):
            answer = await admin.get(path)
            assert answer.status_code == 500
            assert "secret-detail" not in answer.text
            for name, value in SECURITY.items():
                assert answer.headers.get(name) == value
            assert answer.headers["cache-control"] == "no-store"
    assert "secret-detail" in caplog.text


async def test_no_credential_is_logged_or_shown(
    room: Room, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="windlass")
    caplog.set_level("DEBUG", logger="starlette")
    link = room.door.new_link()
    seen: list[httpx.Response] = []
    async with room.client() as browser, room.client() as machine:
        seen.append(await browser.get("/enter", params={"link": link}))
        (cookie,) = browser.cookies.values()
        page = await browser.get("/queues")
        token = form_token(page.text)
        paused = await browser.post(
            "/queues/pause?queue=mail", data={"token": token}, headers=BROWSER
        )
        assert paused.status_code == 303
        wrong = {"name": "the-admin", "password": "hunter2-nearly"}
        seen.append(await machine.post("/login", data=wrong, headers=BROWSER))
        bearer = {"authorization": f"Bearer {TOKENS[Role.ADMIN]}"}
        seen += [await machine.get(path, headers=bearer) for path in ("/queues", "/nothing")]
        seen.append(await machine.get("/enter", params={"link": "guess-of-a-link"}))
    for secret in (link, cookie, token, TOKENS[Role.ADMIN], "hunter2-nearly", "guess-of-a-link"):
        assert secret not in caplog.text.replace("HTTP Request", "")
        for answer in seen:
            assert secret not in answer.text
            assert secret not in answer.headers.get("location", "")
    assert cookie not in page.text


async def test_a_session_of_one_scheme_is_none_of_the_other(room: Room) -> None:
    """A cookie that was sent in the clear opens nothing over TLS."""
    async with await room.logged_in() as plain:
        copy = "; ".join(f"{name}={value}" for name, value in plain.cookies.items())
        async with room.client(base=f"https://{HOST}") as secure:
            assert (await secure.get("/queues", headers={"cookie": copy})).status_code == 401


async def test_only_get_post_and_head_are_understood(room: Room) -> None:
    async with await room.logged_in() as admin:
        token = form_token((await admin.get("/queues")).text)
        for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"):
            for route in [*READABLE, *CHANGING]:
                answer = await admin.request(
                    method, sample(route), data={"token": token}, headers=BROWSER
                )
                assert answer.status_code == 405, (method, route.path)
                assert "access-control-allow-origin" not in answer.headers


# --- streams --------------------------------------------------------------------------------------


async def test_a_stream_may_name_few_single_items(room: Room) -> None:
    looked: set[str] = set()

    async def look_at(_: Admin, which: str) -> object:
        looked.add(which)
        return None

    async def look(_: Admin) -> object:
        return None

    live = LiveChanges(room.app.admin, {"queues": look}, {"job": look_at})
    stream = live.listen(["queues", *(f"job-{n:032x}" for n in range(18)), "job-x", "../x"])
    await anext(stream)
    await live.step()
    await stream.aclose()
    assert len(looked) == 2


STRANGERS: list[tuple[str, Callable[[Room], dict[str, str]]]] = [
    ("nothing", lambda _: {}),
    ("a cookie of mine", lambda _: {"cookie": "windlass-session=x; session=admin"}),
    ("an empty bearer", lambda _: {"authorization": "Bearer "}),
    ("another scheme", lambda _: {"authorization": f"Basic {TOKENS[Role.ADMIN]}"}),
    ("a hash", lambda room: {"authorization": f"Bearer {_hash_of(room)}"}),
    ("a claim", lambda _: {"x-forwarded-user": "admin", "x-role": "admin", "remote-user": "x"}),
]


def _hash_of(room: Room) -> str:
    return room.door.credentials._known["the-admin"].hashed


@pytest.mark.parametrize("claim", [c for _, c in STRANGERS], ids=[name for name, _ in STRANGERS])
async def test_no_stream_and_no_file_of_a_job_without_credentials(
    room: Room, claim: Callable[[Room], dict[str, str]]
) -> None:
    async with room.client() as stranger:
        for path in ("/live?parts=queues", f"/jobs/{A_JOB}/arguments.json", f"/jobs/{A_JOB}"):
            answer = await stranger.get(path, headers=claim(room))
            assert answer.status_code == 401, path
            assert answer.headers["cache-control"] == "no-store"
            assert "pay" not in answer.text
