"""Overview: is everything all right, and if not, where to look."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

from windlass._core.job.state import State
from windlass._core.stats.rollup import count_runs, minute_of
from windlass._core.stats.series import Latency, Point, Series
from windlass._observe.log import brief
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.workers import HEARD, Duty, WorkerRecord
from windlass._web.pages.overview.queues import (
    OverviewQueueRow,
    QueueTotal,
    busiest,
    overview_rows_of,
    totals,
)
from windlass._web.render.ranges import chart_range
from windlass._web.request import PageRequest

if TYPE_CHECKING:
    from windlass.admin import Admin

__all__ = [
    "Headline",
    "headlines_of",
    "overview",
    "read_live_jobs",
    "read_live_minutes",
    "read_live_state",
]

_SHORT = timedelta(hours=1)
"""Charts of more are drawn anew once a minute: nothing is seen to move on them sooner."""
_FAILURES = 8
_OUTCOMES = (
    ("Succeeded", "green-fill", ("succeed",)),
    ("Failed", "red-fill", ("fail",)),
    ("Retried", "amber-fill", ("retry",)),
    ("Released or cancelled", "slate-fill", ("snooze", "throttle", "release", "cancel")),
)

_LATE = timedelta(minutes=1)
_SHOWN = 4


class Headline(msgspec.Struct, frozen=True):
    """One thing to know, and where to go about it."""

    kind: str
    """``bad``, ``warn`` or ``good``: the colour."""
    sentence: str
    words: str = ""
    url: str = ""


def headlines_of(
    rows: Sequence[OverviewQueueRow],
    workers: int,
    free: int,
    now: datetime,
    url: Callable[..., str],
    *,
    resting: int = 0,
) -> Sequence[Headline]:
    """Return the worst first; without problems, that. ``workers``: those that claim jobs;
    ``resting``: paused ones.
    """
    ready = sum(row.counts.ready for row in rows)
    found: list[Headline] = []
    if workers == 0 and ready:
        why = "every worker is paused or stopping" if resting else "no worker is live"
        found.append(Headline("bad", f"Jobs are ready, but {why}.", "Workers", url("/workers")))
    for row in rows:
        if row.counts.paused and row.counts.ready:
            sentence = f"Queue {row.name} is paused and has ready jobs."
            where = url("/queues/one", queue=row.name)
            found.append(Headline("warn", sentence, "Show queue", where))
        elif workers and (late := _late(row, now)) is not None:
            busy = "; all slots are busy" if not free else ""
            sentence = f"A job in queue {row.name} has been ready for {brief(late)}{busy}."
            jobs = url("/jobs", state="ready", queue=row.name)
            found.append(Headline("warn", sentence, "Show jobs", jobs))
    failed = sum(row.failed for row in rows)
    if failed:
        sentence = f"{_jobs(failed)} failed for good in the last hour."
        found.append(Headline("bad", sentence, "Failed jobs", url("/jobs", state="failed")))
    if not found:
        words = "Workers keep up: no job waits for long, and none failed in the last hour."
        if workers == 0:
            words = "No jobs are waiting. No worker is live: new jobs will wait."
            if resting:
                words = (
                    "No jobs are waiting. Every worker is paused or stopping: new jobs will wait."
                )
        return [Headline("good", words)]
    return sorted(found, key=lambda one: one.kind != "bad")[:_SHOWN]


def _late(row: OverviewQueueRow, now: datetime) -> timedelta | None:
    since = row.counts.oldest_due
    return None if since is None or now - since < _LATE else now - since


def _jobs(number: int) -> str:
    return "1 job" if number == 1 else f"{number:,} jobs"


class SlotTotals(msgspec.Struct, frozen=True):
    """The slots of all live workers."""

    workers: int
    resting: int
    """Of those: told to take nothing new, or to stop."""
    slots: int
    busy: int
    free: int
    """Of those that take something new."""


class PeriodStats(msgspec.Struct, frozen=True):
    """The counts of the range."""

    series: Series
    span: timedelta

    @property
    def whole(self) -> Point:
        return self.series.whole

    def ended(self, *verbs: str) -> int:
        """Return how many runs ended like this; without an argument, all of them."""
        counts = self.whole.counts
        return count_runs(counts) if not verbs else sum(counts.get(verb, 0) for verb in verbs)

    @property
    def per_minute(self) -> float:
        return self.ended("succeed", "fail") / (self.span / timedelta(minutes=1))

    @property
    def failed_part(self) -> float:
        """Of those that came to an end of their own, in percent."""
        ended = self.ended("succeed", "fail")
        return 100 * self.ended("fail") / ended if ended else 0.0


async def overview(visit: PageRequest) -> Response:
    """Return the page. ``part=now`` leaves out what is drawn once a minute."""
    admin, now = visit.admin, await visit.admin.storage.now()
    shown = chart_range(visit)
    span = shown.span
    crew = _crew(await admin.workers.list(ended_within=timedelta(0)), now)
    rows = await overview_rows_of(admin, now)
    drawn = span <= _SHORT or visit.asked("part") != "now"
    pace = PeriodStats(await admin.stats.series(now - span, now), span) if drawn else None
    failures = await admin.jobs.find(JobFilter(states=[State.FAILED]), limit=_FAILURES)
    return await visit.render(
        "overview.html",
        now=now,
        ranges=shown.links,
        range_words=shown.words,
        slow=span > _SHORT,
        crew=crew,
        rows=busiest(rows),
        totals=totals(rows),
        queues=len(rows),
        lag=_lag(rows, now),
        pace=pace,
        charts=None if pace is None else _charts(pace.series),
        failures=failures,
        unseen=failures.next is not None,
        verdicts=_verdicts(visit, rows, crew, now),
        anything=_anything(rows, crew),
    )


async def read_live_state(admin: Admin) -> object:
    """Read the changes of jobs, and the workers that run them."""
    now = await admin.storage.now()
    crew = await admin.workers.list(ended_within=timedelta(0))
    return await read_live_jobs(admin), [(one.start.id, one.standing(now)) for one in crew]


async def read_live_jobs(admin: Admin) -> object:
    """Read the counts by state, and the recent ends: every event changes one of them."""
    now = await admin.storage.now()
    lately = await admin.stats.rollups(minute_of(now) - timedelta(minutes=1), now)
    return await admin.queues.counts(), lately


async def read_live_minutes(admin: Admin) -> object:
    """Read the values for charts of hours and days."""
    return minute_of(await admin.storage.now())


def _crew(records: Sequence[WorkerRecord], now: datetime) -> SlotTotals:
    live = [one for one in records if one.standing(now) in HEARD]
    taking = [one for one in live if one.duty is Duty.WORK]
    return SlotTotals(
        workers=len(live),
        resting=len(live) - len(taking),
        slots=sum(one.start.slots for one in live),
        busy=sum(one.running for one in live),
        free=sum(max(one.start.slots - one.running, 0) for one in taking),
    )


def _lag(rows: Sequence[OverviewQueueRow], now: datetime) -> timedelta | None:
    due = [row.counts.oldest_due for row in rows if row.counts.oldest_due is not None]
    return max(now - min(due), timedelta(0)) if due else None


def _verdicts(
    visit: PageRequest, rows: Sequence[OverviewQueueRow], crew: SlotTotals, now: datetime
) -> Sequence[Headline]:
    taking = crew.workers - crew.resting
    return headlines_of(rows, taking, crew.free, now, visit.url, resting=crew.resting)


def _anything(rows: Sequence[OverviewQueueRow], crew: SlotTotals) -> bool:
    """Return whether there is anything to show yet: a job of any kind, or a worker."""
    known: list[QueueTotal] = list(totals(rows).values())
    return crew.workers > 0 or any(one.value for one in known) or any(sum(r.spark) for r in rows)


# --- charts ---------------------------------------------------------------------------------------


def _charts(series: Series) -> dict[str, Any]:
    times = [int(point.at.timestamp()) for point in series.points]
    outcomes = [
        {
            "label": label,
            "colour": colour,
            "values": [sum(p.counts.get(verb, 0) for verb in verbs) for p in series.points],
        }
        for label, colour, verbs in _OUTCOMES
    ]
    return {
        "outcomes": {"times": times, "unit": "", "stack": True, "series": outcomes},
        "wait": _latencies(times, [point.wait for point in series.points]),
        "run": _latencies(times, [point.run for point in series.points]),
    }


def _latencies(times: Sequence[int], points: Sequence[Latency | None]) -> dict[str, Any]:
    lines = (("p99", "violet", False), ("p95", "blue", True), ("p50", "green", True))
    return {
        "times": times,
        "unit": "s",
        "series": [
            {
                "label": name,
                "colour": colour,
                "fill": fill,
                "values": [
                    None if one is None else getattr(one, name).total_seconds() for one in points
                ],
            }
            for name, colour, fill in lines
        ],
    }
