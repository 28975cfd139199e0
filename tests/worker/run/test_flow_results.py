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
            assert await total.result(30) == sum(range(4))
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


async def test_one_claim_loads_a_bounded_size_of_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass._worker.run.arguments.MOST_BYTES", 1_000)
    monkeypatch.setattr("windlass._worker.run.arguments._FIRST_SLICE", 1)
    async with bench(slots=20) as it:

        @it.app.task
        async def make(size: int) -> str:
            return "x" * size

        @it.app.task
        async def measure(*texts: str) -> int:
            return sum(map(len, texts))

        flow = Flow("sizes")
        large = [flow.add(make.call(600)) for _ in range(6)]
        nodes = [
            flow.add(measure.call(*[one.result for one in some]))
            for some in (large[:3], large[:1], large[3:4], large[4:6])
        ]
        run = await it.app.start(flow)
        assert await it.engine.step() == 6
        started: list[int] = []
        for _ in range(10):
            before = [(await it.app.job(one.id).refresh()).state for one in nodes]
            if await it.engine.step() == 0:
                break
            jobs = [await it.app.job(one.id).refresh() for one in nodes]
            now = [job.state is State.SUCCEEDED for job in jobs]
            started.append(sum(now) - before.count(State.SUCCEEDED))
            assert all(job.attempt <= 1 for job in jobs)
        assert [await run.result(one) for one in nodes] == [1800, 600, 600, 1200]
        assert started[0] < len(nodes)
        assert all(started)


async def test_a_result_counts_for_each_job_that_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass._worker.run.arguments.MOST_BYTES", 1_000)
    async with bench(slots=20) as it:

        @it.app.task
        async def make(size: int) -> str:
            return "x" * size

        @it.app.task
        async def measure(number: int, *texts: str) -> int:
            return sum(map(len, texts))

        flow = Flow("shared")
        large = flow.add(make.call(400))
        once = [flow.add(measure.call(number, large.result)) for number in range(4)]
        twice = flow.add(measure.call(4, large.result, large.result))
        run = await it.app.start(flow)
        assert await it.engine.step() == 1
        ended = []
        while await it.engine.step():
            states = [(await it.app.job(one.id).refresh()).state for one in (*once, twice)]
            ended.append(states.count(State.SUCCEEDED))
        assert ended == [2, 4, 5]
        assert [await run.result(one) for one in (*once, twice)] == [400, 400, 400, 400, 800]
