"""Rows that cannot be read. One of them fails alone: it must not stop the claims of its queue.

Columns are written by this package only, but files are edited by hand, restored by halves and
written by other releases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import apsw

from windlass._storage.sqlite.io.rows import Row, fetch, seqs_text, unreadable_extra

__all__ = ["damage_of", "read_each"]

_TEXTS = (
    "task", "key", "backoff", "error_kind", "error_message", "tenant", "principal",
    "correlation_id", "trace", "tags", "on_failure", "on_lost",
)  # fmt: skip


def read_each(
    connection: apsw.Connection, sql: str, seqs: Sequence[int]
) -> tuple[list[Row], dict[int, str]]:
    """Return the rows of a statement that takes numbers, and the columns of those that
    are no text.
    """
    try:
        return fetch(connection, sql, (seqs_text(seqs),)), {}
    except UnicodeDecodeError:
        pass  # which of them is it?
    rows: list[Row] = []
    damaged: dict[int, str] = {}
    for seq in seqs:
        try:
            rows += fetch(connection, sql, (seqs_text([seq]),))
        except UnicodeDecodeError:
            damaged[seq] = _first_that_is_no_text(connection, seq)
    return rows, damaged


def _first_that_is_no_text(connection: apsw.Connection, seq: int) -> str:
    for column in _TEXTS:
        sql = f"SELECT {column} FROM jobs WHERE seq = ?"  # noqa: S608 -- one of ours
        try:
            fetch(connection, sql, (seq,))
        except UnicodeDecodeError:
            return column
    return "a text"


def damage_of(extras: Mapping[int, Row]) -> dict[int, str]:
    """Return those of the rows of ``extras`` in claim.sql that cannot be decoded, and where."""
    found = {seq: unreadable_extra(row) for seq, row in extras.items()}
    return {seq: column for seq, column in found.items() if column is not None}
