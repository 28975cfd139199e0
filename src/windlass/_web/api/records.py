"""Records as the API tells them: what is stored as bytes of JSON becomes JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from windlass._admin.explain.cause import Cause
from windlass._admin.explain.explain import Explanation
from windlass._admin.limits import LimitReport
from windlass._admin.overview import JobList, Snapshot
from windlass._admin.schedules import ScheduleReport
from windlass._core.job.job import AttemptError, FlowPlace, JobRecord, LimitUse, Progress
from windlass._core.job.state import State, shown_state
from windlass._core.limits.breaker import BreakerState
from windlass._core.limits.limit import LimitSpec
from windlass._core.schedule.rules import Rule
from windlass._core.schedule.schedule import RunsOn, ScheduleRun, WorkerRun
from windlass._core.values.metadata import Metadata
from windlass._core.values.trace_context import shown_trace
from windlass._storage.protocol.limits import LimitState
from windlass._web.security.cost_limits import ROWS

__all__ = [
    "ExplanationBody",
    "JobBody",
    "JobPage",
    "LimitBody",
    "ScheduleBody",
    "SnapshotBody",
    "as_json",
    "explanation_body",
    "job_body",
    "limit_body",
    "schedule_body",
    "snapshot_body",
]


class JobBody(msgspec.Struct, frozen=True, kw_only=True):
    """A job, without its secrets. A list shortens long values."""

    id: str
    seq: int
    """Its place in the order of insertion; the cursor of pages."""
    task: str
    queue: str
    state: State
    shown: str
    """The state as people see it: a waiting job is scheduled, ready, retrying, or blocked by its
    flow.
    """
    arguments: Any
    """By name; null where `unreadable` says so."""
    result: Any = None
    unreadable: bool = False
    """The stored arguments or the result are no JSON. Shortened values are not checked."""
    shortened: Sequence[Literal["arguments", "result", "error"]] = ()
    """Fields that are shortened, since this is a list: of arguments and a result the beginning of
    their JSON, as text; of an error's message the beginning, of its traceback the end. The address
    of the job itself has all of it.
    """
    priority: int
    created_at: datetime
    due: datetime
    started_at: datetime | None
    finished_at: datetime | None
    expires_at: datetime | None
    attempt: int
    max_attempts: int
    timeout: timedelta | None
    key: str | None
    limits: Sequence[LimitUse]
    worker: str | None
    error: AttemptError | None
    reason: str | None
    """Why it was discarded."""
    cancel_requested: bool
    missed_at: datetime | None
    """When a worker first could not run it; None: none had to give it back."""
    missed_why: str | None
    throttled: int
    progress: Progress | None
    metadata: Metadata | None
    """Facts that the handler noted in the run that ended last; null: none."""
    tags: Sequence[str]
    tenant: str | None
    principal: str | None
    correlation_id: str | None
    trace: str | None
    parent: str | None
    flow: FlowPlace | None = None
    """The flow that it is a member of, and the number of its part."""
    blocked: bool = False
    """It waits for other parts of its flow."""


class JobPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some of the matching jobs, in their order."""

    jobs: Sequence[JobBody]
    next: int | str | None
    """`before` of the next page; null: nothing further matches."""
    reached: datetime | None
    """How far this look went, if it gave up before it had found enough: an instant of what the list
    is ordered by."""


