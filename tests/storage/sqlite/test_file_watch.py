from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from windlass._storage.sqlite.io import file_watch
from windlass._storage.sqlite.io.connection import connect, connect_reader, disconnect
from windlass._storage.sqlite.io.file_watch import (
    ChangeWatcher,
    FileEvents,
    InotifyEvents,
    NoFileEvents,
)
from windlass._storage.sqlite.io.files import DatabaseFiles, prepare_file
from windlass.errors import WindlassError

Make = Callable[[str], FileEvents]


class OnlyEvents(InotifyEvents):
    """Without the slow polling behind them: what a sign alone must bring about."""

    poll_ms = 60_000


needs_inotify = pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
every_kind = pytest.mark.parametrize(
    "kind",
    [pytest.param(InotifyEvents, marks=needs_inotify), lambda _: NoFileEvents()],
    ids=["wal", "poll"],
)


@pytest.fixture
def files(tmp_path: Path) -> DatabaseFiles:
    return prepare_file(str(tmp_path / "jobs.db"))


@pytest.fixture
def connection(files: DatabaseFiles) -> Iterator[apsw.Connection]:
    connection = connect(files.path)
    connection.execute("CREATE TABLE t (x)")
    yield connection
    disconnect(connection)


class Watching:
    """A watcher, and what it has told this loop."""

    def __init__(self, files: DatabaseFiles, make: Make) -> None:
        self.watcher = ChangeWatcher(files, events=make)
        self.calls = 0
        self.changed = asyncio.Event()
        self.unsubscribe = self.watcher.subscribe(asyncio.get_running_loop(), self._note)

    def _note(self) -> None:
        self.calls += 1
        self.changed.set()

    async def started(self) -> None:
        await until(lambda: self.watcher.looks > 0)

    async def next_change(self) -> None:
        await self.changed.wait()
        self.changed.clear()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 -- what is waited for happens on a thread
            await asyncio.sleep(0.001)


_COMMIT = """
import sys
from windlass._storage.sqlite.io.connection import connect
connection = connect(sys.argv[1])
connection.execute("INSERT INTO t VALUES (1)")
"""


@every_kind
async def test_a_commit_of_another_process_is_told(
    files: DatabaseFiles, connection: apsw.Connection, kind: Make
) -> None:
    watching = Watching(files, kind)
    await watching.started()
    other = await asyncio.create_subprocess_exec(sys.executable, "-c", _COMMIT, files.path)
    async with asyncio.timeout(20):
        assert await other.wait() == 0
        await watching.next_change()
    watching.watcher.close()


async def test_silence_is_not_told(files: DatabaseFiles, connection: apsw.Connection) -> None:
    watching = Watching(files, lambda _: NoFileEvents())
    await watching.started()
    looks = watching.watcher.looks
    await until(lambda: watching.watcher.looks >= looks + 3)
    assert watching.calls == 0
    watching.watcher.close()


@every_kind
async def test_every_commit_is_told(
    files: DatabaseFiles, connection: apsw.Connection, kind: Make
) -> None:
    watching = Watching(files, kind)
    await watching.started()
    for n in range(20):
        connection.execute("INSERT INTO t VALUES (?)", (n,))
        async with asyncio.timeout(20):
            await watching.next_change()
    watching.watcher.close()


@needs_inotify
async def test_a_write_that_is_not_yet_committed_is_looked_at_again(
    files: DatabaseFiles, connection: apsw.Connection
) -> None:
    connection.pragma("cache_size", 1)
    connection.pragma("cache_spill", 1)
    watching = Watching(files, OnlyEvents)
    await watching.started()
    looks = watching.watcher.looks
    connection.execute("BEGIN IMMEDIATE")
    for _ in range(20):  # more than the cache holds: pages are written before the commit
        connection.execute("INSERT INTO t VALUES (zeroblob(10000))")
    await until(lambda: watching.watcher.looks >= looks + 3)
    assert watching.calls == 0
    connection.execute("COMMIT")
    async with asyncio.timeout(20):
        await watching.next_change()
    watching.watcher.close()


async def test_a_burst_is_told_once_while_the_listener_has_not_come_round(
    files: DatabaseFiles, connection: apsw.Connection
) -> None:
    watching = Watching(files, lambda _: NoFileEvents())
    await watching.started()
    # This loop is blocked while it commits, so no delivery can run in between.
    for n in range(5):
        before = watching.watcher.looks
        connection.execute("INSERT INTO t VALUES (?)", (n,))
        while watching.watcher.looks < before + 2:
            threading.Event().wait(0.001)
    async with asyncio.timeout(20):
        await watching.next_change()
    assert watching.calls == 1
    watching.watcher.close()


@every_kind
async def test_a_paused_watcher_does_not_look_and_tells_on_resuming(
    files: DatabaseFiles, connection: apsw.Connection, kind: Make
) -> None:
    watching = Watching(files, kind)
    await watching.started()
    watching.watcher.pause()
    connection.execute("INSERT INTO t VALUES (1)")
    await until(lambda: watching.watcher._parked)
    looks = watching.watcher.looks
    told = watching.calls  # the first write may have been seen before the pause was
    connection.execute("INSERT INTO t VALUES (2)")
    assert watching.watcher.looks == looks
    watching.changed.clear()
    watching.watcher.resume()
    async with asyncio.timeout(20):
        await watching.next_change()
    assert watching.calls == told + 1
    watching.watcher.close()


