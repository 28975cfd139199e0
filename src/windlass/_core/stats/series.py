"""Rollups over time: points of any width, by adding counts and histograms, never by averaging."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal

import msgspec

from windlass._core.stats.rollup import Histogram, Rollup, bucket_top, percentile
from windlass.errors import InvalidArgument

__all__ = [
    "Activity",
    "Latency",
    "Point",
    "Series",
    "activities",
    "check_steps",
    "series",
    "step_for",
    "step_start",
]

_STEPS = tuple(timedelta(minutes=minutes) for minutes in (1, 2, 5, 10, 30, 60, 180, 360, 720, 1440))
_FINE = 360
"""Points that a chart shows without being asked for a number."""
_MOST = 2_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Latency(msgspec.Struct, frozen=True, kw_only=True):
    """How long something took: percentiles to a quarter of their value, as the histograms are."""

    count: int
    p50: timedelta
    p95: timedelta
    p99: timedelta
    max: timedelta

    @classmethod
    def of(cls, histogram: Histogram) -> Latency | None:
        """Return the latency; None: nothing happened."""
        p50 = percentile(histogram, 0.5)
        p95, p99 = percentile(histogram, 0.95), percentile(histogram, 0.99)
        if p50 is None or p95 is None or p99 is None:
            return None
        top = timedelta(microseconds=bucket_top(max(histogram)))
        return cls(count=sum(histogram.values()), p50=p50, p95=p95, p99=p99, max=top)


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of one step, from ``at`` on."""

    at: datetime
    counts: Mapping[str, int]
    """Verb to how often; ``coalesce`` to how many enqueues a unique key answered with a stored
    job.
    """
    wait: Latency | None = None
    """Due to start."""
    run: Latency | None = None
    """Start to end."""


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """Counts over time, without gaps."""

    step: timedelta
    points: Sequence[Point]
    whole: Point
    """All of it together."""


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of one queue or task."""

    name: str
    counts: Mapping[str, int]
    wait: Latency | None = None
    run: Latency | None = None


class _Sum:
    """Rollups, added up."""

    __slots__ = ("counts", "run", "wait")

    def __init__(self) -> None:
        self.counts: defaultdict[str, int] = defaultdict(int)
        self.wait: defaultdict[int, int] = defaultdict(int)
        self.run: defaultdict[int, int] = defaultdict(int)

    def add(self, rollup: Rollup) -> None:
        for verb, count in rollup.counts.items():
            self.counts[verb] += count
        for bucket, count in rollup.wait.items():
            self.wait[bucket] += count
        for bucket, count in rollup.run.items():
            self.run[bucket] += count

    def point(self, at: datetime) -> Point:
        wait, run = Latency.of(self.wait), Latency.of(self.run)
        return Point(at=at, counts=dict(self.counts), wait=wait, run=run)


def step_for(span: timedelta) -> timedelta:
    """Return the width of points at which a chart of ``span`` is neither coarse nor crowded."""
    return next((step for step in _STEPS if span / step <= _FINE), _STEPS[-1])


def check_steps(since: datetime, until: datetime, step: timedelta) -> None:
    """Refuse steps of parts of a minute, and more points than a series may have."""
    if step < _STEPS[0] or step % _STEPS[0]:
        message = f"a step is whole minutes, got {step}"
        raise InvalidArgument(message)
    if (until - since) / step > _MOST:
        message = (
            f"{until - since} in steps of {step} are more than {_MOST:,} points: widen the step"
        )
        raise InvalidArgument(message)


def series(rollups: Iterable[Rollup], since: datetime, until: datetime, step: timedelta) -> Series:
    """Points from ``since``, rounded down to a whole step, to ``until``; empty ones included."""
    check_steps(since, until, step)
    sums: defaultdict[datetime, _Sum] = defaultdict(_Sum)
    whole, nothing = _Sum(), _Sum()
    first = at = step_start(since, step)
    for rollup in rollups:
        sums[step_start(rollup.minute, step)].add(rollup)
        whole.add(rollup)
    points: list[Point] = []
    while at < until:
        points.append(sums.get(at, nothing).point(at))
        at += step
    return Series(step=step, points=points, whole=whole.point(first))


def step_start(instant: datetime, step: timedelta) -> datetime:
    """Return the start of the step that an instant falls into."""
    return instant - (instant - _EPOCH) % step


def activities(rollups: Iterable[Rollup], by: Literal["queue", "task"]) -> list[Activity]:
    """Return the counts of each queue or task, by name."""
    sums: defaultdict[str, _Sum] = defaultdict(_Sum)
    for rollup in rollups:
        sums[rollup.queue if by == "queue" else rollup.task].add(rollup)
    return [
        Activity(
            name=name,
            counts=dict(told.counts),
            wait=Latency.of(told.wait),
            run=Latency.of(told.run),
        )
        for name, told in sorted(sums.items())
    ]
