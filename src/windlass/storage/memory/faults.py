"""Failed jobs by exception and place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime

from windlass.core.job import AttemptError
from windlass.storage.looks import ErrorGroup
from windlass.storage.memory.row import Row

__all__ = ["grouped"]

LONGEST_TEXT = 500


def grouped(failed: Iterable[Row]) -> list[ErrorGroup]:
    """Groups of failed jobs that come newest failure first; so do the groups."""
    groups: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in failed:
        groups[_error(row).kind, row.frame].append(row)
    return [_group(kind, frame, rows) for (kind, frame), rows in groups.items()]


def _group(kind: str, frame: str, rows: Sequence[Row]) -> ErrorGroup:
    last = rows[0]
    return ErrorGroup(
        kind=kind,
        frame=frame,
        count=len(rows),
        first=_failed_at(rows[-1]),
        last=_failed_at(last),
        job=last.asked.id,
        text=_error(last).message[:LONGEST_TEXT],
        tasks=sorted({row.asked.task for row in rows}),
        queues=sorted({row.asked.queue for row in rows}),
    )


def _error(row: Row) -> AttemptError:
    return row.error or AttemptError("", "")


def _failed_at(row: Row) -> datetime:
    return row.finished_at or row.started_at
