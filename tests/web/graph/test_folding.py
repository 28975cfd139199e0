"""Large flows have few boxes."""

from __future__ import annotations

import random

from tests.web.graph.fixtures import a_part, with_end
from windlass._core.flows.flow import Edge, PartKind, PartRecord
from windlass._web.graph.folding import ALL, ENOUGH, Fold, fold, visible_edges
from windlass._web.graph.layers import Line


def fan_out(count: int) -> list[PartRecord]:
    middle = [a_part(number, [0]) for number in range(1, count - 1)]
    return with_end([a_part(0), *middle, a_part(count - 1, range(1, count - 1))])


def lanes(regions: int, chains: int, *steps: str) -> list[PartRecord]:
    """In each region chains of the same steps, side by side."""
    parts = [a_part(0)]
    for region in range(regions):
        first = len(parts)
        parts.append(a_part(first, [0], name=f"region {region}"))
        for _ in range(chains):
            before = first
            for step in steps:
                parts.append(a_part(len(parts), [before], name=step, task=step))
                before = len(parts) - 1
    return with_end(parts)


def scattered(count: int) -> list[PartRecord]:
    pick = random.Random(3)
    return with_end(
        [a_part(n, sorted(pick.sample(range(max(0, n - 40), n), min(n, 2)))) for n in range(count)]
    )


def test_the_end_is_connected_only_with_parts_that_nothing_else_waits_for() -> None:
    parts = with_end([a_part(0), a_part(1, [0]), a_part(2, [Edge(0, strict=False)])])
    lines = visible_edges(parts)
    assert lines == [Line(0, 1), Line(0, 2, dashed=True), Line(1, 3), Line(2, 3)]


def test_sixty_parts_are_all_drawn() -> None:
    boxes, _ = fold(scattered(ENOUGH))
    assert [box.parts for box in boxes] == [(number,) for number in range(ENOUGH + 1)]


def test_parallel_parts_with_the_same_neighbours_are_one_box() -> None:
    boxes, lines = fold(fan_out(500))
    assert boxes[1] == Fold("p1", tuple(range(1, 499)))
    assert [box.parts[0] for box in boxes] == [0, 1, 499, 500]
    assert lines == [Line(0, 1), Line(1, 2), Line(2, 3)]


def test_equal_chains_are_folded_step_by_step_in_each_region() -> None:
    boxes, _ = fold(lanes(4, 30, "load", "price", "store"))
    assert sorted(len(box.parts) for box in boxes) == [1] * 6 + [30] * 12


def grouped(groups: int, size: int) -> list[PartRecord]:
    """Groups one after the other, each of parts that all differ."""
    parts: list[PartRecord] = []
    for group in range(groups):
        first = len(parts)
        before = [first - 1] if group else []
        own = range(first, first + size)
        parts += [
            a_part(number, before, name=f"part {number}", task=f"t{number}") for number in own
        ]
        parts.append(a_part(len(parts), own, name=f"group {group}", kind=PartKind.JOIN))
    return with_end(parts)


def test_groups_are_folded_first_and_keep_their_names() -> None:
    boxes, lines = fold(grouped(8, 10))
    assert [box.group for box in boxes] == [f"group {n}" for n in range(8)] + [""]
    assert [len(box.parts) for box in boxes] == [11] * 8 + [1]
    assert lines == [Line(n, n + 1) for n in range(8)]


def test_an_opened_group_shows_its_parts_and_a_large_one_its_own_folds() -> None:
    opened, _ = fold(grouped(8, 10), {"g11"})
    assert {(number,) for number in range(11, 22)} <= {box.parts for box in opened}
    large, _ = fold(grouped(2, 200), {"g0"})
    assert len(large) <= ENOUGH + 1
    assert [box.group for box in large if box.group] == ["group 1"]


