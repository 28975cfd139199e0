"""Limits let as much through as they promise, to one idle worker that nothing else wakes."""

from __future__ import annotations

import asyncio
import math

import pytest

from tests.delivery.fixtures import World, enqueue, simulate, speaker, times, working
from windlass import Breaker, Limit, Rate, Throttled

STORES = ["memory", "sqlite"]

pytestmark = pytest.mark.parametrize("store", STORES)


@pytest.mark.parametrize(
    ("n", "per", "burst"),
    [(1, 1, None), (10, 1, None), (10, 1, 5), (3, 10, None), (100, 1, None), (1000, 1, None)],
)
def test_a_rate_delivers_what_it_promises_and_no_more(
    store: str, n: int, per: float, burst: int | None
) -> None:
    rate, seconds = Rate(n, per, burst), 10 * per if n < 100 else 2 * per

    async def scenario(world: World) -> None:
        speak = speaker(world, limits=[Limit("api", rate=rate)])
        await enqueue(world, speak, math.ceil(n * seconds / per) + rate.burst + 50)
        async with working(world.app, slots=10):
            await world.until(seconds)
        starts = times(world)
        assert len(starts) >= 0.95 * n * seconds / per
        # In all of it as in any window: what comes, and what was kept.
        assert len(starts) <= n * seconds / per + rate.burst

    simulate(store, scenario)


def test_every_key_of_a_rate_has_all_of_it(store: str) -> None:
    async def scenario(world: World) -> None:
        limit = Limit("api", rate=Rate(10, 1), key="{word}")
        speak = speaker(world, limits=[limit])
        for key in "abcde":
            await world.app.enqueue_many([speak.call(key)] * 60)
            await asyncio.sleep(0.013)  # out of step
        async with working(world.app):
            await world.until(5)
        for key in "abcde":
            assert 0.95 * 49 <= len(times(world, key)) <= 51

    simulate(store, scenario)


def test_two_workers_share_a_rate_and_lose_nothing_of_it(store: str) -> None:
    async def scenario(world: World) -> None:
        # Whoever starts one is busy for longer than it takes until the next one may start.
        speak = speaker(world, seconds=0.15, limits=[Limit("api", rate=Rate(10, 1))])
        await enqueue(world, speak, 120)
        async with working(world.app, slots=1), working(world.app, slots=1):
            await world.until(10)
        assert 95 <= len(times(world)) <= 101

    simulate(store, scenario)


@pytest.mark.parametrize("slots", [1, 10])
def test_a_job_that_costs_several_tokens_starts_when_they_are_there(store: str, slots: int) -> None:
    async def scenario(world: World) -> None:
        limit = Limit("api", rate=Rate(10, 1, burst=5), cost=5)
        await enqueue(world, speaker(world, limits=[limit]), 5)
        async with working(world.app, slots=slots):
            await world.until(3)
        assert times(world) == [0.0, 0.5, 1.0, 1.5, 2.0]

    simulate(store, scenario)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_unit_that_comes_back_is_used_at_once(store: str, workers: int) -> None:
    async def scenario(world: World) -> None:
        speak = speaker(world, seconds=1.0, limits=[Limit("db", concurrency=3)])
        await enqueue(world, speak, 30)
        async with working(world.app, slots=5):
            if workers == 1:
                await world.until(20)
            else:
                async with working(world.app, slots=5):
                    await world.until(20)
        assert len(times(world)) == 30
        assert times(world)[-1] <= 9.1

    simulate(store, scenario)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_queue_that_may_run_three_always_does(store: str, workers: int) -> None:
    async def scenario(world: World) -> None:
        await world.app.admin.queues.set("default", max_running=3)
        await enqueue(world, speaker(world, seconds=1.0), 30)
        async with working(world.app, slots=5):
            if workers == 1:
                await world.until(20)
            else:
                async with working(world.app, slots=5):
                    await world.until(20)
        assert len(times(world)) == 30
        assert times(world)[-1] <= 9.1

    simulate(store, scenario)


def test_a_queue_that_has_cooled_down_starts_again_at_that_instant(store: str) -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="call", queue="api")
        async def call(number: int) -> None:
            world.say(f"call{number}")
            if world.loop.time() < 1:
                raise Throttled(30)

        async with working(world.app, slots=1, queues="api"):
            await world.app.enqueue_many([call.call(number) for number in range(5)])
            await world.until(29.9)
            assert len(world.seen) == 1
            # Somebody stirs, as others do all the time.
            await speaker(world, queue="elsewhere").enqueue("stir")
            await world.until(31)
        assert len(world.seen) == 6
        assert {at for at, _ in world.seen[1:]} == {30.0}

    simulate(store, scenario)


def test_a_breaker_tries_when_it_may_and_then_lets_all_through(store: str) -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="call", breaker=Breaker(2, cool_down=30), max_attempts=1)
        async def call(number: int) -> None:
            world.say(f"call{number}")
            if world.loop.time() < 1:
                raise ConnectionError("down")
            await asyncio.sleep(0.5)

        async with working(world.app, slots=2):
            await world.app.enqueue_many([call.call(number) for number in range(12)])
            await world.until(10)
            await speaker(world, queue="elsewhere").enqueue("stir")
            await world.until(40)
        assert len(world.seen) == 12
        starts = [at for at, _ in world.seen]
        assert starts[:3] == [0.0, 0.0, 30.0]  # two fail, one is let through
        assert starts[3:] == [30.5, 30.5, 31.0, 31.0, 31.5, 31.5, 32.0, 32.0, 32.5]

    simulate(store, scenario)
