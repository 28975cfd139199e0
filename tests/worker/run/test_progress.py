"""Progress notes: the latest one, a few times a second, and never of a run that is over."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.worker import process_app
from tests.worker.fixtures import Hook, World, bench, register, simulate, until, working
from windlass import Context, testing
from windlass._app.parts import parts_of
from windlass._core.job.job import JobRecord, Progress
from windlass._core.job.state import State
from windlass._storage.protocol.jobs import Want
from windlass._worker.run.progress import ProgressReporter
from windlass.errors import JobFailed, StorageUnavailable


def test_progress_is_stored_at_most_a_few_times_a_second() -> None:
    async def scenario(world: World) -> None:
        store = await world.tampered()

        @world.app.task(name="job")
        async def count(ctx: Context) -> None:
            for step in range(1000):
                ctx.progress(step / 1000, f"step {step}")
                await asyncio.sleep(0.01)

        async with working(world.app, store=store):
            job = await count.enqueue()
            await world.until(5.0)
            record = await job.refresh()
            assert record.progress is not None
            assert 0.45 <= record.progress.fraction <= 0.5
            assert record.progress.note.startswith("step 4")
            await job.result()
        assert 30 <= store.calls["jobs.report"] <= 42

    simulate(scenario)


def test_the_first_note_is_stored_at_once() -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="job")
        async def job(ctx: Context) -> None:
            ctx.progress(0.5, "half")
            await asyncio.sleep(100)

        async with working(world.app):
            enqueued = await job.enqueue()
            await world.until(0.01)
            assert (await enqueued.refresh()).progress == Progress(0.5, "half")

    simulate(scenario)


def test_notes_of_many_jobs_are_one_write() -> None:
    async def scenario(world: World) -> None:
        store = await world.tampered()
        sizes: list[int] = []

        async def report(call: Hook, notes: list[Any]) -> None:
            sizes.append(len(notes))
            await call(notes)

        store.on("jobs.report", report)

        @world.app.task(name="job")
        async def job(ctx: Context) -> None:
            for step in range(10):
                ctx.progress(step / 10)
                await asyncio.sleep(0.1)

        async with working(world.app, store=store, slots=20):
            await world.app.enqueue_many([job.call() for _ in range(20)])
            await world.until(2)
        assert max(sizes) == 20
        assert len(sizes) <= 6

    simulate(scenario)


def test_an_outage_costs_notes_and_nothing_else() -> None:
    async def scenario(world: World) -> JobRecord:
        store = await world.tampered()

        @world.app.task(name="job")
        async def job(ctx: Context) -> str:
            ctx.progress(0.1)
            await asyncio.sleep(1)
            ctx.progress(0.9)
            await asyncio.sleep(1)
            return "done"

        async with working(world.app, store=store):
            enqueued = await job.enqueue()
            await world.until(0.5)
            store.down = True
            await world.until(1.5)
            store.down = False
            assert await enqueued.result() == "done"
            return await enqueued.refresh()

    job = simulate(scenario)
    assert job.state is State.SUCCEEDED
    assert job.progress == Progress(0.1)


async def test_a_note_from_a_thread_is_stored() -> None:
    async with bench() as it:
        go = threading.Event()

        @it.app.task(name="job")
        def job(ctx: Context) -> None:
            ctx.progress(0.25, "quarter")
            go.wait(30)

        enqueued = await job.enqueue()
        stepping = asyncio.ensure_future(it.engine.step())
        await until(lambda: it.store.calls["jobs.report"])
        assert (await enqueued.refresh()).progress == Progress(0.25, "quarter")
        go.set()
        await stepping
        assert (await enqueued.refresh()).state is State.SUCCEEDED


async def test_a_note_of_a_claim_that_is_lost_changes_nothing() -> None:
    async with bench() as it:

        @it.app.task(name="job")
        async def job() -> None: ...

        enqueued = await job.enqueue()
        storage = await parts_of(it.app).storage()
        await register(storage, "other")
        wants = [Want("default", 1)]
        (old,) = (await storage.jobs.claim("other", wants, total=1)).jobs
        await storage.workers.leave("other", [])
        (new,) = (await storage.jobs.claim(it.engine.identity.id, wants, total=1)).jobs

        reporter = ProgressReporter(storage.jobs)
        reporter.note(new, Progress(0.2))
        await until(lambda: not reporter._notes and reporter._task is not None)
        reporter.note(old, Progress(0.9))
        await reporter.close()
        reporter = ProgressReporter(storage.jobs)
        reporter.note(old, Progress(0.9))
        await until(lambda: reporter._task is not None and not reporter._notes)
        assert (await enqueued.refresh()).progress == Progress(0.2)
        await reporter.close()


async def test_a_run_that_has_ended_is_not_reported_any_more() -> None:
    async with bench() as it:

        @it.app.task(name="job")
        async def job(ctx: Context) -> None:
            for step in range(5):
                ctx.progress(step / 5)
                await asyncio.sleep(0)

        await it.run(job.call())
        assert it.store.calls["jobs.report"] <= 2  # the first word, and the last with the outcome
        await it.engine.progress.close()


def test_the_last_note_of_a_run_is_stored_with_its_outcome() -> None:
    async def scenario(world: World) -> None:
        store = await world.tampered()

        @world.app.task(name="job")
        async def job(ctx: Context) -> None:
            ctx.progress(0.1)
            await asyncio.sleep(0.1)
            ctx.progress(0.2)
            await asyncio.sleep(0.01)

        async with working(world.app, store=store):
            enqueued = await job.enqueue()
            await world.until(5)
            assert (await enqueued.refresh()).progress == Progress(0.2)
        assert store.calls["jobs.report"] == 2

    simulate(scenario)


def test_jobs_that_say_nothing_cost_no_report() -> None:
    async def scenario(world: World) -> int:
        store = await world.tampered()

        @world.app.task(name="job")
        async def job() -> None: ...

        async with working(world.app, store=store):
            await job.enqueue()
            await world.until(5)
        return store.calls["jobs.report"]

    assert simulate(scenario) == 0


@pytest.mark.parametrize("executor", process_app.EXECUTORS)
async def test_the_last_note_is_stored_in_every_executor(executor: str) -> None:
    app = process_app.app
    with testing.isolated(app):
        async with app, app.worker():
            job = await app.tasks[f"{executor}.count"].enqueue()
            await job.result(timeout=20)
            assert (await job.refresh()).progress == Progress(1.0, "10 of 10", {"step": 10})


async def test_a_report_that_fails_costs_the_note_and_not_the_outcome() -> None:
    async with bench() as it:

        @it.app.task(name="job")
        async def job(ctx: Context) -> None:
            ctx.progress(1.0)

        async def report(call: Hook, notes: list[Any]) -> None:
            raise StorageUnavailable("away")

        it.store.hooks["jobs.report"] = report
        record = await it.run(job.call())
        assert (record.state, record.progress) == (State.SUCCEEDED, None)


async def test_closing_stops_the_storing() -> None:
    async with bench() as it:
        reporter = ProgressReporter(it.store.storage.jobs)
        await reporter.close()
        assert it.store.calls["jobs.report"] == 0


def test_a_note_that_no_store_could_write_spoils_no_other() -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="job")
        async def job(ctx: Context) -> None:
            ctx.progress(0.5, "half \ud800 way")
            await asyncio.sleep(1)

        async with working(world.app):
            handle = await job.enqueue()
            await world.until(0.9)
            record = await handle.refresh()
        assert record.progress == Progress(0.5, "half ? way")

    simulate(scenario)


def test_any_error_of_the_store_on_one_note_blocks_no_other_report() -> None:
    async def scenario(world: World) -> None:
        store = await world.tampered()
        broken = True

        async def report(call: Hook, notes: Any) -> Any:
            if broken:
                raise ValueError("cannot be written")
            return await call(notes)

        store.on("jobs.report", report)

        @world.app.task(name="job")
        async def job(ctx: Context) -> None:
            for second in range(10):
                ctx.progress(second / 10, "")
                await asyncio.sleep(1)

        async with working(world.app, store=store):
            handle = await job.enqueue()
            await world.until(3)
            broken = False
            await world.until(6.5)
            record = await handle.refresh()
            assert record.progress == Progress(0.6, "")
        assert (await handle.refresh()).state is State.SUCCEEDED

    simulate(scenario)


def test_progress_carries_data_up_to_a_size() -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="job", max_attempts=1)
        async def job(ctx: Context, *, size: int) -> None:
            ctx.progress(0.5, "half", data={"rows": 12, "at": datetime(2030, 1, 1, tzinfo=UTC)})
            ctx.progress(0.6, data={"text": "x" * size})

        async with working(world.app):
            fits, large = await job.enqueue(size=4000), await job.enqueue(size=4096)
            await fits.result()
            with pytest.raises(JobFailed, match=r"the data of ctx\.progress"):
                await large.result()
            assert (await fits.refresh()).progress == Progress(0.6, "", {"text": "x" * 4000})
            kept = {"rows": 12, "at": "2030-01-01T00:00:00Z"}
            assert (await large.refresh()).progress == Progress(0.5, "half", kept)

    simulate(scenario)
