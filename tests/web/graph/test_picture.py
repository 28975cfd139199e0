"""The texts and states of boxes."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.web.graph.fixtures import a_flow, a_part, with_end
from windlass._core.flows.flow import Edge, FlowState, PartKind, PartRecord
from windlass._core.flows.part_state import PartState, part_states
from windlass._web.graph.picture import MOST_BOXES, MOST_PARTS, clip_text, draw_flow, title_of
from windlass._web.graph.states import tally_of


def state_of(part: PartRecord) -> PartState:
    return part_states(a_flow(), [part])[part.number]


@pytest.mark.parametrize(
    ("counts", "state"),
    [
        ({"open": 3, "blocked": 3, "succeeded": 0}, PartState.BLOCKED),
        ({"open": 2, "succeeded": 1}, PartState.ACTIVE),
        ({"open": 2, "failed": 1, "succeeded": 0}, PartState.FAILED),
        ({"cancelled": 1, "succeeded": 2}, PartState.CANCELLED),
        ({"stopped": 3, "succeeded": 0}, PartState.STOPPED),
        ({"skipped": 3, "succeeded": 0}, PartState.SKIPPED),
        ({"succeeded": 3}, PartState.SUCCEEDED),
    ],
)
def test_the_state_of_a_part_follows_from_its_counts(
    counts: dict[str, Any], state: PartState
) -> None:
    assert state_of(a_part(0, **{"total": 3, **counts})) is state


@pytest.mark.parametrize(
    ("first", "strict", "state"),
    [
        ({"open": 1, "succeeded": 0}, True, PartState.BLOCKED),
        ({"failed": 1, "succeeded": 0}, True, PartState.STOPPED),
        ({"failed": 1, "succeeded": 0}, False, PartState.SUCCEEDED),
        ({"skipped": 1, "succeeded": 0}, True, PartState.SKIPPED),
        ({}, True, PartState.SUCCEEDED),
    ],
)
def test_a_join_has_the_state_of_what_it_waits_for(
    first: dict[str, Any], *, strict: bool, state: PartState
) -> None:
    join = a_part(1, [Edge(0, strict)], kind=PartKind.JOIN, total=0, succeeded=0)
    assert part_states(a_flow(), [a_part(0, **first), join])[1] is state


def test_the_end_has_the_state_of_the_flow() -> None:
    parts = with_end([a_part(0)])
    assert part_states(a_flow(FlowState.FAILED), parts)[1] is PartState.FAILED


def test_counts_are_told_in_words_and_as_a_bar() -> None:
    tally = tally_of([a_part(0, total=8, open=4, blocked=2, succeeded=2, failed=1, stopped=1)])
    assert tally.words == "4 of 8 ended, 1 failed, 1 stopped"
    assert tally.shares == [
        ("succeeded", 0.0, 25.0),
        ("failed", 25.0, 12.5),
        ("stopped", 37.5, 12.5),
        ("active", 50.0, 25.0),
    ]
    assert tally_of([]).shares == []


def test_boxes_say_what_they_are() -> None:
    parts = [
        a_part(0, name="shop.billing.charge", task="shop.billing.charge"),
        a_part(1, [0], name="rows", total=120, open=60, succeeded=58, failed=2),
        a_part(2, [1], name="all", task="", kind=PartKind.JOIN, total=0, succeeded=0),
        a_part(3, [2], name="undo", when="failed", open=1, blocked=1, succeeded=0),
    ]
    end = a_part(4, range(4), name="end", task="", kind=PartKind.END, total=0, succeeded=0)
    told = a_part(5, [4], name="on_failed", task="shop.tell", kind=PartKind.CALLBACK, when="failed")
    picture = draw_flow(a_flow(), [*parts, end, told])
    assert picture is not None
    assert [(box.shape, box.title, box.subtitle, box.label) for box in picture.boxes] == [
        ("part", "charge", "shop.billing", "succeeded"),
        ("part", "rows", "shop.step_1", "2 failed, 60 of 120 ended"),
        ("join", "all", "", "stopped"),
        ("part", "undo", "only after a failure", "blocked"),
        ("end", "End", "", "blocked"),
        ("callback", "on_failed", "runs shop.tell", "succeeded"),
    ]
    assert [box.bar for box in picture.boxes] == [False, True, False, False, False, False]
    assert picture.boxes[1].words == "Part rows: failed, 60 of 120 ended, 2 failed"
    assert picture.folded == 0


def test_a_folded_box_sums_up_its_parts() -> None:
    middle = [a_part(n, [0], name="row", total=2, succeeded=2) for n in range(1, 99)]
    picture = draw_flow(a_flow(), with_end([a_part(0), *middle]))
    assert picture is not None
    box = picture.boxes[1]
    assert (box.shape, box.title, box.subtitle) == ("fold", "row", "98 parallel parts")
    assert (box.tally.total, box.label, box.id) == (196, "succeeded, 196 of 196", "box-p1")
    assert picture.folded == 98


def test_parts_of_which_some_wait_and_some_have_ended_are_under_way_together() -> None:
    middle = [a_part(n, [0], open=n % 2, blocked=n % 2, succeeded=1 - n % 2) for n in range(1, 99)]
    picture = draw_flow(a_flow(), with_end([a_part(0), *middle]))
    assert picture is not None
    assert picture.boxes[1].state is PartState.ACTIVE


def test_names_are_cut_by_the_room_they_take() -> None:
    assert clip_text("short", 24) == "short"
    assert clip_text("x" * 30, 24) == "x" * 23 + "…"
    assert clip_text("請求書を送る処理の名前", 12) == "請求書を送…"
    assert title_of(a_part(0, name="send", task="shop.mail.send")) == ("send", "shop.mail.send")
    assert title_of(a_part(0, name="trailing.", task="trailing.")) == ("trailing.", "trailing")


def test_a_flow_that_is_too_large_is_not_drawn() -> None:
    fan = with_end([a_part(0), *[a_part(n, [0]) for n in range(1, MOST_BOXES + 10)]])
    assert draw_flow(a_flow(), fan) is not None
    assert draw_flow(a_flow(), fan, {"p1"}) is None
    assert draw_flow(a_flow(), [a_part(n) for n in range(MOST_PARTS + 1)]) is None


@pytest.mark.parametrize("count", [3, 60, 500, 5_000])
def test_drawing_takes_a_moment(count: int) -> None:
    """The server draws between other requests."""
    chains = [a_part(n, [n - 1 if n % 5 else 0], name=f"step {n % 5}") for n in range(1, count)]
    begun = time.process_time()
    picture = draw_flow(a_flow(), with_end([a_part(0), *chains]))
    assert picture is not None
    assert len(picture.boxes) <= 62
    assert time.process_time() - begun < 0.5
