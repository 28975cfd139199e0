"""What people ask of a SQLite file runs aside: an event loop, a host's own too, goes on."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import pytest

from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.shared import reader_thread as asides
from windlass._storage.shared.reader_thread import run_on_reader_thread
from windlass._storage.sqlite import SqliteStorage, open_sqlite
from windlass._storage.sqlite.admin import admin
from windlass._storage.sqlite.admin.find import find
from windlass.errors import StorageError
from windlass.testing.conformance.steps import a_job, add, started

LONG = 30.0
"""Seconds after which a read ends that nobody has let go on."""


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[SqliteStorage]:
    opened = await open_sqlite(tmp_path / "jobs.db")
    yield opened
    await opened.close()


class Held:
    """Reads for people that do not end before they are let go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.go_on, self.begun = threading.Event(), asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.connections: list[apsw.Connection] = []
        monkeypatch.setattr(admin, "find", self)

    def __call__(self, connection: apsw.Connection, *asked: Any) -> Any:
        self.connections.append(connection)
        self._loop.call_soon_threadsafe(self.begun.set)
        self.go_on.wait(LONG)
        return find(connection, *asked)


async def test_the_loop_goes_on_while_a_read_for_people_is_held(
    store: SqliteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    found = asyncio.create_task(store.admin.find(JobFilter(), limit=5))
    await held.begun.wait()
    running = await started(store)  # stored, claimed and read of while the other still looks
    assert await store.jobs.active(["default"])
    assert not found.done()
    held.go_on.set()
    assert [job.id for job in await found] in ([], [running.claim.job])


async def test_reads_for_people_have_a_connection_of_their_own_and_share_it(
    store: SqliteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    held.go_on.set()
    await add(store, a_job())
    await asyncio.gather(*(store.admin.find(JobFilter(), limit=5) for _ in range(40)))
    (own,) = set(held.connections)
    assert own is not store._db.read(lambda connection, _: connection)
    assert sum(thread.name == "windlass-aside" for thread in threading.enumerate()) == 1


async def test_a_read_that_is_given_up_before_its_turn_is_never_begun(
    store: SqliteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    first, second = (asyncio.create_task(store.admin.find(JobFilter(), limit=1)) for _ in "12")
    await held.begun.wait()
    second.cancel()
    held.go_on.set()
    await first
    await run_on_reader_thread(lambda: None)  # whatever waited has had its turn
    assert len(held.connections) == 1


async def test_a_read_that_fails_fails_alone_and_the_next_one_gets_a_fresh_connection(
    store: SqliteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> Any:
        raise apsw.CorruptError

    with monkeypatch.context() as patched:
        patched.setattr(admin, "find", broken)
        with pytest.raises(StorageError, match="is damaged"):
            await store.admin.find(JobFilter(), limit=1)
    assert list(await store.admin.find(JobFilter(), limit=1)) == []


async def test_closing_waits_for_what_is_being_read(
    store: SqliteStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Held(monkeypatch)
    found = asyncio.create_task(store.admin.find(JobFilter(), limit=1))
    await held.begun.wait()
    closing = asyncio.create_task(store.close())
    held.go_on.set()
    await closing
    assert list(await found) == []
    with pytest.raises(StorageError, match="was closed"):
        await store.admin.find(JobFilter(), limit=1)


async def test_a_read_that_gets_no_thread_fails_and_the_next_one_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(asides, "_BESIDE", asides._ReaderThread())
    with monkeypatch.context() as crowded:
        crowded.setattr(asides, "start_thread", full)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            run_on_reader_thread(lambda: 1)
    async with asyncio.timeout(LONG):
        assert await run_on_reader_thread(lambda: 2) == 2
