"""Flows that ``run.add(flow)`` adds to a running one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.app.flows.shop import add_up, app, double, empty_store, once, ran, tell
from windlass import Flow, FlowRun, Windlass, ended
from windlass._core.flows.flow import Edge, FlowState, NewFlow
from windlass._core.job.event import JobEnqueued
from windlass._core.job.job import FlowId
from windlass._storage.memory.flows.flows import MemoryFlows
from windlass._storage.protocol.flows import AddAnswer
from windlass.errors import FlowEnded, FlowNotFound, InvalidArgument, StoreBusy
from windlass.testing import drain, inline

__all__ = ["empty_store"]


async def a_night() -> FlowRun:
    """Start a flow of one job, with a callback."""
    flow = Flow("night", on_succeeded=tell.call("good"), on_failed=tell.call("bad"))
    flow.add(tell.call("first"))
    return await app.start(flow)


def totals(*numbers: int) -> Flow:
    """Return a flow of a map, and a job that reads its results."""
    flow = Flow("totals")
    rows = flow.map(double.options(max_attempts=1), numbers)
    flow.add(add_up.call(rows.results), name="total")
    return flow


async def test_workers_run_what_is_added_before_the_flow_ends(tmp_path: Path) -> None:
    windlass = Windlass(f"sqlite:///{tmp_path / 'jobs.db'}")
    order: list[str] = []
    began, opened = asyncio.Event(), asyncio.Event()

    @windlass.task
    async def note(what: str) -> str:
        order.append(what)
        return what

    @windlass.task
    async def hold() -> None:
        began.set()
        await opened.wait()
        order.append("held")

    async with windlass, windlass.worker():
        flow = Flow("night", on_succeeded=note.call("good"))
        flow.add(hold.call())
        run = await windlass.start(flow)
        await began.wait()
        more = Flow("more")
        last = more.add(note.call("second"), after=more.add(note.call("first")))
        await run.add(more)
        assert await windlass.job(last.id).result(30) == "second"
        assert (await run.refresh()).state is FlowState.RUNNING
        opened.set()
        record = await run.wait(30)
        assert (record.state, record.succeeded) == (FlowState.SUCCEEDED, 3)
        with pytest.raises(FlowEnded):
            await run.add(Flow("late"))
    assert order[:3] == ["first", "second", "held"]


async def test_the_callback_waits_and_results_are_arguments() -> None:
    run = await a_night()
    await run.add(totals(1, 2))
    (await drain(app)).raise_errors()
    record = await run.refresh()
    assert (record.state, record.total, record.succeeded) == (FlowState.SUCCEEDED, 4, 4)
    assert ran == ["first", "good"]


async def test_a_failure_in_it_fails_the_flow_and_a_retry_repairs_it() -> None:
    run = await a_night()
    await run.add(totals(-1))
    await drain(app)
    assert ((await run.refresh()).state, ran) == (FlowState.FAILED, ["first", "bad"])
    assert await run.retry() == "done"
    assert (await run.refresh()).state is FlowState.RUNNING


async def test_code_without_an_event_loop_adds_one() -> None:
    run = await a_night()
    await asyncio.to_thread(app.blocking.add, run, totals(1))
    (await drain(app)).raise_errors()
    assert (await run.refresh()).total == 3
    with pytest.raises(InvalidArgument, match=r"app\.blocking\.add takes the handle of a flow"):
        app.blocking.add("0" * 32, totals(1))  # type: ignore[arg-type]


async def test_inline_mode_runs_what_a_job_adds_to_its_flow() -> None:
    flow = Flow("night", on_succeeded=tell.call("good"))

    @app.task(name="grow")
    async def grow() -> None:
        more = Flow("more")
        more.add(tell.call("second"), after=more.add(tell.call("first")))
        await app.flow_run(flow.id).add(more)
        ran.append("grown")

    flow.add(grow.call())
    with inline(app):
        run = await app.start(flow)
        assert ((await run.refresh()).state, ran) == (
            FlowState.SUCCEEDED,
            ["first", "second", "grown", "good"],
        )


async def test_after_an_error_the_same_flow_is_added_once(monkeypatch: pytest.MonkeyPatch) -> None:
    announced: list[str] = []
    app.on_transition(
        lambda event: announced.append(event.task) if isinstance(event, JobEnqueued) else None
    )
    run, flow = await a_night(), totals(1)
    announced.clear()
    add = MemoryFlows.add

    async def lost(self: MemoryFlows, into: FlowId, new: NewFlow) -> AddAnswer:
        await add(self, into, new)
        raise StoreBusy("the answer was lost")

    with monkeypatch.context() as broken:
        broken.setattr(MemoryFlows, "add", lost)
        with pytest.raises(StoreBusy):
            await run.add(flow)
    await run.add(flow)
    assert ((await run.refresh()).total, announced) == (3, [])
    (await drain(app)).raise_errors()
    assert (await run.refresh()).state is FlowState.SUCCEEDED


async def test_a_flow_that_has_ended_takes_nothing_and_the_other_may_be_started() -> None:
    run, flow = await a_night(), totals(1)
    await run.cancel()
    with pytest.raises(FlowEnded, match=r"nothing was added.*app\.start\(flow\)") as error:
        await run.add(flow)
    assert error.value.flow_id == run.id
    alone = await app.start(flow)
    (await drain(app)).raise_errors()
    assert (await alone.refresh()).state is FlowState.SUCCEEDED


async def test_a_flow_that_is_not_stored_takes_nothing() -> None:
    with pytest.raises(FlowNotFound):
        await app.flow_run("0" * 32).add(totals(1))


async def test_a_flow_that_is_being_stored_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryFlows, "portion", 2)

    async def broken_off(*_: object, **__: object) -> bool:
        raise StoreBusy("broken off")

    monkeypatch.setattr(MemoryFlows, "extend", broken_off)
    large = totals(1, 2, 3)
    with pytest.raises(StoreBusy):
        await app.start(large)
    with pytest.raises(InvalidArgument, match=r"after app\.start\(flow\) has returned"):
        await app.flow_run(large.id).add(totals(1))


async def test_what_an_added_flow_cannot_have_is_refused() -> None:
    run, keyed, large, started = await a_night(), Flow("keyed"), Flow("large"), totals(1)
    keyed.add(once.call(1))
    large.map(double, range(10_001))
    await app.start(started)
    mistakes: list[tuple[object, str]] = [
        (Flow("in", key="k"), "whose own key= counts"),
        (Flow("in", expires="1h"), "whose own expires= counts"),
        (keyed, r"run\.add\(\.\.\.\) adds cannot have one"),
        (large, "at most 10,000"),
        (started, "was started already"),
        (double.call(1), "takes a Flow"),
    ]
    for flow, why in mistakes:
        with pytest.raises(InvalidArgument, match=why):
            await run.add(flow)  # type: ignore[arg-type]
    assert (await run.refresh()).total == 1
    more = totals(1)
    await run.add(more)
    with pytest.raises(InvalidArgument, match="was started"):
        more.add(double.call(1))


async def test_what_is_added_waits_for_nodes_and_groups_of_the_flow() -> None:
    flow = Flow("night", on_succeeded=tell.call("good"))
    one, beside = flow.add(tell.call("one")), flow.add(tell.call("beside"))
    pages = flow.group("pages")
    pages.add(tell.call("page"), after=one)
    closed = flow.group("closed")
    closed.add(tell.call("closed"), after=beside)
    flow.add(tell.call("behind"), after=closed)
    run = await app.start(flow)
    late = Flow("late")
    late.add(tell.call("late"), name="added")
    await run.add(late, after=[pages, ended(closed), one])
    (page,), (join,) = pages.awaited, closed.awaited
    parts = {part.name: part for part in (await run.graph()).parts}
    assert parts["added"].after == (Edge(one.part), Edge(page), Edge(join, strict=False))
    (await drain(app)).raise_errors()
    assert ran.index("late") > max(ran.index("page"), ran.index("closed"))
    assert ran[-1] == "good"


async def test_what_failed_already_cancels_what_is_added_behind_it() -> None:
    flow = Flow("night")
    failing = flow.add(double.options(max_attempts=1).call(-1))
    flow.add(tell.options(delay="1h").call("later"))
    run = await app.start(flow)
    await drain(app)
    strict, lenient = Flow("strict"), Flow("lenient")
    stopped = strict.add(tell.call("strict"))
    strict.add(tell.call("behind"), after=stopped)
    lenient.add(tell.call("lenient"))
    await run.add(strict, after=failing)
    await run.add(lenient, after=ended(failing))
    await drain(app)
    assert ran == ["lenient"]
    record = await run.refresh()
    assert (record.stopped, record.open) == (2, 1)


async def test_code_without_an_event_loop_adds_one_behind_a_node() -> None:
    flow = Flow("night")
    node = flow.add(tell.call("first"))
    run, late = await app.start(flow), Flow("late")
    late.add(tell.call("second"))
    await asyncio.to_thread(app.blocking.add, run, late, after=node)
    (await drain(app)).raise_errors()
    assert ran == ["first", "second"]


async def test_it_waits_for_nothing_but_parts_of_the_running_flow() -> None:
    flow, other = Flow("night"), totals(1)
    node, foreign = flow.add(tell.call("first")), other.add(tell.call("other"))
    run, late = await app.start(flow), totals(1)
    mistakes: list[tuple[object, str]] = [
        (foreign, r"does not belong to flow .*ctx\.then"),
        (ended(foreign), "does not belong to flow"),
        ([node, foreign], "does not belong to flow"),
        (late.add(tell.call("own")), "does not belong to flow"),
        ("first", "a node or a group of the Flow that this run was started from"),
        (run, "after= takes a node or a group"),
        (await tell.enqueue("a job"), "after= takes a node or a group"),
        ([node.id], "after= takes a node or a group"),
        (None, "after= takes a node or a group"),
    ]
    for after, why in mistakes:
        with pytest.raises(InvalidArgument, match=why):
            await run.add(late, after=after)  # type: ignore[arg-type]
    elsewhere = app.flow_run(run.id)
    with pytest.raises(InvalidArgument, match="Where that Flow is not at hand"):
        await elsewhere.add(late, after=foreign)
    assert (await run.refresh()).total == 1
    await elsewhere.add(late, after=node)
    assert (await run.refresh()).total == 4


async def test_too_many_dependencies_are_refused() -> None:
    flow, wide = Flow("night"), Flow("wide")
    nodes = [flow.add(tell.call(str(number))) for number in range(101)]
    for number in range(100):
        wide.add(tell.call(str(number)))
    run = await app.start(flow)
    with pytest.raises(InvalidArgument, match=r"10,100 dependencies: at most 10,000"):
        await run.add(wide, after=nodes)
    assert (await run.refresh()).total == 101
    await run.add(wide, after=nodes[1:])
    assert (await run.refresh()).total == 201
