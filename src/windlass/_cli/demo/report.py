"""The report of the demo: a table of what happened and why."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from windlass._cli.demo.scenario import DemoPart
from windlass._core.job.job import Attempt, JobRecord
from windlass._core.job.state import State
from windlass._observe.log import brief, error_in_one_line, printable

__all__ = ["PartReport", "print_report"]

_WIDE = 104
_COLUMNS = "  {:<20}{:<11}{:>8}{:>9}{:>9}"
_LOST = "WorkerLost"

_STYLES = {
    State.SUCCEEDED: "green",
    State.FAILED: "red",
    State.CANCELLED: "yellow",
    State.DISCARDED: "magenta",
}


class PartReport:
    """One part of the demo and its jobs at the end."""

    def __init__(
        self,
        part: DemoPart,
        jobs: Sequence[JobRecord],
        histories: Mapping[str, Sequence[Attempt]],
        killed_at: datetime | None,
    ) -> None:
        """``histories`` by job id; ``killed_at``: when a worker was killed."""
        self.part = part
        self.jobs = jobs
        self.histories = histories
        self._killed_at = killed_at

    @property
    def lost(self) -> list[tuple[JobRecord, Attempt]]:
        """Attempts that ended because their worker died."""
        return [
            (job, attempt)
            for job in self.jobs
            for attempt in self.histories.get(job.id, ())
            if attempt.error is not None and attempt.error.kind == _LOST
        ]

    def why(self) -> str:
        """Say in a few words why the jobs ended as they did."""
        if self.part.key == "invoice":
            return self._rescued()
        notes = [self.part.why] if self.part.why else []
        if len(self.jobs) == 1 and (story := self._errors(self.jobs[0])):
            notes.append(story)
        lost = len({job.id for job, _ in self.lost})
        if lost and len(self.jobs) > 1:
            notes.append(f"{lost} of them ran in the killed worker, then again in another")
        elif lost:
            notes.append("it ran in the killed worker, then again in another")
        return "; ".join(notes)

    def _rescued(self) -> str:
        (job,) = self.jobs
        if not self.lost or job.started_at is None or self._killed_at is None:
            return "its worker was not killed during the run"
        gap = brief(job.started_at - self._killed_at)
        return (
            f"its worker was killed (SIGKILL) during the run; {gap} later another worker ran it: "
            f"a dead worker costs an attempt, never a job"
        )

    def _errors(self, job: JobRecord) -> str:
        attempts = self.histories.get(job.id, ())
        failed = [a.error for a in attempts if a.error and a.error.kind != _LOST]
        if job.state is State.DISCARDED:
            return f"{job.reason}: it would have come too late"
        if job.state is State.FAILED and job.error is not None:
            return f"the handler raised GiveUp: {printable(job.error.message)}"
        if job.state is State.SUCCEEDED and failed:
            times = {1: "once", 2: "twice"}.get(len(failed), f"{len(failed)} times")
            return f"{error_in_one_line(failed[0])}, {times}; then it succeeded"
        return ""

    def row(self) -> _ReportRow:
        """Return the row of this part."""
        states = Counter(job.state for job in self.jobs)
        first = next(iter(states), None)
        attempts = sorted({job.attempt for job in self.jobs}) or [0]
        return _ReportRow(
            task=self.part.title + (f" × {len(self.jobs)}" if len(self.jobs) > 1 else ""),
            state=", ".join(
                state.value if len(states) == 1 else f"{count} {state.value}"
                for state, count in states.items()
            ),
            style=_STYLES.get(first, "") if first is not None and len(states) == 1 else "",
            attempts=" to ".join(str(n) for n in dict.fromkeys((attempts[0], attempts[-1]))),
            waited=_middle(map(_waited, self.jobs)),
            ran=_middle(map(_ran, self.jobs)),
            why=self.why(),
        )


class _ReportRow(NamedTuple):
    task: str
    state: str
    style: str
    attempts: str
    waited: str
    ran: str
    why: str


def _waited(job: JobRecord) -> timedelta | None:
    return None if job.started_at is None else job.started_at - job.due


def _ran(job: JobRecord) -> timedelta | None:
    if job.started_at is None or job.finished_at is None:
        return None
    return job.finished_at - job.started_at


def _middle(spans: Iterable[timedelta | None]) -> str:
    """Return the median."""
    seconds = [span.total_seconds() for span in spans if span is not None]
    return brief(timedelta(seconds=statistics.median(seconds))) if seconds else "–"


def print_report(told: Sequence[PartReport], console: Console) -> None:
    """Print the table. On a narrow terminal the last column is a line below each row."""
    rows = [one.row() for one in told]
    console.print()
    if console.width >= _WIDE:
        console.print(_wide(rows))
        return
    console.print(Text("What happened, and why\n", style="bold"))
    console.print(Text(_COLUMNS.format("task", "state", "attempts", "waited", "ran"), style="dim"))
    for row in rows:
        line = Text(_COLUMNS.format(row.task, row.state, row.attempts, row.waited, row.ran))
        line.stylize(row.style, 22, 33)
        console.print(line)
        console.print(Padding(Text(row.why, style="dim"), (0, 0, 0, 4)))


def _wide(rows: Sequence[_ReportRow]) -> Table:
    shown = Table(
        title="What happened, and why",
        title_style="bold",
        title_justify="left",
        box=box.ROUNDED,
    )
    for name in ("task", "state", "attempts", "waited", "ran"):
        right = name in {"attempts", "waited", "ran"}
        shown.add_column(name, justify="right" if right else "left", no_wrap=True)
    shown.add_column("why")
    for row in rows:
        state = Text(row.state, style=row.style)
        shown.add_row(row.task, state, row.attempts, row.waited, row.ran, row.why)
    return shown
