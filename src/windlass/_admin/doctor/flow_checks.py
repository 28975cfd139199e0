"""Whether flows reach their end: counts that agree, jobs that are placed, tasks that are known."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime, timedelta

from windlass._admin.doctor.finding import Finding, bad, ok, warn
from windlass._admin.doctor.work_checks import LiveWorkers
from windlass._admin.explain.cause import few, plural, shell_command
from windlass._admin.explain.flows import is_incomplete
from windlass._core.flows.flow import SEALED_FOR, FlowRecord, FlowState
from windlass._core.values.names import shown
from windlass._observe.log import brief
from windlass._storage.protocol.flows import FlowFilter, FlowGraph, FlowStore
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import monotonic

__all__ = ["check_flows"]

_NEWEST = 1000
"""Running flows that are listed."""
_READ = 50
"""Of these, flows whose parts are read."""
_SECONDS = 2.0
"""Seconds for counting again: large flows take long."""
_LONG = timedelta(days=1)
_QUIET = timedelta(minutes=5)
"""Time without new jobs after which the process that stores a flow has probably died."""
_AGAIN = 1.0
"""Seconds until a flow that a worker should have settled is read again."""


async def check_flows(
    storage: Storage, crew: LiveWorkers, known_here: Collection[str], now: datetime
) -> Sequence[Finding]:
    """Check running flows; nothing, where there are none."""
    wanted = FlowFilter(states=[FlowState.RUNNING])
    running = await storage.flows.find(wanted, limit=_NEWEST)
    if not running:
        return []
    graphs = await _read(storage.flows, running[:_READ])
    found = [*check_age(running, now), *check_sealed(running, now)]
    found += check_flow_tasks(graphs, crew, known_here)
    found += await _check_settling(storage.flows, graphs, crew)
    counted, wrong = await _recount(storage.flows, running)
    found += check_counts(wrong)
    if not found:
        more = "" if len(running) < _NEWEST else " or more"
        text = f"{plural(len(running), 'flow')}{more} running, {counted:,} counted again."
        found.append(ok("flows", text))
    return found


async def _read(store: FlowStore, flows: Sequence[FlowRecord]) -> list[FlowGraph]:
    return [graph for one in flows if (graph := await store.graph(one.id)) is not None]


async def _recount(store: FlowStore, running: Sequence[FlowRecord]) -> tuple[int, list[str]]:
    """Count again as many running flows as the time allows, the newest first."""
    until, wrong, counted = monotonic() + _SECONDS, list[str](), 0
    for flow in running:
        if monotonic() > until:
            break
        wrong += (await store.recount(after=flow.number - 1, limit=1)).wrong
        counted += 1
    return counted, wrong


def check_counts(wrong: Sequence[str]) -> Iterator[Finding]:
    """Report counts that do not agree with the jobs: such a flow may never end."""
    if wrong:
        yield bad(
            "flow_counts",
            f"{plural(len(wrong), 'count')} of running flows do not agree with their jobs: "
            f"{few(wrong)}.",
            f"Correct them: {shell_command('flows', 'recount', '--repair')}",
        )


def check_age(running: Sequence[FlowRecord], now: datetime) -> Iterator[Finding]:
    """Find flows that have been running for long."""
    old = [flow for flow in running if now - flow.created_at > _LONG]
    if old:
        oldest = old[-1]
        yield warn(
            "flow_age",
            f"{plural(len(old), 'flow')} running for more than {brief(_LONG)}; the oldest: "
            f"{shown(oldest.name)}, for {brief(now - oldest.created_at)}.",
            f"See what it waits for: {shell_command('flows', 'explain', oldest.id)}",
        )


def check_sealed(running: Sequence[FlowRecord], now: datetime) -> Iterator[Finding]:
    """Find flows that are not stored whole and have got no jobs for some time."""
    quiet = [
        flow
        for flow in running
        if is_incomplete(flow)
        and flow.expires_at is not None
        and flow.expires_at - now < SEALED_FOR - _QUIET
    ]
    if quiet:
        oldest = quiet[-1]
        yield warn(
            "flow_sealed",
            f"{plural(len(quiet), 'flow')} not stored whole, with no new jobs for more than "
            f"{brief(_QUIET)}; the oldest: {shown(oldest.name)} ({oldest.id}).",
            f"If the process that started it died, {shell_command('flows', 'cancel', oldest.id)}, "
            f"then start the flow again",
        )


def check_flow_tasks(
    graphs: Sequence[FlowGraph], crew: LiveWorkers, known_here: Collection[str]
) -> Iterator[Finding]:
    """Find parts whose task neither a live worker nor this app has."""
    # A worker that does not say what it has, an older one, may have anything.
    if any(not one.start.tasks for one in crew.live):
        return
    known = {*known_here, *(name for one in crew.live for name in one.start.tasks)}
    unknown: dict[str, FlowGraph] = {}
    for graph in graphs:
        for part in graph.parts:
            if part.open and part.task and part.task not in known:
                unknown.setdefault(part.task, graph)
    for task, graph in sorted(unknown.items()):
        flow = graph.flow
        yield bad(
            "flow_task",
            f"Flow {shown(flow.name)} ({flow.id}) waits for jobs of task {shown(task)}, which no "
            f"live worker has.",
            "Deploy the code that defines it, or cancel the flow: "
            f"{shell_command('flows', 'cancel', flow.id)}",
        )


async def _check_settling(
    store: FlowStore, graphs: Sequence[FlowGraph], crew: LiveWorkers
) -> Sequence[Finding]:
    """Find flows whose next jobs should have been placed."""
    still = [graph for graph in graphs if _only_blocked(graph)]
    if still and crew.live:
        await asyncio.sleep(_AGAIN)
        again = {graph.flow.id: graph for graph in await _read(store, [g.flow for g in still])}
        still = [graph for graph in still if again.get(graph.flow.id) == graph]
    if not still:
        return []
    names = few([f"{shown(graph.flow.name)} ({graph.flow.id})" for graph in still])
    text = f"{plural(len(still), 'flow')} with blocked jobs alone, which are due: {names}."
    if crew.live:
        fix = f"Correct their counts: {shell_command('flows', 'recount', '--repair')}"
    else:
        fix = f"Start a worker, which places them: {shell_command('worker', 'MODULE:APP')}"
    return [bad("flow_stuck", text, fix)]


def _only_blocked(graph: FlowGraph) -> bool:
    """Return whether no job of the flow is ready or running, and some are blocked."""
    if graph.flow.sealed:
        return False  # a process still stores its jobs
    blocked = sum(part.blocked for part in graph.parts)
    return 0 < blocked == sum(part.open for part in graph.parts)
