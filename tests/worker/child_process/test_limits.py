"""Flow control from inside child processes: what they ask for reaches the worker whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.worker.process_app import app, debounce, doomed
from windlass import testing
from windlass._core.job.job import JobRecord
from windlass._core.job.state import State
from windlass._storage.protocol.lists.job_list import JobFilter


@pytest.fixture
async def worker() -> AsyncIterator[None]:
    with testing.isolated(app):
        async with app, app.worker(slots=4):
            yield


async def test_unique_keys_hold_for_jobs_enqueued_in_a_child(worker: None) -> None:
    job = await debounce.enqueue()
    answers = await job.result(timeout=20)
    assert answers == [(True, False), (False, True), (True, False), (False, True), (False, False)]
    (indexed,) = await app.admin.jobs.find(JobFilter(task="index"))
    assert indexed.payload == b'{"page":1,"words":"b"}', "the last call reuses, and replaces not"


async def mourned() -> JobRecord:
    """The job that is told of a failure, when it has ended."""
    async with asyncio.timeout(20):
        while True:
            for job in await app.admin.jobs.find(JobFilter(task="process.mourn")):
                if job.state is not State.WAITING and job.state is not State.RUNNING:
                    return job
            await asyncio.sleep(0.02)


async def test_on_failure_of_a_child_that_dies_runs_in_another_child(worker: None) -> None:
    job = await doomed.enqueue(7)
    told = await mourned()
    assert (told.parent, told.state) == (job.id, State.SUCCEEDED)
    assert told.result is not None
    assert told.result.decode() == f'["{job.id}",{{"order":7}},"ChildDied"]'
