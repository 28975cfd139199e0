"""Flows as users write them: drawn, started, run by a worker, read."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from tests.app.flows.shop import (
    add_up,
    add_up_on_a_thread,
    add_up_on_its_own_loop,
    app,
    blocks_the_loop,
    count_failures,
    describe,
    double,
    empty_store,
    ran,
    split,
    tell,
)
from windlass import Flow, ended
from windlass._core.flows.flow import FlowState
from windlass._storage.memory.flows.flows import MemoryFlows
from windlass._storage.protocol.actions import ActionResult
from windlass._storage.protocol.flows import FlowGraph
from windlass.errors import FlowNotFound, FlowTimeout, InvalidArgument, JobFailed, ResultError
from windlass.testing import drain, inline

__all__ = ["empty_store"]

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


async def test_a_job_that_cannot_do_without_a_result_says_so() -> None:
    flow = Flow("lenient")
    bad = flow.add(double.options(max_attempts=1).call(-1))
    after = flow.add(double.call(bad.result), after=ended(bad))
    run = await app.start(flow)
    drained = await drain(app)
    with pytest.raises(JobFailed, match=r"take None, as in `T \| None`"):
        await run.result(after)
    assert drained.ran == 2  # it had attempts left, and none of them would have the result


async def test_outcomes_tell_which_jobs_failed() -> None:
    flow = Flow("outcomes")
    rows = flow.map(double.options(max_attempts=1), [1, -1, 2])
    counted = flow.add(count_failures.call(rows.results), after=ended(rows))
    run = await app.start(flow)
    await drain(app)
    assert await run.result(counted) == [True, False, True]
    with pytest.raises(JobFailed):
        [number async for number in run.results(rows)]


async def test_outcomes_refuse_a_job_that_runs_again() -> None:
    flow = Flow("again")
    rows = flow.map(double.options(max_attempts=1), [1, -1])
    run = await app.start(flow)
    await drain(app)
    outcomes = run.results(rows).outcomes()
    assert [done.ok async for done in outcomes] == [True, False]
    await app.admin.jobs.requeue(rows.ids[1])
    with pytest.raises(ResultError, match=r"has not ended, it is waiting.* requeued after its end"):
        [done async for done in outcomes]


# --- order and ends --------------------------------------------------------------------------


async def test_jobs_wait_for_those_in_after() -> None:
    flow = Flow("order")
    first = flow.add(tell.call("first"))
    second = flow.add(tell.call("second"), after=first)
    flow.add(tell.call("third"), after=[first, second])
    await app.start(flow)
    await drain(app)
    assert ran == ["first", "second", "third"]


async def test_a_waiting_caller_reads_the_parts_of_a_flow_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    graph, states, read = MemoryFlows.graph, MemoryFlows.states, 0
    looked = asyncio.Event()

    async def count(*args: Any) -> FlowGraph | None:
        nonlocal read
        read += 1
        return await graph(*args)

    async def look(*args: Any) -> Sequence[FlowState | None]:
        looked.set()
        return await states(*args)

    monkeypatch.setattr(MemoryFlows, "graph", count)
    monkeypatch.setattr(MemoryFlows, "states", look)
    flow = Flow("waited for")
    flow.add(double.call(1))
    run = await app.start(flow)
    waiting = asyncio.create_task(run.wait(30))
    for _ in range(5):
        await tell.enqueue("a change")
        await looked.wait()
        looked.clear()
    assert read == 0
    await drain(app)
    assert (await waiting).state is FlowState.SUCCEEDED
    assert read == 1


async def test_the_results_of_a_drawn_group_are_those_of_all_in_it() -> None:
    flow = Flow("groups")
    outer = flow.group("outer")
    outer.add(double.call(1))
    inner = outer.group("inner")
    inner.map(double, [2, 3])
    inner.add(double.call(4))
    total = flow.add(add_up.call(outer.results))
    run = await app.start(flow)
    with pytest.raises(ResultError, match=r"run\.wait\(\)"):
        await run.results(outer).list()
    await drain(app)
    assert await run.result(total) == 20
    assert await run.results(inner).list() == [4, 6, 8]


async def test_code_without_an_event_loop_waits_and_reads_results() -> None:
    flow = Flow("blocking")
    rows = flow.map(double.options(max_attempts=1), [1, -1])

    def work() -> list[bool]:
        run = app.blocking.start(flow)
        app.blocking.run(drain(app))
        assert app.blocking.wait(run, 5).state is FlowState.FAILED
        return [done.ok for done in run.results(rows).outcomes()]

    assert await asyncio.to_thread(work) == [True, False]


async def test_results_are_read_on_an_event_loop_of_the_handler() -> None:
    flow = Flow("own loop")
    total = flow.add(add_up_on_its_own_loop.call(flow.map(double, [1, 2]).results))
    run = await app.start(flow)
    await drain(app)
    assert await run.result(total) == 6


async def test_a_coroutine_that_reads_results_without_async_is_told() -> None:
    flow = Flow("blocks")
    bad = flow.add(blocks_the_loop.call(flow.map(double, [1]).results))
    run = await app.start(flow)
    await drain(app)
    with pytest.raises(JobFailed, match="async for value in results"):
        await run.result(bad)


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
    assert (await run.wait(30)).state is FlowState.CANCELLED
    assert await run.cancel() is ActionResult.WRONG_STATE


# --- handles ---------------------------------------------------------------------------------


async def test_waiting_for_a_flow_ends_with_it_or_with_the_timeout() -> None:
    flow = Flow("waits")
    flow.add(tell.call("a"))
    run = await app.start(flow)
    with pytest.raises(FlowTimeout, match="1 job not ended"):
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


async def test_a_group_knows_the_ids_of_its_jobs_in_their_order() -> None:
    flow = Flow("ids")
    drawn = flow.group("drawn")
    last = flow.add(double.call(9))
    mapped = drawn.map(double, [1, 2, 3])
    single = drawn.add(double.call(4))
    run = await app.start(flow)
    await drain(app)
    assert drawn.ids == [*mapped.ids, single.id]
    assert last.id not in drawn.ids
    assert [await app.job(job).result() for job in drawn.ids] == [2, 4, 6, 8]
    assert [number async for number in run.results(drawn)] == [2, 4, 6, 8]
