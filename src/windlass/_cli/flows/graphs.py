"""The graph of a flow as text, for Graphviz and for Mermaid."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal

from windlass._core.flows.drawn import drawn_parts
from windlass._core.flows.flow import PartKind
from windlass._core.flows.part_state import part_states
from windlass._observe.log import printable

if TYPE_CHECKING:
    from windlass._core.flows.flow import PartRecord
    from windlass._storage.protocol.flows import FlowGraph

__all__ = ["as_dot", "as_mermaid", "as_text", "counts_of", "shown_parts", "waits_for"]

_COLOURS = {
    "succeeded": "#2e7d32",
    "failed": "#c62828",
    "cancelled": "#8e24aa",
    "stopped": "#8e24aa",
    "active": "#1565c0",
    "blocked": "#757575",
    "skipped": "#bdbdbd",
}

_Line = Literal["success", "failure", "any end"]
"""On which end of the first part the second one runs."""
_DOT_LINES: dict[_Line, str] = {
    "success": "",
    "failure": ' [style=dashed, label="on failure"]',
    "any end": " [style=dashed]",
}
_MERMAID_LINES: dict[_Line, str] = {
    "success": "-->",
    "failure": "-. on failure .->",
    "any end": "-.->",
}
_MERMAID = {ord(sign): f"#{ord(sign)};" for sign in '#&"<>`'}
"""Signs that have a meaning in a label, and the codes to write instead."""


def counts_of(part: PartRecord) -> str:
    """Return how far a part is, in words."""
    if not part.total:
        return "–"
    said = [f"{part.total - part.open:,} of {part.total:,} ended"]
    names = ("failed", "cancelled", "stopped", "skipped")
    said += [f"{count:,} {name}" for name in names if (count := getattr(part, name))]
    return ", ".join(said)


def waits_for(part: PartRecord, parts: Sequence[PartRecord]) -> str:
    """Return what a part waits for, in words."""
    after = ", ".join(
        f"{printable(parts[edge.part].name)}{'' if edge.strict else ' (any end)'}"
        for edge in part.after
    )
    return f"{after}, if it fails" if part.when == "failed" else after


def as_text(graph: FlowGraph) -> Iterator[str]:
    """Return a line for each part, in an order in which they can run."""
    parts, states = drawn_parts(graph.parts), part_states(graph.flow, graph.parts)
    names = [printable(part.name) for part in parts]
    wide = max((len(name) for name in names), default=0)
    for part in shown_parts(parts):
        waits = "" if part.kind is PartKind.END else waits_for(part, parts)
        counts = f": {counts_of(part)}" if part.total else ""
        after = f"   after {waits}" if waits else ""
        yield f"{names[part.number]:{wide}}   {states[part.number]}{counts}{after}"


def as_dot(graph: FlowGraph) -> Iterator[str]:
    """Return the graph for Graphviz."""
    parts, states = drawn_parts(graph.parts), part_states(graph.flow, graph.parts)
    yield "digraph flow {"
    yield '  rankdir=LR; node [shape=box, style="rounded,filled", fontcolor=white];'
    for part in shown_parts(parts):
        label = json.dumps(f"{part.name}\n{counts_of(part)}", ensure_ascii=False)
        yield f'  p{part.number} [label={label}, fillcolor="{_COLOURS[states[part.number]]}"];'
    for before, after, kind in _edges(parts):
        yield f"  p{before} -> p{after}{_DOT_LINES[kind]};"
    yield "}"


def as_mermaid(graph: FlowGraph) -> Iterator[str]:
    """Return the graph for Mermaid."""
    parts, states = drawn_parts(graph.parts), part_states(graph.flow, graph.parts)
    yield "flowchart LR"
    for part in shown_parts(parts):
        name = printable(part.name).translate(_MERMAID)
        yield f'  p{part.number}["{name}<br/>{counts_of(part)}"]'
    for before, after, kind in _edges(parts):
        yield f"  p{before} {_MERMAID_LINES[kind]} p{after}"
    for part in shown_parts(parts):
        yield f"  style p{part.number} fill:{_COLOURS[states[part.number]]},color:#fff"


def shown_parts(parts: Sequence[PartRecord]) -> Iterator[PartRecord]:
    """Leave out the end, unless something waits for it."""
    told = {edge.part for part in parts for edge in part.after}
    return (part for part in parts if part.kind is not PartKind.END or part.number in told)


def _edges(parts: Sequence[PartRecord]) -> Iterator[tuple[int, int, _Line]]:
    shown = {part.number for part in shown_parts(parts)}
    followed = {edge.part for part in parts if part.kind is not PartKind.END for edge in part.after}
    for part in parts:
        for edge in part.after:
            # The end waits for all; lines from the last ones are enough.
            last = part.kind is not PartKind.END or edge.part not in followed
            if part.number in shown and last:
                kind: _Line = "success" if edge.strict else "any end"
                yield edge.part, part.number, "failure" if part.when == "failed" else kind
