"""Every run ends with a word, also when the rules that decide about it raise."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from tests.worker.fixtures import Bench, World, bench, logged, make_worker, simulate
from windlass import Backoff
from windlass._core.job.outcome import Policy
from windlass._core.job.state import State
from windlass._tasks.task import Task


class Broken(Backoff, frozen=True, kw_only=True):
    """A curve of somebody's own, with a mistake in it."""

    def delay(self, tries: int, chance: float) -> timedelta:
        raise ZeroDivisionError(f"{tries} of {chance}")


class Exits(Backoff, frozen=True, kw_only=True):
    """A curve that ends the program."""

    def delay(self, tries: int, chance: float) -> timedelta:
        raise SystemExit(f"{tries} of {chance}")


def with_backoff(it: Bench, backoff: Backoff, end: Any) -> Task[[], object]:
    """A task whose rules wait by ``backoff``."""

    @it.app.task(name="job")
    async def job() -> object:
        return end()

    it.engine.decisions._made["job", "default"] = (job, Policy(backoff=backoff))
    return job


def fails() -> None:
    raise ValueError


@pytest.mark.parametrize("curve", [Broken, Exits])
async def test_a_policy_that_raises_fails_the_job_and_frees_the_slot(curve: type[Backoff]) -> None:
    async with bench(slots=2) as it:
        broken = curve(**msgspec.structs.asdict(Backoff.none()))
        with logged() as lines:
            job = await it.run(with_backoff(it, broken, fails).call())
        assert job.state is State.FAILED
        assert job.error is not None
        assert job.error.kind in ("ZeroDivisionError", "SystemExit")
        assert it.engine.idle
        assert it.engine.slots.free == 2
        (line,) = (r for r in lines.records if "the rules of task job raised" in r.getMessage())
        assert line.exc_info is not None


async def test_a_policy_that_cannot_be_found_out_takes_no_success_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with bench() as it:
        task = with_backoff(it, Backoff.none(), lambda: 5)

        def make(task: str, queue: str) -> Policy:
            raise LookupError(task, queue)

        it.engine.decisions._made.clear()
        monkeypatch.setattr(it.engine.decisions, "_make", make)
        job = await it.run(task.call())
        assert (job.state, job.result) == (State.SUCCEEDED, b"5")


async def test_an_end_that_cannot_be_noted_leaves_nothing_active(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with bench() as it:

        def add(*_: object) -> None:
            raise RuntimeError

        monkeypatch.setattr(it.engine.finisher, "add", add)
        with logged() as lines:
            await it.run(with_backoff(it, Backoff.none(), lambda: 5).call())
        assert not it.engine.runner.active
        assert it.engine.slots.free == 10
        assert lines.having("could not be recorded")


def test_a_run_without_a_body_does_not_keep_a_worker_from_stopping() -> None:
    async def scenario(world: World) -> float:
        @world.app.task(name="job")
        async def job() -> None:
            await asyncio.sleep(1000)

        await job.enqueue()
        worker = await make_worker(world.app)
        running = asyncio.create_task(worker.run())
        await world.until(1)
        _, body = worker.engine.runner.bodies.popitem()
        worker.stop()
        worker.stop()
        await running
        body.cancel()
        await asyncio.wait([body])
        return world.loop.time()

    assert simulate(scenario) < 10
