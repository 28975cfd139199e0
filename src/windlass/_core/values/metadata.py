"""Metadata: small facts that a handler attaches to its run."""

from __future__ import annotations

import math
from collections.abc import Mapping

import msgspec

from windlass.errors import InvalidArgument

__all__ = ["Metadata", "MetadataValue", "merge_metadata"]

MetadataValue = str | int | float | bool | None
Metadata = Mapping[str, MetadataValue]
"""By name. JSON without lists and objects."""

_MOST = 32
_LONGEST_NAME = 64
_MOST_BYTES = 4096
_LEAST, _OVER = -(2**63), 2**64
"""Integers that every store and every reader of JSON keeps."""


def merge_metadata(known: Metadata, added: Mapping[str, object]) -> dict[str, MetadataValue]:
    """Return both together, the added value where both have one. InvalidArgument: too many, too
    large, or no JSON scalar.
    """
    merged = {**known, **{name: _checked(name, value) for name, value in added.items()}}
    if len(merged) > _MOST:
        message = (
            f"a run has at most {_MOST} metadata values, and this would be {len(merged)}: return "
            f"the others as the result, or log them"
        )
        raise InvalidArgument(message)
    try:
        size = len(msgspec.json.encode(merged))
    except UnicodeEncodeError as error:
        message = f"the metadata of a run is valid Unicode text, got {error.object!r}"
        raise InvalidArgument(message) from error
    if size > _MOST_BYTES:
        message = (
            f"the metadata of a run is at most {_MOST_BYTES:,} bytes of JSON, got {size:,}: return "
            f"large values as the result, or store them elsewhere and note where"
        )
        raise InvalidArgument(message)
    return merged


def _checked(name: str, value: object) -> MetadataValue:
    if not name or len(name) > _LONGEST_NAME:
        message = f"the name of a metadata value has 1 to {_LONGEST_NAME} characters, got {name!r}"
        raise InvalidArgument(message)
    match value:
        case None | bool():
            return value
        case str():
            return str(value)
        case int() if _LEAST <= value < _OVER:
            return int(value)
        case float() if math.isfinite(value):
            return float(value)
    message = (
        f"metadata values are text, numbers that JSON has, True, False or None; {name}={value!r} "
        f"is none of them: pass str({name}), or return it as the result"
    )
    raise InvalidArgument(message)
