"""Retries of flows, in portions: which members come back, and how far that has come."""

from __future__ import annotations

import apsw

from windlass._core.flows.flow import RETRIED_AT_ONCE
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.sqlite.admin.action_effects import REQUEUABLE, JobChanges, members_after
from windlass._storage.sqlite.flows.parts import PartChanges
from windlass._storage.sqlite.flows.settle import reopen_flow
from windlass._storage.sqlite.io.rows import STATES, Row, fetch, first

__all__ = ["begin_retry", "continue_retries", "is_retrying"]

_SQL = load_sql("windlass._storage.sqlite.sql", "flows.sql")
_BEGIN, _RETRYING, _NOTE = _SQL["begin_retry"], _SQL["retrying"], _SQL["note_retried"]
_PART, _PART_IDS = _SQL["retried_part"], _SQL["part_ids"]


def is_retrying(connection: apsw.Connection, _: int) -> bool:
    """Return whether a retry has not reached all members of its flow."""
    return first(connection, _RETRYING) is not None


def begin_retry(connection: apsw.Connection, flow: int, now: int) -> None:
    """Let a flow run again, and the first of its members come back."""
    (retry,) = fetch(connection, _BEGIN, (flow,))
    _touch(connection, [part for (part,) in fetch(connection, _PART_IDS, (flow,))], now)
    _continue(connection, retry, RETRIED_AT_ONCE, now)


def continue_retries(connection: apsw.Connection, limit: int, now: int) -> int:
    """Let up to ``limit`` further members come back; how many it met."""
    met = 0
    while met < limit and (retry := first(connection, _RETRYING)) is not None:
        met += _continue(connection, retry, limit - met, now)
    return met


def _continue(connection: apsw.Connection, retry: Row, limit: int, now: int) -> int:
    flow, rank, after = retry
    met = 0
    while (part := first(connection, _PART, (flow, rank))) is not None and met < limit:
        part_id, found = part
        rows = members_after(connection, part_id, after if found == rank else 0, limit - met)
        jobs = JobChanges(connection, now)
        for job in rows:
            if STATES[job.state] in REQUEUABLE and job.flow_state is None:
                jobs.requeue(job)
        jobs.settle()
        met += len(rows)
        if met == limit:
            connection.execute(_NOTE, (flow, found, rows[-1].seq))
            return met
        rank, after = found + 1, 0
        connection.execute(_NOTE, (flow, rank, 0))
        _touch(connection, [part_id], now)
    if part is None:
        connection.execute(_NOTE, (flow, None, 0))
        reopen_flow(connection, flow, now)
    return max(met, 1)


def _touch(connection: apsw.Connection, parts: list[int], now: int) -> None:
    changes = PartChanges(connection, now)
    changes.touch(parts)
    changes.store()
