"""One enqueue at a time: no commit on an event loop, and no detour on a thread without one."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest

from windlass import Windlass
from windlass._app.parts import parts_of
from windlass._core.job.event import Event
from windlass._storage.sqlite import open_sqlite
from windlass.testing.conformance.steps import a_job


def shop(folder: Path) -> Windlass:
    return Windlass(f"sqlite:///{folder / 'jobs.db'}")


async def test_an_event_loop_turns_while_another_process_holds_the_file(tmp_path: Path) -> None:
    app = shop(tmp_path)

    @app.task(name="greet")
    async def greet() -> None: ...

    async with app:
        await greet.enqueue()
        other = apsw.Connection(str(tmp_path / "jobs.db"))
        other.execute("BEGIN IMMEDIATE")
        enqueued = asyncio.create_task(greet.enqueue())
        steps, longest, last = 0, 0.0, time.monotonic()
        end = last + 1
        while last < end:
            await asyncio.sleep(0)
            now = time.monotonic()
            steps, longest, last = steps + 1, max(longest, now - last), now
        assert not enqueued.done()
        other.execute("ROLLBACK")
        other.close()
        assert (await enqueued).created
    assert steps > 100
    assert longest < 0.5


def test_a_blocking_enqueue_does_not_wait_for_the_background_loop(tmp_path: Path) -> None:
    app = shop(tmp_path)

    @app.task(name="greet")
    def greet(name: str) -> None: ...

    greet.enqueue_sync("first")  # starts the loop and opens the file
    loop = parts_of(app).blocking_loop.loop
    assert loop is not None
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        release.wait(30)

    loop.call_soon_threadsafe(hold)
    assert held.wait(30)
    with ThreadPoolExecutor(1) as threads:
        try:
            job = threads.submit(greet.enqueue_sync, "second").result(30)
        finally:
            release.set()
    assert job.created
    assert app.blocking.refresh(job).task == "greet"
    app.blocking.close()


def test_a_blocking_enqueue_gives_up_while_another_process_has_the_turn(tmp_path: Path) -> None:
    app = shop(tmp_path)

    @app.task(name="greet")
    def greet(name: str) -> None: ...

    greet.enqueue_sync("first")
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLD_TURN, str(tmp_path / "jobs.db-lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdin is not None
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(greet.enqueue_sync, "second")
        with pytest.raises(TimeoutError):
            waiting.result(0.3)
        holder.stdin.close()
        assert waiting.result(30).created
    holder.wait(30)
    holder.stdout.close()
    app.blocking.close()


_HOLD_TURN = """
import fcntl, sys
file = open(sys.argv[1])
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


def test_a_blocking_enqueue_is_told_to_listeners(tmp_path: Path) -> None:
    app = shop(tmp_path)
    heard: list[Event] = []
    told = threading.Event()

    @app.task(name="greet")
    def greet(name: str) -> None: ...

    @app.on_transition
    def listen(event: Event) -> None:
        heard.append(event)
        told.set()

    for name in ("first", "second"):
        told.clear()
        greet.enqueue_sync(name)
        assert told.wait(30)
    assert len(heard) == 2
    app.blocking.close()


async def test_subscribers_hear_of_jobs_that_other_threads_store(tmp_path: Path) -> None:
    storage = await open_sqlite(tmp_path / "jobs.db")
    heard = asyncio.Event()

    def wake() -> bool:
        heard.set()
        return True

    hints = storage.wakeups.work(wake, ["default"])
    answers = await asyncio.to_thread(storage.jobs.insert_here, [a_job()])
    assert answers is not None
    assert [answer.created for answer in answers] == [True]
    async with asyncio.timeout(30):
        await heard.wait()
    hints.close()
    await storage.close()