def test_a_group_in_a_group_is_folded_with_it() -> None:
    parts = [a_part(n, name=f"part {n}", task=f"t{n}") for n in range(70)]
    parts.append(a_part(70, range(40), name="inner", kind=PartKind.JOIN))
    parts.append(a_part(71, [*range(40, 70), 70], name="outer", kind=PartKind.JOIN))
    boxes, _ = fold(with_end(parts))
    assert [(box.group, len(box.parts)) for box in boxes] == [("outer", 72), ("", 1)]


def test_groups_that_would_wait_for_each_other_are_not_folded_as_groups() -> None:
    parts = [a_part(n, name=f"part {n}", task=f"t{n}") for n in range(80)]
    parts[1] = a_part(1, [40], name="part 1", task="t1")  # each group has a part after the other
    parts[41] = a_part(41, [0], name="part 41", task="t41")
    parts.append(a_part(80, range(40), name="a", kind=PartKind.JOIN))
    parts.append(a_part(81, range(40, 80), name="b", kind=PartKind.JOIN))
    boxes, _ = fold(with_end(parts))
    assert not any(box.group for box in boxes)
    assert len(boxes) <= ENOUGH + 1


def test_all_boxes_are_opened_at_once() -> None:
    boxes, _ = fold(fan_out(500), {ALL})
    assert len(boxes) == 501


def test_parts_of_one_task_in_one_layer_are_one_box_where_that_is_not_enough() -> None:
    boxes, _ = fold(lanes(100, 2, "load", "price"))
    folded = [box for box in boxes if box.key]
    assert len(boxes) <= ENOUGH + 1
    assert sorted(len(box.parts) for box in folded)[-2:] == [200, 200]


def test_long_chains_are_cut_into_folded_pieces() -> None:
    parts = with_end([a_part(n, [n - 1] if n else []) for n in range(500)])
    boxes, lines = fold(parts)
    assert [len(box.parts) for box in boxes] == [25] * 20 + [1]
    assert all(box.chain for box in boxes[:-1])
    assert lines == [Line(n, n + 1) for n in range(20)]


def test_any_flow_of_some_hundred_parts_is_folded_to_what_is_legible() -> None:
    for count in (61, 200, 500):
        boxes, lines = fold(scattered(count))
        assert len(boxes) <= ENOUGH + 1
        assert sorted(number for box in boxes for number in box.parts) == list(range(count + 1))
        assert all(line.source != line.target for line in lines)


def test_an_opened_box_shows_its_parts_and_the_others_stay_folded() -> None:
    parts = lanes(4, 30, "load", "price", "store")
    folded = [box for box in fold(parts)[0] if box.key]
    opened, _ = fold(parts, {folded[0].key})
    shown = {box.parts for box in opened}
    assert {(number,) for number in folded[0].parts} <= shown
    assert {box.parts for box in folded[1:]} <= shown


def test_an_unknown_key_opens_nothing() -> None:
    assert fold(fan_out(500), {"p2", "x", ""}) == fold(fan_out(500))


def test_counts_do_not_change_the_shape() -> None:
    def shape(**counts: int) -> object:
        parts = [a_part(n, [n // 4] if n else [], **counts) for n in range(300)]
        return fold(with_end(parts))

    assert shape() == shape(total=9, open=5, succeeded=4)


def test_an_edge_that_needs_success_wins_over_one_that_needs_only_the_end() -> None:
    middle = [a_part(number, [0]) for number in range(1, 99)]
    edges = [Edge(number, strict=number == 1) for number in range(1, 99)]
    parts = with_end([a_part(0), *middle, a_part(99, edges)])
    boxes, lines = fold(parts)
    places = {box.parts: place for place, box in enumerate(boxes)}
    last = places[99,]
    assert {line.dashed for line in lines if line.target == last} == {True, False}


def test_the_end_and_callbacks_are_never_folded() -> None:
    parts = scattered(500)
    called = [a_part(501 + n, [500], kind=PartKind.CALLBACK) for n in range(3)]
    boxes, lines = fold([*parts, *called])
    assert [box.parts for box in boxes][-4:] == [(500,), (501,), (502,), (503,)]
    last = len(boxes)
    assert lines[-3:] == [Line(last - 4, last - n) for n in (3, 2, 1)]
