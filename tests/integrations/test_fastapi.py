from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import httpx
import pytest
from fastapi import Depends, FastAPI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from tests.integrations.programs import complaint
from windlass import Windlass
from windlass._app.parts import parts_of
from windlass.admin import Admin
from windlass.errors import ConfigError
from windlass.integrations.fastapi import get_admin, get_app, lifespan


@pytest.fixture
def app(tmp_path: Path) -> Windlass:
    app = Windlass(f"sqlite:///{tmp_path}/jobs.db")

    @app.task(name="double")
    async def double(number: int) -> int:
        return 2 * number

    return app


def fastapi(app: Windlass, **options: Any) -> FastAPI:
    server = FastAPI(lifespan=lifespan(app, **options))

    @server.post("/double/{number}")
    async def enqueue(number: int, jobs: Annotated[Windlass, Depends(get_app)]) -> str:
        task = jobs.tasks.find("double")
        assert task is not None
        return (await task.enqueue(number)).id

    @server.get("/jobs/{job}")
    async def outcome(job: str, jobs: Annotated[Windlass, Depends(get_app)]) -> int:
        answer: int = await jobs.job(job).result(timeout=30)
        return answer

    @server.get("/waiting")
    async def waiting(admin: Annotated[Admin, Depends(get_admin)]) -> int:
        return len(await admin.jobs.find())

    return server


@asynccontextmanager
async def client(server: FastAPI | Starlette) -> AsyncIterator[httpx.AsyncClient]:
    world = httpx.AsyncClient(transport=httpx.ASGITransport(server), base_url="http://shop")
    async with server.router.lifespan_context(server), world:
        yield world


async def test_an_endpoint_enqueues_and_the_worker_in_the_server_runs_it(app: Windlass) -> None:
    async with client(fastapi(app, worker=True)) as world:
        job = (await world.post("/double/21")).json()
        assert (await world.get(f"/jobs/{job}")).json() == 42


async def test_without_a_worker_the_jobs_wait_for_one_elsewhere(app: Windlass) -> None:
    async with client(fastapi(app)) as world:
        job = (await world.post("/double/21")).json()
        assert (await world.get("/waiting")).json() == 1
        assert (await app.admin.jobs.get(job)).state == "waiting"


async def test_the_app_is_open_while_the_server_runs_and_closed_after(app: Windlass) -> None:
    async with client(fastapi(app, worker=True)):
        assert len(parts_of(app).connections.loops) == 1
        (worker,) = await app.admin.workers.list()
        assert worker.ended_at is None
    assert parts_of(app).connections.loops == []
    async with app:
        (worker,) = await app.admin.workers.list()
        assert worker.ended_at is not None


async def test_the_worker_serves_the_given_queues(app: Windlass) -> None:
    async with client(fastapi(app, worker=True, queues={"mail": 2})):
        (worker,) = await app.admin.workers.list()
        assert list(worker.start.queues) == ["mail"]


def test_settings_of_a_worker_are_refused_where_there_is_none(app: Windlass) -> None:
    with pytest.raises(ConfigError, match=r"queues, slots: .* worker=True"):
        lifespan(app, queues=["mail"], slots=3)


async def test_a_lifespan_of_ones_own_runs_inside_and_may_enqueue_to_its_end(
    app: Windlass,
) -> None:
    told: list[str] = []

    @asynccontextmanager
    async def own(server: FastAPI) -> AsyncIterator[dict[str, str]]:
        task = app.tasks.find("double")
        assert task is not None
        told.append("begin")
        yield {"shop": "corner"}
        told.append((await task.enqueue(1)).id)

    async with client(fastapi(app, inner=own)):
        assert told == ["begin"]
    async with app:
        assert (await app.admin.jobs.get(told[1])).state == "waiting"


async def test_requests_see_the_state_of_the_inner_lifespan_and_the_app(app: Windlass) -> None:
    @asynccontextmanager
    async def own(server: Starlette) -> AsyncIterator[dict[str, str]]:
        yield {"shop": "corner"}

    async def state(request: Request) -> JSONResponse:
        return JSONResponse([request.state.shop, get_app(request) is app])

    inside = Starlette(routes=[Route("/state", state)])
    outer = Starlette(
        routes=[Route("/state", state), Mount("/inside", app=inside)],
        lifespan=lifespan(app, inner=own),
    )
    async with outer.router.lifespan_context(outer) as kept:

        async def server(scope: Scope, receive: Receive, send: Send) -> None:
            """As servers do: what the lifespan yields comes along with every request."""
            await outer({**scope, "state": dict(kept or {})}, receive, send)

        transport = httpx.ASGITransport(server)
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as world:
            assert (await world.get("/state")).json() == ["corner", True]
            assert (await world.get("/inside/state")).json() == ["corner", True]


async def test_an_error_of_the_inner_lifespan_closes_the_app(app: Windlass) -> None:
    @asynccontextmanager
    async def broken(server: FastAPI) -> AsyncIterator[None]:
        if app.tasks:
            message = "no connection to the shop"
            raise OSError(message)
        yield

    server = fastapi(app, worker=True, inner=broken)
    with pytest.raises(OSError, match="no connection to the shop"):
        async with client(server):
            pass
    assert parts_of(app).connections.loops == []


async def test_a_server_without_the_lifespan_gets_advice(app: Windlass) -> None:
    server = Starlette()
    request = Request({"type": "http", "app": server})
    with pytest.raises(ConfigError, match=r"FastAPI\(lifespan=lifespan\(app\)\)"):
        get_app(request)


def test_without_starlette_the_import_says_what_to_install(tmp_path: Path) -> None:
    said = complaint(tmp_path, "windlass.integrations.fastapi", "starlette")
    assert said.endswith("pip install 'starlette'")
