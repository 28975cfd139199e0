"""A job has started when its handler was entered: from then on it does not expire."""

from __future__ import annotations

import asyncio

import pytest

from tests.worker.fixtures import World, simulate, working
from windlass import Snooze
from windlass._core.job.state import State, Verb
from windlass._worker.run.execution import StopCause
from windlass._worker.run.runner import Runner
from windlass.errors import JobExpired


def test_a_job_that_started_in_time_runs_again_after_its_worker_stopped() -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="late", expires=10)
        async def long() -> None:
            world.say("entered")
            await asyncio.sleep(60)

        job = await long.enqueue()
        async with working(world.app):
            await world.until(5)
        assert (await job.refresh()).expires_at is None
        await world.until(100)
        async with working(world.app):
            await job.result()
        assert [what for _, what in world.seen] == ["entered", "entered"]

    simulate(scenario, grace=1)


def test_a_job_that_snoozed_past_its_expiry_runs_again() -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="late", expires=10)
        async def patient() -> None:
            world.say("entered")
            if len(world.seen) == 1:
                raise Snooze(30)

        async with working(world.app):
            await (await patient.enqueue()).result()
        assert len(world.seen) == 2

    simulate(scenario)


def test_a_job_of_an_unknown_task_expires_and_keeps_its_key_until_then() -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="gone", expires=10)
        async def gone() -> None: ...

        keyed = gone.options(key="k", unique="until_started")
        job = await keyed.enqueue()
        task = world.app.tasks.remove("gone")
        async with working(world.app):
            await world.until(5)
            waiting = await job.refresh()
            assert (waiting.claim_number, waiting.key_held) == (1, True)
            world.app.tasks.add(task)
            assert (await keyed.enqueue()).id == job.id
            with pytest.raises(JobExpired):
                await job.result()

    simulate(scenario)


def test_a_run_that_was_stopped_before_its_handler_began_keeps_the_expiry() -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="late", expires=10)
        async def never() -> None:
            world.say("entered")

        start = Runner.start

        def stop_at_once(self: Runner, jobs: object) -> None:
            start(self, jobs)  # type: ignore[arg-type]
            self.stop_all(StopCause.INTERRUPT)

        job = await never.enqueue()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Runner, "start", stop_at_once)
            async with working(world.app) as shift:
                await asyncio.sleep(0)
                shift.worker.stop()
        (past,) = await world.app.admin.jobs.history(job.id)
        stopped = await job.refresh()
        assert (past.verb, stopped.state, world.seen) == (Verb.RELEASE, State.WAITING, [])
        assert stopped.expires_at is not None

    simulate(scenario)
