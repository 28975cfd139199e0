"""How many jobs of each queue are where."""

from __future__ import annotations

from typing import NamedTuple

import apsw

from windlass.storage.protocol import QueueCounts
from windlass.storage.queries import load
from windlass.storage.sqlite.queues import paused_queues
from windlass.storage.sqlite.rows import fetch, fetch_shown, instant

__all__ = ["count_jobs"]

_SQL = load("windlass.storage.sqlite.sql", "counts.sql")
_QUEUES, _RUNNING, _COUNT = _SQL["queues"], _SQL["running"], _SQL["count"]


_LANES = 10_000
"""In so many lanes of a queue the job that waits for longest is looked for."""


class _Counted(NamedTuple):
    """A row of ``count`` in counts.sql."""

    ready: int
    in_lanes: int
    alone: int
    overdue: int
    scheduled: int
    retrying: int
    succeeded: int
    failed: int
    cancelled: int
    discarded: int
    oldest_ready: int | None
    oldest_in_lanes: int | None
    oldest_alone: int | None
    oldest_overdue: int | None


def count_jobs(connection: apsw.Connection, cap: int | None, now: int) -> list[QueueCounts]:
    """`AdminStore.counts`. Several statements: on one snapshot."""
    running: dict[str, int] = dict(fetch_shown(connection, _RUNNING))
    paused = paused_queues(connection)
    most, lanes = (-1, -1) if cap is None else (cap, _LANES)
    answers: list[QueueCounts] = []
    for (queue,) in fetch_shown(connection, _QUEUES):
        counted = _Counted(*fetch(connection, _COUNT, (queue, now, most, lanes))[0])
        answers.append(_counts(queue, counted, running.get(queue, 0), cap, queue in paused))
    return answers


def _counts(
    queue: str,
    counted: _Counted,
    running: int,
    cap: int | None,
    paused: bool,  # noqa: FBT001 -- the last of a private call
) -> QueueCounts:
    ready = counted.ready + counted.in_lanes + counted.alone + counted.overdue
    oldest = [due for due in counted[10:] if due is not None]
    return QueueCounts(
        queue=queue,
        ready=_capped(ready, cap),
        scheduled=counted.scheduled,
        running=_capped(running, cap),
        succeeded=counted.succeeded,
        failed=counted.failed,
        cancelled=counted.cancelled,
        discarded=counted.discarded,
        retrying=counted.retrying,
        oldest_due=instant(min(oldest, default=None)),
        paused=paused,
        cap=cap,
    )


def _capped(count: int, cap: int | None) -> int:
    return count if cap is None else min(count, cap)
