"""Flows that are stored in several writes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from windlass import Flow, Results, Windlass
from windlass._core.flows.flow import FlowState
from windlass._storage.memory.flows.flows import MemoryFlows
from windlass.errors import FlowEnded, InvalidArgument, StoreBusy
from windlass.testing import VirtualClock, drain, isolated

app = Windlass("memory://")


@app.task
async def double(number: int) -> int:
    return number * 2


@app.task(unique=True)
async def once(number: int) -> int:
    return number


@app.task
async def add_up(numbers: Results[int]) -> int:
    return sum([number async for number in numbers])


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualClock]:
    """Give every test the app with an empty store that takes ten jobs at once."""
    monkeypatch.setattr(MemoryFlows, "portion", 10)
    with isolated(app) as clock:
        yield clock


def a_large_flow() -> Flow:
    flow = Flow("large")
    rows = flow.map(double, range(34))
    flow.add(add_up.call(rows.results), name="total")
    return flow


async def test_a_large_flow_is_stored_in_portions_and_runs_as_one() -> None:
    flow = Flow("large")
    rows = flow.map(double, range(34))
    total = flow.add(add_up.call(rows.results))
    run = await app.start(flow)
    assert not (await run.refresh()).sealed
    await drain(app)
    assert await run.result(total) == sum(range(34)) * 2
    assert (await run.refresh()).total == 35


async def test_a_start_that_broke_off_goes_on_where_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flow = a_large_flow()
    with monkeypatch.context() as broken:
        broken.setattr(MemoryFlows, "extend", _unavailable)
        with pytest.raises(StoreBusy):
            await app.start(flow)
    stored = await app.flow_run(flow.id).refresh()
    assert (stored.sealed, stored.total) == (True, 5)  # all further portions are full
    assert (await drain(app)).ran == 0
    run = await app.start(flow)
    await drain(app)
    record = await run.refresh()
    assert (record.state, record.total) == (FlowState.SUCCEEDED, 35)


async def _unavailable(*_: object, **__: object) -> bool:
    message = "gone"
    raise StoreBusy(message)


async def test_a_flow_that_is_cancelled_while_it_is_stored_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    flow = a_large_flow()
    extend = MemoryFlows.extend

    async def cancelled(store: MemoryFlows, *args: object, **options: object) -> bool:
        await app.flow_run(flow.id).cancel()
        return await extend(store, *args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(MemoryFlows, "extend", cancelled)
    with pytest.raises(FlowEnded, match="draw the flow again"):
        await app.start(flow)


async def test_another_flow_takes_the_key_of_one_whose_producer_died(
    monkeypatch: pytest.MonkeyPatch, clock: VirtualClock
) -> None:
    first, second, third = (Flow("night", key="night") for _ in range(3))
    for flow in (first, second, third):
        flow.map(double, range(11))
    with monkeypatch.context() as broken:
        broken.setattr(MemoryFlows, "extend", _unavailable)
        with pytest.raises(StoreBusy):
            await app.start(first)
    found = await app.start(second)
    assert (found.id, found.created) == (first.id, False)
    clock.advance(60)
    run = await app.start(third)
    assert run.created
    with pytest.raises(FlowEnded, match="draw the flow again"):
        await app.start(first)
    assert (await drain(app)).ran == 11
    assert (await run.refresh()).state is FlowState.SUCCEEDED
    assert (await app.flow_run(first.id).refresh()).state is FlowState.CANCELLED


async def test_jobs_of_a_large_flow_have_no_unique_keys() -> None:
    flow = Flow("large")
    flow.map(once, range(11))
    with pytest.raises(InvalidArgument, match="cannot have unique keys"):
        await app.start(flow)
    assert await app.admin.flows.list() == []


async def test_a_flow_that_is_being_stored_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = a_large_flow()
    monkeypatch.setattr(MemoryFlows, "extend", _unavailable)
    with pytest.raises(StoreBusy):
        await app.start(flow)
    (cause,) = (await app.admin.flows.explain(flow.id)).causes
    assert cause.code == "flow_sealed"
    assert "5 so far" in cause.sentence
    (job,) = await app.admin.jobs.find(limit=1)
    (cause, *_) = (await app.admin.jobs.explain(job.id)).causes
    assert cause.code == "flow_sealed"
    assert "flow_stuck" not in [one.name for one in await app.admin.doctor.check()]
