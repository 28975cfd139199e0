"""Every line of the route table, knocked at in every way."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest

from tests.web.fixtures import (
    BROWSER,
    CHANGING,
    HOST,
    READABLE,
    Room,
    form_token,
    opened,
    sample,
    stocked,
)
from windlass._app.parts import parts_of
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._web.routes import LOOKS, LOOKS_AT, ROUTES, PageRoute
from windlass._web.security.roles import Role

PUBLIC = {"/login", "/enter", "/assets/{name}"}
EVERYWAY = [(route, method) for route in ROUTES for method in (*route.methods, "HEAD")]


def path_of(route: PageRoute) -> str:
    return route.path


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    async with opened() as one:
        await stocked(one)
        yield one


def test_only_the_ways_in_and_the_files_are_for_anybody() -> None:
    assert {route.path for route in ROUTES if route.role is None} == PUBLIC


def test_every_change_needs_an_operator_except_logging_out() -> None:
    beneath = [
        route.path
        for route in CHANGING
        if route.role is not None and not route.role.includes(Role.OPERATOR)
    ]
    assert beneath == ["/logout"]


def test_no_path_is_in_the_table_twice() -> None:
    paths = [route.path for route in ROUTES]
    assert len(paths) == len(set(paths))


async def test_every_route_without_credentials_shows_nothing(room: Room) -> None:
    await room.app.admin.queues.pause("mail")
    async with room.client() as stranger:
        for route, method in EVERYWAY:
            if route.role is None:
                continue
            answer = await stranger.request(method, sample(route))
            assert answer.status_code in {401, 405}, (method, route.path)
            assert "mail" not in answer.text.replace(sample(route).replace("&", "&amp;"), "")


@pytest.mark.parametrize(
    "bend",
    [
        lambda path: f"{path}/",
        lambda path: f"/{path}",
        lambda path: path.upper(),
        lambda path: f"/%2e{path}",
        lambda path: f"/x/%2e%2e{path}",
        lambda path: f"{path}/%2e",
        lambda path: f"{path}%00",
        lambda path: f"{path};x=1",
        lambda path: f"/%5c{path[1:]}",
    ],
    ids=["slash", "double", "case", "dot", "dots", "end", "nul", "semicolon", "backslash"],
)
async def test_a_bent_address_of_a_page_leads_nowhere(room: Room, bend: object) -> None:
    assert callable(bend)
    viewer = await room.logged_in(Role.VIEWER)
    async with viewer, room.client() as stranger:
        for client in (viewer, stranger):
            for route in [*READABLE, *CHANGING]:
                if route.path in {"/", "/live"}:
                    continue
                url = httpx.URL(f"http://{HOST}").copy_with(raw_path=bend(route.path).encode())
                for method in ("GET", "POST"):
                    answer = await client.request(method, url, headers=BROWSER)
                    assert answer.status_code in {401, 404, 405}, (method, url)


async def test_a_viewer_reads_and_is_refused_every_change(room: Room) -> None:
    async with await room.logged_in(Role.VIEWER) as viewer:
        token = form_token((await viewer.get("/queues")).text)
        for route in ROUTES:
            if route.role is None or route.path in {"/live", "/logout"}:
                continue
            for method in (*route.methods, "HEAD"):
                sent = {"token": token} if method == "POST" else None
                answer = await viewer.request(method, sample(route), data=sent, headers=BROWSER)
                allowed = route.role is Role.VIEWER
                assert (answer.status_code in {200, 303}) == allowed, (method, route.path)
                if not allowed:
                    assert answer.status_code in {403, 405}
        override = {**BROWSER, "x-http-method-override": "POST"}
        await viewer.get("/queues/pause?queue=mail&_method=POST", headers=override)
    assert not (await room.app.admin.queues.get("mail")).paused


async def test_reading_changes_nothing(room: Room) -> None:
    before = await everything(room)
    async with await room.logged_in() as admin:
        for route in READABLE:
            if route.answers == "stream":
                continue
            answer = await admin.get(sample(route))
            refused = {409} if route.path == "/flows/retry" else set()  # the flow runs
            assert answer.status_code in {200, 303, *refused}, route.path
    assert await everything(room) == before


async def everything(room: Room) -> list[object]:
    """All that is stored and that time alone does not change."""
    storage = await parts_of(room.app).storage()
    return [
        await storage.admin.find(JobFilter(), limit=100),
        await storage.queues.queues(),
        await storage.schedules.rows(),
        await storage.limits.specs(),
        [(one.start, one.state) for one in await storage.workers.workers()],
        await storage.orders.audits(limit=100),
    ]


CROSSING: list[tuple[str, dict[str, str]]] = [
    ("a form on another site", {"sec-fetch-site": "cross-site", "origin": "http://evil.test"}),
    ("a sub-domain", {"sec-fetch-site": "same-site", "origin": f"http://x.{HOST}"}),
    ("a sandboxed frame", {"sec-fetch-site": "cross-site", "origin": "null"}),
    ("an old browser, elsewhere", {"origin": "http://evil.test"}),
    ("an old browser, hidden", {"origin": "null"}),
    ("another port", {"origin": f"http://{HOST}:81"}),
    ("text as a form", {"origin": "http://evil.test", "content-type": "text/plain"}),
]


@pytest.mark.parametrize("headers", [h for _, h in CROSSING], ids=[name for name, _ in CROSSING])
async def test_cross_site_requests_are_refused(room: Room, headers: dict[str, str]) -> None:
    async with await room.logged_in() as admin:
        token = form_token((await admin.get("/queues")).text)
        for route in [*CHANGING, *(route for route in ROUTES if route.path == "/login")]:
            content = f"token={token}"
            kind = {"content-type": "application/x-www-form-urlencoded"}
            answer = await admin.post(sample(route), content=content, headers={**kind, **headers})
            assert answer.status_code == 403, route.path
            assert "cross" in answer.text or "from another site" in answer.text
        stream = await admin.get("/live", headers=headers)
        assert stream.status_code == 403
    assert not (await room.app.admin.queues.get("mail")).paused


async def test_a_form_without_the_token_of_its_session_does_nothing(room: Room) -> None:
    async with await room.logged_in() as admin, await room.logged_in() as other:
        stolen = form_token((await other.get("/queues")).text)
        for token in ("", "x", stolen):
            for route in CHANGING:
                answer = await admin.post(sample(route), data={"token": token}, headers=BROWSER)
                assert answer.status_code == 403, route.path
    assert not (await room.app.admin.queues.get("mail")).paused


async def test_a_request_without_an_origin_needs_the_token(
    room: Room,
) -> None:
    async with await room.logged_in() as admin:
        token = form_token((await admin.get("/queues")).text)
        refused = await admin.post("/queues/pause?queue=mail")
        assert refused.status_code == 403
        taken = await admin.post("/queues/pause?queue=mail", data={"token": token})
        assert taken.status_code == 303
    assert (await room.app.admin.queues.get("mail")).paused


async def test_read_only_holds_for_admins_too(room: Room) -> None:
    room = Room(room.app, read_only=True)
    async with await room.logged_in() as admin:
        page = await admin.get("/queues")
        assert "read-only" in page.text
        assert "Pause" not in page.text.replace("Paused", "")
        for route in CHANGING:
            if route.path == "/logout":
                continue
            sent = {"token": form_token(page.text)}
            answer = await admin.post(sample(route), data=sent, headers=BROWSER)
            assert answer.status_code == 403
            assert "read-only" in answer.text
        assert (await admin.get("/queues/pause?queue=mail")).status_code == 403


async def test_every_part_that_a_page_shows_live_has_a_look(room: Room) -> None:
    async with await room.logged_in() as admin:
        for route in READABLE:
            if route.answers != "page":
                continue
            page = (await admin.get(sample(route), follow_redirects=True)).text
            for piece in page.split('data-part="')[1:]:
                part = piece.partition('"')[0]
                assert part in LOOKS or part.partition("-")[0] in LOOKS_AT, route.path


async def test_an_address_that_is_too_long_and_a_form_that_is_too_large_are_refused(
    room: Room,
) -> None:
    async with await room.logged_in() as admin:
        assert (await admin.get("/queues?x=" + "y" * 5000)).status_code == 414
        body = b"token=" + b"x" * (2 * 1024 * 1024)
        answer = await admin.post("/queues/pause?queue=mail", content=body, headers=BROWSER)
        assert answer.status_code == 413
        many = "&".join(f"f{n}=1" for n in range(1500))
        answer = await admin.post("/queues/pause?queue=mail", content=many, headers=BROWSER)
        assert answer.status_code == 400
