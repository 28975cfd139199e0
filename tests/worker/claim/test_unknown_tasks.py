"""Jobs of tasks that one worker lacks and another has: whoever can run them comes to."""

from __future__ import annotations

import msgspec

from tests.worker.fixtures import World, on_this_loop, simulate, working
from windlass._app.parts import parts_of
from windlass._core.job.state import State
from windlass._tasks.handle import Job
from windlass._tasks.task import Task, TaskRegistry
from windlass._worker.worker import Worker


def speaker(world: World) -> Task[[str], None]:
    @world.app.task(name="speak")
    async def speak(word: str) -> None:
        world.say(word)

    return speak


async def stranger(world: World) -> Worker:
    """A worker on the same store that has none of the tasks, as before a deploy."""
    around = msgspec.structs.replace(
        await parts_of(world.app).workers.dependencies(), tasks=TaskRegistry()
    )
    settings = parts_of(world.app).workers.settings(queues=["default"])
    return Worker(around, settings, aside=on_this_loop, watch_loop=False)


async def unknown(world: World) -> Job[None]:
    """A job of a task that is gone."""

    @world.app.task(name="gone")
    async def gone() -> None: ...

    job = await gone.enqueue()
    world.app.tasks.remove("gone")
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


def test_a_worker_that_lacks_a_task_takes_every_other_job_at_once() -> None:
    async def scenario(world: World) -> None:
        speak = speaker(world)
        async with working(world.app):
            await world.until(1)
            await unknown(world)
            await world.until(2)
            await speak.enqueue("at once")
            await world.until(3)
            await speak.options(delay=2).enqueue("when due")
            await world.until(80)
        assert world.seen == [(2.0, "at once"), (5.0, "when due")]

    simulate(scenario)


def test_a_busy_worker_that_lacks_a_task_is_not_slowed_down() -> None:
    async def scenario(world: World) -> None:
        speak = speaker(world)
        async with working(world.app, slots=1):
            await world.until(1)
            await unknown(world)
            await world.until(5)
            await world.app.enqueue_many([speak.call(str(number)) for number in range(20)])
            await world.until(6)
        assert {second for second, _ in world.seen} == {5.0}
        assert len(world.seen) == 20

    simulate(scenario)


def test_two_workers_that_lack_a_task_try_it_again_and_again_and_less_and_less() -> None:
    async def scenario(world: World) -> None:
        async with working(world.app):
            await world.until(1)
            job = await unknown(world)
            other = await stranger(world)
            running = world.loop.create_task(other.run())
            await world.until(120)
            tried = (await job.refresh()).claim_number
            assert 5 <= tried <= 8, "every fifteen seconds at first"
            await world.until(3600)
            tried = (await job.refresh()).claim_number
            assert 15 <= tried <= 25
            other.stop()
            await running
        assert (await job.refresh()).state is State.WAITING

    simulate(scenario)
