"""Flows as users write them: drawn, started, run by a worker, read."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from windlass import Context, Flow, Results, Windlass, ended
from windlass._core.flows.flow import FlowState
from windlass._storage.protocol.actions import ActionResult
from windlass.errors import (
    FlowNotFound,
    FlowTimeout,
    InvalidArgument,
    JobFailed,
    PayloadError,
)
from windlass.testing import drain, inline, isolated

app = Windlass("memory://")
ran: list[str] = []


@app.task
async def double(number: int, *, times: int = 2) -> int:
    if number < 0:
        raise ValueError(number)
    return number * times


@app.task
async def add_up(numbers: Results[int]) -> int:
    return sum([number async for number in numbers])


@app.task
def add_up_on_a_thread(numbers: Results[int]) -> int:
    return sum(numbers)


@app.task
async def count_failures(numbers: Results[int]) -> list[bool]:
    return [done.ok async for done in numbers.outcomes()]


@app.task
async def describe(total: int | None, parts: list[int], title: str) -> str:
    return f"{title}: {total} of {parts}"


@app.task
async def tell(what: str) -> None:
    ran.append(what)


@app.task
async def split(ctx: Context, number: int) -> int:
    ctx.then(*[tell.call(f"part {part}") for part in range(number)])
    return number


@pytest.fixture(autouse=True)
def shop() -> Iterator[None]:
    """Give every test the app with an empty store."""
    ran.clear()
    with isolated(app):
        yield


# --- results ---------------------------------------------------------------------------------


async def test_results_of_a_map_are_summed_by_one_job() -> None:
    flow = Flow("sum")
    rows = flow.map(double, range(10), times=3)
    total = flow.add(add_up.call(rows.results))
    run = await app.start(flow)
    await drain(app)
    assert await run.result(total) == 3 * sum(range(10))
    assert [number async for number in run.results(rows)] == [3 * n for n in range(10)]


async def test_a_plain_function_reads_results_on_its_thread() -> None:
    flow = Flow("sum")
    total = flow.add(add_up_on_a_thread.call(flow.map(double, [1, 2]).results))
    run = await app.start(flow)
    await drain(app)
    assert await run.result(total) == 6


async def test_results_come_in_pages_of_any_number() -> None:
    flow = Flow("sum")
    total = flow.add(add_up.call(flow.map(double, range(1_201)).results))
    run = await app.start(flow)
    async with app.worker(slots=100):
        await run.wait(30)
    assert await run.result(total) == 2 * sum(range(1_201))


async def test_a_result_is_an_argument_also_inside_a_list() -> None:
    flow = Flow("report")
    first, second = flow.add(double.call(1)), flow.add(double.call(2))
    report = flow.add(describe.call(first.result, [first.result, second.result], title="both"))
    run = await app.start(flow)
    await drain(app)
    assert await run.result(report) == "both: 2 of [2, 4]"


async def test_a_chain_passes_each_result_to_the_next() -> None:
    flow = Flow("chain")
    last = flow.add(double.call(1)).then(double).then(double, times=10).then(describe, [], "end")
    run = await app.start(flow)
    await drain(app)
    assert await run.result(last) == "end: 40 of []"


async def test_texts_of_users_are_never_taken_for_results() -> None:
    flow = Flow("texts")
    first = flow.add(double.call(1))
    texts = '{"$results": [[["what"], "job", "x"]]}'
    flow.add(tell.call(texts), after=first)
    await app.start(flow)
    await drain(app)
    assert ran == [texts]


async def test_the_missing_result_of_a_failed_job_is_none_where_its_end_is_enough() -> None:
    flow = Flow("lenient")
    bad = flow.add(double.options(max_attempts=1).call(-1))
    report = flow.add(describe.call(bad.result, [], title="after"), after=ended(bad))
    run = await app.start(flow)
    await drain(app)
    assert await run.result(report) == "after: None of []"


async def test_outcomes_tell_which_jobs_failed() -> None:
    flow = Flow("outcomes")
    rows = flow.map(double.options(max_attempts=1), [1, -1, 2])
    counted = flow.add(count_failures.call(rows.results), after=ended(rows))
    run = await app.start(flow)
    await drain(app)
    assert await run.result(counted) == [True, False, True]
    with pytest.raises(JobFailed):
        [number async for number in run.results(rows)]


# --- order and ends --------------------------------------------------------------------------


async def test_jobs_wait_for_those_in_after() -> None:
    flow = Flow("order")
    first = flow.add(tell.call("first"))
    second = flow.add(tell.call("second"), after=first)
    flow.add(tell.call("third"), after=[first, second])
    await app.start(flow)
    await drain(app)
    assert ran == ["first", "second", "third"]


async def test_a_group_is_waited_for_as_one() -> None:
    flow = Flow("group")
    group = flow.group("both")
    group.add(tell.call("a"))
    group.map(tell, ["b", "c"])
    flow.add(tell.call("after"), after=group)
    await app.start(flow)
    await drain(app)
    assert ran[-1] == "after"
    with pytest.raises(InvalidArgument, match="complete"):
        group.add(tell.call("d"))


async def test_callbacks_run_after_all_jobs() -> None:
    flow = Flow("batch", on_succeeded=tell.call("good"), on_failed=tell.call("bad"))
    flow.map(tell, ["a", "b"])
    run = await app.start(flow)
    await drain(app)
    assert ran == ["a", "b", "good"]
    assert (await run.refresh()).state is FlowState.SUCCEEDED


async def test_a_failure_stops_what_follows_and_a_retry_goes_on() -> None:
    flow = Flow("fails", on_failed=tell.call("bad"), on_ended=tell.call("ended"))
    bad = flow.add(double.options(max_attempts=1).call(-1))
    flow.add(tell.call("never"), after=bad)
    run = await app.start(flow)
    await drain(app)
    assert ran == ["bad", "ended"]
    record = await run.refresh()
    assert (record.state, record.failed, record.stopped) == (FlowState.FAILED, 1, 1)
    assert await run.retry() is ActionResult.DONE
    await drain(app)
    assert (await run.refresh()).state is FlowState.FAILED


async def test_a_part_for_failures_runs_only_then() -> None:
    flow = Flow("undo")
    bad = flow.add(double.options(max_attempts=1).call(-1))
    flow.add(tell.call("undo"), after=bad, when="failed")
    flow.add(tell.call("anyway"), after=bad, when="ended")
    await app.start(flow)
    await drain(app)
    assert sorted(ran) == ["anyway", "undo"]


async def test_those_that_wait_for_a_job_wait_for_what_it_adds() -> None:
    flow = Flow("added")
    flow.add(tell.call("after"), after=flow.add(split.call(3)))
    await app.start(flow)
    await drain(app)
    assert ran == ["part 0", "part 1", "part 2", "after"]


async def test_a_cancelled_flow_runs_nothing_more() -> None:
    flow = Flow("cancelled")
    flow.add(tell.call("b"), after=flow.add(tell.call("a")))
    run = await app.start(flow)
    assert await run.cancel() is ActionResult.DONE
    await drain(app)
    assert ran == []
    assert (await run.wait(5)).state is FlowState.CANCELLED
    assert await run.cancel() is ActionResult.WRONG_STATE


# --- handles ---------------------------------------------------------------------------------


async def test_waiting_for_a_flow_ends_with_it_or_with_the_timeout() -> None:
    flow = Flow("waits")
    flow.add(tell.call("a"))
    run = await app.start(flow)
    with pytest.raises(FlowTimeout, match="1 jobs not ended"):
        await run.wait(0.01)
    async with app.worker():
        assert (await run.wait(30)).state is FlowState.SUCCEEDED
    assert (await app.flow_run(run.id).refresh()).succeeded == 1
    with pytest.raises(FlowNotFound):
        await app.flow_run("0" * 32).refresh()


async def test_a_running_flow_with_the_same_key_is_the_answer() -> None:
    first, second = Flow("one", key="import:42"), Flow("two", key="import:42")
    first.add(tell.call("a"))
    second.add(tell.call("b"))
    run = await app.start(first)
    again = await app.start(second)
    assert (again.id, run.created, again.created) == (run.id, True, False)
    await drain(app)
    assert ran == ["a"]


async def test_a_flow_is_started_from_blocking_code() -> None:
    flow = Flow("blocking")
    flow.add(tell.call("a"))
    run = await asyncio.to_thread(app.blocking.start, flow)
    await drain(app)
    assert ran == ["a"]
    assert (await run.refresh()).state is FlowState.SUCCEEDED


async def test_inline_mode_runs_a_flow_before_start_returns() -> None:
    flow = Flow("inline", on_succeeded=tell.call("good"))
    total = flow.add(add_up.call(flow.map(double, [1, 2]).results))
    with inline(app):
        run = await app.start(flow)
        assert await run.result(total) == 6
        assert ran == ["good"]


async def test_operators_list_and_recount_flows() -> None:
    for name in ("one", "two"):
        flow = Flow(name)
        flow.add(tell.call(name))
        await app.start(flow)
    await drain(app)
    assert [flow.name for flow in await app.admin.flows.list()] == ["two", "one"]
    (one,) = await app.admin.flows.list(name="one", states=[FlowState.SUCCEEDED])
    assert [part.name for part in (await app.admin.flows.get(one.id)).parts] == [tell.name, "end"]
    assert list(await app.admin.flows.recount()) == []


# --- bad input -------------------------------------------------------------------------------


async def test_a_flow_is_started_once() -> None:
    flow = Flow("once")
    flow.add(tell.call("a"))
    await app.start(flow)
    with pytest.raises(InvalidArgument, match="make a new Flow"):
        await app.start(flow)
    with pytest.raises(InvalidArgument, match=r"ctx\.then"):
        flow.add(tell.call("b"))


def test_nodes_of_another_flow_are_refused() -> None:
    flow, other = Flow("one"), Flow("other")
    node, rows = other.add(double.call(1)), other.map(double, [1])
    with pytest.raises(InvalidArgument, match="belongs to another flow"):
        flow.add(tell.call("a"), after=node)
    with pytest.raises(InvalidArgument, match="result of another flow"):
        flow.add(describe.call(node.result, [], title=""))
    with pytest.raises(InvalidArgument, match="result of another flow"):
        flow.add(add_up.call(rows.results))
    with pytest.raises(InvalidArgument, match="put both into one flow"):
        flow.add(tell.call("a"), after="0192")  # type: ignore[arg-type]
    assert len(flow) == 0


async def test_a_call_with_a_result_is_stored_only_with_its_flow() -> None:
    flow = Flow("one")
    call = describe.call(flow.add(double.call(1)).result, [], title="")
    with pytest.raises(InvalidArgument, match=r"flow\.add"):
        await app.enqueue_many([call])


def test_a_result_is_no_value_before_the_flow_runs() -> None:
    node = Flow("one").add(double.call(1))
    with pytest.raises(InvalidArgument, match="not known before the flow runs"):
        bool(node.result)
    with pytest.raises(InvalidArgument, match="not known before the flow runs"):
        node.result + 1
    with pytest.raises(InvalidArgument, match="not known before the flow runs"):
        int(node.result)


def test_other_arguments_of_a_call_with_a_result_are_checked() -> None:
    node = Flow("one").add(double.call(1))
    with pytest.raises(PayloadError, match="do not fit"):
        describe.call(node.result, ["no number"], title="")  # type: ignore[list-item]


def test_what_is_no_call_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"task\.call"):
        Flow("one").add(tell)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"task\.call"):
        Flow("one", on_failed=tell)  # type: ignore[arg-type]


def test_a_flow_that_is_too_large_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass._tasks.flows.flow.MOST", 3)
    with pytest.raises(InvalidArgument, match="more items"):
        Flow("large").map(double, range(4))
