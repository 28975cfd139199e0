"""Who is let in: settings, tokens, and the host's own word."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.requests import Request

from tests.web.fixtures import BROWSER, TOKENS, form_token, opened, shop
from windlass import Windlass
from windlass._web.security.authentication import HostAuthentication
from windlass._web.security.credentials import Credentials, password_line, read_line, token_line
from windlass._web.security.login_throttle import (
    MAX_FAILURES,
    PER_ACCOUNT,
    PER_ADDRESS,
    LoginThrottle,
)
from windlass.errors import ConfigError
from windlass.web import Person, Role

PASSWORD = "correct horse battery"


async def test_a_password_is_kept_as_a_hash_that_only_it_fits() -> None:
    line = password_line("ada", Role.OPERATOR, PASSWORD)
    assert PASSWORD not in line
    assert line != password_line("ada", Role.OPERATOR, PASSWORD)  # salted
    known = Credentials([line])
    assert await known.check("ada", PASSWORD) == Person("ada", Role.OPERATOR)
    assert await known.check("ada", PASSWORD + "x") is None
    assert await known.check("ada", "") is None
    assert await known.check("bob", PASSWORD) is None
    assert known.bearer(PASSWORD) is None  # for people, not for machines


async def test_a_token_works_as_a_header_and_at_log_in() -> None:
    known = Credentials([token_line("ci", Role.VIEWER, "t" * 43)])
    assert known.bearer("t" * 43) == Person("ci", Role.VIEWER)
    assert known.bearer("t" * 42) is None
    assert known.bearer("") is None
    assert await known.check("ci", "t" * 43) == Person("ci", Role.VIEWER)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("ada", "NAME:ROLE:HASH"),
        ("ada:admin:hunter2-in-plain", "not a valid hash"),
        (f"ada:boss:sha256.{'0' * 64}", "is no role"),
        (f"a da:admin:sha256.{'0' * 64}", "NAME:ROLE:HASH"),
        ("ada:admin:scrypt.31.00.00", "not a valid hash"),
    ],
)
def test_a_line_that_is_wrong_is_refused_and_not_repeated(line: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as error:
        read_line(line)
    assert "hunter2" not in str(error.value)


def test_a_duplicate_name_is_refused() -> None:
    line = token_line("ada", Role.VIEWER, "x")
    with pytest.raises(ConfigError, match="twice"):
        Credentials([line, line])


def test_a_dashboard_without_users_is_refused_with_advice() -> None:
    app = Windlass("memory://")
    nobody: list[object] = [None, [], ()]
    for auth in nobody:
        with pytest.raises(ConfigError, match="--new-user"):
            app.dashboard(auth)
    with pytest.raises(ConfigError, match="list of lines"):
        app.dashboard("ada:admin:sha256")


def test_the_setting_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [token_line(name, Role.VIEWER, name) for name in ("ada", "bob")]
    monkeypatch.setenv("WINDLASS_DASHBOARD_AUTH", ", ".join(lines))
    app = Windlass("memory://")
    assert app.settings.dashboard_auth == tuple(lines)
    assert app.dashboard() is not None
    with pytest.raises(ConfigError) as error:
        Windlass("memory://", dashboard_auth="ada:admin:hunter2")
    assert "hunter2" not in str(error.value)


async def test_a_machine_acts_by_its_token_without_any_form() -> None:
    async with opened() as room, room.client() as machine:
        operator = {"authorization": f"Bearer {TOKENS[Role.OPERATOR]}"}
        answer = await machine.post("/queues/pause?queue=mail", headers=operator)
        assert answer.status_code == 303
        viewer = {"authorization": f"Bearer {TOKENS[Role.VIEWER]}"}
        answer = await machine.post("/queues/resume?queue=mail", headers=viewer)
        assert answer.status_code == 403
        assert (await room.app.admin.queues.get("mail")).paused


async def test_the_host_answers_with_a_role_a_person_or_an_awaitable() -> None:
    def ask(request: Request) -> str | None:
        return request.headers.get("x-role")

    async def later(request: Request) -> Person | None:
        name = request.headers.get("x-user")
        return None if name is None else Person(name, Role.OPERATOR)

    async with opened(door=HostAuthentication(ask)) as room, room.client() as browser:
        stranger = await browser.get("/queues")
        assert stranger.status_code == 401
        assert "application" in stranger.text
        assert 'name="password"' not in stranger.text
        assert (await browser.get("/queues", headers={"x-role": "viewer"})).status_code == 200
        pause = await browser.get("/queues/pause?queue=mail", headers={"x-role": "viewer"})
        assert pause.status_code == 403
        assert (await browser.get("/queues", headers={"x-role": "boss"})).status_code == 500
        # Nobody logs in here, nor enters by a link.
        form = {"name": "x", "password": "y"}
        assert (await browser.post("/login", data=form, headers=BROWSER)).status_code == 404
        assert (await browser.get("/enter?link=")).status_code == 404

    async with opened(door=HostAuthentication(later)) as room, room.client() as browser:
        who = {"x-user": "ada"}
        assert (await browser.get("/queues")).status_code == 401
        page = await browser.get("/queues/pause?queue=mail", headers=who)
        assert "ada" in page.text
        order = {"token": form_token(page.text)}
        bare = {**BROWSER, **who}
        refused = await browser.post("/queues/pause?queue=mail", headers=bare)
        assert refused.status_code == 403
        taken = await browser.post("/queues/pause?queue=mail", data=order, headers=bare)
        assert taken.status_code == 303
        assert (await room.app.admin.queues.get("mail")).paused


async def test_a_machine_that_the_host_knows_by_a_token_acts_without_any_form() -> None:
    def ask(request: Request) -> str | None:
        return "operator" if "bearer t" in request.headers.get("authorization", "") else None

    order = "/api/v1/queues/pause"
    mail = {"queue": "mail"}
    async with opened(door=HostAuthentication(ask)) as room, room.client() as machine:
        known = {"authorization": "bearer t"}
        assert (await machine.post(order, json=mail, headers=known)).status_code == 200
        assert (await room.app.admin.queues.get("mail")).paused
        # What a browser may add by itself is no such token, and other sites are still others.
        basic = {"authorization": "Basic bearer t"}
        refused = await machine.post(order, json=mail, headers=basic)
        assert (refused.status_code, refused.json()["code"]) == (403, "token_missing")
        assert "X-Windlass-Token" in refused.json()["detail"]
        token = (await machine.get("/api/v1/me", headers=basic)).json()["token"]
        sent = {**basic, "x-windlass-token": token}
        assert (await machine.post(order, json=mail, headers=sent)).status_code == 200
        elsewhere = {**known, "sec-fetch-site": "cross-site"}
        assert (await machine.post(order, json=mail, headers=elsewhere)).status_code == 403


async def test_a_host_with_a_log_in_page_is_linked_to() -> None:
    door = HostAuthentication(lambda _: None)
    async with opened(door=door, login_url="/accounts/login") as room, room.client() as browser:
        assert 'href="/accounts/login"' in (await browser.get("/queues")).text


async def test_a_name_that_is_not_ours_is_not_answered() -> None:
    async with opened(hosts=["dashboard.test"]) as room:
        async with room.client(base="http://evil.test") as browser:
            assert (await browser.get("/queues")).status_code == 400
        async with room.client(base="http://dashboard.test:8383") as browser:
            assert (await browser.get("/queues")).status_code == 401


async def test_a_host_without_credentials_is_advised_once_to_name_its_hosts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Another site may lead its own name here, and its pages are let in then."""
    cases: list[tuple[dict[str, Any], dict[str, str], int]] = [
        ({}, {}, 1),
        ({"hosts": ["dashboard.test"]}, {}, 0),
        ({}, {"authorization": "Basic eDp5"}, 0),
        ({}, {"cookie": "session=x"}, 0),
    ]
    for settings, asked, warned in cases:
        caplog.clear()
        door = HostAuthentication(lambda _: "viewer")
        async with opened(door=door, **settings) as room, room.client() as browser:
            for _ in range(2):
                assert (await browser.get("/queues", headers=asked)).status_code == 200
                browser.cookies.clear()
        assert caplog.text.count("hosts=['jobs.example.org']") == warned


