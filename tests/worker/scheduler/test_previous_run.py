"""A scheduled run reads the run before it, on every backend and from every executor."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.worker.fixtures import World, simulate, working
from windlass import Backoff, Context, Every, Manual, PreviousRun, Windlass
from windlass._storage.protocol.lists.job_list import JobFilter

Seen = list[PreviousRun | None]


def test_a_run_reads_start_end_outcome_and_result_of_the_one_before() -> None:
    async def scenario(world: World) -> tuple[Seen, list[Any]]:
        seen: Seen = []

        @world.app.schedule(Every(60))
        @world.app.task(name="count")
        async def count(ctx: Context) -> int:
            before = await ctx.previous_run()
            seen.append(before)
            await asyncio.sleep(5)
            return 1 if before is None else before.result + 1

        async with working(world.app):
            await asyncio.sleep(200)
        jobs = await world.app.admin.jobs.find(JobFilter(task="count"), limit=10)
        return seen, [*reversed(jobs)]

    seen, jobs = simulate(scenario)
    assert len(seen) == len(jobs) >= 3
    assert seen[0] is None
    for before, job in zip(seen[1:], jobs, strict=False):
        assert before is not None
        assert before.job_id == job.id
        assert before.outcome == "succeeded"
        assert (before.started_at, before.ended_at) == (job.started_at, job.finished_at)
        assert before.ended_at is not None
        assert before.started_at is not None
        assert before.ended_at - before.started_at >= timedelta(seconds=5)
        assert before.error is None
    assert [before.result for before in seen[1:] if before is not None] == [
        number for number, _ in enumerate(seen[1:], 1)
    ]


def test_a_failed_run_is_the_previous_one_with_its_error() -> None:
    async def scenario(world: World) -> Seen:
        seen: Seen = []

        @world.app.schedule(Every(60), breaker=False)
        @world.app.task(name="moody", max_attempts=1, backoff=Backoff.fixed(1))
        async def moody(ctx: Context) -> None:
            seen.append(await ctx.previous_run())
            raise RuntimeError("not today")

        async with working(world.app):
            await asyncio.sleep(130)
        return seen

    first, second, *_ = simulate(scenario)
    assert first is None
    assert second is not None
    assert second.outcome == "failed"
    assert second.error == "RuntimeError: not today"
    assert second.result is None


def test_a_triggered_run_of_an_operators_schedule_finds_the_one_before() -> None:
    async def scenario(world: World) -> Seen:
        seen: Seen = []

        @world.app.task(name="report")
        async def report(ctx: Context) -> None:
            seen.append(await ctx.previous_run())

        async with working(world.app):
            admin = world.app.admin.acting("ada")
            await admin.schedules.create("by-hand", Manual(), report.call())
            for _ in range(2):
                await admin.schedules.trigger("by-hand")
                await asyncio.sleep(5)
            await report.enqueue()
            await asyncio.sleep(5)
        return seen

    first, second, unscheduled = simulate(scenario)
    assert first is None
    assert second is not None
    assert second.outcome == "succeeded"
    assert unscheduled is None


def test_a_deleted_job_leaves_its_outcome() -> None:
    async def scenario(world: World) -> PreviousRun | None:
        seen: Seen = []

        @world.app.schedule(Every(60))
        @world.app.task(name="tick")
        async def tick(ctx: Context) -> str:
            if seen:
                await world.app.admin.jobs.delete(ids[-1])
            ids.append(ctx.job_id)
            seen.append(await ctx.previous_run())
            return "done"

        ids: list[str] = []
        async with working(world.app):
            await asyncio.sleep(130)
        return seen[1]

    before = simulate(scenario)
    assert before is not None
    assert before.outcome == "succeeded"
    assert before.result is None
    assert before.started_at is None


@pytest.mark.parametrize("backend", ["memory", "sqlite", "postgres", "redis"])
async def test_every_backend_and_both_kinds_of_function_read_it(
    backend: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    match backend:
        case "memory":
            url = "memory://"
        case "sqlite":
            url = f"sqlite:///{tmp_path}/jobs.db"
        case name:
            url = str(request.getfixturevalue(f"{name}_url"))
    app = Windlass(url, poll=0.05)
    loop = asyncio.get_running_loop()
    loop_seen: asyncio.Queue[PreviousRun | None] = asyncio.Queue()
    thread_seen: asyncio.Queue[PreviousRun | None] = asyncio.Queue()

    @app.schedule(Every(0.2))
    @app.task(name="on_loop")
    async def on_loop(ctx: Context) -> str:
        loop_seen.put_nowait(await ctx.previous_run())
        return "loop"

    @app.schedule(Every(0.2))
    @app.task(name="on_thread")
    def on_thread(ctx: Context) -> str:
        loop.call_soon_threadsafe(thread_seen.put_nowait, ctx.previous_run().wait())
        return "thread"

    async with app, app.worker(), asyncio.timeout(30):
        for seen, result in ((loop_seen, "loop"), (thread_seen, "thread")):
            assert await seen.get() is None
            second = await seen.get()
            assert second is not None
            assert (second.outcome, second.result) == ("succeeded", result)


async def test_the_blocking_call_is_refused_on_the_event_loop() -> None:
    app = Windlass("memory://")
    raised: list[str] = []

    @app.task(name="wrong")
    async def wrong(ctx: Context) -> None:
        with pytest.raises(Exception, match=r"write `await ctx.previous_run\(\)`") as error:
            ctx.previous_run().wait()
        raised.append(type(error.value).__name__)

    async with app, app.worker(), asyncio.timeout(30):
        await (await wrong.enqueue()).result()
    assert raised == ["WindlassError"]
