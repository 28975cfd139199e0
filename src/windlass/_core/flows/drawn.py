"""The parts of a flow as people see them: an added flow follows the part that added it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from windlass._core.flows.flow import Edge, PartKind, PartRecord

__all__ = ["drawn_parts"]


def drawn_parts(parts: Sequence[PartRecord]) -> Sequence[PartRecord]:
    """Return the parts with the edges that are shown. A flow that a job added waits for the job's
    part, and those that wait for that part wait for the added flow, too.
    """
    joins: dict[int, list[int]] = {}
    after = {part.number: list(part.after) for part in parts}
    for part in parts:
        if part.added is None:
            continue
        counts_for = part.added.counts_for
        joins.setdefault(counts_for, []).append(part.number)
        if parts[counts_for].kind is PartKind.END:
            continue
        for number in range(part.added.first, part.number):
            if not after[number]:
                after[number] = [Edge(counts_for)]
        if not after[part.number]:
            after[part.number] = [Edge(counts_for)]
    if not joins:
        return parts
    for part in parts:
        further = [
            Edge(join, edge.strict)
            for edge in part.after
            if parts[edge.part].kind is not PartKind.END  # which waits for the added flow itself
            for join in joins.get(edge.part, ())
        ]
        further += [Edge(join) for join in joins.get(part.number, ()) if part.kind is PartKind.END]
        after[part.number] += further
    return [msgspec.structs.replace(part, after=tuple(after[part.number])) for part in parts]
