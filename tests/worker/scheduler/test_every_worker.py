"""Schedules that run on every worker, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.worker.fixtures import World, logged, simulate, working
from windlass import Context, Every, Manual, Windlass
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass.errors import DefinitionError, InvalidArgument


def refreshing(world: World, seen: list[tuple[str, Any]], **options: Any) -> None:
    @world.app.schedule(Every(10), name="refresh", on="every_worker", **options)
    @world.app.task(name="refresh", queue="local")
    async def refresh(ctx: Context) -> None:
        seen.append((ctx.claimed.worker, ctx.slot))


def test_each_worker_of_the_queue_runs_each_slot_once_without_a_job() -> None:
    async def scenario(world: World) -> tuple[list[tuple[str, Any]], Any, Any]:
        seen: list[tuple[str, Any]] = []
        refreshing(world, seen)
        async with (
            working(world.app, queues=["local"]) as one,
            working(world.app, queues=["local"]) as two,
            working(world.app, queues=["other"]),
        ):
            await asyncio.sleep(45)
            ids = {one.worker.id, two.worker.id}
            report = await world.app.admin.schedules.get("refresh")
        assert {worker for worker, _ in seen} == ids
        jobs = await world.app.admin.jobs.find(JobFilter(task="refresh"))
        return seen, report, jobs

    seen, report, jobs = simulate(scenario)
    assert len(seen) == len(set(seen))
    assert len({slot for _, slot in seen}) * 2 == len(seen)
    assert 8 <= len(seen) <= 10
    assert len(jobs) == 0
    assert report.plan.on == "every_worker"
    assert {run.worker for run in report.on_workers} == {worker for worker, _ in seen}
    assert {run.outcome for run in report.on_workers} == {"succeeded"}
    assert report.fired >= 4


def test_a_paused_schedule_a_pause_of_all_and_a_paused_worker_run_nothing() -> None:
    async def scenario(world: World) -> list[int]:
        seen: list[tuple[str, Any]] = []
        refreshing(world, seen)
        counts: list[int] = []

        async def count() -> None:
            seen.clear()
            await asyncio.sleep(30)
            counts.append(len(seen))

        admin = world.app.admin
        async with working(world.app, queues=["local"]) as shift:
            await asyncio.sleep(15)
            await admin.schedules.pause("refresh")
            await count()
            await admin.schedules.resume("refresh")
            await count()
            await admin.schedules.pause_all()
            await count()
            await admin.schedules.resume_all()
            await asyncio.sleep(15)
            await admin.workers.quiet(shift.worker.id)
            await asyncio.sleep(15)
            await count()
        return counts

    assert simulate(scenario) == [0, 2, 0, 0]


def test_a_run_that_fails_is_logged_and_shown_and_the_next_slot_runs() -> None:
    async def scenario(world: World) -> tuple[int, Any]:
        ran: list[int] = []

        @world.app.schedule(Every(10), on="every_worker")
        @world.app.task(name="refresh")
        async def refresh() -> None:
            ran.append(1)
            raise ValueError("no cache")

        async with working(world.app):
            await asyncio.sleep(35)
            return len(ran), await world.app.admin.schedules.get("refresh")

    with logged("windlass") as lines:
        ran, report = simulate(scenario)
    assert ran >= 3
    (run,) = report.on_workers
    assert run.outcome == "failed: ValueError: no cache"
    assert len(lines.having("schedule refresh failed on this worker")) == ran


def test_timeouts_and_middleware_apply_and_a_slot_during_a_run_is_skipped() -> None:
    async def scenario(world: World) -> tuple[list[str], Any]:
        heard: list[str] = []

        @world.app.middleware
        async def around(ctx: Context, call_next: Any) -> Any:
            heard.append(ctx.task)
            return await call_next()

        @world.app.schedule(Every(10), on="every_worker")
        @world.app.task(name="slow", timeout=25)
        async def slow() -> None:
            await asyncio.sleep(1000)

        async with working(world.app):
            await asyncio.sleep(45)
            return heard, await world.app.admin.schedules.get("slow")

    heard, report = simulate(scenario)
    assert heard == ["slow", "slow"]
    (run,) = report.on_workers
    assert "timeout of 25 s" in run.outcome


def test_a_trigger_runs_one_job() -> None:
    async def scenario(world: World) -> tuple[int, int]:
        seen: list[tuple[str, Any]] = []
        refreshing(world, seen)
        async with working(world.app, queues=["local"]), working(world.app, queues=["local"]):
            await asyncio.sleep(1)
            await world.app.admin.schedules.trigger("refresh")
            await asyncio.sleep(1)
        return len(seen), len(await world.app.admin.jobs.find(JobFilter(task="refresh")))

    assert simulate(scenario) == (1, 1)


@pytest.mark.parametrize(
    ("rule", "options", "what"),
    [
        (Every(5), {"on": "everywhere"}, "'one_worker' or 'every_worker'"),
        (Every(5, after="end"), {"on": "every_worker"}, "leave after='end' out"),
        (Manual(), {"on": "every_worker"}, r"leave Manual\(\) out"),
        (Every(5), {"on": "every_worker", "missed": "all"}, "leave missed='all' out"),
        (Every(5), {"on": "every_worker", "overlap": "queue"}, "leave overlap out"),
        (Every(5), {"on": "every_worker", "jitter": 3}, "leave jitter out"),
    ],
)
def test_options_that_make_no_sense_are_refused(rule: Any, options: Any, what: str) -> None:
    app = Windlass("memory://")
    with pytest.raises(InvalidArgument, match=what):
        app.schedule(rule, **options)


def test_a_task_in_a_child_process_is_refused() -> None:
    async def scenario(world: World) -> None:
        @world.app.schedule(Every(5), on="every_worker")
        @world.app.task(name="heavy", run_in="process")
        def heavy() -> None: ...

        async with working(world.app):
            pass

    with pytest.raises((DefinitionError, InvalidArgument), match="leave run_in='process' out"):
        simulate(scenario)
