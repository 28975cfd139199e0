"""Numbers, workers and records: what is only read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from windlass._admin.doctor.doctor import Finding
from windlass._admin.overview import JobList
from windlass._admin.plugins import PluginReport
from windlass._admin.storage import StorageReport
from windlass._admin.tasks import TaskReport
from windlass._core.stats.series import Activity, Series
from windlass._storage.protocol.actions import AuditRecord
from windlass._storage.protocol.admin import ErrorGroup, ErrorLook, QueueCounts
from windlass._storage.protocol.workers import WorkerRecord
from windlass._web.api.endpoint import Endpoint, Nothing, Part
from windlass._web.api.filters import Cursor, Instant, Size
from windlass._web.api.records import SnapshotBody, snapshot_body
from windlass._web.api.series import Step, span_of, step_of
from windlass._web.api.truncation import (
    Names,
    brief_text,
    fit_answer,
    page_by_name,
    schedule_line,
)
from windlass._web.request import PageRequest
from windlass._web.security.cost_limits import ANSWER, ROWS
from windlass._web.security.roles import Role

__all__ = ["STATS"]

_ERROR = 500
"""Characters of an error in a list of hundreds."""
_TASKS = 20
"""Tasks, and queues, that are named of a group of errors."""
PageNumber = Annotated[int, Meta(ge=1, le=10_000)]


class Me(msgspec.Struct, frozen=True, kw_only=True):
    """The current user."""

    name: str
    role: Role
    token: str
    """For the header X-Windlass-Token of requests that change something, if a cookie authenticates
    them; empty with a bearer token.
    """


class SnapshotQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which page of each list."""

    page_size: Annotated[int, Meta(ge=1, le=100)] = 25
    enqueued: PageNumber = 1
    running: PageNumber = 1
    completed: PageNumber = 1
    failed: PageNumber = 1


