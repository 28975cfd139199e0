"""Limits of tasks, held by two workers on every backend."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.worker.process_app import app as heavy
from windlass import Limit, Rate, Windlass, testing
from windlass._core.job.job import LimitUse
from windlass._tasks.handle import Job
from windlass._tasks.task import Task

TENANTS = ("acme", "bolt", "cone")
RATE = Rate(25, per=1, burst=3)


class Shop:
    """The same tasks on two apps, as in two processes."""

    def __init__(self, url: str) -> None:
        # What lives in memory is seen by one app alone.
        self.apps = [Windlass(url, poll=0.05) for _ in range(1 if url == "memory://" else 2)]
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.calls, self.builds = [], []
        for app in self.apps:
            calls = Limit("calls", RATE, key="{tenant}", cost="{cost}")
            seats = Limit("seats", concurrency=2, key="{tenant}")
            self.calls.append(app.task(limits=calls)(call))
            self.builds.append(app.task(limits=[seats], name="build")(self._build))

    async def _build(self, tenant: str) -> None:
        self.running[tenant] += 1
        self.most[tenant] = max(self.most[tenant], self.running[tenant])
        self.most["all"] = max(self.most["all"], self.running.total())
        await asyncio.sleep(0.02)
        self.running[tenant] -= 1


async def call(tenant: str, cost: float = 1) -> None:
    """Call somebody who counts."""


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shop]:
    match request.param:
        case "memory":
            url = "memory://"
        case "sqlite":
            url = f"sqlite:///{tmp_path}/jobs.db"
        case backend:
            url = request.getfixturevalue(f"{backend}_url")
    made = Shop(url)
    async with AsyncExitStack() as stack:
        for app in made.apps:
            await stack.enter_async_context(app)
        yield made


async def run(shop: Shop, jobs: list[Job[Any]]) -> None:
    """With two workers."""
    async with AsyncExitStack() as stack:
        for app in (shop.apps * 2)[:2]:
            await stack.enter_async_context(app.worker(slots=10))
        async with asyncio.timeout(40):
            await asyncio.gather(*(job.result() for job in jobs))


async def enqueued(shop: Shop, tasks: list[Task[..., Any]], count: int) -> list[Job[Any]]:
    """By every app in turn."""
    jobs: list[Job[Any]] = []
    for number, app in enumerate(shop.apps):
        mine = range(number, count, len(shop.apps))
        calls = [tasks[number].call(tenant) for _ in mine for tenant in TENANTS]
        jobs += await app.enqueue_many(calls)
    return jobs


async def starts(jobs: list[Job[Any]]) -> dict[str, list[datetime]]:
    """When jobs were claimed, by the clock of their storage, for each key."""
    found: dict[str, list[datetime]] = {tenant: [] for tenant in TENANTS}
    for job in jobs:
        record = await job.refresh()
        assert record.started_at is not None
        found[record.limits[0].key].append(record.started_at)
    return {tenant: sorted(instants) for tenant, instants in found.items()}


def most_in_a_window(instants: list[datetime], width: timedelta) -> int:
    return max(sum(at <= other < at + width for other in instants) for at in instants)


async def test_a_rate_holds_for_each_key_in_every_window(shop: Shop) -> None:
    jobs = await enqueued(shop, shop.calls, 40)
    await run(shop, jobs)
    by_tenant = await starts(jobs)
    for instants in by_tenant.values():
        assert len(instants) == 40
        assert most_in_a_window(instants, RATE.per) <= RATE.n + RATE.burst - 1
        took = instants[-1] - instants[0]
        assert took >= RATE.spacing * (40 - RATE.burst), "as many tokens had to come"
    first, last = zip(*((each[0], each[-1]) for each in by_tenant.values()), strict=True)
    assert max(first) < min(last), "no tenant waits for the tokens of another"


async def test_a_dear_job_takes_the_tokens_of_many(shop: Shop) -> None:
    (task, *_), tenant = shop.calls, TENANTS[0]
    dear = await task.enqueue(tenant, cost=13)
    cheap = await task.enqueue(tenant)
    await run(shop, [dear, cheap])
    first, second = [(await job.refresh()).started_at for job in (dear, cheap)]
    assert first is not None
    assert second is not None
    # It starts on a full bucket of three and leaves a debt of ten; the next one needs a token.
    assert (second - first).total_seconds() >= (13 - 3 + 1) / 25 - 0.001


async def test_a_concurrency_holds_for_each_key_and_is_used(shop: Shop) -> None:
    await run(shop, await enqueued(shop, shop.builds, 12))
    assert {tenant: shop.most[tenant] for tenant in TENANTS} == dict.fromkeys(TENANTS, 2)
    assert shop.most["all"] > 2


async def test_numbers_changed_at_run_time_hold_without_a_restart(shop: Shop) -> None:
    app, (task, *_) = shop.apps[0], shop.builds
    jobs = [await task.enqueue("acme")]
    await app.admin.limits.set("seats", concurrency=1)
    jobs += await enqueued(shop, shop.builds, 5)
    await run(shop, jobs)
    assert {tenant: shop.most[tenant] for tenant in TENANTS} == dict.fromkeys(TENANTS, 1)


@pytest.mark.parametrize("executor", ["loop", "process-async"])
async def test_jobs_that_a_handler_enqueues_count_too(executor: str) -> None:
    with testing.isolated(heavy):
        async with heavy, heavy.worker(slots=2):
            made = await (await heavy.tasks[f"{executor}.follow"].enqueue("acme")).result(20)
            assert (await heavy.job(made).refresh()).limits == (LimitUse("follow", "acme", 4),)
