"""Child processes: what kills one costs one job, and nothing of them is left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.source import ROOT
from tests.worker import process_app
from tests.worker.fixtures import logged, until
from windlass import Windlass, errors, testing
from windlass._app.parts import parts_of
from windlass._core.job.job import JobRecord
from windlass._core.job.state import State
from windlass._tasks.app_location import AppLocator
from windlass._tasks.handle import Job
from windlass._worker.child_process.exit_reason import ExitReason, memory_of
from windlass._worker.worker import Worker

app = process_app.app


@pytest.fixture
async def worker() -> AsyncIterator[Worker]:
    with testing.isolated(app):
        async with app, app.worker(slots=4) as worker:
            yield worker


async def eventually(look: Callable[[], Awaitable[object]], seconds: float = 20) -> None:
    async with asyncio.timeout(seconds):
        while not await look():  # noqa: ASYNC110 -- other processes set no events
            await asyncio.sleep(0.01)


async def failed(job: Job[Any]) -> JobRecord:
    async def over() -> bool:
        return (await job.refresh()).state is State.FAILED

    await eventually(over)
    return await job.refresh()


async def noted(job: Job[Any]) -> int:
    """The number a handler has said in its progress."""

    async def said() -> bool:
        return (await job.refresh()).progress is not None

    await eventually(said)
    progress = (await job.refresh()).progress
    assert progress is not None
    return int(progress.note)


def alive(pid: int) -> bool:
    """Whether a process runs; one that nobody has collected does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def gone(pid: int) -> None:
    async def dead() -> bool:
        return not alive(pid)

    await eventually(dead)


# --- a warm pool ---------------------------------------------------------------------------------


async def test_jobs_run_in_another_process_that_stays_warm(worker: Worker) -> None:
    seen = [await (await process_app.whoami.enqueue()).result(timeout=20) for _ in range(3)]
    assert len({pid for pid, _ in seen}) == 1
    assert all(parent == os.getpid() != pid for pid, parent in seen)


async def test_a_child_runs_one_job_at_a_time(worker: Worker) -> None:
    hanging = [await app.tasks["process.hang"].enqueue() for _ in range(2)]
    pid, _ = await (await process_app.whoami.enqueue()).result(timeout=20)
    assert alive(pid)
    for job in hanging:
        await job.cancel()


async def test_a_child_is_replaced_after_its_number_of_jobs() -> None:
    async with process_app.worn, process_app.worn.worker(slots=1):
        pids = [await (await process_app.worn_me.enqueue()).result(timeout=20) for _ in range(4)]
    assert pids[0] == pids[1] != pids[2] == pids[3]
    await gone(pids[0])


async def test_a_child_that_has_grown_is_replaced() -> None:
    async with process_app.fat, process_app.fat.worker(slots=1):
        first = await (await process_app.fat_me.enqueue()).result(timeout=20)
        assert await (await process_app.fat_me.enqueue()).result(timeout=20) != first


async def test_children_end_gracefully_with_their_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    farewell = tmp_path / "farewell"
    monkeypatch.setenv("HEAVY_FAREWELL", str(farewell))
    with testing.isolated(app):
        async with app, app.worker(slots=1):
            pid, _ = await (await process_app.whoami.enqueue()).result(timeout=20)
    assert not alive(pid)
    assert str(pid) in farewell.read_text().split()  # its lifespan has ended, too


async def test_a_job_cancelled_while_its_child_starts_never_runs() -> None:
    with testing.isolated(app):
        async with app, app.worker(slots=1) as worker:
            job = await process_app.leave.enqueue(3)
            await until(lambda: worker.engine.runner.active)
            await job.cancel()
            with pytest.raises(errors.JobCancelled):
                await job.result(timeout=20)
            pid, _ = await (await process_app.whoami.enqueue()).result(timeout=20)
            assert pid != os.getpid()


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("finish", "does not work in a child process"),
        ("connection", "does not have your connection"),
        ("stranger", "No task named 'elsewhere' is registered"),
    ],
)
async def test_unsupported_calls_in_a_child_raise(worker: Worker, what: str, why: str) -> None:
    job = await process_app.refused.enqueue(what)
    with pytest.raises(errors.JobFailed, match=why):
        await job.result(timeout=20)


