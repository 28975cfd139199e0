"""The tests of the scheduler this one succeeds, through plugins; and that every part of a
definition is kept: schedule, concurrency, timeout, retries, and what a run says of itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest

from tests.plugins.fakes import EVERYTHING, Some
from tests.worker.fixtures import World, simulate, working
from windlass import Backoff, Context, Every, GiveUp, Registrar, Retry, Snooze
from windlass._core.job.state import State
from windlass._storage.protocol.lists.job_list import JobFilter

Run = Callable[[Context], Awaitable[object]]


def scheduled(world: World, run: Run, rule: Any, **options: Any) -> None:
    """Install a plugin whose only task is ``run``, by ``rule``."""

    def say(registrar: Registrar) -> None:
        @registrar.schedule(rule)
        @registrar.task(**options)
        async def job(ctx: Context) -> object:
            world.say("run")
            return await run(ctx)

    world.app.install(Some(say), grants=EVERYTHING)


async def succeeds(ctx: Context) -> None: ...


async def fails(ctx: Context) -> None:
    raise RuntimeError("always")


def test_a_driver_fires_a_periodic_job() -> None:
    """U1: a period of 50 ms, 400 ms: at least two runs, and a clean stop."""

    async def scenario(world: World) -> int:
        scheduled(world, succeeds, Every(0.05))
        async with working(world.app):
            await world.until(0.4)
        return len(world.seen)

    assert 2 <= simulate(scenario) <= 8


def test_uninstalling_halts_further_runs() -> None:
    """U2: at least one run; after it at most the one in flight, also over a restart."""

    async def scenario(world: World) -> tuple[int, int, int]:
        scheduled(world, succeeds, Every(0.05))
        async with working(world.app):
            await world.until(0.15)
            before = len(world.seen)
            await world.app.uninstall("some")
            await world.until(0.45)
            after = len(world.seen)
        async with working(world.app):
            await world.until(0.75)
        return before, after, len(world.seen)

    before, after, restarted = simulate(scenario)
    assert before >= 1
    assert before <= after <= before + 1
    assert restarted == after


def test_removing_the_schedule_of_a_plugin_halts_it_over_every_installation() -> None:
    async def scenario(world: World) -> int:
        scheduled(world, succeeds, Every(0.05))
        async with working(world.app):
            await world.until(0.15)
            await world.app.admin.schedules.remove("some.job")
            await world.until(0.2)
            seen = len(world.seen)
            await world.app.uninstall("some")
            scheduled(world, succeeds, Every(0.05))
            await world.until(1)
        return len(world.seen) - seen

    assert simulate(scenario) == 0


def test_a_breaker_opens_after_ten_failures_in_a_row() -> None:
    """U3: always failing, every 20 ms for 500 ms: between 10 and 20 runs."""

    async def scenario(world: World) -> tuple[int, Any]:
        scheduled(world, fails, Every(0.02), max_attempts=1)
        async with working(world.app):
            await world.until(0.5)
            ran = len(world.seen)
            await world.until(1)
            return ran, await world.app.admin.breakers.list()

    ran, (breaker,) = simulate(scenario)
    assert 10 <= ran <= 20
    assert (breaker.task, breaker.state) == ("some.job", "open")


def test_a_flapping_task_does_not_stop_another_of_its_plugin() -> None:
    async def scenario(world: World) -> list[Any]:
        def say(registrar: Registrar) -> None:
            for name, run in (("bad", fails), ("good", succeeds)):
                task = registrar.task(name=name, max_attempts=1)(run)
                registrar.schedule(Every(0.1))(task)

        world.app.install(Some(say), grants=EVERYTHING)
        async with working(world.app):
            await world.until(5)
            return [
                (await world.app.admin.schedules.get(name)).fired
                for name in ("some.bad", "some.good")
            ]

    bad, good = simulate(scenario)
    assert bad <= 20
    assert good >= 40


# --- what a run says of itself --------------------------------------------------------------------


async def told(world: World, run: Run, until: float, **options: Any) -> list[Any]:
    """The jobs of a task that fires every minute, after some time."""
    scheduled(world, run, Every(60), **options)
    async with working(world.app):
        await world.until(until)
        return [*reversed(await world.app.admin.jobs.find(JobFilter(task="some.job")))]


def seconds(world: World) -> list[float]:
    return [at for at, _ in world.seen]


def test_done_is_done() -> None:
    async def scenario(world: World) -> None:
        (job,) = await told(world, succeeds, 110)
        assert (job.state, seconds(world)) == (State.SUCCEEDED, [60.0])

    simulate(scenario)


def test_run_again_later_runs_again_later() -> None:
    async def scenario(world: World) -> None:
        async def again(ctx: Context) -> None:
            if len(world.seen) == 1:
                raise Snooze(10)

        (job,) = await told(world, again, 110, max_attempts=1)
        assert (job.state, job.attempt, seconds(world)) == (State.SUCCEEDED, 1, [60.0, 70.0])

    simulate(scenario)


def test_failed_with_a_retry_is_retried_as_the_definition_says() -> None:
    async def scenario(world: World) -> None:
        (job,) = await told(world, fails, 110, max_attempts=3, backoff=Backoff.fixed(7))
        assert (job.state, job.attempt) == (State.FAILED, 3)
        assert seconds(world) == [60.0, 67.0, 74.0]

    simulate(scenario)


def test_failed_with_a_wish_is_retried_when_it_wishes() -> None:
    async def scenario(world: World) -> None:
        async def wishes(ctx: Context) -> None:
            raise Retry(after=20)

        (job,) = await told(world, wishes, 110, max_attempts=2)
        assert (job.state, seconds(world)) == (State.FAILED, [60.0, 80.0])

    simulate(scenario)


def test_failed_without_a_retry_is_not_retried() -> None:
    async def scenario(world: World) -> None:
        async def gives_up(ctx: Context) -> None:
            raise GiveUp("no use")

        (job,) = await told(world, gives_up, 110, max_attempts=5)
        assert (job.state, seconds(world)) == (State.FAILED, [60.0])

    simulate(scenario)


def test_never_retried_is_one_attempt() -> None:
    async def scenario(world: World) -> None:
        (job,) = await told(world, fails, 110, max_attempts=1)
        assert (job.state, job.attempt, seconds(world)) == (State.FAILED, 1, [60.0])

    simulate(scenario)


def test_a_run_that_takes_longer_than_its_timeout_has_failed() -> None:
    async def scenario(world: World) -> None:
        async def hangs(ctx: Context) -> None:
            await asyncio.sleep(3600)

        (job,) = await told(world, hangs, 110, max_attempts=1, timeout=5)
        assert (job.state, job.error.kind) == (State.FAILED, "windlass.errors.JobTimeout")
        assert (job.finished_at - job.started_at).total_seconds() == 5

    simulate(scenario)


# --- concurrency ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("concurrency", "most"), [(1, 1), (3, 3), (None, 9)])
def test_concurrency_is_exclusive_bounded_or_unbounded(concurrency: Any, most: int) -> None:
    async def scenario(world: World) -> int:
        running, seen = 0, 0

        def say(registrar: Registrar) -> None:
            @registrar.task(concurrency=concurrency)
            async def work() -> None:
                nonlocal running, seen
                running += 1
                seen = max(seen, running)
                await asyncio.sleep(1)
                running -= 1

        world.app.install(Some(say), grants=EVERYTHING)
        task = world.app.tasks["some.work"]
        await world.app.enqueue_many([task.call() for _ in range(9)])
        async with working(world.app, slots=4), working(world.app, slots=5):
            await world.until(20)
        assert running == 0
        return seen

    assert simulate(scenario) == most


def test_a_run_that_is_not_over_is_not_started_again() -> None:
    async def scenario(world: World) -> list[float]:
        async def takes_long(ctx: Context) -> None:
            await asyncio.sleep(2.5)

        scheduled(world, takes_long, Every(1))
        async with working(world.app):
            await world.until(12)
        return seconds(world)

    began = simulate(scenario)
    assert all(after - before >= 2.5 for before, after in pairwise(began))
