"""Places of boxes and lines."""

from __future__ import annotations

import random
from itertools import combinations, pairwise

import pytest

from windlass._web.graph.geometry import MARGIN, Spot, lay_out, spread
from windlass._web.graph.layers import Line, columns_of


def overlap(one: Spot, other: Spot) -> bool:
    beside = one.x + one.width <= other.x or other.x + other.width <= one.x
    over = one.y + one.height <= other.y or other.y + other.height <= one.y
    return not (beside or over)


def test_boxes_with_room_are_where_they_are_wanted() -> None:
    assert spread([10, 200, 500], [20, 20, 20], 5) == [10, 200, 500]


def test_boxes_that_want_the_same_place_share_it_around_its_middle() -> None:
    assert spread([100, 100, 100], [20, 20, 20], 10) == [70, 100, 130]


def test_boxes_keep_their_order_and_their_distance() -> None:
    pick = random.Random(2)
    for _ in range(50):
        heights = [pick.uniform(5, 80) for _ in range(12)]
        found = spread([pick.uniform(-300, 300) for _ in heights], heights, 7)
        for (y1, h1), (y2, h2) in pairwise(zip(found, heights, strict=True)):
            assert y2 - y1 >= (h1 + h2) / 2 + 7 - 1e-6


@pytest.mark.parametrize("count", [1, 3, 60, 300])
def test_no_two_boxes_overlap_and_all_are_inside(count: int) -> None:
    pick = random.Random(count)
    lines = [Line(pick.randrange(max(0, node - 30), node), node) for node in range(1, count)]
    sizes = [(pick.choice([60.0, 208.0]), pick.choice([24.0, 62.0, 74.0])) for _ in range(count)]
    found = lay_out(columns_of(count, lines), sizes)
    assert len(found.spots) == count
    assert not any(overlap(one, other) for one, other in combinations(found.spots, 2))
    for spot in found.spots:
        assert spot.x >= MARGIN - 0.01
        assert spot.y >= MARGIN - 0.01
        assert spot.x + spot.width <= found.width - MARGIN + 0.01
        assert spot.y + spot.height <= found.height - MARGIN + 0.01


def test_a_chain_is_one_straight_line_from_left_to_right() -> None:
    found = lay_out(columns_of(4, [Line(0, 1), Line(1, 2), Line(2, 3)]), [(208.0, 62.0)] * 4)
    assert len({spot.middle for spot in found.spots}) == 1
    assert [spot.x for spot in found.spots] == sorted(spot.x for spot in found.spots)


def test_what_waits_for_many_is_in_their_middle() -> None:
    lines = [Line(node, 5) for node in range(5)]
    found = lay_out(columns_of(6, lines), [(208.0, 62.0)] * 6)
    assert found.spots[5].middle == pytest.approx(found.spots[2].middle)


def test_a_line_around_boxes_does_not_run_through_them() -> None:
    """Line 0 → 3 passes the layers of 1 and 2 in lanes."""
    columns = columns_of(4, [Line(0, 1), Line(1, 2), Line(2, 3), Line(0, 3)])
    found = lay_out(columns, [(208.0, 62.0)] * 4)
    lanes = [one for one in found.strokes if one.tip is None]
    assert len(lanes) == 2
    for stroke, box in zip(lanes, found.spots[1:3], strict=True):
        y = float(stroke.path.partition("H")[0].split()[-1])
        assert not box.y <= y <= box.y + box.height


def test_only_ends_at_boxes_have_an_arrow() -> None:
    found = lay_out(columns_of(3, [Line(0, 1), Line(1, 2), Line(0, 2)]), [(100.0, 50.0)] * 3)
    assert sorted(one.line.target for one in found.strokes if one.tip) == [1, 2, 2]
