"""A shop whose worker really works: something of everything that a page can show."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import msgspec

from windlass import Backoff, Context, Flow, GiveUp, Limit, Rate, Throttled, Windlass, ended
from windlass._app.parts import parts_of
from windlass._core.job.job import FlowId, JobId, JobRecord
from windlass._core.job.state import State
from windlass._core.limits.breaker import Breaker
from windlass._core.schedule.rules import Cron, Every
from windlass._core.stats.gauges import STORAGE, first_gauges
from windlass._core.stats.rollup import minute_of
from windlass._storage.memory import MemoryStorage

__all__ = ["BusyShop", "opened_shop", "until"]

MINUTE = timedelta(minutes=1)
LONG = "a-queue-whose-name-goes-on-and-on-because-somebody-generates-names-for-every-customer"


class BusyShop(msgspec.Struct, frozen=True):
    """The app, and jobs of it to look at."""

    app: Windlass
    succeeded: JobId
    failed: JobId
    retrying: JobId
    running: JobId
    scheduled: JobId
    huge: JobId
    worker: str
    flow: FlowId
    large_flow: FlowId
    """It has more parts than a picture shows."""


@asynccontextmanager
async def opened_shop() -> AsyncIterator[BusyShop]:
    """Open, with a worker, until the block ends."""
    app = Windlass("memory://", event_log=True)
    held = asyncio.Event()

    @app.task(name="shop.mail.send_receipt", queue="mail")
    async def send(ctx: Context, to: str, *, subject: str = "") -> dict[str, str]:
        ctx.log("connected to the mail server")
        return {"to": to, "subject": subject}

    @app.task(
        name="shop.billing.charge",
        queue="billing",
        max_attempts=1,
        breaker=Breaker(failures=3, cool_down=timedelta(hours=1)),
        limits=[Limit("stripe", rate=Rate(25, 1.0, 5), concurrency=4)],
    )
    async def charge(order: int, *, card: dict[str, str]) -> None:
        raise ConnectionRefusedError(f"the bank refused order {order}: " + "try again later " * 12)

    @app.task(
        name="shop.webhooks.call", queue="webhooks", backoff=Backoff.fixed(timedelta(hours=1))
    )
    async def call(url: str) -> None:
        raise TimeoutError(f"no answer from {url}")

    @app.task(name="shop.imports.catalogue", queue="imports")
    async def catalogue(ctx: Context, rows: int) -> None:
        for step in range(1, 60):
            ctx.log("row %d of %d has no price", step, rows)
        ctx.progress(0.42, f"row {rows * 42 // 100:,} of {rows:,}")
        await held.wait()

    @app.task(name="shop.reports.monthly", queue=LONG)
    async def monthly(number: int) -> None:
        reason = "there is no such month"
        raise GiveUp(reason)

    @app.task(name="shop.billing.refund", queue="refunds", max_attempts=1)
    async def refund(order: int) -> None:
        raise LookupError(order)

    @app.task(name="shop.partners.poll", queue="partners")
    async def poll() -> None:
        raise Throttled(3600)

    @app.schedule(Every(timedelta(days=9)), name="stock-taking")
    @app.task(name="shop.stock.take", queue="stock")
    async def take() -> None: ...

    async with app, app.worker(slots=8) as worker:
        try:
            jobs = [await send.enqueue(f"{n}@example.org", subject="Thanks") for n in range(12)]
            wrong = [
                await charge.options(tags=["vip", "eu"]).enqueue(
                    n, card={"number": "4242", "password": "hunter22"}
                )
                for n in range(3)
            ]
            again = await call.enqueue("https://partner.example/hook?" + "x" * 120)
            await monthly.enqueue(13)
            slow = await catalogue.enqueue(120_000)
            later = await send.options(delay=3600, priority=5).enqueue("later@example.org")
            huge = await send.options(delay=3600).enqueue("big@example.org", subject="x" * 200_000)
            await app.admin.jobs.cancel(huge.id)  # what waits is looked at again and again
            await poll.enqueue()
            await send.options(queue="paused-queue").enqueue("never@example.org")
            await app.admin.acting("ada").queues.pause("paused-queue")
            await app.admin.queues.set("billing", max_running=8)
            await app.admin.schedules.create("nightly", Cron("0 3 * * *"), send.call("a@b.example"))
            await app.admin.schedules.create("often", Every(timedelta(hours=1)), monthly.call(1))
            await app.admin.schedules.pause("often")
            async with asyncio.timeout(20):
                for job in jobs:
                    await until(app, job.id, lambda found: found.state is State.SUCCEEDED)
                for bad in wrong:
                    await until(app, bad.id, lambda found: found.state is State.FAILED)
                await until(app, again.id, lambda found: found.error is not None)
                await until(app, slow.id, lambda found: found.progress is not None)
            await measured_for_hours(app)
            flow, large_flow = await flows_under_way(app)
            yield BusyShop(
                app=app,
                succeeded=jobs[0].id,
                failed=wrong[0].id,
                retrying=again.id,
                running=slow.id,
                scheduled=later.id,
                huge=huge.id,
                worker=worker.id,
                flow=flow,
                large_flow=large_flow,
            )
        finally:
            held.set()


async def flows_under_way(app: Windlass) -> tuple[FlowId, FlowId]:
    """Start two flows that wait for jobs of the next hour: one of a few parts, one of many."""
    send = app.tasks["shop.mail.send_receipt"]
    later = send.options(delay=3600)
    small = Flow("monthly statements", key="statements:12", on_failed=send.call("ops@example.org"))
    first = small.add(send.call("first@example.org"))
    rows = small.map_calls(
        [later.call(f"{n}@example.org") for n in range(20)], after=first, name="one per customer"
    )
    group = small.group("all regions with a long name")
    for region in ("north", "south"):
        group.add(send.call(f"{region}@example.org"), after=ended(rows), name=f"region {region}")
    small.add(send.call("report@example.org"), after=group, name="report")
    run = await app.start(small)
    await until(app, first.id, lambda found: found.state is State.SUCCEEDED)
    large = Flow("many regions")
    begin = large.add(later.call("begin@example.org"))
    for number in range(4):
        node = large.add(send.call("a@example.org"), after=begin, name=f"region {number}")
        for step in range(20):
            large.add(send.call(f"{step}@example.org"), after=node, name="row")
    return run.id, (await app.start(large)).id


async def measured_for_hours(app: Windlass) -> None:
    """Write gauges of the last hours: a worker stores only those of this minute."""
    storage = await parts_of(app).storage()
    assert isinstance(storage, MemoryStorage)
    gib, now = 2.0**30, minute_of(await storage.now())
    for ago in range(400):
        wave = math.sin(ago / 25)
        for number, host in enumerate(("web-1", "web-2", "batch-1")):
            values = {
                "cpu": 0.35 + 0.2 * wave + 0.1 * number,
                "memory_used": (5 + number + wave) * gib,
                "memory_total": 16 * gib,
                "disk_used": (60 - ago / 50) * gib,
                "disk_total": 100 * gib,
            }
            storage._db.gauges[now - ago * MINUTE, host] = first_gauges(values)
        storage._db.gauges[now - ago * MINUTE, STORAGE] = first_gauges(
            {
                "size": (300 - ago / 4) * 2**20,
                "jobs_ready": 40 + 30 * wave,
                "jobs_scheduled": 12.0,
                "jobs_running": 8.0,
                "jobs_failed": 5 - ago // 100,
                "read_p95": 0.002 + 0.001 * wave,
                "write_p95": 0.006 + 0.003 * wave,
            }
        )


async def until(app: Windlass, job: JobId, fits: Callable[[JobRecord], bool]) -> None:
    """Wait for the worker to come so far."""
    while not fits(await app.admin.jobs.get(job)):  # noqa: ASYNC110 -- nobody tells the test
        await asyncio.sleep(0.02)
