"""A worker that finds itself buried takes a new name, drops what it was running and goes on."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.worker.fixtures import Hook, World, bench, logged, simulate, watch_locks, working
from windlass import Backoff, Context
from windlass._app.parts import parts_of
from windlass._core.job.event import Event, WorkerChanged
from windlass._core.job.job import ClaimedJob
from windlass._core.job.state import State
from windlass._storage.protocol.workers import WorkerState
from windlass.errors import StorageUnavailable


def test_a_buried_worker_takes_a_new_identity_cancels_its_jobs_and_goes_on() -> None:
    async def scenario(world: World) -> None:
        events: list[Event] = []
        world.app.on_transition(events.append)

        @world.app.task(name="job", backoff=Backoff.fixed(3))
        async def job(ctx: Context) -> str:
            world.say(f"attempt {ctx.attempt}")
            try:
                await asyncio.sleep(20)
            except asyncio.CancelledError:
                world.say("dropped")
                raise
            return f"attempt {ctx.attempt}"

        with logged() as lines:
            async with working(world.app) as shift:
                former = shift.worker.id
                enqueued = await job.enqueue()
                await world.until(11)
                storage = await parts_of(world.app).storage()
                assert await storage.workers.bury([former]) == [former]
                await world.until(17)
                assert shift.worker.id != former
                rows = {row.start.id: row.state for row in await world.app.admin.workers.list()}
                assert rows == {former: WorkerState.DEAD, shift.worker.id: WorkerState.LIVE}
                assert (await enqueued.result(timeout=60)).startswith("attempt")
                record = await enqueued.refresh()
        assert record.worker == shift.worker.id
        assert record.claim_number == 2
        assert world.words[:2] == ["attempt 1", "dropped"]
        assert len(lines.having(f"this worker ({former}) was declared dead")) == 1
        (reborn,) = [e for e in events if isinstance(e, WorkerChanged) and e.what == "reborn"]
        assert (reborn.worker, reborn.detail) == (shift.worker.id, former)

    simulate(scenario)


def test_a_buried_worker_learns_it_from_a_claim_before_the_next_beat() -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="job")
        async def job() -> None:
            world.say("ran")

        async with working(world.app) as shift:
            former = shift.worker.id
            await world.until(50)
            await (await parts_of(world.app).storage()).workers.bury([former])
            await job.enqueue()
            await world.until(51)
            assert shift.worker.id != former
        assert world.seen == [(50.0, "ran")]

    simulate(scenario, heartbeat=1000, lease=10_000)


def test_a_success_that_was_stored_before_the_reaping_counts() -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="job")
        async def stubborn() -> str:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                return "just done"
            return "never"

        store = await world.tampered()

        async def no_orphans(call: Hook, limit: int) -> list[ClaimedJob]:
            return []  # every reaper is slow today

        store.on("workers.orphans", no_orphans)
        async with working(world.app, store=store) as shift:
            enqueued = await stubborn.enqueue()
            await world.until(1)
            await store.inner.workers.bury([shift.worker.id])
            assert await enqueued.result(timeout=30) == "just done"

    simulate(scenario)


def test_an_outcome_that_comes_after_the_reaping_changes_nothing() -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="job", backoff=Backoff.fixed(1000))
        async def stubborn() -> str:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                await asyncio.sleep(30)
            return "too late"

        with logged() as lines:
            async with working(world.app) as shift:
                enqueued = await stubborn.enqueue()
                await world.until(1)
                await (await parts_of(world.app).storage()).workers.bury([shift.worker.id])
                await world.until(100)
                record = await enqueued.refresh()
                assert (record.state, record.attempt) == (State.WAITING, 1)
                assert record.error is not None
                assert record.error.kind == "WorkerLost"
        assert len(lines.having("the claim was lost, its outcome (succeed) is not stored")) == 1

    simulate(scenario)


def test_a_worker_that_cannot_register_anew_tries_until_it_can() -> None:
    async def scenario(world: World) -> None:
        @world.app.task(name="job")
        async def job() -> None:
            world.say("ran")

        store = await world.tampered()
        failures = [StorageUnavailable("away")] * 20

        async def register(call: Hook, start: Any) -> Any:
            if failures:
                raise failures.pop()
            return await call(start)

        async with working(world.app, store=store) as shift:
            former = shift.worker.id
            store.on("workers.register", register)
            await store.inner.workers.bury([former])
            await job.enqueue()
            await world.until(60)
            assert shift.worker.id != former
        assert not failures
        assert world.words == ["ran"]
        assert len(await world.app.admin.workers.list()) == 2

    simulate(scenario)


def test_a_worker_that_has_said_goodbye_is_not_reborn_by_a_late_beat() -> None:
    async def scenario(world: World) -> None:
        store = await world.tampered()

        async def leave(call: Hook, *args: Any) -> Any:
            answer = await call(*args)
            await asyncio.sleep(20)  # several beats find the row gone
            return answer

        store.on("workers.leave", leave)
        with logged() as lines:
            async with working(world.app, store=store):
                await world.until(1)
        assert [row.state for row in await world.app.admin.workers.list()] == [WorkerState.GONE]
        assert lines.having("was declared dead") == []

    simulate(scenario)


# --- identities and their locks ------------------------------------------------------------------


async def test_a_new_identity_lets_go_of_the_former_lock() -> None:
    async with bench() as it:
        held: list[str] = []
        watch_locks(it.store, held)
        await it.engine.identity.register()
        first = it.engine.identity.id
        assert held == [first]
        await it.engine.identity.register()
        assert held == [it.engine.identity.id] != [first]
        it.engine.identity.let_go()
        assert held == []


async def test_a_registration_that_fails_holds_no_lock() -> None:
    async with bench() as it:
        held: list[str] = []
        watch_locks(it.store, held)
        await it.engine.identity.register()
        former = it.engine.identity.id
        it.store.down = True
        for _ in range(3):
            with pytest.raises(StorageUnavailable):
                await it.engine.identity.register()
        assert it.engine.identity.id == former
        assert held == [former]
