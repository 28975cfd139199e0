"""Cancelling: waiting jobs at once, running ones through their worker, from anywhere."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from tests.worker.fixtures import (
    Bench,
    Hook,
    World,
    bench,
    make_worker,
    simulate,
    until,
    working,
)
from windlass import Context, GiveUp, Retry, Snooze, Windlass
from windlass._app.parts import parts_of
from windlass._core.job.event import Event, JobMoved
from windlass._core.job.job import Claim, JobId, JobRecord
from windlass._core.job.state import State, Verb
from windlass._storage.protocol.jobs import CancelAnswer
from windlass._system.seams import Seams
from windlass._worker.run.execution import StopCause
from windlass.errors import JobCancelled

# --- waiting -------------------------------------------------------------------------------------


async def test_a_waiting_job_is_cancelled_at_once_and_never_runs() -> None:
    async with bench() as it:

        @it.app.task(name="job")
        async def job() -> None: ...

        enqueued = await job.enqueue()
        assert await enqueued.cancel() is CancelAnswer.CANCELLED
        assert await it.engine.step() == 0
        assert (await enqueued.refresh()).state is State.CANCELLED
        with pytest.raises(JobCancelled):
            await enqueued.result()


async def test_a_job_that_has_ended_is_too_late_to_cancel() -> None:
    async with bench() as it:

        @it.app.task(name="job")
        async def job() -> None: ...

        record = await it.run(job.call())
        assert await parts_of(it.app).producer.cancel(record.id) is CancelAnswer.TOO_LATE
        assert (await parts_of(it.app).producer.refresh(record.id)).state is State.SUCCEEDED


# --- running, on the loop ------------------------------------------------------------------------


def test_a_running_coroutine_is_cancelled_within_a_second_without_a_heartbeat() -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="job")
        async def job() -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                world.say("cancelled")

        async with working(world.app):
            enqueued = await job.enqueue()
            await world.until(101)
            assert await enqueued.cancel() is CancelAnswer.REQUESTED
            await world.until(102)
            record = await enqueued.refresh()
            assert record.state is State.CANCELLED
            assert record.error is not None
            assert (record.error.kind, record.error.message) == (
                "Cancelled",
                "cancelled on request",
            )
            assert [a.verb for a in await world.app.admin.jobs.history(record.id)] == [Verb.CANCEL]
        ((second, _),) = world.seen
        assert second - 101 <= 0.2

    simulate(scenario, heartbeat=100, lease=1000, poll=1000)


def test_without_hints_the_next_heartbeat_brings_the_request() -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="job")
        async def job() -> None:
            await asyncio.sleep(3600)

        async with working(world.app, store=await world.tampered(deaf=True)):
            enqueued = await job.enqueue()
            await world.until(101)
            await enqueued.cancel()
            await world.until(104)
            assert (await enqueued.refresh()).state is State.RUNNING
            await world.until(106)
            assert (await enqueued.refresh()).state is State.CANCELLED

    simulate(scenario, heartbeat=5)


def test_a_request_that_arrives_while_requests_are_looked_for_is_not_lost() -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="job")
        async def job() -> None:
            await asyncio.sleep(3600)

        store = await world.tampered()
        async with working(world.app, store=store):
            enqueued = await job.enqueue()
            await world.until(10)

            async def slow_look(call: Hook, worker: str) -> Sequence[Claim]:
                found: Sequence[Claim] = await call(worker)
                store.hooks.clear()
                await enqueued.cancel()
                await asyncio.sleep(0.5)
                return found

            store.on("workers.cancel_requests", slow_look)
            await world.app.admin.queues.resume("default")  # a hint, and nothing to find
            await world.until(12)
            assert (await enqueued.refresh()).state is State.CANCELLED
            assert store.calls["workers.cancel_requests"] <= 5

    simulate(scenario, heartbeat=100, lease=1000, poll=1000)


def test_a_request_from_another_client_reaches_the_worker() -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="job")
        async def job() -> None:
            await asyncio.sleep(3600)

        other = Windlass("memory://")
        shared = parts_of(world.app).connections  # two apps on one database
        with parts_of(other).connections.replaced(shared.opener, Seams()):
            async with working(world.app), other:
                enqueued = await job.enqueue()
                await world.until(1)
                assert await other.job(enqueued.id).cancel() is CancelAnswer.REQUESTED
                with pytest.raises(JobCancelled):
                    await other.job(enqueued.id).result(timeout=5)

    simulate(scenario)


def test_success_wins_over_a_request() -> None:
    async def scenario(world: World) -> JobRecord:
        @world.app.task(name="job")
        async def stubborn() -> str:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                return "done all the same"
            return "never"

        async with working(world.app):
            enqueued = await stubborn.enqueue()
            await world.until(1)
            await enqueued.cancel()
            assert await enqueued.result(timeout=5) == "done all the same"
            return await enqueued.refresh()

    assert simulate(scenario).state is State.SUCCEEDED


def test_a_handler_that_swallows_a_cancel_continues_and_is_asked_once() -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="job")
        async def deaf() -> str:
            asked = 0
            for _ in range(600):
                try:
                    await asyncio.sleep(0.1)
                except asyncio.CancelledError:
                    asked += 1
            return f"asked {asked} times"

        @world.app.task(name="noise")
        async def noise() -> None: ...

        async with working(world.app):
            enqueued = await deaf.enqueue()
            await world.until(1)
            await enqueued.cancel()
            for second in range(2, 60, 2):  # hints of all kinds
                await noise.enqueue()
                await world.until(second)
            assert await enqueued.result(timeout=60) == "asked 1 times"

    simulate(scenario)


def test_cleaning_up_after_a_request_is_not_disturbed_by_the_next_heartbeat() -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="job")
        async def tidy() -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                await asyncio.sleep(12)
                world.say("cleaned up")

        async with working(world.app):
            enqueued = await tidy.enqueue()
            await world.until(1)
            await enqueued.cancel()
            await world.until(20)
            assert (await enqueued.refresh()).state is State.CANCELLED
        assert world.words == ["cleaned up"]

    simulate(scenario, heartbeat=1)


ENDS: list[BaseException] = [ValueError("x"), Retry("x"), Snooze(60), GiveUp("x"), SystemExit(1)]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: type(end).__name__)
def test_any_other_end_gives_way_to_a_request(end: BaseException) -> None:
    async def scenario(world: World) -> None:
        moved: list[Verb] = []

        def hear(event: Event) -> None:
            if isinstance(event, JobMoved):
                moved.append(event.verb)

        world.app.on_transition(hear)

        @world.app.task(name="job")
        async def job() -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                raise end

        async with working(world.app):
            enqueued = await job.enqueue()
            await world.until(1)
            await enqueued.cancel()
            await world.until(3)
            assert (await enqueued.refresh()).state is State.CANCELLED
        assert moved == [Verb.CLAIM, Verb.CANCEL]

    simulate(scenario)


def test_an_error_after_a_cancel_request_is_stored() -> None:
    async def scenario(world: World) -> JobRecord:
        @world.app.task(name="job")
        async def job() -> None:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                raise ValueError("half a file is left") from None

        async with working(world.app):
            enqueued = await job.enqueue()
            await world.until(1)
            await enqueued.cancel()
            await world.until(3)
            return await enqueued.refresh()

    job = simulate(scenario)
    assert job.state is State.CANCELLED
    assert job.error is not None
    assert job.error.message == "half a file is left"


def test_a_request_does_not_reach_the_next_run_of_a_requeued_job() -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="job")
        async def job(ctx: Context) -> str:
            await asyncio.sleep(10)
            return f"attempt {ctx.attempt}"

        async with working(world.app):
            enqueued = await job.enqueue()
            await world.until(1)
            await enqueued.cancel()
            await world.until(2)
            await world.app.admin.jobs.requeue(enqueued.id)
            assert await enqueued.result(timeout=30) == "attempt 2"

    simulate(scenario)


# --- before the first step -----------------------------------------------------------------------


async def started(it: Bench) -> Claim:
    await it.engine.claimer.step()
    (claim,) = it.engine.runner.active
    return claim


@pytest.mark.parametrize("why", list(StopCause), ids=lambda why: why.name.lower())
@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_a_run_that_is_stopped_before_its_first_step_ends_without_running(
    why: StopCause, kind: str
) -> None:
    async with bench() as it:
        ran: list[bool] = []

        async def coroutine() -> None:
            ran.append(True)

        def function() -> None:
            ran.append(True)

        task = it.app.task(name="job")(coroutine if kind == "coroutine" else function)
        job = await task.enqueue()
        claim = await started(it)
        assert it.engine.runner.stop(claim, why)
        await it.engine.step()
        expected = State.CANCELLED if why is StopCause.CANCEL else State.WAITING
        assert (await job.refresh()).state is expected
        assert ran == []
        assert it.engine.slots.used == 0


async def test_stopping_what_does_not_run_here_is_no_error() -> None:
    async with bench() as it:
        assert not it.engine.runner.stop(Claim(JobId("0" * 32), 1, 1), StopCause.CANCEL)


# --- on threads ----------------------------------------------------------------------------------


async def test_a_running_function_sees_the_request_in_its_token() -> None:
    async with Windlass("memory://") as app:

        @app.task(name="job")
        def job(ctx: Context) -> None:
            assert ctx.cancelled.wait(10)
            assert ctx.cancelled
            raise RuntimeError("given up half-way")

        worker = await make_worker(app, simulated=False)
        running = asyncio.ensure_future(worker.run())
        enqueued = await job.enqueue()
        await until(lambda: worker.engine.runner.active)
        assert await enqueued.cancel() is CancelAnswer.REQUESTED
        with pytest.raises(JobCancelled):
            await enqueued.result(timeout=30)
        worker.stop()
        await running


async def test_asking_a_function_again_sets_its_token_again() -> None:
    async with bench() as it:
        go = threading.Event()

        @it.app.task(name="job")
        def job() -> None:
            go.wait(30)

        await job.enqueue()
        claim = await started(it)
        run = it.engine.runner.active[claim]
        it.engine.runner.stop(claim, StopCause.CANCEL)
        run._event = threading.Event()  # as when the thread made its own at the same moment
        it.engine.runner.stop(claim, StopCause.CANCEL)
        assert run
        go.set()
        await it.engine.step()


async def test_a_function_that_returns_in_spite_of_the_request_has_succeeded() -> None:
    async with bench() as it:
        go = threading.Event()

        @it.app.task(name="job")
        def job(ctx: Context) -> str:
            go.wait(30)
            return "done" if ctx.cancelled else "not asked"

        enqueued = await job.enqueue()
        claim = await started(it)
        await asyncio.sleep(0)
        await enqueued.cancel()
        it.engine.runner.stop(claim, StopCause.CANCEL)
        go.set()
        await it.engine.step()
        assert await enqueued.result() == "done"


async def test_a_function_that_raises_after_the_request_is_cancelled() -> None:
    async with bench() as it:
        go = threading.Event()

        @it.app.task(name="job")
        def job() -> None:
            go.wait(30)
            raise ValueError("x")

        enqueued = await job.enqueue()
        claim = await started(it)
        await asyncio.sleep(0)
        await enqueued.cancel()
        it.engine.runner.stop(claim, StopCause.CANCEL)
        go.set()
        await it.engine.step()
        assert (await enqueued.refresh()).state is State.CANCELLED
