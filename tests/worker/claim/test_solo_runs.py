"""A job suspected of killing workers runs alone: the worker drains first and takes no other."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tests.worker.fixtures import Hook, Tampered, World, make_suspect, register, simulate, working
from windlass._app.parts import parts_of
from windlass._core.job.state import State
from windlass._core.job.transition import Transition
from windlass._storage.protocol.jobs import Want
from windlass._tasks.task import Task


def sleeper(world: World) -> Task[[str, float], None]:
    @world.app.task(name="sleep")
    async def sleep(word: str, seconds: float) -> None:
        world.say(word)
        await asyncio.sleep(seconds)
        world.say(f"{word} ends")

    return sleep


def test_an_idle_worker_runs_a_suspect_at_once() -> None:
    async def scenario(world: World) -> None:
        job = await sleeper(world).enqueue("suspect", 1.0)
        await make_suspect(await parts_of(world.app).storage(), job.id)
        async with working(world.app):
            await world.until(5)
        assert world.seen == [(0.0, "suspect"), (1.0, "suspect ends")]
        record = await job.refresh()
        assert (record.state, record.lost, record.solo) == (State.SUCCEEDED, 0, False)

    simulate(scenario)


def test_a_busy_worker_drains_first_and_runs_the_suspect_alone() -> None:
    async def scenario(world: World) -> None:
        sleep = sleeper(world)
        job = await sleep.enqueue("suspect", 3.0)
        await make_suspect(await parts_of(world.app).storage(), job.id, delay=1)
        async with working(world.app, slots=4):
            await world.app.enqueue_many([sleep.call("first", 10.0), sleep.call("second", 5.0)])
            await world.until(2)
            await sleep.enqueue("neighbour", 1.0)
            await world.until(11)
            await sleep.enqueue("another", 1.0)
            await world.until(20)
        assert world.seen == [
            (0.0, "first"),
            (0.0, "second"),
            (5.0, "second ends"),
            (10.0, "first ends"),
            (10.0, "suspect"),
            (13.0, "suspect ends"),
            (13.0, "neighbour"),
            (13.0, "another"),
            (14.0, "neighbour ends"),
            (14.0, "another ends"),
        ]

    simulate(scenario)


def test_two_suspects_run_one_after_the_other() -> None:
    async def scenario(world: World) -> None:
        sleep = sleeper(world)
        storage = await parts_of(world.app).storage()
        for word in ("one", "two"):
            job = await sleep.enqueue(word, 2.0)
            await make_suspect(storage, job.id)
        async with working(world.app):
            await world.until(10)
        assert world.seen == [(0.0, "one"), (2.0, "one ends"), (2.0, "two"), (4.0, "two ends")]

    simulate(scenario)


def test_hints_while_a_worker_drains_do_not_keep_it_from_its_work() -> None:
    async def scenario(world: World) -> None:
        sleep = sleeper(world)
        store = await world.tampered()
        job = await sleep.enqueue("suspect", 0.0)
        await make_suspect(await parts_of(world.app).storage(), job.id)
        await sleep.enqueue("long", 10.0)
        async with working(world.app, store=store):
            for second in range(1, 10):
                await sleep.options(queue="elsewhere").enqueue("not here", 0.0)
                await world.until(second)
            await world.until(20)
        assert world.words == ["long", "long ends", "suspect", "suspect ends"]
        assert store.calls["jobs.outlook"] < 100

    simulate(scenario)


def test_a_suspect_that_another_worker_took_blocks_no_job() -> None:
    async def scenario(world: World) -> None:
        sleep = sleeper(world)
        storage = await parts_of(world.app).storage()
        job = await sleep.enqueue("suspect", 0.0)
        await make_suspect(storage, job.id, delay=1)
        async with working(world.app, store=await world.tampered(deaf=True)):
            await world.until(0.5)
            await sleep.enqueue("long", 10.0)
            await world.until(6)  # it has seen the suspect, and drains
            await sleep.enqueue("neighbour", 0.0)
            await register(storage, "other")
            reply = await storage.jobs.claim("other", [Want("default", 1)], total=1, solo=True)
            assert [claimed.claim.job for claimed in reply.jobs] == [job.id]
            await world.until(12)
        starts = {word: second for second, word in world.seen}
        assert 6 <= starts["neighbour"] <= 8.5

    simulate(scenario, poll=2)


def test_a_cancelled_suspect_blocks_no_job() -> None:
    async def scenario(world: World) -> None:
        sleep = sleeper(world)
        job = await sleep.enqueue("suspect", 0.0)
        await make_suspect(await parts_of(world.app).storage(), job.id, delay=1)
        async with working(world.app):
            await sleep.enqueue("long", 100.0)
            await world.until(6)
            await sleep.enqueue("neighbour", 0.0)
            await world.until(10)
            assert "neighbour" not in world.words  # it drains
            await job.cancel()
            await world.until(12)
            assert "neighbour" in world.words

    simulate(scenario)


def test_a_look_for_a_suspect_is_taken_once_a_second_at_most() -> None:
    async def scenario(world: World) -> None:
        sleep = sleeper(world)
        store = await world.tampered()
        job = await sleep.enqueue("suspect", 0.0)
        await make_suspect(await parts_of(world.app).storage(), job.id)
        await sleep.enqueue("long", 10.0)
        async with working(world.app, store=store):
            for tenth in range(1, 100):
                await sleep.options(queue="elsewhere").enqueue("not here", 0.0)
                await world.until(tenth / 10)
            await world.until(20)
        assert world.words == ["long", "long ends", "suspect", "suspect ends"]
        assert 10 <= store.calls["jobs.claim"] < 20

    simulate(scenario)


def test_a_worker_with_separate_pools_drains_them_all() -> None:
    async def scenario(world: World) -> None:
        sleep = sleeper(world)
        job = await sleep.enqueue("suspect", 1.0)
        await make_suspect(await parts_of(world.app).storage(), job.id, delay=1)
        await sleep.options(queue="mail").enqueue("mail", 5.0)
        async with working(world.app, queues={"default": 2, "mail": 2}):
            await world.until(2)
            await sleep.options(queue="mail").enqueue("more mail", 1.0)
            await world.until(10)
        assert world.seen == [
            (0.0, "mail"),
            (5.0, "mail ends"),
            (5.0, "suspect"),
            (6.0, "suspect ends"),
            (6.0, "more mail"),
            (7.0, "more mail ends"),
        ]

    simulate(scenario)


def test_a_suspect_is_asked_for_alone_and_one_at_a_time() -> None:
    async def scenario(world: World) -> None:
        sleep = sleeper(world)
        store = await world.tampered()
        asked: list[tuple[int, bool, int]] = []

        async def claim(call: Hook, *args: Any, total: int, solo: bool, **more: Any) -> Any:
            reply = await call(*args, total=total, solo=solo, **more)
            asked.append((total, solo, len(reply.jobs)))
            return reply

        store.on("jobs.claim", claim)
        job = await sleep.enqueue("suspect", 1.0)
        await make_suspect(await parts_of(world.app).storage(), job.id)
        async with working(world.app, store=store, slots=7):
            await world.until(10)
        assert asked[:2] == [(7, False, 0), (7, True, 1)]

    simulate(scenario)


def test_a_suspect_waits_until_the_outcomes_of_the_others_are_stored() -> None:
    """It may end the process, which would lose them."""

    async def scenario(world: World) -> None:
        sleep = sleeper(world)
        job = await sleep.enqueue("suspect", 1.0)
        await make_suspect(await parts_of(world.app).storage(), job.id, delay=1)
        async with working(world.app, store=await slow_to_store(world)):
            await sleep.enqueue("neighbour", 5.0)
            await world.until(20)
        assert [start for start in world.seen if "ends" not in start[1]] == [
            (0.0, "neighbour"),
            (7.0, "suspect"),
        ]

    simulate(scenario)


def test_no_job_starts_before_the_outcome_of_a_suspect_is_stored() -> None:
    """That job may end the process, which would count against the suspect."""

    async def scenario(world: World) -> None:
        sleep = sleeper(world)
        job = await sleep.enqueue("suspect", 5.0)
        await make_suspect(await parts_of(world.app).storage(), job.id)
        async with working(world.app, store=await slow_to_store(world)):
            await world.until(1)
            await sleep.enqueue("neighbour", 1.0)
            await world.until(20)
        assert [start for start in world.seen if "ends" not in start[1]] == [
            (0.0, "suspect"),
            (7.0, "neighbour"),
        ]

    simulate(scenario)


def test_an_outcome_that_cannot_even_fail_keeps_a_worker_from_no_suspect_and_no_job() -> None:
    async def scenario(world: World) -> None:
        sleep, store = sleeper(world), await world.tampered()
        job = await sleep.enqueue("suspect", 1.0)
        await make_suspect(await parts_of(world.app).storage(), job.id, delay=5)
        bad = await sleep.enqueue("bad", 1.0)

        async def apply(call: Hook, transitions: Sequence[Transition]) -> Any:
            if any(each.claim.job == bad.id for each in transitions):
                raise ValueError("this row is cursed")
            return await call(transitions)

        store.on("jobs.apply", apply)
        async with working(world.app, store=store):
            await world.until(6)
            await sleep.enqueue("neighbour", 1.0)
            await world.until(60)
            store.on("jobs.apply", lambda call, *args: call(*args))
            await world.until(70)
        assert [start for start in world.seen if "ends" not in start[1]] == [
            (0.0, "bad"),
            (5.0, "suspect"),
            (6.0, "neighbour"),
        ]

    simulate(scenario)


async def slow_to_store(world: World) -> Tampered:
    """A store that takes two seconds to store outcomes."""
    store = await world.tampered()

    async def apply(call: Hook, *args: Any, **options: Any) -> Any:
        await asyncio.sleep(2)
        return await call(*args, **options)

    store.on("jobs.apply", apply)
    return store
