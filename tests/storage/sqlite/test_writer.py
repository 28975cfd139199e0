from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from windlass._storage.sqlite.io import writer as writing
from windlass._storage.sqlite.io.connection import FileSource, MemorySource, connect, disconnect
from windlass._storage.sqlite.io.files import DatabaseFiles, prepare_file
from windlass._storage.sqlite.io.guards import FileWriteLock
from windlass._storage.sqlite.io.inline_writer import InlineWriter
from windlass._storage.sqlite.io.transactor import FailedOp, Op, Transactor
from windlass._storage.sqlite.io.writer import Urgency, Writer
from windlass.errors import StorageError, StorageFull, StorageReplaced, StoreBusy


def insert(x: object) -> Op:
    def op(connection: apsw.Connection, _: int) -> object:
        connection.execute("INSERT INTO t VALUES (?)", (x,))
        return x

    return op


def rows(connection: apsw.Connection, _: int = 0) -> list[Any]:
    return [x for (x,) in connection.execute("SELECT x FROM t ORDER BY rowid").fetchall()]


def failing(connection: apsw.Connection, _: int) -> None:
    connection.execute("INSERT INTO t VALUES ('never')")
    raise KeyError("planted")


class CountingTransactor(Transactor):
    """Counts the groups and what was in them, and can be told to fail at its commit."""

    def __init__(self, source: FileSource | MemorySource) -> None:
        super().__init__(source)
        self.groups: list[int] = []
        self.begun = threading.Event()

    def _commit(self, connection: apsw.Connection, results: list[Any]) -> list[Any]:
        self.groups.append(len(results))
        return super()._commit(connection, results)


@pytest.fixture
def files(tmp_path: Path) -> DatabaseFiles:
    files = prepare_file(str(tmp_path / "jobs.db"))
    connection = connect(files.path)
    connection.execute("CREATE TABLE t (x)")
    disconnect(connection)
    return files


@pytest.fixture
def transactor(files: DatabaseFiles) -> Iterator[CountingTransactor]:
    transactor = CountingTransactor(FileSource(files))
    yield transactor
    transactor.close()


@pytest.fixture
async def writer(files: DatabaseFiles) -> AsyncIterator[Writer]:
    writer = Writer(CountingTransactor(FileSource(files)))
    yield writer
    await writer.close()


def stored(files: DatabaseFiles) -> list[Any]:
    connection = connect(files.path)
    try:
        return rows(connection)
    finally:
        disconnect(connection)


