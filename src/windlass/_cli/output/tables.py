"""Output of commands: tables for people, JSON for machines."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import click
import msgspec
from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from windlass._core.job.ids import short_id
from windlass._observe.log import brief, printable

__all__ = [
    "GAP",
    "NUMBER",
    "FittingTable",
    "TableLayout",
    "fit_table",
    "left",
    "plain_cell",
    "print_json",
    "print_line",
    "print_pairs",
    "print_table",
    "shorten_ids",
    "table_of",
]

NUMBER = ">"
"""At the start of a column's title: its cells are numbers."""
_ID = 32
_BEFORE_VALUES = 6
"""Columns beside the names of `print_pairs`."""
_WIDE = 1000
"""Wider than any screen: a file or a pipe gets every row on one line."""

GAP = 3
"""Between two columns."""
_NARROW = 8
"""A column of words is at least so wide …"""
_CUT = 12
"""… and one whose cells are cut."""
_WHOLE = re.compile(r"\b[0-9a-f]{32}\b")
_UNBROKEN = re.compile(r"\b(?:[0-9a-f]{32}|[0-9a-f]{8}…[0-9a-f]{6}|w[0-9a-f]{12})\b")
"""Ids of jobs, whole and shortened, and of workers: what is folded cannot be copied."""
_WORD = re.compile(r"\S+")

Rows = Sequence[Sequence[str]]


class TableLayout(NamedTuple):
    """The columns that fit, and their widths."""

    kept: Sequence[int]
    """The places of the columns."""
    rows: Rows
    """All columns of them, with ids and words as there is room for."""
    widths: Sequence[int] | None
    """Of the kept columns; None: as wide as they are."""


def shorten_ids(text: str) -> str:
    """Return a text with its ids shortened."""
    return _WHOLE.sub(lambda found: short_id(found[0]), text)


def fit_table(
    titles: Sequence[str],
    rows: Rows,
    room: int,
    *,
    going: Sequence[str] = (),
    cut: Sequence[str] = (),
) -> TableLayout:
    """Fit a table into a terminal of this width.

    ``going``: titles of columns that are left out first, in this order; then the last ones.
    ``cut``: titles of columns whose cells are cut where they do not fit; all others are then as
    wide as they are, and every row is one line. If none is named, cells are folded between words,
    and only words that are too long are cut. Ids never are.
    """
    kept = list(range(len(titles)))
    if _taken(_natural(titles, rows)) <= room:
        return TableLayout(kept, rows, None)
    rows = [[shorten_ids(text) for text in row] for row in rows]
    natural = _natural(titles, rows)
    if _taken(natural) <= room:
        return TableLayout(kept, rows, None)
    ids = [_longest(texts, _ids_of) for texts in zip(*rows, strict=True)]
    words = [_longest([title], str.split) for title in titles]
    least = [
        max(have, word, wish if cut and title not in cut else min(wish, _CUT if cut else _NARROW))
        for title, have, word, wish in zip(titles, ids, words, natural, strict=True)
    ]
    # A column that says nothing of any row makes room first.
    kept = [at for at in kept if at == 0 or any(row[at] for row in rows)]
    while _taken([least[at] for at in kept]) > room:
        free = [at for at in kept[1:] if not ids[at]]
        if not free:
            break
        first = [titles.index(title) for title in going if titles.index(title) in free]
        kept.remove(first[0] if first else free[-1])
    widths = _shared([least[at] for at in kept], [natural[at] for at in kept], room)
    wide = dict(zip(kept, widths, strict=True))
    rows = [
        [_cut(text, wide.get(at, room), one_line=bool(cut)) for at, text in enumerate(row)]
        for row in rows
    ]
    return TableLayout(kept, rows, widths)


def _cut(text: str, width: int, *, one_line: bool) -> str:
    """Shorten what would be folded within a word, or folded at all."""
    if _ids_of(text):
        return text
    if not one_line:
        return _WORD.sub(lambda found: _middle(found[0], width), text)
    return "\n".join(
        _middle(line, width) if " " not in line.strip() else _end(line, width)
        for line in text.splitlines()
    )


def _middle(word: str, width: int) -> str:
    """Shorten a name in the middle: both ends tell it apart: ``shop.orde…refund``."""
    if cell_len(word) <= width:
        return word
    ahead = (width - 1) // 2
    return set_cell_size(word, ahead).rstrip() + "…" + _tail(word, width - 1 - ahead)


def _tail(word: str, width: int) -> str:
    while cell_len(word) > width:
        word = word[1:]
    return word


def _end(line: str, width: int) -> str:
    return line if cell_len(line) <= width else set_cell_size(line, width - 1).rstrip() + "…"


