"""Failed jobs by exception and place."""

from __future__ import annotations

from datetime import datetime

import apsw

from windlass._core.job.job import JobId
from windlass._core.values.instants import LAST_US, instant_of, to_us
from windlass._storage.protocol.admin import ErrorGroup, ErrorLook
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.sqlite.io.rows import fetch_shown, seqs_text

__all__ = ["error_groups"]

_SQL = load_sql("windlass._storage.sqlite.sql", "find.sql")
_FAILED, _FAULTS = _SQL["failed"], _SQL["faults"]

_SHOWN = 500


class _ErrorRow:
    """Failed jobs that are alike. Filled from the newest to the oldest."""

    __slots__ = ("count", "first", "last", "queues", "seq", "tasks")

    def __init__(self, seq: int, last: int) -> None:
        self.seq, self.last = seq, last
        self.first = last
        self.count = 0
        self.tasks: set[str] = set()
        self.queues: set[str] = set()

    def add(self, at: int, task: str, queue: str) -> None:
        self.count += 1
        self.first = at
        self.tasks.add(task)
        self.queues.add(queue)


def error_groups(
    connection: apsw.Connection,
    queue: str | None,
    task: str | None,
    since: datetime | None,
    look: int,
) -> ErrorLook:
    """`AdminStore.errors`. Two statements: on one snapshot."""
    start = -LAST_US if since is None else to_us(since)
    rows = fetch_shown(connection, _FAILED, (start, look + 1))
    groups: dict[tuple[str, str], _ErrorRow] = {}
    for seq, finished_at, kind, frame, its_queue, its_task in rows[:look]:
        if queue not in (None, its_queue) or task not in (None, its_task):
            continue
        group = groups.setdefault((kind or "", frame or ""), _ErrorRow(seq, finished_at))
        group.add(finished_at, its_task, its_queue)
    return ErrorLook(_records(connection, groups), complete=len(rows) <= look)


def _records(
    connection: apsw.Connection, groups: dict[tuple[str, str], _ErrorRow]
) -> list[ErrorGroup]:
    seqs = seqs_text([group.seq for group in groups.values()])
    faults = {seq: (uid, text) for seq, uid, text in fetch_shown(connection, _FAULTS, (seqs,))}
    return [
        ErrorGroup(
            kind=kind,
            frame=frame,
            count=group.count,
            first=instant_of(group.first),
            last=instant_of(group.last),
            job=JobId(faults[group.seq][0].hex()),
            text=(faults[group.seq][1] or "")[:_SHOWN],
            tasks=sorted(group.tasks),
            queues=sorted(group.queues),
        )
        for (kind, frame), group in groups.items()
    ]
