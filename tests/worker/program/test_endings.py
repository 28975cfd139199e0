"""How programs end: by themselves, by limits and requests, and with their worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.source import ROOT
from tests.worker.child_process.test_pool import alive, eventually, gone
from tests.worker.fixtures import logged
from tests.worker.program import program_app
from tests.worker.program.program_app import app, soft, timed, warm
from tests.worker.program.test_program import failed, noted, pid_of_warm, stored_lines, worker
from windlass import Program, Windlass, errors, testing
from windlass._core.job.state import State
from windlass._worker.program.start_backoff import StartBackoff
from windlass._worker.worker import Worker

__all__ = ["worker"]

# --- by themselves -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "value", "why"),
    [
        ("leave", 3, "ended with exit code 3 before the job did"),
        ("leave", 0, "ended with exit code 0 before the job did"),
        ("suicide", int(signal.SIGSEGV), "was killed by SIGSEGV (a crash in native code)"),
        ("silent", None, "closed the connection to its worker and was killed"),
    ],
)
async def test_a_program_that_dies_fails_its_job_alone(
    worker: Worker, what: str, value: Any, why: str
) -> None:
    neighbour = await warm.enqueue("endless")
    await noted(neighbour)
    record = await failed(await warm.enqueue(what, value))
    assert record.error is not None
    assert (record.attempt, record.error.kind) == (2, "ProgramFailed")
    assert why in record.error.message
    if what == "leave":
        assert record.error.message.endswith("standard error: about to leave")
    assert (await neighbour.refresh()).state is State.RUNNING
    await neighbour.cancel()


async def test_a_program_that_cannot_start_costs_no_attempt() -> None:
    here = Windlass("memory://")

    @here.task(run_in=Program(["./resize", "--token=secret"]))
    def resize() -> None: ...

    with logged() as lines:
        async with here, here.worker():
            jobs = [await resize.enqueue() for _ in range(3)]

            async def missed() -> bool:
                return all([(await job.refresh()).missed_at is not None for job in jobs])

            await eventually(missed)
            record = await jobs[0].refresh()
    assert (record.state, record.attempt) == (State.WAITING, 0)
    assert record.missed_why is not None
    assert "program './resize' cannot be started" in record.missed_why
    assert "Install it on every worker of this queue, or correct its command" in record.missed_why
    assert "secret" not in record.missed_why
    assert len(lines.having("program './resize' could not start")) == 1  # the others waited for it


def test_a_program_that_does_not_start_is_left_alone_for_ever_longer() -> None:
    now = 0.0
    starts = StartBackoff(lambda: now)
    starts.check()
    waits = []
    for _ in range(8):
        starts.failed("not found")
        begun = now
        while True:
            try:
                starts.check()
            except errors.ChildNotStarted:
                now += 0.5
            else:
                break
        waits.append(now - begun)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    starts.worked()
    starts.died("exit code 1")
    starts.died("exit code 1")
    starts.check()  # two jobs may have done that
    starts.died("exit code 1")
    with pytest.raises(errors.ChildNotStarted, match="3 times in a row before its first reply"):
        starts.check()


async def test_processes_that_die_at_their_start_stop_costing_attempts(worker: Worker) -> None:
    here = Windlass("memory://", max_attempts=1)

    @here.task(run_in=Program(["sh", "-c", "exit 1"], warm=True))
    def broken() -> None: ...

    async with here, here.worker(slots=1):
        jobs = [await broken.enqueue() for _ in range(4)]

        async def settled() -> bool:
            return (await jobs[3].refresh()).missed_at is not None

        await eventually(settled)
        records = [await job.refresh() for job in jobs]
    assert [record.state for record in records] == [State.FAILED] * 3 + [State.WAITING]
    assert records[3].attempt == 0


# --- by limits and requests ----------------------------------------------------------------------


async def test_a_program_that_ignores_sigterm_is_killed_with_what_it_started(
    worker: Worker,
) -> None:
    job = await timed.enqueue("deaf")
    pids = await noted(job)
    record = await failed(job)
    assert record.error is not None
    assert record.error.kind == "windlass.errors.JobTimeout"
    for pid in pids:
        await gone(pid)
    assert worker.engine.slots.used == 0


async def test_a_cancelled_program_ends_and_the_next_job_has_another(worker: Worker) -> None:
    job = await warm.enqueue("endless")
    (pid,) = await noted(job)
    await job.cancel()
    with pytest.raises(errors.JobCancelled):
        await job.result(timeout=20)
    await gone(pid)
    assert await pid_of_warm() != pid


async def test_a_program_that_runs_once_is_cancelled_with_its_group(worker: Worker) -> None:
    job = await program_app.sleeps.enqueue()
    (pid,) = await stored_lines(job, 1)
    await job.cancel()
    with pytest.raises(errors.JobCancelled):
        await job.result(timeout=20)
    await gone(int(pid))


async def test_a_soft_timeout_is_sigterm(worker: Worker) -> None:
    assert await (await soft.enqueue("polite")).result(timeout=20) == "asked to end"
    record = await failed(await soft.enqueue("endless"))
    assert record.error is not None
    assert record.error.kind == "windlass.errors.JobTimeout"
    assert record.error.message == "ran longer than its soft timeout of 0.2 s"


async def test_an_exit_code_of_zero_after_sigterm_is_no_success(worker: Worker) -> None:
    record = await failed(await program_app.obeys.enqueue())
    assert record.error is not None
    assert record.error.message == "ran longer than its soft timeout of 1 s"
    assert await (await program_app.obeys_with_words.enqueue()).result(timeout=20) == 50
    job = await program_app.obeys.options(timeout=0.1).enqueue()
    record = await failed(job)
    assert record.error is not None
    assert record.error.message == "ran longer than its timeout of 0.1 s"


async def test_the_last_line_of_another_job_is_in_no_error(worker: Worker) -> None:
    assert await (await warm.enqueue("talk")).result(timeout=20) is None
    record = await failed(await warm.enqueue("suicide", int(signal.SIGKILL)))
    assert record.error is not None
    assert "standard error" not in record.error.message


@pytest.mark.skipif(sys.platform != "linux", reason="memory of others is known on Linux only")
async def test_a_program_that_takes_too_much_memory_is_ended() -> None:
    small = Windlass("memory://", child_memory_limit=60, max_attempts=1)
    task = small.task(run_in=program_app.WARM, name="warm")(warm.function)
    async with small, small.worker(slots=1):
        job = await task.enqueue("grow", 100)
        with pytest.raises(errors.JobFailed, match="more than child_memory_limit=60 MiB"):
            await job.result(timeout=20)


# --- with the worker -----------------------------------------------------------------------------


async def test_a_worker_that_stops_releases_the_jobs_of_its_programs() -> None:
    with testing.isolated(app):
        async with app:
            async with app.worker(slots=2):
                job = await warm.enqueue("deaf")
                pids = await noted(job)
            record = await job.refresh()
            assert (record.state, record.attempt) == (State.WAITING, 0)
            assert not any(alive(pid) for pid in pids)


@pytest.mark.crash
async def test_no_program_outlives_a_worker_that_is_killed(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    command = [sys.executable, "-m", "windlass", "worker"]
    command += ["tests.worker.program.program_app:app", "--log-level", "warning", "--no-summary"]
    process = subprocess.Popen(command, env={**os.environ, "PROGRAM_URL": url}, cwd=ROOT)
    far = Windlass(url)
    task = far.task(name="warm")(warm.function)
    try:
        async with far:
            job = await task.enqueue("deaf")  # it reads no end of its input, and ignores SIGTERM
            pids = await noted(job)
            assert all(alive(pid) for pid in pids)
            process.send_signal(signal.SIGKILL)
            for pid in pids:
                await gone(pid)
    finally:
        process.kill()
        process.wait()