async def test_a_child_enqueues_a_task_by_name(worker: Worker) -> None:
    job = await app.tasks["process.by_name"].enqueue()
    stored = await app.job(await job.result(timeout=20)).refresh()
    assert (stored.task, stored.payload, stored.parent) == ("shop.charge", b'{"order":7}', job.id)


# --- deaths --------------------------------------------------------------------------------------


async def test_a_segfault_costs_one_job_and_three_make_it_poison(worker: Worker) -> None:
    neighbours = [await app.tasks["process.echo"].enqueue(n) for n in range(5)]
    job = await process_app.segfault.enqueue()
    record = await failed(job)
    assert record.attempt == 3
    assert record.error is not None
    assert record.error.kind == "Quarantined"
    assert "SIGSEGV" in record.error.message
    assert "running alone" in record.error.message
    for attempt in await app.admin.jobs.history(job.id):
        assert attempt.error is not None
        assert "peak memory was" in attempt.error.message
    assert [await one.result(timeout=20) for one in neighbours] == [0, 1, 2, 3, 4]


async def test_an_exit_is_reported_with_its_code(worker: Worker) -> None:
    record = await failed(await process_app.leave.enqueue(3))
    assert record.error is not None
    assert record.error.kind == "ChildDied"
    assert "ended with exit code 3 before the job did; its peak memory was" in record.error.message


async def test_a_child_killed_from_outside_is_reported_with_its_signal(worker: Worker) -> None:
    record = await failed(await process_app.suicide.enqueue(signal.SIGKILL))
    assert record.error is not None
    assert "was killed by SIGKILL (out of memory, or kill -9)" in record.error.message
    assert await (await app.tasks["process.echo"].enqueue(1)).result(timeout=20) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="memory of others is known on Linux only")
async def test_a_run_that_takes_too_much_memory_is_ended() -> None:
    async with process_app.small, process_app.small.worker(slots=1):
        job = await process_app.hog.enqueue()
        with pytest.raises(
            errors.JobFailed, match="more than child_memory_limit=150 MiB; its peak"
        ):
            await job.result(timeout=20)


async def test_a_function_that_does_not_listen_is_killed_after_its_timeout(worker: Worker) -> None:
    record = await failed(await process_app.deaf.enqueue())
    assert record.error is not None
    assert record.error.kind == "windlass.errors.JobTimeout"
    assert worker.engine.slots.used == 0  # unlike a thread, it holds nothing any more


async def test_processes_started_by_a_handler_end_with_it(worker: Worker) -> None:
    job = await process_app.with_family.enqueue()
    pid = await noted(job)
    assert alive(pid)
    await job.cancel()
    await gone(pid)


async def test_programs_end_with_a_child_that_exits_by_itself(worker: Worker) -> None:
    job = await process_app.leaves_a_program.enqueue()
    pid = await noted(job)
    await failed(job)
    await gone(pid)


async def test_of_many_notes_the_last_one_arrives(worker: Worker) -> None:
    job = await process_app.talkative.enqueue()

    async def last() -> bool:
        progress = (await job.refresh()).progress
        return progress is not None and progress.note == "19999"

    await eventually(last)
    await job.cancel()


async def test_a_child_that_closes_its_line_is_ended(worker: Worker) -> None:
    record = await failed(await process_app.falls_silent.enqueue())
    assert record.error is not None
    assert "closed the connection to its worker" in record.error.message


def test_the_exit_reason_is_described() -> None:
    def words(**known: Any) -> str:
        return ExitReason(**{"code": 0, "peak": None, **known}).words

    assert words(code=-11) == "the child process was killed by SIGSEGV (a crash in native code)"
    assert words(code=-63, peak=2048) == (
        "the child process was killed by signal 63; its peak memory was 2 MiB"
    )
    assert "other code collected its exit code" in words(code=None)


