"""Failed jobs by exception and place."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import datetime

from windlass._core.job.job import AttemptError
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.protocol.admin import ErrorGroup

__all__ = ["group_errors"]

LONGEST_TEXT = 500


def group_errors(failed: Iterable[JobRow]) -> list[ErrorGroup]:
    """Group failed jobs that come newest failure first; so do the groups."""
    groups: defaultdict[tuple[str, str], list[JobRow]] = defaultdict(list)
    for row in failed:
        groups[_error(row).kind, row.frame].append(row)
    return [_group(kind, frame, rows) for (kind, frame), rows in groups.items()]


def _group(kind: str, frame: str, rows: Sequence[JobRow]) -> ErrorGroup:
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


def _error(row: JobRow) -> AttemptError:
    return row.error or AttemptError("", "")


def _failed_at(row: JobRow) -> datetime:
    return row.finished_at or row.started_at
