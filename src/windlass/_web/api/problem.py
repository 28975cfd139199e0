"""Error answers of the API: RFC 9457."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

__all__ = ["MEDIA_TYPE", "Problem"]

MEDIA_TYPE = "application/problem+json"


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """An error, and what to do about it."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    code: str
    """For programs; stays as it is from release to release."""
    candidates: Sequence[str] | UnsetType = UNSET
    """Where an id was shortened, and several jobs may be meant: their whole ids."""
