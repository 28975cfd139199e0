"""One browser, one shop and one server for all tests of a process: starting them takes longest."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
import pytest_asyncio
from playwright.async_api import Browser

from tests.web.browser.busy_shop import BusyShop, opened_shop
from tests.web.browser.driver import browser, served
from tests.web.fixtures import Room
from windlass._web.live.changes import LiveChanges
from windlass._web.routes import LOOKS, LOOKS_AT


class Scene(msgspec.Struct, frozen=True):
    """Where a test looks."""

    shop: BusyShop
    room: Room
    root: str
    chromium: Browser

    @property
    def pages(self) -> dict[str, str]:
        """Every page that only shows something, by name."""
        shop = self.shop
        return {
            "overview": "/overview",
            "jobs": "/jobs",
            "jobs-failed": "/jobs?state=failed&tag=vip",
            "jobs-none": "/jobs?queue=nothing-is-here",
            "job-succeeded": f"/jobs/{shop.succeeded}",
            "job-failed": f"/jobs/{shop.failed}",
            "job-retrying": f"/jobs/{shop.retrying}",
            "job-running": f"/jobs/{shop.running}",
            "job-scheduled": f"/jobs/{shop.scheduled}",
            "job-huge": f"/jobs/{shop.huge}",
            "flows": "/flows",
            "flow": f"/flows/{shop.flow}",
            "flow-large": f"/flows/{shop.large_flow}",
            "flow-part": f"/flows/{shop.flow}/parts/1",
            "errors": "/errors",
            "tasks": "/tasks",
            "queues": "/queues",
            "queue": "/queues/one?queue=billing",
            "schedules": "/schedules",
            "schedule": "/schedules/one?schedule=nightly",
            "schedule-edit": "/schedules/edit?schedule=nightly",
            "workers": "/workers",
            "worker": f"/workers/one?worker={shop.worker}",
            "hosts": "/hosts",
            "limits": "/limits",
            "limit-holders": "/limits/holders?limit=stripe",
            "events": "/events",
            "events-none": "/events?kind=expired&queue=nothing-is-here",
            "audit": "/audit",
            "storage": "/storage",
            "plugins": "/plugins",
        }

    @property
    def questions(self) -> dict[str, str]:
        """Every page that asks before something is done."""
        job = self.shop.failed
        return {
            "requeue": f"/jobs/requeue?job={job}&from=job",
            "requeue-all": "/jobs/requeue?scope=all&state=failed",
            "edit": f"/jobs/edit?job={self.shop.scheduled}&from=job",
            "cancel-flow": f"/flows/cancel?flow={self.shop.flow}",
            "pause": "/queues/pause?queue=mail",
            "queue-settings": "/queues/settings?queue=billing",
            "limit-set": "/limits/set?limit=stripe",
            "breaker-set": "/breakers/set?task=shop.billing.charge",
            "schedule-run": "/schedules/run?schedule=nightly",
        }


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def scene() -> AsyncIterator[Scene]:
    """The whole of it."""
    async with opened_shop() as shop:
        room = Room(shop.app, lines=False)
        room.dashboard.live = LiveChanges(shop.app.admin, LOOKS, LOOKS_AT, every=0.1)
        async with served(room) as root, browser() as chromium:
            yield Scene(shop, room, root, chromium)
