"""The table, and the same as JSON and as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import StatisticsError, median
from typing import Any, Literal, NamedTuple

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.figure import percentile
from benchmarks.peers.catalogue import SAFE, Entry
from benchmarks.peers.measurement import Samples
from benchmarks.place import Backend

__all__ = [
    "COLUMNS",
    "STORES",
    "Column",
    "Row",
    "as_json",
    "as_markdown",
    "best",
    "label",
    "show",
    "text",
]

STORES: Mapping[Backend, str] = {"sqlite": "SQLite", "redis": "Redis", "postgres": "PostgreSQL"}


class Row(NamedTuple):
    """An entry and what was measured of it."""

    entry: Entry
    samples: Samples


class Column(NamedTuple):
    """A figure of the table."""

    name: str
    title: str
    unit: str
    better: Literal["more", "less"]
    value: Callable[[Samples], float]


COLUMNS = (
    Column("single", "single enqueue", "jobs/s", "more", lambda s: median(s.single)),
    Column("bulk", "bulk enqueue", "jobs/s", "more", lambda s: median(s.bulk)),
    Column("drain", "drain, 1 process", "jobs/s", "more", lambda s: median(s.drain)),
    Column("drain_two", "drain, 2 processes", "jobs/s", "more", lambda s: median(s.drain_two)),
    Column("latency_p50", "latency p50", "ms", "less", lambda s: percentile(s.latency, 0.50)),
    Column("latency_p99", "latency p99", "ms", "less", lambda s: percentile(s.latency, 0.99)),
    Column("sleeps", "10 ms sleeps", "jobs/s", "more", lambda s: median(s.sleeps)),
    Column("memory", "idle memory", "MB", "less", lambda s: median(s.memory)),
)


def label(entry: Entry) -> str:
    """Name a row; a star marks a system that may lose jobs."""
    return f"{entry.title} {STORES[entry.backend]}{'' if entry.delivery == SAFE else ' *'}"


def text(value: float | None) -> str:
    """Write a number as precisely as it deserves; a dash where there is none."""
    if value is None:
        return "–"
    return f"{value:,.{0 if value >= 100 else 1 if value >= 10 else 2}f}"


def values(row: Row) -> dict[str, float | None]:
    """Return the figures of a row; None for those that a failure left out."""
    found: dict[str, float | None] = {}
    for column in COLUMNS:
        try:
            found[column.name] = column.value(row.samples)
        except (StatisticsError, IndexError):
            found[column.name] = None
    return found


def best(rows: Sequence[Row], column: Column, backend: Backend) -> float | None:
    """Return the best figure of a column among the systems on one store."""
    found = [values(row)[column.name] for row in rows if row.entry.backend == backend]
    known = [value for value in found if value is not None]
    if not known:
        return None
    return max(known) if column.better == "more" else min(known)


def show(rows: Sequence[Row], where: Mapping[str, Any], console: Console) -> None:
    """Print the table, with the notes below it. The best figure on each store is bold."""
    table = Table(box=box.ROUNDED)
    table.add_column("")
    for column in COLUMNS:
        table.add_column(f"{column.title}\n{column.unit}", justify="right")
    for backend in dict.fromkeys(row.entry.backend for row in rows):
        table.add_section()
        for row in rows:
            if row.entry.backend == backend:
                table.add_row(*_cells(rows, row))
    console.print(table)
    for row in rows:
        console.print(Text(note(row), "bold red" if row.samples.error else "dim"))
    console.print(", ".join(f"{name} {said}" for name, said in where.items()), style="dim")


def _cells(rows: Sequence[Row], row: Row) -> list[Text]:
    found = values(row)
    cells = [Text(label(row.entry))]
    for column in COLUMNS:
        value = found[column.name]
        leads = value is not None and value == best(rows, column, row.entry.backend)
        cells.append(Text(text(value), "bold" if leads else ""))
    return cells


def note(row: Row) -> str:
    """Say what a row is of: versions, promise, slots; or how it failed."""
    entry, samples = row
    versions = ", ".join(f"{name} {version}" for name, version in samples.versions.items())
    head = f"{label(entry)} ({versions}): "
    if samples.error:
        return f"{head}failed: {samples.error}"
    slots = ", ".join(f"{count} for {load}" for load, count in samples.slots.items())
    return f"{head}{entry.delivery}; {entry.caveat}; slots: {slots}"


def as_json(rows: Sequence[Row], where: Mapping[str, Any], sizes: str) -> str:
    """Return everything that was measured, for machines."""
    systems = [
        {
            "name": row.entry.name,
            "system": row.entry.title,
            "store": row.entry.backend,
            "delivery": row.entry.delivery,
            "caveat": row.entry.caveat,
            "figures": values(row),
            "samples": msgspec.to_builtins(row.samples),
        }
        for row in rows
    ]
    run = {"sizes": sizes, "machine": dict(where), "systems": systems}
    return msgspec.json.format(msgspec.json.encode(run), indent=2).decode()


def as_markdown(rows: Sequence[Row], where: Mapping[str, Any], sizes: str) -> str:
    """Return the table for a page of the documentation."""
    heads = ["", *(f"{column.title}, {column.unit}" for column in COLUMNS), "Delivery"]
    lines = [_line(heads), _line(["---"] + ["---:"] * len(COLUMNS) + ["---"])]
    for row in rows:
        cells = [
            f"**{cell.plain}**" if "bold" in str(cell.style) else cell.plain
            for cell in _cells(rows, row)
        ]
        lines.append(_line([*cells, row.entry.delivery]))
    machine = ", ".join(f"{name} {said}" for name, said in where.items())
    notes = [f"- {note(row)}" for row in rows]
    return "\n".join([*lines, "", *notes, "", f"Sizes {sizes}; {machine}.", ""])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
