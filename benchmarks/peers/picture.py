"""The figures as an SVG picture: one row per system, one column of bars per figure.

Bars of a column share one scale that starts at zero. The picture follows the reader's light or dark
theme, and loads nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from benchmarks.peers.report import COLUMNS, Column, Row, label, text, values

__all__ = ["draw"]

_LABEL, _COLUMN, _LINE, _TOP, _GAP = 170, 130, 24, 64, 14
"""Width of the names and of a column; height of a row and of the head; space between stores."""
_BAR = 64
"""The longest bar. The number is written after it."""

_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #1f2328; }
.head { font-weight: 600; }
.unit, .foot { fill: #59636e; font-size: 11px; }
.number { font-variant-numeric: tabular-nums; }
.ours { font-weight: 600; }
rect { fill: #b6c2cf; }
rect.ours { fill: #1f6feb; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .unit, .foot { fill: #9198a1; }
  rect { fill: #4d5761; }
  rect.ours { fill: #4493f8; }
}
"""


def draw(rows: Sequence[Row], where: Mapping[str, Any], sizes: str) -> str:
    """Return the picture."""
    groups = {
        backend: [row for row in rows if row.entry.backend == backend]
        for backend in dict.fromkeys(row.entry.backend for row in rows)
    }
    parts = [_head(number, column) for number, column in enumerate(COLUMNS)]
    y = _TOP
    for group in groups.values():
        for row in group:
            parts += _row(rows, row, y)
            y += _LINE
        y += _GAP
    machine = ", ".join(f"{name} {said}" for name, said in where.items())
    parts.append(_text(8, y + 8, f"Sizes {sizes}; {machine}", "foot"))
    parts.append(_text(8, y + 26, "* at most once: jobs of a killed worker are lost", "foot"))
    width, height = _LABEL + _COLUMN * len(COLUMNS), y + 40
    title = "Job systems for Python, measured in one run"
    opening = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'width="{width}" height="{height}" role="img" aria-label="{title}">'
    )
    head = [opening, f"<title>{title}</title>", f"<style>{_STYLE}</style>"]
    return "\n".join([*head, *parts, "</svg>", ""])


def _head(number: int, column: Column) -> str:
    x = _LABEL + number * _COLUMN
    unit = f"{column.unit}, {column.better} is better"
    return _text(x, 24, column.title, "head") + _text(x, 42, unit, "unit")


def _row(rows: Sequence[Row], row: Row, y: int) -> list[str]:
    ours = "ours" if row.entry.library == "windlass" else ""
    parts = [_text(8, y + 14, label(row.entry), ours)]
    for number, column in enumerate(COLUMNS):
        x, value = _LABEL + number * _COLUMN, values(row)[column.name]
        length = 0.0 if value is None else _BAR * value / _most(rows, column)
        if value is not None:
            parts.append(
                f'<rect class="{ours}" x="{x}" y="{y + 3}" width="{max(length, 1):.1f}" '
                'height="14" rx="2"/>'
            )
        parts.append(_text(x + length + 6, y + 14, text(value), f"number {ours}".strip()))
    return parts


def _most(rows: Sequence[Row], column: Column) -> float:
    return max(value for row in rows if (value := values(row)[column.name]) is not None)


def _text(x: float, y: float, said: str, kind: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}">{escape(said)}</text>'
