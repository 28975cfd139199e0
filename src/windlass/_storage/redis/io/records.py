"""Between stored bytes and records: ids, instants, states and what was asked, each in one place."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import NamedTuple

import msgspec

from windlass._core.job.job import Attempt, AttemptError, JobId, JobRecord
from windlass._core.job.state import Verb
from windlass._core.stats.rollup import Rollup
from windlass._core.values.instants import instant_of, to_us
from windlass._storage.protocol.jobs import Settled
from windlass._storage.redis.io.layout import (
    BACK,
    CANCEL,
    COUNTED,
    ERROR,
    FRONT,
    MEMBER,
    MEMBERSHIP,
    REASON,
    RESULT,
    SOLO,
    STATES,
    VERB_CODES,
    VERBS,
)
from windlass._storage.redis.jobs.request import (
    UNREADABLE,
    JobExtras,
    JobRequest,
    is_blocked,
    key_and_limits,
    place_of,
    read_text,
    readable_request,
    unique_of,
)
from windlass._storage.shared.stored_text import metadata_of, metadata_text, progress_of

__all__ = [
    "UNREADABLE",
    "StateRecord",
    "UnreadableRecord",
    "attempt_of",
    "attempt_record",
    "error_bytes",
    "error_of",
    "instant_at",
    "job_of",
    "optional_instant",
    "rollup_of",
    "settled_of",
    "span_of",
    "state_record_of",
    "unreadable_record_of",
]

_LENGTH = struct.Struct(">H")
_ENDED = struct.Struct(">IIBqqI")
_DEAD = struct.Struct(">16sdII")
_UNKNOWN_VERB = 255
_NOTED = 128
"""Added to the verb of an entry with metadata."""


class StateRecord(NamedTuple):
    """A state record."""

    state: int
    flags: int
    seq: int
    due: int
    max_attempts: int
    number: int
    attempt: int
    lost: int
    started: int
    finished: int
    expires: int
    missed: int
    ended_number: int
    ended_verb: int
    worker: str
    by: str
    tail: bytes
    membership: bytes
    """Of a member of a flow."""


_NO_EXTRAS = JobExtras()

_pack = msgspec.msgpack.Encoder().encode
_error_parts = msgspec.msgpack.Decoder(tuple[str, str]).decode
_progress_parts = msgspec.msgpack.Decoder(tuple[float, str]).decode


# --- values -----------------------------------------------------------------------------------


# Up to the year 2112 a float of seconds is exact to less than half a microsecond.
_EXACT = 2**52


def instant_at(us: int) -> datetime:
    """Return a stored instant, in a third of the time that adding a timedelta takes."""
    return datetime.fromtimestamp(us / 1e6, UTC) if 0 < us < _EXACT else instant_of(us)


def optional_instant(us: int) -> datetime | None:
    """Return an instant that may be missing."""
    return instant_of(us) if us else None


@lru_cache(maxsize=256)
def span_of(us: int | None) -> timedelta | None:
    """Return a duration that may be missing."""
    return None if us is None else timedelta(microseconds=us)


def error_bytes(error: AttemptError) -> bytes:
    """Return an error as it is stored, without its traceback."""
    return _pack((error.kind, error.message))


def error_of(said: bytes, traceback: bytes | None = None) -> AttemptError | None:
    """Return the error of msgpack [kind, message]; None for nothing."""
    if not said:
        return None
    kind, message = _error_parts(said)
    return AttemptError(kind, message, (traceback or b"").decode(errors="replace"))


# --- what is stored ---------------------------------------------------------------------------


def state_record_of(record: bytes) -> StateRecord:
    """Return the parts of a state record."""
    state, flags, sort, *front, length = FRONT.unpack_from(record)
    _, at = read_text(record, FRONT.size + length + 1)
    membership = b""
    if sort == MEMBER:
        membership, at = record[at : at + MEMBERSHIP], at + MEMBERSHIP
    *back, length = BACK.unpack_from(record, at)
    by_at = at + BACK.size + length
    worker = record[at + BACK.size : by_at].decode(errors="replace")
    by, rest = read_text(record, by_at)
    return StateRecord._make((state, flags, *front, *back, worker, by, record[rest:], membership))


def _untouched(asked: JobRequest) -> StateRecord:
    """Return the state record of a job that has none."""
    return StateRecord(
        0, 0, asked.seq, asked.due, asked.budget, 0, 0, 0, 0, 0, asked.expires, 0, 0, 0, "", "",
        b"", asked.membership or b"",
    )  # fmt: skip


def job_of(
    asked_bytes: bytes,
    kept_bytes: bytes | None,
    *,
    key_held: bool,
    error: bytes | None = None,
    traceback: bytes | None = None,
    progress: bytes | None = None,
    throttled: int = 0,
    why: bytes = b"",
) -> JobRecord:
    """Return the whole job, for people."""
    asked = readable_request(asked_bytes)
    kept = state_record_of(kept_bytes) if kept_bytes else _untouched(asked)
    key, limits = key_and_limits(asked.special)
    unique = unique_of(asked.special)
    extras, tail = asked.extras or _NO_EXTRAS, kept.tail
    return JobRecord(
        id=JobId(asked.id.hex()),
        seq=asked.seq,
        task=asked.task,
        queue=asked.queue,
        payload=asked.payload,
        state=STATES[kept.state],
        priority=asked.priority,
        created_at=instant_of(asked.created),
        due=instant_of(kept.due),
        attempt=kept.attempt,
        max_attempts=kept.max_attempts,
        budget=asked.budget,
        claim_number=kept.number,
        timeout=span_of(extras.timeout),
        expires_at=optional_instant(kept.expires),
        backoff=extras.backoff,
        key=key,
        key_held=key_held,
        key_window=None if unique is None else unique.window,
        key_period=None if unique is None else unique.period,
        limits=limits,
        worker=kept.worker or None,
        started_at=instant_of(kept.started) if kept.number else None,
        finished_at=optional_instant(kept.finished),
        result=tail if kept.flags & RESULT else None,
        error=error_of(error, traceback) if error and kept.flags & ERROR else None,
        reason=tail.decode(errors="replace") if kept.flags & REASON else None,
        cancel_requested=bool(kept.flags & CANCEL),
        lost=kept.lost,
        solo=bool(kept.flags & SOLO),
        missed_at=optional_instant(kept.missed),
        missed_why=why.decode(errors="replace") if why else None,
        throttled=throttled,
        progress=progress_of(*_progress_parts(progress)) if progress else None,
        tags=extras.tags,
        tenant=extras.tenant,
        principal=extras.principal,
        correlation_id=extras.correlation_id,
        trace=extras.trace,
        parent=None if extras.parent is None else JobId(extras.parent),
        on_failure=extras.on_failure,
        on_lost=extras.on_lost,
        flow=place_of(kept.membership),
        blocked=bool(kept.membership) and is_blocked(kept.membership),
    )


def settled_of(job: JobId, record: bytes, said: bytes) -> Settled:
    """Return a terminal job as a waiting caller needs it."""
    kept = state_record_of(record)
    error = error_of(said) or AttemptError("", "")
    return Settled(
        job,
        STATES[kept.state],
        kept.tail if kept.flags & RESULT else None,
        error.kind,
        error.message,
        kept.tail.decode(errors="replace") if kept.flags & REASON else None,
    )


def attempt_of(entry: bytes) -> Attempt:
    """Decode an entry of a job's history."""
    number, attempt, verb, started, ended, length = _ENDED.unpack_from(entry)
    error = _ENDED.size + length
    worker, rest = read_text(entry, error)
    metadata = ""
    if _NOTED <= verb < _UNKNOWN_VERB:
        verb -= _NOTED
        metadata, rest = read_text(entry, rest)
    return Attempt(
        claim_number=number,
        attempt=attempt,
        verb=VERBS[verb] if verb < len(VERBS) else f"unknown ({verb})",
        worker=worker,
        started_at=instant_of(started),
        ended_at=instant_of(ended),
        error=error_of(entry[_ENDED.size : error], entry[rest:]),
        metadata=metadata_of(metadata),
    )