class Gate:
    """An op that waits inside its transaction until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.leave = threading.Event()

    def __call__(self, connection: apsw.Connection, now: int) -> str:
        self.entered.set()
        assert self.leave.wait(30)
        return "gate"

    async def inside(self) -> None:
        assert await asyncio.to_thread(self.entered.wait, 30)


# --- one group ------------------------------------------------------------------------------


def test_a_group_is_one_transaction_with_a_result_for_each_op(
    transactor: CountingTransactor, files: DatabaseFiles
) -> None:
    commits = 0

    def count() -> bool:
        nonlocal commits
        commits += 1
        return False

    assert transactor.run([]) == []
    assert transactor.connection is not None
    transactor.connection.set_commit_hook(count)
    assert transactor.run([insert(1), insert(2), rows]) == [1, 2, [1, 2]]
    assert commits == 1
    assert stored(files) == [1, 2]


@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_failing_op_does_not_harm_its_neighbours(
    transactor: CountingTransactor, files: DatabaseFiles, position: int
) -> None:
    ops: list[Op] = [insert(1), insert(2)]
    ops.insert(position, failing)
    waiting = iter(ops)
    results: list[Any] = []
    while len(results) < len(ops):
        results += transactor.run(waiting)
    failed = results.pop(position)
    assert isinstance(failed, FailedOp)
    assert isinstance(failed.error, KeyError)
    assert results == [1, 2]
    assert stored(files) == [1, 2]


def test_an_error_of_sqlite_in_an_op_is_translated_and_keeps_its_cause(
    transactor: CountingTransactor,
) -> None:
    (failed,) = transactor.run([lambda c, _: c.execute("SELECT nonsense")])
    assert isinstance(failed.error, StorageError)
    assert isinstance(failed.error.__cause__, apsw.SQLError)


def test_an_op_is_taken_only_when_the_lock_is_held(
    transactor: CountingTransactor, files: DatabaseFiles
) -> None:
    stranger = connect(files.path)
    stranger.execute("BEGIN IMMEDIATE")
    taken: list[int] = []

    def ops() -> Iterator[Op]:
        taken.append(1)
        yield insert(1)

    with pytest.raises(StoreBusy, match=r"jobs\.db is locked by another process"):
        transactor.run(ops(), patience=0)
    assert taken == []
    stranger.execute("ROLLBACK")
    assert transactor.run(ops()) == [1]
    disconnect(stranger)


def test_a_full_disk_refuses_the_op_loses_nothing_and_heals(
    transactor: CountingTransactor, files: DatabaseFiles
) -> None:
    transactor.run([insert(1)])
    assert transactor.connection is not None
    transactor.connection.pragma("max_page_count", 4)
    big = insert(b"x" * 100_000)
    results = transactor.run([insert(2), big])
    assert isinstance(results[1].error, StorageFull)
    # SQLite may drop the whole transaction; then the neighbour is told, not left believing.
    kept = [1] if isinstance(results[0], FailedOp) else [1, 2]
    assert stored(files) == kept

    assert transactor.connection is not None
    transactor.connection.pragma("max_page_count", 1_000_000)
    assert transactor.run([big, insert(3)])[1] == 3
    assert stored(files) == [*kept, b"x" * 100_000, 3]


def test_what_sqlite_dropped_with_a_neighbour_is_never_reported_as_stored(
    transactor: CountingTransactor, files: DatabaseFiles
) -> None:
    def dropped(connection: apsw.Connection, _: int) -> None:
        connection.execute("ROLLBACK")  # as SQLite does by itself after some I/O errors
        raise apsw.exception_for(apsw.SQLITE_IOERR)

    results = transactor.run([insert(1), dropped, insert(2)])
    assert [type(result) for result in results] == [FailedOp, FailedOp]
    assert all(isinstance(result.error, StorageError) for result in results)
    assert results[0].error is not results[1].error
    assert stored(files) == []


def test_a_savepoint_that_fails_takes_the_group_with_it(
    transactor: CountingTransactor, files: DatabaseFiles
) -> None:
    transactor.run([insert(0)])
    before = transactor.connection
    results = transactor.run(
        [insert(1), lambda c, _: c.execute("RELEASE op").fetchall(), insert(2)]
    )
    assert [type(result.error) for result in results] == [StorageError] * 2
    assert results[0].error is not results[1].error
    assert transactor.connection is not before
    assert stored(files) == [0]


def test_a_beginning_that_fails_is_no_longer_waited_for(
    transactor: CountingTransactor, files: DatabaseFiles
) -> None:
    stranger = connect(files.path)
    stranger.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy):
        transactor.run([insert(1)], patience=0.01)
    assert transactor.waiting_since is not None
    disconnect(stranger)
    transactor.discard()
    Path(files.path).unlink()
    with pytest.raises(StorageReplaced):
        transactor.run([insert(1)])
    assert transactor.waiting_since is None


def test_a_failed_commit_acknowledges_nothing_and_gets_a_fresh_connection(
    transactor: CountingTransactor, files: DatabaseFiles
) -> None:
    transactor.run([insert(0)])
    before = transactor.connection
    assert before is not None
    before.set_commit_hook(lambda: True)  # SQLite turns the commit into a rollback
    results = transactor.run([insert(1), insert(2)])
    assert [type(result) for result in results] == [FailedOp, FailedOp]
    assert transactor.connection is None
    assert transactor.run([insert(3)]) == [3]
    assert transactor.connection is not before
    assert stored(files) == [0, 3]


def test_a_connection_that_met_an_io_error_is_not_trusted_again(
    transactor: CountingTransactor,
) -> None:
    def broken(connection: apsw.Connection, _: int) -> None:
        raise apsw.exception_for(apsw.SQLITE_IOERR_READ)

    transactor.run([insert(1), broken])
    assert transactor.connection is None
    assert transactor.run([rows]) == [[1]]


def test_a_file_replaced_between_two_connections_is_not_opened(
    transactor: CountingTransactor, files: DatabaseFiles, tmp_path: Path
) -> None:
    transactor.run([insert(1)])
    transactor.discard()
    Path(files.path).rename(tmp_path / "elsewhere")
    prepare_file(files.path)
    with pytest.raises(StorageReplaced):
        transactor.run([insert(2)])
    assert Path(files.path).stat().st_size == 0  # not touched


# --- the writer -----------------------------------------------------------------------------


async def test_an_op_answers_with_its_value_after_its_commit(
    writer: Writer, files: DatabaseFiles
) -> None:
    assert await writer.submit(insert(1)) == 1
    assert stored(files) == [1]


async def test_ops_queued_while_one_runs_are_committed_together(
    writer: Writer, files: DatabaseFiles
) -> None:
    gate = Gate()
    first = writer.submit(gate)
    await gate.inside()
    rest = [writer.submit(insert(n)) for n in range(10)]
    gate.leave.set()
    assert await first == "gate"
    assert await asyncio.gather(*rest) == list(range(10))
    # What was submitted while the first ran joined its group or formed the next: never ten.
    groups = writer.transactor.groups  # type: ignore[attr-defined]
    assert sum(groups) == 11
    assert len(groups) <= 2


async def test_a_group_is_bounded_so_that_nobody_waits_for_all(writer: Writer) -> None:
    gate = Gate()
    first = writer.submit(gate)
    await gate.inside()
    rest = [writer.submit(insert(n)) for n in range(200)]
    gate.leave.set()
    await asyncio.gather(first, *rest)
    assert max(writer.transactor.groups) <= 64  # type: ignore[attr-defined]


async def test_a_long_op_ends_its_group(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 10_000, 1))
    monkeypatch.setattr(writing, "monotonic", lambda: float(next(clock)))
    gate = Gate()
    first = writer.submit(gate)
    await gate.inside()
    rest = [writer.submit(insert(n)) for n in range(3)]
    gate.leave.set()
    await asyncio.gather(first, *rest)
    assert writer.transactor.groups == [1, 1, 1, 1]  # type: ignore[attr-defined]


async def test_urgent_ops_go_ahead_of_the_queue(writer: Writer, files: DatabaseFiles) -> None:
    gate = Gate()
    first = writer.submit(gate)
    await gate.inside()
    later = [writer.submit(insert("later")), writer.submit(insert("later"))]
    urgent = [
        writer.submit(insert("first"), Urgency.FIRST),
        writer.submit(insert("second"), Urgency.FIRST),
    ]
    gate.leave.set()
    await asyncio.gather(first, *later, *urgent)
    assert stored(files) == ["first", "second", "later", "later"]


async def test_what_slots_wait_for_goes_ahead_and_ends_its_group(
    writer: Writer, files: DatabaseFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "monotonic", lambda: 0.0)  # a slow machine ends groups, too
    gate = Gate()
    first = writer.submit(gate)
    await gate.inside()
    later = [writer.submit(insert("later")), writer.submit(insert("later"))]
    soon = [
        writer.submit(insert("soon"), Urgency.SOON),
        writer.submit(insert("first"), Urgency.FIRST),
    ]
    gate.leave.set()
    await asyncio.gather(first, *later, *soon)
    assert stored(files) == ["first", "soon", "later", "later"]
    assert writer.transactor.groups == [3, 2]  # type: ignore[attr-defined]


async def test_a_failing_op_fails_its_submitter_alone(writer: Writer, files: DatabaseFiles) -> None:
    gate = Gate()
    first = writer.submit(gate)
    await gate.inside()
    ops: list[Op] = [insert(1), failing, insert(2)]
    futures = [writer.submit(op) for op in ops]
    gate.leave.set()
    await first
    one, error, two = await asyncio.gather(*futures, return_exceptions=True)
    assert (one, two) == (1, 2)
    assert isinstance(error, KeyError)
    assert stored(files) == [1, 2]


@pytest.mark.parametrize("planted", [StopIteration(), SystemExit(3), asyncio.CancelledError()])
async def test_no_exception_of_an_op_ends_the_writer(
    writer: Writer, planted: BaseException
) -> None:
    def op(connection: apsw.Connection, _: int) -> None:
        raise planted

    future = writer.submit(op)
    await asyncio.wait([future])
    with contextlib.suppress(asyncio.CancelledError):
        assert future.exception() is not None
    assert await writer.submit(insert(1)) == 1


async def test_an_op_abandoned_at_its_deadline_is_never_executed(
    writer: Writer, files: DatabaseFiles
) -> None:
    stranger = connect(files.path)
    stranger.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy, match=r"jobs\.db has been locked by another process for \d+\.\d"):
        await writer.submit(insert("late"), timeout=timedelta(milliseconds=200))
    patient = writer.submit(insert("patient"))
    stranger.execute("ROLLBACK")
    disconnect(stranger)
    assert await patient == "patient"
    assert stored(files) == ["patient"]


async def test_an_op_that_has_begun_is_waited_for_beyond_its_deadline(
    writer: Writer, files: DatabaseFiles
) -> None:
    gate = Gate()
    slow = writer.submit(gate, timeout=timedelta(milliseconds=900))
    await gate.inside()
    with pytest.raises(StoreBusy, match="did not start in time"):
        await writer.submit(insert("late"), timeout=timedelta(milliseconds=910))
    gate.leave.set()
    assert await slow == "gate"
    assert await writer.submit(rows) == []


async def test_cancelling_the_caller_drops_a_waiting_op_and_spares_one_that_has_begun(
    writer: Writer, files: DatabaseFiles
) -> None:
    gate = Gate()

    def gated_insert(connection: apsw.Connection, _: int) -> None:
        gate(connection, 0)
        connection.execute("INSERT INTO t VALUES ('begun')")

    async def call(op: Op) -> None:
        await writer.submit(op)

    begun = asyncio.create_task(call(gated_insert))
    await gate.inside()
    waiting = asyncio.create_task(call(insert("waiting")))
    await asyncio.sleep(0)
    begun.cancel()
    waiting.cancel()
    await asyncio.wait([begun, waiting])
    gate.leave.set()
    assert await writer.submit(rows) == ["begun"]


async def test_ops_come_from_any_event_loop(writer: Writer, files: DatabaseFiles) -> None:
    async def beat() -> list[object]:
        return [await writer.submit(insert(f"beat {n}"), Urgency.FIRST) for n in range(5)]

    answers: list[list[object]] = []
    thread = threading.Thread(target=lambda: answers.append(asyncio.run(beat())))
    thread.start()
    mine = await asyncio.gather(*(writer.submit(insert(n)) for n in range(50)))
    await asyncio.to_thread(thread.join)
    assert mine == list(range(50))
    assert answers == [[f"beat {n}" for n in range(5)]]
    assert len(stored(files)) == 55


async def test_results_for_a_loop_that_is_gone_hurt_nobody(writer: Writer) -> None:
    gate = Gate()

    async def leave() -> None:
        _ = writer.submit(gate)
        await gate.inside()

    thread = threading.Thread(target=lambda: asyncio.run(leave()))
    thread.start()
    await asyncio.to_thread(thread.join)
    mine = writer.submit(insert(1))
    gate.leave.set()
    assert await mine == 1


async def test_closing_writes_what_is_queued_and_then_refuses(files: DatabaseFiles) -> None:
    writer = Writer(Transactor(FileSource(files)))
    futures = [writer.submit(insert(n)) for n in range(5)]
    await writer.close()
    assert await asyncio.gather(*futures) == list(range(5))
    with pytest.raises(StorageError, match="was closed; open the storage again"):
        await writer.submit(insert(9))
    await writer.close()
    assert stored(files) == list(range(5))


async def test_closing_waits_only_so_long_for_a_locked_database(
    files: DatabaseFiles, caplog: pytest.LogCaptureFixture
) -> None:
    writer = Writer(Transactor(FileSource(files)))
    stranger = connect(files.path)
    stranger.execute("BEGIN IMMEDIATE")
    future = writer.submit(insert(1))
    await writer.close(timeout=timedelta(milliseconds=50))
    with pytest.raises(StoreBusy):
        await future
    assert "1 writes were dropped" in caplog.text
    stranger.execute("ROLLBACK")
    await writer.close()
    assert rows(stranger) == []
    disconnect(stranger)


async def test_an_insert_into_a_deleted_file_is_refused_and_so_is_everything_after_it(
    writer: Writer, files: DatabaseFiles
) -> None:
    await writer.submit(insert(1))
    Path(files.path).unlink()
    with pytest.raises(StorageReplaced, match="deleted or replaced"):
        await writer.submit(insert(2))
    with pytest.raises(StorageReplaced):
        writer.submit(insert(3))


async def test_an_insert_after_a_backup_was_put_in_place_is_refused(
    writer: Writer, files: DatabaseFiles, tmp_path: Path
) -> None:
    (tmp_path / "backup").write_bytes(Path(files.path).read_bytes())
    await writer.submit(insert(1))
    (tmp_path / "backup").rename(files.path)
    with pytest.raises(StorageReplaced):
        await writer.submit(insert(2))


@pytest.mark.parametrize("what", ["path", "wal"])
@pytest.mark.parametrize("how", ["delete", "move", "replace"])
async def test_a_file_that_goes_is_noticed_at_the_next_commit(
    writer: Writer, files: DatabaseFiles, what: str, how: str
) -> None:
    file = Path(getattr(files, what))
    await writer.submit(insert(1))
    os.utime(file.parent, (0, 0))  # long unchanged: the next commit remembers its state
    await writer.submit(insert(2))
    if how == "delete":
        file.unlink()
    else:
        file.rename(file.with_name("elsewhere"))
    if how == "replace":
        file.write_bytes(file.with_name("elsewhere").read_bytes())
    with pytest.raises(StorageReplaced, match="deleted or replaced"):
        await writer.submit(insert(3))


async def test_a_database_that_cannot_be_opened_fails_every_op_and_is_tried_again(
    tmp_path: Path,
) -> None:
    files = prepare_file(str(tmp_path / "jobs.db"))
    Path(files.path).write_bytes(b"not a database at all" * 100)
    writer = Writer(Transactor(FileSource(files)))
    results = await asyncio.gather(*(writer.submit(rows) for _ in range(3)), return_exceptions=True)
    assert [type(result) for result in results] == [StorageError] * 3
    Path(files.path).write_bytes(b"")
    assert await writer.submit(lambda c, _: c.execute("SELECT 1").get) == 1
    await writer.close()


# --- forks and processes --------------------------------------------------------------------

_FORK = """
import asyncio, os, sys
from windlass.errors import StorageError
from windlass._storage.sqlite.io.connection import FileSource
from windlass._storage.sqlite.io.files import prepare_file
from windlass._storage.sqlite.io.transactor import Transactor
from windlass._storage.sqlite.io.writer import Writer

