"""Changes of jobs while they wait: they fall due, or end without being claimed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import apsw

from windlass._core.flows.part import ended_as
from windlass._core.job.job import JobId, LimitUse
from windlass._core.job.state import State
from windlass._core.job.unique import Window
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.sqlite.flows.parts import PartChanges
from windlass._storage.sqlite.io.rows import (
    CODES,
    Row,
    fetch,
    fetch_shown,
    limits_of,
    seqs_text,
    value_of,
)
from windlass._storage.sqlite.io.wide_statement import WideStatement
from windlass._storage.sqlite.jobs.unique_keys import free_keys
from windlass._storage.sqlite.limits.lanes import LaneChanges, LanePosition

__all__ = [
    "end_waiting",
    "fail_damaged",
    "frees_key_at_end",
    "has_due",
    "next_due",
    "promote",
    "promote_all",
]

_JOBS = load_sql("windlass._storage.sqlite.sql", "jobs.sql")
_END, _EXPLAIN = _JOBS["end_waiting"], _JOBS["explain_failure"]
_SQL = load_sql("windlass._storage.sqlite.sql", "claim.sql")
_DUE, _DUE_ANYWHERE = _SQL["due"], _SQL["due_anywhere"]
_NEXT_DUE, _NEXT_ANYWHERE = _SQL["next_due"], _SQL["next_due_anywhere"]
_READY, _SOLO = _SQL["make_ready"], _SQL["make_solo"]
_IN_LANES = WideStatement(_SQL["make_ready_in_lanes"], one=_SQL["make_ready_in_lane"])
_WAITING = _SQL["waiting"]


def promote(
    connection: apsw.Connection,
    queue: str,
    lanes: LaneChanges,
    *,
    limit: int,
    now: int,
    missed_until: int,
) -> int:
    """Make up to ``limit`` due jobs of a queue ready, longest due first; those that were missed
    only if they were due by ``missed_until``.
    """
    rows = fetch(connection, _DUE, (queue, now, limit, missed_until))
    _make_ready(connection, rows, lanes, now)
    return len(rows)


def promote_all(connection: apsw.Connection, *, limit: int, now: int) -> int:
    """Promote all queues together, except jobs that were missed."""
    rows = fetch(connection, _DUE_ANYWHERE, (now, limit))
    lanes = LaneChanges(connection)
    _make_ready(connection, rows, lanes, now)
    lanes.settle()
    return len(rows)


def _make_ready(
    connection: apsw.Connection, rows: Sequence[Row], lanes: LaneChanges, now: int
) -> None:
    common: list[int] = []
    alone: list[int] = []
    limited: dict[str, list[tuple[tuple[LimitUse, ...], LanePosition]]] = {}
    damaged: dict[int, str] = {}
    for due, seq, priority, solo, limits, queue in rows:
        if limits is not None and not limits_of(limits):
            damaged[seq] = "limits"
        elif solo:
            alone.append(seq)
        elif limits is None:
            common.append(seq)
        else:
            limited.setdefault(queue, []).append((limits_of(limits), (priority, due, seq)))
    if common:
        connection.execute(_READY, (seqs_text(common),))
    if alone:
        connection.execute(_SOLO, (seqs_text(alone),))
    for queue, jobs in limited.items():
        entered = zip(jobs, lanes.enter_all(queue, jobs), strict=True)
        _IN_LANES.run(connection, [(place[2], lane) for (_, place), lane in entered])
    fail_damaged(connection, damaged, lanes, now)


def next_due(connection: apsw.Connection, queues: Sequence[str] | None = None) -> int | None:
    """Return when the next job that is not ready falls due, in some queues or in any."""
    if queues is None:
        found: int | None = value_of(connection, _NEXT_ANYWHERE)
        return found
    due = [value_of(connection, _NEXT_DUE, (queue,)) for queue in queues]
    return min((at for at in due if at is not None), default=None)


def has_due(connection: apsw.Connection, now: int) -> bool:
    """Return whether a promotion would find something."""
    return bool(fetch(connection, _DUE_ANYWHERE, (now, 1)))


def end_waiting(
    connection: apsw.Connection,
    seqs: Iterable[int],
    lanes: LaneChanges,
    *,
    state: State,
    reason: str | None,
    now: int,
) -> list[JobId]:
    """End waiting jobs: they leave their lanes and release their keys, and count for their parts.
    Return their ids.
    """
    rows = fetch_shown(connection, _WAITING, (seqs_text(list(seqs)),))
    connection.executemany(_END, [(row[0], CODES[state], now, reason) for row in rows])
    free_keys(
        connection, [(key, seq) for seq, _, _, key, window, *_ in rows if frees_key_at_end(window)]
    )
    for _, _, lane, *_ in rows:
        lanes.touch(lane)
    members = [(part, held) for *_, part, held in rows if part is not None]
    if members:
        _count_ended(connection, members, state, now)
    return [JobId(row[1].hex()) for row in rows]


def _count_ended(
    connection: apsw.Connection,
    members: Iterable[tuple[int, int | None]],
    state: State,
    now: int,
) -> None:
    """Count ended members, each named by its part and what its flow had done with it."""
    changes = PartChanges(connection, now)
    ended = str(ended_as(state))
    for (part, held), number in Counter(members).items():
        changes.add(part, **{ended: number}, open=-number, blocked=-number if held else 0)
    changes.store()


def fail_damaged(
    connection: apsw.Connection, damaged: Mapping[int, str], lanes: LaneChanges, now: int
) -> list[JobId]:
    """Fail waiting jobs that cannot be read, each with the column that is to blame."""
    if not damaged:
        return []
    ended = end_waiting(connection, damaged, lanes, state=State.FAILED, reason=None, now=now)
    connection.executemany(_EXPLAIN, [(seq, _blame(column)) for seq, column in damaged.items()])
    return ended


def _blame(column: str) -> str:
    return (
        f"The column {column!r} of this job's row cannot be read, so it was not run. Repair the "
        f"row and requeue the job, or discard it."
    )


def frees_key_at_end(window: str | None) -> bool:
    """Return whether a job's end frees its key: a hold for a time outlasts it."""
    return window is not None and window != Window.FOR_A_TIME.value
