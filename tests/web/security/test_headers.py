"""What every response says to the browser."""

from __future__ import annotations

import re

import pytest

from tests.web.fixtures import BROWSER, opened, sample
from windlass._web.routes import ROUTES
from windlass._web.security.authentication import HostAuthentication
from windlass._web.security.headers import SECURITY

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


async def test_every_response_carries_them_also_errors() -> None:
    async with opened() as room, await room.logged_in() as admin, room.client() as stranger:
        answers = [
            await client.request(method, path)
            for client in (admin, stranger)
            for method in ("GET", "POST", "HEAD", "OPTIONS", "BREW")
            for path in [*map(sample, ROUTES), "/nothing", "//", "/assets/../x", "/live/"]
            if not (path.startswith("/live?") and method == "GET" and client is admin)
        ]
        answers.append(await stranger.get("/assets/" + room.dashboard.assets.name("tokens.css")))
        assert {answer.status_code for answer in answers} >= {200, 303, 401, 403, 404, 405}
        for answer in answers:
            for name, value in SECURITY.items():
                assert answer.headers.get(name) == value, (answer.request.url, name)
            assert answer.headers["content-security-policy"] == CSP
            assert "cache-control" in answer.headers
            assert "strict-transport-security" not in answer.headers  # this is plain http


async def test_over_tls_it_stays_over_tls() -> None:
    async with opened() as room, room.client(base="https://dashboard.test") as browser:
        answer = await browser.get("/queues")
        assert answer.headers["strict-transport-security"].startswith("max-age=")


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8443", "jobs.localhost", "localhost.", "127.0.0.1:8383", "[::1]:8383"],
)
async def test_hsts_is_never_sent_for_localhost(host: str) -> None:
    """It would hold for a year, and for whatever else its owner serves there."""
    async with opened() as room, room.client(base="https://dashboard.test") as browser:
        answer = await browser.get("/queues", headers={"host": host})
        assert answer.status_code == 401
        assert "strict-transport-security" not in answer.headers
        for other in ("localhost.example.com", "127.0.0.1.example.com", "notlocalhost"):
            answer = await browser.get("/queues", headers={"host": other})
            assert "strict-transport-security" in answer.headers, other


async def test_stored_data_is_not_cached_and_assets_are_immutable() -> None:
    async with opened() as room, await room.logged_in() as admin:
        assert (await admin.get("/queues")).headers["cache-control"] == "no-store"
        name = room.dashboard.assets.name("live.js")
        assert "immutable" in (await admin.get(f"/assets/{name}")).headers["cache-control"]


async def test_an_error_of_ours_becomes_a_page_without_a_trace(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(**_: object) -> object:
        raise RuntimeError("secret-detail")

    async with opened() as room, await room.logged_in() as admin:
        monkeypatch.setattr(room.app.admin.workers, "list", broken)
        answer = await admin.get("/workers")
    assert answer.status_code == 500
    assert answer.headers["content-security-policy"] == CSP
    assert "an error of Windlass" in answer.text
    for leak in ("secret-detail", "Traceback", "workers.py", "RuntimeError"):
        assert leak not in answer.text
    assert "secret-detail" in caplog.text  # the log has it


async def test_an_invalid_answer_of_the_host_lets_no_one_in(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with opened(door=HostAuthentication(lambda _: True)) as room, room.client() as browser:  # type: ignore[arg-type,return-value]
        answer = await browser.get("/queues")
    assert answer.status_code == 500
    assert "mail" not in answer.text
    assert "must answer a Person" in caplog.text


async def test_no_page_contains_inline_script_or_style() -> None:
    async with opened() as room, await room.logged_in() as admin, room.client() as stranger:
        await room.app.admin.queues.pause("mail")
        for client in (admin, stranger):
            for route in ROUTES:
                if route.answers != "page" or "GET" not in route.methods:
                    continue
                page = (await client.get(sample(route), headers=BROWSER)).text
                assert not re.search(r"<style|\sstyle=|javascript:|<script(?![^>]*\ssrc=)", page)
                assert not re.search(r"\son[a-z]+\s*=", page), route.path
                assert not re.search(r'(?:src|href)="(?:https?:)?//', page), route.path