@pytest.mark.skipif(sys.platform != "linux", reason="memory of others is known on Linux only")
def test_memory_of_a_process_that_is_not_there_is_unknown() -> None:
    own = memory_of(os.getpid())
    assert own is not None
    assert own.peak >= own.now > 1024
    assert memory_of(2**22 + 1) is None


# --- signals and the worker's own end ------------------------------------------------------------


@pytest.mark.crash
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda n: n.name)
async def test_no_child_outlives_its_worker(tmp_path: Path, number: signal.Signals) -> None:
    """SIGTERM reaches the child as well; it leaves it to the worker, which interrupts the run."""
    url = f"sqlite:///{tmp_path}/jobs.db"
    here = Windlass(url)
    command = [sys.executable, "-m", "windlass", "worker", "tests.worker.process_app:app"]
    command += ["--log-level", "warning", "--no-summary"]
    process = subprocess.Popen(command, env={**os.environ, "HEAVY_URL": url}, cwd=ROOT)
    try:
        async with here:
            far = Windlass(url)
            far.task(name="tests.worker.process_app.pids")(process_app.pids.function)
            async with far:
                job = await far.tasks["tests.worker.process_app.pids"].enqueue()
                pid = await noted(job)
                assert alive(pid)
                process.send_signal(number)
                await gone(pid)
                process.wait(20)
                if number == signal.SIGTERM:
                    record = await job.refresh()
                    assert (record.state, record.attempt) == (State.WAITING, 0)
    finally:
        process.kill()
        process.wait()


# --- how a child finds the app -------------------------------------------------------------------


async def test_an_app_inside_a_function_is_refused_when_its_worker_starts() -> None:
    inner = Windlass("memory://")
    inner.task(run_in="process")(process_app.me)
    with pytest.raises(errors.ConfigError, match="top level of a file"):
        async with inner, inner.worker():
            pass


def test_the_address_is_a_variable_of_a_module() -> None:
    locator = AppLocator(app, app.tasks)
    address = locator.locate()
    assert address.target == "tests.worker.process_app:app"
    assert address.modules == ("tests.worker.process_app",)
    locator.loaded_from("shop:app")
    assert locator.locate().target == "shop:app"


def script(folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "shop.py").write_text(text, encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-W", "error", "shop.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


SHOP = """
import asyncio, os
from windlass import Windlass

app = Windlass("memory://", missing_task="fail")

@app.task(run_in="process")
def whoami() -> int:
    return os.getpid()

async def main():
    async with app.worker():
        job = await whoami.enqueue()
        print(await job.result(timeout=20) != os.getpid())
"""


def test_the_tasks_of_a_script_run_in_children(tmp_path: Path) -> None:
    ran = script(tmp_path, f'{SHOP}\nif __name__ == "__main__":\n    asyncio.run(main())\n')
    assert (ran.stdout, ran.returncode) == ("True\n", 0), ran.stderr


def test_a_script_that_starts_its_worker_when_imported_gets_advice(tmp_path: Path) -> None:
    ran = script(tmp_path, f"{SHOP}\nasyncio.run(main())\n")
    assert ran.returncode == 1
    assert 'Put what starts the worker under `if __name__ == "__main__":`' in ran.stderr


async def test_a_child_that_cannot_start_costs_no_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_of(app).location, "target", "tests.worker.nowhere:app")
    with testing.isolated(app), logged() as lines:
        async with app, app.worker():
            job = await process_app.whoami.enqueue()

            async def missed() -> bool:
                return (await job.refresh()).missed_at is not None

            await eventually(missed)
            record = await job.refresh()
    assert (record.state, record.attempt) == (State.WAITING, 0)
    assert record.missed_why is not None
    assert "no module named 'tests.worker.nowhere'" in record.missed_why
    assert lines.having("a child process could not start")


# --- in tests ------------------------------------------------------------------------------------


async def test_a_drain_runs_them_in_the_tests_own_process() -> None:
    with testing.isolated(app):
        job = await process_app.whoami.enqueue()
        await testing.drain(app)
        assert (await job.result())[0] == os.getpid()
