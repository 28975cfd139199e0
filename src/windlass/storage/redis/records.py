"""Between stored bytes and records: ids, instants, states and what was asked, each in one place."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, NamedTuple

import msgspec

from windlass.core.backoff import Backoff
from windlass.core.instant import span_us
from windlass.core.job import Attempt, AttemptError, Job, JobId, LimitUse, NewJob, Progress
from windlass.core.limit import lane_key
from windlass.core.rollup import Rollup
from windlass.core.unique import Window
from windlass.errors import InvalidArgument
from windlass.storage.calendar import LAST_US, instant_of
from windlass.storage.protocol import Settled
from windlass.storage.redis.layout import (
    BACK,
    CANCEL,
    ERROR,
    FRONT,
    REASON,
    RESULT,
    SOLO,
    STATES,
    VERBS,
)

__all__ = [
    "UNREADABLE",
    "Asked",
    "Dead",
    "Extras",
    "Kept",
    "asked_record",
    "attempt_of",
    "dead_of",
    "decode_asked",
    "error_of",
    "id_of",
    "instant",
    "job_of",
    "kept_of",
    "known_id",
    "moment",
    "rollup_of",
    "settled_of",
    "shown_asked",
    "span_of",
]

UNREADABLE: Final = (
    msgspec.MsgspecError, struct.error, ValueError, TypeError, OverflowError, IndexError,
    RecursionError,
)  # fmt: skip
"""What decoding raises for what nobody stored."""

_KEYED, _LIMITED, _STARTED = 1, 2, 4
"""Marks of an asked record: it has a key, it has limits, its key is freed at its start."""

# The msgpack types of the fixed positions: 64-bit integer, 8-bit unsigned, binary, text, nothing.
_INT, _BYTE, _BIN8, _BIN32, _STR16, _NIL = 0xD3, 0xCC, 0xC4, 0xC6, 0xDA, b"\xc0"
_FIXED = struct.Struct(">BqBH")
_AFTER_TASK = struct.Struct(">BqBBBB16s")
_HEAD = 37
"""Bytes that the store puts in front."""
_TEXT = struct.Struct(">BH")
_BYTES = struct.Struct(">BI")
_LENGTH = struct.Struct(">H")
_ENDED = struct.Struct(">IIBqqI")
_DEAD = struct.Struct(">16sdII")

_pack = msgspec.msgpack.Encoder().encode


class Extras(msgspec.Struct, array_like=True):
    """What few jobs carry."""

    timeout: int | None = None
    backoff: Backoff | None = None
    tags: tuple[str, ...] = ()
    tenant: str | None = None
    principal: str | None = None
    correlation_id: str | None = None
    trace: str | None = None
    parent: str | None = None


class Asked(msgspec.Struct, array_like=True):
    """An asked record. Lua writes the first four values, `asked_record` the others."""

    created: int
    expires: int
    seq: int
    due: int
    budget: int
    queue: str
    task: str
    priority: int
    marks: int
    id: bytes
    special: bytes | None
    payload: bytes
    extras: Extras | None


class Kept(NamedTuple):
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


_NO_EXTRAS = Extras()

decode_asked = msgspec.msgpack.Decoder(Asked).decode
_error_parts = msgspec.msgpack.Decoder(tuple[str, str]).decode
_progress_parts = msgspec.msgpack.Decoder(tuple[float, str]).decode


# --- values -----------------------------------------------------------------------------------


def id_of(job: JobId) -> bytes:
    """The stored form of an id that is to be stored."""
    try:
        value = bytes.fromhex(job)
    except ValueError:
        value = b""
    if len(value) != 16 or len(job) != 32:
        raise InvalidArgument(f"a job id is 32 hex digits, got {job!r}")
    return value


def known_id(job: JobId) -> bytes:
    """The stored form of an id that is looked for; one that cannot be stored is never found."""
    try:
        return bytes.fromhex(job)
    except ValueError:
        return b""


# Up to the year 2112 a float of seconds is exact to less than half a microsecond.
_EXACT = 2**52


def moment(us: int) -> datetime:
    """A stored instant, in a third of the time that adding a timedelta takes."""
    return datetime.fromtimestamp(us / 1e6, UTC) if 0 < us < _EXACT else instant_of(us)


def instant(us: int) -> datetime | None:
    """An instant that may be missing."""
    return instant_of(us) if us else None


@lru_cache(maxsize=256)
def span_of(us: int | None) -> timedelta | None:
    """A duration that may be missing."""
    return None if us is None else timedelta(microseconds=us)


def error_of(said: bytes, traceback: bytes | None = None) -> AttemptError | None:
    """The error of msgpack [kind, message]; None for nothing."""
    if not said:
        return None
    kind, message = _error_parts(said)
    return AttemptError(kind, message, (traceback or b"").decode(errors="replace"))


# --- what is asked for ------------------------------------------------------------------------


def asked_record(job: NewJob) -> bytes:
    """The asked record from the budget on: the store puts instants and number in front."""
    unique, limits = job.unique, job.limits
    marks, special = 0, _NIL
    if unique is not None or limits:
        marks, special = _special_of(job)
    queue, task, payload = job.queue.encode(), job.task.encode(), job.payload
    return b"".join(
        (
            _FIXED.pack(_INT, job.max_attempts, _STR16, len(queue)),
            queue,
            _TEXT.pack(_STR16, len(task)),
            task,
            _AFTER_TASK.pack(_INT, job.priority, _BYTE, marks, _BIN8, 16, id_of(job.id)),
            special,
            _BYTES.pack(_BIN32, len(payload)),
            payload,
            _extras_of(job),
        )
    )


def _special_of(job: NewJob) -> tuple[int, bytes]:
    """Marks, and what Lua must know of a key and of limits: see ``special_of`` in jobs.lua."""
    unique = job.unique
    marks = _LIMITED if job.limits else 0
    key, window, period = "", "", 0
    if unique is not None:
        marks |= _KEYED
        key, window = unique.key, unique.window.value
        if unique.window is Window.UNTIL_STARTED:
            marks |= _STARTED
        if unique.period is not None:
            # A hold of no time at all is over at once, and 0 stands for one without an end.
            period = max(1, min(span_us(unique.period), LAST_US))
    uses = [(use.name, use.key, use.cost) for use in job.limits]
    special = _pack((key, window, period, uses, lane_key(job.limits)))
    return marks, _BYTES.pack(_BIN32, len(special)) + special


def _extras_of(job: NewJob) -> bytes:
    if (
        job.timeout is None
        and job.backoff is None
        and not job.tags
        and job.tenant is None
        and job.principal is None
        and job.correlation_id is None
        and job.trace is None
        and job.parent is None
    ):
        return _NIL
    return _pack(
        Extras(
            None if job.timeout is None else min(span_us(job.timeout), LAST_US),
            job.backoff,
            job.tags,
            job.tenant,
            job.principal,
            job.correlation_id,
            job.trace,
            job.parent,
        )
    )


# --- what is stored ---------------------------------------------------------------------------


def kept_of(record: bytes) -> Kept:
    """The parts of a state record."""
    *front, length = FRONT.unpack_from(record)
    _, at = _named(record, FRONT.size + length + 1)
    *back, length = BACK.unpack_from(record, at)
    by_at = at + BACK.size + length
    worker = record[at + BACK.size : by_at].decode(errors="replace")
    by, rest = _named(record, by_at)
    return Kept._make((*front, *back, worker, by, record[rest:]))


def _named(record: bytes, at: int) -> tuple[str, int]:
    """A text with its length in front, and where the next begins."""
    (length,) = _LENGTH.unpack_from(record, at)
    end = at + 2 + length
    return record[at + 2 : end].decode(errors="replace"), end


def _untouched(asked: Asked) -> Kept:
    """What the state record of a job would say that has none."""
    return Kept(
        0, 0, asked.seq, asked.due, asked.budget, 0, 0, 0, 0, 0, asked.expires, 0, 0, 0, "", "", b""
    )


def shown_asked(record: bytes) -> Asked:
    """An asked record for people: what cannot be decoded is shown as far as it can be."""
    try:
        return decode_asked(record)
    except UNREADABLE:
        pass
    created, expires, seq, due = (struct.unpack_from(">q", record, 2 + 9 * n)[0] for n in range(4))
    _, budget, _, length = _FIXED.unpack_from(record, _HEAD)
    at = _HEAD + _FIXED.size
    queue = record[at : at + length].decode(errors="replace")
    task, at = _named(record, at + length + 1)
    _, priority, _, marks, _, _, uid = _AFTER_TASK.unpack_from(record, at)
    return Asked(
        created, expires, seq, due, budget, queue, task, priority, marks, uid, None,
        record[at + _AFTER_TASK.size :], None,
    )  # fmt: skip


def job_of(
    asked_bytes: bytes,
    kept_bytes: bytes | None,
    *,
    key_held: bool,
    error: bytes | None = None,
    traceback: bytes | None = None,
    progress: bytes | None = None,
) -> Job:
    """The whole job, for people."""
    asked = shown_asked(asked_bytes)
    kept = kept_of(kept_bytes) if kept_bytes else _untouched(asked)
    extras = asked.extras or _NO_EXTRAS
    key, limits = _special_parts(asked.special)
    tail = kept.tail
    return Job(
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
        expires_at=instant(kept.expires),
        backoff=extras.backoff,
        key=key,
        key_held=key_held,
        limits=limits,
        worker=kept.worker or None,
        started_at=instant_of(kept.started) if kept.number else None,
        finished_at=instant(kept.finished),
        result=tail if kept.flags & RESULT else None,
        error=error_of(error, traceback) if error and kept.flags & ERROR else None,
        reason=tail.decode(errors="replace") if kept.flags & REASON else None,
        cancel_requested=bool(kept.flags & CANCEL),
        lost=kept.lost,
        solo=bool(kept.flags & SOLO),
        missed_at=instant(kept.missed),
        progress=Progress(*_progress_parts(progress)) if progress else None,
        tags=extras.tags,
        tenant=extras.tenant,
        principal=extras.principal,
        correlation_id=extras.correlation_id,
        trace=extras.trace,
        parent=None if extras.parent is None else JobId(extras.parent),
    )


def _special_parts(special: bytes | None) -> tuple[str | None, tuple[LimitUse, ...]]:
    """Key and limits as asked for; nothing where that cannot be read."""
    if not special:
        return None, ()
    try:
        key, _, _, uses, _ = msgspec.msgpack.decode(
            special, type=tuple[str, str, int, tuple[tuple[str, str, float], ...], str]
        )
        return key or None, tuple(LimitUse(*use) for use in uses)
    except UNREADABLE:
        return None, ()


def settled_of(job: JobId, record: bytes, said: bytes) -> Settled:
    """A terminal job as a waiting caller needs it."""
    kept = kept_of(record)
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
    """An entry of a job's history."""
    number, attempt, verb, started, ended, length = _ENDED.unpack_from(entry)
    error = _ENDED.size + length
    worker, rest = _named(entry, error)
    return Attempt(
        claim_number=number,
        attempt=attempt,
        verb=VERBS[verb],
        worker=worker,
        started_at=instant_of(started),
        ended_at=instant_of(ended),
        error=error_of(entry[_ENDED.size : error], entry[rest:]),
    )


