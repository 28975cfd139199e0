"""Who asked for a job, and as part of what: read from well-known argument names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["CORRELATION_KEYS", "PRINCIPAL_KEYS", "first_usable"]

PRINCIPAL_KEYS = ("principal_id", "principal", "user_id")
CORRELATION_KEYS = ("correlation_id", "request_id")


def first_usable(arguments: Mapping[str, object], keys: Sequence[str]) -> str | None:
    """The first of ``keys`` that holds a non-empty string, a number or a boolean, as text."""
    for key in keys:
        value = arguments.get(key)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, (int, float)):
            return str(value)
    return None
