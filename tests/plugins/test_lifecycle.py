"""Plugins while workers run: they come, go, and are missed."""

from __future__ import annotations

import asyncio
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from tests.plugins.fakes import EVERYTHING, Mailer, Some
from tests.worker.claim.test_unknown_tasks import stranger
from tests.worker.fixtures import Tampered, World, logged, simulate, working
from windlass import Breaker, Context, Every, Registrar, Services, Windlass
from windlass._app.parts import parts_of
from windlass._core.job.state import State
from windlass._schedules.edits import UNINSTALLED
from windlass._storage.open import StorageOpener
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.workers import WorkerState
from windlass.errors import StorageUnavailable, UnknownTask


def ticking(world: World, **options: Any) -> Some:
    def say(registrar: Registrar) -> None:
        @registrar.schedule(Every(1))
        @registrar.task(**options)
        async def tick(ctx: Context) -> None:
            world.say(f"{ctx.task} {ctx.slot is not None}")

    return Some(say)


async def jobs_of(app: Windlass, task: str) -> list[Any]:
    return [*reversed(await app.admin.jobs.find(JobFilter(task=task), limit=1000))]


class _Opened(StorageOpener):
    """Opens one storage, which is there already."""

    def __init__(self, app: Windlass, storage: Storage) -> None:
        super().__init__(app.settings)
        self._storage = storage

    async def open(self) -> Storage:
        return self._storage


def tampered(app: Windlass, store: Tampered) -> AbstractContextManager[None]:
    """What the app asks of its storage in this block is asked of ``store``."""
    connections = parts_of(app).connections
    return connections.replaced(_Opened(app, store.storage), connections.seams)


# --- coming and going -----------------------------------------------------------------------------


def test_a_plugin_that_comes_late_works_at_once_and_stops_when_it_goes() -> None:
    async def scenario(world: World) -> None:
        app = world.app
        async with working(app):
            await world.until(5.5)
            app.install(ticking(world), grants=EVERYTHING)
            job = await app.tasks["some.tick"].enqueue()
            await world.until(8.5)
            assert world.seen[0] == (5.5, "some.tick False"), "its tasks are found at the claim"
            assert [at for at, word in world.seen if "True" in word] == [6.0, 7.0, 8.0]
            await app.uninstall("some")
            await world.until(20)
            assert len(world.seen) == 4, "it stops at once"
            report = await app.admin.schedules.get("some.tick")
            assert (report.state, report.problem) == ("held", UNINSTALLED)
            assert (report.fired, len(report.runs)) == (3, 3), "its history stays"
            assert (await job.refresh()).state is State.SUCCEEDED
            app.install(ticking(world), grants=EVERYTHING)
            await world.until(22.5)
            assert (await app.admin.schedules.get("some.tick")).state == "active"
            assert len(world.seen) > 4, "installed again, it goes on"

    simulate(scenario)


def test_a_store_that_is_away_leaves_the_plugin_as_it_was() -> None:
    async def scenario(world: World) -> None:
        app = world.app
        app.install(ticking(world), grants=EVERYTHING)
        store = await world.tampered()

        async with working(app):
            await world.until(1.5)
            store.down = True
            with tampered(app, store), pytest.raises(StorageUnavailable):
                await app.uninstall("some")
            assert "some" in app.plugins
            await world.until(2.5)
            assert len(world.seen) == 2
            store.down = False
            with tampered(app, store):
                await app.uninstall("some")
            await world.until(5)
            assert len(world.seen) == 2

    simulate(scenario)


def test_one_that_is_replaced_in_a_moment_is_declared_anew() -> None:
    async def scenario(world: World) -> None:
        app = world.app
        app.install(ticking(world), grants=EVERYTHING)
        async with working(app):
            await world.until(2.5)
            await app.uninstall("some")
            app.install(ticking(world, timeout=9), grants=EVERYTHING)
            await world.until(5.5)
            assert (await app.admin.schedules.get("some.tick")).state == "active"
            job = (await jobs_of(app, "some.tick"))[-1]
            assert job.timeout == timedelta(seconds=9)
            assert [at for at, _ in world.seen] == [1.0, 2.0, 3.0, 4.0, 5.0]

    simulate(scenario)