def test_guesses_from_everywhere_together_are_bounded() -> None:
    attempts = LoginThrottle(lambda: 0.0)
    for n in range(MAX_FAILURES):
        assert attempts.wait(f"198.51.100.{n}") == 0
        attempts.failed(f"198.51.100.{n}")
    assert attempts.wait("203.0.113.1") > 0


def test_a_success_forgives_what_was_mistyped_at_the_same_account() -> None:
    attempts = LoginThrottle(lambda: 0.0)
    for _ in range(PER_ADDRESS // 2):
        attempts.failed("198.51.100.1", "ada")
        attempts.failed("198.51.100.1", "bob")
    assert attempts.wait("198.51.100.1", "ada") > 0
    attempts.succeeded("198.51.100.1", "ada")
    assert attempts.wait("198.51.100.1", "ada") == 0
    for _ in range(PER_ADDRESS // 2):
        assert attempts.wait("198.51.100.1", "bob") == 0
        attempts.failed("198.51.100.1", "bob")
    assert attempts.wait("198.51.100.1", "bob") > 0


def test_guesses_at_one_account_are_bounded_and_leave_in_whom_an_address_is_known_for() -> None:
    attempts = LoginThrottle(lambda: 0.0)
    attempts.failed("203.0.113.1", "ada")
    attempts.succeeded("203.0.113.1", "ada")
    for n in range(PER_ACCOUNT):
        assert attempts.wait(f"198.51.100.{n}", "ada") == 0
        attempts.failed(f"198.51.100.{n}", "ada")
    assert attempts.wait("198.51.100.99", "ada") > 0
    assert attempts.wait("198.51.100.99", "bob") == 0
    assert attempts.wait("203.0.113.1", "ada") == 0


def test_the_app_makes_something_to_mount() -> None:
    app = shop()
    made = app.dashboard([token_line("ada", Role.ADMIN, "x")], read_only=True, title="Shop")
    assert callable(made)
