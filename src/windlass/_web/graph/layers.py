"""Layers of a directed graph, and the order within each: few lines cross each other.

Nodes are numbers from 0. A line that spans several layers passes through one *lane* in each layer
between, so that no box is in its way. Lines to the same node share their lanes.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

__all__ = ["Columns", "Line", "columns_of", "count_crossings", "longest_path_layers"]

_ROUNDS = 2
"""Sweeps there and back. More of them rarely find a better order."""


class Line(msgspec.Struct, frozen=True):
    """One node waits for another."""

    source: int
    target: int
    dashed: bool = False


class Columns(msgspec.Struct, frozen=True):
    """The nodes of each layer in their order, lanes among them."""

    columns: Sequence[Sequence[int]]
    lines: Sequence[Line]
    """From layer to next layer: a long line is cut into pieces, and shared pieces are here once."""
    nodes: int
    """A number below is a node, one from here on is a lane."""


def longest_path_layers(count: int, lines: Iterable[Line]) -> list[int]:
    """Return the layer of each node: one more than the last layer of those it waits for. Nodes in a
    circle, which no flow has, are put behind all others.
    """
    layers, waiting = [0] * count, [0] * count
    followers: list[list[int]] = [[] for _ in range(count)]
    for line in lines:
        followers[line.source].append(line.target)
        waiting[line.target] += 1
    ready = deque(node for node in range(count) if not waiting[node])
    placed = 0
    while ready:
        node = ready.popleft()
        placed += 1
        for target in followers[node]:
            layers[target] = max(layers[target], layers[node] + 1)
            waiting[target] -= 1
            if not waiting[target]:
                ready.append(target)
    if placed < count:
        last = max((layers[node] for node in range(count) if not waiting[node]), default=-1) + 1
        layers = [last if waiting[node] else layer for node, layer in enumerate(layers)]
    return layers


def columns_of(count: int, lines: Sequence[Line]) -> Columns:
    """Return the layers in an order with few crossings.

    Each sweep orders a layer by the mean place (barycentre) of its neighbours in the layer before.
    The best order that any sweep found is kept.
    """
    layers = longest_path_layers(count, lines)
    pieces, lanes = _cut(layers, lines)
    depth = max(layers, default=-1) + 1
    columns: list[list[int]] = [[] for _ in range(depth)]
    for node, layer in enumerate((*layers, *lanes)):
        columns[layer].append(node)
    before: dict[int, list[int]] = {}
    after: dict[int, list[int]] = {}
    for piece in pieces:
        before.setdefault(piece.target, []).append(piece.source)
        after.setdefault(piece.source, []).append(piece.target)
    best, fewest = [list(column) for column in columns], _all_crossings(columns, after)
    for _ in range(_ROUNDS):
        for neighbours, going in ((before, range(1, depth)), (after, range(depth - 2, -1, -1))):
            step = 1 if neighbours is before else -1
            for layer in going:
                _sort(columns[layer], columns[layer - step], neighbours)
            crossings = _all_crossings(columns, after)
            if crossings < fewest:
                best, fewest = [list(column) for column in columns], crossings
    return Columns(best, pieces, count)


def count_crossings(upper: Sequence[int], lower: Sequence[int], lines: Iterable[Line]) -> int:
    """Return how many of the lines between two neighbouring layers cross each other."""
    first = {node: place for place, node in enumerate(upper)}
    second = {node: place for place, node in enumerate(lower)}
    ends = sorted((first[line.source], second[line.target]) for line in lines)
    seen: list[int] = []
    crossings = 0
    for _, place in ends:
        crossings += len(seen) - bisect_right(seen, place)
        insort(seen, place)
    return crossings


def _cut(layers: Sequence[int], lines: Sequence[Line]) -> tuple[list[Line], list[int]]:
    """Cut lines into pieces from layer to layer. Return these, and the layer of each new lane."""
    lanes: list[int] = []
    known: dict[tuple[int, int, bool], int] = {}
    pieces: dict[Line, None] = {}
    for line in lines:
        here = line.source
        for layer in range(layers[line.source] + 1, layers[line.target]):
            lane = known.get((line.target, layer, line.dashed))
            if lane is None:
                lane = known[line.target, layer, line.dashed] = len(layers) + len(lanes)
                lanes.append(layer)
            pieces[Line(here, lane, line.dashed)] = None
            here = lane
        pieces[Line(here, line.target, line.dashed)] = None
    return list(pieces), lanes


def _sort(column: list[int], fixed: Sequence[int], neighbours: dict[int, list[int]]) -> None:
    """Sort a layer by the barycentres in the fixed one. A node without neighbours stays."""
    places = {node: place for place, node in enumerate(fixed)}

    def barycentre(item: tuple[int, int]) -> float:
        place, node = item
        found = [places[other] for other in neighbours.get(node, ()) if other in places]
        return sum(found) / len(found) if found else place

    column[:] = [node for _, node in sorted(enumerate(column), key=barycentre)]


def _all_crossings(columns: Sequence[Sequence[int]], after: dict[int, list[int]]) -> int:
    total = 0
    for upper, lower in itertools.pairwise(columns):
        there = set(lower)
        lines = [
            Line(node, other) for node in upper for other in after.get(node, ()) if other in there
        ]
        total += count_crossings(upper, lower, lines)
    return total