def insert(n):
    return lambda c, _: c.execute("INSERT INTO t VALUES (?)", (n,)).fetchall()

async def write(writer, n):
    await writer.submit(insert(n))

async def refused(writer):
    try:
        writer.submit(insert("child"))
    except StorageError as error:
        assert "forked" in str(error), error
        await writer.close()  # does nothing here
    else:
        os._exit(2)

files = prepare_file(sys.argv[1])
writer = Writer(Transactor(FileSource(files)))
asyncio.run(write(writer, 1))
if (child := os.fork()) == 0:
    asyncio.run(refused(writer))
    del writer
    own = Writer(Transactor(FileSource(files)))
    asyncio.run(write(own, "child's own"))
    asyncio.run(own.close())
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0, "the child was not refused"
asyncio.run(write(writer, 2))
asyncio.run(writer.close())
"""


def test_a_forked_child_is_refused_and_its_parent_unharmed(files: DatabaseFiles) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _FORK, files.path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert stored(files) == [1, "child's own", 2]


_BUSY = """
import asyncio, sys
from windlass._storage.sqlite.io.connection import FileSource
from windlass._storage.sqlite.io.files import prepare_file
from windlass._storage.sqlite.io.transactor import Transactor
from windlass._storage.sqlite.io.writer import Writer