class Dead(NamedTuple):
    """What could not be read, as it was stored."""

    id: JobId
    at: datetime
    reason: str
    asked: bytes
    kept: bytes


def dead_of(entry: bytes) -> Dead:
    """An entry of the list of dead records."""
    uid, at, reason, asked = _DEAD.unpack_from(entry)
    reason_at = _DEAD.size
    asked_at = reason_at + reason
    kept_at = asked_at + asked
    return Dead(
        JobId(uid.hex()),
        instant_of(int(at)),
        entry[reason_at:asked_at].decode(errors="replace"),
        entry[asked_at:kept_at],
        entry[kept_at:],
    )


def rollup_of(minute: int, fields: Mapping[bytes, bytes]) -> list[Rollup]:
    """The rollups of one minute, from a ``rollups:<minute>`` hash."""
    counts: dict[tuple[str, str], tuple[dict[str, int], dict[int, int], dict[int, int]]] = {}
    for field, number in fields.items():
        queue, at = _named(field, 0)
        task, at = _named(field, at)
        verbs, wait, run = counts.setdefault((queue, task), ({}, {}, {}))
        what = field[at:].decode()
        if what[0] in "wr":
            (wait if what[0] == "w" else run)[int(what[1:])] = int(number)
        else:
            verbs[VERBS[int(what)].value] = int(number)
    return [
        Rollup(minute=instant_of(minute), queue=queue, task=task, counts=verbs, wait=wait, run=run)
        for (queue, task), (verbs, wait, run) in counts.items()
    ]
