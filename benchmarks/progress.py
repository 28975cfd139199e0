"""The progress display: a moving line on a terminal, plain lines elsewhere."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

__all__ = ["Display"]


class Display:
    """Shows how many of ``total`` measurements are done, and which one is under way."""

    def __init__(self, console: Console, total: int, prefix: str = "") -> None:
        self._console, self._total, self._prefix, self._name = console, total, prefix, ""
        self._progress = Progress(
            SpinnerColumn(),
            BarColumn(bar_width=24),
            TextColumn("{task.description}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
            refresh_per_second=2,  # drawing takes processor time from what is measured
            disable=not console.is_terminal,
        )
        self._bar = self._progress.add_task("", total=total)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def begin(self, name: str, done: int) -> None:
        """Show the next measurement."""
        self._name = f"{self._prefix} {name}".strip()
        self._progress.update(self._bar, completed=done, description=self._name)
        if not self._console.is_terminal:
            self._console.print(f"measuring {self._name} ({done + 1} of {self._total})")

    def step(self, what: str) -> None:
        """Show a part of the current one."""
        self._progress.update(self._bar, description=f"{self._name}: {what}")
