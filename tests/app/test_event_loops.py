"""One app, several event loops, threads and processes."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from windlass import Windlass
from windlass._app.parts import parts_of
from windlass._core.job.state import State
from windlass.errors import WindlassError

fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")


def make_app(url: str) -> Windlass:
    app = Windlass(url)

    @app.task(name="work")
    async def work(number: int) -> int:
        return number

    return app


def enqueue(app: Windlass, number: int) -> str:
    async def main() -> str:
        return str((await parts_of(app).producer.enqueue_call(app.tasks["work"].call(number))).id)

    return asyncio.run(main())


async def ready(app: Windlass) -> int:
    return sum(counts.ready for counts in await app.admin.queues.counts())


@pytest.fixture(params=["memory", "sqlite"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> Windlass:
    return make_app("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db")


def test_each_asyncio_run_opens_the_app_anew(app: Windlass) -> None:
    first = enqueue(app, 1)
    enqueue(app, 2)

    async def main() -> tuple[int, State]:
        return await ready(app), (await app.job(first).refresh()).state

    assert asyncio.run(main()) == (2, State.WAITING)
    assert len(parts_of(app).connections.loops) == 1  # those of the loops that ended were let go
    asyncio.run(app.close())


def test_a_worker_of_one_loop_runs_what_another_loop_enqueued(app: Windlass) -> None:
    job = enqueue(app, 7)

    async def main() -> object:
        async with app, app.worker():
            return await app.job(job).result(timeout=30)

    assert asyncio.run(main()) == 7


def test_an_app_can_be_closed_and_used_again(app: Windlass) -> None:
    """A32."""

    async def main() -> int:
        async with app:
            await parts_of(app).producer.enqueue_call(app.tasks["work"].call(1))
            assert len(parts_of(app).connections.loops) == 1
        assert len(parts_of(app).connections.loops) == 0
        await parts_of(app).producer.enqueue_call(app.tasks["work"].call(2))
        await app.close()
        await app.close()
        async with app:
            return await ready(app)

    assert asyncio.run(main()) == 2


def test_two_loops_in_two_threads_use_one_app_at_once(app: Windlass) -> None:
    failures: list[BaseException] = []

    async def main(first: int) -> None:
        async with app:
            calls = [app.tasks["work"].call(n) for n in range(first, first + 100)]
            jobs = await asyncio.gather(*map(parts_of(app).producer.enqueue_call, calls))
            async with app.worker(slots=20):
                results = await asyncio.gather(*[job.result(timeout=20) for job in jobs])
            assert results == list(range(first, first + 100))

    def run(first: int) -> None:
        try:
            asyncio.run(main(first))
        except BaseException as error:  # noqa: BLE001 -- shown by the assert below
            failures.append(error)

    threads = [threading.Thread(target=run, args=(first,)) for first in (0, 1000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_thread_waits_for_what_the_main_loop_works_on(app: Windlass) -> None:
    results: list[object] = []

    def produce() -> None:
        job = parts_of(app).producer.enqueue_call_sync(app.tasks["work"].call(5))
        results.append(app.blocking.result(job, timeout=10))

    async def main() -> None:
        async with app, app.worker():
            thread = threading.Thread(target=produce)
            thread.start()
            while thread.is_alive():
                await asyncio.sleep(0)
                thread.join(0.001)

    asyncio.run(main())
    assert results == [5]


async def test_first_users_of_a_loop_share_one_opening(app: Windlass) -> None:
    storages = await asyncio.gather(*[parts_of(app).storage() for _ in range(10)])
    assert len({id(storage) for storage in storages}) == 1
    await app.close()


async def test_a_first_user_who_gives_up_does_not_fail_the_others(app: Windlass) -> None:
    first = asyncio.create_task(parts_of(app).storage())
    await asyncio.sleep(0)
    second = asyncio.create_task(parts_of(app).storage())
    await asyncio.sleep(0)
    first.cancel()
    assert (await second).describe()
    await app.close()


async def test_an_opening_that_failed_is_tried_again(tmp_path: Path) -> None:
    in_the_way = tmp_path / "folder"
    in_the_way.write_text("not a folder")
    app = make_app(f"sqlite:///{in_the_way}/jobs.db")
    with pytest.raises(WindlassError, match="folder"):
        await parts_of(app).storage()
    in_the_way.unlink()
    in_the_way.mkdir()
    assert await ready(app) == 0
    await app.close()


# --- forks ---

PRELOAD = """
import asyncio, os, sys, warnings
from windlass import Windlass

app = Windlass(sys.argv[1])

@app.task
def work(number: int) -> int:
    return number

# What a preloading server does: the app is used, then children are forked from it.
work.enqueue_sync(0)
children = []
for number in range(1, 4):
    child = os.fork()
    if child == 0:
        try:
            for _ in range(20):
                work.enqueue_sync(number)
            async def main():
                job = await work.enqueue(number)
                return (await job.refresh()).state
            assert asyncio.run(main()) == "waiting"
        except BaseException as error:
            # One write: the children share this pipe.
            os.write(1, f"{type(error).__name__} {error}\\n".encode())
            os._exit(1)
        os._exit(0)
    children.append(child)
codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
work.enqueue_sync(99)
(counts,) = app.blocking.run(app.admin.queues.counts())
print(codes, counts.ready)
"""


def run_preload(url: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PRELOAD, url],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@fork
def test_forked_children_open_the_file_for_themselves(tmp_path: Path) -> None:
    ran = run_preload("sqlite:///jobs.db", tmp_path)
    assert ran.stdout.strip() == f"[0, 0, 0] {1 + 3 * 21 + 1}", ran.stdout + ran.stderr


@fork
def test_memory_is_refused_in_a_forked_child(tmp_path: Path) -> None:
    ran = run_preload("memory://", tmp_path)
    *refusals, last = ran.stdout.strip().splitlines()
    assert [line.split()[0] for line in refusals] == ["AppClosed"] * 3
    assert "Use sqlite:///jobs.db for several processes" in refusals[0]
    assert last == "[1, 1, 1] 2"


ISOLATED = """
import os
from windlass import Windlass, testing

app = Windlass("memory://")

@app.task
def work() -> None: ...

work.enqueue_sync()
child = os.fork()
if child == 0:
    with testing.isolated(app):
        work.enqueue_sync()
        print("ran in the child:", testing.drain_sync(app).ran, flush=True)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""


@fork
def test_an_app_can_be_isolated_in_a_forked_child(tmp_path: Path) -> None:
    """Its memory is made in the child, so none of its jobs belongs to the parent."""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", ISOLATED],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.stdout, ran.stderr) == ("ran in the child: 1\n", "")


@fork
def test_a_child_does_not_touch_its_parents_database(tmp_path: Path) -> None:
    """Closing a connection in a child would drop the parent's locks: POSIX takes them all."""
    program = PRELOAD.replace("os._exit(0)", "import gc; gc.collect(); os._exit(0)")
    ran = subprocess.run(
        [sys.executable, "-c", program, "sqlite:///jobs.db"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.stdout.strip().startswith("[0, 0, 0]"), ran.stdout + ran.stderr
    app = make_app(f"sqlite:///{tmp_path}/jobs.db")

    async def main() -> int:
        async with app:
            return await ready(app)

    assert asyncio.run(main()) == 65
    gc.collect()
