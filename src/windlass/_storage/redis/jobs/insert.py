"""Storing new jobs."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from windlass._core.job.job import JobId, NewJob
from windlass._core.job.unique import OnConflict
from windlass._core.values.instants import LAST_US, span_us, to_us
from windlass._storage.protocol.jobs import Inserted
from windlass._storage.redis.jobs.request import request_record
from windlass.errors import IdConflict, KeyConflict, LimitUnknown

__all__ = [
    "as_text",
    "due_bytes",
    "insert_answers",
    "insert_args",
    "require_limits",
    "require_stored",
]

_HEAD = struct.Struct(">BqqB")
_STR32 = struct.Struct(">BI")
_NOW, _AFTER, _AT = range(3)
_NEVER = -1
_ID = 16
_REPEATED = b"="
_EXPIRED = 2
"""Bytes before the id of a job that was discarded."""
_CONFLICTS: Final = {
    OnConflict.REUSE: 0,
    OnConflict.REPLACE: 1,
    OnConflict.REPLACE_ARGUMENTS: 2,
    OnConflict.REPLACE_DUE: 3,
    OnConflict.RAISE: 4,
}
"""As storing.lua knows them."""
_REUSE = _CONFLICTS[OnConflict.REUSE]
_PLAIN = _HEAD.pack(_NOW, 0, _NEVER, _REUSE)


def insert_args(jobs: Sequence[NewJob]) -> list[bytes]:
    """Return the arguments of insert.lua."""
    return [part for job in jobs for part in (due_bytes(job), request_record(job))]


def due_bytes(job: NewJob) -> bytes:
    """Return when a job is due, when it expires, and what a held key means, for storing.lua."""
    unique = job.unique
    if job.delay is None and job.at is None and job.expires is None and unique is None:
        return _PLAIN
    what = _REUSE if unique is None else _CONFLICTS[unique.on_conflict]
    expires = _NEVER if job.expires is None else max(0, min(span_us(job.expires), LAST_US))
    if job.delay is not None:
        return _HEAD.pack(_AFTER, min(span_us(job.delay), LAST_US), expires, what)
    if job.at is not None:
        return _HEAD.pack(_AT, min(to_us(job.at), LAST_US), expires, what)
    return _HEAD.pack(_NOW, 0, expires, what)


def require_limits(reply: Sequence[Any]) -> None:
    """Raise for an undefined limit, if that is the server's answer."""
    if reply and reply[0] == b"limit":
        name, *known = (text.decode(errors="replace") for text in reply[1:])
        raise LimitUnknown(name, known)


def require_stored(reply: Sequence[bytes]) -> None:
    """Raise for what was not stored: an undefined limit, a stored id, or a key that is held."""
    require_limits(reply)
    if reply and reply[0] == b"id":
        raise IdConflict(reply[1].hex())
    if reply and reply[0] == b"key":
        raise KeyConflict(reply[1].decode(errors="replace"), reply[2].hex())


def insert_answers(
    jobs: Sequence[NewJob], reply: Sequence[bytes], *, unsure: bool = False
) -> list[Inserted]:
    """Return the answers, from the reply of insert.lua.

    ``unsure``: an earlier try may have stored them.
    """
    require_stored(reply)
    return [
        _inserted(job.id, said, unsure) if said else Inserted(job.id, created=True)
        for job, said in zip(jobs, reply, strict=True)
    ]


def _inserted(job: JobId, said: bytes, unsure: bool) -> Inserted:  # noqa: FBT001 -- per job
    """Return the answer of storing.lua for a job whose id or key is stored."""
    if said == _REPEATED:
        return Inserted(job, created=True, repeated=not unsure)
    if len(said) == _EXPIRED + _ID:
        return Inserted(job, created=True, expired=JobId(said[_EXPIRED:].hex()))
    return Inserted(JobId(said[:_ID].hex()), created=False, replaced=len(said) > _ID)


def as_text(value: bytes) -> msgspec.Raw:
    """Bytes as msgpack text: Lua's strings are bytes, and its decoder knows no other kind."""
    return msgspec.Raw(_STR32.pack(0xDB, len(value)) + value)
