"""Beats go on when the loop is blocked, and bring back what the store knows."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import timedelta
from typing import Any, Self

import pytest

from tests.worker.fixtures import (
    Hook,
    Tampered,
    World,
    bench,
    logged,
    make_worker,
    simulate,
    until,
    working,
)
from windlass import Windlass
from windlass._app.parts import parts_of
from windlass._core.job.state import State
from windlass._storage.protocol.workers import WorkerState
from windlass._worker.liveness.heartbeat import Heartbeat
from windlass._worker.liveness.loop_watchdog import LoopWatchdog
from windlass._worker.liveness.store_contact import StoreContact
from windlass.errors import StorageUnavailable

# --- beats ---------------------------------------------------------------------------------------


def test_a_worker_beats_in_its_interval() -> None:
    async def scenario(world: World) -> int:
        store = await world.tampered()
        async with working(world.app, store=store):
            await world.until(100)
            return store.calls["workers.beat"]

    assert simulate(scenario, heartbeat=5) in (20, 21)


async def test_a_worker_says_what_it_can_run_what_its_clock_shows_and_what_memory_it_uses() -> None:
    async with Windlass("memory://", heartbeat=0.01, lease=30) as app:

        @app.task(name="shop.pay")
        async def pay() -> None: ...

        @app.task(name="shop.mail")
        async def mail() -> None: ...

        storage = await parts_of(app).storage()
        beaten = asyncio.Event()
        async with working(app, simulated=False, on_live=beaten.set):
            await asyncio.wait_for(beaten.wait(), 10)
        (row,) = await storage.workers.workers()
        assert {"shop.mail", "shop.pay"} <= set(row.start.tasks)
        assert row.start.clock is not None
        assert abs(row.start.clock - row.started_at) < timedelta(seconds=5)
        assert row.memory is not None
        assert 10_000_000 < row.memory < 10_000_000_000


def test_beats_go_on_while_the_worker_drains() -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="job")
        async def job() -> str:
            await asyncio.sleep(200)
            return "done"

        store = await world.tampered()
        async with working(world.app, store=store) as shift:
            enqueued = await job.enqueue()
            await world.until(1)
            shift.worker.stop()
            beats = store.calls["workers.beat"]
            assert await enqueued.result(timeout=300) == "done"
            assert store.calls["workers.beat"] - beats >= 39

    simulate(scenario, heartbeat=5, grace=300)


def test_an_outage_of_the_beats_is_logged_once_and_the_row_lives_on() -> None:
    async def scenario(world: World) -> None:
        store = await world.tampered()
        with logged() as lines:
            async with working(world.app, store=store):
                await world.until(10)
                store.down = True
                await world.until(300)
                store.down = False
                await world.until(310)
                (row,) = await world.app.admin.workers.list()
                assert row.state is WorkerState.LIVE
                assert (world.clock.now() - row.beat_at) <= timedelta(seconds=5)
        assert len(lines.having("the heartbeat failed")) == 1
        assert len(lines.having("the heartbeat works again")) == 1

    simulate(scenario)


def test_an_isolated_worker_goes_on_with_its_handlers_by_default() -> None:
    assert simulate(isolation, on_isolation="continue") == ["done"]


def test_an_isolated_worker_stops_its_handlers_before_the_lease_ends_where_told_to() -> None:
    assert simulate(isolation, on_isolation="cancel") == ["stopped before 30"]


async def isolation(world: World) -> list[str]:
    @world.app.task(name="job")
    async def job() -> None:
        try:
            await asyncio.sleep(60)
            world.say("done")
        except asyncio.CancelledError:
            assert world.loop.time() < 30
            world.say("stopped before 30")
            raise

    store = await world.tampered()
    async with working(world.app, store=store):
        await job.enqueue()
        await asyncio.sleep(0.1)
        store.down = True
        await world.until(61)
        store.down = False
    return world.words


async def test_a_beat_that_fails_takes_the_right_to_judge_at_once() -> None:
    async with bench() as it:
        clock = Clock()
        presence = StoreContact(beat=timedelta(seconds=5), lease=timedelta(seconds=30), clock=clock)
        heartbeat = Heartbeat(
            it.store.storage.workers,
            it.engine.identity,
            presence,
            interval=timedelta(seconds=5),
            home=asyncio.get_running_loop(),
            on_beat=lambda worker, beat: None,
            watchdog=None,
        )
        for _ in range(8):
            assert await heartbeat.step()
            clock.seconds += 5
        assert presence.may_judge
        it.store.down = True
        with pytest.raises(StorageUnavailable):
            await heartbeat.step()
        assert not presence.may_judge


# --- a blocked loop ------------------------------------------------------------------------------


async def test_a_handler_that_blocks_the_loop_gets_nobody_buried_and_is_named_in_the_log() -> None:
    settings: dict[str, Any] = {"heartbeat": 0.1, "lease": 1.0, "reap_every": 0.1, "poll": 0.1}
    async with Windlass("memory://", **settings) as app:

        @app.task(name="blocker")
        async def blocker() -> str:
            time.sleep(1.5)
            return "done"

        with logged() as lines, AnotherWorker(app) as other:
            worker = await make_worker(app, simulated=False)
            running = asyncio.ensure_future(worker.run())
            await worker.started.wait()
            await other.judging()
            job = await blocker.enqueue()
            assert await job.result(timeout=30) == "done"
            record = await job.refresh()
            worker.stop()
            await running
        assert (record.state, record.claim_number) == (State.SUCCEEDED, 1)
        assert lines.having("is dead") == []
        (line,) = lines.having("has blocked the event loop")
        assert line.startswith(f"job {record.id} (blocker) has blocked the event loop for 1.")
        assert "time.sleep(1.5)" in line
        assert "test_heartbeat.py" in line
        assert "windlass/_worker" not in line


class AnotherWorker:
    """Another worker of the same app, on a loop and a thread of its own, that reaps."""

    def __init__(self, app: Windlass) -> None:
        self._app = app
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._live()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._worker.stop)
        self._thread.join(10)

    async def _live(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._store = Tampered(await parts_of(self._app).storage())
        self._worker = await make_worker(
            self._app, store=self._store, simulated=False, queues=["other"]
        )
        self._ready.set()
        await self._worker.run()
        await self._app.close()

    async def judging(self) -> None:
        """Wait until it has had the store for a lease, and would bury whoever is silent."""
        await until(lambda: self._store.calls["workers.overdue"])


# --- the watchdog --------------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


async def test_a_blockage_is_reported_once_and_the_next_one_again() -> None:
    clock = Clock()
    loop = asyncio.get_running_loop()
    dog = LoopWatchdog(loop, threading.get_ident(), clock=clock)
    with logged() as lines:
        for _ in range(2):
            await dog.step()
            for _ in range(5):  # nothing else runs meanwhile: the loop is as good as blocked
                clock.seconds += 0.5
                await dog.step()
            await asyncio.sleep(0)
        assert dog.blockages == 2
        assert len(lines.having("the event loop has been blocked for 1.0 s")) == 2


async def test_a_loop_that_answers_is_not_reported() -> None:
    clock = Clock()
    dog = LoopWatchdog(asyncio.get_running_loop(), threading.get_ident(), clock=clock)
    with logged() as lines:
        for _ in range(10):
            await dog.step()
            clock.seconds += 0.5
            await asyncio.sleep(0)
        assert dog.blockages == 0
        assert lines.records == []


async def test_a_short_blockage_is_not_reported() -> None:
    clock = Clock()
    dog = LoopWatchdog(asyncio.get_running_loop(), threading.get_ident(), clock=clock)
    await dog.step()
    clock.seconds += 0.9
    await dog.step()
    assert dog.blockages == 0


def test_a_loop_that_is_gone_is_no_reason_to_fail() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    dog = LoopWatchdog(loop, 0, clock=Clock())
    asyncio.run(dog.step())


# --- what a beat brings --------------------------------------------------------------------------


def test_a_late_answer_to_a_beat_of_a_former_identity_is_ignored() -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="job")
        async def job() -> str:
            await asyncio.sleep(30)
            return "done"

        store = await world.tampered()
        async with working(world.app, store=store) as shift:
            former = shift.worker.id
            await world.until(9)
            await store.inner.workers.bury([former])

            async def slow(call: Hook, worker: str) -> Any:
                beat = await call(worker)
                if worker == former:
                    await asyncio.sleep(4)
                return beat

            store.on("workers.beat", slow)
            await world.until(10.5)  # a beat is under way
            await job.enqueue()  # and the claim finds out first
            await world.until(12)
            assert shift.worker.id != former
            reborn = shift.worker.id
            await world.until(60)
            assert shift.worker.id == reborn
        states = [row.state for row in await world.app.admin.workers.list()]
        assert sorted(states) == [WorkerState.DEAD, WorkerState.GONE]

    simulate(scenario)
