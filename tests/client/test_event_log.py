"""The event log: off by default, bounded, written after the commit and at no job's cost."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from tests.worker.fixtures import World, logged, simulate, working
from windlass import Backoff, Context, Snooze, Windlass
from windlass._app.parts import parts_of
from windlass._client import event_log
from windlass._client.event_log import EventJournal
from windlass._core.job.event import JobEnqueued, action_event
from windlass._core.job.job import JobId
from windlass._core.job.state import Verb
from windlass._observe.bus import Bus
from windlass._storage.protocol.journal import EventRecord
from windlass._system.seams import new_job_ids
from windlass.errors import StorageUnavailable
from windlass.testing import VirtualClock, drain
from windlass.testing._clock import START

DAY = timedelta(days=1)


async def events(app: Windlass, **more: Any) -> list[EventRecord]:
    storage = await parts_of(app).storage()
    now = await storage.now()
    return list(await storage.journal.events(now - DAY, now + DAY, limit=10_000, **more))


def kinds(found: list[EventRecord]) -> list[str]:
    return [event.kind for event in found]


async def test_nothing_is_kept_unless_it_is_asked_for() -> None:
    async with Windlass("memory://") as app:

        @app.task(name="job")
        async def job() -> None: ...

        await job.enqueue()
        await drain(app)
        assert not parts_of(app).hooks.bus.heard  # so that events are not even built
        await app.close()
        assert await events(app) == []


async def test_every_step_of_a_job_is_an_event_and_the_running_ones_add_up() -> None:
    app = Windlass("memory://", event_log=True, clock=VirtualClock())

    @app.task(name="steps", queue="shop", max_attempts=3, backoff=Backoff.none())
    async def steps(ctx: Context) -> None:
        if ctx.previous_error is None:
            raise ValueError
        if ctx.attempt == 2 and not app.state:
            app.state = "snoozed"
            raise Snooze(0)

    async with app:
        job = await steps.enqueue()
        await drain(app, until=1)
        other = await steps.options(delay=60).enqueue()
        await other.cancel()
        await app.close()
    async with app:
        found = await events(app, job=job.id)
        assert kinds(found) == [
            *("enqueued", "started", "retried", "started", "snoozed", "started", "succeeded")
        ]
        assert {(event.task, event.queue) for event in found} == {("steps", "shop")}
        assert [event.attempt for event in found] == [0, 1, 1, 2, 2, 2, 2]
        assert [bool(event.worker) for event in found] == [False] + [True] * 6
        assert [event.at for event in found] == sorted(event.at for event in found)
        assert kinds(await events(app, job=other.id)) == ["enqueued", "cancelled"]
        count = Counter(kinds(await events(app)))
        ended = sum(count[kind] for kind in ("retried", "snoozed", "succeeded", "failed"))
        assert count["started"] - ended == 0


def test_events_are_written_every_two_seconds_and_not_before() -> None:
    async def play(world: World) -> None:
        @world.app.task(name="job")
        async def job() -> None: ...

        async with working(world.app):
            done = await job.enqueue()
            await done.result(timeout=1)
            assert await events(world.app) == []
            await asyncio.sleep(2.1)
            assert kinds(await events(world.app)) == ["enqueued", "started", "succeeded"]

    simulate(play, event_log=True)


async def test_a_full_buffer_drops_and_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "_MOST", 3)
    async with Windlass("memory://", event_log=True) as app:

        @app.task(name="job")
        async def job() -> None: ...

        with logged() as lines:
            await app.enqueue_many([job.call() for _ in range(10)])
            await parts_of(app).connections.settle()  # what closing does, without letting go
            assert len(await events(app)) == 3
            assert lines.having("7 events are missing")
            await job.enqueue()
            await parts_of(app).connections.settle()
            assert len(await events(app)) == 4
            assert len(lines.having("events are missing")) == 1


def test_an_outage_keeps_them_and_costs_no_job() -> None:
    async def play(world: World) -> None:
        store = await world.tampered()
        journal = EventJournal(store.storage, parts_of(world.app).hooks.bus)

        @world.app.task(name="job")
        async def job() -> None: ...

        async def away(*_: Any) -> None:
            raise StorageUnavailable("away")

        store.on("journal.append_events", away)
        with logged() as lines:
            async with working(world.app):
                await (await job.enqueue()).result(timeout=1)
                await asyncio.sleep(7)
                assert len(lines.having("events cannot be stored, retrying")) == 1
                del store.hooks["journal.append_events"]
                await asyncio.sleep(2.1)
        assert kinds(await events(world.app)) == ["enqueued", "started", "succeeded"]
        await journal.close()

    simulate(play)


def test_an_enqueued_event_tells_when_it_was_not_when_it_was_written() -> None:
    async def play(world: World) -> None:
        @world.app.task(name="job")
        async def job() -> None: ...

        await job.enqueue()
        await asyncio.sleep(2.1)
        (event,) = await events(world.app)
        assert timedelta(0) <= event.at - START < timedelta(seconds=0.2)

    simulate(play, event_log=True)


async def test_no_job_begins_before_it_is_enqueued() -> None:
    """A claim is often told before the answer to the insert."""
    async with Windlass("memory://") as app:

        @app.task(name="job")
        async def job() -> None: ...

        made = await job.enqueue()
        storage, bus = await parts_of(app).storage(), Bus()
        journal = EventJournal(storage, bus)
        record = await made.refresh()
        bus.publish(action_event(Verb.CLAIM, record, record.created_at))
        bus.publish(JobEnqueued(job=made.id, task="job", queue="default"))
        assert await journal.flush() == 2
        first, second = await events(app)
        assert (first.kind, second.kind) == ("enqueued", "started")
        await journal.close()


async def test_events_of_other_loops_and_of_dropped_journals_are_not_kept() -> None:
    async with Windlass("memory://") as app:
        storage, bus = await parts_of(app).storage(), Bus()
        journal = EventJournal(storage, bus)
        (job,) = new_job_ids(1)
        event = JobEnqueued(job=JobId(job), task="job", queue="default")

        def elsewhere() -> None:
            bus.publish(event)
            asyncio.run(publish())

        async def publish() -> None:
            bus.publish(event)

        await asyncio.to_thread(elsewhere)
        assert await journal.flush() == 0
        del journal
        gc.collect()
        bus.publish(event)
        assert not bus.heard
