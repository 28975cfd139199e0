"""Between SQL rows and records: instants, ids, states and JSON, each in one place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Any

import apsw
import msgspec

from windlass._core.job.job import (
    Attempt,
    AttemptError,
    FlowId,
    FlowPlace,
    FollowUp,
    JobId,
    JobRecord,
    LimitUse,
    OnLost,
)
from windlass._core.job.state import State, verb_of
from windlass._core.job.unique import Window
from windlass._core.limits.backoff import Backoff
from windlass._core.values.instants import LAST_US, instant_of
from windlass._core.values.text_search import SearchTexts
from windlass._storage.shared.stored_text import (
    UNREADABLE,
    backoff_of,
    follow_up_of,
    metadata_of,
    progress_of,
    readable,
    tags_of,
)

__all__ = [
    "CODES",
    "NEVER",
    "RUNNING",
    "STATES",
    "WAITING",
    "Row",
    "attempt_of",
    "backoff_text",
    "error_of",
    "fetch",
    "fetch_shown",
    "first",
    "follow_up_text",
    "ids_text",
    "job_of",
    "limits_of",
    "limits_text",
    "names_text",
    "next_instant",
    "on_lost_of",
    "on_lost_text",
    "optional_instant",
    "rows_by_id",
    "seqs_text",
    "span_of",
    "tags_text",
    "texts_of",
    "unreadable_extra",
    "value_of",
]

NEVER = LAST_US + 1
"""The due time of blocked jobs: behind all instants that can be asked for."""

Row = tuple[Any, ...]
"""A row of apsw. The comment of a statement names the columns, in the order that the reading
function expects.
"""

STATES = tuple(State)
"""State by the number it is stored as."""
CODES = {state: code for code, state in enumerate(STATES)}
WAITING, RUNNING = CODES[State.WAITING], CODES[State.RUNNING]

_encode = msgspec.json.Encoder().encode
_place = msgspec.json.Decoder(tuple[str, int, int]).decode
_uses = msgspec.json.Decoder(tuple[LimitUse, ...]).decode


def fetch(connection: apsw.Connection, sql: str, values: Sequence[Any] = ()) -> list[Row]:
    """Fetch all rows at once: a statement that is left unfinished keeps the write-ahead file
    growing.
    """
    return connection.execute(sql, values).fetchall()


def fetch_shown(connection: apsw.Connection, sql: str, values: Sequence[Any] = ()) -> list[Row]:
    """Return the same for reading: what is no text is shown as far as it can be."""
    try:
        return fetch(connection, sql, values)
    except UnicodeDecodeError:
        pass
    cursor = connection.execute(sql, values)
    names = [f"c{number}" for number, _ in enumerate(cursor.get_description())]
    cursor.close()
    columns = ", ".join(
        f"typeof({name}) = 'text', iif(typeof({name}) = 'text', CAST({name} AS BLOB), {name})"
        for name in names
    )
    body = sql.rstrip().rstrip(";")
    whole = f"WITH r ({', '.join(names)}) AS MATERIALIZED ({body}) SELECT {columns} FROM r"  # noqa: S608 -- ours
    return [
        tuple(
            value.decode(errors="replace") if text else value
            for text, value in zip(row[::2], row[1::2], strict=True)
        )
        for row in fetch(connection, whole, values)
    ]


def first(connection: apsw.Connection, sql: str, values: Sequence[Any] = ()) -> Row | None:
    """Return the one row of a statement that has at most one."""
    rows = connection.execute(sql, values).fetchall()
    return rows[0] if rows else None


def value_of(connection: apsw.Connection, sql: str, values: Sequence[Any] = ()) -> Any:
    """Return the one value of a statement that has at most one; None if there is none."""
    return connection.execute(sql, values).get


# --- values -----------------------------------------------------------------------------------


def next_instant(us: int | None) -> datetime | None:
    """Return when the next job falls due. Blocked jobs never do."""
    return None if us is None or us == NEVER else instant_of(us)


def optional_instant(us: int | None) -> datetime | None:
    """Return an instant that may be missing."""
    return None if us is None else instant_of(us)


def seqs_text(seqs: Sequence[int]) -> str:
    """Row numbers for ``json_each``: one statement for all, however many."""
    return _encode(seqs).decode()


def names_text(names: Iterable[str]) -> str:
    """Names for ``json_each``."""
    return _encode(list(names)).decode()


def ids_text(ids: Iterable[JobId]) -> str:
    """Ids for ``json_each``, as hex digits. unhex of what is none is NULL, which nothing equals."""
    return _encode(list(ids)).decode()


def rows_by_id(connection: apsw.Connection, sql: str, ids: Iterable[JobId]) -> dict[str, Row]:
    """Return the rows of a statement that takes ids and has the id as its first column."""
    return {row[0].hex(): row for row in fetch_shown(connection, sql, (ids_text(ids),))}


def tags_text(tags: tuple[str, ...]) -> str | None:
    """Tags as JSON; None for none, as most jobs have."""
    return _encode(tags).decode() if tags else None


def backoff_text(backoff: Backoff | None) -> str | None:
    """Return a job's own backoff as JSON."""
    return None if backoff is None else _encode(backoff).decode()


