"""Mistakes in flows: each is refused, says what to do, and stores nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from tests.app.flows.shop import (
    add_up,
    app,
    blocks_the_loop,
    describe,
    double,
    empty_store,
    once,
    per_shop,
    ran,
    tell,
    untyped,
)
from windlass import Flow, ended
from windlass.errors import InvalidArgument, KeyConflict, PayloadError
from windlass.testing import drain

__all__ = ["empty_store"]


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


def endless() -> Iterator[int]:
    while True:
        yield 1


@pytest.mark.parametrize("items", [range(10_000_000), range(10**20), endless()])
def test_a_flow_that_is_too_large_is_refused_before_it_takes_memory(
    items: Iterable[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass._tasks.flows.flow.MOST", 1_000)
    flow = Flow("large")
    with pytest.raises(InvalidArgument, match="give each job more items"):
        flow.map(double, items)
    assert len(flow) == 0


def test_items_that_raise_leave_the_flow_as_it_was() -> None:
    def items() -> Iterator[int]:
        yield 1
        raise OSError("gone")

    flow = Flow("raises")
    with pytest.raises(OSError, match="gone"):
        flow.map(double, items())
    assert len(flow) == 0


def test_results_of_the_wrong_type_are_refused() -> None:
    flow: Any = Flow("types")  # the checkers refuse all of these, too
    total: Any = add_up
    number, rows = flow.add(double.call(1)), flow.map(double, [1])
    text = flow.add(describe.call(1, [], title=""))
    told = flow.add(tell.call("a"))
    mistakes: list[tuple[Callable[[], object], str]] = [
        (lambda: text.then(double), "number takes int, and .*describe returns str"),
        (lambda: told.then(double), "number takes int, and .*tell returns None"),
        (lambda: describe.call(rows.results, [], ""), r"annotate it Results\[int\]"),
        (lambda: untyped.call(rows.results), r"annotate it Results\[int\]"),
        (lambda: flow.add(double.call(1, times=text.result)), "times takes int, and "),
        (lambda: flow.add(untyped.call({number.result: 1})), "key of a dict .*pass it as a value"),
        (lambda: total.call(number.result), r"takes Results\[int\].*rows\.results"),
        (
            lambda: total.call(flow.map_calls([describe.call(1, [], "")]).results),
            r"takes Results\[int\], and .*describe returns str",
        ),
        (lambda: number.then(blocks_the_loop), r"takes Results\[int\]"),
        (lambda: number.then(double, 5), "Extra positional arguments"),
        (lambda: flow.map(double, [1], after=number), r"use flow\.map_calls\(calls, after=…\)"),
    ]
    for wrong, why in mistakes:
        with pytest.raises(PayloadError, match=why):
            wrong()


def test_wrong_options_of_flows_and_nodes_are_refused() -> None:
    flow: Any = Flow("options")
    blocking: Any = app.blocking
    flow_run: Any = app.flow_run
    node, rows = flow.add(double.call(1)), flow.map(double, [1])
    group = flow.group("group")
    inner = group.group("inner")
    mistakes: list[tuple[Callable[[], object], str]] = [
        (lambda: Flow(""), "name of a flow"),
        (lambda: Flow("a", key="k" * 300), "key of a flow"),
        (lambda: Flow("a", priority=10**9), "priority"),
        (lambda: Flow("a", on_ended=double.call(node.result)), r"flow\.add"),
        (lambda: flow.add(double.call(1), when="later"), "'succeeded', 'ended', 'failed'"),
        (lambda: flow.add(double.call(1), after=app.job("0" * 32)), "put both into one flow"),
        (lambda: flow.add(double.options(key="k", on_conflict="replace").call(1)), "replace"),
        (lambda: rows.add(double.call(1)), r"flow\.group\(name\)"),
        (lambda: inner.add(double.call(1), after=ended(group)), "cannot wait for group 'group'"),
        (lambda: f"{node.result}", "not known before"),
        (lambda: list(rows.results), "not known before"),
        (lambda: flow.add(double.call(1), when="failed"), "needs something to wait for"),
        (lambda: flow.map_calls([double.call(1)], when="ended"), "needs something to wait for"),
        (lambda: node.then(double.call(1)), r"node\.then takes a task and its other arguments"),
        (lambda: node.then(lambda number: number), r"node\.then takes a task, got .*@app\.task"),
        (lambda: flow.map(print, [1]), r"flow\.map takes a task, got .*@app\.task"),
        (lambda: flow.map(double.call(1), [1]), r"got a call: flow\.map\(double, \.\.\.\)"),
        (lambda: flow.add(double.call(1), after=node.result), "after= takes a node or a group"),
        (lambda: flow.add(double.call(1), after={"a": node}), "or a list of them, got 'a'"),
        (lambda: flow_run(None), "an id is a UUID, or its 32 hex digits as text, got None"),
        (lambda: flow_run(b"0" * 32), "an id is a UUID"),
        (lambda: node.result == 3, "not known before"),
        (lambda: node.result != 3, "not known before"),
        (lambda: flow.map(double, 5), r"flow\.map takes a task and its items, got 5"),
        (lambda: flow.map_calls(5), r"flow\.map_calls takes calls"),
        (lambda: ended(flow), "ended takes a node or a group"),
        (lambda: flow.add(double.call(1), name="end"), "cannot be 'end'"),
        (lambda: flow.group("on_ended"), "cannot be 'on_ended'"),
        (lambda: blocking.wait("0" * 32), r"app\.flow_run\(id\)"),
    ]
    for wrong, why in mistakes:
        with pytest.raises(InvalidArgument, match=why):
            wrong()


def test_groups_count_among_the_parts_of_a_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass._tasks.flows.flow.MOST_PARTS", 3)
    flow = Flow("groups")
    first, second = flow.group("first"), flow.group("second")
    first.add(double.call(1))
    flow.add(double.call(1), after=first)  # the third part: a group that is waited for is one
    with pytest.raises(InvalidArgument, match="nodes and groups: add many"):
        second.part  # noqa: B018 -- closes the group


async def test_after_takes_any_iterable_of_nodes() -> None:
    flow = Flow("iterables")
    nodes = [flow.add(tell.call(name)) for name in "ab"]
    group = flow.group("group")
    flow.add(tell.call("set"), after=set(nodes))
    flow.add(tell.call("generator"), after=(node for node in nodes))
    group.add(tell.call("group"), after=(ended(node) for node in nodes))
    run = await app.start(flow)
    added = Flow("added")
    added.add(tell.call("added"))
    await run.add(added, after=dict.fromkeys(nodes))
    graph = await run.graph()
    assert [len(part.after) for part in graph.parts[:5]] == [0, 0, 2, 2, 2]
    await drain(app)
    assert (await run.refresh()).succeeded == 6
    assert set(ran[:2]) == {"a", "b"}


async def test_keys_and_limits_read_the_arguments_that_are_known() -> None:
    flow = Flow("keys")
    number = flow.add(double.call(1))
    number.then(per_shop, shop=7)
    mistakes: list[tuple[Callable[[], object], str]] = [
        (lambda: flow.add(per_shop.call(1, shop=number.result)), "known when the flow runs"),
        (lambda: number.then(once), r"options\(key=\.\.\.\)"),
    ]
    for wrong, why in mistakes:
        with pytest.raises(InvalidArgument, match=why):
            wrong()
    number.then(once.options(key="own"))
    run = await app.start(flow)
    await drain(app)
    assert (await run.refresh()).succeeded == 3


async def test_a_job_that_takes_results_is_not_copied_out_of_its_flow() -> None:
    flow = Flow("copy")
    last = flow.add(double.call(1)).then(double)
    await app.start(flow)
    found = await app.admin.doctor.check(tasks=app.tasks)
    assert "undecodable_payload" not in [one.name for one in found]
    await drain(app)
    with pytest.raises(InvalidArgument, match="retry the flow"):
        await app.admin.jobs.requeue(last.id, as_new=True)


async def test_a_flow_that_may_be_stored_takes_no_more_jobs_and_starts_again() -> None:
    await tell.options(key="k").enqueue("holds the key")
    flow = Flow("again")
    flow.add(tell.options(key="k").call("waits for the key"))
    with pytest.raises(KeyConflict, match="Nothing of the flow was stored"):
        await app.start(flow)
    assert list(await app.admin.flows.list()) == []
    with pytest.raises(InvalidArgument, match="start it again as it is"):
        flow.add(tell.call("more"))
    await drain(app)
    run = await app.start(flow)
    assert run.id == flow.id
    await drain(app)
    assert ran == ["holds the key", "waits for the key"]


async def test_handles_refuse_nodes_of_other_flows() -> None:
    first, second = Flow("one", key="k"), Flow("two", key="k")
    rows, node = first.map(double, [1]), second.add(double.call(1))
    run = await app.start(first)
    found = await app.start(second)
    with pytest.raises(InvalidArgument, match=r"run\.graph\(\)"):
        await found.result(node)
    with pytest.raises(InvalidArgument, match=r"flow\.add\(call\)"):
        await run.result(rows)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="takes a Flow"):
        await app.start(double.call(1))  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"flow = Flow\(name\); flow\.add\(call\)"):
        await run.add(double.call(1))  # type: ignore[arg-type]


async def test_a_full_flow_has_room_for_its_callbacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass._client.new_jobs._MOST", 2)
    flow = Flow("full", on_ended=tell.call("ended"))
    flow.map(tell, ["a", "b"])
    await app.start(flow)
    await drain(app)
    assert ran == ["a", "b", "ended"]