async def test_who_unsubscribed_hears_nothing_more(
    files: DatabaseFiles, connection: apsw.Connection
) -> None:
    watching = Watching(files, lambda _: NoFileEvents())
    heard = asyncio.Event()
    watching.watcher.subscribe(asyncio.get_running_loop(), heard.set)
    await watching.started()
    watching.unsubscribe()
    connection.execute("INSERT INTO t VALUES (1)")
    async with asyncio.timeout(20):
        await heard.wait()
    assert watching.calls == 0
    watching.watcher.close()


async def test_a_listener_whose_loop_is_closed_does_not_stop_the_others(
    files: DatabaseFiles, connection: apsw.Connection
) -> None:
    watching = Watching(files, lambda _: NoFileEvents())
    gone = asyncio.new_event_loop()
    gone.close()
    watching.watcher._subscribers.clear()
    watching.watcher.subscribe(gone, lambda: None)
    heard = asyncio.Event()
    watching.watcher.subscribe(asyncio.get_running_loop(), heard.set)
    await watching.started()
    connection.execute("INSERT INTO t VALUES (1)")
    async with asyncio.timeout(20):
        await heard.wait()
    watching.watcher.close()


async def test_it_never_holds_a_read_open(
    files: DatabaseFiles, connection: apsw.Connection
) -> None:
    watching = Watching(files, lambda _: NoFileEvents())
    await watching.started()
    for n in range(100):
        connection.execute("INSERT INTO t VALUES (?)", (n,))
    # A truncating checkpoint is refused while any read is open; a look is over in microseconds.
    await until(lambda: connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").get[0] == 0)
    assert Path(files.wal).stat().st_size == 0
    watching.watcher.close()


async def test_an_outage_is_reported_once_and_survived(
    files: DatabaseFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = b"not a database at all" * 100
    Path(files.path).write_bytes(content)
    monkeypatch.setattr(file_watch, "_RETRY_MS", 5)
    errors: list[WindlassError] = []
    opened = 0

    def counting(path: str) -> apsw.Connection:
        nonlocal opened
        opened += 1
        return connect_reader(path)

    monkeypatch.setattr(file_watch, "connect_reader", counting)
    watcher = ChangeWatcher(files, on_error=errors.append)
    await until(lambda: opened >= 3)
    assert len(errors) == 1
    assert "is not a SQLite database" in str(errors[0])

    Path(files.path).write_bytes(b"")
    await until(lambda: watcher.looks > 0)
    watcher.close()


def test_closing_ends_the_thread_and_may_be_repeated(
    files: DatabaseFiles, connection: apsw.Connection
) -> None:
    watcher = ChangeWatcher(files)
    watcher.pause()
    watcher.close()
    assert not watcher._thread.is_alive()
    watcher.close()
    watcher.resume()


def test_where_the_kernel_has_no_watches_left_it_polls(
    files: DatabaseFiles, connection: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: str) -> InotifyEvents:
        raise OSError(28, "no watches left")

    monkeypatch.setattr(file_watch, "InotifyEvents", refuse)
    assert isinstance(file_watch._events_for(files.wal), NoFileEvents)


@needs_inotify
def test_watching_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    before = set(Path("/proc/self/fd").iterdir())
    with pytest.raises(OSError, match="inotify_add_watch"):
        InotifyEvents(str(tmp_path / "none"))
    assert set(Path("/proc/self/fd").iterdir()) == before


_IDLE = """
import sys, time
from windlass._storage.sqlite.io.files import DatabaseFiles
from windlass._storage.sqlite.io.file_watch import ChangeWatcher
watcher = ChangeWatcher(DatabaseFiles(sys.argv[1]))
time.sleep(0.3)
before = time.process_time()
time.sleep(2)
print((time.process_time() - before) / 2)
watcher.close()
"""


@needs_inotify
def test_idleness_costs_next_to_nothing(files: DatabaseFiles, connection: apsw.Connection) -> None:
    out = subprocess.run(
        [sys.executable, "-c", _IDLE, files.path], capture_output=True, text=True, check=True
    )
    assert float(out.stdout) < 0.006, "more than 0.6 % of a core"


@needs_inotify
async def test_a_commit_ends_the_long_pause_after_another(
    files: DatabaseFiles, connection: apsw.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_watch, "_PAUSES_MS", (*[1] * 300, 60_000))
    watching = Watching(files, OnlyEvents)
    try:
        await watching.started()
        looks = watching.watcher.looks + 301
        with Path(files.wal).open("r+b") as wal:
            first = wal.read(1)
            wal.seek(0)
            wal.write(first)  # a sign without a commit
        await until(lambda: watching.watcher.looks >= looks)  # the long pause comes next
        connection.execute("INSERT INTO t VALUES (2)")
        async with asyncio.timeout(20):
            await watching.next_change()
    finally:
        watching.watcher.close()
