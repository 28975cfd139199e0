"""How a worker stops: quiet, drain, interrupt, release; and its own reasons to stop."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from tests.worker.fixtures import (
    Hook,
    Shift,
    World,
    logged,
    make_worker,
    simulate,
    until,
    watch_locks,
    working,
)
from windlass import Context, Windlass
from windlass._app.parts import parts_of
from windlass._core.job.event import Event, JobMoved
from windlass._core.job.state import State, Verb
from windlass._storage.protocol.workers import WorkerState
from windlass._tasks.task import Task
from windlass._worker.run.loop_exits import find_exited_claims
from windlass._worker.worker import StopReason, Worker
from windlass.errors import ConfigError, StorageUnavailable

SLOW = ["jobs.claim", "jobs.outlook", "leader.lead", "workers.beat", "workers.live"]
SLOW += ["workers.orphans", "workers.leave", "leader.resign"]


def sleeper(world: World, **options: Any) -> Task[[float], str]:
    @world.app.task(name="sleep", **options)
    async def sleep(seconds: float) -> str:
        world.say("started")
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            world.say("interrupted")
            raise
        return "slept"

    return sleep


async def row_states(app: Windlass) -> list[WorkerState]:
    return [row.state for row in await app.admin.workers.list()]


# --- quiet and drain -----------------------------------------------------------------------------


def test_an_idle_worker_stops_at_once() -> None:
    async def scenario(world: World) -> None:
        async with working(world.app) as shift:
            await world.until(10.3)
            shift.worker.stop()
            assert await shift.ended() is StopReason.ASKED
        assert world.loop.time() < 10.5
        assert await row_states(world.app) == [WorkerState.GONE]

    simulate(scenario)


def test_running_jobs_end_within_the_grace_and_waiting_ones_stay() -> None:
    async def scenario(world: World) -> None:
        sleep = sleeper(world)
        async with working(world.app, slots=2) as shift:
            first, second, third = await world.app.enqueue_many([sleep.call(20.0)] * 3)
            await world.until(1)
            shift.worker.stop()
            await shift.ended()
            assert 20 <= world.loop.time() < 21
            assert await first.result() == await second.result() == "slept"
            record = await third.refresh()
            assert (record.state, record.attempt) == (State.WAITING, 0)
        assert world.words == ["started", "started"]

    simulate(scenario, grace=30)


def test_a_retry_that_comes_due_while_draining_is_not_started() -> None:
    async def scenario(world: World) -> None:
        sleep = sleeper(world)
        async with working(world.app) as shift:
            await sleep.enqueue(20.0)
            await sleep.options(delay=5).enqueue(1.0)
            await world.until(1)
            shift.worker.stop()
            await shift.ended()
        assert world.seen == [(0.0, "started")]

    simulate(scenario)


# --- interrupt and release -----------------------------------------------------------------------


def test_after_the_grace_jobs_are_interrupted_and_their_attempts_given_back() -> None:
    async def scenario(world: World) -> None:
        sleep = sleeper(world)
        moved: list[Verb] = []

        def hear(event: Event) -> None:
            if isinstance(event, JobMoved):
                moved.append(event.verb)

        world.app.on_transition(hear)
        async with working(world.app) as shift:
            job = await sleep.enqueue(3600.0)
            await world.until(1)
            shift.worker.stop()
            await shift.ended()
            assert 31 <= world.loop.time() < 32
            record = await job.refresh()
            assert (record.state, record.attempt, record.claim_number) == (State.WAITING, 0, 1)
            assert record.due <= world.clock.now()
            assert [a.verb for a in await world.app.admin.jobs.history(job.id)] == [Verb.RELEASE]
        assert world.words == ["started", "interrupted"]
        assert moved == [Verb.CLAIM, Verb.RELEASE]

    simulate(scenario, grace=30)


def test_a_second_stop_shortens_the_wait() -> None:
    async def scenario(world: World) -> None:
        sleep = sleeper(world)
        async with working(world.app) as shift:
            job = await sleep.enqueue(3600.0)
            await world.until(1)
            shift.worker.stop()
            await world.until(3)
            shift.worker.stop()
            await shift.ended()
            assert 3 <= world.loop.time() < 3.5
            record = await job.refresh()
            assert (record.state, record.attempt) == (State.WAITING, 0)

    simulate(scenario, grace=30)


def test_a_job_that_ends_with_an_error_when_interrupted_is_given_back_all_the_same() -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="job")
        async def job() -> None:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                raise RuntimeError("I was not done") from None

        async with working(world.app) as shift:
            enqueued = await job.enqueue()
            await world.until(1)
            shift.worker.stop()
            await shift.ended()
            record = await enqueued.refresh()
            assert (record.state, record.attempt, record.error) == (State.WAITING, 0, None)

    simulate(scenario, grace=2)


def test_a_job_that_uses_the_interrupt_to_finish_has_succeeded() -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="job")
        async def job() -> str:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                await asyncio.sleep(1)
            return "finished after all"

        async with working(world.app) as shift:
            enqueued = await job.enqueue()
            await world.until(1)
            shift.worker.stop()
            await shift.ended()
            assert await enqueued.result() == "finished after all"

    simulate(scenario, grace=2)


def test_a_coroutine_that_will_not_end_is_released_and_the_worker_leaves() -> None:
    async def scenario(world: World) -> None:
        world_ends = asyncio.Event()

        @world.app.task(name="job")
        async def immortal() -> None:
            while not world_ends.is_set():
                try:
                    await world_ends.wait()
                except asyncio.CancelledError:
                    world.say("no")

        moved: list[Verb] = []

        def hear(event: Event) -> None:
            if isinstance(event, JobMoved):
                moved.append(event.verb)

        world.app.on_transition(hear)
        async with working(world.app) as shift:
            enqueued = await immortal.enqueue()
            await world.until(1)
            shift.worker.stop()
            await shift.ended()
            assert world.loop.time() < 10
            record = await enqueued.refresh()
            assert (record.state, record.attempt) == (State.WAITING, 0)
        assert await row_states(world.app) == [WorkerState.GONE]
        assert world.words == ["no"]
        world_ends.set()
        await world.until(20)
        assert (await enqueued.refresh()).state is State.WAITING
        assert moved == [Verb.CLAIM, Verb.RELEASE]

    simulate(scenario, grace=2)


async def test_a_thread_that_will_not_end_is_released_and_the_worker_leaves() -> None:
    async with Windlass("memory://", grace=0.01) as app:
        go, started = threading.Event(), threading.Event()

        @app.task(name="job")
        def stuck(ctx: Context) -> None:
            started.set()
            go.wait(60)

        worker = await make_worker(app, simulated=False)
        running = asyncio.ensure_future(worker.run())
        enqueued = await stuck.enqueue()
        await until(started.is_set)
        (run,) = worker.engine.runner.active.values()
        (body,) = worker.engine.runner.bodies.values()
        worker.stop()
        worker.stop()
        async with asyncio.timeout(30):
            await running
        assert run  # its token says so
        record = await enqueued.refresh()
        assert (record.state, record.attempt) == (State.WAITING, 0)
        assert await row_states(app) == [WorkerState.GONE]
        go.set()
        await body  # ends late, and changes nothing
        assert (await enqueued.refresh()).state is State.WAITING


async def test_a_thread_that_heeds_its_token_ends_within_the_interrupt() -> None:
    async with Windlass("memory://", grace=0.01) as app:

        @app.task(name="job")
        def heeds(ctx: Context) -> None:
            assert ctx.cancelled.wait(60)
            raise RuntimeError("stopped half-way")

        worker = await make_worker(app, simulated=False)
        running = asyncio.ensure_future(worker.run())
        enqueued = await heeds.enqueue()
        await until(lambda: worker.engine.runner.active)
        worker.stop()
        async with asyncio.timeout(30):
            await running
        record = await enqueued.refresh()
        assert (record.state, record.attempt, record.error) == (State.WAITING, 0, None)


def test_a_run_that_ends_while_the_worker_says_goodbye_is_stored() -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="job")
        async def slow_to_unwind() -> str:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                await asyncio.sleep(5.2)  # just longer than interrupted handlers may take
            return "done"

        store = await world.tampered()
        failures = [StorageUnavailable("away")] * 2

        async def leave(call: Hook, *args: Any) -> Any:
            if failures:
                raise failures.pop()
            return await call(*args)

        store.on("workers.leave", leave)
        async with working(world.app, store=store) as shift:
            job = await slow_to_unwind.enqueue()
            await world.until(1)
            shift.worker.stop()
            await shift.ended()
            assert not failures
            assert await job.result(timeout=1) == "done"
        assert await row_states(world.app) == [WorkerState.GONE]

    simulate(scenario, grace=2)


# --- outages -------------------------------------------------------------------------------------


def test_an_outage_during_the_shutdown_ends_in_bounded_time() -> None:
    async def scenario(world: World) -> None:
        sleep = sleeper(world)
        store = await world.tampered()
        with logged() as lines:
            async with working(world.app, store=store) as shift:
                await sleep.enqueue(20.0)
                await world.until(10)
                store.down = True
                shift.worker.stop()
                await shift.ended()
                assert world.loop.time() < 60
        assert len(lines.having("could not sign off in the store")) == 1
        # Nothing is lost: the row is still live, and the reapers will find it silent.
        assert await row_states(world.app) == [WorkerState.LIVE]

    simulate(scenario, grace=30)


@pytest.mark.parametrize(("stops", "seconds"), [(1, 16), (2, 8)])
def test_a_store_that_takes_its_time_does_not_keep_a_worker(stops: int, seconds: float) -> None:
    async def scenario(world: World) -> None:
        store = await world.tampered()
        held: list[str] = []
        watch_locks(store, held)

        async def slow(call: Hook, *args: Any, **options: Any) -> Any:
            await asyncio.sleep(30)
            return await call(*args, **options)

        with logged() as lines:
            shift = Shift(await make_worker(world.app, store=store))
            await shift.worker.started.wait()
            await world.until(10.5)
            for operation in SLOW:
                store.on(operation, slow)
            await world.until(15.5)  # the chores are under way
            for _ in range(stops):
                shift.worker.stop()
            await shift.ended()
        assert world.loop.time() < 15.5 + seconds
        assert lines.having("could not sign off in the store")
        assert held == [shift.worker.id], "the lock is what others prove the death by"

    simulate(scenario)


def test_a_worker_that_has_said_goodbye_lets_go_of_its_lock() -> None:
    async def scenario(world: World) -> None:
        store = await world.tampered()
        held: list[str] = []
        watch_locks(store, held)
        async with working(world.app, store=store) as shift:
            await world.until(1)
            assert held == [shift.worker.id]
        assert held == []

    simulate(scenario)


def test_an_outage_does_not_keep_an_idle_worker_from_stopping() -> None:
    async def scenario(world: World) -> None:
        store = await world.tampered()
        async with working(world.app, store=store) as shift:
            store.down = True
            await world.until(300)
            shift.worker.stop()
            await shift.ended()
            assert world.loop.time() < 303

    simulate(scenario)


def test_a_worker_does_not_leave_before_its_outcomes_are_stored() -> None:
    async def scenario(world: World) -> None:
        sleep = sleeper(world)
        store = await world.tampered()

        async def slow(call: Hook, *args: Any) -> Any:
            await asyncio.sleep(0.7)
            return await call(*args)

        store.on("jobs.apply", slow)
        async with working(world.app, store=store) as shift:
            job = await sleep.enqueue(10.0)
            await world.until(5)
            shift.worker.stop()
            await shift.ended()
            record = await job.refresh()
            assert (record.state, record.claim_number) == (State.SUCCEEDED, 1)

    simulate(scenario)


def test_an_outage_that_ends_during_the_shutdown_loses_nothing() -> None:
    async def scenario(world: World) -> None:
        sleep = sleeper(world)
        store = await world.tampered()
        async with working(world.app, store=store) as shift:
            job = await sleep.enqueue(10.0)
            await world.until(5)
            store.down = True
            shift.worker.stop()
            await world.until(11)
            store.down = False
            await shift.ended()
            assert await job.result(timeout=1) == "slept"
        assert await row_states(world.app) == [WorkerState.GONE]

    simulate(scenario)


def test_a_goodbye_whose_answer_is_lost_is_said_again() -> None:
    async def scenario(world: World) -> None:
        sleep = sleeper(world)
        store = await world.tampered()

        async def leave(call: Hook, *args: Any) -> Any:
            await call(*args)
            store.hooks.clear()
            raise StorageUnavailable("the answer was lost")

        store.on("workers.leave", leave)
        async with working(world.app, store=store) as shift:
            job = await sleep.enqueue(3600.0)
            await world.until(1)
            shift.worker.stop()
            shift.worker.stop()
            await shift.ended()
            record = await job.refresh()
            assert (record.state, record.attempt) == (State.WAITING, 0)
        assert await row_states(world.app) == [WorkerState.GONE]

    simulate(scenario)


# --- cancelled -----------------------------------------------------------------------------------


def test_a_worker_whose_own_task_is_cancelled_gives_everything_back_and_leaves_nothing() -> None:
    async def scenario(world: World) -> None:
        sleep = sleeper(world)
        shift = Shift(await make_worker(world.app))
        job = await sleep.enqueue(3600.0)
        await world.until(1)
        database = parts_of(world.app).connections.opener._memory
        assert database is not None
        assert database.subscribers
        shift.running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await shift.ended()
        await world.until(2)
        assert world.words == ["started", "interrupted"]
        record = await job.refresh()
        assert (record.state, record.attempt) == (State.WAITING, 0)
        assert await row_states(world.app) == [WorkerState.GONE]
        assert not database.subscribers

    simulate(scenario)


@pytest.mark.parametrize("stubborn", [False, True])
def test_a_cancelled_worker_tells_of_every_release_once(stubborn: bool) -> None:  # noqa: FBT001
    async def scenario(world: World) -> None:
        moved: list[tuple[Verb, str]] = []

        def hear(event: Event) -> None:
            if isinstance(event, JobMoved):
                moved.append((event.verb, event.job))

        @world.app.task(name="job")
        async def handler() -> None:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                if stubborn:
                    await asyncio.sleep(3600)
                raise

        world.app.on_transition(hear)
        shift = Shift(await make_worker(world.app))
        jobs = [(await handler.enqueue()).id for _ in range(2)]
        await world.until(1)
        shift.running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await shift.ended()
        await world.until(5)
        for job in jobs:
            assert [verb for verb, told in moved if told == job] == [Verb.CLAIM, Verb.RELEASE]
            assert [a.verb for a in await world.app.admin.jobs.history(job)] == [Verb.RELEASE]

    simulate(scenario)


def test_what_ended_before_a_worker_was_cancelled_is_stored() -> None:
    async def scenario(world: World) -> None:
        sleep = sleeper(world)
        store = await world.tampered()
        shift = Shift(await make_worker(world.app, store=store))
        job = await sleep.enqueue(1.0)
        store.on("jobs.apply", _slowly(5.0))
        await world.until(2)
        shift.running.cancel()
        store.on("jobs.apply", _slowly(0.0))
        with pytest.raises(asyncio.CancelledError):
            await shift.ended()
        assert (await job.refresh()).state is State.SUCCEEDED

    simulate(scenario)


def _slowly(seconds: float) -> Hook:
    async def hook(method: Hook, *args: Any, **options: Any) -> Any:
        await asyncio.sleep(seconds)
        return await method(*args, **options)

    return hook


def test_a_part_of_a_worker_that_other_code_cancels_is_started_again() -> None:
    async def scenario(world: World) -> None:
        sleep = sleeper(world)
        async with working(world.app) as shift:
            await world.until(1)
            ours = {asyncio.current_task(), shift.running}
            for task in asyncio.all_tasks() - ours:
                if "_part" in repr(task.get_coro()):
                    task.cancel()
            job = await sleep.enqueue(1.0)
            assert await job.result(timeout=30) == "slept"

    simulate(scenario)


def test_a_worker_cancelled_during_an_outage_ends_all_the_same() -> None:
    async def scenario(world: World) -> None:
        sleep = sleeper(world)
        store = await world.tampered()
        shift = Shift(await make_worker(world.app, store=store))
        await sleep.enqueue(3600.0)
        await world.until(1)
        store.down = True
        shift.running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await shift.ended()
        assert world.loop.time() < 5
        assert world.words == ["started", "interrupted"]

    simulate(scenario)


# --- reasons of its own --------------------------------------------------------------------------


def test_a_worker_until_empty_stops_when_nothing_is_ready_or_running() -> None:
    async def scenario(world: World) -> None:
        sleep = sleeper(world)
        jobs = await world.app.enqueue_many([sleep.call(5.0)] * 25)
        later = await sleep.options(delay=3600).enqueue(1.0)
        async with working(world.app, until_empty=True) as shift:
            assert await shift.ended() is StopReason.EMPTY
            assert 15 <= world.loop.time() <= 17
            assert {(await job.refresh()).state for job in jobs} == {State.SUCCEEDED}
            assert (await later.refresh()).state is State.WAITING

    simulate(scenario)


def test_a_worker_until_empty_waits_for_what_others_are_running() -> None:
    async def scenario(world: World) -> None:
        sleep = sleeper(world)
        await sleep.enqueue(30.0)
        async with working(world.app, slots=1):
            await world.until(1)
            async with working(world.app, until_empty=True) as shift:
                await shift.ended()
                assert 30 <= world.loop.time() <= 33

    simulate(scenario)


def test_a_worker_until_empty_on_an_empty_queue_stops_at_once() -> None:
    async def scenario(world: World) -> None:
        sleeper(world)
        async with working(world.app, until_empty=True) as shift:
            assert await shift.ended() is StopReason.EMPTY
        assert world.loop.time() < 2

    simulate(scenario)


def test_a_worker_runs_as_many_jobs_as_it_may_and_no_more() -> None:
    async def scenario(world: World) -> None:
        sleep = sleeper(world)
        await world.app.enqueue_many([sleep.call(0.01)] * 100)
        async with working(world.app, max_jobs=25, slots=10) as shift:
            assert await shift.ended() is StopReason.WORN_OUT
            assert len(world.seen) == 25
            (counts,) = await world.app.admin.queues.counts()
            assert (counts.succeeded, counts.ready, counts.running) == (25, 75, 0)

    simulate(scenario)


def test_a_worn_out_worker_lets_its_jobs_end() -> None:
    async def scenario(world: World) -> None:
        sleep = sleeper(world)
        job = await sleep.enqueue(20.0)
        async with working(world.app, max_jobs=1) as shift:
            await world.until(5)
            # Asked to stop while it stops by itself: that is the first request, not the second.
            shift.worker.stop()
            assert await shift.ended() is StopReason.WORN_OUT
            assert await job.result() == "slept"

    simulate(scenario)


async def test_a_worker_that_uses_too_much_memory_stops_to_be_replaced() -> None:
    async with Windlass("memory://") as app:
        worker = await make_worker(app, simulated=False, max_megabytes=1)
        with logged() as lines:
            async with asyncio.timeout(30):
                assert await worker.run() is StopReason.WORN_OUT
        assert lines.having("max_megabytes=1")


# --- its beginning -------------------------------------------------------------------------------


def test_a_worker_stopped_before_it_starts_starts_nothing() -> None:
    async def scenario(world: World) -> None:
        sleep = sleeper(world)
        await sleep.enqueue(1.0)
        worker = await make_worker(world.app)
        worker.stop()
        assert await worker.run() is StopReason.ASKED
        assert world.seen == []
        assert world.loop.time() < 1

    simulate(scenario)


async def test_an_error_at_the_start_reaches_whoever_asked_for_the_worker() -> None:
    async with Windlass("memory://") as app:
        storage = await parts_of(app).storage()

        async def register(start: object) -> None:
            raise StorageUnavailable("away")

        vars(storage.workers)["register"] = register
        with pytest.raises(StorageUnavailable, match="away"):
            async with app.worker():
                raise AssertionError("it cannot have started")


async def test_the_block_of_a_worker_runs_jobs_and_then_ends_it() -> None:
    async with Windlass("memory://") as app:

        @app.task(name="job")
        async def job() -> int:
            return 42

        async with app.worker(slots=3) as worker:
            assert isinstance(worker, Worker)
            assert await (await job.enqueue()).result(timeout=30) == 42
        assert worker.reason is StopReason.ASKED
        assert await row_states(app) == [WorkerState.GONE]


async def test_an_error_in_the_block_ends_the_worker_in_order() -> None:
    async with Windlass("memory://") as app:
        with pytest.raises(ZeroDivisionError):
            async with app.worker():
                raise ZeroDivisionError
        assert await row_states(app) == [WorkerState.GONE]


async def test_nonsense_settings_are_refused_before_anything_starts() -> None:
    async with Windlass("memory://") as app:
        with pytest.raises(ConfigError):
            async with app.worker(slots=0):
                raise AssertionError("it cannot have started")
        with pytest.raises(ConfigError):
            async with app.worker(speed=3):  # type: ignore[call-arg]
                raise AssertionError("it cannot have started")


def test_a_worker_that_ended_by_itself_can_be_left_without_waiting() -> None:
    async def scenario(world: World) -> None:
        sleeper(world)
        shift = Shift(await make_worker(world.app, until_empty=True))
        await shift.ended()
        shift.worker.stop()
        shift.worker.stop()
        assert shift.worker.reason is StopReason.EMPTY

    simulate(scenario)


async def test_until_empty_does_not_wait_for_a_paused_queue() -> None:
    app = Windlass("memory://")

    @app.task(name="noop")
    async def noop() -> None: ...

    async with app:
        await app.admin.queues.pause("default")
        job = await noop.enqueue()
        async with app.worker(until_empty=True) as worker:
            async with asyncio.timeout(20):
                assert await worker.wait() == "empty"
        assert (await job.refresh()).state == "waiting"


async def test_lazy_objects_of_other_libraries_do_not_disturb_a_cancelled_worker() -> None:
    """Looking for the run that ended the loop meets every object of the process."""

    class Lazy:
        @property
        def __class__(self) -> type:
            raise RuntimeError("settings are not configured")

        @__class__.setter
        def __class__(self, value: type) -> None: ...

    kept = [Lazy()]
    found = [claim.job for claim, _ in find_exited_claims()]  # those of other tests, if any
    assert "lazy" not in found
    assert len(kept) == 1
