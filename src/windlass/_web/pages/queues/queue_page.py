"""One queue: how it goes, what it may, who serves it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from starlette.responses import Response

from windlass._core.job.state import State
from windlass._core.limits.backoff import Backoff
from windlass._core.stats.rollup import count_runs
from windlass._core.stats.series import Series
from windlass._core.values.names import check_name
from windlass._settings.durations import (
    describe_backoff,
    format_backoff,
    format_duration,
    parse_backoff,
)
from windlass._settings.settings import parse_duration
from windlass._storage.protocol.actions import AuditRecord
from windlass._storage.protocol.admin import QueueCounts
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.queues import QueueRecord
from windlass._storage.protocol.workers import WorkerRecord
from windlass._tasks.limits import breaker_name
from windlass._web.pages.limits.limit_list import LimitRow, keyed_limits
from windlass._web.pages.queues.queue_list import QueueListRow, format_per_minute, page_of, rows_of
from windlass._web.render.confirmation import ActionNotice, Confirmation
from windlass._web.render.forms import FormPage, FormValues, parse_count
from windlass._web.request import PageRequest
from windlass.admin import BreakerReport

__all__ = ["SETTINGS", "QueueLimits", "queue", "queue_limits_of"]

RANGES = {
    "15m": (timedelta(minutes=15), "15 min"),
    "1h": (timedelta(hours=1), "1 h"),
    "6h": (timedelta(hours=6), "6 h"),
    "24h": (timedelta(hours=24), "24 h"),
    "7d": (timedelta(days=7), "7 days"),
}
_USUAL = "1h"
_SHORT = timedelta(hours=1)
"""More is drawn anew once a minute: nothing is seen to move on it sooner, and it costs."""
_ORDERS = 5
_CAME = timedelta(minutes=5)
_COUNTED, _COUNTED_WITHIN = 2_000, 0.1
_STATES = (
    ("Ready", "ready"),
    ("Scheduled", "scheduled"),
    ("Retrying", "retrying"),
    ("Running", "running"),
    ("Succeeded", "succeeded"),
    ("Failed", "failed"),
    ("Cancelled", "cancelled"),
    ("Discarded", "discarded"),
)

_LOOKED_AT = 50
"""Jobs that say what they count against: tasks of other processes are not known here."""


class QueueLimits(msgspec.Struct, frozen=True):
    """The limits of its jobs, by name."""

    limits: Sequence[LimitRow]
    breakers: Sequence[BreakerReport]

    def __bool__(self) -> bool:
        return bool(self.limits or self.breakers)


async def queue_limits_of(visit: PageRequest, queue: str, now: datetime) -> QueueLimits:
    """Return the limits of a queue, as far as this process's tasks and the latest jobs of the queue
    say.
    """
    admin, app = visit.admin, visit.dashboard.app
    queue_of = app.settings.queue_of
    tasks = [task for task in app.tasks if queue_of(task.name, task.settings.queue) == queue]
    names = {spec.name for task in tasks for spec in task.specs}
    active = JobFilter(queue=queue, states=[State.WAITING, State.RUNNING])
    for job in await admin.jobs.find(active, limit=_LOOKED_AT):
        names.update(use.name for use in job.limits)
    if not names:
        return QueueLimits((), ())
    keyed = keyed_limits(visit)
    return QueueLimits(
        [
            LimitRow(one, now, declared_keyed=one.spec.name in keyed)
            for one in await admin.limits.list()
            if one.spec.name in names
        ],
        [one for one in await admin.breakers.list() if breaker_name(one.task) in names],
    )


class JobsPerMinute(msgspec.Struct, frozen=True):
    """Jobs per minute; ``more``: a lower bound."""

    per_minute: float
    more: bool = False


async def queue(visit: PageRequest) -> Response:
    """Return the page."""
    name = check_name(visit.needed("queue"), "a queue's name")
    admin, now = visit.admin, await visit.admin.storage.now()
    chosen = visit.asked("range") if visit.asked("range") in RANGES else _USUAL
    span, _ = RANGES[chosen]
    found = {row.name: row for row in await rows_of(visit, now)}
    row = found.get(name) or QueueListRow(QueueRecord(queue=name), QueueCounts(queue=name), now)
    orders = await admin.audit.list(limit=50, subject=f"queue {name}")
    series = await admin.stats.series(now - span, now, queue=name)
    return await visit.render(
        "queue.html",
        now=now,
        row=row,
        states=_STATES,
        slow=span > _SHORT,
        settings=_settings(row.record),
        ranges=[
            (words, visit.changed(range=key), key == chosen) for key, (_, words) in RANGES.items()
        ],
        chart=_chart(series),
        whole=series.whole,
        came=await _came(visit, name, now),
        activity=sorted(
            await admin.stats.activity(now - span, now, by="task", queue=name),
            key=lambda one: -count_runs(one.counts),
        ),
        paused_by=_paused_by(orders) if row.record.paused else None,
        orders=orders[:_ORDERS],
        gates=await queue_limits_of(visit, name, now),
        workers=_serving(await admin.workers.list(ended_within=timedelta(0)), name),
    )


async def _came(visit: PageRequest, name: str, now: datetime) -> JobsPerMinute:
    """Return how many were enqueued lately. The count is bounded: the page must not wait for it."""
    wanted = JobFilter(queue=name, created_from=now - _CAME)
    found = await visit.admin.jobs.count(wanted, most=_COUNTED, within=_COUNTED_WITHIN)
    return JobsPerMinute(
        format_per_minute(found.number / (_CAME / timedelta(minutes=1))), not found.exact
    )


def _paused_by(orders: Sequence[AuditRecord]) -> AuditRecord | None:
    return next((one for one in orders if one.note.what == "queues.pause"), None)


def _serving(workers: Sequence[WorkerRecord], name: str) -> list[WorkerRecord]:
    return [one for one in workers if one.ended_at is None and name in one.start.queues]


def _chart(series: Series) -> dict[str, Any]:
    lines = (("Succeeded", "succeed", "green-fill"), ("Failed", "fail", "red-fill"))
    return {
        "times": [int(point.at.timestamp()) for point in series.points],
        "unit": "",
        "stack": True,
        "series": [
            {
                "label": label,
                "colour": colour,
                "values": [point.counts.get(verb, 0) for point in series.points],
            }
            for label, verb, colour in lines
        ],
    }


# --- settings -------------------------------------------------------------------------------------

_HELD = ("max_running", "backoff", "cool_down", "keep_succeeded", "keep_failed")


def _settings(record: QueueRecord) -> list[tuple[str, str]]:
    """Describe the settings; "" for one that is not set."""
    settings = record.settings
    most = settings.max_running
    return [
        ("Max running", "" if most is None else f"{most:,} over all workers"),
        ("Backoff", _words(settings.backoff)),
        ("Cool-down", _words(settings.cool_down)),
        ("Keep succeeded", _span(settings.keep_succeeded)),
        ("Keep failed", _span(settings.keep_failed)),
    ]


def _words(backoff: Backoff | None) -> str:
    return "" if backoff is None else describe_backoff(backoff)


def _span(span: timedelta | None) -> str:
    return "" if span is None else format_duration(span)


async def _ask(visit: PageRequest) -> Confirmation:
    name = visit.needed("queue")
    return Confirmation(
        title=f"Settings of queue {name}",
        sentence="Every worker uses them within a second, also after restarts and deploys. For an "
        "empty field, the value of the task counts, then that of the app.",
        button="Save settings",
        back=page_of(name),
    )


async def _filled(visit: PageRequest) -> FormValues:
    settings = (await visit.admin.queues.get(visit.needed("queue"))).settings
    most, backoff, cool_down = settings.max_running, settings.backoff, settings.cool_down
    return {
        "max_running": "" if most is None else str(most),
        "backoff": "" if backoff is None else format_backoff(backoff),
        "cool_down": "" if cool_down is None else format_backoff(cool_down),
        "keep_succeeded": _span(settings.keep_succeeded),
        "keep_failed": _span(settings.keep_failed),
    }


def _read(field: str, text: str) -> Any:
    match field:
        case "max_running":
            return parse_count(text, "Max running")
        case "backoff" | "cool_down":
            return parse_backoff(text, "Backoff" if field == "backoff" else "Cool-down")
        case _:
            return parse_duration(text, field.replace("_", " ").capitalize())


async def _set(visit: PageRequest, given: FormValues) -> ActionNotice:
    """Save only changed fields: another user may have changed the others."""
    name, old = visit.needed("queue"), await _filled(visit)
    changed = {
        field: _read(field, given[field]) if given[field].strip() else None
        for field in _HELD
        if given[field].strip() != old[field]
    }
    if not changed:
        return ActionNotice(f"The settings of queue {name} are unchanged.", page_of(name))
    await visit.orders.queues.set(name, **changed)
    return ActionNotice(f"The settings of queue {name} are saved.", page_of(name))


SETTINGS = FormPage(ask=_ask, filled=_filled, act=_set, template="queue_settings.html")