def test_other_processes_that_still_have_it_do_not_bring_it_back_but_a_new_start_does() -> None:
    async def scenario(world: World) -> None:
        app = world.app
        other = Windlass("memory://", clock=world.clock, seams=parts_of(app).connections.seams)
        app.install(ticking(world), grants=EVERYTHING)
        other.install(ticking(world), grants=EVERYTHING)
        connections = parts_of(app).connections
        with parts_of(other).connections.replaced(connections.opener, connections.seams):
            async with other, working(app), working(other):
                await world.until(2.5)
                await app.uninstall("some")
                await world.until(200)
                assert {at for at, _ in world.seen} == {1.0, 2.0}
                assert (await app.admin.schedules.get("some.tick")).state == "held"
                async with working(other):
                    await world.until(203.5)
                assert (await app.admin.schedules.get("some.tick")).state == "active"

    simulate(scenario)


def test_a_person_who_resumes_it_is_obeyed() -> None:
    async def scenario(world: World) -> None:
        app = world.app
        app.install(ticking(world), grants=EVERYTHING)
        async with working(app):
            await world.until(1.5)
            await app.uninstall("some")
            await app.admin.schedules.resume("some.tick")
            assert (await app.admin.schedules.get("some.tick")).state == "active"

    simulate(scenario)


def test_running_jobs_continue_when_their_plugin_is_uninstalled() -> None:
    async def scenario(world: World) -> Any:
        begun = asyncio.Event()

        def say(registrar: Registrar) -> None:
            @registrar.task
            async def slow() -> str:
                begun.set()
                await asyncio.sleep(5)
                return "done"

        world.app.install(Some(say), grants=EVERYTHING)
        task = world.app.tasks["some.slow"]
        job = await task.enqueue()
        async with working(world.app):
            await begun.wait()
            await world.app.uninstall("some")
            with pytest.raises(UnknownTask):
                world.app.tasks["some.slow"]
            return await job.result(timeout=30)

    assert simulate(scenario) == "done"


def test_a_worker_says_that_it_does_not_serve_the_queue_of_a_late_plugin() -> None:
    async def scenario(world: World) -> None:
        def say(registrar: Registrar) -> None:
            @registrar.task(queue="mail")
            async def send() -> None: ...

            @registrar.task(queue="default")
            async def here() -> None: ...

        async with working(world.app):
            with logged() as lines:
                world.app.install(Some(say), grants=EVERYTHING)
                await world.until(1)
            (line,) = lines.having("a plugin added tasks of queue")
            assert "'mail'" in line
            assert "--queue mail" in line
            job = await world.app.tasks["some.send"].enqueue()
            explained = await world.app.admin.jobs.explain(job.id)
            assert explained.causes[0].code == "no_worker"

    simulate(scenario)


async def test_other_numbers_of_a_plugin_that_comes_again_hold() -> None:
    app = Windlass("memory://")

    def say(registrar: Registrar) -> None:
        @registrar.task
        async def work() -> None: ...

    async with app:
        for most in (2, 5):
            app.install(Some(say), grants=msgspec.structs.replace(EVERYTHING, max_running=most))
            await app.tasks["some.work"].enqueue()
            (report,) = await app.admin.limits.list()
            assert (report.spec.name, report.spec.concurrency) == ("some", most)
            await app.uninstall("some")


# --- being missed ---------------------------------------------------------------------------------


def test_a_due_run_without_its_plugin_fails_and_counts_against_its_breaker() -> None:
    async def scenario(world: World) -> None:
        app = world.app
        app.install(ticking(world, breaker=Breaker(failures=2, cool_down=600)), grants=EVERYTHING)
        by_hand = await app.tasks["some.tick"].options(delay=1).enqueue()
        before = await stranger(world)
        running = world.loop.create_task(before.run())
        await world.until(3)
        first = (await jobs_of(app, "some.tick"))[-1]
        explained = await app.admin.jobs.explain(first.id)
        assert explained.causes[0].code == "unknown_task"
        assert explained.causes[0].evidence["plugin"] == "some"
        assert "install plugin some" in explained.causes[0].fix
        await world.until(40)
        assert world.words == []
        runs = [job for job in await jobs_of(app, "some.tick") if job.id != by_hand.id]
        failed = [job for job in runs if job.state is State.FAILED]
        assert len(failed) == 2, "then the breaker is open, and slots are left out"
        assert {job.error.kind for job in failed} == {"PluginUnknown"}
        (breaker,) = await app.admin.breakers.list()
        assert (breaker.task, breaker.state, breaker.failures) == ("some.tick", "open", 2)
        explained = await app.admin.jobs.explain(failed[0].id)
        assert explained.causes[0].code == "failed"
        assert "Plugin 'some'" in explained.causes[0].sentence
        report = await app.admin.schedules.get("some.tick")
        assert report.failures == 2
        assert "breaker" in report.runs[0].outcome
        waiting = await by_hand.refresh()
        assert waiting.state is State.WAITING, "what somebody enqueued waits for the plugin"
        before.stop()
        await running

    simulate(scenario)


