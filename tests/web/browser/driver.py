"""A real browser before a dashboard that is really served, in one event loop with the test."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Any

import uvicorn
from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    async_playwright,
    expect,
)

from tests.web.fixtures import Room
from windlass import Limit, Rate, Windlass
from windlass._app.parts import parts_of
from windlass._core.limits.breaker import Breaker
from windlass._storage.protocol.jobs import Want
from windlass._storage.protocol.workers import WorkerStart

__all__ = ["CHROMIUM", "DESKTOP", "PHONE", "Watched", "browser", "lively", "served", "watched"]

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
DESKTOP = {"width": 1440, "height": 900}
PHONE = {"width": 390, "height": 844}
PATIENCE = 30_000
"""Milliseconds: a busy machine may take its time, and who waits for an event goes on with it."""

expect.set_options(timeout=PATIENCE)


class Watched:
    """One tab, and what went wrong in it."""

    def __init__(self, page: Page, root: str) -> None:
        self.page = page
        self.root = root
        self.wrong: list[str] = []
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        page.on("dialog", lambda dialog: self.wrong.append(f"dialog: {dialog.message}"))
        page.on("request", self._asked)

    def _said(self, said: ConsoleMessage) -> None:
        if said.type in {"error", "warning"}:
            self.wrong.append(f"console: {said.text}")

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self.root, "data:", "blob:")):
            self.wrong.append(f"elsewhere: {request.url}")

    async def open(self, path: str) -> Page:
        await self.page.goto(f"{self.root}{path}")
        return self.page

    async def picture(self, name: str) -> None:
        """For people to look at, where the run was told to keep them."""
        folder = os.environ.get("WINDLASS_TEST_SCREENSHOTS")
        if folder:
            await self.page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)


@asynccontextmanager
async def served(room: Room) -> AsyncIterator[str]:
    """The room behind a server on a port of its own."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            room.asgi, lifespan="off", log_config=None, timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        server.capture_signals = nullcontext  # type: ignore[method-assign,assignment]
        running = asyncio.create_task(server.serve(sockets=[listening]))
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            room.dashboard.live.close()
            server.should_exit = True
            await running


@asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """Debian's; Playwright only drives it."""
    async with async_playwright() as driver:
        # As root there is no sandbox to be had; the pages are our own.
        # The rest keeps it from calling home; most of it Playwright says already.
        quiet = ["--disable-gpu", "--disable-quic", "--disable-component-update", "--disable-sync"]
        opened = await driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", *quiet]
        )
        yield opened
        await opened.close()


@asynccontextmanager
async def watched(one: Browser, room: Room, root: str, **settings: Any) -> AsyncIterator[Watched]:
    """A tab of somebody who came in by the link; it must have stayed without complaint."""
    context: BrowserContext = await one.new_context(**{"viewport": DESKTOP, **settings})
    context.set_default_timeout(PATIENCE)
    tab = Watched(await context.new_page(), root)
    await tab.open(f"/enter?link={room.door.new_link()}")
    yield tab
    await context.close()
    assert tab.wrong == [], tab.wrong


async def lively(app: Windlass) -> None:
    """Something of everything, with long names among the short ones."""
    limits = [Limit("stripe", rate=Rate(25, 1.0, 5), concurrency=4), Limit("pdf", concurrency=2)]
    tasks = {}
    for name, queue in [
        ("shop.mail.send_receipt", "mail"),
        ("shop.billing.charge", "billing"),
        ("shop.reports.render_monthly_statement", "reports"),
        ("shop.search.reindex", "search"),
        ("shop.imports.partner", "imports-from-partners-with-a-rather-long-name"),
    ]:
        more: dict[str, Any] = {}
        if queue == "billing":
            more = {"limits": [limits[0]], "breaker": Breaker(failures=5)}
        if queue == "reports":
            more = {"limits": [limits[1]]}

        @app.task(name=name, queue=queue, **more)
        async def handler(number: int) -> None: ...

        tasks[queue] = handler
    storage = await parts_of(app).storage()
    await parts_of(app).workers.dependencies()
    for number, task in enumerate(tasks.values()):
        for job in range(3 + 7 * number):
            await task.enqueue(job)
    for number, host in enumerate(["web-1", "web-2", "batch-7.eu-central.internal.example"]):
        start = WorkerStart(
            id=f"w{number:012x}",
            host=host,
            pid=4711 + number,
            version="0.1.0",
            queues=list(tasks)[: 5 - number],
            slots=10 * (number + 1),
            lease=timedelta(seconds=30),
        )
        await storage.workers.register(start)
        await storage.workers.beat(start.id, memory=(113 + 40 * number) * 1_000_000)
        wants = [Want(queue, 4) for queue in start.queues]
        await storage.jobs.claim(start.id, wants, total=4 * (number + 1))
    await storage.workers.bury(["w000000000002"])
    await app.admin.queues.pause("search")
    await app.admin.queues.set("billing", max_running=8)
    await app.admin.limits.drain("stripe")