class Between(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A span of time; without any, the last hour."""

    since: Instant | None = None
    until: Instant | None = None
    queue: str | None = None


class SeriesQuery(Between, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of it, or all."""

    task: str | None = None
    step: Step | None = None


class ActivityQuery(Names, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Grouped by one or the other; a span of time, without any the last hour."""

    since: Instant | None = None
    until: Instant | None = None
    queue: str | None = None
    by: Literal["queue", "task"] = "task"


class ErrorQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which failed jobs."""

    queue: str | None = None
    task: str | None = None
    since: Instant | None = None
    size: Annotated[Size, Meta(description="Maximum number of groups.")] = ROWS


class AuditQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which records."""

    subject: Annotated[str | None, Meta(description="Such as `queue mail` or `job 0192…`.")] = None
    before: (
        Annotated[Cursor, Meta(description="The number of the last entry of the page before.")]
        | None
    ) = None
    size: Size = 50


class WorkerQuery(Names, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which workers."""

    ended_within: Annotated[
        int,
        Meta(ge=0, le=31_536_000, description="Seconds. Workers that ended before are left out."),
    ] = 86_400


class TaskQuery(Names, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of which span outcomes are counted."""

    within: Annotated[int, Meta(ge=60, le=2_592_000, description="Seconds.")] = 86_400


async def who_asks(visit: PageRequest, _: Nothing) -> Me:
    """Return the current user and role."""
    entry = visit.entry
    if entry is None:  # the gate lets no anonymous request through to here
        message = "nobody asks"
        raise LookupError(message)
    token = entry.token if entry.by_cookie else ""
    return Me(name=entry.person.name, role=entry.person.role, token=token)


async def snapshot(visit: PageRequest, asked: SnapshotQuery) -> SnapshotBody:
    """Return everything at once; an unreachable store is an error, unlike in the admin's own
    snapshot.
    """
    await visit.admin.storage.now()
    told = await visit.admin.overview.snapshot(
        page_size=asked.page_size,
        enqueued=asked.enqueued,
        running=asked.running,
        completed=asked.completed,
        failed=asked.failed,
    )
    schedules = (schedule_line(report) for report in told.schedules[:ROWS])
    brief = msgspec.structs.replace(
        told,
        enqueued=_brief(told.enqueued),
        running=_brief(told.running),
        completed=_brief(told.completed),
        failed=_brief(told.failed),
    )
    return snapshot_body(brief, fit_answer(schedules, ANSWER // 2))


def _brief(jobs: JobList) -> JobList:
    """Errors by their first words: there may be four hundred of them."""
    lines = [
        line
        if line.last_error is None
        else msgspec.structs.replace(line, last_error=brief_text(line.last_error, _ERROR))
        for line in jobs.jobs
    ]
    return msgspec.structs.replace(jobs, jobs=lines)


async def counts(visit: PageRequest, asked: Names) -> Part:
    """Count jobs by queue."""
    return page_by_name(await visit.admin.queues.counts(), asked, name=lambda one: one.queue)


async def series(visit: PageRequest, asked: SeriesQuery) -> Series:
    """Return counts over time."""
    since, until = await span_of(visit, asked.since, asked.until)
    return await visit.admin.stats.series(
        since, until, step=step_of(asked.step), queue=asked.queue, task=asked.task
    )


async def activity(visit: PageRequest, asked: ActivityQuery) -> Part:
    """Return counts by name."""
    since, until = await span_of(visit, asked.since, asked.until)
    found = await visit.admin.stats.activity(since, until, by=asked.by, queue=asked.queue)
    return page_by_name(found, asked, name=lambda one: one.name)


async def errors(visit: PageRequest, asked: ErrorQuery) -> ErrorLook:
    """Return errors by class and place."""
    look = await visit.admin.errors.groups(queue=asked.queue, task=asked.task, since=asked.since)
    groups = fit_answer(_group_line(group) for group in look.groups[: asked.size])
    return ErrorLook(groups, complete=look.complete and len(groups) == len(look.groups))


def _group_line(group: ErrorGroup) -> ErrorGroup:
    """Thousands of tasks may have failed by the same error."""
    return msgspec.structs.replace(group, tasks=group.tasks[:_TASKS], queues=group.queues[:_TASKS])


async def workers(visit: PageRequest, asked: WorkerQuery) -> Part:
    """Return those that live, and those that have ended lately."""
    found = await visit.admin.workers.list(ended_within=timedelta(seconds=asked.ended_within))
    return page_by_name(found, asked, name=lambda one: one.start.id)


async def tasks(visit: PageRequest, asked: Names) -> Part:
    """Names."""
    known = {task.name for task in visit.dashboard.app.tasks}
    return page_by_name({*known, *await visit.admin.stats.tasks()}, asked, name=str)


async def task_reports(visit: PageRequest, asked: TaskQuery) -> Part:
    """List tasks with their jobs, outcomes and last error."""
    found = await visit.admin.tasks.list(within=timedelta(seconds=asked.within))
    brief = [
        msgspec.structs.replace(one, last_error=brief_text(one.last_error, _ERROR))
        if one.last_error
        else one
        for one in found
    ]
    return page_by_name(brief, asked, name=lambda one: one.task)


async def audits(visit: PageRequest, asked: AuditQuery) -> Sequence[AuditRecord]:
    """Return the audit log."""
    return fit_answer(
        await visit.admin.audit.list(limit=asked.size, before=asked.before, subject=asked.subject)
    )


async def storage(visit: PageRequest, _: Nothing) -> StorageReport:
    """Return the state of the storage."""
    return await visit.admin.storage.report()


async def plugins(visit: PageRequest, _: Nothing) -> Sequence[PluginReport]:
    """Return the plugins of this process."""
    return await visit.admin.plugins.list()


async def doctor(visit: PageRequest, _: Nothing) -> Sequence[Finding]:
    """Return the doctor's findings."""
    return await visit.admin.doctor.check(tasks=visit.dashboard.app.tasks)


STATS = (
    Endpoint(
        method="GET",
        path="/me",
        answer=who_asks,
        told=Me,
        title="Show the current user and their role",
    ),
    Endpoint(
        method="GET",
        path="/snapshot",
        answer=snapshot,
        asked=SnapshotQuery,
        told=SnapshotBody,
        title="List some jobs of each state, and the schedules",
        heavy=True,
    ),
    Endpoint(
        method="GET",
        path="/counts",
        answer=counts,
        asked=Names,
        told=Sequence[QueueCounts],
        title="Count the jobs of each queue by state, up to 10,000 each",
        heavy=True,
    ),
    Endpoint(
        method="GET",
        path="/series",
        answer=series,
        asked=SeriesQuery,
        told=Series,
        title="Show throughput, wait and run times over time",
        heavy=True,
    ),
    Endpoint(
        method="GET",
        path="/activity",
        answer=activity,
        asked=ActivityQuery,
        told=Sequence[Activity],
        title="Show outcomes, wait and run times by task or queue",
        heavy=True,
    ),
    Endpoint(
        method="GET",
        path="/errors",
        answer=errors,
        asked=ErrorQuery,
        told=ErrorLook,
        title="List failed jobs grouped by exception and place, latest first",
        heavy=True,
    ),
    Endpoint(
        method="GET",
        path="/workers",
        answer=workers,
        asked=WorkerQuery,
        told=Sequence[WorkerRecord],
        title="List workers that are live or ended recently",
    ),
    Endpoint(
        method="GET",
        path="/tasks",
        answer=tasks,
        asked=Names,
        told=Sequence[str],
        title="List the tasks of this process and of the workers",
    ),
    Endpoint(
        method="GET",
        path="/tasks/stats",
        answer=task_reports,
        asked=TaskQuery,
        told=Sequence[TaskReport],
        title="Show waiting and running jobs, outcomes and the last error of each task",
        heavy=True,
    ),
    Endpoint(
        method="GET",
        path="/audits",
        answer=audits,
        asked=AuditQuery,
        told=Sequence[AuditRecord],
        title="List the audit log, newest first",
    ),
    Endpoint(
        method="GET",
        path="/storage",
        answer=storage,
        told=StorageReport,
        title="Describe the storage",
    ),
    Endpoint(
        method="GET",
        path="/plugins",
        answer=plugins,
        told=Sequence[PluginReport],
        title="List the plugins of this process",
    ),
    Endpoint(
        method="POST",
        path="/doctor",
        answer=doctor,
        told=Sequence[Finding],
        role=Role.OPERATOR,
        title="Check the storage, the workers and waiting jobs",
        heavy=True,
    ),
)
