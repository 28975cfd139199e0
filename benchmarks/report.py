"""The table, and the same as JSON."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from typing import Any

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from benchmarks.child import loop_factory
from benchmarks.figure import Figure, Target

__all__ = ["as_json", "as_run", "machine", "show"]


def machine() -> dict[str, Any]:
    """Where it was measured."""
    loop = loop_factory()
    return {
        "python": platform.python_version(),
        "loop": "asyncio" if loop is None else loop.__module__.partition(".")[0],
        "system": f"{platform.system()} {platform.machine()}",
        "processors": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
    }


def show(figures: Sequence[Figure], where: dict[str, Any], console: Console) -> None:
    """Print the table, and the notes below it."""
    table = Table(box=box.ROUNDED, show_lines=False)
    table.add_column("figure")
    for name in ("measured", "yardstick", "ratio", "target"):
        table.add_column(name, justify="right")
    table.add_column("")
    for figure in figures:
        table.add_row(
            figure.title,
            value(figure.measured, figure.unit),
            _yardstick(figure),
            "" if figure.ratio is None else f"{figure.ratio:.2f}",
            "" if figure.target is None else goal(figure.target, figure.unit),
            _verdict(figure),
        )
    console.print(table)
    for figure in figures:
        if figure.note:
            console.print(Text.assemble((f"{figure.title}: ", "dim"), (figure.note, "dim")))
    console.print(", ".join(f"{name} {said}" for name, said in where.items()), style="dim")


def value(number: float, unit: str) -> str:
    """Return a number with its unit, as precise as it deserves."""
    places = 0 if number >= 1000 else 1 if number >= 10 else 2
    return f"{number:,.{places}f} {unit}"


def goal(target: Target, unit: str) -> str:
    """Return the goal of a figure."""
    sign = {"at least": "≥", "at most": "≤", "under": "<"}[target.bound]
    return f"{sign} {target.value:g}" + ("" if target.of == "ratio" else f" {unit}")


def _yardstick(figure: Figure) -> str:
    if figure.yardstick is None:
        return ""
    return f"{figure.yardstick_name} {value(figure.yardstick, figure.unit)}"


def _verdict(figure: Figure) -> Text:
    if figure.met is None:
        return Text("")
    return Text("met", "green") if figure.met else Text("missed", "bold red")


def as_run(figures: Sequence[Figure], where: dict[str, Any], sizes: str) -> dict[str, Any]:
    """Everything about one backend."""
    rows = [
        msgspec.to_builtins(figure) | {"ratio": figure.ratio, "met": figure.met}
        for figure in figures
    ]
    return {"sizes": sizes, "machine": where, "figures": rows}


def as_json(runs: Sequence[dict[str, Any]]) -> str:
    """For machines: one entry per backend."""
    return msgspec.json.format(msgspec.json.encode(runs), indent=2).decode()
