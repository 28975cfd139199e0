"""Arguments that do not fit the function a worker has: a deploy, seen from its workers."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import msgspec
import pytest

from tests.worker.fixtures import World, logged, on_this_loop, simulate, working
from windlass import Windlass
from windlass._app.parts import parts_of
from windlass._core.job.event import Event, JobMoved
from windlass._core.job.job import JobId, NewJob
from windlass._core.job.state import State
from windlass._core.values.payload import Codec
from windlass._system.seams import new_job_id
from windlass._tasks.task import TaskRegistry
from windlass._worker.worker import Worker

NEW = b'{"word": "heard", "loud": true}'


class Point(msgspec.Struct):
    """An argument with fields."""

    x: int


class Wider(msgspec.Struct):
    """The same with one more."""

    x: int
    y: int = 0


Wider.__name__ = Wider.__qualname__ = "Point"


def old_code(world: World) -> TaskRegistry:
    """The tasks before the deploy: `speak` takes a word."""
    app = Windlass("memory://")

    @app.task(name="speak")
    async def speak(word: str) -> None:
        world.say(f"old {word}")

    return app.tasks


def new_code(app: Windlass, world: World) -> None:
    """The tasks after it."""

    @app.task(name="speak")
    async def speak(word: str, *, loud: bool = False) -> None:
        world.say(f"new {word} {loud}")


async def worker_with(world: World, tasks: TaskRegistry) -> Worker:
    around = msgspec.structs.replace(await parts_of(world.app).workers.dependencies(), tasks=tasks)
    settings = parts_of(world.app).workers.settings(queues=["default"])
    return Worker(around, settings, aside=on_this_loop, watch_loop=False)


class Running:
    """A worker with the old code, while it runs."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def __aenter__(self) -> None:
        self.worker = await worker_with(self.world, old_code(self.world))
        self.task = self.world.loop.create_task(self.worker.run())
        await self.worker.started.wait()

    async def __aexit__(self, *_: object) -> None:
        self.worker.stop()
        await self.task


async def enqueued(world: World, payload: bytes = NEW, count: int = 1) -> list[JobId]:
    """What a producer with the new code stores."""
    storage = await parts_of(world.app).storage()
    jobs = [NewJob(id=new_job_id(), task="speak", payload=payload) for _ in range(count)]
    return [one.id for one in await storage.jobs.insert(jobs)]


def test_a_job_that_does_not_fit_waits_for_the_worker_that_it_fits() -> None:
    async def scenario(world: World) -> None:
        new_code(world.app, world)
        async with Running(world):
            (job,) = await enqueued(world)
            # The new worker is there but takes nothing yet, as one that has just started.
            storage = await parts_of(world.app).storage()
            await world.until(1)
            assert (await parts_of(world.app).producer.refresh(job)).state is State.FAILED, (
                "nobody else was there"
            )
            async with working(world.app, slots=1):
                await world.until(2)
                await storage.queues.queues()
                before = await hold(world)
                (job,) = await enqueued(world)
                await world.until(3)
                found = await parts_of(world.app).producer.refresh(job)
                assert (found.state, found.attempt, found.error) == (State.WAITING, 0, None)
                assert found.missed_why is not None
                assert "unknown field `loud`" in found.missed_why
                assert await storage.admin.history(job) == []
                before.set()
                await world.until(30)
        assert (await parts_of(world.app).producer.refresh(job)).state is State.SUCCEEDED
        ((at, word),) = world.seen
        assert word == "new heard True"
        assert 17 <= at <= 18.1, "at the first chance: fifteen seconds after the miss"

    async def hold(world: World) -> asyncio.Event:
        """Keep the new worker's only slot busy."""
        free = asyncio.Event()

        @world.app.task(name="hold")
        async def occupy() -> None:
            await free.wait()

        await occupy.enqueue()
        await world.until(world.loop.time() + 0.5)
        return free

    simulate(scenario)


def test_a_job_that_fits_no_worker_fails_at_once_with_the_reason() -> None:
    async def scenario(world: World) -> None:
        async with Running(world), Running(world):
            with logged() as lines:
                jobs = await enqueued(world, count=3)
                await world.until(1)
            for job in jobs:
                found = await parts_of(world.app).producer.refresh(job)
                assert (found.state, found.attempt) == (State.FAILED, 1)
                assert found.error is not None
                assert "unknown field `loud`" in found.error.message
            told = lines.having("does not fit the function that this worker has")
            assert 1 <= len(told) <= 2, "each worker says it once"
            assert "fail: no worker of the queue has another version" in told[0]

    simulate(scenario)


def test_a_misfit_fails_an_hour_after_it_was_first_met() -> None:
    async def scenario(world: World) -> None:
        moves: list[Event] = []
        world.app.on_transition(moves.append)
        new_code(world.app, world)
        async with Running(world), working(world.app, slots=1, queues=["other", "default"]):
            storage = await parts_of(world.app).storage()
            await world.until(1)
            (job,) = await enqueued(world, b'{"nothing": 1}')
            await world.until(3599)
            found = await parts_of(world.app).producer.refresh(job)
            assert (found.state, found.attempt, found.error) == (State.WAITING, 0, None)
            assert 15 <= found.claim_number <= 30
            assert await storage.admin.history(job) == []
            await world.until(4900)
            found = await parts_of(world.app).producer.refresh(job)
            assert (found.state, found.missed_at, found.missed_why) == (State.FAILED, None, None)
            assert len(await storage.admin.history(job)) == 1
        assert len([move for move in moves if isinstance(move, JobMoved) and move.missed]) > 10

    simulate(scenario)


@pytest.mark.parametrize("payload", [b"{", b"\xff", b""])
def test_damaged_arguments_fail_at_once_with_other_workers_present(payload: bytes) -> None:
    async def scenario(world: World) -> None:
        new_code(world.app, world)
        async with Running(world), working(world.app):
            await world.until(1)
            (job,) = await enqueued(world, payload)
            await world.until(2)
            assert (await parts_of(world.app).producer.refresh(job)).state is State.FAILED

    simulate(scenario)


def test_many_misfits_come_back_a_hundred_a_second_and_no_faster() -> None:
    async def scenario(world: World) -> None:
        new_code(world.app, world)
        async with Running(world), working(world.app):
            await world.until(1)
            jobs = await enqueued(world, b'{"nothing": 1}', count=4000)
            await world.until(14)
            storage = await parts_of(world.app).storage()
            dues = sorted(job.due for job in await storage.admin.get(jobs) if job is not None)
            assert dues[-1] - dues[0] > timedelta(seconds=4), "two workers, each with its line"
            in_a_second = max(
                sum(due <= other < due + timedelta(seconds=1) for other in dues)
                for due in dues[3000::50]
            )
            assert in_a_second <= 210

    simulate(scenario)


# --- fingerprints --------------------------------------------------------------------------------


def test_a_fingerprint_changes_with_the_arguments_and_with_nothing_else() -> None:
    async def one(at: Point, *, loud: bool = False) -> None: ...
    async def same(at: Point, *, loud: bool = True) -> int | None: ...
    async def more(at: Point, *, loud: bool = False, twice: bool = False) -> None: ...
    async def wider(at: Wider, *, loud: bool = False) -> None: ...

    first = Codec(one).fingerprint()
    assert first == Codec(one).fingerprint()
    assert first == Codec(same).fingerprint(), "another default or result is no other call"
    assert len({first, Codec(more).fingerprint(), Codec(wider).fingerprint()}) == 3
