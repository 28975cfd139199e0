"""Where boxes are and how lines run, from left to right, in pixels."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from windlass._web.graph.layers import Columns, Line

__all__ = ["Layout", "Spot", "Stroke", "lay_out", "spread"]

MARGIN = 16.0
GAP = 14.0
"""Between boxes of one layer."""
LANE = 6.0
"""The height of a lane."""
_BETWEEN = 44.0
"""Between two layers, with few lines."""
_ROOM = 2.0
"""More for each line between them …"""
_MOST_ROOM = 120.0


class Spot(msgspec.Struct, frozen=True):
    """The place of a box: its left upper corner and its size."""

    x: float
    y: float
    width: float
    height: float

    @property
    def middle(self) -> float:
        return self.y + self.height / 2


class Stroke(msgspec.Struct, frozen=True):
    """A line as it is drawn, and from which node or lane to which."""

    line: Line
    path: str
    """For the attribute ``d``."""
    tip: tuple[float, float] | None
    """The end at a box, where the arrow belongs; None: it ends at a lane."""


class Layout(msgspec.Struct, frozen=True):
    """The whole picture."""

    spots: Sequence[Spot]
    """By node."""
    strokes: Sequence[Stroke]
    width: float
    height: float


def lay_out(columns: Columns, sizes: Sequence[tuple[float, float]]) -> Layout:
    """Return the place of each box. ``sizes``: width and height of each node."""

    def height(node: int) -> float:
        return sizes[node][1] if node < columns.nodes else LANE

    widths = [
        max((sizes[node][0] for node in column if node < columns.nodes), default=0.0)
        for column in columns.columns
    ]
    middles = _middles(columns, [[height(node) for node in column] for column in columns.columns])
    top = min((middles[node] - height(node) / 2 for node in middles), default=0.0) - MARGIN
    lefts = _lefts(columns, widths)
    spots: list[Spot] = [Spot(0, 0, 0, 0)] * (max(middles, default=-1) + 1)
    for column, left, width in zip(columns.columns, lefts, widths, strict=True):
        for node in column:
            own = sizes[node][0] if node < columns.nodes else width
            y = middles[node] - height(node) / 2 - top
            spots[node] = Spot(left + (width - own) / 2, y, own, height(node))
    boxes = spots[: columns.nodes]
    return Layout(
        spots=boxes,
        strokes=[_stroke(line, spots, columns.nodes) for line in columns.lines],
        width=(lefts[-1] + widths[-1] + MARGIN) if widths else 2 * MARGIN,
        height=max((spot.y + spot.height for spot in spots), default=MARGIN) + MARGIN,
    )


def spread(wanted: Sequence[float], heights: Sequence[float], gap: float = GAP) -> list[float]:
    """Return middles as near to the wanted ones as the boxes allow, in the same order.

    The sum of squared distances is the least possible (isotonic regression by pooling).
    """
    offsets, offset = [0.0], 0.0
    for upper, lower in itertools.pairwise(heights):
        offset += (upper + lower) / 2 + gap
        offsets.append(offset)
    pools: list[tuple[float, int]] = []
    for place, target in enumerate(wanted):
        mean, size = target - offsets[place], 1
        while pools and pools[-1][0] > mean:
            other, others = pools.pop()
            mean = (mean * size + other * others) / (size + others)
            size += others
        pools.append((mean, size))
    starts = [mean for mean, size in pools for _ in range(size)]
    return [start + offsets[place] for place, start in enumerate(starts)]


def _middles(columns: Columns, heights: Sequence[Sequence[float]]) -> dict[int, float]:
    """Draw each node to the middle of its neighbours in the layer before or after."""
    before: dict[int, list[int]] = {}
    after: dict[int, list[int]] = {}
    for line in columns.lines:
        before.setdefault(line.target, []).append(line.source)
        after.setdefault(line.source, []).append(line.target)
    middles: dict[int, float] = {}
    for column, tall in zip(columns.columns, heights, strict=True):
        packed = spread([0.0] * len(column), tall)
        middles.update(zip(column, packed, strict=True))

    def draw(layers: Iterable[int], neighbours: Mapping[int, Sequence[int]]) -> None:
        for layer in layers:
            column = columns.columns[layer]
            wanted = [_pull(middles[node], neighbours.get(node, ()), middles) for node in column]
            middles.update(zip(column, spread(wanted, heights[layer]), strict=True))

    last = len(heights)
    tallest = max(range(last), key=lambda layer: sum(heights[layer]), default=0)
    draw(range(last), before)
    draw(range(last - 1, -1, -1), after)
    # From the tallest layer, which has the least freedom, to both sides: chains become straight.
    draw(range(tallest + 1, last), before)
    draw(range(tallest - 1, -1, -1), after)
    return middles


def _pull(own: float, neighbours: Sequence[int], middles: Mapping[int, float]) -> float:
    """Return the middle of its neighbours; without any, where it is."""
    if not neighbours:
        return own
    return sum(middles[other] for other in neighbours) / len(neighbours)


def _lefts(columns: Columns, widths: Sequence[float]) -> list[float]:
    """Return where each layer begins: many lines between two layers take more room."""
    layer_of = {node: layer for layer, column in enumerate(columns.columns) for node in column}
    crowds = [0] * len(widths)
    for line in columns.lines:
        crowds[layer_of[line.source]] += 1
    lefts, left = [], MARGIN
    for width, crowd in zip(widths, crowds, strict=True):
        lefts.append(left)
        left += width + min(_BETWEEN + _ROOM * crowd, _MOST_ROOM)
    return lefts


def _stroke(line: Line, spots: Sequence[Spot], nodes: int) -> Stroke:
    """Draw a curve that leaves and arrives horizontally; through a lane it runs straight."""
    start, end = spots[line.source], spots[line.target]
    x1, y1, x2, y2 = start.x + start.width, start.middle, end.x, end.middle
    bend = (x1 + x2) / 2
    path = f"M{x1:.1f} {y1:.1f}C{bend:.1f} {y1:.1f} {bend:.1f} {y2:.1f} {x2:.1f} {y2:.1f}"
    if line.target >= nodes:
        path += f"H{end.x + end.width:.1f}"
        return Stroke(line, path, None)
    return Stroke(line, path, (x2, y2))
