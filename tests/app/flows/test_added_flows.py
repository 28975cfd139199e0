"""Flows that jobs add with ``ctx.then(flow)``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.app.flows.shop import add_up, app, double, empty_store, once, ran, tell
from windlass import Call, Context, Flow
from windlass._core.flows.flow import FlowState
from windlass._core.job.event import JobEnqueued
from windlass._core.job.state import State
from windlass.admin import JobFilter
from windlass.errors import InvalidArgument, JobFailed
from windlass.testing import drain, inline

__all__ = ["empty_store"]

made: list[Callable[[], Call[Any] | Flow]] = []


@app.task(max_attempts=1, name="plan")
async def plan(ctx: Context, *, fails: bool = False) -> None:
    ctx.then(*[make() for make in made])
    if fails:
        raise ValueError("after ctx.then")


@pytest.fixture(autouse=True)
def nothing_made() -> None:
    made.clear()


def totals() -> Flow:
    """Return a flow of a map, and a job that reads its results."""
    flow = Flow("totals", on_succeeded=tell.call("totals are there"))
    flow.add(add_up.call(flow.map(double, range(3)).results)).then(tell_total)
    return flow


@app.task
async def tell_total(total: int) -> None:
    ran.append(f"total {total}")


# --- in a flow -------------------------------------------------------------------------------


async def test_what_waits_for_a_job_waits_for_the_flow_that_it_adds() -> None:
    made[:] = [lambda: tell.call("beside"), totals, lambda: tell.call("too")]
    outer = Flow("outer", on_succeeded=tell.call("all"))
    outer.add(tell.call("last"), after=outer.add(plan.call()))
    run = await app.start(outer)
    (await drain(app)).raise_errors()
    assert sorted(ran[:2]) == ["beside", "too"]
    assert ran[2] == "total 6"
    assert sorted(ran[3:]) == ["all", "last", "totals are there"]
    assert ran.index("last") < ran.index("all")
    record = await run.refresh()
    assert (record.state, record.total, record.succeeded) == (FlowState.SUCCEEDED, 9, 9)


async def test_a_failure_in_the_added_flow_stops_what_waits_and_a_retry_repairs_it() -> None:
    broken = [True]

    @app.task(name="shaky", max_attempts=1)
    async def shaky() -> None:
        if broken:
            raise ValueError("shaky")

    def inner() -> Flow:
        flow = Flow("inner")
        flow.add(shaky.call())
        return flow

    made[:] = [inner]
    outer = Flow("outer")
    outer.add(tell.call("last"), after=outer.add(plan.call()))
    run = await app.start(outer)
    await drain(app)
    record = await run.refresh()
    assert (record.state, record.failed, record.stopped) == (FlowState.FAILED, 1, 1)
    broken.clear()
    assert await run.retry() == "done"
    (await drain(app)).raise_errors()
    assert ((await run.refresh()).state, ran) == (FlowState.SUCCEEDED, ["last"])


async def test_a_run_that_fails_adds_no_flow() -> None:
    made[:] = [totals]
    outer = Flow("outer")
    outer.add(plan.call(fails=True))
    run = await app.start(outer)
    await drain(app)
    assert ((await run.refresh()).total, ran) == (1, [])


async def test_inline_mode_runs_the_added_flow() -> None:
    made[:] = [totals]
    with inline(app):
        outer = Flow("outer")
        outer.add(tell.call("last"), after=outer.add(plan.call()))
        run = await app.start(outer)
        assert (await run.refresh()).state is FlowState.SUCCEEDED
        assert ran.index("total 6") < ran.index("last")


async def test_inline_mode_runs_a_flow_that_a_job_starts() -> None:
    made[:] = [totals]
    with inline(app):
        await plan.enqueue()
        assert sorted(ran) == ["total 6", "totals are there"]


# --- outside ---------------------------------------------------------------------------------


async def test_outside_a_flow_the_success_starts_a_new_one() -> None:
    flows: list[Flow] = []

    def nightly() -> Flow:
        flow = Flow("nightly", key="nightly", expires="2h")
        flow.map(tell, ["a", "b"])
        flows.append(flow)
        return flow

    made[:] = [nightly]
    job = await plan.enqueue()
    (await drain(app)).raise_errors()
    record = await app.flow_run(flows[0].id).refresh()
    assert (record.state, record.key, record.total) == (FlowState.SUCCEEDED, "nightly", 2)
    told = await app.admin.jobs.find(JobFilter(task=tell.name))
    assert {one.parent for one in told} == {job.id}
    assert sorted(ran) == ["a", "b"]


async def test_a_flow_whose_key_is_held_is_left_out_and_not_announced() -> None:
    announced: list[str] = []
    app.on_transition(
        lambda event: announced.append(event.task) if isinstance(event, JobEnqueued) else None
    )
    first = Flow("nightly", key="nightly")
    first.add(tell.options(delay=3600).call("first"))
    await app.start(first)

    def second() -> Flow:
        flow = Flow("nightly", key="nightly")
        flow.add(tell.call("second"))
        return flow

    made[:] = [second]
    announced.clear()
    job = await plan.enqueue()
    await drain(app)
    assert (await job.refresh()).state is State.SUCCEEDED
    assert (ran, announced) == ([], ["plan"])


# --- mistakes --------------------------------------------------------------------------------


async def refused(make: Callable[[], Call[Any] | Flow], *, inside: bool) -> str:
    """Return why a run cannot add this. Nothing is stored."""
    made[:] = [make]
    if inside:
        flow = Flow("outer")
        job = app.job(flow.add(plan.call()).id)
        await app.start(flow)
    else:
        job = await plan.enqueue()
    await drain(app)
    with pytest.raises(JobFailed) as error:
        await job.result(0)
    assert [one.task for one in await app.admin.jobs.find(JobFilter())] == ["plan"]
    return str(error.value)


async def test_key_and_expires_are_for_flows_of_their_own() -> None:
    assert "whose own key= counts" in await refused(lambda: Flow("in", key="k"), inside=True)


async def test_expires_is_refused_inside() -> None:
    said = await refused(lambda: Flow("in", expires="1h"), inside=True)
    assert "start the flow alone with app.start(flow)" in said


def keyed() -> Flow:
    flow = Flow("keyed")
    flow.add(once.call(1))
    return flow


@pytest.mark.parametrize("inside", [True, False])
async def test_an_added_flow_has_no_keyed_jobs(inside: bool) -> None:  # noqa: FBT001
    assert "with a unique key" in await refused(keyed, inside=inside)


async def test_a_flow_that_was_started_is_not_added() -> None:
    flow = Flow("started")
    flow.add(double.call(1))
    made[:] = [lambda: flow, lambda: flow]
    job = await plan.enqueue()
    await drain(app)
    with pytest.raises(JobFailed, match="the same flow twice"):
        await job.result(0)
    await app.start(flow)
    made[:] = [lambda: flow]
    job = await plan.enqueue()
    await drain(app)
    with pytest.raises(JobFailed, match="was started already"):
        await job.result(0)


def large() -> Flow:
    flow = Flow("large")
    flow.map(double, range(10_001))
    return flow


async def test_more_jobs_than_one_write_takes_are_refused() -> None:
    said = await refused(large, inside=True)
    assert "at most 10,000" in said
    assert "app.start(flow)" in said


async def test_a_flow_takes_no_more_jobs_after_it_was_added() -> None:
    kept: list[Flow] = []

    def one() -> Flow:
        kept.append(Flow("one"))
        return kept[0]

    made[:] = [one]
    await plan.enqueue()
    await drain(app)
    with pytest.raises(InvalidArgument, match="was started"):
        kept[0].add(double.call(1))
