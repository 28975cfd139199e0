"""Storing new jobs."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from windlass.core.instant import span_us, to_us
from windlass.core.job import JobId, NewJob
from windlass.errors import LimitUnknown
from windlass.storage.calendar import LAST_US
from windlass.storage.protocol import Inserted
from windlass.storage.redis.asked import asked_record

__all__ = ["inserted", "items"]

_HEAD = struct.Struct(">Bqq")
_NOW, _AFTER, _AT = range(3)
_NEVER = -1
_PLAIN = _HEAD.pack(_NOW, 0, _NEVER)


def items(jobs: Sequence[NewJob]) -> list[bytes]:
    """The arguments of insert.lua."""
    return [part for job in jobs for part in (_head(job), asked_record(job))]


def _head(job: NewJob) -> bytes:
    if job.delay is None and job.at is None and job.expires is None:
        return _PLAIN
    expires = _NEVER if job.expires is None else max(0, min(span_us(job.expires), LAST_US))
    if job.delay is not None:
        return _HEAD.pack(_AFTER, min(span_us(job.delay), LAST_US), expires)
    if job.at is not None:
        return _HEAD.pack(_AT, min(to_us(job.at), LAST_US), expires)
    return _HEAD.pack(_NOW, 0, expires)


def inserted(jobs: Sequence[NewJob], reply: Sequence[bytes]) -> list[Inserted]:
    """The answers, from the reply of insert.lua."""
    if len(reply) > 1 and reply[0] == b"limit":
        name, *known = (text.decode(errors="replace") for text in reply[1:])
        raise LimitUnknown(name, known)
    return [
        Inserted(JobId(holder.hex()), created=False) if holder else Inserted(job.id, created=True)
        for job, holder in zip(jobs, reply, strict=True)
    ]
