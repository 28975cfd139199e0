"""Jobs as they were in another storage."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import apsw

from windlass._core.job.error_origin import frame_of
from windlass._core.job.job import JobRecord
from windlass._core.job.state import State
from windlass._core.values.instants import LAST_US, span_us, to_us
from windlass._storage.protocol.copy import StoredJob
from windlass._storage.shared.job_ids import id_of
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.shared.stored_text import metadata_text, note_text
from windlass._storage.sqlite.copy.flows import MemberPlaces
from windlass._storage.sqlite.io.rows import (
    CODES,
    Row,
    backoff_text,
    follow_up_text,
    limits_text,
    on_lost_text,
    tags_text,
)
from windlass._storage.sqlite.jobs.unique_keys import find_holder, hold_key
from windlass._storage.sqlite.journal import keep_chunks
from windlass._storage.sqlite.limits.budgets import budgets_of, hold_budgets
from windlass._storage.sqlite.limits.lanes import BEHIND_ALL, LaneChanges

__all__ = ["JobRestore"]

_RESTORE = load_sql("windlass._storage.sqlite.sql", "copy.sql")["restore"]
_REMEMBER = load_sql("windlass._storage.sqlite.sql", "apply.sql")["remember"]


class JobRestore:
    """The jobs of one operation, in their order. Call `settle` before it ends."""

    def __init__(self, connection: apsw.Connection, now: int) -> None:
        self._connection, self._now = connection, now
        self._lanes = LaneChanges(connection)
        self._places = MemberPlaces(connection)

    def add(self, stored: StoredJob) -> bool:
        """Store a job with all that belongs to it; False: its id is stored."""
        job = stored.job
        ready, lane = (None, None) if job.blocked else self._stand(job)
        values = {**_asked(stored), **_course(stored), "ready": ready, "lane": lane}
        values |= self._places.columns(stored)
        self._connection.execute(_RESTORE, values)
        if not self._connection.changes():
            return False
        seq = self._connection.last_insert_rowid()
        if job.flow is not None:
            self._places.note(job.flow, seq)
        self._connection.executemany(_REMEMBER, _history(stored, seq))
        keep_chunks(self._connection, [(seq, chunk) for chunk in stored.logs])
        if job.state is State.RUNNING:
            hold_budgets(self._connection, budgets_of(job.limits), seq, job.claim_number)
        if stored.unique is not None and job.key_held:
            self._hold_key(stored.unique.key, seq, stored.key_until)
        return True

    def settle(self) -> None:
        """Make the lanes follow."""
        self._lanes.settle()

    def _hold_key(self, key: str, seq: int, until: datetime | None) -> None:
        """Give the job its key again, unless another job here took it."""
        if find_holder(self._connection, key, self._now) is None:
            hold_key(self._connection, key, seq, until=_us(until))

    def _stand(self, job: JobRecord) -> tuple[int | None, int | None]:
        """Return how the job is ready, and its lane."""
        if job.state is not State.WAITING:
            return None, None
        due = min(to_us(job.due), LAST_US)
        if due > self._now:
            return 0, None
        if job.solo:
            return 3, None
        if not job.limits:
            return 1, None
        place = (job.priority, due, BEHIND_ALL)
        return 2, self._lanes.enter(job.queue, job.limits, place)


def _us(instant: datetime | None) -> int | None:
    return None if instant is None else min(to_us(instant), LAST_US)


def _span(span: timedelta | None) -> int | None:
    return None if span is None else min(span_us(span), LAST_US)


def _asked(stored: StoredJob) -> dict[str, Any]:
    """Return the columns of the request."""
    job, unique = stored.job, stored.unique
    return {
        "id": id_of(job.id),
        "queue": job.queue,
        "task": job.task,
        "priority": job.priority,
        "max_attempts": job.max_attempts,
        "budget": job.budget,
        "created_at": _us(job.created_at),
        "limits": limits_text(job.limits),
        "expires_at": _us(job.expires_at),
        "timeout": _span(job.timeout),
        "key": None if unique is None else unique.key,
        "key_window": None if unique is None else unique.window.value,
        "key_period": None if unique is None else _span(unique.period),
        "backoff": backoff_text(job.backoff),
        "tags": tags_text(job.tags),
        "tenant": job.tenant,
        "principal": job.principal,
        "correlation_id": job.correlation_id,
        "trace": job.trace,
        "parent": job.parent,
        "on_failure": follow_up_text(job.on_failure),
        "on_lost": on_lost_text(job.on_lost),
        "payload": job.payload,
    }


def _course(stored: StoredJob) -> dict[str, Any]:
    """Return the columns of the state."""
    job, error, progress = stored.job, stored.job.error, stored.job.progress
    number, verb, by = stored.ended or (None, None, None)
    return {
        "state": CODES[job.state],
        "due": _us(job.due),
        "attempt": job.attempt,
        "claim_number": job.claim_number,
        "cancel_requested": int(job.cancel_requested),
        "lost": job.lost,
        "solo": int(job.solo),
        "worker": job.worker,
        "started_at": _us(job.started_at),
        "finished_at": _us(job.finished_at),
        "ended_number": number,
        "ended_verb": None if verb is None else verb.value,
        "ended_by": by,
        "missed_at": _us(job.missed_at),
        "missed_why": job.missed_why,
        "progress": None if progress is None else float(progress.fraction),
        "progress_note": None if progress is None else note_text(progress),
        "reason": job.reason,
        "error_kind": None if error is None else error.kind,
        "error_message": None if error is None else error.message,
        "error_traceback": None if error is None else error.traceback,
        "error_frame": None if error is None else frame_of(error.traceback),
        "result": job.result,
        "throttled": job.throttled,
        "metadata": metadata_text(job.metadata),
        "key_spent": int(not job.key_held),
    }


def _history(stored: StoredJob, seq: int) -> list[Row]:
    """Return the rows of ``remember`` in apply.sql."""
    rows: list[Row] = []
    for past in stored.history:
        error = past.error
        said = (None, None, None)
        rows.append(
            (
                seq,
                past.claim_number,
                past.attempt,
                str(past.verb),
                past.worker,
                _us(past.started_at),
                _us(past.ended_at),
            )
            + (said if error is None else (error.kind, error.message, error.traceback))
            + (metadata_text(past.metadata),)
        )
    return rows
