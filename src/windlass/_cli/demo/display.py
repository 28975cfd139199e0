"""Output of the demo while it runs: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.table import Table
from rich.text import Text

from windlass._core.job.job import JobRecord
from windlass._core.job.state import TERMINAL
from windlass._system.seams import monotonic

__all__ = ["Display"]

_BARS = {
    "mail": "40 emails",
    "images": "12 thumbnails",
    "catalogue": "a catalogue",
    "invoice": "an invoice",
}
_QUIET = 2.0
"""Without bars, a line about progress this often."""


class Display:
    """Bars for the large parts, and single lines for other messages."""

    def __init__(self, console: Console) -> None:
        """Use it as a context manager."""
        self.console = console
        self._began = monotonic()
        self._said_at = 0.0
        self._bars: dict[str, TaskID] = {}
        self._progress = Progress(
            TextColumn("  {task.description:<14}"),
            BarColumn(bar_width=40),
            TextColumn("{task.fields[note]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    def __enter__(self) -> Self:
        self._progress.start()
        for key, title in _BARS.items():
            self._bars[key] = self._progress.add_task(title, total=1.0, note="")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return monotonic() - self._began

    def say(self, text: str, style: str = "") -> None:
        """Print one line that stays."""
        line = Table.grid(padding=(0, 2))
        line.add_column(width=8, justify="right", style="dim")
        line.add_column()
        line.add_row(f"{self.elapsed:.1f} s", Text(text, style=style))
        self._progress.console.print(line)

    def update(self, parts: Mapping[str, Sequence[JobRecord]]) -> None:
        """Update the bars."""
        for key, bar in self._bars.items():
            jobs = parts.get(key, ())
            fraction, note = _standing(jobs)
            self._progress.update(bar, completed=fraction, note=note)
        if not self.console.is_terminal and self.elapsed - self._said_at >= _QUIET:
            self._said_at = self.elapsed
            everything = [job for jobs in parts.values() for job in jobs]
            done = sum(job.state in TERMINAL for job in everything)
            self.say(f"{done} of {len(everything)} jobs have ended")


def _standing(jobs: Sequence[JobRecord]) -> tuple[float, str]:
    if len(jobs) > 1:
        done = sum(job.state in TERMINAL for job in jobs)
        return done / len(jobs), f"{done}/{len(jobs)}"
    if not jobs:
        return 0.0, ""
    (job,) = jobs
    if job.state in TERMINAL:
        return 1.0, job.state.value
    if job.progress is None:
        return 0.0, job.state.value
    return job.progress.fraction, job.progress.note
