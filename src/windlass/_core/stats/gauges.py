"""Gauges: values that rise and fall, such as CPU use, per minute and source.

A source is a host, or the storage itself. Minutes add up to any width: a mean of means would be
wrong where one step has more measurements than another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from windlass._core.stats.series import check_steps, step_start

__all__ = [
    "STORAGE",
    "Gauge",
    "GaugePoint",
    "GaugeRow",
    "GaugeSeries",
    "Readings",
    "add_gauges",
    "by_source",
    "first_gauges",
    "gauge_series",
]

STORAGE = ""
"""The source of gauges that describe the storage. Every other source is the name of a host."""

Readings = Mapping[str, Mapping[str, float]]
"""Source to the values that were measured of it, by name."""


class Gauge(msgspec.Struct, frozen=True, array_like=True):
    """Measurements of one gauge, added up. Stored as a list of these three."""

    samples: int
    total: float
    peak: float


class GaugeRow(msgspec.Struct, frozen=True):
    """The gauges of one source, from ``minute`` on: a minute, or the hour that was made of it."""

    minute: datetime
    source: str
    gauges: Mapping[str, Gauge]


class GaugePoint(msgspec.Struct, frozen=True, kw_only=True):
    """The gauges of one step, from ``at`` on. A gauge that was not measured is left out."""

    at: datetime
    mean: Mapping[str, float]
    peak: Mapping[str, float]


class GaugeSeries(msgspec.Struct, frozen=True, kw_only=True):
    """The gauges of one source over time, without gaps."""

    source: str
    """A host; "" for the storage."""
    step: timedelta
    points: Sequence[GaugePoint]
    whole: GaugePoint
    """All of it together."""
    latest: GaugePoint | None = None
    """The last measurement; None: there is none."""


def first_gauges(values: Mapping[str, float]) -> dict[str, Gauge]:
    """Return what a store keeps of one measurement."""
    return {name: Gauge(1, value, value) for name, value in values.items()}


def add_gauges(rows: Iterable[Mapping[str, Gauge]]) -> dict[str, Gauge]:
    """Add up the gauges of several minutes."""
    total: dict[str, Gauge] = {}
    for gauges in rows:
        for name, more in gauges.items():
            old = total.get(name)
            if old is None:
                total[name] = more
            else:
                peak = max(old.peak, more.peak)
                total[name] = Gauge(old.samples + more.samples, old.total + more.total, peak)
    return total


def gauge_series(
    source: str, rows: Sequence[GaugeRow], since: datetime, until: datetime, step: timedelta
) -> GaugeSeries:
    """Return the series of one source: points from ``since``, rounded down to a whole step, to
    ``until``; empty ones included.
    """
    check_steps(since, until, step)
    parts: defaultdict[datetime, list[Mapping[str, Gauge]]] = defaultdict(list)
    for row in rows:
        parts[step_start(row.minute, step)].append(row.gauges)
    first = at = step_start(since, step)
    points: list[GaugePoint] = []
    while at < until:
        points.append(_point(at, parts.get(at, ())))
        at += step
    last = max(rows, key=lambda row: row.minute, default=None)
    return GaugeSeries(
        source=source,
        step=step,
        points=points,
        whole=_point(first, [row.gauges for row in rows]),
        latest=None if last is None else _point(last.minute, [last.gauges]),
    )


def by_source(rows: Iterable[GaugeRow]) -> dict[str, list[GaugeRow]]:
    """Return the rows of each source, by name."""
    found: defaultdict[str, list[GaugeRow]] = defaultdict(list)
    for row in rows:
        found[row.source].append(row)
    return dict(sorted(found.items()))


def _point(at: datetime, parts: Iterable[Mapping[str, Gauge]]) -> GaugePoint:
    sums = add_gauges(parts)
    return GaugePoint(
        at=at,
        mean={name: gauge.total / gauge.samples for name, gauge in sums.items()},
        peak={name: gauge.peak for name, gauge in sums.items()},
    )
