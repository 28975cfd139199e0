"""Storage: where jobs live, how it is, and what to do where it is not well."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
from starlette.responses import Response

from windlass._admin.doctor.finding import Finding, count_by_level
from windlass._admin.doctor.storage_checks import check_health
from windlass._admin.storage import format_fact
from windlass._core.stats.gauges import GaugeSeries
from windlass._observe.log import brief
from windlass._storage.protocol.workers import WorkerRecord, WorkerState
from windlass._web.render.gauges import gauge_chart, gauge_line
from windlass._web.render.ranges import chart_range
from windlass._web.request import PageRequest

__all__ = ["checks", "storage"]

_PAGE = "/storage"
_LEVELS = {"bad": 0, "warn": 1, "ok": 2}
_CHARTS = (
    (
        "Size",
        "on disk or in memory",
        "B",
        (("Size", "blue", "size"), ("Write-ahead file", "amber", "wal")),
    ),
    (
        "Jobs",
        "by state, up to 10,000 per queue",
        "",
        (
            ("Ready", "blue", "jobs_ready"),
            ("Scheduled", "violet", "jobs_scheduled"),
            ("Running", "green", "jobs_running"),
            ("Failed", "red", "jobs_failed"),
        ),
    ),
    (
        "Answer times",
        "p95, measured by one worker",
        "s",
        (("Write", "violet", "write_p95"), ("Read", "blue", "read_p95")),
    ),
    (
        "Connections",
        "to the server",
        "",
        (("All", "slate", "connections"), ("Windlass", "blue", "connections_windlass")),
    ),
)
"""Title, explanation, unit, and the lines: label, colour and gauge."""
_SKEWED = timedelta(seconds=2)
"""The clock error that the doctor warns of."""


class ClockSkew(msgspec.Struct, frozen=True):
    """How far a worker's clock was from the store's when it registered."""

    worker: WorkerRecord
    off: timedelta

    @property
    def large(self) -> bool:
        return abs(self.off) >= _SKEWED

    @property
    def words(self) -> str:
        if abs(self.off) < timedelta(milliseconds=1):
            return "less than 1 ms"
        side = "ahead" if self.off > timedelta(0) else "behind"
        return f"{brief(abs(self.off))} {side}"


async def storage(visit: PageRequest) -> Response:
    """Return the page, with checks that need no other connection."""
    return await _page(visit, None)


async def checks(visit: PageRequest) -> Response:
    """Run all checks. An action, because it opens a second connection and sends a hint
    through it.
    """
    if visit.method == "GET":
        return visit.go(_PAGE)
    found = await visit.admin.doctor.check(tasks=visit.dashboard.app.tasks)
    return await _page(visit, found)


async def _page(visit: PageRequest, checked: Sequence[Finding] | None) -> Response:
    report = await visit.admin.storage.report()
    shown = chart_range(visit)
    series = await visit.admin.stats.storage(report.at - shown.span, report.at)
    found = list(check_health(report.facts)) if checked is None else checked
    return await visit.render(
        "storage.html",
        now=report.at,
        report=report,
        facts=[
            (name.replace("_", " "), format_fact(name, value))
            for name, value in report.facts.items()
        ],
        checked=checked is not None,
        findings=sorted(found, key=lambda one: _LEVELS[one.level]),
        worst=min((one.level for one in found), key=_LEVELS.__getitem__, default="ok"),
        summary=count_by_level(found),
        range=shown,
        charts=_charts(series),
        skews=_skews(await visit.admin.workers.list(ended_within=timedelta(0))),
    )


def _charts(series: GaugeSeries) -> list[tuple[str, str, dict[str, Any]]]:
    """Return title, explanation and data of each chart that has a value."""
    told = [
        (
            title,
            note,
            gauge_chart(series, [gauge_line(*line[:2], series, line[2]) for line in lines], unit),
        )
        for title, note, unit, lines in _CHARTS
    ]
    return [chart for chart in told if chart[2]["series"]]


def _skews(workers: Sequence[WorkerRecord]) -> list[ClockSkew]:
    """Return the worst first."""
    found = [
        ClockSkew(worker, worker.start.clock - worker.started_at)
        for worker in workers
        if worker.state is WorkerState.LIVE and worker.start.clock is not None
    ]
    return sorted(found, key=lambda one: -abs(one.off))
