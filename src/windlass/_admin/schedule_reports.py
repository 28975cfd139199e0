"""Schedules as people see them: with what became of their runs, read for many at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Literal

import msgspec

from windlass._core.job.job import JobId, JobRecord, NewJob
from windlass._core.job.state import State
from windlass._core.limits.breaker import BreakerState
from windlass._core.schedule.describe import describe_rule
from windlass._core.schedule.rules import Manual
from windlass._core.schedule.schedule import Schedule, ScheduleRun, WorkerRun, planned_slots
from windlass._core.values.redaction import (
    redacted_json,
    redacted_text,
    secret_names,
    secret_values,
)
from windlass._schedules.edits import UNDECLARED, ScheduleView, UnreadableSchedule
from windlass._storage.protocol.storage import Storage
from windlass._tasks.limits import breaker_name

__all__ = ["AHEAD", "ScheduleReport", "reports_of", "schedule_state_of"]

AHEAD = 5
_AT_ONCE = 1_000
"""Jobs that one read brings: they come whole."""
_ACTIVE = (State.WAITING, State.RUNNING)

ScheduleWord = Literal["active", "paused", "ended", "removed", "held", "broken"]


class ScheduleReport(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as people see it."""

    name: str
    state: ScheduleWord
    problem: str = ""
    """Why it is held or broken, or will be held, and what to do."""
    words: str = ""
    """Its rule in plain words."""
    plan: Schedule | None = None
    """None: it cannot be read."""
    next_at: datetime | None = None
    upcoming: Sequence[datetime] = ()
    """The next five slots, as things stand."""
    runs: Sequence[ScheduleRun] = ()
    """The latest first; an outcome of ``waiting`` or ``running`` is not one yet."""
    failures: int = 0
    """Runs in a row that failed."""
    fired: int = 0
    left_out: int = 0
    on_workers: Sequence[WorkerRun] = ()
    """Of one that runs on every worker: the last run in each, the latest first."""
    breaker: BreakerState | None = None
    """Of its task, where it has one."""
    declared: bool = False
    """Whether it comes from code."""
    changed: Mapping[str, tuple[str, str]] = {}
    """Where a person's word holds: what the code says, and what holds."""
    changed_by: str = ""
    changed_at: datetime | None = None


async def reports_of(
    storage: Storage, found: Sequence[ScheduleView | UnreadableSchedule], now: datetime
) -> list[ScheduleReport]:
    """Tell of some schedules. The number of reads does not grow with each of them."""
    known = [one for one in found if isinstance(one, ScheduleView)]
    ids = [run.job for one in known for run in one.state.runs if run.job is not None]
    jobs = await _stored(storage, list(dict.fromkeys(ids)))
    names = list(dict.fromkeys(name for one in known if (name := _breaker(one.state.plan))))
    states = await storage.limits.breakers(names) if names else ()
    breakers = {name: look.state for name, look in zip(names, states, strict=True)}
    return [
        _broken(one) if isinstance(one, UnreadableSchedule) else _report(one, jobs, breakers, now)
        for one in found
    ]


async def _stored(storage: Storage, ids: Sequence[JobId]) -> dict[JobId, JobRecord]:
    jobs: dict[JobId, JobRecord] = {}
    for start in range(0, len(ids), _AT_ONCE):
        some = await storage.admin.get(ids[start : start + _AT_ONCE])
        jobs |= {job.id: job for job in some if job is not None}
    return jobs


def _broken(found: UnreadableSchedule) -> ScheduleReport:
    fix = "Delete or redeclare it"
    problem = f"it cannot be read: {found.problem}. {fix}"
    return ScheduleReport(name=found.row.name, state="broken", problem=problem)


