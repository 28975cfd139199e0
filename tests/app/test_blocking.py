"""The same client for code without an event loop."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from windlass import Job, Windlass
from windlass._app.parts import parts_of
from windlass._core.job.state import State
from windlass._storage.protocol.jobs import CancelAnswer
from windlass.errors import AppClosed, BlockingCallOnLoop, JobFailed, JobNotFound
from windlass.testing import drain_sync, isolated


def test_a_plain_script_enqueues_and_another_works(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        """
from windlass import Windlass

app = Windlass("sqlite:///jobs.db")


@app.task
def double(number: int) -> int:
    return number * 2


if __name__ == "__main__":
    job = double.enqueue_sync(21)
    assert job.created
    print(job.id)
""",
        encoding="utf-8",
    )
    worker = """
import asyncio, sys
from shop import app

async def main():
    async with app, app.worker(until_empty=True):
        print(await app.job(sys.argv[1]).result(timeout=20))

asyncio.run(main())
"""
    for script in (["shop.py"], ["-m", "shop"]):
        job = run(tmp_path, *script)
        assert run(tmp_path, "-c", worker, job) == "42"


def run(folder: Path, *arguments: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-W", "error", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stderr == ""
    return ran.stdout.strip()


def test_every_question_has_a_blocking_form() -> None:
    app = Windlass("memory://")

    @app.task
    def work(number: int) -> int:
        return number

    @app.task(max_attempts=1)
    def bad() -> None:
        raise ValueError("no")

    with isolated(app):
        one, two = app.blocking.enqueue_many([work.call(1), work.call(2)])
        broken = bad.enqueue_sync()
        assert app.blocking.refresh(one).state is State.WAITING
        assert app.blocking.cancel(two) is CancelAnswer.CANCELLED
        drain_sync(app)
        assert app.blocking.result(one, timeout=30) == 1
        with pytest.raises(JobFailed, match="ValueError: no"):
            app.blocking.result(broken)
        with pytest.raises(JobNotFound):
            app.blocking.refresh(app.job("0" * 32))
        (counts,) = app.blocking.run(app.admin.queues.counts())
        assert (counts.succeeded, counts.failed, counts.cancelled) == (1, 1, 1)


def test_options_apply_to_the_blocking_call() -> None:
    app = Windlass("memory://")

    @app.task
    def work() -> None: ...

    with isolated(app):
        first = work.options(key="k", queue="mail").enqueue_sync()
        second = work.options(key="k").enqueue_sync()
        assert (second == first, second.created) == (True, False)
        assert app.blocking.refresh(first).queue == "mail"


def test_many_threads_share_one_background_loop(tmp_path: Path) -> None:
    app = Windlass(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    def work(number: int) -> None: ...

    def enqueue(first: int) -> None:
        for number in range(first, first + 25):
            work.enqueue_sync(number)

    before = threading.active_count()
    threads = [threading.Thread(target=enqueue, args=(n * 25,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (counts,) = app.blocking.run(app.admin.queues.counts())
    assert counts.ready == 200
    assert threading.active_count() <= before + 3  # the loop, the writer, the watcher
    app.blocking.run(app.close())


async def test_on_a_running_loop_the_blocking_form_names_what_to_await() -> None:
    app = Windlass("memory://")

    @app.task
    def work() -> None: ...

    job = await work.enqueue()
    for call, instead in [
        (work.enqueue_sync, r"await work\.enqueue\("),
        (work.options(delay=1).enqueue_sync, r"await work\.enqueue\("),
        (lambda: app.blocking.enqueue_many([work.call()]), r"await app\.enqueue_many\("),
        (lambda: app.blocking.result(job), r"await job\.result\("),
        (lambda: app.blocking.refresh(job), r"await job\.refresh\("),
        (lambda: app.blocking.cancel(job), r"await job\.cancel\("),
        (lambda: app.blocking.run(app.admin.queues.counts()), "await the coroutine itself"),
    ]:
        with pytest.raises(BlockingCallOnLoop, match=instead):
            call()
    (counts,) = await app.admin.queues.counts()
    assert counts.ready == 1


def test_closing_on_the_blocking_loop_and_using_it_again(tmp_path: Path) -> None:
    app = Windlass(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    def work() -> None: ...

    work.enqueue_sync()
    app.blocking.close()
    work.enqueue_sync()
    (counts,) = app.blocking.run(app.admin.queues.counts())
    assert counts.ready == 2
    app.blocking.run(app.close())


async def test_closing_on_an_event_loop_leaves_the_calls_of_other_threads_alone(
    tmp_path: Path,
) -> None:
    """A web server's lifespan ends while its threads still enqueue."""
    app = Windlass(f"sqlite:///{tmp_path}/jobs.db")
    enough = threading.Event()
    stored: list[Job[None]] = []

    @app.task
    def work() -> None: ...

    def enqueue() -> None:
        while not enough.is_set():
            stored.append(work.enqueue_sync())

    threads = [threading.Thread(target=enqueue, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(10):
        async with app:
            await work.enqueue()
    enough.set()
    for thread in threads:
        await asyncio.to_thread(thread.join, 30)
        assert not thread.is_alive()
    (counts,) = await app.admin.queues.counts()
    assert counts.ready == len(stored) + 10
    await app.close()
    await asyncio.to_thread(app.blocking.close)


def test_closing_the_blocking_side_lets_calls_finish_and_the_next_one_starts_again(
    tmp_path: Path,
) -> None:
    app = Windlass(f"sqlite:///{tmp_path}/jobs.db")
    enough = threading.Event()
    stored: list[Job[None]] = []

    @app.task
    def work() -> None: ...

    def enqueue() -> None:
        while not enough.is_set():
            stored.append(work.enqueue_sync())

    threads = [threading.Thread(target=enqueue, daemon=True) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        app.blocking.close()
    enough.set()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    (counts,) = app.blocking.run(app.admin.queues.counts())
    assert counts.ready == len(stored)
    app.blocking.close()
    assert parts_of(app).blocking_loop.loop is None
    assert not [link for link in parts_of(app).connections.loops if link.is_running()]
    app.blocking.close()


def test_waiting_for_a_result_fails_when_the_blocking_side_closes() -> None:
    app = Windlass("memory://")
    told: list[BaseException] = []

    @app.task
    def work() -> None: ...

    job = work.enqueue_sync()

    begun = threading.Event()

    async def result() -> None:
        begun.set()
        await job.result()

    def wait() -> None:
        try:
            app.blocking.run(result())
        except AppClosed as error:
            told.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    assert begun.wait(30)
    app.blocking.close()
    thread.join(30)
    assert not thread.is_alive()
    assert len(told) == 1


def test_stopping_lets_the_calls_under_way_finish() -> None:
    app = Windlass("memory://")
    begun, go = threading.Event(), threading.Event()
    answers: list[str] = []

    async def slow() -> str:
        begun.set()
        await asyncio.to_thread(go.wait)
        return "done"

    thread = threading.Thread(target=lambda: answers.append(app.blocking.run(slow())), daemon=True)
    thread.start()
    assert begun.wait(30)
    parts_of(app).blocking_loop.stop()
    go.set()
    thread.join(30)
    assert answers == ["done"]


async def test_closing_the_blocking_side_on_a_loop_is_refused() -> None:
    app = Windlass("memory://")
    with pytest.raises(BlockingCallOnLoop, match=r"await asyncio\.to_thread\(app\.blocking\.close"):
        app.blocking.close()


def test_an_error_of_a_blocking_call_carries_no_foreign_context() -> None:
    app = Windlass("memory://")
    with pytest.raises(JobNotFound) as caught:
        app.blocking.refresh(app.job("0" * 32))
    assert caught.value.__context__ is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_forked_in_the_middle_of_a_call_has_new_locks(tmp_path: Path) -> None:
    program = """
import os, threading, warnings
from windlass import Windlass
from windlass._app.parts import parts_of

warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn of forks with threads
app = Windlass("sqlite:///jobs.db")

@app.task
def work() -> None: ...

work.enqueue_sync()
parts_of(app).blocking_loop._lock.acquire()  # as another thread would hold it at this moment
child = os.fork()
if not child:
    work.enqueue_sync()
    print("stored by the child", flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
parts_of(app).blocking_loop._lock.release()
work.enqueue_sync()
(counts,) = app.blocking.run(app.admin.queues.counts())
print(counts.ready)
"""
    assert run(tmp_path, "-c", program) == "stored by the child\n3"


def test_the_admin_has_a_blocking_twin() -> None:
    app = Windlass("memory://")

    @app.task(queue="mail")
    def send(to: str) -> None: ...

    admin = app.blocking.admin
    job = send.enqueue_sync("ada@example.org")
    admin.queues.pause("mail")
    assert admin.queues.get("mail").paused
    assert [cause.code for cause in admin.jobs.explain(job.id).causes][:1] == ["queue_paused"]
    assert admin.jobs.cancel(job.id) is CancelAnswer.CANCELLED
    assert admin.jobs.get(job.id).state is State.CANCELLED
    with pytest.raises(JobNotFound):
        admin.jobs.get("0" * 32)
    app.blocking.close()


def test_the_blocking_admin_acts_under_the_name_it_is_given() -> None:
    app = Windlass("memory://")
    app.blocking.admin.acting("ada").queues.pause("mail")
    app.blocking.admin.queues.resume("mail")
    told = [(one.note.who, one.note.what) for one in app.blocking.admin.audit.list()]
    assert told == [("api", "queues.resume"), ("ada", "queues.pause")]
    app.blocking.close()


async def test_the_blocking_admin_names_what_to_await_on_an_event_loop() -> None:
    app = Windlass("memory://")
    with pytest.raises(BlockingCallOnLoop, match=r"await app\.admin\.queues\.counts\(\.\.\.\)"):
        app.blocking.admin.queues.counts()


def test_the_blocking_admin_is_loaded_when_it_is_used(tmp_path: Path) -> None:
    script = """
import sys
from windlass import Windlass

app = Windlass("memory://")
app.blocking.wake()
assert "windlass._app.blocking_admin" not in sys.modules
app.blocking.admin
assert "windlass._app.blocking_admin" in sys.modules
"""
    run(tmp_path, "-c", script)


async def exits() -> None:
    async def leave() -> None:
        sys.exit(3)

    await asyncio.gather(leave())


async def stops() -> int:
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)
    return 5


@pytest.mark.timeout(20)
def test_code_that_ends_the_background_loop_ends_no_blocking_call() -> None:
    app = Windlass("memory://")

    @app.task(name="noop")
    async def noop() -> None: ...

    with pytest.raises(SystemExit):
        app.blocking.run(exits())
    assert app.blocking.run(stops()) == 5
    assert noop.enqueue_sync().created
    app.blocking.close()
