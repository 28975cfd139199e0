"""A dashboard over an app of its own, and people who look at it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx
import msgspec
import pytest
from starlette.applications import Starlette

from windlass import Limit, Rate, Windlass
from windlass._app.parts import parts_of
from windlass._core.flows.flow import Edge, NewFlow, NewPart
from windlass._core.flows.plan import complete
from windlass._core.job.job import FlowId, JobId, NewJob
from windlass._core.limits.breaker import Breaker
from windlass._core.schedule.rules import Cron
from windlass._storage.protocol.workers import WorkerStart
from windlass._web.app import Dashboard
from windlass._web.routes import ROUTES, PageRoute
from windlass._web.security.authentication import BuiltinAuthentication
from windlass._web.security.credentials import token_line
from windlass._web.security.login_throttle import LoginThrottle
from windlass._web.security.rate_limit import ActionRateLimit
from windlass._web.security.roles import Role
from windlass._web.security.sessions import Sessions
from windlass.admin import Admin

__all__ = [
    "A_FLOW",
    "A_JOB",
    "BROWSER",
    "HOST",
    "Clock",
    "Room",
    "form_token",
    "opened",
    "shop",
    "stocked",
    "use_storage",
]

HOST = "dashboard.test"
BROWSER = {"sec-fetch-site": "same-origin", "origin": f"http://{HOST}"}
"""What a browser adds to a form of our own pages."""
TOKENS = {role: f"the-token-of-a-{role}-which-is-long-enough" for role in Role}


class Clock:
    """Stands still unless it is moved."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def shop(url: str = "memory://", **settings: Any) -> Windlass:
    """Something of everything that today's pages show."""
    app = Windlass(url, **settings)

    @app.task(name="send", queue="mail", limits=[Limit("smtp", rate=Rate(5, 1.0), concurrency=2)])
    async def send(to: str) -> None: ...

    @app.task(name="pay", queue="money", breaker=Breaker(failures=2))
    async def pay(order: int) -> None: ...

    return app


def use_storage(
    app: Windlass, patch: pytest.MonkeyPatch, storage: Callable[[], Awaitable[Any]]
) -> None:
    """Let ``app.admin`` ask another storage."""
    other = Admin(msgspec.structs.replace(app.admin._session, storage=storage))
    for name, part in vars(other).items():
        patch.setattr(app.admin, name, part)


class Room:
    """One dashboard, and how to knock at it."""

    def __init__(self, app: Windlass, *, lines: bool = True, **settings: Any) -> None:
        self.app = app
        self.clock = Clock()
        known = [token_line(f"the-{role}", role, TOKENS[role]) for role in Role] if lines else []
        self.door = BuiltinAuthentication(
            known, sessions=Sessions(self.clock), attempts=LoginThrottle(self.clock)
        )
        # Where the clock stands still, nobody would ever be allowed the next order.
        pace = ActionRateLimit(settings.pop("rate", Rate(1, 1.0, burst=100_000)), self.clock)
        self.dashboard = Dashboard(app, settings.pop("door", self.door), pace=pace, **settings)
        self.asgi: Starlette = self.dashboard.asgi()

    def client(self, *, base: str = f"http://{HOST}", asgi: Any = None) -> httpx.AsyncClient:
        """A browser without any cookie."""
        return httpx.AsyncClient(
            transport=httpx.ASGITransport(asgi or self.asgi, client=("203.0.113.9", 4711)),
            base_url=base,
        )

    async def logged_in(self, role: Role = Role.ADMIN, **settings: Any) -> httpx.AsyncClient:
        """A browser after log-in."""
        form = {"name": f"the-{role}", "password": TOKENS[role]}
        client = self.client(**settings)
        async with self.client(**settings) as first:
            answer = await first.post("login", data=form, headers=BROWSER)
            assert answer.status_code == 303, answer.text
            client.cookies = first.cookies
        return client

    async def order(
        self, client: httpx.AsyncClient, path: str, params: Mapping[str, str], **form: str
    ) -> httpx.Response:
        """Ask for the question, then send its form, as a browser does."""
        question = await client.get(path, params=dict(params))
        assert question.status_code == 200, question.text
        sent = {**form_fields(question.text), **form}
        return await client.post(path, params=dict(params), data=sent, headers=BROWSER)


def form_fields(page: str) -> dict[str, str]:
    """What the form of that page sends along by itself."""
    hidden = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page)
    return {"token": form_token(page), **dict(hidden)}


def form_token(page: str) -> str:
    """What forms of that page carry."""
    _, _, rest = page.partition('name="token" value="')
    token = rest.partition('"')[0]
    assert token, "the page has no form"
    return token


@asynccontextmanager
async def opened(make: Callable[[], Windlass] = shop, **settings: Any) -> AsyncIterator[Room]:
    """A room over an app that is open."""
    app = make()
    async with app:
        yield Room(app, **settings)


A_JOB = JobId(f"{7:032x}")
A_FLOW = FlowId(f"{8:032x}")
A_GROUP = "error=ValueError&place=at+shop.py+send"


async def stocked(room: Room) -> None:
    """One of everything that has a page of its own: a job, a flow, a schedule, a worker, limits."""
    storage = await parts_of(room.app).storage()
    await storage.jobs.insert([NewJob(id=A_JOB, task="pay", queue="money")])
    await storage.flows.start([a_flow()])
    await parts_of(
        room.app
    ).workers.dependencies()  # what a worker does first: it defines what tasks need
    send = room.app.tasks.find("send")
    assert send is not None
    await room.app.admin.schedules.create("nightly", Cron("0 3 * * *"), send.call("a@example.com"))
    await storage.workers.register(
        WorkerStart(
            id="w1",
            host="box",
            pid=7,
            version="0.1.0",
            queues=["mail"],
            slots=4,
            lease=timedelta(seconds=30),
        )
    )


def a_flow() -> NewFlow:
    """Two jobs of two parts, of which the second waits for the first."""
    parts = [NewPart(name="pay", task="pay"), NewPart(name="ship", task="pay", after=(Edge(0),))]
    jobs = [
        (part, NewJob(id=JobId(f"{0xF000 + part:032x}"), task="pay", queue="parts"))
        for part in range(len(parts))
    ]
    return NewFlow(id=A_FLOW, name="order 7", parts=complete(parts), jobs=jobs)


def sample(route: PageRoute) -> str:
    """An address that this line of the table answers."""
    path = route.path.replace("{name}", "nothing.css").replace("{job}", A_JOB)
    path = path.replace("{flow}", A_FLOW).replace("{part}", "0")
    if route.path.startswith("/api/"):  # there, a word that is not asked for is refused
        needed = {"/api/v1/queues/one": "?queue=mail", "/api/v1/schedules/one": "?schedule=nightly"}
        return path + needed.get(route.path, "")
    named = f"queue=mail&limit=smtp&task=pay&job={A_JOB}&flow={A_FLOW}&schedule=nightly&worker=w1"
    return f"{path}?{named}&{A_GROUP}"


READABLE = [route for route in ROUTES if route.role is not None and "GET" in route.methods]
CHANGING = [route for route in ROUTES if route.role is not None and "POST" in route.methods]
