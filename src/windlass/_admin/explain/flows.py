"""Why a member of a flow is blocked: followed to the job at the root of it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass._admin.explain.cause import Cause, plural, shell_command
from windlass._core.flows.flow import PartKind, PartRecord
from windlass._core.job.job import FlowId, JobRecord
from windlass._core.job.state import TERMINAL, State
from windlass._observe.log import error_in_one_line, printable
from windlass._storage.protocol.flows import FlowGraph
from windlass._storage.protocol.storage import Storage

__all__ = ["FlowFacts", "blocked_cause", "gather_flow"]

_DEEP = 5
"""Parts that are followed: a longer way says no more."""
_LOOKS = 4
"""Pages of a part among which an open job is looked for."""


class FlowFacts(msgspec.Struct, frozen=True):
    """The parts that a blocked job waits for, and the job at their root."""

    graph: FlowGraph
    path: Sequence[PartRecord]
    """The parts from the one that it waits for to the one at the root."""
    root: JobRecord | None
    """An open job of that one; None: none was found."""


async def gather_flow(storage: Storage, job: JobRecord) -> FlowFacts | None:
    """Read what a blocked job waits for; None: its flow is gone."""
    if job.flow is None or (graph := await storage.flows.graph(job.flow.flow)) is None:
        return None
    path: list[PartRecord] = []
    part = graph.parts[job.flow.part]
    for _ in range(_DEEP):
        open_ones = [before for edge in part.after if _is_open(before := graph.parts[edge.part])]
        if not open_ones:
            break
        # The one that is furthest behind: it has the most parts before it.
        part = next((one for one in open_ones if one.blocked < one.open), open_ones[0])
        path.append(part)
    root = await _open_job(storage, job.flow.flow, path[-1]) if path else None
    return FlowFacts(graph, path, root)


def _is_open(part: PartRecord) -> bool:
    return bool(part.open) or part.kind in (PartKind.JOIN, PartKind.END)


async def _open_job(storage: Storage, flow: FlowId, part: PartRecord) -> JobRecord | None:
    after = 0
    for _ in range(_LOOKS):
        page = await storage.flows.members(flow, part.number, after=after)
        for one in page:
            if one.state not in TERMINAL:
                (found,) = await storage.admin.get([one.id])
                return found
        if not page:
            return None
        after = page[-1].seq
    return None


def blocked_cause(job: JobRecord, facts: FlowFacts | None) -> Cause:
    """Say what a blocked job waits for, and what holds that."""
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
    return Cause(
        code="after_jobs",
        sentence=said,
        evidence={
            "flow": flow.id,
            "parts": [part.name for part in facts.path],
            "open": first.open,
            "total": first.total,
            "job": None if root is None else root.id,
        },
        fix=shell_command("flows", "show", flow.id)
        if root is None
        else shell_command("jobs", "explain", root.id),
    )


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
