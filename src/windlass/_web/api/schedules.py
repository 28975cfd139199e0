"""Schedules: how they stand, and orders for them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from windlass._core.schedule.rules import Rule
from windlass._web.api.endpoint import Endpoint, Nothing, Part
from windlass._web.api.filters import Instant
from windlass._web.api.records import ScheduleBody, schedule_body
from windlass._web.api.truncation import Names, fit_answer, schedule_line
from windlass._web.request import PageRequest
from windlass._web.security.roles import Role

__all__ = ["SCHEDULES"]

Active = Annotated[int, Meta(ge=1, le=1000)]


class SchedulesQuery(Names, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which of them."""

    removed: Annotated[bool, Meta(description="Include removed schedules.")] = False


class ScheduleName(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The name of a schedule."""

    schedule: str


class Removal(ScheduleName, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of a removal."""

    cancel_runs: Annotated[bool, Meta(description="Cancel its active jobs.")] = False


class ScheduleChange(ScheduleName, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Change a schedule, over the code. Fields that are left out keep their value."""

    rule: Rule | UnsetType = UNSET
    missed: Literal["skip", "one", "all"] | UnsetType = UNSET
    most_missed: Annotated[int, Meta(ge=1, le=10_000)] | UnsetType = UNSET
    overlap: Literal["skip", "queue", "allow"] | Active | UnsetType = UNSET
    jitter: timedelta | UnsetType = UNSET
    starts: Instant | UnsetType | None = UNSET
    ends: Instant | UnsetType | None = UNSET


class Preview(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A rule to preview."""

    rule: Rule
    most: Annotated[int, Meta(ge=1, le=100)] = 5


class Triggered(msgspec.Struct, frozen=True):
    """The job that was started."""

    job: str | None
    """Null: a chore of Windlass itself, which makes no job."""
    created: bool = True
    """False: no job was made, for this one holds the unique key of its job."""


class AllPaused(msgspec.Struct, frozen=True):
    """Whether all schedules are paused."""

    paused: bool
    since: datetime | None


class Forgotten(msgspec.Struct, frozen=True):
    """The name that was deleted."""

    schedule: str


async def schedules(visit: PageRequest, asked: SchedulesQuery) -> Part:
    """List schedules by name."""
    found, after = await visit.admin.schedules.page(
        after=asked.after or "", limit=asked.size, removed=asked.removed
    )
    lines = fit_answer(schedule_line(one) for one in found)
    return Part(lines, found[len(lines) - 1].name if len(lines) < len(found) else after)


async def schedule(visit: PageRequest, asked: ScheduleName) -> ScheduleBody:
    """Return one schedule."""
    return schedule_body(await visit.admin.schedules.get(asked.schedule))


async def preview_schedule(visit: PageRequest, asked: Preview) -> Sequence[datetime]:
    """Return when it would fire."""
    return await visit.admin.schedules.preview(asked.rule, asked.most)


async def run_schedule(visit: PageRequest, asked: ScheduleName) -> Triggered:
    """Beside its slots."""
    made = await visit.orders.schedules.trigger(asked.schedule)
    return Triggered(None) if made is None else Triggered(made.id, made.created)


async def pause_schedule(visit: PageRequest, asked: ScheduleName) -> ScheduleBody:
    """Pause a schedule until it is resumed."""
    return schedule_body(await visit.orders.schedules.pause(asked.schedule))


async def resume_schedule(visit: PageRequest, asked: ScheduleName) -> ScheduleBody:
    """Resume a schedule from the next slot on."""
    return schedule_body(await visit.orders.schedules.resume(asked.schedule))


async def all_paused(visit: PageRequest, _: Nothing) -> AllPaused:
    """And since when."""
    since = await visit.admin.schedules.paused()
    return AllPaused(since is not None, since)


async def pause_all(visit: PageRequest, asked: Nothing) -> AllPaused:
    """On all workers."""
    await visit.orders.schedules.pause_all()
    return await all_paused(visit, asked)


async def resume_all(visit: PageRequest, asked: Nothing) -> AllPaused:
    """But for those that are paused by name."""
    await visit.orders.schedules.resume_all()
    return await all_paused(visit, asked)


async def change_schedule(visit: PageRequest, asked: ScheduleChange) -> ScheduleBody:
    """Over every restart and deploy."""
    given: dict[str, Any] = {
        name: getattr(asked, name)
        for name in asked.__struct_fields__
        if name != "schedule" and getattr(asked, name) is not UNSET
    }
    return schedule_body(await visit.orders.schedules.change(asked.schedule, **given))


async def reset_schedule(visit: PageRequest, asked: ScheduleName) -> ScheduleBody:
    """Reset a schedule to the code's values."""
    return schedule_body(await visit.orders.schedules.reset(asked.schedule))


async def remove_schedule(visit: PageRequest, asked: Removal) -> Forgotten:
    """Remove a schedule: it fires no more."""
    await visit.orders.schedules.remove(asked.schedule, cancel_runs=asked.cancel_runs)
    return Forgotten(asked.schedule)


async def forget_schedule(visit: PageRequest, asked: ScheduleName) -> Forgotten:
    """Altogether."""
    await visit.orders.schedules.delete(asked.schedule)
    return Forgotten(asked.schedule)


def _order(verb: str, answer: Any, told: Any, title: str, **line: Any) -> Endpoint:
    line = {"asked": ScheduleName, "role": Role.OPERATOR, "refusals": (404, 409), **line}
    path = f"/schedules/{verb}"
    return Endpoint(method="POST", path=path, answer=answer, told=told, title=title, **line)


SCHEDULES = (
    Endpoint(
        method="GET",
        path="/schedules",
        answer=schedules,
        asked=SchedulesQuery,
        told=Sequence[ScheduleBody],
        title="List schedules with their next slots and last runs",
        heavy=True,
    ),
    Endpoint(
        method="GET",
        path="/schedules/one",
        answer=schedule,
        asked=ScheduleName,
        told=ScheduleBody,
        title="Show a schedule",
        refusals=(404,),
    ),
    Endpoint(
        method="GET",
        path="/schedules/paused",
        answer=all_paused,
        told=AllPaused,
        title="Show whether all schedules are paused",
    ),
    _order(
        "pause-all",
        pause_all,
        AllPaused,
        "Pause all schedules on all workers",
        asked=Nothing,
        refusals=(),
    ),
    _order(
        "resume-all",
        resume_all,
        AllPaused,
        "Resume all schedules, except those that are paused by name",
        asked=Nothing,
        refusals=(),
    ),
    _order(
        "preview",
        preview_schedule,
        Sequence[datetime],
        "Show when a rule would fire next",
        asked=Preview,
        refusals=(),
    ),
    _order("run", run_schedule, Triggered, "Run a schedule now, in addition to its slots"),
    _order("pause", pause_schedule, ScheduleBody, "Pause a schedule"),
    _order("resume", resume_schedule, ScheduleBody, "Resume a schedule from its next slot on"),
    _order(
        "change",
        change_schedule,
        ScheduleBody,
        "Change a schedule",
        asked=ScheduleChange,
        role=Role.ADMIN,
    ),
    _order("reset", reset_schedule, ScheduleBody, "Reset a schedule to the code", role=Role.ADMIN),
    _order(
        "remove",
        remove_schedule,
        Forgotten,
        "Remove a schedule, even if the code declares it",
        asked=Removal,
        role=Role.ADMIN,
    ),
    _order(
        "forget", forget_schedule, Forgotten, "Delete a schedule and its history", role=Role.ADMIN
    ),
)
