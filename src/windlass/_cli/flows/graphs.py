"""The graph of a flow as text, for Graphviz and for Mermaid."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from windlass._core.flows.flow import PartKind
from windlass._observe.log import printable

if TYPE_CHECKING:
    from windlass._core.flows.flow import PartRecord

__all__ = ["as_dot", "as_mermaid", "as_text", "counts_of", "state_of"]

_COLOURS = {
    "succeeded": "#2e7d32",
    "failed": "#c62828",
    "cancelled": "#8e24aa",
    "running": "#1565c0",
    "blocked": "#757575",
    "not needed": "#bdbdbd",
}


def state_of(part: PartRecord) -> str:
    """Return one word for a part."""
    if part.failed:
        return "failed"
    if part.cancelled or part.stopped:
        return "cancelled"
    if part.total and part.skipped == part.total:
        return "not needed"
    if part.open:
        return "blocked" if part.blocked == part.open else "running"
    return "succeeded"


def counts_of(part: PartRecord) -> str:
    """Return how far a part is, in words."""
    if not part.total:
        return "no jobs"
    ended = part.total - part.open
    said = [f"{ended:,} of {part.total:,}"]
    named = {"failed": part.failed, "cancelled": part.cancelled + part.stopped}
    said += [f"{count:,} {name}" for name, count in named.items() if count]
    return ", ".join(said)


def as_text(parts: Sequence[PartRecord]) -> Iterator[str]:
    """Return a line for each part, in an order in which they can run."""
    names = [printable(part.name) for part in parts]
    wide = max((len(name) for name in names), default=0)
    for part in _shown(parts):
        after = ", ".join(
            f"{names[edge.part]}{'' if edge.strict else ' (any end)'}"
            for edge in part.after
            if parts[edge.part].kind is not PartKind.END
        )
        when = " if it fails" if part.when == "failed" else ""
        waits = f"   after {after}{when}" if after else ""
        yield f"{names[part.number]:{wide}}   {state_of(part)}: {counts_of(part)}{waits}"


def as_dot(parts: Sequence[PartRecord]) -> Iterator[str]:
    """Return the graph for Graphviz."""
    yield "digraph flow {"
    yield '  rankdir=LR; node [shape=box, style="rounded,filled", fontcolor=white];'
    for part in _shown(parts):
        label = json.dumps(f"{part.name}\n{counts_of(part)}", ensure_ascii=False)
        yield f'  p{part.number} [label={label}, fillcolor="{_COLOURS[state_of(part)]}"];'
    for before, after, strict in _edges(parts):
        yield f"  p{before} -> p{after}{'' if strict else ' [style=dashed]'};"
    yield "}"


def as_mermaid(parts: Sequence[PartRecord]) -> Iterator[str]:
    """Return the graph for Mermaid."""
    yield "flowchart LR"
    for part in _shown(parts):
        name = part.name.replace('"', "#quot;")
        yield f'  p{part.number}["{name}<br/>{counts_of(part)}"]'
    for before, after, strict in _edges(parts):
        yield f"  p{before} {'-->' if strict else '-.->'} p{after}"
    for part in _shown(parts):
        yield f"  style p{part.number} fill:{_COLOURS[state_of(part)]},color:#fff"


def _shown(parts: Sequence[PartRecord]) -> Iterator[PartRecord]:
    """Leave out the end, unless something waits for it."""
    told = {edge.part for part in parts for edge in part.after}
    return (part for part in parts if part.kind is not PartKind.END or part.number in told)


def _edges(parts: Sequence[PartRecord]) -> Iterator[tuple[int, int, bool]]:
    shown = {part.number for part in _shown(parts)}
    followed = {edge.part for part in parts if part.kind is not PartKind.END for edge in part.after}
    for part in parts:
        for edge in part.after:
            # The end waits for all; lines from the last ones are enough.
            last = part.kind is not PartKind.END or edge.part not in followed
            if part.number in shown and last:
                yield edge.part, part.number, edge.strict
