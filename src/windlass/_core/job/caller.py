"""Principal, tenant and correlation id of a job, read from well-known argument names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

__all__ = ["CORRELATION_KEYS", "PRINCIPAL_KEYS", "first_usable"]

PRINCIPAL_KEYS = ("principal_id", "principal", "user_id")
CORRELATION_KEYS = ("correlation_id", "request_id")


def first_usable(arguments: Mapping[str, object], keys: Sequence[str]) -> str | None:
    """Return the first of ``keys`` that holds a non-empty string, a number or a boolean, as text.

    What counts is how a value is stored: a UUID or an enum member is a string in the payload.
    """
    for key in keys:
        if key not in arguments:
            continue
        value = _as_stored(arguments[key])
        if isinstance(value, str):
            value = value.replace("\x00", "")  # not every store can keep it
            if value:
                return value
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, (int, float)):
            return str(value)
    return None


def _as_stored(value: object) -> object:
    if value is None or type(value) in {str, int, float, bool}:
        return value
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError, RecursionError):
        return None  # it is not a name
