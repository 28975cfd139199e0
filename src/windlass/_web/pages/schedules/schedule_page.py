"""One schedule: its rule, its runs, what comes next, who changed it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import msgspec
from starlette.responses import Response

from windlass._core.schedule.rules import Cron, Rule
from windlass._core.schedule.schedule import Schedule
from windlass._settings.durations import format_duration
from windlass._storage.protocol.actions import AuditRecord
from windlass._web.pages.schedules.schedule_list import ScheduleListRow
from windlass._web.request import PageRequest
from windlass.admin import ScheduleReport
from windlass.errors import ScheduleUnknown

if TYPE_CHECKING:
    from windlass.admin import Admin

__all__ = ["UpcomingRun", "schedule", "upcoming_runs_of"]

_ORDERS = 5
_MISSED = {
    "skip": "skipped",
    "one": "one run for the latest",
    "all": "a run each, at most {most:,}",
}
_OVERLAP = {
    "skip": "skipped",
    "queue": "waits for the run to end",
    "allow": "both run",
}


class UpcomingRun(msgspec.Struct, frozen=True):
    """A firing to come, in the zone of its rule."""

    at: datetime
    there: str


def upcoming_runs_of(rule: Rule, slots: Sequence[datetime]) -> list[UpcomingRun]:
    """Return the next runs as the clock on the wall shows them."""
    zone = ZoneInfo(rule.tz) if isinstance(rule, Cron) else UTC
    return [UpcomingRun(slot, f"{slot.astimezone(zone):%a %Y-%m-%d %H:%M:%S %Z}") for slot in slots]


async def schedule(visit: PageRequest) -> Response:
    """Return the page."""
    name = visit.needed("schedule")
    now = await visit.admin.storage.now()
    report = await _found(visit.admin, name)
    orders = await visit.admin.audit.list(limit=50, subject=f"schedule {name}")
    plan = report.plan
    job = None if plan is None else plan.job
    return await visit.render(
        "schedule.html",
        now=now,
        all_paused=await visit.admin.schedules.paused(),
        row=ScheduleListRow(report, now),
        slots=[] if plan is None else upcoming_runs_of(plan.rule, report.upcoming),
        policies=[] if plan is None else list(_policies(plan)),
        arguments="" if job is None else job.payload.decode(errors="replace"),
        changes=[
            (field.replace("_", " "), code, holds)
            for field, (code, holds) in report.changed.items()
        ],
        paused_by=_last(orders, "schedules.pause") if report.state == "paused" else None,
        removed_by=_last(orders, "schedules.remove") if report.state == "removed" else None,
        orders=orders[:_ORDERS],
    )


async def _found(admin: Admin, name: str) -> ScheduleReport:
    """Find a schedule, also one that was removed: it may be brought back here."""
    try:
        return await admin.schedules.get(name)
    except ScheduleUnknown:
        for report in await admin.schedules.list(names=[name]):
            return report
        raise


def _last(orders: Sequence[AuditRecord], what: str) -> AuditRecord | None:
    return next((one for one in orders if one.note.what == what), None)


def _policies(plan: Schedule) -> Iterator[tuple[str, str]]:
    if isinstance(plan.rule, Cron):
        yield "Expression", plan.rule.expression
        yield "Time zone", plan.rule.tz
    if plan.on == "every_worker":
        yield "Where", "on every worker that serves the queue, without a job"
    yield "Missed slots", _MISSED[plan.missed.value].format(most=plan.most_missed)
    overlap = plan.overlap
    if isinstance(overlap, str):
        yield "Slot during a run", _OVERLAP[overlap]
    else:
        yield "Slot during a run", f"skipped while {overlap:,} runs are active"
    if plan.jitter:
        yield "Jitter", f"up to {format_duration(plan.jitter)}"
    for title, at in (("Starts", plan.starts), ("Ends", plan.ends)):
        if at is not None:
            yield title, f"{at:%Y-%m-%d %H:%M:%S} UTC"
