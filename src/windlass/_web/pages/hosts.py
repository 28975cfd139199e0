"""Hosts: how busy the machines are that run workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from starlette.responses import Response

from windlass._core.stats.gauges import GaugePoint, GaugeSeries
from windlass._storage.protocol.workers import HEARD, WorkerRecord
from windlass._web.render.gauges import ChartLine, gauge_chart, percentage, percentages
from windlass._web.render.paging import page_rows
from windlass._web.render.ranges import chart_range
from windlass._web.request import PageRequest

__all__ = ["hosts"]

_COLOURS = ("blue", "green", "violet", "amber", "red", "slate")
"""One for each host on a chart: more lines cannot be told apart."""
_GAUGES = (("cpu", "CPU"), ("memory", "Memory"), ("disk", "Disk"))
_STALE = timedelta(minutes=5)
"""After this time without a report, a host has no worker that reaches the store."""


class HostRow(msgspec.Struct, frozen=True):
    """One host as its row shows it."""

    name: str
    latest: GaugePoint
    workers: int
    """Live ones."""
    stale: bool

    def share(self, gauge: str) -> float | None:
        """Return how much of it is in use, in percent."""
        return percentage(self.latest, gauge)


async def hosts(visit: PageRequest) -> Response:
    """Return the page. ``host``: only this one."""
    admin, now = visit.admin, await visit.admin.storage.now()
    shown, host = chart_range(visit), visit.asked("host")
    found = await admin.stats.hosts(now - shown.span, now, host=host or None)
    workers = await admin.workers.list(ended_within=timedelta(0))
    rows = page_rows(visit, _rows(found, workers, now))
    drawn = _busiest(found)
    return await visit.render(
        "hosts.html",
        now=now,
        host=host,
        range=shown,
        rows=rows,
        drawn=len(drawn),
        charts=[(title, _chart(drawn, gauge), _said(drawn, gauge)) for gauge, title in _GAUGES]
        if drawn
        else [],
    )


def _rows(
    found: Sequence[GaugeSeries], workers: Sequence[WorkerRecord], now: datetime
) -> list[HostRow]:
    live = Counter(one.start.host for one in workers if one.standing(now) in HEARD)
    return [
        HostRow(one.source, one.latest, live[one.source], now - one.latest.at > _STALE)
        for one in found
        if one.latest is not None
    ]


def _busiest(found: Sequence[GaugeSeries]) -> Sequence[GaugeSeries]:
    """Return the hosts to draw, by name."""
    ordered = sorted(found, key=lambda one: -one.whole.mean.get("cpu", 0.0))
    return sorted(ordered[: len(_COLOURS)], key=lambda one: one.source)


def _chart(drawn: Sequence[GaugeSeries], gauge: str) -> dict[str, Any]:
    lines = [
        ChartLine(one.source, colour, percentages(one.points, gauge), fill=len(drawn) == 1)
        for one, colour in zip(drawn, _COLOURS, strict=False)
    ]
    return gauge_chart(drawn[0], lines, "%")


def _said(drawn: Sequence[GaugeSeries], gauge: str) -> str:
    """Say the last values, for screen readers."""
    last = [(one.source, percentage(one.latest, gauge)) for one in drawn if one.latest is not None]
    known = [f"{name} {share:.0f} %" for name, share in last if share is not None]
    return ", ".join(known) if known else "not reported by this system"
