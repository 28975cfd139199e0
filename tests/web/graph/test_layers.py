"""Layers and the order within them."""

from __future__ import annotations

import random
from itertools import pairwise

from windlass._web.graph.layers import Columns, Line, columns_of, count_crossings
from windlass._web.graph.layers import longest_path_layers as layers_of


def crossings(columns: Columns) -> int:
    layer_of = {node: layer for layer, column in enumerate(columns.columns) for node in column}
    return sum(
        count_crossings(
            upper, lower, [one for one in columns.lines if layer_of[one.source] == layer]
        )
        for layer, (upper, lower) in enumerate(pairwise(columns.columns))
    )


def random_lines(count: int, seed: int) -> list[Line]:
    pick = random.Random(seed)
    return [
        Line(source, target)
        for target in range(1, count)
        for source in pick.sample(range(max(0, target - 12), target), min(target, 2))
    ]


def test_a_node_is_in_the_layer_after_the_last_of_those_it_waits_for() -> None:
    lines = [Line(0, 1), Line(1, 2), Line(0, 3), Line(2, 3)]
    assert layers_of(5, lines) == [0, 1, 2, 3, 0]


def test_nodes_may_come_in_any_order() -> None:
    assert layers_of(3, [Line(2, 1), Line(1, 0)]) == [2, 1, 0]


def test_a_circle_is_drawn_behind_everything_and_ends() -> None:
    assert layers_of(3, [Line(0, 1), Line(1, 2), Line(2, 1)]) == [0, 1, 1]


def test_nothing_has_no_layers() -> None:
    assert columns_of(0, []).columns == []


def test_crossings_are_counted_between_two_layers() -> None:
    assert count_crossings([0, 1], [2, 3], [Line(0, 3), Line(1, 2)]) == 1
    assert count_crossings([0, 1], [2, 3], [Line(0, 2), Line(1, 3)]) == 0
    assert count_crossings([0, 1], [2], [Line(0, 2), Line(1, 2)]) == 0
    every = [Line(source, target) for source in range(3) for target in range(3, 6)]
    assert count_crossings(range(3), range(3, 6), every) == 9


def test_lines_that_need_not_cross_do_not_cross() -> None:
    """Two chains, numbered so that the first order crosses them."""
    columns = columns_of(6, [Line(0, 3), Line(1, 2), Line(3, 4), Line(2, 5)])
    assert crossings(columns) == 0


def test_sorting_never_makes_more_crossings_than_there_were() -> None:
    better = 0
    for seed in range(20):
        lines = random_lines(60, seed)
        sorted_ones = columns_of(60, lines)
        first = Columns([sorted(one) for one in sorted_ones.columns], sorted_ones.lines, 60)
        assert crossings(sorted_ones) <= crossings(first)
        better += crossings(sorted_ones) < 0.7 * crossings(first)
    assert better > 15


def test_every_node_is_in_one_column_and_every_piece_spans_one_layer() -> None:
    columns = columns_of(60, random_lines(60, 1))
    found = [node for column in columns.columns for node in column]
    assert len(found) == len(set(found))
    assert set(range(60)) <= set(found)
    layer_of = {node: layer for layer, column in enumerate(columns.columns) for node in column}
    assert {layer_of[one.target] - layer_of[one.source] for one in columns.lines} == {1}


def test_long_lines_to_one_node_share_their_lanes() -> None:
    chain = [Line(0, 1), Line(1, 2), Line(2, 3)]
    many = [Line(node, 3) for node in range(4, 9)]
    columns = columns_of(9, [*chain, *many])
    assert sum(len(column) for column in columns.columns) == 9 + 2
    dashed = columns_of(9, [*chain, *many[1:], Line(4, 3, dashed=True)])
    assert sum(len(column) for column in dashed.columns) == 9 + 4
