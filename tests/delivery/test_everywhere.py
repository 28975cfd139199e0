"""The same with the real clock, on every backend: one idle worker that does not live on polling."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from windlass import Backoff, Breaker, Context, Every, Limit, Rate, Retry, Throttled, Windlass
from windlass._tasks.task import Task

LATE = 0.4
"""Seconds that a busy machine may take to start what is due; a poll would take a minute."""


class Shop:
    """One app, and when its handlers were entered."""

    def __init__(self, url: str) -> None:
        self.app = Windlass(url, poll=60)
        self.starts: list[float] = []

    def task(self, seconds: float = 0.0, **options: Any) -> Task[[], None]:
        """A task that notes when it starts, and takes some time."""

        @self.app.task(name=f"note-{len(self.app.tasks)}", **options)
        async def note() -> None:
            self.starts.append(time.monotonic())
            await asyncio.sleep(seconds)

        return note

    @asynccontextmanager
    async def at_work(self, **settings: Any) -> AsyncIterator[None]:
        async with self.app.worker(**settings), asyncio.timeout(40):
            yield

    def started(self, count: int) -> bool:
        return len(self.starts) >= count

    def down(self) -> bool:
        """Whether somebody upstream is not there: shortly after the first has asked."""
        self.starts.append(time.monotonic())
        return self.starts[-1] - self.starts[0] < 0.5

    def later(self) -> list[float]:
        """Starts since then, in seconds from the first one. What was claimed before the first
        outcome was stored has started, too.
        """
        return [at for start in self.starts if (at := start - self.starts[0]) >= 0.5]

    async def idle(self) -> None:
        """Let the worker find out that there is nothing to do."""
        since = time.monotonic()
        await self.until(lambda: time.monotonic() - since > 0.1)

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition():  # noqa: ASYNC110 -- handlers set no events
            await asyncio.sleep(0.005)


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
    async with made.app:
        yield made


@pytest.mark.parametrize(("n", "seconds"), [(10, 2.0), (200, 1.5)])
async def test_a_rate_is_delivered(shop: Shop, n: int, seconds: float) -> None:
    rate = Rate(n, per=1)
    note = shop.task(limits=[Limit("api", rate=rate)])
    await shop.app.enqueue_many([note.call()] * math.ceil(n * seconds + rate.burst))
    wanted = math.ceil(n * seconds)
    async with shop.at_work():
        await shop.until(partial(shop.started, wanted))
    spent = shop.starts[wanted - 1] - shop.starts[0]
    # 95 % on a machine that has nothing else to do: the benchmark measures it.
    assert seconds - rate.burst / n - LATE <= spent <= seconds / 0.8


async def test_a_delay_and_a_retry_are_kept_and_hardly_exceeded(shop: Shop) -> None:
    @shop.app.task(name="flaky", backoff=Backoff.fixed(0.5), max_attempts=2)
    async def flaky(ctx: Context) -> None:
        shop.starts.append(time.monotonic())
        if ctx.attempt == 1:
            raise ValueError("again")

    async with shop.at_work():
        await shop.idle()
        begun = time.monotonic()
        await flaky.options(delay=0.5).enqueue()
        await shop.until(lambda: len(shop.starts) == 2)
    first, second = (start - begun for start in shop.starts)
    assert 0.5 <= first <= 0.5 + LATE
    assert 0.5 <= second - first <= 0.5 + LATE


async def test_an_idle_worker_starts_what_is_enqueued_at_once(shop: Shop) -> None:
    note = shop.task()
    async with shop.at_work():
        for number in range(5):
            await shop.idle()
            asked = time.monotonic()
            await note.enqueue()
            await shop.until(partial(shop.started, number + 1))
            assert shop.starts[-1] - asked <= LATE


async def test_a_queue_that_has_cooled_down_is_served_again(shop: Shop) -> None:
    @shop.app.task(name="call")
    async def call() -> None:
        if shop.down():
            raise Throttled(1)

    await shop.app.enqueue_many([call.call()] * 5)
    async with shop.at_work(slots=1):
        await shop.until(lambda: len(shop.later()) == 5)
    assert 1 <= shop.later()[0] <= 1 + LATE
    assert shop.later()[-1] <= 1 + 2 * LATE


async def test_a_breaker_tries_when_it_may(shop: Shop) -> None:
    @shop.app.task(name="call", breaker=Breaker(1, cool_down=1), max_attempts=2)
    async def call() -> None:
        if shop.down():
            raise Retry("down", after=0)

    await shop.app.enqueue_many([call.call()] * 5)
    async with shop.at_work(slots=1):
        await shop.until(lambda: len(shop.later()) == 5)
    assert 1 <= shop.later()[0] <= 1 + LATE
    assert shop.later()[-1] <= 1 + 3 * LATE


@pytest.mark.parametrize("held_by", ["queue", "limit"])
async def test_a_concurrency_of_three_is_used(shop: Shop, held_by: str) -> None:
    limits = [Limit("db", concurrency=3)] if held_by == "limit" else []
    note = shop.task(seconds=0.2, limits=limits)
    if held_by == "queue":
        await shop.app.admin.queues.set("default", max_running=3)
    await shop.app.enqueue_many([note.call()] * 15)
    async with shop.at_work(slots=5), shop.app.worker(slots=5):
        await shop.until(lambda: len(shop.starts) == 15)
    assert 0.8 <= shop.starts[-1] - shop.starts[0] <= 0.8 + 2 * LATE


async def test_every_slot_of_a_period_is_fired(shop: Shop) -> None:
    shop.app.schedule(Every(1), name="tick")(shop.task().call())
    async with shop.at_work():
        await shop.until(lambda: len(shop.starts) == 3)
    gaps = [after - before for before, after in zip(shop.starts, shop.starts[1:], strict=False)]
    assert all(1 - LATE <= gap <= 1 + LATE for gap in gaps)


async def test_many_that_fall_due_together_start_together(shop: Shop) -> None:
    note = shop.task()
    await shop.app.enqueue_many([note.options(delay=1).call()] * 1200)
    async with shop.at_work(slots=50):
        await shop.until(lambda: len(shop.starts) == 1200)
    assert shop.starts[-1] - shop.starts[0] <= 5 * LATE
