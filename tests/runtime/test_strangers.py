"""Jobs of tasks that one worker lacks and another has: whoever can run them comes to."""

from __future__ import annotations

import msgspec

from tests.runtime.world import World, on_this_loop, simulate, working
from windlass.core.state import State
from windlass.handle import Job
from windlass.runtime.worker import Worker
from windlass.task import Task, TaskRegistry


def speaker(world: World) -> Task[[str], None]:
    @world.app.task(name="speak")
    async def speak(word: str) -> None:
        world.say(word)

    return speak


async def stranger(world: World) -> Worker:
    """A worker on the same store that has none of the tasks, as before a deploy."""
    around = msgspec.structs.replace(await world.app.surroundings(), tasks=TaskRegistry())
    settings = world.app.worker_settings(queues=["default"])
    return Worker(around, settings, aside=on_this_loop, watch_loop=False)


async def unknown(world: World) -> Job[None]:
    """A job of a task that is gone."""

    @world.app.task(name="gone")
    async def gone() -> None: ...

    job = await gone.enqueue()
    world.app.tasks._tasks.pop("gone")
    return job


def test_a_worker_that_lacks_the_task_lets_the_one_that_has_it_go_first() -> None:
    async def scenario(world: World) -> None:
        speak = speaker(world)
        before = await stranger(world)
        running = world.loop.create_task(before.run())
        await before.started.wait()
        await world.until(1)
        job = await speak.enqueue("heard")
        await world.until(5)
        missed = await job.refresh()
        assert (missed.claim_number, missed.attempt) == (1, 0), "met, and given back for free"
        async with working(world.app):
            await world.until(20)
        before.stop()
        await running
        record = await job.refresh()
        assert (record.state, record.claim_number) == (State.SUCCEEDED, 2), "nobody else took it"
        ((at, _),) = world.seen
        assert at == 16.0, "at the first chance: the miss was fifteen seconds ago"

    simulate(scenario)


def test_a_worker_that_met_a_stranger_gives_a_head_start_for_a_minute_and_no_longer() -> None:
    async def scenario(world: World) -> None:
        speak = speaker(world)
        async with working(world.app):
            await world.until(1)
            await (await enqueue_and_meet(world)).cancel()
            await world.until(30)
            await speak.enqueue("polite")
            await world.until(60)
            await speak.enqueue("still polite")
            await world.until(70)
            await speak.enqueue("at once")
            await world.until(80)
        assert world.seen == [(30.1, "polite"), (60.1, "still polite"), (70.0, "at once")]

    async def enqueue_and_meet(world: World) -> Job[None]:
        job = await unknown(world)
        await world.until(2)
        assert (await job.refresh()).claim_number == 1
        return job

    simulate(scenario)


def test_a_busy_worker_gives_nobody_a_head_start() -> None:
    async def scenario(world: World) -> None:
        speak = speaker(world)
        async with working(world.app, slots=1):
            await world.until(1)
            await unknown(world)
            await world.until(5)
            await world.app.enqueue_many([speak.call(str(number)) for number in range(20)])
            await world.until(6)
        assert {second for second, _ in world.seen} == {5.1}, "one head start, then all of them"
        assert len(world.seen) == 20

    simulate(scenario)
