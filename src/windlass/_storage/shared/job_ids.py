"""Ids of jobs as 16 bytes, as SQLite and Redis store them."""

from __future__ import annotations

from windlass._core.job.job import JobId
from windlass.errors import InvalidArgument

__all__ = ["id_of", "known_id"]


def id_of(job: JobId) -> bytes:
    """Turn an id that is to be stored into its stored form."""
    try:
        value = bytes.fromhex(job)
    except ValueError:
        value = b""
    if len(value) != 16 or len(job) != 32:
        raise InvalidArgument(f"a job id is 32 hex digits, got {job!r}")
    return value


def known_id(job: JobId) -> bytes:
    """Turn an id that is looked for into its stored form; one that has none is never found."""
    try:
        return bytes.fromhex(job)
    except ValueError:
        return b""
