"""A job that kills its worker three times is convicted, and its neighbours are not."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.worker.poison_app import PLACE, build
from windlass._core.job.state import State, Verb
from windlass._storage.protocol.lists.job_list import JobFilter

pytestmark = pytest.mark.crash

ROOT = Path(__file__).resolve().parents[3]
NEIGHBOURS = 10
DEATHS = 3


async def worker(env: dict[str, str]) -> int:
    """One worker, until there is nothing left or it is killed; its exit code."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "windlass", "worker", "tests.worker.poison_app:app"),
        *("--slots", str(NEIGHBOURS + 1), "--until-empty"),
        cwd=ROOT,
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_ten_neighbours_of_a_job_that_kills_its_worker_three_times_all_succeed(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    env = {**os.environ, PLACE: url}
    async with build(url) as app:
        culprit = await app.tasks["poison"].enqueue()
        calls = [app.tasks["innocent"].call(number) for number in range(NEIGHBOURS)]
        neighbours = await app.enqueue_many(calls)
        codes: list[int] = []
        async with asyncio.timeout(90):
            while not codes or codes[-1] == -signal.SIGKILL:
                codes.append(await worker(env))
        assert codes == [-signal.SIGKILL] * DEATHS + [0]
        assert [await job.result(timeout=30) for job in neighbours] == [*range(NEIGHBOURS)]
        record = await culprit.refresh()
        assert record.state is State.FAILED
        assert record.error is not None
        assert record.error.kind == "Quarantined"
        assert "lost 3 times in a row, the last time running alone" in record.error.message
        history = await app.admin.jobs.history(culprit.id)
        assert [attempt.verb for attempt in history] == [Verb.RETRY, Verb.RETRY, Verb.FAIL]
        assert len({attempt.worker for attempt in history}) == DEATHS
        (mourning,) = await app.admin.jobs.find(JobFilter(task="mourn"))
        assert (mourning.parent, mourning.result) == (culprit.id, b'"Quarantined"')
