"""Rollups: what the accepted finishes add to their minute, and later to their hour."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from itertools import groupby
from operator import itemgetter
from typing import TypeVar

import apsw
import msgspec

from windlass._core.job.state import Verb
from windlass._core.stats.rollup import Rollup, bucket_of, bucket_top, merge
from windlass._core.values.instants import to_us
from windlass._storage.shared.sql_files import load_sql
from windlass._storage.shared.time_bounds import instant_of
from windlass._storage.sqlite.io.rows import Row, fetch, first

__all__ = ["RollupChanges", "copy_rollup", "histogram", "merge_hours", "read_rollups"]

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


class _FinishCounts:
    """The finishes of one queue, task and worker."""

    __slots__ = ("counts", "run", "wait")

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.wait: list[int] = []
        self.run: list[int] = []


_whose = itemgetter(4, 5, 6)
"""Queue, task and worker of a row of ``claims`` in apply.sql; 7 and 8 are due and start."""


class RollupChanges:
    """Collected while an operation decides, stored in its transaction."""

    def __init__(self, now: int) -> None:
        self._now = now
        self._tallies: defaultdict[tuple[str, str, str], _FinishCounts] = defaultdict(_FinishCounts)

    def add(self, verb: Verb, rows: Iterable[Row]) -> None:
        """Accepted finishes. Neighbours are mostly alike, so whose they are is looked up once."""
        now = self._now
        for whose, run in groupby(rows, _whose):
            tally = self._tallies[whose]
            before = len(tally.run)
            for row in run:
                started_at = row[8]
                tally.wait.append(started_at - row[7])
                tally.run.append(now - started_at)
            tally.counts[verb.value] += len(tally.run) - before

    def store(self, connection: apsw.Connection) -> None:
        minute = self._now - self._now % _MINUTE
        for whose, tally in self._tallies.items():
            counts, wait, run = tally.counts, histogram(tally.wait), histogram(tally.run)
            before = first(connection, _ROLLUP, (minute, *whose))
            if before is not None:
                counts.update(_counts_of(before[0]))
                wait.update(_buckets_of(before[1]))
                run.update(_buckets_of(before[2]))
            connection.execute(_PUT, (minute, *whose, _text(counts), _text(wait), _text(run)))


def histogram(durations: list[int]) -> Counter[int]:
    """How many fall into each bucket. Sorted, a bucket is a slice: most share a few of them."""
    durations.sort()
    counts: Counter[int] = Counter()
    start = 0
    while start < len(durations):
        bucket = bucket_of(durations[start])
        end = bisect_right(durations, bucket_top(bucket), start)
        counts[bucket] = end - start
        start = end
    return counts


def _text(counts: Mapping[_Key, int]) -> str:
    return _encode(counts).decode()


def read_rollups(connection: apsw.Connection, since: int, until: int) -> list[Rollup]:
    """One rollup per minute, queue and task, merged over the workers."""
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
