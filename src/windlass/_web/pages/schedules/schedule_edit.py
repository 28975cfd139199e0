"""Changing a schedule: the next firings are seen before anything is saved."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
from starlette.responses import Response

from windlass._core.schedule.describe import describe_rule
from windlass._core.schedule.rules import Cron, Every, Manual, Once, Rule
from windlass._core.schedule.schedule import Overlap, Schedule, planned_slots
from windlass._settings.durations import format_duration
from windlass._settings.settings import parse_duration
from windlass._web.pages.schedules.schedule_list import page_of
from windlass._web.pages.schedules.schedule_page import UpcomingRun, upcoming_runs_of
from windlass._web.render.confirmation import ActionNotice
from windlass._web.render.forms import (
    FormValues,
    format_instant,
    parse_count,
    parse_instant,
    redirect_with_notice,
)
from windlass._web.request import PageRequest
from windlass.admin import ScheduleReport
from windlass.errors import InvalidArgument, StorageError, WindlassError

__all__ = ["edit"]

_EDITABLE = ("rule", "missed", "most_missed", "overlap", "jitter", "starts", "ends")
_SHOWN = 5
_SOME = "some"
"""``overlap`` as a number of runs."""


class SchedulePreview(msgspec.Struct, frozen=True):
    """The schedule that the form would make."""

    words: str
    slots: list[UpcomingRun]
    follows: bool


async def edit(visit: PageRequest) -> Response:
    """Show the form. POST saves, unless the button was the one that shows the next firings."""
    report = await visit.admin.schedules.get(visit.needed("schedule"))
    plan = report.plan
    if plan is None:
        message = f"schedule {report.name!r} cannot be read, so it cannot be changed: delete it"
        raise InvalidArgument(message)
    now = await visit.admin.storage.now()
    if visit.method == "GET":
        return await _page(visit, report, _filled(plan), _preview(plan, now))
    given = {**_filled(plan), **await visit.form()}
    try:
        changed = _read(given, plan)
        if "preview" in given:
            return await _page(visit, report, given, _preview(changed, now))
        return redirect_with_notice(visit, await _save(visit, report.name, plan, changed))
    except StorageError:
        raise  # whether it was saved is not known: the calm page says so
    except WindlassError as error:
        return await _page(visit, report, given, None, wrong=str(error))


async def _page(
    visit: PageRequest,
    report: ScheduleReport,
    fields: FormValues,
    preview: SchedulePreview | None,
    *,
    wrong: str = "",
) -> Response:
    return await visit.render(
        "schedule_edit.html",
        code=422 if wrong else 200,
        report=report,
        fields=fields,
        preview=preview,
        wrong=wrong,
        back=page_of(report.name),
    )


async def _save(visit: PageRequest, name: str, plan: Schedule, changed: Schedule) -> ActionNotice:
    """Save only the changed fields: the others keep following the code."""
    changes: dict[str, Any] = {
        field: getattr(changed, field)
        for field in _EDITABLE
        if getattr(changed, field) != getattr(plan, field)
    }
    if not changes:
        return ActionNotice(f"Schedule {name} is unchanged.", page_of(name))
    await visit.orders.schedules.change(name, **changes)
    return ActionNotice(
        f"Schedule {name} is changed: {describe_rule(changed.rule)}.", page_of(name)
    )


def _preview(plan: Schedule, now: datetime) -> SchedulePreview:
    slots = upcoming_runs_of(plan.rule, planned_slots(plan, now, _SHOWN))
    return SchedulePreview(describe_rule(plan.rule), slots, plan.follows)


# --- a schedule as fields, and back ---------------------------------------------------------------


def _filled(plan: Schedule) -> FormValues:
    overlap = plan.overlap
    return {
        **_rule_filled(plan.rule),
        "missed": plan.missed.value,
        "most_missed": str(plan.most_missed),
        "overlap": overlap if isinstance(overlap, str) else _SOME,
        "most_active": "" if isinstance(overlap, str) else str(overlap),
        "jitter": format_duration(plan.jitter),
        "starts": format_instant(plan.starts),
        "ends": format_instant(plan.ends),
    }


def _rule_filled(rule: Rule) -> FormValues:
    fields = {"kind": "manual", "cron": "", "tz": "UTC", "period": "", "at": ""}
    match rule:
        case Cron(expression, tz):
            return {**fields, "kind": "cron", "cron": expression, "tz": tz}
        case Every(period, after):
            kind = "every" if after == "start" else "after"
            return {**fields, "kind": kind, "period": format_duration(period)}
        case Once(at):
            return {**fields, "kind": "once", "at": format_instant(at)}
        case Manual():
            return fields


def _read(given: FormValues, plan: Schedule) -> Schedule:
    """Return the schedule as the form says it; InvalidArgument says which field does not fit."""
    return msgspec.structs.replace(
        plan,
        rule=_rule(given, plan.rule),
        missed=given["missed"],
        most_missed=parse_count(given["most_missed"], "At most"),
        overlap=_overlap(given),
        jitter=parse_duration(given["jitter"].strip() or "0s", "Jitter"),
        starts=parse_instant(given["starts"], "Starts"),
        ends=parse_instant(given["ends"], "Ends"),
    )


def _overlap(given: FormValues) -> Overlap | str:
    word = given["overlap"]
    return parse_count(given["most_active"], "Active runs") if word == _SOME else word


def _rule(given: FormValues, old: Rule) -> Rule:
    match given["kind"]:
        case "cron":
            return Cron(given["cron"].strip(), given["tz"].strip() or "UTC")
        case "every":
            # Where its slots are counted from is no field here: it stays.
            anchor = old.anchor if isinstance(old, Every) else None
            return Every(_period(given), "start", anchor)
        case "after":
            return Every(_period(given), "end")
        case "once":
            at = parse_instant(given["at"], "At")
            if at is None:
                message = "At must be a time such as 2030-12-24 08:00"
                raise InvalidArgument(message)
            return Once(at)
        case "manual":
            return Manual()
        case other:
            message = f"a rule is cron, every, after, once or manual, got {other!r}"
            raise InvalidArgument(message)


def _period(given: FormValues) -> Any:
    return parse_duration(given["period"].strip(), "Period")
