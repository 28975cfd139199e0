"""Forking while other threads write: neither the child nor anybody else waits for a ghost."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from windlass._storage.sqlite.io.connection import FileSource, connect, disconnect
from windlass._storage.sqlite.io.files import DatabaseFiles, prepare_file
from windlass._storage.sqlite.io.transactor import Transactor
from windlass._system.forks import ForkGuard
from windlass._system.seams import monotonic, sleep
from windlass.errors import StoreBusy


@pytest.fixture
def files(tmp_path: Path) -> DatabaseFiles:
    files = prepare_file(str(tmp_path / "jobs.db"))
    connection = connect(files.path)
    connection.execute("CREATE TABLE t (x)")
    disconnect(connection)
    return files


_FORK = """
import asyncio, os, sys, threading
from windlass._storage.sqlite.io.connection import FileSource
from windlass._storage.sqlite.io.files import prepare_file
from windlass._storage.sqlite.io.transactor import Transactor
from windlass._storage.sqlite.io.writer import Writer

files = prepare_file(sys.argv[1])
entered = threading.Event()

def slow(connection, now):
    connection.execute("INSERT INTO t VALUES ('parent')")
    entered.set()
    threading.Event().wait(0.5)

async def parent():
    writer = Writer(Transactor(FileSource(files)))
    writing = writer.submit(slow)
    await asyncio.to_thread(entered.wait, 10)
    if (pid := os.fork()) == 0:
        os._exit(child())
    await writing
    assert os.waitpid(pid, 0)[1] == 0, "the child could not write"
    await writer.close()

def child():
    asyncio.events._set_running_loop(None)
    async def write():
        writer = Writer(Transactor(FileSource(files)))
        async with asyncio.timeout(10):
            await writer.submit(lambda c, _: c.execute("INSERT INTO t VALUES ('child')").fetchall())
    try:
        asyncio.new_event_loop().run_until_complete(write())
    except BaseException as error:
        print(repr(error), file=sys.stderr)
        return 1
    return 0

asyncio.run(parent())
"""


def test_a_child_forked_while_its_parent_writes_can_write(files: DatabaseFiles) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _FORK, files.path],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    connection = connect(files.path)
    assert connection.execute("SELECT x FROM t").fetchall() == [("parent",), ("child",)]
    disconnect(connection)


def test_a_fork_waits_for_whoever_is_inside_and_keeps_the_others_out() -> None:
    gate, events = ForkGuard(), []
    inside, leave = threading.Event(), threading.Event()

    def reader() -> None:
        with gate, gate:
            inside.set()
            assert leave.wait(30)
            events.append("read")

    def late() -> None:
        with gate:
            events.append("late")

    threads = [threading.Thread(target=reader), threading.Thread(target=late)]
    threads[0].start()
    assert inside.wait(30)
    threading.Timer(0.1, leave.set).start()
    gate.shut()
    threads[1].start()
    events.append("fork")
    gate.open()
    for thread in threads:
        thread.join(30)
    assert events == ["read", "fork", "late"]


def test_a_thread_that_forks_inside_does_not_wait_for_itself() -> None:
    gate = ForkGuard()
    began = monotonic()
    with gate:
        gate.shut()
        gate.open()
    assert monotonic() - began < 5


def test_whoever_waits_for_a_stranger_lets_the_others_take_their_turn(
    files: DatabaseFiles,
) -> None:
    stranger = connect(files.path)
    stranger.execute("BEGIN IMMEDIATE")
    transactor = Transactor(FileSource(files))

    def wait() -> None:
        with pytest.raises(StoreBusy):
            transactor.run([lambda connection, _: connection.execute("SELECT 1").get], patience=3.0)

    waiting = threading.Thread(target=wait)
    waiting.start()
    turn = os.open(files.lock, os.O_RDWR)
    try:
        while transactor.connection is None:
            sleep(0.001)
        taken = False
        while waiting.is_alive() and not taken:
            try:
                fcntl.flock(turn, fcntl.LOCK_EX | fcntl.LOCK_NB)
                taken = waiting.is_alive()
            except BlockingIOError:
                sleep(0.0005)
        assert taken
    finally:
        os.close(turn)
        waiting.join(30)
        transactor.close()
        disconnect(stranger)
