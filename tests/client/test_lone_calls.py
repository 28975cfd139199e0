"""A call that is alone begins at once. Its caller may go; its events and wake-ups may not."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import apsw
import pytest

from tests.servers.proxy import Proxy
from tests.servers.wire_protocols import PostgresWire
from windlass import Windlass
from windlass._app.parts import parts_of
from windlass._client.client import Batcher
from windlass._core.job.event import Event
from windlass._storage.sqlite.io import writer
from windlass._storage.sqlite.storage import SqliteStorage

PATIENCE = 30.0


class Flushes:
    """Flushes that end when a test says so: alone, or with others."""

    def __init__(self) -> None:
        self.alone: list[tuple[Sequence[int], asyncio.Future[Sequence[int]]]] = []
        self.together: list[Sequence[int]] = []
        self.batcher: Batcher[int, int] = Batcher(self.flush, largest=10, start=self.start)

    def start(
        self, items: Sequence[int], told: Callable[[Sequence[int]], None]
    ) -> asyncio.Future[Sequence[int]]:
        del told  # these flushes tell nothing
        future: asyncio.Future[Sequence[int]] = asyncio.get_running_loop().create_future()
        self.alone.append((items, future))
        return future

    async def flush(self, items: Sequence[int]) -> Sequence[int]:
        self.together.append(items)
        return items


async def turn() -> None:
    """Let everything that is ready run."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_calls_made_beside_a_lone_one_wait_for_it_and_are_merged() -> None:
    flushes = Flushes()
    calls = [asyncio.create_task(flushes.batcher.submit([number])) for number in range(3)]
    await turn()
    assert [items for items, _ in flushes.alone] == [[0]]
    assert flushes.together == []
    flushes.alone[0][1].set_result([0])
    assert await asyncio.gather(*calls) == [[0], [1], [2]]
    assert flushes.together == [[1, 2]]
    await flushes.batcher.idle()


@pytest.mark.parametrize("way", ["cancelled", "failed"])
async def test_a_lone_call_that_ends_badly_does_not_hold_up_the_others(way: str) -> None:
    flushes = Flushes()
    first = asyncio.create_task(flushes.batcher.submit([1]))
    second = asyncio.create_task(flushes.batcher.submit([2]))
    await turn()
    if way == "cancelled":
        first.cancel()
    else:
        flushes.alone[0][1].set_exception(ValueError("refused"))
    assert await second == [2]
    with pytest.raises(asyncio.CancelledError if way == "cancelled" else ValueError):
        await first


async def test_closing_waits_for_a_lone_call() -> None:
    flushes = Flushes()
    call = asyncio.create_task(flushes.batcher.submit([1]))
    await turn()
    closing = asyncio.create_task(flushes.batcher.idle())
    await turn()
    assert not closing.done()
    flushes.alone[0][1].set_result([1])
    await closing
    assert await call == [1]


async def test_closing_waits_for_calls_behind_a_lone_one_that_is_done() -> None:
    flushes = Flushes()
    calls = [asyncio.create_task(flushes.batcher.submit([number])) for number in range(2)]
    await turn()
    flushes.alone[0][1].set_result([0])  # its callbacks have not run
    await flushes.batcher.idle()
    assert flushes.together == [[1]]
    assert await asyncio.gather(*calls) == [[0], [1]]


async def test_a_caller_cancelled_during_its_insert_leaves_an_event_and_a_wake_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One group of writes for all that follows, however slow the disk is.
    monkeypatch.setattr(writer, "_GROUP_SECONDS", 10 * PATIENCE)
    app = Windlass(f"sqlite:///{tmp_path / 'jobs.db'}")
    heard: list[Event] = []
    app.on_transition(heard.append)

    @app.task(name="greet")
    async def greet() -> None: ...

    async with app:
        storage = await parts_of(app).storage()
        assert isinstance(storage, SqliteStorage)
        woken = asyncio.Event()
        storage.wakeups.subscribe(woken.set)
        begun, behind, release = threading.Event(), threading.Event(), threading.Event()

        def before(_connection: apsw.Connection, _now: int) -> None:
            begun.set()
            release.wait(PATIENCE)

        def after(_connection: apsw.Connection, _now: int) -> None:
            behind.set()
            release.wait(PATIENCE)

        writes = [storage.jobs._db.write(before)]
        assert await asyncio.to_thread(begun.wait, PATIENCE)
        call = asyncio.create_task(greet.enqueue())
        await turn()
        writes.append(storage.jobs._db.write(after))
        release.set()
        release.clear()
        assert await asyncio.to_thread(behind.wait, PATIENCE)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        woken.clear()
        release.set()
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*writes)
            await woken.wait()
        assert [counts.ready for counts in await app.admin.queues.counts()] == [1]
    assert [type(event).__name__ for event in heard] == ["JobEnqueued"]


async def test_a_caller_cancelled_before_its_insert_began_stores_nothing(tmp_path: Path) -> None:
    app = Windlass(f"sqlite:///{tmp_path / 'jobs.db'}")

    @app.task(name="greet")
    async def greet() -> None: ...

    async with app:
        await greet.enqueue()
        other = apsw.Connection(str(tmp_path / "jobs.db"))
        other.execute("BEGIN IMMEDIATE")
        call = asyncio.create_task(greet.enqueue())
        await turn()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        other.execute("ROLLBACK")
        other.close()
        await greet.enqueue()
        assert [counts.ready for counts in await app.admin.queues.counts()] == [2]


async def test_a_caller_cancelled_on_postgresql_leaves_an_event(postgres_url: str) -> None:
    port = postgres_url.rpartition(":")[2].partition("/")[0]
    with Proxy(int(port), PostgresWire) as wire:
        app = Windlass(postgres_url.replace(port, str(wire.port)) + "?sslmode=disable")
        heard: list[Event] = []
        app.on_transition(heard.append)

        @app.task(name="greet")
        async def greet() -> None: ...

        async with app:
            await greet.enqueue()
            wire.black_hole()
            call = asyncio.create_task(greet.enqueue())
            await turn()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            wire.heal()
        async with app:
            assert [counts.ready for counts in await app.admin.queues.counts()] == [2]
    assert [type(event).__name__ for event in heard] == ["JobEnqueued"] * 2
