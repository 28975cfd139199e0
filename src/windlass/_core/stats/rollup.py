"""Rollups: counts and mergeable latency histograms per minute, queue and task.

Every accepted finish adds to one row per worker, minute, queue and task, in the finish's own
transaction; so does an enqueue that a unique key answered with a stored job. Readers merge the
rows. Histograms have four buckets per doubling, so a percentile read from one is at most a quarter
off, and merging two is adding counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec

from windlass._core.job.state import Verb
from windlass._core.values.instants import span_us

__all__ = [
    "BUCKET_TOPS",
    "COALESCED",
    "Histogram",
    "Rollup",
    "bucket_of",
    "bucket_top",
    "count_runs",
    "merge",
    "minute_of",
    "percentile",
]

_Key = TypeVar("_Key", str, int)

Histogram = Mapping[int, int]
"""Bucket index to count."""

COALESCED = "coalesce"
"""Counts enqueues that a unique key answered with a stored job. It is no verb: no run ended."""


def minute_of(instant: datetime) -> datetime:
    """Return the start of the minute."""
    return instant.replace(second=0, microsecond=0)


def bucket_of(us: int) -> int:
    """Return the bucket of a duration in microseconds: exact below 8, then four per doubling."""
    if us < 8:  # the first octave with four whole steps starts here
        return max(us, 0)
    octave = us.bit_length() - 1
    return octave * 4 + ((us >> (octave - 2)) & 3) - 4


def bucket_top(bucket: int) -> int:
    """Return the largest duration in microseconds that falls into ``bucket``."""
    if bucket < 8:
        return bucket
    octave, step = divmod(bucket + 4, 4)
    return ((5 + step) << (octave - 2)) - 1


BUCKET_TOPS = tuple(map(bucket_top, range(250)))
"""The same for every bucket that a duration of 63 bits can fall into."""


def count_runs(counts: Mapping[str, int]) -> int:
    """Return how many runs ended, of the counts of a rollup."""
    return sum(counts.values()) - counts.get(COALESCED, 0)


class Rollup(msgspec.Struct, frozen=True, kw_only=True):
    """Finishes and coalesced enqueues of one minute, task and queue."""

    minute: datetime
    queue: str
    task: str
    counts: Mapping[str, int]
    """Verb to number of accepted finishes; `COALESCED` to number of such enqueues."""
    wait: Histogram
    """Microseconds from due to start, one entry per accepted finish."""
    run: Histogram
    """Microseconds from start to finish, one entry per accepted finish."""

    @classmethod
    def of(
        cls,
        *,
        minute: datetime,
        queue: str,
        task: str,
        verb: Verb,
        waited: timedelta,
        ran: timedelta,
    ) -> Rollup:
        """Return the rollup of a single finish."""
        return cls(
            minute=minute,
            queue=queue,
            task=task,
            counts={verb.value: 1},
            wait={bucket_of(span_us(waited)): 1},
            run={bucket_of(span_us(ran)): 1},
        )


def _sum(maps: Iterable[Mapping[_Key, int]]) -> dict[_Key, int]:
    total: dict[_Key, int] = {}
    for counts in maps:
        for key, count in counts.items():
            total[key] = total.get(key, 0) + count
    return total


def merge(rollups: Iterable[Rollup]) -> list[Rollup]:
    """Return one rollup per minute, queue and task, in that order."""
    groups: dict[tuple[datetime, str, str], list[Rollup]] = {}
    for rollup in rollups:
        groups.setdefault((rollup.minute, rollup.queue, rollup.task), []).append(rollup)
    return [
        Rollup(
            minute=minute,
            queue=queue,
            task=task,
            counts=_sum(r.counts for r in group),
            wait=_sum(r.wait for r in group),
            run=_sum(r.run for r in group),
        )
        for (minute, queue, task), group in sorted(groups.items())
    ]


def percentile(histogram: Histogram, fraction: float) -> timedelta | None:
    """Return the duration that ``fraction`` of the entries do not exceed; None without entries."""
    total = sum(histogram.values())
    if not total:
        return None
    # Nearest rank: the smallest bucket that covers the wanted share of the entries. Rounded
    # first, because 0.07 * 100 is a little more than 7 and must not ask for the eighth entry.
    wanted = max(1, math.ceil(round(fraction * total, 6)))
    seen = 0
    for bucket in sorted(histogram):
        seen += histogram[bucket]
        if seen >= wanted:
            return timedelta(microseconds=bucket_top(bucket))
    return timedelta(microseconds=bucket_top(max(histogram)))
