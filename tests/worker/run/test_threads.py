"""Plain functions on threads: reuse, growth, time-outs, and what a stuck one costs."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import Any

import pytest

from tests.worker.fixtures import World, bench, logged, simulate, until, working
from windlass import Backoff, Context
from windlass._app.parts import parts_of
from windlass._core.job.state import State
from windlass._worker.run.execution import StopCause
from windlass._worker.run.threads import ThreadPool

HERE = contextvars.copy_context()


async def ran(threads: ThreadPool, function: Any) -> Any:
    return (await threads.submit(contextvars.copy_context(), function)).value()


# --- the pool ------------------------------------------------------------------------------------


async def test_no_thread_runs_before_the_first_function() -> None:
    before = threading.active_count()
    ThreadPool().close()
    assert threading.active_count() == before


async def test_a_thread_is_reused() -> None:
    threads = ThreadPool()
    first = await ran(threads, threading.get_ident)
    assert [await ran(threads, threading.get_ident) for _ in range(5)] == [first] * 5
    threads.close()


async def test_threads_are_daemons_with_a_name() -> None:
    threads = ThreadPool()
    thread = await ran(threads, threading.current_thread)
    assert thread.daemon
    assert thread.name == "windlass-job-1"
    threads.close()
    await until(lambda: not thread.is_alive())


async def test_the_pool_grows_with_demand_and_no_further() -> None:
    threads = ThreadPool()
    together = threading.Barrier(5)

    def meet() -> int:
        together.wait(30)
        return threading.get_ident()

    for _ in range(3):
        ends = await asyncio.gather(*(ran(threads, meet) for _ in range(5)))
        assert len(set(ends)) == 5
    names = {thread.name for thread in threading.enumerate()}
    assert "windlass-job-6" not in names
    threads.close()


async def test_a_thread_that_works_is_not_taken_for_an_idle_one() -> None:
    threads = ThreadPool()
    assert await ran(threads, lambda: 1) == 1
    together = threading.Barrier(2)
    await asyncio.gather(*(ran(threads, lambda: together.wait(30)) for _ in range(2)))
    threads.close()


async def test_closing_lets_busy_threads_end_with_their_function() -> None:
    threads = ThreadPool()
    go, thread = threading.Event(), None

    def wait() -> threading.Thread:
        go.wait(30)
        return threading.current_thread()

    pending = threads.submit(HERE, wait)
    threads.close()
    go.set()
    thread = (await pending).value()
    await until(lambda: not thread.is_alive())


async def test_an_exception_of_a_function_is_delivered() -> None:
    threads = ThreadPool()

    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError):
        await ran(threads, fail)
    assert await ran(threads, lambda: 5) == 5
    threads.close()


def test_a_function_that_outlives_its_loop_causes_no_error() -> None:
    go, ended = threading.Event(), threading.Event()

    def outlive() -> None:
        go.wait(30)
        ended.set()

    async def leave() -> None:
        threads = ThreadPool()
        threads.submit(contextvars.copy_context(), outlive)
        threads.close()

    asyncio.run(leave())
    go.set()
    assert ended.wait(30)


# --- time-outs and slots -------------------------------------------------------------------------


async def test_a_function_past_its_timeout_is_retried_and_keeps_its_slot_until_it_ends() -> None:
    async with bench(slots=2) as it:
        go = threading.Event()

        @it.app.task(name="job", timeout=0.01)
        def stuck() -> None:
            go.wait(30)

        job = await it.run(stuck.call())
        assert (job.state, job.attempt) == (State.WAITING, 1)
        assert job.error is not None
        assert job.error.message == "ran longer than its timeout of 0.01 s"
        assert it.engine.idle
        assert it.engine.slots.used == 1
        go.set()
        await until(lambda: it.engine.slots.used == 0)


async def test_a_function_that_keeps_its_slot_is_named_and_loudly_when_it_was_the_last() -> None:
    async with bench(slots=2) as it:
        go = threading.Event()

        @it.app.task(name="job", timeout=0.01)
        def stuck() -> None:
            go.wait(30)

        with logged() as lines:
            first = await it.run(stuck.call())
            second = await it.run(stuck.call())
        told = [r for r in lines.records if "keeps its slot" in r.getMessage()]
        assert [record.levelname for record in told] == ["WARNING", "ERROR"]
        assert f"job {first.id} (job)" in told[0].getMessage()
        assert f"job {second.id} (job)" in told[1].getMessage()
        assert "no slot is free" in told[1].getMessage()
        go.set()
        await until(lambda: it.engine.slots.used == 0)


def test_a_coroutine_that_ignores_its_timeout_is_logged_once() -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="stubborn", timeout=2)
        async def stubborn() -> None:
            for _ in range(20):
                try:
                    await asyncio.sleep(1)
                except asyncio.CancelledError:
                    world.say("told to end")

        with logged() as lines:
            async with working(world.app):
                job = await stubborn.enqueue()
                await world.until(40)
        (line,) = lines.having("keeps its slot")
        assert f"job {job.id} (stubborn)" in line

    simulate(scenario)


# --- plain functions that give back something to await -------------------------------------------


def wrapped(coroutine: Any) -> Any:
    """What a careless decorator makes of a coroutine function."""

    def plain() -> Any:
        return coroutine()

    return plain


async def test_an_awaitable_of_a_plain_function_is_awaited_on_the_loop() -> None:
    async with bench() as it:
        here = threading.get_ident()

        async def on_loop() -> bool:
            await asyncio.sleep(0)
            return threading.get_ident() == here

        job = await it.run(it.app.task(name="job")(wrapped(on_loop)).call())
        assert (job.state, job.result) == (State.SUCCEEDED, b"true")


async def test_an_awaitable_of_a_plain_function_has_its_timeout() -> None:
    async with bench() as it:

        async def slow() -> None:
            await asyncio.sleep(60)

        job = await it.run(it.app.task(name="job", timeout=0.05)(wrapped(slow)).call())
        assert job.state is State.WAITING
        assert job.error is not None
        assert job.error.kind.endswith("JobTimeout")


async def test_an_awaitable_of_a_plain_function_can_be_cancelled() -> None:
    async with bench() as it:
        begun = asyncio.Event()

        async def endless() -> None:
            begun.set()
            await asyncio.sleep(60)

        handle = await parts_of(it.app).producer.enqueue_call(
            it.app.task(name="job")(wrapped(endless)).call()
        )
        stepping = asyncio.create_task(it.engine.step())
        await begun.wait()
        await handle.cancel()
        it.engine.runner.stop_all(StopCause.CANCEL)
        await stepping
        assert (await handle.refresh()).state is State.CANCELLED


async def test_stuck_threads_never_let_a_worker_run_more_than_its_slots() -> None:
    async with bench(slots=2) as it:
        go, running, most = threading.Event(), [], []

        @it.app.task(name="job", timeout=0.01)
        def stuck() -> None:
            running.append(1)
            most.append(len(running))
            go.wait(30)
            running.pop()

        await it.app.enqueue_many([stuck.call() for _ in range(4)])
        assert await it.engine.step() == 2
        assert await it.engine.step() == 0
        await until(lambda: len(running) == 2)
        go.set()
        await until(lambda: it.engine.slots.used == 0)
        assert await it.engine.step() == 2
        await until(lambda: it.engine.slots.used == 0)
        assert max(most) == 2


async def test_a_function_can_see_that_its_time_is_up() -> None:
    async with bench() as it:
        told: list[bool] = []

        @it.app.task(name="job", timeout=0.01)
        def patient(ctx: Context) -> None:
            told.append(ctx.cancelled.wait(30))

        await it.run(patient.call())
        await until(lambda: told)
        assert told == [True]


async def test_a_stuck_thread_that_raises_in_the_end_causes_no_error() -> None:
    complaints: list[dict[str, Any]] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    async with bench() as it:
        go = threading.Event()

        @it.app.task(name="job", timeout=0.01)
        def stuck() -> None:
            go.wait(30)
            raise ValueError("too late")

        await it.run(stuck.call())
        go.set()
        await until(lambda: it.engine.slots.used == 0)
    await asyncio.sleep(0)
    assert complaints == []


async def test_a_timeout_that_meets_the_end_of_the_function_counts_as_done() -> None:
    async with bench() as it:
        started = threading.Event()

        @it.app.task(name="job", timeout=0.05)
        def just_in_time() -> str:
            started.set()
            return "done"

        job = await parts_of(it.app).producer.enqueue_call(just_in_time.call())
        await it.engine.claimer.step()
        (body,) = it.engine.runner.bodies.values()
        await asyncio.sleep(0)
        # The loop is held until both the answer and the end of the time are due.
        assert started.wait(30)
        deadline = asyncio.get_running_loop().time() + 0.1
        while asyncio.get_running_loop().time() < deadline:
            pass
        await body
        await it.engine.finisher.flush()
        assert await job.result() == "done"


async def test_a_job_for_which_no_thread_can_be_started_is_retried_and_frees_its_slot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_more(name: str, target: object) -> None:
        raise RuntimeError("can't start new thread")

    async with bench() as it:

        @it.app.task(name="job", backoff=Backoff.none())
        def job() -> str:
            return "done"

        with monkeypatch.context() as patch:
            patch.setattr("windlass._worker.run.threads.start_thread", no_more)
            record = await it.run(job.call())
        assert (record.state, record.attempt) == (State.WAITING, 1)
        assert it.engine.slots.used == 0
        assert (await it.again(record)).state is State.SUCCEEDED


async def test_ten_slow_functions_run_at_the_same_time() -> None:
    async with bench(slots=10) as it:
        together = threading.Barrier(10)

        @it.app.task(name="job")
        def meet() -> None:
            together.wait(30)

        jobs = await it.app.enqueue_many([meet.call() for _ in range(10)])
        assert await it.engine.step() == 10
        assert {(await job.refresh()).state for job in jobs} == {State.SUCCEEDED}