def test_a_worker_that_has_the_plugin_goes_before_the_run_fails() -> None:
    async def scenario(world: World) -> None:
        app = world.app
        app.install(ticking(world), grants=EVERYTHING)
        before = await stranger(world)
        running = world.loop.create_task(before.run())
        await world.until(2.5)
        async with working(app):
            await world.until(18)
        before.stop()
        await running
        first = (await jobs_of(app, "some.tick"))[0]
        assert (first.state, first.claim_number) == (State.SUCCEEDED, 2)

    simulate(scenario)


# --- chores ---------------------------------------------------------------------------------------


def test_a_chore_runs_by_the_clock_with_the_services_that_were_granted() -> None:
    async def scenario(world: World) -> list[Any]:
        mailer = Mailer()
        world.app.services.attach("mailer", mailer)

        def say(registrar: Registrar) -> None:
            @registrar.chore(Every(10), name="sweep.up")
            async def sweep(services: Services) -> str:
                assert services.names == ["mailer"]
                services.need("mailer", Mailer).send(str(world.loop.time()))
                return "swept"

        async with working(world.app):
            world.app.install(Some(say), grants=EVERYTHING)
            await world.until(25)
            report = await world.app.admin.schedules.get("some.sweep.up")
            await world.app.uninstall("some")
            await world.until(60)
            return [len(mailer.sent), report.runs[0].outcome, report.plan]

    sent, outcome, plan = simulate(scenario)
    assert (sent, outcome) == (2, "swept")
    assert plan.job is None


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_chore_at_work_does_not_hold_up_the_end_of_its_worker(
    caplog: pytest.LogCaptureFixture,
    stubborn: bool,  # noqa: FBT001
) -> None:
    async def scenario(world: World) -> None:
        def say(registrar: Registrar) -> None:
            @registrar.chore(Every(10))
            async def sweep(_: Services) -> str:
                world.say("sweeping")
                try:
                    await asyncio.sleep(3600)
                except asyncio.CancelledError:
                    if stubborn:
                        await asyncio.sleep(3600)
                    raise
                return "swept"

        @world.app.task(name="job")
        async def sleep() -> None:
            await asyncio.sleep(3600)

        world.app.install(Some(say), grants=EVERYTHING)
        async with working(world.app) as shift:
            job = await sleep.enqueue()
            await world.until(15)
            assert world.words == ["sweeping"]
            shift.worker.stop()
            await shift.ended()
            assert world.loop.time() < 17.5
            record = await job.refresh()
            assert (record.state, record.attempt) == (State.WAITING, 0)
            (row,) = await world.app.admin.workers.list()
            assert row.state is WorkerState.GONE

    with caplog.at_level("INFO", "windlass"):
        simulate(scenario, grace=1)
    assert "some.sweep is still running and is cancelled" in caplog.text
    assert ("is abandoned" in caplog.text) is stubborn
    assert "goodbye" not in caplog.text


def test_a_chore_whose_plugin_the_leader_lacks_says_so() -> None:
    async def scenario(world: World) -> str:
        def say(registrar: Registrar) -> None:
            @registrar.chore(Every(10))
            async def sweep(services: Services) -> None: ...

        world.app.install(Some(say), grants=EVERYTHING)
        async with working(world.app):
            await world.until(1)
            parts_of(world.app).plugins.chores.pop("some.sweep")
            await world.until(11)
            return (await world.app.admin.schedules.get("some.sweep")).runs[0].outcome

    assert "has no plugin 'some'" in simulate(scenario)


def test_our_own_upkeep_is_a_plugin_that_can_be_uninstalled() -> None:
    async def scenario(world: World) -> Any:
        (report,) = await world.app.admin.plugins.list()
        assert (report.name, report.grants.chores) == ("windlass", True)
        assert "after their retention" in report.documentation
        async with working(world.app):
            await world.until(61)
            await world.app.uninstall("windlass")
            await world.until(200)
            return await world.app.admin.schedules.list()

    for report in simulate(scenario):
        assert (report.state, report.fired) == ("held", 1)


# --- threads --------------------------------------------------------------------------------------


async def test_a_plugin_may_be_installed_from_another_thread() -> None:
    app = Windlass("memory://")
    ran = asyncio.Event()

    def say(registrar: Registrar) -> None:
        @registrar.schedule(Every(0.05))
        @registrar.task
        async def tick() -> None:
            ran.set()

    async with app, app.worker():
        await asyncio.to_thread(app.install, Some(say), grants=EVERYTHING)
        async with asyncio.timeout(10):
            await ran.wait()
