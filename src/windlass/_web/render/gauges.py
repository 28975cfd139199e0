"""Gauges as charts: one line for each gauge or each host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from windlass._core.stats.gauges import GaugePoint, GaugeSeries

__all__ = ["ChartLine", "gauge_chart", "gauge_line", "percentage", "percentages"]


class ChartLine(msgspec.Struct, frozen=True):
    """One line of a chart."""

    label: str
    colour: str
    values: Sequence[float | None]
    fill: bool = False


def gauge_line(
    label: str, colour: str, series: GaugeSeries, gauge: str, *, fill: bool = False
) -> ChartLine:
    """Return the means of one gauge; None where it was not measured."""
    values = [point.mean.get(gauge) for point in series.points]
    return ChartLine(label, colour, values, fill)


def gauge_chart(series: GaugeSeries, lines: Sequence[ChartLine], unit: str) -> dict[str, Any]:
    """Return the data of a chart (``charts.js``). A line without any value is left out."""
    return {
        "times": [int(point.at.timestamp()) for point in series.points],
        "unit": unit,
        "series": [
            msgspec.to_builtins(line)
            for line in lines
            if any(value is not None for value in line.values)
        ],
    }


def percentages(points: Sequence[GaugePoint], name: str) -> list[float | None]:
    """Return how full something was, in percent: ``memory`` or ``disk``; ``cpu`` is a share."""
    return [percentage(point, name) for point in points]


def percentage(point: GaugePoint, name: str) -> float | None:
    """Return the same for one point."""
    if name == "cpu":
        share = point.mean.get(name)
        return None if share is None else round(100 * share, 2)
    used, total = point.mean.get(f"{name}_used"), point.mean.get(f"{name}_total")
    return None if used is None or not total else round(100 * used / total, 2)
