"""One queue: how it goes, what it may, who serves it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
from starlette.responses import Response

from windlass.config import parse_duration
from windlass.core.backoff import Backoff
from windlass.core.series import Series
from windlass.core.text import check_name
from windlass.storage.ordering import AuditRecord
from windlass.storage.protocol import JobFilter, QueueCounts, QueueRecord, WorkerRecord
from windlass.web.actions import Done, Question
from windlass.web.forms import Form, Given, count_of
from windlass.web.pages.queue_limits import gates_of
from windlass.web.pages.queues import QueueRow, page_of, rows_of, steady
from windlass.web.visit import Visit
from windlass.written import (
    backoff_in_words,
    read_backoff,
    write_backoff,
    write_duration,
)

__all__ = ["SETTINGS", "queue"]

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


class Rate(msgspec.Struct, frozen=True):
    """Jobs per minute; ``more``: nobody counted them all."""

    per_minute: float
    more: bool = False


async def queue(visit: Visit) -> Response:
    """The page."""
    name = check_name(visit.needed("queue"), "a queue's name")
    admin, now = visit.admin, await visit.admin.now()
    chosen = visit.asked("range") if visit.asked("range") in RANGES else _USUAL
    span, _ = RANGES[chosen]
    found = {row.name: row for row in await rows_of(visit, now)}
    row = found.get(name) or QueueRow(QueueRecord(queue=name), QueueCounts(queue=name), now)
    orders = await admin.audits(limit=50, subject=f"queue {name}")
    series = await admin.series(now - span, now, queue=name)
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
            await admin.activity(now - span, now, by="task", queue=name),
            key=lambda one: -sum(one.counts.values()),
        ),
        paused_by=_paused_by(orders) if row.record.paused else None,
        orders=orders[:_ORDERS],
        gates=await gates_of(visit, name, now),
        workers=_serving(await admin.workers(ended_within=timedelta(0)), name),
    )


async def _came(visit: Visit, name: str, now: datetime) -> Rate:
    """How many were enqueued of late. Counted only so far: the page must not wait for it."""
    wanted = JobFilter(queue=name, created_from=now - _CAME)
    found = await visit.admin.count(wanted, most=_COUNTED, within=_COUNTED_WITHIN)
    return Rate(steady(found.number / (_CAME / timedelta(minutes=1))), not found.exact)


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
    """What is set, in words; "" follows the task, then the app."""
    settings = record.settings
    most = settings.max_running
    return [
        ("Running at once", "" if most is None else f"{most:,} in the whole cluster"),
        ("Between attempts", _words(settings.backoff)),
        ("Rest when throttled", _words(settings.cool_down)),
        ("Keep succeeded", _span(settings.keep_succeeded)),
        ("Keep failed", _span(settings.keep_failed)),
    ]


def _words(backoff: Backoff | None) -> str:
    return "" if backoff is None else backoff_in_words(backoff)


def _span(span: timedelta | None) -> str:
    return "" if span is None else write_duration(span)


async def _ask(visit: Visit) -> Question:
    name = visit.needed("queue")
    return Question(
        title=f"Settings of queue {name}",
        sentence="They hold in every worker within a second, over restarts and deploys. What is "
        "left empty follows the task, then the app.",
        button="Save settings",
        back=page_of(name),
    )


async def _filled(visit: Visit) -> Given:
    settings = (await visit.admin.queue(visit.needed("queue"))).settings
    most, backoff, cool_down = settings.max_running, settings.backoff, settings.cool_down
    return {
        "max_running": "" if most is None else str(most),
        "backoff": "" if backoff is None else write_backoff(backoff),
        "cool_down": "" if cool_down is None else write_backoff(cool_down),
        "keep_succeeded": _span(settings.keep_succeeded),
        "keep_failed": _span(settings.keep_failed),
    }


def _read(field: str, text: str) -> Any:
    match field:
        case "max_running":
            return count_of(text, "Running at once")
        case "backoff" | "cool_down":
            what = "Between attempts" if field == "backoff" else "Rest when throttled"
            return read_backoff(text, what)
        case _:
            return parse_duration(text, field.replace("_", " ").capitalize())


async def _set(visit: Visit, given: Given) -> Done:
    """Only what was changed: somebody else may have set the rest meanwhile."""
    name, old = visit.needed("queue"), await _filled(visit)
    changed = {
        field: _read(field, given[field]) if given[field].strip() else None
        for field in _HELD
        if given[field].strip() != old[field]
    }
    if not changed:
        return Done(f"Nothing was changed of queue {name}.", page_of(name))
    await visit.orders.set_queue(name, **changed)
    return Done(f"The settings of queue {name} hold.", page_of(name))


SETTINGS = Form(ask=_ask, filled=_filled, act=_set, template="queue_settings.html")
