"""The jobs of a group, one by one as they end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from tests.app.flows.shop import app, double, empty_store, tell
from windlass import Flow
from windlass._app.parts import parts_of
from windlass._core.flows.flow import FlowState
from windlass._core.job.job import FlowId
from windlass._storage.memory.flows.flows import MemoryFlows
from windlass._storage.memory.jobs.jobs import MemoryJobs
from windlass._storage.protocol.flows import Member
from windlass._storage.protocol.jobs import Settled
from windlass.errors import FlowNotFound, FlowTimeout, InvalidArgument
from windlass.testing import drain, isolated

__all__ = ["empty_store"]

opened = asyncio.Event()


@app.task
async def held(number: int) -> int:
    if number:
        await opened.wait()
    return number


@pytest.fixture(autouse=True)
def closed() -> None:
    global opened  # noqa: PLW0603 -- one per event loop
    opened = asyncio.Event()


async def test_a_job_is_yielded_while_others_of_its_group_still_run() -> None:
    flow = Flow("held")
    rows = flow.map(held, [2, 0, 1])
    run = await app.start(flow)
    values: list[int] = []
    async with app.worker():
        async for done in run.as_completed(rows, timeout=30):
            assert done.value is not None
            values.append(done.value)
            opened.set()  # only the job that does not wait can have ended before
    assert values[0] == 0
    assert sorted(values) == [0, 1, 2]


async def test_failed_jobs_are_yielded_with_their_errors() -> None:
    flow = Flow("fails")
    rows = flow.map(double.options(max_attempts=1), [1, -1])
    run = await app.start(flow)
    await drain(app)
    good, bad = [done async for done in run.as_completed(rows)]
    assert (good.ok, good.value, good.job) == (True, 2, rows.ids[0])
    assert (bad.ok, bad.value, bad.error) == (False, None, "ValueError: -1")


async def test_every_job_of_a_large_group_is_yielded_once() -> None:
    flow = Flow("large")
    group = flow.group("both")
    group.map(double, range(1_201))
    group.map(double, range(3))
    run = await app.start(flow)
    async with app.worker(slots=100):
        seen = [done.job async for done in run.as_completed(group, timeout=60)]
    assert len(seen) == 1_204
    assert set(seen) == set(group.ids)


async def test_the_result_of_a_job_is_read_once_however_often_the_store_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[bytes] = []
    members, settled = MemoryFlows.members, MemoryJobs.settled

    async def count_members(*args: Any, **options: Any) -> Sequence[Member]:
        found = await members(*args, **options)
        read.extend(one.result for one in found if one.result is not None)
        return found

    async def count_settled(*args: Any) -> Sequence[Settled]:
        found = await settled(*args)
        read.extend(one.result for one in found if one.result is not None)
        return found

    monkeypatch.setattr(MemoryFlows, "members", count_members)
    monkeypatch.setattr(MemoryJobs, "settled", count_settled)
    flow = Flow("once")
    rows = flow.map(held, [0, 0, 0, 1])
    run = await app.start(flow)

    async def change_the_store() -> None:
        for _ in range(8):
            await tell.enqueue("noise")
            await asyncio.sleep(0.03)
        opened.set()

    async with app.worker(), asyncio.TaskGroup() as group:
        group.create_task(change_the_store())
        seen = [done.value async for done in run.as_completed(rows, timeout=30)]
    assert sorted(map(str, seen)) == ["0", "0", "0", "1"]
    assert sorted(read) == [b"0", b"0", b"0", b"1"]


async def test_an_empty_group_ends_at_once() -> None:
    flow = Flow("empty")
    rows = flow.map(double, [])
    flow.add(tell.call("a"))
    run = await app.start(flow)
    assert [done async for done in run.as_completed(rows, timeout=30)] == []


async def test_the_timeout_is_for_all_jobs_and_stops_nothing() -> None:
    flow = Flow("late")
    rows = flow.map(double, [1, 2])
    run = await app.start(flow)
    with pytest.raises(FlowTimeout, match="2 jobs not ended"):
        await anext(run.as_completed(rows, timeout=0.01))
    await drain(app)
    assert (await run.refresh()).state is FlowState.SUCCEEDED


async def test_a_flow_that_does_not_exist_is_not_found() -> None:
    rows = Flow("never").map(double, [1])
    client = await parts_of(app).connections.client()
    with pytest.raises(FlowNotFound):
        await anext(client.flows.ended(FlowId("0" * 32), rows.parts, None))


async def test_a_flow_that_is_deleted_meanwhile_is_not_found() -> None:
    with isolated(app) as clock:
        flow = Flow("gone")
        rows = flow.map(held, [0, 1])
        run = await app.start(flow)
        ends = run.as_completed(rows)
        async with app.worker():
            assert (await anext(ends)).value == 0
            opened.set()
            await run.wait(30)
        clock.advance(1)
        storage = await parts_of(app).storage()
        assert await storage.flows.prune(
            state=FlowState.SUCCEEDED, older_than=timedelta(0), limit=10
        )
        with pytest.raises(FlowNotFound):
            await anext(ends)


async def test_a_group_of_another_flow_is_refused() -> None:
    flow, other = Flow("one"), Flow("two")
    flow.map(double, [1])
    rows = other.map(double, [1])
    run = await app.start(flow)
    with pytest.raises(InvalidArgument, match="does not belong"):
        await anext(run.as_completed(rows))


async def test_blocking_code_reads_jobs_as_they_end() -> None:
    flow = Flow("blocking")
    rows = flow.map(double, [1, 2, 3])

    def work() -> list[int | None]:
        run = app.blocking.start(flow)
        app.blocking.run(drain(app))
        first = next(iter(app.blocking.as_completed(run, rows)))  # left early: nothing is kept open
        assert first.value == 2
        return [done.value for done in app.blocking.as_completed(run, rows, timeout=30)]

    assert await asyncio.to_thread(work) == [2, 4, 6]
