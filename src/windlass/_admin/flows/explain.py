"""Why has a flow not ended, or why did it fail? Followed to jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from windlass._admin.explain.cause import Cause, plural, shell_command
from windlass._admin.explain.explain import explain_job
from windlass._admin.explain.flows import failed_job, is_incomplete, open_job, sealed_cause
from windlass._admin.session import AdminSession
from windlass._core.flows.flow import FlowRecord, FlowState, PartRecord
from windlass._observe.log import printable
from windlass._storage.protocol.flows import FlowGraph
from windlass._storage.protocol.storage import Storage

__all__ = ["FlowExplanation", "explain_flow"]

_MOST = 5
"""Parts that are followed: more would say no more."""
_START_AGAIN = "Draw the flow and start it again, with app.start(flow)"


class FlowExplanation(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a flow, and the jobs that it waits for, or that ended it."""

    flow: FlowRecord
    at: datetime
    """The store's now when it was asked."""
    causes: Sequence[Cause]
    """Those that it waits for, then those that failed, in the order of its parts. Never empty."""


async def explain_flow(session: AdminSession, graph: FlowGraph) -> FlowExplanation:
    """Explain a flow by the jobs that it waits for, or that failed."""
    storage, flow = await session.storage(), graph.flow
    causes: list[Cause] = []
    if flow.cancel_requested:
        causes.append(_cancelled(flow))
    if flow.state is FlowState.RUNNING:
        front = [part for part in graph.parts if part.open > part.blocked][:_MOST]
        causes += [await _open(session, storage, flow, part) for part in front]
        if not front:
            causes.append(sealed_cause(flow) if is_incomplete(flow) else _settling(flow))
    if flow.state is FlowState.SUCCEEDED:
        said = f"It has succeeded: {plural(flow.total, 'job')}, all ended."
        causes.append(Cause(code="flow_succeeded", sentence=said))
    causes += [await _failed(session, storage, graph, part) for part in _with_failures(graph)]
    return FlowExplanation(flow=flow, at=await storage.now(), causes=causes)


def _with_failures(graph: FlowGraph) -> list[PartRecord]:
    return [part for part in graph.parts if part.failed or part.cancelled][:_MOST]


async def _open(
    session: AdminSession, storage: Storage, flow: FlowRecord, part: PartRecord
) -> Cause:
    """Say why the jobs of a part whose turn has come have not ended."""
    running = f"{part.open - part.blocked:,} not ended"
    said = f"Of {plural(part.total, 'job')} of {printable(part.name)}, {running}."
    evidence = {"part": part.number, "name": part.name, "open": part.open, "total": part.total}
    job = await open_job(storage, flow.id, part)
    if job is None:
        return Cause(code="part_open", sentence=said, evidence=evidence)
    cause = (await explain_job(session, job.id)).causes[0]
    return Cause(
        code="part_open",
        sentence=f"{said} Job {job.id}: {cause.sentence}",
        evidence={**evidence, "job": job.id, "cause": cause.code},
        until=cause.until,
        fix=cause.fix,
    )


async def _failed(
    session: AdminSession, storage: Storage, graph: FlowGraph, part: PartRecord
) -> Cause:
    counts = {"failed": part.failed, "cancelled or expired": part.cancelled}
    said = ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
    said = f"Of {plural(part.total, 'job')} of {printable(part.name)}, {said}."
    evidence = {"part": part.number, "name": part.name, **_numbers(part)}
    job = await failed_job(storage, graph.flow.id, part)
    if job is not None:
        cause = (await explain_job(session, job)).causes[0]
        said += f" Job {job}: {cause.sentence}"
        evidence |= {"job": job, "cause": cause.code}
    fix = _run_again(graph.flow, job)
    return Cause(code="part_failed", sentence=said, evidence=evidence, fix=fix)


def _run_again(flow: FlowRecord, job: str | None) -> str:
    """Return how what failed runs again, where it can."""
    if flow.state is not FlowState.RUNNING:
        return _START_AGAIN if flow.sealed else shell_command("flows", "retry", flow.id)
    if job is None or flow.cancel_requested:  # members of a cancelled flow cannot be requeued
        return ""
    return shell_command("jobs", "requeue", job)


def _numbers(part: PartRecord) -> dict[str, int]:
    return {"failed": part.failed, "cancelled": part.cancelled, "total": part.total}


def _cancelled(flow: FlowRecord) -> Cause:
    said = "It was cancelled."
    if flow.expires_at is not None:
        said = "It was cancelled, or expired."
    if flow.state is FlowState.RUNNING:
        said += f" Not ended yet: {plural(flow.open, 'job')}."
        return Cause(code="flow_cancelled", sentence=said, evidence={"open": flow.open})
    if flow.sealed:
        said += " Not all of its jobs were stored, so none has run and it cannot be retried."
    fix = _run_again(flow, None)
    return Cause(code="flow_cancelled", sentence=said, evidence={"open": 0}, fix=fix)


def _settling(flow: FlowRecord) -> Cause:
    said = (
        "None of its jobs is ready or running: a worker places or ends the next ones with its next "
        "claim."
    )
    return Cause(
        code="flow_settling",
        sentence=said,
        evidence={"open": flow.open},
        fix="Start a worker, or explain it again in a moment; then try `windlass flows recount`",
    )