def _report(
    found: ScheduleView,
    jobs: Mapping[JobId, JobRecord],
    breakers: Mapping[str, BreakerState],
    now: datetime,
) -> ScheduleReport:
    runs = _live(found.state.runs, jobs)
    ended = {run.job: run.outcome for run in runs if run.job and run.outcome not in _ACTIVE}
    state, plan = found.state.settled(ended), found.state.plan
    return ScheduleReport(
        name=found.row.name,
        state=schedule_state_of(found),
        # Told before its slot comes: that may be in a year.
        problem=state.problem or (UNDECLARED if found.undeclared(now) else ""),
        words=describe_rule(plan.rule),
        plan=_hidden(plan),
        next_at=found.row.next_at,
        upcoming=_ahead(found),
        runs=runs,
        failures=state.failures,
        fired=state.fired,
        left_out=state.left_out,
        on_workers=state.on_workers[::-1],
        breaker=breakers.get(_breaker(plan)),
        declared=state.written is not None,
        changed=_changed(plan, state.written),
        changed_by=state.changed_by,
        changed_at=state.changed_at,
    )


def _live(runs: Iterable[ScheduleRun], stored: Mapping[JobId, JobRecord]) -> list[ScheduleRun]:
    """Return the latest first, with what the jobs themselves say where they are still stored."""
    told: list[ScheduleRun] = []
    for run in reversed(tuple(runs)):
        job = None if run.job is None else stored.get(run.job)
        if job is not None:
            run = msgspec.structs.replace(  # noqa: PLW2901 -- the same run, as it is now
                run, outcome=job.state.value, ended_at=job.finished_at
            )
        elif run.active:
            run = msgspec.structs.replace(run, outcome="gone")  # noqa: PLW2901
        told.append(run)
    return told


def _breaker(plan: Schedule) -> str:
    """Return the breaker of its task, where its jobs draw on one; else nothing."""
    if plan.job is None:
        return ""
    name = breaker_name(plan.job.task)
    return name if any(use.name == name for use in plan.job.limits) else ""


def schedule_state_of(found: ScheduleView | UnreadableSchedule) -> ScheduleWord:
    """Name the state that people see."""
    if isinstance(found, UnreadableSchedule):
        return "broken"
    state = found.state
    if state.removed:
        return "removed"
    if state.paused:
        return "paused"
    if state.held is not None:
        return "held"
    if state.problem:
        return "broken"
    # Made with dates that are over, it has never had a slot.
    slotless = found.row.next_at is None and not isinstance(state.plan.rule, Manual)
    return "ended" if state.ended or slotless else "active"


def _ahead(found: ScheduleView) -> list[datetime]:
    """Return the next slots, also from one that is overdue: later slots follow it, not
    the present.
    """
    next_at = found.row.next_at
    if next_at is None or found.state.plan.follows:
        return [] if next_at is None else [next_at]
    rest = planned_slots(found.state.plan, next_at, AHEAD)
    return [next_at, *[slot for slot in rest if slot > next_at]][:AHEAD]


def _changed(plan: Schedule, written: Schedule | None) -> Mapping[str, tuple[str, str]]:
    if written is None:
        return {}
    code, now = _shown(written), _shown(plan)
    secrets = [*_secrets(plan), *_secrets(written)]
    return {
        name: (
            redacted_text(code.get(name, ""), secrets),
            redacted_text(now.get(name, ""), secrets),
        )
        for name in {**code, **now}
        if code.get(name) != now.get(name)
    }


def _secrets(plan: Schedule) -> Sequence[str]:
    job = plan.job
    return () if job is None else secret_values(job.payload, secret_names(job.tags))


def _hidden(plan: Schedule) -> Schedule:
    """Return the arguments of its jobs, without secrets."""
    job = plan.job
    if job is None:
        return plan
    payload = redacted_json(job.payload, secret_names(job.tags), _secrets(plan))
    return msgspec.structs.replace(plan, job=msgspec.structs.replace(job, payload=payload))


def _shown(plan: Schedule) -> dict[str, str]:
    """Everything that can differ, in words: of the job each field, its payload as arguments."""
    told = {
        name: describe_rule(plan.rule) if name == "rule" else str(getattr(plan, name))
        for name in Schedule.__struct_fields__
        if name != "job"
    }
    if plan.job is not None:
        told |= {name: str(getattr(plan.job, name)) for name in NewJob.__struct_fields__}
        told["arguments"] = plan.job.payload.decode(errors="replace")
        del told["payload"]
    return told
