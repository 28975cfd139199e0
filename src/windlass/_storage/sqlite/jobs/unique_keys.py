"""Unique keys: each hold is a row, so that one index decides who has it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import apsw

from windlass._core.values.instants import add_clamped_us
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.sqlite.io.rows import first

__all__ = ["Holder", "find_holder", "free_keys", "hold_key", "retake_keys", "take_key"]

_SQL = load_sql("windlass._storage.sqlite.sql", "jobs.sql")
_HOLDER, _TAKE = _SQL["key_holder"], _SQL["take_key"]
_FREE, _FREE_PASSED = _SQL["free_key"], _SQL["free_passed_key"]


class Holder(NamedTuple):
    """The job that holds a key."""

    seq: int
    id: bytes
    alike: bool
    """A job of the task that was asked about."""
    late: bool
    """It waits past its expiry, and its key is held no longer than that."""


def find_holder(
    connection: apsw.Connection, key: str, now: int, task: str | None = None
) -> Holder | None:
    """Return the holder of the key now. A hold whose time is up is deleted."""
    found = first(connection, _HOLDER, (key, task, now))
    if found is None:
        return None
    seq, uid, until, alike, late = found
    if until is not None and until <= now:
        connection.execute(_FREE_PASSED, (key, now))
        return None
    return Holder(seq, uid, bool(alike), bool(late))


def take_key(
    connection: apsw.Connection, key: str, seq: int, *, period: int | None, now: int
) -> None:
    """Hold a free key; with a period, for that long."""
    hold_key(connection, key, seq, until=None if period is None else add_clamped_us(now, period))


def hold_key(connection: apsw.Connection, key: str, seq: int, *, until: int | None) -> None:
    """Hold a free key; with an instant, until then."""
    connection.execute(_TAKE, (key, seq, until))


def retake_keys(connection: apsw.Connection, jobs: Iterable[tuple[int, str]], now: int) -> None:
    """Give jobs that were not started their keys again, unless others hold them by now."""
    for seq, key in jobs:
        if find_holder(connection, key, now) is None:
            hold_key(connection, key, seq, until=None)


def free_keys(connection: apsw.Connection, held: Iterable[tuple[str, int]]) -> None:
    """Give up keys, each named with the number of the job that may hold it."""
    connection.executemany(_FREE, held)
