"""From a flow to its picture: the texts, sizes and places of its boxes."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Mapping, Sequence
from typing import Literal

import msgspec

from windlass._core.flows.drawn import drawn_parts
from windlass._core.flows.flow import FlowRecord, PartKind, PartRecord
from windlass._core.flows.part_state import PartState, part_states
from windlass._web.graph.folding import Fold, fold
from windlass._web.graph.geometry import Layout, Spot, Stroke, lay_out
from windlass._web.graph.layers import columns_of
from windlass._web.graph.states import Tally, tally_of, worst_state

__all__ = ["MOST_BOXES", "FlowPicture", "PictureBox", "clip_text", "draw_flow", "title_of"]

MOST_BOXES = 1_500
"""Of more no picture is drawn: a browser, too, takes long for it."""
MOST_PARTS = 20_000
"""Of more parts no picture is made: others wait for the server meanwhile."""
WIDTH = 208.0
_SINGLE, _GROUP = 62.0, 74.0
_END = (120.0, 46.0)
_JOIN_HEIGHT = 26.0
_TITLE, _SUBTITLE, _LABEL, _JOIN = 24, 30, 26, 14
"""Columns of text that fit into a box."""
_COLUMN = 7.2
"""Pixels of one column in a join."""

Shape = Literal["part", "fold", "join", "end", "callback"]
_SHAPES: Mapping[PartKind, Shape] = {
    PartKind.JOBS: "part",
    PartKind.JOIN: "join",
    PartKind.END: "end",
    PartKind.CALLBACK: "callback",
    PartKind.ADDED: "join",
}


class PictureBox(msgspec.Struct, frozen=True, kw_only=True):
    """One box with all that is written in it."""

    shape: Shape
    parts: tuple[int, ...]
    opens: str
    """The key by which it is opened; empty: it holds nothing folded."""
    title: str
    subtitle: str
    state: PartState
    tally: Tally
    label: str
    """The state in words, with counts where there are several jobs."""
    words: str
    """All of it in one sentence, for a tooltip and for screen readers."""
    spot: Spot
    here: bool = False
    """It holds the part that the address asks for."""

    @property
    def id(self) -> str:
        """Its name in the page. It stays while the flow runs."""
        return f"box-{self.opens or self.parts[0]}"

    @property
    def bar(self) -> bool:
        """Whether it shows how much has ended: one job has no progress."""
        return self.tally.total > 1


class FlowPicture(msgspec.Struct, frozen=True, kw_only=True):
    """A flow, drawn."""

    boxes: Sequence[PictureBox]
    strokes: Sequence[Stroke]
    width: float
    height: float
    parts: int
    folded: int
    """Parts that are inside folded boxes."""

    @property
    def whole(self) -> bool:
        """Whether it can be drawn with all its parts."""
        return self.parts <= MOST_BOXES


def draw_flow(
    flow: FlowRecord,
    parts: Sequence[PartRecord],
    opened: Collection[str] = (),
    *,
    here: int | None = None,
) -> FlowPicture | None:
    """Draw a flow; None: it is too large, even with its parts folded. ``here``: the number of a
    part to point out.
    """
    if len(parts) > MOST_PARTS:
        return None
    folds, lines = fold(drawn_parts(parts), opened)
    if len(folds) > MOST_BOXES:
        return None
    states = part_states(flow, parts)
    by_number = {part.number: part for part in parts}
    drafts = [_draft(one, by_number, states) for one in folds]
    layout: Layout = lay_out(columns_of(len(folds), lines), [_size(box) for box in drafts])
    boxes = [
        msgspec.structs.replace(box, spot=spot, here=here in box.parts)
        for box, spot in zip(drafts, layout.spots, strict=True)
    ]
    return FlowPicture(
        boxes=boxes,
        strokes=layout.strokes,
        width=layout.width,
        height=layout.height,
        parts=len(parts),
        folded=sum(len(one.parts) for one in folds if one.key),
    )


def _draft(
    one: Fold, by_number: Mapping[int, PartRecord], states: Mapping[int, PartState]
) -> PictureBox:
    """Return the box before it has its place."""
    own = [by_number[number] for number in one.parts]
    state = worst_state(states[part.number] for part in own)
    tally = tally_of(own)
    title, subtitle = _texts(one, own)
    shape: Shape = "fold" if one.key else _SHAPES[own[0].kind]
    counted = f", {tally.words}" if tally.total > 1 else ""
    return PictureBox(
        shape=shape,
        parts=one.parts,
        opens=one.key,
        title=clip_text(title, _JOIN if shape == "join" else _TITLE),
        subtitle=clip_text(subtitle, _SUBTITLE),
        state=state,
        tally=tally,
        label=_label(state, tally),
        words=f"{_full_name(one, own)}: {state}{counted}",
        spot=Spot(0, 0, 0, 0),
    )


def _texts(one: Fold, own: Sequence[PartRecord]) -> tuple[str, str]:
    first = own[0]
    if one.group:
        return one.group, f"group of {len(own) - 1:,} parts"
    if one.key:
        names = {title_of(part)[0] for part in own}
        title = names.pop() if len(names) == 1 else f"{title_of(first)[0]} …"
        return (
            title,
            f"chain of {len(own):,} parts" if one.chain else f"{len(own):,} parallel parts",
        )
    if first.kind is PartKind.END:
        return "End", ""
    title, subtitle = title_of(first)
    if first.kind is PartKind.CALLBACK:
        return title, f"runs {first.task}"
    if first.when == "failed":
        return title, "only after a failure"
    return title, subtitle


def title_of(part: PartRecord) -> tuple[str, str]:
    """Return the two lines that name a part: ``charge`` and ``shop.billing`` for the part of task
    ``shop.billing.charge``; its own name and its task where it has one.
    """
    if part.name != part.task:
        return part.name, part.task
    module, _, name = part.name.rpartition(".")
    return name or part.name, module


def _full_name(one: Fold, own: Sequence[PartRecord]) -> str:
    first = own[0]
    if one.group:
        return f"Group {one.group}, {len(own) - 1:,} parts"
    if one.key:
        what = "chain of" if one.chain else "parallel"
        return f"{len(own):,} parts, {what} {first.name}" + (
            "" if len({part.name for part in own}) == 1 else " and others"
        )
    match first.kind:
        case PartKind.END:
            return "End of the flow"
        case PartKind.JOIN:
            return f"Join {first.name}"
        case PartKind.ADDED:
            return f"Added flow {first.name}"
        case PartKind.CALLBACK:
            return f"Callback {first.name}, task {first.task}"
        case PartKind.JOBS:
            return f"Part {first.name}"


def _label(state: PartState, tally: Tally) -> str:
    if tally.total <= 1:
        return state
    counts = f"{tally.ended:,} of {tally.total:,}"
    told = f"{tally.failed:,} failed, {counts} ended" if tally.failed else f"{state}, {counts}"
    shorter = f"{tally.failed:,} failed" if tally.failed else counts
    return told if len(told) <= _LABEL else shorter


def _size(box: PictureBox) -> tuple[float, float]:
    match box.shape:
        case "end":
            return _END
        case "join":
            return 40 + _COLUMN * text_columns(box.title), _JOIN_HEIGHT
        case _:
            return WIDTH, _GROUP if box.bar else _SINGLE


def text_columns(text: str) -> int:
    """Return the columns that a text takes: a wide character takes two."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)


def clip_text(text: str, most: int) -> str:
    """Return as much of a text as fits."""
    if text_columns(text) <= most:
        return text
    kept = ""
    for letter in text:
        if text_columns(kept + letter) >= most:
            break
        kept += letter
    return f"{kept}…"
