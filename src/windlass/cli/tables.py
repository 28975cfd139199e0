"""What commands print: tables for people, JSON for machines."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import click
import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from windlass.cli.columns import fitted, shortened
from windlass.observe.log import brief, printable

__all__ = ["NUMBER", "cell", "left", "print_json", "print_pairs", "print_table", "say", "table_of"]

NUMBER = ">"
"""At the start of a column's title: its cells are numbers."""
_ID = 32
_BEFORE_VALUES = 6
"""Columns beside the names of `print_pairs`."""
_WIDE = 1000
"""Nobody's screen: a file or a pipe gets every row on one line."""


def print_json(value: Any) -> None:
    """On one line. Field names stay as they are from release to release."""
    click.echo(msgspec.json.encode(value).decode())


def print_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Nothing is cut: what does not fit is folded. But no id is: where there is little room ids
    are shortened, and the last columns are left out, which is said below.
    """
    told = [[printable(text) for text in row] for row in rows]
    fits = fitted([title.removeprefix(NUMBER) for title in titles], told, _room())
    kept = [titles[at] for at in fits.kept]
    _print(table_of(kept, ([row[at] for at in fits.kept] for row in fits.rows), fits.widths))
    left_out = [title.removeprefix(NUMBER) for title in titles if title not in kept]
    if left_out:
        say(f"Left out for lack of room: {', '.join(left_out)}. A wider terminal has it all.")


def table_of(
    titles: Sequence[str],
    rows: Iterable[Sequence[str]],
    widths: Sequence[int] | None = None,
) -> Table:
    """The same, for whoever shows it beside other things."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    for at, title in enumerate(titles):
        table.add_column(
            title.removeprefix(NUMBER),
            justify="right" if title.startswith(NUMBER) else "left",
            overflow="fold",
            width=None if widths is None else widths[at],
        )
    for row in rows:
        table.add_row(*map(cell, row))
    return table


def print_pairs(title: str, pairs: Iterable[tuple[str, str]]) -> None:
    """One thing, line by line."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    told = list(pairs)
    room = _room()
    narrow = room < _ID + max((len(name) for name, _ in told), default=0) + _BEFORE_VALUES
    for name, value in told:
        table.add_row(f"  {name}", cell(shortened(value) if narrow else value))
    head = printable(title)
    _print(Text(shortened(head) if len(head) > room else head, style="bold"), table)


def left(until: datetime, now: datetime) -> str:
    """How long it is still to ``until``."""
    return brief(until - now)


def cell(text: str) -> Text:
    """As it is: a key may hold what would steer a terminal, or look like markup."""
    return Text(printable(text))


def say(text: str) -> None:
    """A line for people, on a terminal that may not know all its letters."""
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
        # A cell is filled up with spaces, which nobody needs at the end; and a terminal that
        # cannot show a dash is no reason to show nothing.
        say(line.rstrip())
