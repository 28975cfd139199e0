"""Between rows and records, for what people look at and for workers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from uuid import UUID

from windlass._core.job.job import (
    Attempt,
    AttemptError,
    Claim,
    ClaimedJob,
    JobId,
    JobRecord,
    LimitUse,
    Progress,
)
from windlass._core.job.state import State, verb_of
from windlass._core.job.unique import Window
from windlass._storage.postgres.io.connection import Row
from windlass._storage.postgres.io.rows import place_of
from windlass._storage.shared.stored_text import (
    backoff_of,
    follow_up_of,
    metadata_of,
    progress_of,
    readable,
    tags_of,
)

__all__ = [
    "CODES",
    "STATES",
    "attempt_of",
    "claim_of",
    "job_of",
    "known_id",
    "known_ids",
    "orphan_of",
]

STATES = tuple(State)
"""State by the number it is stored as."""
CODES = {state: code for code, state in enumerate(STATES)}


def known_ids(ids: Iterable[JobId]) -> list[UUID]:
    """Ids to look for, each once; what is no id is never found."""
    found: dict[UUID, None] = {}
    for job in ids:
        if len(job) == 32:
            try:
                found[UUID(job)] = None
            except ValueError:
                continue
    return list(found)


def known_id(job: JobId) -> UUID | None:
    """Return the same for one; None: it cannot be one."""
    found = known_ids([job])
    return found[0] if found and found[0].hex == job else None


def claim_of(row: Row) -> Claim:
    """Decode a row that begins with id, claim number and seq."""
    return Claim(JobId(row[0].hex), row[1], row[2])


def _span(us: int | None) -> timedelta | None:
    return None if us is None else timedelta(microseconds=us)


def _error_of(row: Row, *, traceback: bool = True) -> AttemptError | None:
    if row["error_kind"] is None:
        return None
    trace = (row["error_traceback"] or "") if traceback else ""
    return AttemptError(row["error_kind"], row["error_message"] or "", trace)


def _limits_of(gates: Sequence[str] | None, costs: Sequence[float] | None) -> tuple[LimitUse, ...]:
    uses = []
    for gate, cost in zip(gates or (), costs or (), strict=True):
        name, _, key = gate.partition(":")
        uses.append(LimitUse(name, key, cost))
    return tuple(uses)


def job_of(row: Row) -> JobRecord:
    """Decode a row of ``get`` or ``find`` in admin.sql."""
    return JobRecord(
        id=JobId(row["id"].hex),
        seq=row["seq"],
        task=row["task"],
        queue=row["queue"],
        payload=row["payload"],
        state=STATES[row["state"]],
        priority=row["priority"],
        created_at=row["created_at"],
        due=row["due"],
        attempt=row["attempt"],
        max_attempts=row["max_attempts"],
        budget=row["budget"],
        claim_number=row["claim_number"],
        timeout=_span(row["timeout"]),
        expires_at=row["expires_at"],
        backoff=readable(backoff_of, row["backoff"]),
        key=row["key"],
        key_held=row["key_held"],
        key_window=readable(Window, row["key_window"]),
        key_period=_span(row["key_period"]),
        limits=_limits_of(row["gates"], row["costs"]),
        worker=row["worker"],
        started_at=row["started_at"],
        finished_at=row["finished_at"],
        result=row["result"],
        error=_error_of(row),
        reason=row["reason"],
        cancel_requested=row["cancel_requested"],
        lost=row["lost"],
        solo=row["solo"],
        missed_at=row["missed_at"],
        missed_why=None if row["missed_at"] is None else row["missed_why"],
        throttled=row["throttled"],
        progress=_progress_of(row["progress"], row["progress_note"]),
        metadata=metadata_of(row["metadata"]),
        tags=readable(tags_of, row["tags"]) or (),
        tenant=row["tenant"],
        principal=row["principal"],
        correlation_id=row["correlation_id"],
        trace=row["trace"],
        parent=row["parent"],
        on_failure=readable(follow_up_of, row["on_failure"]),
        on_lost="fail" if row["on_lost"] == "fail" else "retry",
        flow=place_of(row["place"]),
        blocked=row["blocked"],
    )


def _progress_of(fraction: float | None, note: str | None) -> Progress | None:
    return None if fraction is None else progress_of(fraction, note or "")


def attempt_of(row: Row) -> Attempt:
    """Decode a row of ``history`` in admin.sql."""
    return Attempt(
        claim_number=row["claim_number"],
        attempt=row["attempt"],
        verb=verb_of(row["verb"]),
        worker=row["worker"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        error=_error_of(row),
        metadata=metadata_of(row["metadata"]),
    )


def orphan_of(row: Row) -> ClaimedJob:
    """Decode a row of ``orphans`` in workers.sql: without its payload, which may be large."""
    return ClaimedJob(
        claim=Claim(JobId(row["id"].hex), row["claim_number"], row["seq"]),
        task=row["task"],
        queue=row["queue"],
        payload=b"",
        attempt=row["attempt"],
        max_attempts=row["max_attempts"],
        budget=row["budget"],
        due=row["due"],
        started_at=row["started_at"],
        worker=row["worker"],
        timeout=_span(row["timeout"]),
        lost=row["lost"],
        solo=row["solo"],
        backoff=readable(backoff_of, row["backoff"]),
        missed_at=row["missed_at"],
        error=_error_of(row, traceback=False),
        tenant=row["tenant"],
        principal=row["principal"],
        correlation_id=row["correlation_id"],
        trace=row["trace"],
        tags=readable(tags_of, row["tags"]) or (),
        on_failure=readable(follow_up_of, row["on_failure"]),
        on_lost="fail" if row["on_lost"] == "fail" else "retry",
    )
