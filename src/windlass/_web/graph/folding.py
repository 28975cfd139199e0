"""Fewer boxes for large flows: parts that are alike become one box that says how many.

Only names, tasks and edges decide, never counts. So a picture keeps its shape while the flow runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence

import msgspec

from windlass._core.flows.flow import PartKind, PartRecord
from windlass._web.graph.layers import Line, longest_path_layers

__all__ = ["ALL", "ENOUGH", "Fold", "fold", "visible_edges"]

ALL = "all"
"""The key that opens every box."""
ENOUGH = 60
"""Boxes that a picture may have before parts are folded."""
_SHORTEST, _LONGEST = 3, 25
"""Boxes of a chain that become one: a longer chain becomes several, so that it shows its progress.
"""


class Fold(msgspec.Struct, frozen=True):
    """One box: a part, or several that are folded into one."""

    key: str
    """Opens it, in the address. Empty: it is a single part."""
    parts: tuple[int, ...]
    chain: bool = False
    """Its parts wait for each other, one after the other. Else they run side by side."""
    group: str = ""
    """The name of the group that its parts belong to, with their join; empty: they are no group."""


_INNER = (PartKind.JOBS, PartKind.JOIN, PartKind.ADDED)
"""The kinds before the end of a flow."""


def visible_edges(parts: Sequence[PartRecord]) -> list[Line]:
    """Return the edges to draw. The end waits for every part; only edges from parts that nothing
    else waits for tell something.
    """
    place = {part.number: index for index, part in enumerate(parts)}
    followed = {edge.part for part in parts if part.kind is not PartKind.END for edge in part.after}
    return [
        Line(place[edge.part], index, dashed=not edge.strict)
        for index, part in enumerate(parts)
        for edge in part.after
        if edge.part in place and not (part.kind is PartKind.END and edge.part in followed)
    ]


def fold(
    parts: Sequence[PartRecord], opened: Collection[str] = (), *, enough: int = ENOUGH
) -> tuple[list[Fold], list[Line]]:
    """Return the boxes of a flow and the lines between them, by their places in the list.

    Up to ``enough`` parts before the end are all drawn. Of more, these are folded, step by step
    until it is enough: groups that the user named; parallel parts with the same neighbours; those
    of one name that wait for the same; those of one task in one layer; chains; at last whole
    layers. ``opened``: keys of folds whose parts are drawn nevertheless.
    """
    edges = visible_edges(parts)
    boxes = [Fold("", (part.number,)) for part in parts]
    lines = edges
    if ALL in opened:
        return boxes, lines
    fixed: set[int] = set()  # of opened folds: no later step folds these parts again
    last = sum(part.kind in (PartKind.END, PartKind.CALLBACK) for part in parts)
    for step in (_groups, _same_neighbours, _same_sources, _same_task, _chains, _same_layer):
        excess = len(boxes) - len(fixed) - last - enough
        if excess <= 0:
            break
        drawn = {number: box for box in boxes for number in box.parts}
        kept: list[Fold] = []
        for group in step(parts, boxes, lines, excess):
            whole = group == drawn[group.parts[0]]
            if not whole and (group.key in opened or not fixed.isdisjoint(group.parts)):
                inner = {drawn[number]: None for number in group.parts}
                # A large group is opened to its own folds.
                if not group.group or len(inner) <= enough:
                    fixed.update(box.parts[0] for box in inner)
                kept += inner
            else:
                kept.append(group)
        boxes = sorted(kept, key=lambda box: box.parts[0])
        lines = _between(parts, boxes, edges)
    return boxes, lines


def _between(
    parts: Sequence[PartRecord], boxes: Sequence[Fold], edges: Iterable[Line]
) -> list[Line]:
    """Return the lines between boxes: one for all edges between the same two."""
    number_of = {number: index for index, box in enumerate(boxes) for number in box.parts}
    box_of = [number_of[part.number] for part in parts]
    strict: dict[tuple[int, int], bool] = {}
    for edge in edges:
        ends = box_of[edge.source], box_of[edge.target]
        if ends[0] != ends[1]:
            strict[ends] = strict.get(ends, False) or not edge.dashed
    return [Line(source, target, dashed=not solid) for (source, target), solid in strict.items()]


def _group(
    boxes: Sequence[Fold], sign: Callable[[int], Hashable | None], letter: str
) -> list[Fold]:
    """Put boxes with the same sign into one; None: it stays alone."""
    found: dict[Hashable, list[Fold]] = {}
    for index, box in enumerate(boxes):
        mark = sign(index)
        found.setdefault(("alone", index) if mark is None else ("alike", mark), []).append(box)
    return [_joined(group, letter) for group in found.values()]


def _joined(group: Sequence[Fold], letter: str, *, chain: bool = False, name: str = "") -> Fold:
    if len(group) == 1:
        return group[0]
    numbers = tuple(sorted(number for box in group for number in box.parts))
    return Fold(f"{letter}{numbers[0]}", numbers, chain, name)


def _groups(
    parts: Sequence[PartRecord], boxes: Sequence[Fold], lines: Sequence[Line], _: int
) -> list[Fold]:
    """Fold groups with their joins, but for those that would wait for each other in a circle."""
    by_number = {part.number: part for part in parts}
    group_of: dict[int, PartRecord] = {}
    for join in parts:
        members = [edge.part for edge in join.after if edge.part in by_number]
        if join.kind in (PartKind.JOIN, PartKind.ADDED) and len(members) > 1:
            group_of.update(dict.fromkeys((join.number, *members), join))

    def outermost(number: int) -> PartRecord | None:
        join = group_of.get(number)
        while join is not None and (outer := group_of.get(join.number)) not in (None, join):
            join = outer
        return join

    def folded() -> list[Fold]:
        found: dict[Fold | tuple[int, str], list[Fold]] = {}
        for box in boxes:
            join = outermost(box.parts[0])
            found.setdefault(box if join is None else (join.number, join.name), []).append(box)
        return [
            _joined(own, "g", name="" if isinstance(sign, Fold) else sign[1])
            for sign, own in found.items()
        ]

    for index in _circular(groups := folded(), _between(parts, groups, lines)):
        for number in groups[index].parts:
            group_of.pop(number, None)
    return folded()


def _circular(boxes: Sequence[Fold], lines: Iterable[Line]) -> list[int]:
    """Return the boxes that are in a circle of lines, or behind one."""
    before: dict[int, int] = Counter()
    after: dict[int, list[int]] = {}
    for line in lines:
        before[line.target] += 1
        after.setdefault(line.source, []).append(line.target)
    ready = [index for index in range(len(boxes)) if not before[index]]
    for index in ready:  # it grows meanwhile
        for target in after.get(index, ()):
            before[target] -= 1
            if not before[target]:
                ready.append(target)
    return [index for index in range(len(boxes)) if before[index]]


def _same_neighbours(
    parts: Sequence[PartRecord], boxes: Sequence[Fold], lines: Sequence[Line], _: int
) -> list[Fold]:
    """Fold parts with the same neighbours on both sides."""
    by_number = {part.number: part for part in parts}
    before: list[list[tuple[int, bool]]] = [[] for _ in boxes]
    after: list[list[tuple[int, bool]]] = [[] for _ in boxes]
    for line in lines:
        before[line.target].append((line.source, line.dashed))
        after[line.source].append((line.target, line.dashed))

    def sign(index: int) -> Hashable:
        part = by_number[boxes[index].parts[0]]
        if part.kind is not PartKind.JOBS or boxes[index].key:
            return None
        return part.when, tuple(sorted(before[index])), tuple(sorted(after[index]))

    return _group(boxes, sign, "p")


def _same_sources(
    parts: Sequence[PartRecord], boxes: Sequence[Fold], lines: Sequence[Line], _: int
) -> list[Fold]:
    """Fold parts of one name that wait for the same boxes, those in front first: hundred chains of
    three tasks become one chain of three boxes.
    """
    layers = longest_path_layers(len(boxes), lines)
    by_number = {part.number: part for part in parts}
    before: list[list[tuple[int, bool]]] = [[] for _ in boxes]
    for line in lines:
        before[line.target].append((line.source, line.dashed))
    group_of: dict[int, int] = {}
    first: dict[Hashable, int] = {}
    for index in sorted(range(len(boxes)), key=lambda one: layers[one]):
        part = by_number[boxes[index].parts[0]]
        sources = frozenset((group_of[source], dashed) for source, dashed in before[index])
        alike = part.kind is PartKind.JOBS and not boxes[index].key
        sign = (part.name, part.when, sources) if alike else index
        group_of[index] = first.setdefault(sign, index)
    return _group(boxes, group_of.__getitem__, "s")


def _same_task(
    parts: Sequence[PartRecord], boxes: Sequence[Fold], lines: Sequence[Line], _: int
) -> list[Fold]:
    """Fold parts of one layer with the same task, or the same name where they have none."""
    layers = longest_path_layers(len(boxes), lines)
    by_number = {part.number: part for part in parts}

    def sign(index: int) -> Hashable:
        own = [by_number[number] for number in boxes[index].parts]
        titles = {part.task or part.name for part in own}
        if own[0].kind is not PartKind.JOBS or len(titles) > 1:
            return None
        return layers[index], own[0].when, titles.pop()

    return _group(boxes, sign, "t")


def _chains(
    parts: Sequence[PartRecord], boxes: Sequence[Fold], lines: Sequence[Line], _: int
) -> list[Fold]:
    """Fold boxes that follow each other, each the only one after the other."""
    by_number = {part.number: part for part in parts}
    before: dict[int, list[int]] = {}
    after: dict[int, list[int]] = {}
    for line in lines:
        before.setdefault(line.target, []).append(line.source)
        after.setdefault(line.source, []).append(line.target)

    def foldable(index: int) -> bool:
        return by_number[boxes[index].parts[0]].kind in _INNER

    def following(index: int) -> int | None:
        """Return the only one that follows, if it follows nothing else."""
        ahead = after.get(index, [])
        if len(ahead) != 1 or len(before[ahead[0]]) != 1:
            return None
        return ahead[0] if foldable(index) and foldable(ahead[0]) else None

    inner = {target for index in range(len(boxes)) if (target := following(index)) is not None}
    groups: list[Fold] = []
    for index in (one for one in range(len(boxes)) if one not in inner):
        chain, here = [boxes[index]], following(index)
        while here is not None:
            chain.append(boxes[here])
            here = following(here)
        for start in range(0, len(chain), _LONGEST):
            piece = chain[start : start + _LONGEST]
            long = len(piece) >= _SHORTEST
            groups += [_joined(piece, "c", chain=True)] if long else piece
    return groups


def _same_layer(
    parts: Sequence[PartRecord], boxes: Sequence[Fold], lines: Sequence[Line], excess: int
) -> list[Fold]:
    """Fold whole layers, the widest first, until ``excess`` boxes fewer are left."""
    layers = longest_path_layers(len(boxes), lines)
    by_number = {part.number: part for part in parts}
    folded: set[int] = set()
    for layer, width in Counter(layers).most_common():
        if excess <= 0 or width == 1:
            break
        folded.add(layer)
        excess -= width - 1

    def sign(index: int) -> Hashable:
        kind = by_number[boxes[index].parts[0]].kind
        return layers[index] if kind in _INNER and layers[index] in folded else None

    return _group(boxes, sign, "l")