def follow_up_text(follow_up: FollowUp | None) -> str | None:
    """Return the follow-up job of a failure as JSON; None for none, as most jobs have."""
    return None if follow_up is None else _encode(follow_up).decode()


def on_lost_text(on_lost: OnLost) -> str | None:
    """Return the rule for a lost run; None for another run, as most jobs have."""
    return None if on_lost == "retry" else on_lost


def on_lost_of(text: str | None) -> OnLost:
    """Read what follows a lost run."""
    return "fail" if text == "fail" else "retry"


def limits_text(limits: tuple[LimitUse, ...]) -> str | None:
    """Limits as JSON; None for none."""
    return _encode(limits).decode() if limits else None


@lru_cache(maxsize=4096)
def limits_of(text: str | bytes) -> tuple[LimitUse, ...]:
    """Return the inverse of `limits_text`; empty if the text cannot be read."""
    try:
        return _uses(text)
    except UNREADABLE:
        return ()


def unreadable_extra(row: Row) -> str | None:
    """Return the column of a row of ``extras`` that cannot be decoded."""
    backoff, tags, on_failure = row[5], row[-3], row[-2]
    if backoff is not None and readable(backoff_of, backoff) is None:
        return "backoff"
    if tags is not None and readable(tags_of, tags) is None:
        return "tags"
    if on_failure is not None and readable(follow_up_of, on_failure) is None:
        return "on_failure"
    return None


def error_of(kind: str | None, text: str, traceback: str = "") -> AttemptError | None:
    """Read an error that may be missing."""
    return None if kind is None else AttemptError(kind, text, traceback)


# --- records ----------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def span_of(us: int | None) -> timedelta | None:
    """Read a duration that may be missing."""
    return None if us is None else timedelta(microseconds=us)


def texts_of(row: Row) -> SearchTexts:
    """Decode a row of ``texts`` in find.sql."""
    payload, tags, kind, text = row
    return SearchTexts(payload, readable(tags_of, tags) or (), error_of(kind, text))


def job_of(row: Row) -> JobRecord:
    """Decode a row of ``get`` or ``find`` in admin.sql, whose columns have the names of
    the fields.
    """
    (
        seq, uid, state, queue, task, priority, due, attempt, max_attempts, budget, claim_number,
        cancel_requested, lost, solo, worker, created_at, started_at, finished_at, limits,
        expires_at, timeout, key, key_held, missed_at, backoff, tags, tenant, principal,
        correlation_id, trace, parent, progress, note, reason, kind, text, traceback, result,
        payload, throttled, on_failure, missed_why, on_lost, key_window, key_period, metadata,
        place, blocked,
    ) = row  # fmt: skip
    return JobRecord(
        id=JobId(uid.hex()),
        seq=seq,
        task=task,
        queue=queue,
        payload=payload,
        state=STATES[state],
        priority=priority,
        created_at=instant_of(created_at),
        due=instant_of(due),
        attempt=attempt,
        max_attempts=max_attempts,
        budget=budget,
        claim_number=claim_number,
        timeout=span_of(timeout),
        expires_at=optional_instant(expires_at),
        backoff=readable(backoff_of, backoff),
        key=key,
        key_held=bool(key_held),
        key_window=readable(Window, key_window),
        key_period=span_of(key_period),
        limits=() if limits is None else limits_of(limits),
        worker=worker,
        started_at=optional_instant(started_at),
        finished_at=optional_instant(finished_at),
        result=result,
        error=error_of(kind, text, traceback),
        reason=reason,
        cancel_requested=bool(cancel_requested),
        lost=lost,
        solo=bool(solo),
        missed_at=optional_instant(missed_at),
        missed_why=None if missed_at is None else missed_why,
        throttled=throttled,
        progress=None if progress is None else progress_of(progress, note or ""),
        metadata=metadata_of(metadata),
        tags=readable(tags_of, tags) or (),
        tenant=tenant,
        principal=principal,
        correlation_id=correlation_id,
        trace=trace,
        parent=parent,
        on_failure=readable(follow_up_of, on_failure),
        on_lost=on_lost_of(on_lost),
        flow=None if place is None else _place_of(place),
        blocked=bool(blocked),
    )


def _place_of(text: str) -> FlowPlace:
    flow, part, added = _place(text)
    return FlowPlace(FlowId(flow), part, added=bool(added))


def attempt_of(row: Row) -> Attempt:
    """Decode a row of ``history`` in admin.sql."""
    number, attempt, verb, worker, started_at, ended_at, kind, text, traceback, metadata = row
    return Attempt(
        claim_number=number,
        attempt=attempt,
        verb=verb_of(verb),
        worker=worker,
        started_at=instant_of(started_at),
        ended_at=instant_of(ended_at),
        error=error_of(kind, text, traceback),
        metadata=metadata_of(metadata),
    )
