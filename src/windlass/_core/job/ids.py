"""Ids that callers give to their jobs, and how ids are written for people."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from windlass._core.job.job import JobId
from windlass._core.values.names import shown
from windlass.errors import InvalidArgument

__all__ = [
    "IdPattern",
    "id_as_stored",
    "id_patterns_of",
    "is_full_id",
    "job_id_of",
    "job_ids_of",
    "looks_shortened",
    "short_id",
]

_PLAIN = re.compile(r"[0-9a-f]{32}")
_DASHED = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DASHED_LENGTH = 36
_OF_SCHEDULES = "8"
_DIGITS = 32
_FIRST, _LAST = 8, 6
"""Digits of a shortened id. An id begins with the time it was made, so neighbours share the first
ones; the last ones are chance. A terminal that cannot show the dots may show a question mark."""
_SHORT = re.compile(rf"([0-9a-f]{{{_FIRST},}})(?:…|\.{{2,3}}|\?)([0-9a-f]{{{_LAST},}})")
_BARE = re.compile(r"[0-9a-f]{8,31}")


class IdPattern(NamedTuple):
    """The known parts of an id: its first digits, and its last."""

    first: str
    """Eight digits or more, or none."""
    last: str


def short_id(job: str) -> str:
    """Return an id as people see it where there is little room: ``0192f3a1…9c4e07``."""
    return f"{job[:_FIRST]}…{job[-_LAST:]}" if len(job) > _FIRST + _LAST else job


def is_full_id(job: str) -> bool:
    """Return whether this is an id as it is stored."""
    return _PLAIN.fullmatch(job) is not None


def looks_shortened(text: str) -> bool:
    """Return whether this can be nothing but a shortened id: it has the dots."""
    return _SHORT.fullmatch(text.strip().lower()) is not None


def id_patterns_of(given: str) -> list[IdPattern]:
    """Return the patterns of a shortened id, in this order; empty if it is none."""
    text = given.strip().lower()
    if found := _SHORT.fullmatch(text):
        return [IdPattern(found[1], found[2])] if len(found[1]) + len(found[2]) < _DIGITS else []
    if not _BARE.fullmatch(text):
        return []
    bare = IdPattern("", text)
    if len(text) == _FIRST + _LAST:
        return [IdPattern(text[:_FIRST], text[_FIRST:]), bare]
    return [bare]


def id_as_stored(given: object) -> JobId:
    """Return an id as it is stored: a UUID with dashes names the same job. A text that is no UUID
    stays as it is, and is not found.
    """
    text = given if isinstance(given, str) else getattr(given, "hex", None)
    if not isinstance(text, str):
        message = f"an id is a UUID, or its 32 hex digits as text, got {shown(given)}"
        raise InvalidArgument(message)
    if len(text) == _DASHED_LENGTH and _DASHED.fullmatch(text.lower()):
        return JobId(text.lower().replace("-", ""))
    return JobId(text)


def job_id_of(given: object) -> JobId:
    """Return a UUID, or one as text with or without dashes, as the 32 hex digits that
    are stored.
    """
    digits = given if isinstance(given, str) else getattr(given, "hex", None)
    text = digits.lower() if isinstance(digits, str) else ""
    if _DASHED.fullmatch(text):
        text = text.replace("-", "")
    if not _PLAIN.fullmatch(text):
        message = (
            f"a job's id is a UUID, or its 32 hex digits, such as uuid.uuid4() or the id of "
            f"another attempt at the same call; got {shown(given)}"
        )
        raise InvalidArgument(message)
    if text[12] == _OF_SCHEDULES:
        message = f"UUIDs of version 8 are reserved for schedules: use another version, not {text}"
        raise InvalidArgument(message)
    return JobId(text)


def job_ids_of(given: Iterable[object], calls: int) -> list[JobId]:
    """Return one id for each call, all different."""
    ids = [job_id_of(one) for one in given]
    if len(ids) != calls:
        message = f"ids= needs one id for each of the {calls:,} calls, got {len(ids):,}"
        raise InvalidArgument(message)
    if len({*ids}) < calls:
        message = "ids= has the same id twice: give each call another one"
        raise InvalidArgument(message)
    return ids
