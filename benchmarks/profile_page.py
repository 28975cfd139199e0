"""The figures of `benchmarks.figures.server.profile` as table and picture for a page of the docs.

The table replaces what is between two marks on the page. The picture lies in ``images`` beside the
page's folder, follows the reader's light or dark theme, and loads nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from benchmarks.figures.server.profile import PARTS, SLOTS

__all__ = ["write_page"]

_BEGIN, _END = "<!-- profile -->", "<!-- /profile -->"
_LABEL, _BAR, _LINE, _TOP = 210, 560, 22, 60
"""Width of the names and of the longest bar; height of a row and of the head."""
_COLOURS = (
    *("#8250df", "#1f6feb", "#2da44e", "#bf8700", "#cf222e"),
    *("#0f8a8a", "#8c959f", "#d4a72c", "#57606a"),
)
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1f2328; }
.head { font-weight: 600; }
.foot { fill: #59636e; font-size: 11px; }
@media (prefers-color-scheme: dark) { text { fill: #e6edf3; } .foot { fill: #9198a1; } }
"""

Profile = Mapping[str, float]
"""Microseconds by the name of the figure."""


def write_page(page: Path, runs: Sequence[Mapping[str, Any]]) -> None:
    """Put the profiles of these runs, one for each storage, on ``page``."""
    profiles = {run["machine"]["storage"]: _profile(run) for run in runs}
    notes = {run["machine"]["storage"]: _notes(run) for run in runs}
    text = page.read_text(encoding="utf-8")
    before, _, rest = text.partition(_BEGIN)
    _, mark, after = rest.partition(_END)
    if not mark:
        raise ValueError(f"{page} does not have {_BEGIN} and {_END}")
    tables = [_table(name, profile, notes[name]) for name, profile in profiles.items()]
    body = "\n\n".join([_BEGIN, *tables, _END])
    page.write_text(f"{before}{body}{after}", encoding="utf-8")
    picture = page.parent.parent / "images" / "profile.svg"
    picture.write_text(_draw(profiles, runs[0]["machine"]), encoding="utf-8")


def _profile(run: Mapping[str, Any]) -> Profile:
    return {figure["name"]: figure["measured"] for figure in run["figures"]}


def _notes(run: Mapping[str, Any]) -> str:
    """Return the largest functions or commands in the server, with the most slots."""
    name = f"profile_{SLOTS[-1]}_server"
    return next((figure["note"] for figure in run["figures"] if figure["name"] == name), "")


def _table(storage: str, profile: Profile, note: str) -> str:
    head = f"| {storage} | " + " | ".join(_slots(slots) for slots in SLOTS) + " |"
    lines = [head, "|---|" + "---:|" * len(SLOTS)]
    for part, title in (PARTS | {"all": "**all**"}).items():
        numbers = [profile.get(f"profile_{slots}_{part}", 0.0) for slots in SLOTS]
        if any(numbers):
            cells = " | ".join(f"{number:.1f}" for number in numbers)
            lines.append(f"| {title} | {cells} |")
    if note:
        lines += ["", f"Inside the server, with {SLOTS[-1]} slots: {note}."]
    return "\n".join(lines)


def _slots(slots: int) -> str:
    return f"{slots} slot" if slots == 1 else f"{slots} slots"


def _draw(profiles: Mapping[str, Profile], machine: Mapping[str, Any]) -> str:
    parts = [_text(8, 22, "Processor time of a job by part, in shares", "head")]
    x = 8.0
    for (_, title), colour in zip(PARTS.items(), _COLOURS, strict=True):
        parts += [_box(x, 32, 10, 10, colour), _text(x + 14, 41, title, "foot")]
        x += 30 + 5.6 * len(title)
    y = _TOP
    for storage, profile in profiles.items():
        for slots in SLOTS:
            parts += _row(f"{storage.partition(',')[0]}, {_slots(slots)}", profile, slots, y)
            y += _LINE
        y += 10
    said = ", ".join(f"{name} {value}" for name, value in machine.items() if name != "storage")
    parts.append(_text(8, y + 10, said, "foot"))
    width, height = _LABEL + _BAR + 90, y + 24
    title = "Where the processor time of one job goes"
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-label="{title}">'
    )
    head = [opening, f"<title>{title}</title>", f"<style>{_STYLE}</style>"]
    return "\n".join([*head, *parts, "</svg>", ""])


def _row(name: str, profile: Profile, slots: int, y: float) -> list[str]:
    """Draw one bar. Its parts are shares: with one slot a job costs ten times as much."""
    whole = profile[f"profile_{slots}_all"] or 1.0
    row, x = [_text(8, y + 13, name, "")], float(_LABEL)
    for part, colour in zip(PARTS, _COLOURS, strict=True):
        length = _BAR * profile.get(f"profile_{slots}_{part}", 0.0) / whole
        row.append(_box(x, y, length, 16, colour))
        x += length
    return [*row, _text(x + 8, y + 13, f"{whole:,.0f} µs", "")]


def _box(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{height}" fill="{colour}"/>'


def _text(x: float, y: float, said: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(said)}</text>'
