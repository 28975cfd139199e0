"""Streams: what a hundred open pages of the dashboard cost a worker.

The drain of `figures.drain` twice, in rounds that alternate: with nobody looking, and with the
dashboard served by a process of its own, which a hundred pages listen to that show everything.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from socket import AF_INET, SOCK_STREAM, socket
from typing import TYPE_CHECKING

from benchmarks.child import answer, child, requests
from benchmarks.figure import Figure, Target
from benchmarks.figures.drain import SLOTS, rate
from benchmarks.place import Place
from benchmarks.stage import Stage, alternate
from benchmarks.worker import App, fill, make_calls

if TYPE_CHECKING:
    from starlette.requests import Request

    from windlass._web.app import Dashboard

__all__ = ["dashboard", "measure"]

STREAMS = 100
_LEAST = 0.9


async def measure(stage: Stage) -> list[Figure]:
    """Compare a drain that is watched with one that is not."""
    sizes, place, listener = stage
    jobs = sizes.drain_jobs
    rounds = await alternate(
        sizes.rounds,
        {
            "alone": functools.partial(_drain, place, jobs, 0),
            "watched": functools.partial(_drain, place, jobs, STREAMS),
        },
        listener,
    )
    return [
        Figure(
            name="streams",
            title=f"drain while {STREAMS} pages are open",
            measured=rounds["watched"],
            unit="jobs/s",
            yardstick=rounds["alone"],
            yardstick_name="nobody looks",
            target=Target("at least", _LEAST, "ratio"),
            note=f"{jobs:,} no-op coroutine jobs; {rounds.spread('watched')}; the dashboard is "
            f"another process on the same machine",
        )
    ]


async def _drain(place: Place, jobs: int, streams: int) -> float:
    with place.scratch() as url:
        await fill(place, url, lambda app: make_calls(app.noop, jobs))
        async with _watched(url, streams):
            return await rate(url, jobs, workers=1, slots=SLOTS)


@asynccontextmanager
async def _watched(url: str, streams: int) -> AsyncIterator[None]:
    """So many streams are open while the block lasts."""
    if not streams:
        yield
        return
    async with child(dashboard, url=url) as serving:
        port, parts = await serving.hear()
        open_ones = [await _listen(port, parts, f"person-{n}") for n in range(streams)]
        readers = [asyncio.create_task(_read(reader)) for reader, _ in open_ones]
        try:
            yield
            if any(reader.done() for reader in readers):
                raise RuntimeError("a stream ended before the drain did")
        finally:
            for reader in readers:
                reader.cancel()
            for _, writer in open_ones:
                writer.close()
            await asyncio.wait(readers)


async def _listen(
    port: int, parts: str, who: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    asked = f"/live?parts={parts}&who={who}"
    writer.write(f"GET {asked} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in head.splitlines()[0]:
        raise RuntimeError(f"no stream: {head!r}")
    return reader, writer


async def _read(reader: asyncio.StreamReader) -> None:
    while await reader.read(4096):
        pass


# --- in a process of its own ------------------------------------------------------------------


async def dashboard(url: str) -> None:
    """Serve the dashboard; answers with its port and everything that a page can show live."""
    from windlass._cli.dashboard.server import DashboardServer  # noqa: PLC0415 -- not where jobs are timed
    from windlass._web.routes import LOOKS  # noqa: PLC0415
    from windlass._web.security.roles import Person, Role  # noqa: PLC0415

    def person(request: Request) -> Person:
        return Person(request.query_params.get("who", "somebody else"), Role.ADMIN)

    app = App(url).windlass
    async with app:
        made: Dashboard = app.dashboard(auth=person).state.windlass_dashboard
        with socket(AF_INET, SOCK_STREAM) as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen(STREAMS)
            server = DashboardServer(made, root_path="", proxies=())
            serving = asyncio.create_task(server.serve(sockets=[listening]))
            answer((listening.getsockname()[1], ",".join(LOOKS)))
            async for _ in requests():  # until whoever asked is gone
                pass
            server.should_exit = True
            with suppress(asyncio.CancelledError):
                await serving
