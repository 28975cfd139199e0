"""The request of a job: the record that hardly ever changes, its ids and texts."""

from __future__ import annotations

import struct
from datetime import timedelta
from functools import lru_cache
from typing import Any, Final

import msgspec

from windlass._core.job.job import FlowId, FlowPlace, FollowUp, LimitUse, NewJob, OnLost
from windlass._core.job.unique import UniqueKey, Window
from windlass._core.limits.backoff import Backoff
from windlass._core.limits.limit import lane_key
from windlass._core.values.instants import LAST_US, span_us
from windlass._storage.shared.job_ids import id_of

__all__ = [
    "UNREADABLE",
    "JobExtras",
    "JobRequest",
    "decode_request",
    "is_blocked",
    "key_and_limits",
    "place_of",
    "read_text",
    "readable_request",
    "request_record",
    "unique_of",
]

UNREADABLE: Final = (
    msgspec.MsgspecError, struct.error, ValueError, TypeError, OverflowError, IndexError,
    RecursionError,
)  # fmt: skip
"""Errors of decoding a damaged record."""

_read_special = msgspec.msgpack.Decoder(tuple[str, str, int, Any, str]).decode

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
_MEMBERSHIP = struct.Struct(">16sIB")
_ADDED, _BLOCKED = 1, 2
"""Flags of a membership."""

_pack = msgspec.msgpack.Encoder().encode


class JobExtras(msgspec.Struct, array_like=True):
    """Values that few jobs carry. Older records are shorter. Lua knows the positions of principal,
    correlation id and trace: see ``context_of`` in storing.lua.
    """

    timeout: int | None = None
    backoff: Backoff | None = None
    tags: tuple[str, ...] = ()
    tenant: str | None = None
    principal: str | None = None
    correlation_id: str | None = None
    trace: str | None = None
    parent: str | None = None
    on_failure: FollowUp | None = None
    on_lost: OnLost = "retry"


class JobRequest(msgspec.Struct, array_like=True):
    """An asked record. Lua writes the first four values, `request_record` the others."""

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
    extras: JobExtras | None
    membership: bytes | None = None
    """Of a member of a flow: how it is due, then its place in the flow. See `place_of`."""


decode_request = msgspec.msgpack.Decoder(JobRequest).decode


def request_record(job: NewJob) -> bytes:
    """Return the asked record from the budget on: the store puts instants and number in front."""
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
    """Return marks, and what Lua must know of a key and of limits: see ``special_of``
    in jobs.lua.
    """
    unique = job.unique
    if unique is None:
        return _LIMITED, _pack_limits(job.limits)
    marks = _LIMITED | _KEYED if job.limits else _KEYED
    if unique.window is Window.UNTIL_STARTED:
        marks |= _STARTED
    period = 0
    if unique.period is not None:
        # A hold of no time at all is over at once, and 0 means one without an end.
        period = max(1, min(span_us(unique.period), LAST_US))
    return marks, _pack_special(unique.key, unique.window.value, period, job.limits)


@lru_cache(maxsize=4096)
def _pack_limits(limits: tuple[LimitUse, ...]) -> bytes:
    """Pack limits without a key. Jobs of one task and tenant have the same ones."""
    return _pack_special("", "", 0, limits)


def _pack_special(key: str, window: str, period: int, limits: tuple[LimitUse, ...]) -> bytes:
    uses = [(use.name, use.key, use.cost) for use in limits]
    special = _pack((key, window, period, uses, lane_key(limits)))
    return _BYTES.pack(_BIN32, len(special)) + special


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
        and job.on_failure is None
        and job.on_lost == "retry"
    ):
        return _NIL
    return _pack(
        JobExtras(
            None if job.timeout is None else min(span_us(job.timeout), LAST_US),
            job.backoff,
            job.tags,
            job.tenant,
            job.principal,
            job.correlation_id,
            job.trace,
            job.parent,
            job.on_failure,
            job.on_lost,
        )
    )


def place_of(membership: bytes | None) -> FlowPlace | None:
    """Return the place of a member in its flow; None for other jobs."""
    if not membership:
        return None
    flow, part, flags = _MEMBERSHIP.unpack(membership[-_MEMBERSHIP.size :])
    return FlowPlace(FlowId(flow.hex()), part, added=bool(flags & _ADDED))


def is_blocked(membership: bytes) -> bool:
    """Return whether a membership is that of a blocked job."""
    return bool(membership[-1] & _BLOCKED)


def read_text(record: bytes, at: int) -> tuple[str, int]:
    """Return a text with its length in front, and where the next begins."""
    (length,) = _LENGTH.unpack_from(record, at)
    end = at + 2 + length
    return record[at + 2 : end].decode(errors="replace"), end


def readable_request(record: bytes) -> JobRequest:
    """Return an asked record for people: what cannot be decoded is shown as far as it can be."""
    try:
        return decode_request(record)
    except UNREADABLE:
        pass
    created, expires, seq, due = (struct.unpack_from(">q", record, 2 + 9 * n)[0] for n in range(4))
    _, budget, _, length = _FIXED.unpack_from(record, _HEAD)
    at = _HEAD + _FIXED.size
    queue = record[at : at + length].decode(errors="replace")
    task, at = read_text(record, at + length + 1)
    _, priority, _, marks, _, _, uid = _AFTER_TASK.unpack_from(record, at)
    return JobRequest(
        created, expires, seq, due, budget, queue, task, priority, marks, uid, None,
        record[at + _AFTER_TASK.size :], None,
    )  # fmt: skip


def unique_of(special: bytes | None) -> UniqueKey | None:
    """Return the requested key, without the behaviour on a conflict, which is over."""
    if not special:
        return None
    try:
        key, window, period, _, _ = _read_special(special)
        if not key:
            return None
        return UniqueKey(key, Window(window), timedelta(microseconds=period) if period else None)
    except UNREADABLE:
        return None


def key_and_limits(special: bytes | None) -> tuple[str | None, tuple[LimitUse, ...]]:
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
