"""Inside another application, under any prefix."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.web.fixtures import A_JOB, BROWSER, HOST, TOKENS, Room, form_token, opened, stocked
from windlass._web.security.roles import Role

Scope = MutableMapping[str, Any]
Asgi = Callable[[Scope, Any, Any], Awaitable[None]]


def in_fastapi(room: Room) -> Asgi:
    host = FastAPI()
    host.mount("/ops/jobs", room.asgi)
    return host


def in_starlette(room: Room) -> Asgi:
    return Starlette(routes=[Mount("/ops", routes=[Mount("/jobs", app=room.asgi)])])


def in_django(room: Room) -> Asgi:
    """As one writes it around ``get_asgi_application()``: by hand."""

    async def host(scope: Scope, receive: Any, send: Any) -> None:
        assert scope["path"].startswith("/ops/jobs/")
        await room.asgi({**scope, "root_path": "/ops/jobs"}, receive, send)

    return host


@pytest.mark.parametrize("mount", [in_fastapi, in_starlette, in_django])
async def test_every_address_of_a_page_stays_under_the_mount(
    mount: Callable[[Room], Asgi],
) -> None:
    async with opened() as room:
        base = f"http://{HOST}/ops/jobs/"
        client = room.client(base=base, asgi=mount(room))
        async with client as browser:
            stranger = await browser.get("queues")
            assert stranger.status_code == 401
            assert 'action="/ops/jobs/login"' in stranger.text
            form = {
                "name": "the-admin",
                "password": TOKENS[Role.ADMIN],
                "wanted": "/ops/jobs/queues",
            }
            answer = await browser.post("login", data=form, headers=BROWSER)
            assert answer.headers["location"] == "/ops/jobs/queues"
            elsewhere = {**form, "wanted": "/other/page"}
            answer = await browser.post("login", data=elsewhere, headers=BROWSER)
            assert answer.headers["location"] == "/ops/jobs/"
            assert (await browser.get("")).headers["location"] == "/ops/jobs/overview"
            await stocked(room)
            addresses = r'(?:href|src|action|formaction|hx-get|data-live-url)="([^"#]+)"'
            for path in ("overview", "jobs", f"jobs/{A_JOB}", "queues"):
                for url in re.findall(addresses, (await browser.get(path)).text):
                    assert url.startswith("/ops/jobs/"), url
            page = await browser.get("queues")
            assert 'data-root="/ops/jobs"' in page.text
            for url in re.findall(r'src="([^"]+)"', page.text):
                assert (await browser.get(httpx.URL(f"http://{HOST}{url}"))).status_code == 200
            question = await browser.get("queues/pause?queue=mail")
            assert 'action="/ops/jobs/queues/pause?queue=mail"' in question.text
            done = await browser.post(
                "queues/pause?queue=mail",
                data={"token": form_token(question.text)},
                headers=BROWSER,
            )
            assert done.headers["location"] == "/ops/jobs/queues"
            assert (await room.app.admin.queues.get("mail")).paused


async def test_two_dashboards_on_one_host_do_not_share_sessions() -> None:
    async with opened() as one, opened() as two:
        host = Starlette(routes=[Mount("/a", app=one.asgi), Mount("/b", app=two.asgi)])
        async with one.client(asgi=host) as browser:
            form = {"name": "the-admin", "password": TOKENS[Role.ADMIN]}
            await browser.post("/a/login", data=form, headers=BROWSER)
            await browser.post("/b/login", data=form, headers=BROWSER)
            assert (await browser.get("/a/queues")).status_code == 200
            assert (await browser.get("/b/queues")).status_code == 200
            assert len(browser.cookies) == 2


async def test_a_forged_prefix_is_not_believed() -> None:
    async with opened() as room, await room.logged_in() as admin:
        for name in ("x-forwarded-prefix", "x-script-name", "x-forwarded-host"):
            page = await admin.get("/queues", headers={name: "//evil.test"})
            assert "evil.test" not in page.text
            gone = await admin.get("/", headers={name: "//evil.test"})
            assert gone.headers["location"] == "/overview"


async def test_it_needs_no_lifespan_and_takes_no_websocket() -> None:
    async with opened() as room:
        sent: list[Any] = []

        async def receive() -> dict[str, str]:
            return {"type": "websocket.connect"}

        async def send(event: Any) -> None:
            sent.append(event)

        scope = {"type": "websocket", "path": "/live", "headers": [], "root_path": ""}
        await room.asgi(scope, receive, send)
        assert [event["type"] for event in sent] == ["websocket.close"]