def _natural(titles: Sequence[str], rows: Rows) -> list[int]:
    columns = zip(titles, *rows, strict=True)
    return [_longest(texts, str.splitlines) for texts in columns]


def _longest(texts: Iterable[str], parts_of: Callable[[str], list[str]]) -> int:
    return max((cell_len(part) for text in texts for part in parts_of(text)), default=0)


def _ids_of(text: str) -> list[str]:
    return _UNBROKEN.findall(text)


def _taken(widths: Sequence[int]) -> int:
    return sum(widths) + GAP * (len(widths) - 1)


def _shared(least: Sequence[int], wished: Sequence[int], room: int) -> list[int]:
    """Give the remaining width to the narrowest columns that lack room, one after the other."""
    widths, left = list(least), room - _taken(least)
    lacking = [at for at, wish in enumerate(wished) if widths[at] < wish]
    while left > 0 and lacking:
        at = min(lacking, key=lambda place: widths[place])
        widths[at] += 1
        left -= 1
        if widths[at] >= wished[at]:
            lacking.remove(at)
    return widths


def print_json(value: Any) -> None:
    """Print JSON on one line. Field names stay the same from release to release."""
    click.echo(msgspec.json.encode(value).decode())


def print_table(
    titles: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    going: Sequence[str] = (),
    cut: Sequence[str] = (),
) -> None:
    """Print what fits (`fit_table`): ids and long words are shortened where there is little
    room, and columns are left out, which is said below. A pipe gets everything.
    """
    told = [[printable(text) for text in row] for row in rows]
    plain = [title.removeprefix(NUMBER) for title in titles]
    fits = fit_table(plain, told, _room(), going=going, cut=cut)
    kept = [titles[at] for at in fits.kept]
    _print(table_of(kept, ([row[at] for at in fits.kept] for row in fits.rows), fits.widths))
    left_out = [
        title
        for at, title in enumerate(plain)
        if at not in fits.kept and any(row[at] for row in told)
    ]
    if left_out:
        print_line(f"Columns left out: {', '.join(left_out)}. A wider terminal shows them.")


def table_of(
    titles: Sequence[str],
    rows: Iterable[Sequence[str]],
    widths: Sequence[int] | None = None,
) -> Table:
    """Return the same table, to be shown beside other output."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for at, title in enumerate(titles):
        table.add_column(
            title.removeprefix(NUMBER),
            justify="right" if title.startswith(NUMBER) else "left",
            overflow="fold",
            width=None if widths is None else widths[at],
        )
    for row in rows:
        table.add_row(*map(plain_cell, row))
    return table


class FittingTable:
    """A table that fits the room it is given, each row on one line."""

    def __init__(
        self,
        titles: Sequence[str],
        rows: Iterable[Sequence[str]],
        *,
        cut: Sequence[str],
        going: Sequence[str] = (),
    ) -> None:
        """``cut``, ``going``: as `fit_table` says."""
        self._titles, self._cut, self._going = titles, cut, going
        self._rows = [[printable(text) for text in row] for row in rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Choose columns for the width that there is."""
        plain = [title.removeprefix(NUMBER) for title in self._titles]
        fits = fit_table(plain, self._rows, options.max_width, going=self._going, cut=self._cut)
        rows = ([row[at] for at in fits.kept] for row in fits.rows)
        yield table_of([self._titles[at] for at in fits.kept], rows, fits.widths)


def print_pairs(title: str, pairs: Iterable[tuple[str, str]]) -> None:
    """Print one thing, line by line."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    told = list(pairs)
    room = _room()
    narrow = room < _ID + max((len(name) for name, _ in told), default=0) + _BEFORE_VALUES
    for name, value in told:
        table.add_row(f"  {name}", plain_cell(shorten_ids(value) if narrow else value))
    head = printable(title)
    _print(Text(shorten_ids(head) if len(head) > room else head, style="bold"), table)


def left(until: datetime, now: datetime) -> str:
    """Return how long it is still to ``until``."""
    return brief(until - now)


def plain_cell(text: str) -> Text:
    """Return a cell as it is: a key may hold text that would control a terminal, or look like
    markup.
    """
    return Text(printable(text))


def print_line(text: str) -> None:
    """Print a line for people, on a terminal that may not know all its letters."""
    encoding = sys.stdout.encoding or "utf-8"
    click.echo(text.encode(encoding, "replace").decode(encoding))


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else _WIDE, highlight=False)


def _room() -> int:
    return _console().width


def _print(*parts: Text | Table) -> None:
    console = _console()
    with console.capture() as captured:
        console.print(*parts, sep="\n")
    for line in captured.get().splitlines():
        # Trailing spaces of the last cell are removed. A terminal that cannot show a dash gets
        # another character.
        print_line(line.rstrip())
