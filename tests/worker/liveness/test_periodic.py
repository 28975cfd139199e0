"""The periodic loop, and the loop beside the worker's own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from tests.worker.fixtures import World, logged, simulate, until
from windlass._worker.periodic import LoopOnThread, run_every, start_loop_thread
from windlass.errors import StorageError, StorageUnavailable

TEN = timedelta(seconds=10)


async def for_a_while(
    world: World, step: Callable[[], Awaitable[object]], *, seconds: float
) -> None:
    """Run ``step`` every ten seconds."""
    stop = asyncio.Event()
    running = asyncio.ensure_future(run_every(TEN, step, stop=stop, what="the chore"))
    await world.until(seconds)
    stop.set()
    await running


def test_a_step_runs_at_once_and_then_in_its_interval() -> None:
    async def scenario(world: World) -> None:
        async def step() -> None:
            world.say("step")

        await for_a_while(world, step, seconds=35)
        assert [second for second, _ in world.seen] == [0, 10, 20, 30]

    simulate(scenario)


def test_a_stop_ends_the_wait_at_once() -> None:
    async def scenario(world: World) -> None:
        async def step() -> None: ...

        await for_a_while(world, step, seconds=3)
        assert world.loop.time() == 3

    simulate(scenario)


def test_a_loop_that_was_stopped_before_it_began_does_nothing() -> None:
    async def scenario(world: World) -> None:
        async def step() -> None:
            world.say("step")

        stop = asyncio.Event()
        stop.set()
        await run_every(TEN, step, stop=stop, what="the chore")
        assert world.seen == []

    simulate(scenario)


def test_an_outage_is_logged_once_and_its_end_too() -> None:
    async def scenario(world: World) -> None:
        async def step() -> None:
            world.say("step")
            if 15 < world.loop.time() < 95:
                raise StorageUnavailable("the store is away")

        with logged() as lines:
            await for_a_while(world, step, seconds=125)
        assert len(world.seen) == 13
        texts = [line.getMessage() for line in lines.records]
        assert texts == [
            "the chore failed, retrying every 10 s: the store is away",
            "the chore works again",
        ]
        assert [line.levelname for line in lines.records] == ["WARNING", "INFO"]

    simulate(scenario)


def test_another_failure_of_the_store_is_logged_too() -> None:
    async def scenario(world: World) -> None:
        errors = [StorageError("one"), StorageError("one"), StorageError("two")]

        async def step() -> None:
            if errors:
                raise errors.pop(0)

        with logged() as lines:
            await for_a_while(world, step, seconds=55)
        assert len(lines.having("one")) == 1
        assert len(lines.having("two")) == 1

    simulate(scenario)


def test_a_step_that_breaks_is_logged_with_its_place_and_the_loop_goes_on() -> None:
    async def scenario(world: World) -> None:
        async def step() -> None:
            world.say("step")
            raise ValueError("broken")

        with logged() as lines:
            await for_a_while(world, step, seconds=25)
        assert len(world.seen) == 3
        assert len(lines.records) == 3
        assert all(line.exc_info is not None for line in lines.records)

    simulate(scenario)


# --- on a thread ---------------------------------------------------------------------------------


async def test_a_loop_on_a_thread_goes_on_while_this_one_is_blocked() -> None:
    ticks: list[int] = []
    enough = threading.Event()

    async def main(stop: asyncio.Event) -> None:
        async def tick() -> None:
            ticks.append(threading.get_ident())
            if len(ticks) == 5:
                enough.set()

        await run_every(timedelta(milliseconds=1), tick, stop=stop, what="ticking")

    aside = start_loop_thread("ticker", main)
    assert enough.wait(30)  # which blocks this loop
    await aside.stop()
    count = len(ticks)
    assert threading.get_ident() not in ticks
    assert count >= 5


async def test_stopping_waits_for_the_thread() -> None:
    ended = threading.Event()

    async def main(stop: asyncio.Event) -> None:
        await stop.wait()
        ended.set()

    aside = LoopOnThread("ending", main)
    assert not ended.is_set()
    await aside.stop()
    assert ended.is_set()


async def test_a_loop_on_a_thread_that_fails_says_so_and_can_be_stopped() -> None:
    async def main(stop: asyncio.Event) -> None:
        raise ValueError("broken")

    with logged() as lines:
        aside = LoopOnThread("doomed", main)
        await until(lambda: lines.having("the doomed thread failed"))
        await aside.stop()
        await aside.stop()


@pytest.mark.parametrize("interval", [timedelta(milliseconds=1), timedelta(hours=1)])
async def test_stopping_does_not_wait_for_the_interval(interval: timedelta) -> None:
    async def main(stop: asyncio.Event) -> None:
        async def step() -> None: ...

        await run_every(interval, step, stop=stop, what="waiting")

    aside = start_loop_thread("waiting", main)
    async with asyncio.timeout(30):
        await aside.stop()
