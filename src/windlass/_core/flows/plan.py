"""From the parts that a user wrote to the parts that are stored."""

from __future__ import annotations

from collections.abc import Sequence

from windlass._core.flows.flow import Edge, NewPart, PartKind

__all__ = ["END", "complete"]

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