path, name, count, together = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])

async def main():
    writer = Writer(Transactor(FileSource(prepare_file(path))))
    async def one(part):
        for n in range(count // together):
            row = (f"{name} {part} {n}",)
            await writer.submit(
                lambda c, _: c.execute("INSERT INTO t VALUES (?)", row).fetchall()
            )
    await asyncio.gather(*(one(part) for part in range(together)))
    await writer.close()

asyncio.run(main())
"""


def test_processes_that_write_at_once_all_get_their_turn(files: DatabaseFiles) -> None:
    draining = [(f"drain{n}", 400, 8) for n in range(4)]
    running = [
        subprocess.Popen([sys.executable, "-c", _BUSY, files.path, name, str(n), str(together)])
        for name, n, together in [*draining, ("enqueue", 50, 1)]
    ]
    assert [one.wait(60) for one in running] == [0] * 5
    assert len(set(stored(files))) == 4 * 400 + 50


def test_a_stranger_who_takes_no_turns_is_waited_for(files: DatabaseFiles) -> None:
    stranger = connect(files.path)
    stranger.execute("BEGIN IMMEDIATE")
    other = subprocess.Popen([sys.executable, "-c", _BUSY, files.path, "w", "10", "1"])
    stranger.execute("INSERT INTO t VALUES ('stranger')")
    stranger.execute("COMMIT")
    disconnect(stranger)
    assert other.wait(60) == 0
    assert len(stored(files)) == 11


_CREATE = """
import asyncio, sys
from datetime import UTC, datetime
from windlass._storage.shared.migrations import Migration, apply_sqlite
from windlass._storage.sqlite.io.connection import FileSource
from windlass._storage.sqlite.io.files import prepare_file
from windlass._storage.sqlite.io.transactor import Transactor
from windlass._storage.sqlite.io.writer import Writer

async def main():
    sys.stdin.readline()
    writer = Writer(Transactor(FileSource(prepare_file(sys.argv[1]))))
    steps = [Migration(1, "one", "CREATE TABLE t (x)"), Migration(2, "two", "CREATE TABLE u (x)")]
    now = datetime(2026, 1, 1, tzinfo=UTC)
    applied = await writer.submit(lambda c, _: apply_sqlite(c, steps, now))
    await writer.submit(lambda c, _: c.execute("INSERT INTO t VALUES (1)").fetchall())
    await writer.close()
    print(len(applied))

asyncio.run(main())
"""


def test_of_many_processes_at_the_first_start_one_creates_the_schema(tmp_path: Path) -> None:
    path = str(tmp_path / "jobs.db")
    running = [
        subprocess.Popen(
            [sys.executable, "-c", _CREATE, path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(16)
    ]
    for one in running:
        assert one.stdin is not None
        one.stdin.write("go\n")
        one.stdin.flush()
    applied = sorted(one.communicate(timeout=60)[0] for one in running)
    assert [one.returncode for one in running] == [0] * 16
    assert applied == ["0\n"] * 15 + ["2\n"]
    assert len(stored(DatabaseFiles(path))) == 16


# --- inline ---------------------------------------------------------------------------------


class Planted:
    """Faults that a test plants around the groups of an inline writer."""

    def __init__(self, **faults: Exception) -> None:
        self.faults = faults
        self.counts: list[tuple[str, int]] = []

    async def before(self, op_count: int) -> None:
        self.counts.append(("before", op_count))
        await asyncio.sleep(0)
        if "before" in self.faults:
            raise self.faults.pop("before")

    async def after(self, op_count: int) -> None:
        self.counts.append(("after", op_count))
        if "after" in self.faults:
            raise self.faults.pop("after")


def on_memory() -> CountingTransactor:
    transactor = CountingTransactor(MemorySource())
    transactor.run([lambda c, _: c.execute("CREATE TABLE t (x)")])
    transactor.groups.clear()
    return transactor


@pytest.mark.parametrize("faults", [None, Planted])
async def test_inline_everything_submitted_in_one_turn_is_one_group(
    faults: Callable[[], Planted] | None,
) -> None:
    writer = InlineWriter(on_memory(), faults=faults() if faults else None)
    futures = [
        writer.submit(insert(1)),
        writer.submit(failing),
        writer.submit(insert(0), Urgency.FIRST),
    ]
    results = await asyncio.gather(*futures, return_exceptions=True)
    assert results[0] == 1
    assert isinstance(results[1], KeyError)
    assert results[2] == 0
    assert await writer.submit(rows) == [0, 1]
    assert writer.transactor.groups == [3, 1]  # type: ignore[attr-defined]
    await writer.close()
    with pytest.raises(StorageError, match="was closed"):
        writer.submit(rows)


async def test_inline_an_error_before_a_group_means_that_nothing_was_done() -> None:
    writer = InlineWriter(on_memory(), faults=Planted(before=StoreBusy("planted")))
    results = await asyncio.gather(
        writer.submit(insert(1)), writer.submit(insert(2)), return_exceptions=True
    )
    assert [type(result) for result in results] == [StoreBusy, StoreBusy]
    assert await writer.submit(rows) == []


async def test_inline_an_error_after_a_group_hides_what_was_done() -> None:
    faults = Planted(after=StoreBusy("planted"))
    writer = InlineWriter(on_memory(), faults=faults)
    results = await asyncio.gather(
        writer.submit(insert(1)), writer.submit(insert(2)), return_exceptions=True
    )
    assert [type(result) for result in results] == [StoreBusy, StoreBusy]
    assert await writer.submit(rows) == [1, 2]
    assert faults.counts == [("before", 2), ("after", 2), ("before", 1), ("after", 1)]


async def test_inline_a_discarded_connection_does_not_lose_the_memory() -> None:
    transactor = on_memory()
    transactor.run([insert(1)])
    transactor.discard()
    assert transactor.run([rows]) == [[1]]


async def test_inline_a_locked_file_is_said_to_be_busy(files: DatabaseFiles) -> None:
    writer = InlineWriter(Transactor(FileSource(files)))
    stranger = connect(files.path)
    stranger.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusy):
        await writer.submit(insert(1))
    stranger.execute("ROLLBACK")
    disconnect(stranger)
    assert await writer.submit(insert(2)) == 2
    await writer.close()
    assert stored(files) == [2]


def test_an_op_needs_a_running_loop(files: DatabaseFiles) -> None:
    writer = InlineWriter(Transactor(FileSource(files)))
    with pytest.raises(RuntimeError, match="no running event loop"):
        writer.submit(insert(1))


# --- on the calling thread ------------------------------------------------------------------


async def test_a_thread_runs_an_op_itself_while_the_writer_is_idle(
    writer: Writer, files: DatabaseFiles
) -> None:
    threads: list[int] = []

    def op(connection: apsw.Connection, now: int) -> object:
        threads.append(threading.get_ident())
        return insert(1)(connection, now)

    def call() -> tuple[object, int]:
        return writer.run_here(op), threading.get_ident()

    answer, mine = await asyncio.to_thread(call)
    assert (answer, threads) == (1, [mine])
    assert stored(files) == [1]
    assert await writer.submit(insert(2)) == 2
    assert stored(files) == [1, 2]


async def test_a_thread_runs_nothing_while_the_writer_writes(
    writer: Writer, files: DatabaseFiles
) -> None:
    gate = Gate()
    busy = writer.submit(gate)
    await gate.inside()
    assert await asyncio.to_thread(writer.run_here, insert(1)) is None
    gate.leave.set()
    await busy
    assert stored(files) == []


async def test_a_thread_waits_for_no_other_process(writer: Writer, files: DatabaseFiles) -> None:
    await writer.submit(rows)
    other = connect(files.path)
    other.execute("BEGIN IMMEDIATE")
    assert await asyncio.to_thread(writer.run_here, insert(1)) is None
    other.execute("ROLLBACK")
    disconnect(other)
    assert await asyncio.to_thread(writer.run_here, insert(2)) == 2
    assert stored(files) == [2]


async def test_a_thread_does_not_wait_for_the_turn_of_another_process(
    writer: Writer, files: DatabaseFiles
) -> None:
    await writer.submit(rows)
    with FileWriteLock(files):  # another descriptor, as another process has
        assert await asyncio.to_thread(writer.run_here, insert(1)) is None
    assert stored(files) == []


async def test_an_op_that_fails_on_the_calling_thread_stores_nothing(
    writer: Writer, files: DatabaseFiles
) -> None:
    with pytest.raises(KeyError, match="planted"):
        await asyncio.to_thread(writer.run_here, failing)
    assert stored(files) == []


async def test_a_closed_writer_runs_nothing_on_other_threads(files: DatabaseFiles) -> None:
    writer = Writer(CountingTransactor(FileSource(files)))
    await writer.close()
    assert await asyncio.to_thread(writer.run_here, insert(1)) is None
    assert stored(files) == []


async def test_an_outcome_and_the_claim_for_its_slot_share_a_commit(
    files: DatabaseFiles,
) -> None:
    transactor = CountingTransactor(FileSource(files))
    writer = Writer(transactor)
    gate = Gate()
    busy = writer.submit(gate)
    await gate.inside()
    soon = [writer.submit(insert(n), Urgency.SOON) for n in (1, 2)]
    later = writer.submit(insert(3))
    gate.leave.set()
    await asyncio.gather(busy, *soon, later)
    await writer.close()
    # The gate's own group takes what waits behind it: both urgent ones, and it ends there.
    assert transactor.groups == [3, 1]
