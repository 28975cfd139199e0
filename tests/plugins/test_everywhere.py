"""What is granted holds for the whole cluster: two apps with a worker each, on every backend."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from tests.plugins.fakes import Some
from windlass import Breaker, Context, Every, Grants, Registrar, Windlass
from windlass._app.parts import parts_of
from windlass._core.job.state import State
from windlass._schedules.edits import UNINSTALLED
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._system.seams import Seams

GRANTS = Grants(tasks=True, schedules=True, queues=["default"], max_running=2)


class Cluster:
    """The same plugin in two apps, as in two processes."""

    def __init__(self, url: str) -> None:
        self.running: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        # What lives in memory is seen by one app alone.
        self.apps = [Windlass(url, poll=0.05) for _ in range(1 if url == "memory://" else 2)]
        self.plugin = Some(self._say)
        for app in self.apps:
            app.install(self.plugin, grants=GRANTS)

    def _say(self, registrar: Registrar) -> None:
        async def work(ctx: Context) -> None:
            for name in (ctx.task, "all"):
                self.running[name] += 1
                self.most[name] = max(self.most[name], self.running[name])
            await asyncio.sleep(0.02)
            for name in (ctx.task, "all"):
                self.running[name] -= 1

        registrar.task(name="single", concurrency=1)(work)
        registrar.task(name="several")(work)

        @registrar.schedule(Every(0.2))
        @registrar.task(breaker=Breaker(failures=2, cool_down=600), max_attempts=1)
        async def tick() -> None:
            raise RuntimeError("always")

    @property
    def app(self) -> Windlass:
        return self.apps[0]


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis"])
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    match request.param:
        case "memory":
            url = "memory://"
        case "sqlite":
            url = f"sqlite:///{tmp_path}/jobs.db"
        case backend:
            url = request.getfixturevalue(f"{backend}_url")
    made = Cluster(url)
    async with AsyncExitStack() as stack:
        for app in made.apps:
            await stack.enter_async_context(app)
        yield made


@asynccontextmanager
async def at_work(cluster: Cluster) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for app in (cluster.apps * 2)[:2]:
            await stack.enter_async_context(app.worker(slots=5))
        async with asyncio.timeout(40):
            yield


async def until(look: Callable[[], Awaitable[object]]) -> None:
    while not await look():  # noqa: ASYNC110 -- other workers set no events
        await asyncio.sleep(0.02)


async def test_bounds_hold_over_all_workers_and_a_breaker_over_all_runs(cluster: Cluster) -> None:
    app = cluster.app
    single, several = app.tasks["some.single"], app.tasks["some.several"]
    calls = [*[single.call() for _ in range(4)], *[several.call() for _ in range(12)]]
    jobs = await app.enqueue_many(calls)
    seen = 0
    async with at_work(cluster):

        async def all_ended() -> bool:
            nonlocal seen
            report = await app.admin.plugins.get("some")
            assert report.running is not None
            seen = max(seen, report.running)
            return all([(await job.refresh()).state is State.SUCCEEDED for job in jobs])

        await until(all_ended)

        async def is_open() -> bool:
            states = {one.task: one.state for one in await app.admin.breakers.list()}
            return states["some.tick"] == "open"

        await until(is_open)
        states = {one.task: one.state for one in await app.admin.breakers.list()}
    assert cluster.most == {"some.single": 1, "some.several": 2, "all": 2}
    assert seen <= 2
    assert states == {
        "some.single": "closed",
        "some.several": "closed",
        "some.tick": "open",
    }, "each task of a plugin has a breaker of its own"
    runs = await app.admin.jobs.find(JobFilter(task="some.tick"), limit=100)
    assert 2 <= len([run for run in runs if run.state is State.FAILED]) <= 4


async def test_an_uninstalled_plugins_schedules_are_held_for_every_process(
    cluster: Cluster,
) -> None:
    app, other = cluster.app, cluster.apps[-1]
    async with at_work(cluster):

        async def has_fired() -> bool:
            return bool((await app.admin.schedules.get("some.tick")).fired)

        await until(has_fired)
        await app.uninstall("some")
        report = await other.admin.schedules.get("some.tick")
        assert (report.state, report.problem) == ("held", UNINSTALLED)
        assert report.runs
    fired = report.fired
    async with at_work(cluster):  # the other one has it, and starts anew
        if other is not app:
            assert (await other.admin.schedules.get("some.tick")).state == "active"
        else:
            assert (await app.admin.schedules.get("some.tick")).state == "held"
            app.install(cluster.plugin, grants=GRANTS)

        async def goes_on() -> bool:
            report = await app.admin.schedules.get("some.tick")
            return report.fired + report.left_out > fired

        await until(goes_on)


async def test_a_due_run_that_no_worker_can_run_fails_and_opens_its_breaker(
    cluster: Cluster,
) -> None:
    """As when a deploy has lost a plugin whose schedules are stored."""

    def say(registrar: Registrar) -> None:
        @registrar.schedule(Every(0.2))
        @registrar.task(breaker=Breaker(failures=1, cool_down=600))
        async def tick() -> None: ...

    app = cluster.app
    for each in cluster.apps:
        await each.uninstall("some")
    app.install(Some(say, "lost"), grants=GRANTS)
    async with app.worker():
        pass  # it has brought the schedule in
    poor = Windlass(app.settings.url, poll=0.05)
    # The same store, also where that lives in memory.
    shared = parts_of(poor).connections.replaced(parts_of(app).connections.opener, Seams())

    async def failed() -> bool:
        for job in await app.admin.jobs.find(JobFilter(task="lost.tick"), limit=100):
            if job.state is State.FAILED:
                assert job.error is not None
                assert job.error.kind == "PluginUnknown"
                return True
            await app.admin.jobs.run_now(job.id)  # it comes back in a quarter of a minute
        return False

    with shared:
        async with poor, poor.worker(), asyncio.timeout(40):
            await until(failed)
            (breaker,) = [one for one in await app.admin.breakers.list() if one.task == "lost.tick"]
            assert (breaker.state, breaker.failures) == ("open", 1)
