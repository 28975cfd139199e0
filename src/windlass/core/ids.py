"""Ids that callers give to their jobs."""

from __future__ import annotations

import re
from collections.abc import Iterable

from windlass.core.job import JobId
from windlass.core.text import shown
from windlass.errors import InvalidArgument

__all__ = ["id_as_stored", "job_id_of", "job_ids_of"]

_PLAIN = re.compile(r"[0-9a-f]{32}")
_DASHED = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_DASHED_LENGTH = 36
_OF_SCHEDULES = "8"


def id_as_stored(given: object) -> JobId:
    """An id to look for, written as it is stored: a UUID with dashes names the same job. What is no
    UUID stays as it is, and is not found.
    """
    if not isinstance(given, str):
        given = getattr(given, "hex", given)
    text = str(given)
    if len(text) == _DASHED_LENGTH and _DASHED.fullmatch(text.lower()):
        return JobId(text.lower().replace("-", ""))
    return JobId(text)


def job_id_of(given: object) -> JobId:
    """A UUID, or one as text with or without dashes, as the 32 hex digits that are stored."""
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
        message = f"UUIDs of version 8 are for the runs of schedules: take another, not {text}"
        raise InvalidArgument(message)
    return JobId(text)


def job_ids_of(given: Iterable[object], calls: int) -> list[JobId]:
    """One for each call, all different."""
    ids = [job_id_of(one) for one in given]
    if len(ids) != calls:
        message = f"ids= needs one id for each of the {calls:,} calls, got {len(ids):,}"
        raise InvalidArgument(message)
    if len({*ids}) < calls:
        message = "ids= has the same id twice: give each call another one"
        raise InvalidArgument(message)
    return ids
