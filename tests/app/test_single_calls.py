"""One enqueue at a time: no commit on an event loop, and no detour on a thread without one."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import apsw

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
    try:
        job = greet.enqueue_sync("second")
    finally:
        release.set()
    assert job.created
    assert app.blocking.refresh(job).task == "greet"
    app.blocking.close()


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
