"""Why a member of a flow is blocked: followed to the job at the root of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from windlass._admin.explain.cause import Cause, plural, shell_command
from windlass._core.flows.drawn import drawn_parts
from windlass._core.flows.flow import FlowRecord, PartKind, PartRecord
from windlass._core.flows.part import ranks_of
from windlass._core.job.job import FlowId, JobId, JobRecord
from windlass._core.job.state import TERMINAL, State
from windlass._observe.log import error_in_one_line, printable
from windlass._storage.protocol.flows import FlowGraph, Member
from windlass._storage.protocol.storage import Storage

__all__ = [
    "FlowFacts",
    "blocked_cause",
    "ended_by_flow",
    "failed_job",
    "gather_flow",
    "is_incomplete",
    "open_job",
    "sealed_cause",
]

_REASONS = ("not needed", "its flow was cancelled", "what it waits for failed")
"""Of members that their flow has ended, besides "after …, which failed"."""
_PAGES = 50
"""Pages of a part among which a job is looked for: of 500 jobs each, so 25,000 jobs."""


def ended_by_flow(job: JobRecord) -> bool:
    """Return whether a member was ended before its turn: stopped, or not needed."""
    return job.flow is not None and _is_of_flow(job.reason)


def _is_of_flow(reason: str | None) -> bool:
    if reason is None:
        return False
    failed = reason.startswith("after ") and reason.endswith(", which failed")
    return failed or reason in _REASONS


class FlowFacts(msgspec.Struct, frozen=True):
    """The parts that a blocked job waits for, and the job at their root."""

    graph: FlowGraph
    path: Sequence[PartRecord]
    """The parts from the one that it waits for to the one at the root."""
    root: JobRecord | None = None
    """An open job of that one; None: none was found."""
    cause: Cause | None = None
    """The first reason why that one has not ended."""


async def gather_flow(storage: Storage, job: JobRecord) -> FlowFacts | None:
    """Read what a blocked job waits for; None: its flow is gone."""
    if job.flow is None or (graph := await storage.flows.graph(job.flow.flow)) is None:
        return None
    path: list[PartRecord] = []
    parts, is_open = drawn_parts(graph.parts), _open_parts(graph.parts)
    part = parts[job.flow.part]
    while open_ones := [parts[edge.part] for edge in part.after if is_open[edge.part]]:
        # One whose jobs may run, if there is one: the others wait for something in turn.
        part = next((one for one in open_ones if one.blocked < one.open), open_ones[0])
        path.append(part)
    root = await open_job(storage, job.flow.flow, path[-1]) if path else None
    return FlowFacts(graph, path, root)


def _open_parts(parts: Sequence[PartRecord]) -> dict[int, bool]:
    """Return which parts have not ended. One without jobs ends after those that it waits for."""
    found: dict[int, bool] = {}
    ranks = ranks_of(parts)
    for part in sorted(parts, key=lambda part: ranks[part.number]):
        waits = not part.total and any(found[edge.part] for edge in part.after)
        found[part.number] = bool(part.open) or waits
    for part in parts:  # the end waits for flows that were added from outside
        if part.added is not None and parts[part.added.counts_for].kind is PartKind.END:
            found[part.added.counts_for] |= found[part.number]
    return found


async def open_job(storage: Storage, flow: FlowId, part: PartRecord) -> JobRecord | None:
    """Return a job of a part that has not ended, of those that were given; None: none was found."""
    job = await _first_member(storage, flow, part, lambda one: one.state not in TERMINAL)
    if job is None:
        return None
    (found,) = await storage.admin.get([job])
    return found


async def failed_job(storage: Storage, flow: FlowId, part: PartRecord) -> JobId | None:
    """Return a job of a part that failed, or else one that was cancelled or expired. Jobs that the
    flow itself ended are no cause. None: none was found.
    """
    job = None
    if part.failed:
        job = await _first_member(storage, flow, part, lambda one: one.state is State.FAILED)
    if job is None and part.cancelled:
        job = await _first_member(storage, flow, part, _is_cancelled)
    return job


def _is_cancelled(member: Member) -> bool:
    ended = member.state in (State.CANCELLED, State.DISCARDED)
    return ended and not _is_of_flow(member.reason)


async def _first_member(
    storage: Storage, flow: FlowId, part: PartRecord, wanted: Callable[[Member], bool]
) -> JobId | None:
    after = 0
    for _ in range(_PAGES):
        page = await storage.flows.members(flow, part.number, after=after)
        if not page:
            return None
        for one in page:
            if wanted(one):
                return one.id
        after = page[-1].seq
    return None


def is_incomplete(flow: FlowRecord) -> bool:
    """Return whether a flow still waits for the rest of its jobs."""
    return flow.sealed and not flow.cancel_requested and flow.ended_at is None


def sealed_cause(flow: FlowRecord) -> Cause:
    """Say that a flow waits for the rest of its jobs."""
    said = (
        f"A process is still storing the jobs of flow {printable(flow.name)}, {flow.total:,} so "
        f"far. None of them starts before the last one is stored."
    )
    return Cause(
        code="flow_sealed",
        sentence=said,
        evidence={"total": flow.total},
        until=flow.expires_at,
        fix="Wait for app.start. If its process died, cancel the flow: "
        f"{shell_command('flows', 'cancel', flow.id)}; then start it again. A minute after its "
        "last jobs came, a start with its key replaces it. Windlass itself cancels it after an "
        "hour",
    )


def blocked_cause(job: JobRecord, facts: FlowFacts | None) -> Cause:
    """Say what a blocked job waits for, and what holds that."""
    if facts is not None and is_incomplete(facts.graph.flow):
        return sealed_cause(facts.graph.flow)
    if facts is None or not facts.path:
        return Cause(
            code="after_jobs",
            sentence="It waits for other jobs of its flow; these have ended, so it starts, or is "
            "cancelled, within moments.",
            evidence={"flow": None if job.flow is None else job.flow.flow},
            fix="Explain it again in a moment",
        )
    first, last = facts.path[0], facts.path[-1]
    flow = facts.graph.flow
    said = f"It waits for {_amount(first)}, in flow {printable(flow.name)}."
    if last is not first:
        said += f" That waits in turn for {_amount(last)}."
    root = facts.root
    if root is not None:
        said += f" Job {root.id} is {_standing(root)}."
    if facts.cause is not None:
        said += f" {facts.cause.sentence}"
    return Cause(
        code="after_jobs",
        sentence=said,
        evidence={
            "flow": flow.id,
            "parts": [part.name for part in facts.path],
            "open": first.open,
            "total": first.total,
            "job": None if root is None else root.id,
            "cause": None if facts.cause is None else facts.cause.code,
        },
        fix=_fix(facts),
    )


def _fix(facts: FlowFacts) -> str:
    if facts.root is None:
        return shell_command("flows", "explain", facts.graph.flow.id)
    own = "" if facts.cause is None else facts.cause.fix
    return own or shell_command("jobs", "explain", facts.root.id)


def _amount(part: PartRecord) -> str:
    name = printable(part.name)
    if not part.total:
        return name
    return f"{part.open:,} of {plural(part.total, 'job')} of {name}"


def _standing(job: JobRecord) -> str:
    if job.state is State.RUNNING:
        return "running"
    if job.error is not None:
        return f"waiting after {error_in_one_line(job.error)}"
    return "waiting"
