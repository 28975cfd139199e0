"""Statements that write many rows, several at a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import chain

import apsw

from windlass._storage.sqlite.io.rows import Row

__all__ = ["WideStatement"]

_TOGETHER = 50
"""Rows that share a statement: it takes half the time of as many statements."""


class WideStatement:
    """A statement with one row of ``VALUES``, which it runs for any number of them.

    ``executemany`` puts the statement back into the connection's cache after every row, and each
    time the cache lets go of another one: a hundred rows empty it, and the next operation prepares
    all of its statements again.
    """

    __slots__ = ("_many", "one")

    def __init__(self, sql: str, one: str | None = None) -> None:
        """Widen ``sql``, whose parameters have no numbers. ``one`` does the same for one row."""
        head, row, tail = re.split(r"(?<=VALUES )(\([?, ]+\))", sql)
        self.one: str = one or sql
        self._many: str = head + ", ".join([row] * _TOGETHER) + tail

    def run(self, connection: apsw.Connection, rows: Sequence[Row]) -> None:
        """Write these rows, in their order."""
        whole = len(rows) - len(rows) % _TOGETHER
        for start in range(0, whole, _TOGETHER):
            values = list(chain.from_iterable(rows[start : start + _TOGETHER]))
            connection.execute(self._many, values)
        if whole < len(rows):
            connection.executemany(self.one, rows[whole:])
