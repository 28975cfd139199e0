"""The same client for code without an event loop."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from windlass import Windlass
from windlass.core.state import State
from windlass.errors import BlockingCallOnLoop, JobFailed, JobNotFound
from windlass.storage.protocol import CancelAnswer
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
        assert app.blocking.result(one, timeout=1) == 1
        with pytest.raises(JobFailed, match="ValueError: no"):
            app.blocking.result(broken)
        with pytest.raises(JobNotFound):
            app.blocking.refresh(app.job("0" * 32))
        (counts,) = app.blocking.run(app.admin.counts())
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
    (counts,) = app.blocking.run(app.admin.counts())
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
        (lambda: app.blocking.run(app.admin.counts()), "await the coroutine itself"),
    ]:
        with pytest.raises(BlockingCallOnLoop, match=instead):
            call()
    (counts,) = await app.admin.counts()
    assert counts.ready == 1


def test_closing_on_the_blocking_loop_and_using_it_again(tmp_path: Path) -> None:
    app = Windlass(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    def work() -> None: ...

    work.enqueue_sync()
    app.blocking.run(app.close())
    app.blocking.stop()
    work.enqueue_sync()
    (counts,) = app.blocking.run(app.admin.counts())
    assert counts.ready == 2
    app.blocking.run(app.close())


async def test_closing_the_app_ends_the_background_loop_too(tmp_path: Path) -> None:
    app = Windlass(f"sqlite:///{tmp_path}/jobs.db")

    @app.task
    def work() -> None: ...

    async with app:
        thread = threading.Thread(target=work.enqueue_sync)
        thread.start()
        while thread.is_alive():
            thread.join(0.01)
        assert app.blocking.loop is not None
    assert app.blocking.loop is None