def attempt_record(attempt: Attempt) -> bytes:
    """Return the entry that says this, as endings.lua writes it."""
    error, worker = attempt.error, attempt.worker.encode()
    said = b"" if error is None else error_bytes(error)
    metadata = (metadata_text(attempt.metadata) or "").encode()
    known = isinstance(attempt.verb, Verb)
    code = VERB_CODES[Verb(attempt.verb)] if known else _UNKNOWN_VERB
    noted = _LENGTH.pack(len(metadata)) + metadata if metadata and known else b""
    front = _ENDED.pack(
        attempt.claim_number,
        attempt.attempt,
        code + _NOTED if noted else code,
        to_us(attempt.started_at),
        to_us(attempt.ended_at),
        len(said),
    )
    traceback = "" if error is None else error.traceback
    return b"".join((front, said, _LENGTH.pack(len(worker)), worker, noted, traceback.encode()))


class UnreadableRecord(NamedTuple):
    """A record that could not be read, as it was stored."""

    id: JobId
    at: datetime
    reason: str
    asked: bytes
    kept: bytes


def unreadable_record_of(entry: bytes) -> UnreadableRecord:
    """Decode an entry of the list of dead records."""
    uid, at, reason, asked = _DEAD.unpack_from(entry)
    reason_at = _DEAD.size
    asked_at = reason_at + reason
    kept_at = asked_at + asked
    return UnreadableRecord(
        JobId(uid.hex()),
        instant_of(int(at)),
        entry[reason_at:asked_at].decode(errors="replace"),
        entry[asked_at:kept_at],
        entry[kept_at:],
    )


def rollup_of(minute: int, fields: Mapping[bytes, bytes]) -> list[Rollup]:
    """Return the rollups of one minute, by queue and task, from a ``rollups:<minute>`` hash."""
    counts: dict[tuple[str, str], tuple[dict[str, int], dict[int, int], dict[int, int]]] = {}
    for field, number in fields.items():
        queue, at = read_text(field, 0)
        task, at = read_text(field, at)
        verbs, wait, run = counts.setdefault((queue, task), ({}, {}, {}))
        what = field[at:].decode()
        if what[0] in "wr":
            (wait if what[0] == "w" else run)[int(what[1:])] = int(number)
        else:
            verbs[COUNTED[int(what)]] = int(number)
    return [
        Rollup(minute=instant_of(minute), queue=queue, task=task, counts=verbs, wait=wait, run=run)
        for (queue, task), (verbs, wait, run) in sorted(counts.items(), key=lambda its: its[0])
    ]
