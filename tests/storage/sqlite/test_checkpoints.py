from __future__ import annotations

import logging
from itertools import pairwise
from pathlib import Path

import apsw
import pytest

from windlass._storage.sqlite.io.checkpoints import Checkpointer
from windlass._storage.sqlite.io.connection import PAGES, FileSource, connect, disconnect
from windlass._storage.sqlite.io.files import DatabaseFiles, prepare_file
from windlass._storage.sqlite.io.transactor import FailedOp, Op, Transactor
from windlass.errors import StorageFull


@pytest.fixture
def files(tmp_path: Path) -> DatabaseFiles:
    files = prepare_file(str(tmp_path / "jobs.db"))
    connection = connect(files.path)
    connection.execute("CREATE TABLE t (x)")
    disconnect(connection)
    return files


class CountedStarts:
    """Counts the checkpoints that were asked for, and makes none."""

    def __init__(self) -> None:
        self.starts = 0

    def start(self) -> None:
        self.starts += 1

    def close(self) -> None:
        pass


def fill(pages: int) -> Op:
    def op(connection: apsw.Connection, _: int) -> None:
        connection.execute("DELETE FROM t; INSERT INTO t VALUES (randomblob(?))", (4096 * pages,))

    return op


def state_of(files: DatabaseFiles) -> tuple[int, int]:
    """Return the pages in the write-ahead file, and how many of them are in the database."""
    connection = connect(files.path)
    try:
        return connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
    finally:
        disconnect(connection)


def test_a_commit_asks_for_a_checkpoint_and_makes_none(files: DatabaseFiles) -> None:
    counted = CountedStarts()
    transactor = Transactor(FileSource(files, checkpoints=counted))
    try:
        transactor.run([fill(PAGES // 2)])
        assert counted.starts == 0
        transactor.run([fill(PAGES)])
        assert counted.starts == 1
        stored, moved = state_of(files)
        assert stored > PAGES
        assert moved == 0
    finally:
        transactor.close()


def test_a_reader_in_the_way_does_not_make_every_commit_ask(files: DatabaseFiles) -> None:
    counted = CountedStarts()
    transactor = Transactor(FileSource(files, checkpoints=counted))
    try:
        transactor.run([fill(PAGES)])
        for _ in range(20):  # nothing is moved meanwhile
            transactor.run([fill(10)])
        assert counted.starts == 1
        transactor.run([fill(PAGES)])
        assert counted.starts == 2
    finally:
        transactor.close()


def test_a_write_ahead_file_that_began_anew_gets_its_checkpoint(files: DatabaseFiles) -> None:
    counted = CountedStarts()
    transactor = Transactor(FileSource(files, checkpoints=counted))
    try:
        transactor.run([fill(3 * PAGES)])
        connection = connect(files.path)
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_RESTART)
        disconnect(connection)
        transactor.run([fill(PAGES)])
        assert state_of(files)[0] < 2 * PAGES
        assert counted.starts == 2
    finally:
        transactor.close()


def test_a_write_that_a_full_disk_refuses_starts_a_checkpoint(files: DatabaseFiles) -> None:
    # No commit succeeds then, so none starts it, and without it the file never starts anew.
    counted = CountedStarts()
    transactor = Transactor(FileSource(files, checkpoints=counted))

    def leave_no_room(connection: apsw.Connection, _: int) -> None:
        connection.execute("PRAGMA max_page_count = 10")

    try:
        transactor.run([leave_no_room])
        (refused,) = transactor.run([fill(20)])
        assert isinstance(refused, FailedOp)
        assert isinstance(refused.error, StorageFull)
        assert counted.starts == 1
    finally:
        transactor.close()


def test_a_checkpoint_moves_all_pages(files: DatabaseFiles) -> None:
    checkpointer = Checkpointer(files)
    transactor = Transactor(FileSource(files, checkpoints=checkpointer))
    try:
        transactor.run([fill(PAGES + 200)])
        checkpointer.close()  # waits for it
        stored, moved = state_of(files)
        assert stored == moved > PAGES
    finally:
        transactor.close()


def test_the_write_ahead_file_of_a_busy_writer_starts_anew(files: DatabaseFiles) -> None:
    transactor = Transactor(FileSource(files, checkpoints=Checkpointer(files)))
    pages: list[int] = []
    try:
        while len(pages) < 500 and not any(later < earlier for earlier, later in pairwise(pages)):
            transactor.run([fill(200)])
            pages.append(state_of(files)[0])
        assert len(pages) < 500, f"{pages[-1]} pages, and no end"
    finally:
        transactor.close()


def test_a_checkpoint_that_fails_leaves_room_for_the_next(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "windlass")
    checkpointer = Checkpointer(DatabaseFiles(str(tmp_path / "missing.db")))
    for _ in range(2):
        checkpointer.start()
        checkpointer.close()
    assert [record.getMessage().count("missing.db failed") for record in caplog.records] == [1, 1]
