"""From the parts that a user wrote to the parts that are stored."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass._core.flows.flow import AddedFlow, Edge, NewFlow, NewPart, PartKind

__all__ = ["END", "complete", "parts_to_add"]

END = "end"
"""The name of the part that every flow ends with."""


def complete(parts: Sequence[NewPart], callbacks: Sequence[NewPart] = ()) -> tuple[NewPart, ...]:
    """Add the end, which waits for every part, and the callbacks, which wait for the end.

    A failure that all parts after it tolerate does not fail the flow. A callback keeps its own
    strictness: it is that of its only edge, to any number.
    """
    followed: dict[int, list[bool]] = {number: [] for number in range(len(parts))}
    for part in parts:
        for edge in part.after:
            followed[edge.part].append(edge.strict)
    edges = tuple(
        Edge(number, strict=not strict or any(strict)) for number, strict in followed.items()
    )
    end = NewPart(name=END, kind=PartKind.END, after=edges)
    after_end = [
        NewPart(
            name=one.name,
            kind=PartKind.CALLBACK,
            task=one.task,
            when=one.when,
            after=(Edge(len(parts), strict=all(edge.strict for edge in one.after)),),
        )
        for one in callbacks
    ]
    return (*parts, end, *after_end)


def parts_to_add(flow: NewFlow, first: int, counts_for: int) -> list[NewPart]:
    """Return the parts of a flow as they join another one, numbered from ``first`` on.

    Its end becomes a join, which counts for the part ``counts_for``. Parts that wait for nothing
    wait for those in ``flow.after``, which are parts of the other flow.
    """
    added = AddedFlow(flow.id, first, counts_for)
    return [_shifted(part, flow, added) for part in flow.parts]


def _shifted(part: NewPart, flow: NewFlow, added: AddedFlow) -> NewPart:
    inside = tuple(Edge(edge.part + added.first, edge.strict) for edge in part.after)
    edges = inside or flow.after
    if part.kind is PartKind.END:
        return NewPart(name=flow.name, kind=PartKind.ADDED, after=edges, added=added)
    return msgspec.structs.replace(part, after=edges)