class ExplanationBody(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job is, why, and when it is expected to run."""

    job: str
    state: str
    at: datetime
    causes: Sequence[Cause]
    """The decisive one first."""
    expected_at: datetime | None


class ScheduleBody(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule, without secrets."""

    name: str
    state: str
    problem: str
    words: str
    """Its rule in plain words."""
    rule: Rule | None
    task: str | None
    queue: str | None
    arguments: Any
    next_at: datetime | None
    upcoming: Sequence[datetime]
    runs: Sequence[ScheduleRun]
    """The latest first."""
    failures: int
    """Runs in a row that failed."""
    fired: int
    left_out: int
    on: RunsOn | None
    """Where each slot runs: on one worker, as a job, or on every worker, without one."""
    on_workers: Sequence[WorkerRun]
    """The last run in each worker, the latest first."""
    breaker: BreakerState | None
    declared: bool
    """Whether it comes from code."""
    changed: Mapping[str, tuple[str, str]]
    """Where a person's word holds: what the code says, and what holds."""
    changed_by: str
    changed_at: datetime | None
    shortened: Sequence[Literal["arguments", "changed"]] = ()
    """Fields of which only the beginning is shown, as text, since this is a list. The address of
    the schedule itself has all of it.
    """


class LimitBody(msgspec.Struct, frozen=True):
    """A limit, and its keys that are or were recently in use."""

    spec: LimitSpec
    budgets: Sequence[LimitState]
    """By key; of many, those that hold most."""
    more: int
    """Budgets that are not told."""


class SnapshotBody(msgspec.Struct, frozen=True, kw_only=True):
    """The first page of a list for each state, and the schedules."""

    enqueued: JobList
    running: JobList
    completed: JobList
    """Of the last 24 hours."""
    failed: JobList
    """Of the last seven days."""
    schedules: Sequence[ScheduleBody]
    """The first of them; `/schedules` has all."""
    schedules_after: str | None
    """The cursor of the next part: `after` of `/schedules`; null: these are all."""
    page_size: int
    history_limit: int


def job_body(job: JobRecord, now: datetime) -> JobBody:
    """Return the body of one job of the admin."""
    arguments, fits = as_json(job.payload)
    result, result_fits = as_json(job.result)
    failed_before = job.attempt > job.max_attempts - job.budget
    return JobBody(
        id=job.id,
        seq=job.seq,
        task=job.task,
        queue=job.queue,
        state=job.state,
        shown=shown_state(
            job.state, due=job.due, now=now, failed_before=failed_before, blocked=job.blocked
        ),
        arguments=arguments,
        result=result,
        unreadable=not (fits and result_fits),
        priority=job.priority,
        created_at=job.created_at,
        due=job.due,
        started_at=job.started_at,
        finished_at=job.finished_at,
        expires_at=job.expires_at,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        timeout=job.timeout,
        key=job.key,
        limits=job.limits,
        worker=job.worker,
        error=job.error,
        reason=job.reason,
        cancel_requested=job.cancel_requested,
        missed_at=job.missed_at,
        missed_why=job.missed_why,
        throttled=job.throttled,
        progress=job.progress,
        metadata=job.metadata,
        tags=job.tags,
        tenant=job.tenant,
        principal=job.principal,
        correlation_id=job.correlation_id,
        trace=shown_trace(job.trace),
        parent=job.parent,
        flow=job.flow,
        blocked=job.blocked,
    )


def explanation_body(told: Explanation) -> ExplanationBody:
    """Return an explanation without the job itself, which has its own address."""
    return ExplanationBody(
        job=told.job.id,
        state=told.state,
        at=told.at,
        causes=told.causes,
        expected_at=told.expected_at,
    )


def schedule_body(report: ScheduleReport) -> ScheduleBody:
    """Return the same with its call spelled out."""
    plan = report.plan
    job = None if plan is None else plan.job
    return ScheduleBody(
        name=report.name,
        state=report.state,
        problem=report.problem,
        words=report.words,
        rule=None if plan is None else plan.rule,
        task=None if job is None else job.task,
        queue=None if job is None else job.queue,
        arguments=None if job is None else as_json(job.payload)[0],
        next_at=report.next_at,
        upcoming=report.upcoming,
        runs=report.runs,
        failures=report.failures,
        fired=report.fired,
        left_out=report.left_out,
        on=None if plan is None else plan.on,
        on_workers=report.on_workers,
        breaker=report.breaker,
        declared=report.declared,
        changed=report.changed,
        changed_by=report.changed_by,
        changed_at=report.changed_at,
    )


def limit_body(report: LimitReport) -> LimitBody:
    """Return the same, no more of its budgets than a list has lines."""
    most = sorted(report.budgets, key=lambda one: (-one.running, one.key))[:ROWS]
    told = sorted(most, key=lambda one: one.key)
    return LimitBody(report.spec, told, len(report.budgets) - len(told))


def snapshot_body(told: Snapshot, schedules: Sequence[ScheduleBody]) -> SnapshotBody:
    """Return the same with its schedules as the API tells them, or as many of them as fit."""
    cut = len(schedules) < len(told.schedules) and schedules
    after = schedules[-1].name if cut else told.schedules_after
    return SnapshotBody(
        enqueued=told.enqueued,
        running=told.running,
        completed=told.completed,
        failed=told.failed,
        schedules=schedules,
        schedules_after=after,
        page_size=told.page_size,
        history_limit=told.history_limit,
    )


def as_json(stored: bytes | None) -> tuple[Any, bool]:
    """Return the value, and whether it could be read: other programs may have written it."""
    if stored is None:
        return None, True
    try:
        return msgspec.json.decode(stored), True
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None, False
