"""Hosts: what people's searches cost the application that the dashboard is mounted in.

An application with an address of its own serves the dashboard, too, in one process with one event
loop. Its own address is asked over and over while one viewer searches all jobs for a text that
stands nowhere: one search after the other, and forty at a time.
"""

from __future__ import annotations

import asyncio
import functools
import statistics
import time
from contextlib import suppress
from socket import AF_INET, SOCK_STREAM, socket
from typing import TYPE_CHECKING, Any

import httpx

from benchmarks.child import answer, child, requests
from benchmarks.figure import Figure, Target, percentile
from benchmarks.stage import Stage, alternate
from benchmarks.worker import App, fill, make_calls

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

__all__ = ["host", "measure", "search"]

MANY = 40
_MOST = 2.0
_SEARCH = "/windlass/api/v1/jobs?text=nowhere%40example"


async def measure(stage: Stage) -> list[Figure]:
    """Compare the host's own requests during forty searches with the same during one."""
    sizes, place, listener = stage
    jobs = sizes.drain_jobs
    longest: dict[int, list[float]] = {0: [], 1: [], MANY: []}
    with place.scratch() as url:
        await fill(place, url, lambda app: make_calls(app.noop, jobs))
        async with child(host, url=url) as serving:
            pinged = functools.partial(_pinged, await serving.hear(), sizes.pings)
            rounds = await alternate(
                sizes.rounds,
                {
                    "alone": functools.partial(pinged, 0, longest[0]),
                    "one": functools.partial(pinged, 1, longest[1]),
                    "many": functools.partial(pinged, MANY, longest[MANY]),
                },
                listener,
            )
    return [
        Figure(
            name="hosts",
            title=f"a host's own request while a viewer runs {MANY} searches",
            measured=rounds["many"],
            unit="ms",
            yardstick=rounds["one"],
            yardstick_name="one search",
            target=Target("at most", _MOST, "ratio"),
            note=f"{jobs:,} jobs; {rounds['alone']:.1f} ms while nobody searches; p95 "
            f"{statistics.median(longest[MANY]):.1f} ms, during one search "
            f"{statistics.median(longest[1]):.1f} ms; {rounds.spread('many')}",
        )
    ]


async def _pinged(port: int, pings: int, searches: int, longest: list[float]) -> float:
    """Return the median in milliseconds; the 95th percentile is added to ``longest``."""
    async with (
        child(search, port=port, at_once=searches) as searching,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
    ):
        await searching.hear()
        taken: list[float] = []
        for _ in range(pings):
            began = time.perf_counter()
            await client.get("/ping")
            taken.append((time.perf_counter() - began) * 1000)
            await asyncio.sleep(0.005)
    longest.append(percentile(taken, 0.95))
    return statistics.median(taken)


# --- in processes of their own ----------------------------------------------------------------


async def search(port: int, at_once: int) -> None:
    """Search over and over until whoever asked is gone; answers once that has begun."""
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        searching = [asyncio.create_task(_search(client)) for _ in range(at_once)]
        await asyncio.sleep(0.5 if searching else 0)
        answer(at_once)
        async for _ in requests():
            pass
        for task in searching:
            task.cancel()
        await asyncio.gather(*searching, return_exceptions=True)


async def _search(client: httpx.AsyncClient) -> None:
    """As a browser does: one that is refused comes back when it is told to."""
    while True:
        found = await client.get(_SEARCH)
        if found.status_code != 200:
            await asyncio.sleep(float(found.headers.get("retry-after", "0")))


async def host(url: str) -> None:
    """Serve an application with a dashboard in it; answers with its port."""
    import uvicorn  # noqa: PLC0415 -- not where jobs are timed
    from starlette.applications import Starlette  # noqa: PLC0415
    from starlette.responses import PlainTextResponse  # noqa: PLC0415
    from starlette.routing import Mount, Route  # noqa: PLC0415

    from windlass._web.security.roles import Person, Role  # noqa: PLC0415

    async def ping(_: Request) -> Response:
        return PlainTextResponse("pong")

    app = App(url).windlass
    async with app:
        viewer = Person("a-viewer", Role.VIEWER)
        inside: Any = app.dashboard(auth=lambda _: viewer)
        made = Starlette(routes=[Route("/ping", ping), Mount("/windlass", inside)])
        with socket(AF_INET, SOCK_STREAM) as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen(128)
            server = uvicorn.Server(uvicorn.Config(made, log_level="warning", lifespan="off"))
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            answer(listening.getsockname()[1])
            async for _ in requests():  # until whoever asked is gone
                pass
            server.should_exit = True
            with suppress(asyncio.CancelledError):
                await serving
