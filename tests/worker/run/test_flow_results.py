"""Results of a flow as arguments: read in every executor, and from a store that comes and goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.worker.fixtures import bench
from tests.worker.process_app import EXECUTORS, app
from windlass import Flow, testing
from windlass._core.flows.flow import FlowState
from windlass._core.job.state import State, Verb
from windlass._storage.memory.flows.flows import MemoryFlows
from windlass._storage.protocol.flows import Member
from windlass.errors import StorageUnavailable

MANY = 501
"""One more than a page."""


@pytest.mark.parametrize("executor", EXECUTORS)
async def test_results_come_in_pages_and_a_silent_store_costs_no_attempt(
    executor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, asked = MemoryFlows.members, 0

    async def members(*args: Any, **options: Any) -> Sequence[Member]:
        nonlocal asked
        asked += 1
        if asked == 2:  # the handler has begun to read
            raise StorageUnavailable("the store is away")
        return await read(*args, **options)

    monkeypatch.setattr(MemoryFlows, "members", members)
    flow = Flow("sum")
    rows = flow.map(app.tasks["loop.echo"], range(MANY))
    total = flow.add(app.tasks[f"{executor}.add_up"].call(rows.results))
    with testing.isolated(app):
        async with app, app.worker(slots=50):
            run = await app.start(flow)
            assert await run.result(total, 20) == sum(range(MANY))
            job = app.job(total.id)
            assert (await job.refresh()).attempt == 1
            ended = [one.verb for one in await app.admin.jobs.history(job.id)]
    assert ended == [Verb.RELEASE]
    assert asked > 6


@pytest.mark.parametrize("executor", EXECUTORS)
async def test_a_job_adds_a_flow_that_reads_its_own_results(executor: str) -> None:
    flow = Flow("outer")
    planned = flow.add(app.tasks[f"{executor}.plan"].call(4))
    flow.add(app.tasks["loop.echo"].call(1), after=planned)
    with testing.isolated(app):
        async with app, app.worker(slots=5):
            run = await app.start(flow)
            record = await run.wait(20)
            total = app.job(await run.result(planned))
            assert await total.result(1) == sum(range(4))
    assert (record.state, record.succeeded) == (FlowState.SUCCEEDED, 7)


async def test_a_job_whose_results_cannot_be_read_is_given_back_unstarted() -> None:
    async with bench() as it:

        @it.app.task
        async def echo(value: int) -> int:
            return value

        async def silent(*_: Any) -> Any:
            raise StorageUnavailable("the store is away")

        flow = Flow("chain")
        last = flow.add(echo.call(5)).then(echo)
        run = await it.app.start(flow)
        assert await it.engine.step() == 1
        it.store.on("jobs.settled", silent)
        assert await it.engine.step() == 1
        job = await it.app.job(last.id).refresh()
        assert (job.state, job.attempt) == (State.WAITING, 0)
        it.store.hooks.clear()
        assert await it.engine.step() == 1
        assert await run.result(last) == 5
