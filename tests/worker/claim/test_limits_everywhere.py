"""Flow control as its users write it, by two apps with a worker each, on every backend."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from windlass import Backoff, Breaker, Failure, Throttled, Unique, Windlass
from windlass._core.job.event import Event, QueueCooled
from windlass._core.job.state import State
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass.errors import KeyConflict


class Upstream:
    """Somebody whom the handlers of both apps call."""

    def __init__(self) -> None:
        self.asked = 0
        self.answer: Exception | None = None

    def ask(self) -> int:
        self.asked += 1
        if self.answer is not None:
            raise self.answer
        return self.asked


class Shop:
    """The same tasks on two apps, as in two processes."""

    def __init__(self, url: str) -> None:
        self.upstream = Upstream()
        self.events: list[Event] = []
        self.told: list[Failure] = []
        # What lives in memory is seen by one app alone.
        self.apps = [self._make(url) for _ in range(1 if url == "memory://" else 2)]

    def _make(self, url: str) -> Windlass:
        app = Windlass(url, poll=0.05)
        app.on_transition(self.events.append)

        @app.task(name="tell")
        async def tell(failure: Failure) -> None:
            self.told.append(failure)

        @app.task(name="call", queue="api", max_attempts=1, on_failure=tell)
        async def call(number: int) -> int:
            return self.upstream.ask()

        @app.task(name="fuse", breaker=Breaker(failures=2, cool_down=600), max_attempts=1)
        async def fuse() -> int:
            return self.upstream.ask()

        @app.task(name="sync", unique=Unique(key="{user}", on_conflict="replace"))
        async def sync(user: int, what: str) -> str:
            return what

        @app.task(name="slow", queue="slow")
        async def slow() -> None:
            await asyncio.sleep(0.05)

        return app

    @property
    def app(self) -> Windlass:
        return self.apps[0]

    def task(self, name: str) -> Any:
        return self.app.tasks[name]


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


@asynccontextmanager
async def at_work(shop: Shop, **settings: Any) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for app in (shop.apps * 2)[:2]:
            await stack.enter_async_context(app.worker(**settings))
        async with asyncio.timeout(40):
            yield


async def until(look: Callable[[], Awaitable[object]]) -> None:
    while not await look():  # noqa: ASYNC110 -- other workers set no events
        await asyncio.sleep(0.02)


def cooled(shop: Shop) -> list[QueueCooled]:
    return [event for event in shop.events if isinstance(event, QueueCooled)]


async def test_one_hit_lets_the_queue_rest_for_every_worker(shop: Shop) -> None:
    shop.upstream.answer = Throttled(600)
    await shop.app.enqueue_many([shop.task("call").call(number) for number in range(20)])
    async with at_work(shop, slots=2):

        async def told() -> bool:
            return bool(cooled(shop))

        await until(told)
        await until(partial(_nothing_runs, shop, "api"))
        asked = shop.upstream.asked
        for _ in range(5):
            await (await shop.task("slow").enqueue()).result(timeout=20)
        assert shop.upstream.asked == asked < 20
        record = await shop.app.admin.queues.get("api")
        assert (record.cool_downs, record.cool_until) == (1, cooled(shop)[0].until)
        shop.upstream.answer = None
        await shop.app.admin.queues.warm("api")

        async def begun() -> bool:
            return shop.upstream.asked == 20

        await until(begun)
    assert len(cooled(shop)) == 1


async def _nothing_runs(shop: Shop, queue: str) -> bool:
    counts = {count.queue: count for count in await shop.app.admin.queues.counts()}
    return counts[queue].running == 0


async def test_a_breaker_holds_for_every_worker_until_it_is_reset(shop: Shop) -> None:
    shop.upstream.answer = ConnectionError()
    async with at_work(shop, slots=1):
        for _ in range(2):
            job = await shop.task("fuse").enqueue()
            await until(partial(_ended, job))
        held = await shop.task("fuse").enqueue()
        await (await shop.task("slow").enqueue()).result(timeout=20)
        (report,) = await shop.app.admin.breakers.list()
        assert (report.task, report.state, report.failures) == ("fuse", "open", 2)
        assert (await held.refresh()).attempt == 0
        shop.upstream.answer = None
        await shop.apps[-1].admin.breakers.reset("fuse")
        await held.result(timeout=20)
    (report,) = await shop.app.admin.breakers.list()
    assert (report.state, report.failures, report.running) == ("closed", 0, 0)


async def _ended(job: Any) -> bool:
    record = await job.refresh()
    return record.state in (State.FAILED, State.SUCCEEDED)


async def test_fifty_producers_make_one_job_with_the_last_arguments(shop: Shop) -> None:
    tasks: list[Any] = [app.tasks["sync"] for app in shop.apps]
    calls = [tasks[n % len(tasks)].options(delay=0.3).enqueue(7, f"{n}") for n in range(50)]
    jobs = await asyncio.gather(*calls)
    assert len({job.id for job in jobs}) == 1
    assert [job.created for job in jobs].count(True) == 1
    assert [job.replaced for job in jobs].count(True) == 49
    last = await tasks[0].enqueue(7, "last")
    with pytest.raises(KeyConflict):
        await tasks[-1].options(on_conflict="raise").enqueue(7, "never")
    async with at_work(shop):
        assert await last.result(timeout=20) == "last"


async def test_a_final_failure_calls_on_failure_with_its_arguments(shop: Shop) -> None:
    shop.upstream.answer = ValueError("no")
    async with at_work(shop):
        job = await shop.task("call").options(tenant="acme").enqueue(5)

        async def told() -> bool:
            return bool(shop.told)

        await until(told)
    (failure,) = shop.told
    assert (failure.job_id, failure.arguments, failure.tenant) == (job.id, {"number": 5}, "acme")
    (then,) = await shop.app.admin.jobs.find(JobFilter(task="tell"))
    assert (then.parent, then.state) == (job.id, State.SUCCEEDED)


async def test_settings_of_a_queue_reach_workers_that_run(shop: Shop) -> None:
    shop.upstream.answer = ConnectionError()
    async with at_work(shop, slots=5):
        await (await shop.task("slow").enqueue()).result(timeout=20)
        await shop.app.admin.queues.set("slow", max_running=1)
        await shop.app.admin.queues.set("api", backoff=Backoff.fixed(3600))
        most = 0

        async def all_ended() -> bool:
            nonlocal most
            counts = {count.queue: count for count in await shop.app.admin.queues.counts()}
            most = max(most, counts["slow"].running)
            return counts["slow"].ready + counts["slow"].running == 0

        await shop.app.enqueue_many([shop.task("slow").call() for _ in range(10)])
        await until(all_ended)
        assert most == 1, "from the next claim on"

        async def waits_long() -> bool:
            job = await shop.task("call").options(max_attempts=2).enqueue(1)
            await until(lambda: _has_run(job))
            record = await job.refresh()
            return bool((record.due - record.created_at).total_seconds() >= 3600)

        await until(waits_long)


async def _has_run(job: Any) -> bool:
    record = await job.refresh()
    return bool(record.attempt == 1 and record.state is State.WAITING)
