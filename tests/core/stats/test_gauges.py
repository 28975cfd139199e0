"""Gauges add up over time: means by samples, peaks by the highest."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from windlass._core.stats.gauges import (
    Gauge,
    GaugeRow,
    add_gauges,
    by_source,
    first_gauges,
    gauge_series,
)
from windlass.errors import InvalidArgument

NOON = datetime(2030, 5, 4, 12, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


def row(minute: int, source: str, **values: float) -> GaugeRow:
    return GaugeRow(NOON + minute * MINUTE, source, first_gauges(values))


def test_a_mean_weighs_each_sample_and_a_peak_is_the_highest() -> None:
    hour = {"cpu": Gauge(3, 0.6, 0.5)}
    total = add_gauges([hour, first_gauges({"cpu": 1.0, "disk": 7.0})])
    assert total == {"cpu": Gauge(4, 1.6, 1.0), "disk": Gauge(1, 7.0, 7.0)}


def test_a_series_has_a_point_for_every_step_of_every_source() -> None:  # METR-8
    rows = [
        row(0, "a", cpu=0.25),
        row(1, "a", cpu=0.75),
        row(1, "b", cpu=1.0),
        row(5, "a", cpu=0.0),
    ]
    a, b = (
        gauge_series(source, found, NOON, NOON + 6 * MINUTE, 2 * MINUTE)
        for source, found in by_source(rows).items()
    )
    assert (a.source, b.source) == ("a", "b")
    assert [point.mean for point in a.points] == [{"cpu": 0.5}, {}, {"cpu": 0.0}]
    assert [point.peak for point in a.points] == [{"cpu": 0.75}, {}, {"cpu": 0.0}]
    assert [point.at for point in b.points] == [NOON, NOON + 2 * MINUTE, NOON + 4 * MINUTE]
    assert a.whole.peak == {"cpu": 0.75}
    assert a.latest is not None
    assert b.latest is not None
    assert (a.latest.at, a.latest.mean) == (NOON + 5 * MINUTE, {"cpu": 0.0})
    assert (b.latest.at, b.latest.mean) == (NOON + MINUTE, {"cpu": 1.0})


def test_a_series_without_measurements_has_empty_points() -> None:
    series = gauge_series("a", [], NOON, NOON + HOUR, MINUTE)
    assert (len(series.points), series.latest, series.whole.mean) == (60, None, {})


def test_a_series_of_too_many_points_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="widen the step"):
        gauge_series("a", [], NOON, NOON + 3000 * MINUTE, MINUTE)
