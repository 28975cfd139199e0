"""Jobs by the first and the last digits of their ids."""

from __future__ import annotations

from typing import Any

import apsw

from windlass.core.job import JobId
from windlass.storage.protocol import Named
from windlass.storage.queries import load
from windlass.storage.sqlite.rows import fetch

__all__ = ["LOOK", "named"]

_SQL = load("windlass.storage.sqlite.sql", "find.sql")
_RANGE, _NEWEST = _SQL["named"], _SQL["newest"]

LOOK = 4_000
"""Ids of one look."""
_DIGITS = 32
_TOP = 2**63 - 1


def named(connection: apsw.Connection, first: str, last: str, after: str | None) -> Named:
    """`AdminStore.named`."""
    if first:
        low = bytes.fromhex(after or first.ljust(_DIGITS, "0"))
        high = bytes.fromhex(first.ljust(_DIGITS, "f"))
        met = fetch(connection, _RANGE, (low, high, after is not None, LOOK))
    else:
        met = fetch(connection, _NEWEST, (_TOP if after is None else int(after), LOOK))
    ids = [JobId(row[0].hex()) for row in met]
    return Named(
        [job for job in ids if job.endswith(last)],
        len(ids),
        _next(met[-1], first) if len(met) == LOOK else None,
    )


def _next(row: tuple[Any, ...], first: str) -> str:
    return row[0].hex() if first else str(row[1])
