"""Rollups: read, merged by the hour, and copied.

Finishes are added to them in `windlass._storage.sqlite.jobs.apply`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TypeVar

import apsw
import msgspec

from windlass._core.stats.rollup import Rollup, merge
from windlass._core.values.instants import instant_of, to_us
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.sqlite.io.rows import fetch, first

__all__ = ["copy_rollup", "merge_hours", "read_rollups"]

_SQL = load_sql("windlass._storage.sqlite.sql", "rollups.sql")
_ROLLUP, _PUT, _ROLLUPS = _SQL["rollup"], _SQL["put_rollup"], _SQL["rollups"]
_UNMERGED, _REMOVE = _SQL["unmerged"], _SQL["remove_rollup"]

_MINUTE = 60_000_000
_HOUR = 60 * _MINUTE
_MERGED, _COPIED = "", "(copied)"
"""In the place of a worker: of all workers together; of another storage, before it was moved."""
_Key = TypeVar("_Key", str, int)

_encode = msgspec.json.Encoder().encode
_counts_of = msgspec.json.Decoder(dict[str, int]).decode
_buckets_of = msgspec.json.Decoder(dict[int, int]).decode


def _text(counts: Mapping[_Key, int]) -> str:
    return _encode(counts).decode()


def read_rollups(connection: apsw.Connection, since: int, until: int) -> list[Rollup]:
    """Return one rollup per minute, queue and task, merged over the workers."""
    return merge(
        Rollup(
            minute=instant_of(minute),
            queue=queue,
            task=task,
            counts=_counts_of(counts),
            wait=_buckets_of(wait),
            run=_buckets_of(run),
        )
        for minute, queue, task, counts, wait, run in fetch(connection, _ROLLUPS, (since, until))
    )


def merge_hours(connection: apsw.Connection, before: int, limit: int) -> int:
    """Add up to ``limit`` rows of whole hours that ended before then to the first minute of their
    hour; how many rows that saved.
    """
    last = before - 1
    rows = fetch(connection, _UNMERGED, (last - last % _HOUR, limit))
    hours: dict[tuple[int, str, str, str], _Sums] = {}
    for minute, queue, task, worker, *sums in rows:
        mark = _COPIED if worker == _COPIED else _MERGED
        hour = (minute - minute % _HOUR, queue, task, mark)
        hours.setdefault(hour, _Sums()).add(*sums)
    connection.executemany(_REMOVE, [row[:4] for row in rows])
    saved = len(rows)
    for hour, total in hours.items():
        merged = first(connection, _ROLLUP, hour)
        if merged is None:
            saved -= 1
        else:
            total.add(*merged)
        connection.execute(_PUT, (*hour, *total.texts()))
    return saved


class _Sums:
    """Rollups added up."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._wait: Counter[int] = Counter()
        self._run: Counter[int] = Counter()

    def add(self, counts: str, wait: str, run: str) -> None:
        self._counts.update(_counts_of(counts))
        self._wait.update(_buckets_of(wait))
        self._run.update(_buckets_of(run))

    def texts(self) -> tuple[str, str, str]:
        return _text(self._counts), _text(self._wait), _text(self._run)


def copy_rollup(connection: apsw.Connection, rollup: Rollup) -> bool:
    """Keep what another storage had, beside what workers write here and in the place of an earlier
    copy; False: there was one.
    """
    place = (to_us(rollup.minute), rollup.queue, rollup.task, _COPIED)
    sums = (_text(rollup.counts), _text(rollup.wait), _text(rollup.run))
    known = first(connection, _ROLLUP, place) is not None
    connection.execute(_PUT, (*place, *sums))
    return not known
