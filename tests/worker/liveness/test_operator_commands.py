"""What people ask of a worker: to be quiet, to go on, to stop. It hears of it with a beat."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.worker.fixtures import Tampered, World, make_worker, simulate, working
from windlass import Every
from windlass._app.parts import parts_of
from windlass._core.job.event import Event, WorkerChanged
from windlass._core.job.state import State
from windlass._storage.protocol.jobs import ClaimReply
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.workers import Duty, WorkerState
from windlass._worker.worker import StopReason

BEAT = 5.1
"""A beat later, every worker has heard what was said."""


def test_a_quiet_worker_finishes_what_it_runs_and_takes_nothing_until_told_to_go_on() -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="nap")
        async def nap(seconds: float) -> str:
            world.say("started")
            await asyncio.sleep(seconds)
            return "slept"

        told: list[str] = []

        def hear(event: Event) -> None:
            if isinstance(event, WorkerChanged):
                told.append(event.what)

        world.app.on_transition(hear)
        async with working(world.app) as shift:
            first = await nap.enqueue(30.0)
            await world.until(1)
            await world.app.admin.workers.quiet(shift.worker.id)
            await world.until(1 + BEAT)
            second = await nap.enqueue(1.0)
            assert await first.result() == "slept"
            await world.until(100)
            assert (await second.refresh()).state is State.WAITING
            (row,) = await world.app.admin.workers.list()
            assert (row.state, row.duty) == (WorkerState.LIVE, Duty.QUIET)
            await world.app.admin.workers.resume(shift.worker.id)
            assert await second.result() == "slept"
            assert 100 < world.loop.time() < 100 + 2 * BEAT
        assert told == ["quiet", "resumed"]

    simulate(scenario)


def test_a_worker_told_to_stop_leaves_in_order() -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="nap")
        async def nap(seconds: float) -> str:
            await asyncio.sleep(seconds)
            return "slept"

        async with working(world.app, slots=1) as shift:
            first, second = await world.app.enqueue_many([nap.call(20.0)] * 2)
            await world.until(1)
            await world.app.admin.workers.stop(shift.worker.id)
            assert await shift.ended() is StopReason.ORDERED
            assert 20 <= world.loop.time() < 21
            assert await first.result() == "slept"
            record = await second.refresh()
            assert (record.state, record.attempt) == (State.WAITING, 0)
        (row,) = await world.app.admin.workers.list()
        assert row.state is WorkerState.GONE

    simulate(scenario, grace=30)


def test_what_a_claim_under_way_brings_to_a_quiet_worker_is_given_back() -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="never")
        async def never() -> None:
            world.say("started")

        around = await parts_of(world.app).workers.dependencies()
        store = Tampered(around.storage)
        late = asyncio.Event()

        async def slow(method: Any, *args: Any, **options: Any) -> ClaimReply:
            reply: ClaimReply = await method(*args, **options)
            if reply.jobs:
                late.set()
                await asyncio.sleep(10)  # meanwhile the worker hears that it is to be quiet
            return reply

        store.on("jobs.claim", slow)
        async with working(world.app, store=store) as shift:
            job = await never.enqueue()
            await late.wait()
            await world.app.admin.workers.quiet(shift.worker.id)
            await world.until(world.loop.time() + 30)
            record = await job.refresh()
            assert (record.state, record.attempt) == (State.WAITING, 0)
        assert world.words == []

    simulate(scenario)


def test_a_quiet_worker_that_is_buried_is_quiet_under_its_new_name() -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="never")
        async def never() -> None:
            world.say("started")

        storage = await parts_of(world.app).storage()
        async with working(world.app) as shift:
            await world.app.admin.workers.quiet(shift.worker.id)
            await world.until(BEAT)
            former = shift.worker.id
            await storage.workers.bury([former])
            await world.until(3 * BEAT)
            assert shift.worker.id != former
            await never.enqueue()
            await world.until(60)
            duties = {row.start.id: row.duty for row in await world.app.admin.workers.list()}
            assert duties[shift.worker.id] is Duty.QUIET
        assert world.words == []

    simulate(scenario)


def test_what_is_asked_of_a_worker_that_is_taken_for_dead_before_it_hears_it_is_heard() -> None:
    async def scenario(world: World) -> None:
        admin, storage = world.app.admin, await parts_of(world.app).storage()
        async with working(world.app) as shift:

            def rests() -> bool:
                return shift.worker.engine.claimer.resting

            await world.until(1)
            await admin.workers.quiet(shift.worker.id)
            await storage.workers.bury([shift.worker.id])
            await world.until(3 * BEAT)
            assert rests()
            await admin.workers.resume(shift.worker.id)
            await storage.workers.bury([shift.worker.id])
            await world.until(6 * BEAT)
            assert not rests()
            await admin.workers.stop(shift.worker.id)
            await storage.workers.bury([shift.worker.id])
            assert await shift.ended() is StopReason.ORDERED

    simulate(scenario)


def test_a_worker_that_is_quiet_under_a_new_name_is_never_told_to_go_on() -> None:
    async def scenario(world: World) -> None:
        told: list[str] = []
        world.app.on_transition(
            lambda event: told.append(event.what) if isinstance(event, WorkerChanged) else None
        )
        around = await parts_of(world.app).workers.dependencies()
        store = Tampered(around.storage)

        async def slow(method: Any, *args: Any, **options: Any) -> object:
            await asyncio.sleep(2 * BEAT)  # so that beats come in between
            return await method(*args, **options)

        async with working(world.app, store=store) as shift:
            await world.app.admin.workers.quiet(shift.worker.id)
            await world.until(BEAT)
            store.on("workers.assign", slow)
            await around.storage.workers.bury([shift.worker.id])
            await world.until(10 * BEAT)
            assert shift.worker.engine.claimer.resting
        assert told == ["quiet", "reborn"]

    simulate(scenario)


def test_a_stop_that_was_said_before_the_first_beat_is_heard() -> None:
    async def scenario(world: World) -> None:
        worker = await make_worker(world.app)
        running = asyncio.ensure_future(worker.run())
        await worker.started.wait()
        await world.app.admin.workers.stop(worker.id)
        assert await running is StopReason.ORDERED

    simulate(scenario)


def test_a_quiet_worker_still_fires_schedules() -> None:
    async def scenario(world: World) -> None:
        @world.app.schedule(Every(20))
        @world.app.task(name="tick")
        async def tick() -> None:
            world.say("started")

        async with working(world.app) as shift:
            await world.app.admin.workers.quiet(shift.worker.id)
            await world.until(50)
            waiting = await world.app.admin.jobs.find(JobFilter(states=[State.WAITING]))
            assert waiting
            assert world.words == []
            await world.app.admin.workers.resume(shift.worker.id)
            await world.until(50 + 2 * BEAT)
        assert "started" in world.words

    simulate(scenario)
