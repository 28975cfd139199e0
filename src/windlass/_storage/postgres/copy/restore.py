"""Copied records as rows: by column, for functions that read JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from windlass._core.job.error_origin import frame_of
from windlass._core.job.job import AttemptError, LimitUse
from windlass._core.job.state import FINISHING
from windlass._core.limits.queue_settings import QueueSettings
from windlass._core.stats.rollup import COALESCED, Histogram, Rollup
from windlass._core.values.instants import us_or_none
from windlass._storage.postgres.io.records import CODES
from windlass._storage.postgres.io.rows import stored_id, stored_span, stored_text
from windlass._storage.postgres.journal import stored_lines
from windlass._storage.protocol.actions import AuditRecord
from windlass._storage.protocol.copy import StoredJob
from windlass._storage.protocol.limits import LimitState
from windlass._storage.protocol.queues import QueueRecord
from windlass._storage.shared.stored_text import metadata_text, note_text

__all__ = [
    "audit_row",
    "budget_row",
    "history_rows",
    "job_row",
    "log_rows",
    "queue_row",
    "rollup_rows",
]

_Columns = Mapping[str, Any]
_encode = msgspec.json.encode
_PLAIN = QueueSettings()


def job_row(stored: StoredJob) -> _Columns:
    """Return a job for ``restore_jobs``."""
    job, unique = stored.job, stored.unique
    number, verb, by = stored.ended or (None, None, None)
    progress = job.progress
    return {
        "id": stored_id(job.id),
        "state": CODES[job.state],
        "queue": job.queue,
        "task": job.task,
        "payload": _bytes(job.payload),
        "priority": job.priority,
        "due": job.due,
        "created_at": job.created_at,
        "started_at": job.started_at,
        "finished_at": job.finished_at,
        "expires_at": job.expires_at,
        "missed_at": job.missed_at,
        "missed_why": None if job.missed_why is None else stored_text(job.missed_why),
        "timeout": stored_span(job.timeout),
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "budget": job.budget,
        "claim_number": job.claim_number,
        "ended_number": number,
        "ended_verb": verb,
        "ended_by": by,
        "worker": job.worker,
        "gates": [use.gate for use in job.limits] or None,
        "costs": [use.cost for use in job.limits] or None,
        "key": None if unique is None else unique.key,
        "key_window": None if unique is None else unique.window.value,
        "key_period": None if unique is None else stored_span(unique.period),
        "key_spent": not job.key_held,
        "key_held": unique is not None and job.key_held,
        "key_until": stored.key_until,
        "result": None if job.result is None else _bytes(job.result),
        "reason": None if job.reason is None else stored_text(job.reason),
        "cancel_requested": job.cancel_requested,
        "lost": job.lost,
        "solo": job.solo,
        "throttled": job.throttled,
        "progress": None if progress is None else progress.fraction,
        "progress_note": None if progress is None else stored_text(note_text(progress)),
        "metadata": metadata_text(job.metadata),
        "backoff": None if job.backoff is None else _encode(job.backoff).decode(),
        "tags": _encode(job.tags).decode() if job.tags else None,
        "tenant": job.tenant,
        "principal": job.principal,
        "correlation_id": job.correlation_id,
        "trace": job.trace,
        "parent": job.parent,
        "on_failure": None if job.on_failure is None else _encode(job.on_failure).decode(),
        "on_lost": None if job.on_lost == "retry" else job.on_lost,
        **_error(job.error),
        "error_frame": None if job.error is None else stored_text(frame_of(job.error.traceback)),
    }


def _bytes(value: bytes) -> str:
    return f"\\x{value.hex()}"


def _error(error: AttemptError | None) -> _Columns:
    if error is None:
        return {}
    return {
        "error_kind": stored_text(error.kind),
        "error_message": stored_text(error.message),
        "error_traceback": stored_text(error.traceback),
    }


def history_rows(stored: Iterable[StoredJob]) -> Iterator[_Columns]:
    """Yield the history of these jobs for ``restore_traces``."""
    for one in stored:
        for attempt in one.history:
            yield {
                "id": one.job.id,
                "claim_number": attempt.claim_number,
                "attempt": attempt.attempt,
                "verb": attempt.verb,
                "worker": attempt.worker,
                "started_at": attempt.started_at,
                "ended_at": attempt.ended_at,
                "metadata": metadata_text(attempt.metadata),
                **_error(attempt.error),
            }


def log_rows(stored: Iterable[StoredJob]) -> Iterator[_Columns]:
    """Return the log chunks of these jobs, for the same function."""
    for one in stored:
        for chunk in one.logs:
            yield {
                "id": one.job.id,
                "claim_number": chunk.claim.number,
                "number": chunk.number,
                "lines": stored_lines(chunk),
            }


def rollup_rows(rollups: Sequence[Rollup]) -> Iterator[_Columns]:
    """Rollups for ``restore_rollups``; of several about the same, the last one."""
    last = {(rollup.minute, rollup.queue, rollup.task): rollup for rollup in rollups}
    for rollup in last.values():
        yield {
            "minute": rollup.minute,
            "queue": rollup.queue,
            "task": rollup.task,
            "counts": [rollup.counts.get(name, 0) for name in (*FINISHING, COALESCED)],
            "wait": _histogram(rollup.wait),
            "run": _histogram(rollup.run),
        }


def _histogram(counts: Histogram) -> str:
    """Return the text of an array whose indexes are the buckets: from the first one to the last."""
    if not counts:
        return "{}"
    first, last = min(counts), max(counts)
    inner = ",".join(str(counts.get(bucket, "NULL")) for bucket in range(first, last + 1))
    return f"[{first}:{last}]={{{inner}}}"


def queue_row(record: QueueRecord) -> _Columns:
    """Return a queue for ``restore_queues``."""
    settings = record.settings
    return {
        "name": record.queue,
        "paused": record.paused,
        "settings": None if settings == _PLAIN else _encode(settings).decode(),
        "max_running": settings.max_running,
        "cool_until": record.cool_until,
        "cool_downs": record.cool_downs,
    }


def budget_row(state: LimitState) -> _Columns:
    """Return a budget for ``restore_gates``."""
    breaker = state.breaker
    return {
        "gate": LimitUse(state.name, state.key).gate,
        "spent_until": us_or_none(state.spent_until),
        "failures": 0 if breaker is None else breaker.failures,
        "opened": 0 if breaker is None else breaker.opened,
        "open_until": None if breaker is None else us_or_none(breaker.open_until),
    }


def audit_row(record: AuditRecord) -> _Columns:
    """Return a record for ``restore_audits``."""
    texts = {name: stored_text(text) for name, text in msgspec.structs.asdict(record.note).items()}
    return {**texts, "at": record.at, "count": record.count}
