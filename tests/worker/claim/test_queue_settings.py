"""What operators set for a queue reaches running workers, and decides where nobody else has."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from tests.worker.fixtures import Bench, Hook, World, bench, simulate, working
from windlass import Backoff
from windlass._app.parts import parts_of
from windlass._core.job.job import JobRecord
from windlass._core.job.state import State
from windlass._core.limits.backoff import DEFAULT_BACKOFF
from windlass._tasks.task import Task
from windlass._worker.liveness.leader import Leader
from windlass._worker.liveness.maintenance import Pruner
from windlass.errors import JobNotFound, StorageUnavailable

SECOND = timedelta(seconds=1)


def failing(it: Bench, name: str = "job", **options: Any) -> Task[[], None]:
    @it.app.task(name=name, **options)
    async def job() -> None:
        raise ValueError

    return job


async def wait_of(it: Bench, job: JobRecord) -> timedelta:
    assert job.state is State.WAITING
    return job.due - it.clock.now()


# --- precedence ----------------------------------------------------------------------------------


async def test_backoff_is_the_call_s_the_task_s_the_queue_s_the_default_in_this_order() -> None:
    async with bench() as it:
        plain, own = failing(it), failing(it, "own", backoff=Backoff.fixed(20))
        first = DEFAULT_BACKOFF.delay(1, 0.5)
        assert await wait_of(it, await it.run(plain.call())) == first
        await it.app.admin.queues.set("default", backoff=Backoff.fixed(30))
        assert await wait_of(it, await it.run(plain.call())) == 30 * SECOND
        assert await wait_of(it, await it.run(own.call())) == 20 * SECOND
        called = own.options(backoff=Backoff.fixed(10)).call()
        assert await wait_of(it, await it.run(called)) == 10 * SECOND
        await it.app.admin.queues.set("default", backoff=None)
        assert await wait_of(it, await it.run(plain.call())) == first


async def test_a_queue_s_settings_hold_for_its_own_jobs_alone() -> None:
    async with bench() as it:
        task = failing(it)
        await it.app.admin.queues.set("slow", backoff=Backoff.fixed(300))
        assert await wait_of(it, await it.run(task.call())) == DEFAULT_BACKOFF.delay(1, 0.5)


async def test_lost_jobs_of_unknown_tasks_follow_their_queue() -> None:
    async with bench() as it:
        await it.app.admin.queues.set("default", backoff=Backoff.fixed(77))
        await it.engine.decisions.queues.step()
        job = await failing(it).enqueue()
        reply = await it.store.storage.jobs.claim(
            it.engine.identity.id, it.engine.slots.wants()[0], total=1
        )
        (claimed,) = reply.jobs
        assert claimed.claim.job == job.id
        for name in it.app.tasks.names:
            it.app.tasks.remove(name)
        assert it.engine.decisions.policy_of(claimed).backoff == Backoff.fixed(77)


async def test_a_queue_may_keep_nothing_where_the_app_keeps_all_and_the_other_way_round() -> None:
    async with bench() as it:

        @it.app.task(name="job")
        async def job() -> None: ...

        await it.app.admin.queues.set("default", keep_succeeded=0)
        with pytest.raises(JobNotFound):
            await it.run(job.call())
    async with bench(keep_succeeded=0) as it:

        @it.app.task(name="job")
        async def kept() -> None: ...

        await it.app.admin.queues.set("default", keep_succeeded=60)
        assert (await it.run(kept.call())).state is State.SUCCEEDED


async def test_retention_of_a_queue_is_its_own() -> None:
    async with bench(keep_succeeded=3600, keep_failed=3600) as it:

        @it.app.task(name="good")
        async def good() -> None: ...

        bad = failing(it, "bad", max_attempts=1)
        await it.app.admin.queues.set("default", keep_succeeded=60, keep_failed=7200)
        jobs = [await it.run(good.call()), await it.run(bad.call())]
        leader = Leader(it.store.storage.leader, it.engine.identity, lease=15 * SECOND)
        assert await leader.step()
        queues = it.engine.decisions.queues
        pruner = Pruner(it.store.storage, it.app.settings, queues, parts_of(it.app).hooks.bus)
        it.clock.advance(61)
        assert await pruner.step() == 1
        it.clock.advance(3600)
        assert await pruner.step() == 0
        it.clock.advance(3600)
        assert await pruner.step() == 1
        for job in jobs:
            with pytest.raises(JobNotFound):
                await parts_of(it.app).producer.refresh(job.id)


# --- while a worker runs -------------------------------------------------------------------------


def test_a_running_worker_follows_new_settings_within_a_second() -> None:
    async def scenario(world: World) -> None:
        app = world.app

        @app.task(name="job", max_attempts=2)
        async def job() -> None:
            world.say("run")
            raise ValueError

        async with working(app):
            await world.until(10)
            await app.admin.queues.set("default", backoff=Backoff.fixed(3))
            await world.until(11.1)
            await job.enqueue()
            await world.until(20)
        (first, _), (second, _) = world.seen
        assert (first, second) == (11.1, 14.1)

    simulate(scenario, poll=30)


def test_the_most_that_run_at_once_is_raised_and_lowered_without_a_restart() -> None:
    async def scenario(world: World) -> None:
        app = world.app
        running = most = 0

        @app.task(name="job")
        async def job() -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(1)
            running -= 1

        await app.admin.queues.set("default", max_running=2)
        await app.enqueue_many([job.call() for _ in range(40)])
        async with working(app, slots=5), working(app, slots=5):
            await world.until(3.5)
            assert most == 2
            await app.admin.queues.set("default", max_running=7)
            await world.until(5.5)
            assert most == 7
            most = 0
            await app.admin.queues.set("default", max_running=1)
            await world.until(7.2)
            most = 0
            await world.until(9.5)
            assert most == 1
            await app.admin.queues.set("default", max_running=None)
            await world.until(11.5)
            assert most == 10

    simulate(scenario)


def test_a_store_that_cannot_say_leaves_the_settings_as_they_were_known() -> None:
    async def scenario(world: World) -> None:
        app, store = world.app, await world.tampered()
        await app.admin.queues.set("default", backoff=Backoff.fixed(3))

        @app.task(name="job", max_attempts=2)
        async def job() -> None:
            world.say("run")
            raise ValueError

        async with working(app, store=store):
            await world.until(5)

            async def down(_call: Hook) -> Any:
                raise StorageUnavailable("gone")

            store.on("queues.queues", down)
            await world.until(10)
            await job.enqueue()
            await world.until(20)
        assert [second for second, _ in world.seen] == [10.0, 13.0]

    simulate(scenario)


async def test_rules_are_made_once_until_something_is_set() -> None:
    async with bench() as it:
        task = failing(it)
        await it.run(task.call())
        made = dict(it.engine.decisions._made)
        await it.run(task.call())
        assert it.engine.decisions._made.keys() == made.keys() == {("job", "default")}
        assert it.engine.decisions._made["job", "default"] is made["job", "default"]
        await it.app.admin.queues.set("other", max_running=1)
        await it.engine.decisions.queues.step()
        assert it.engine.decisions._made == {}
