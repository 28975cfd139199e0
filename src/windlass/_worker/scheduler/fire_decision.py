"""Decisions for one due schedule: pure, so that every case can be tested alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

import msgspec

from windlass._core.job.job import JobId, NewJob
from windlass._core.schedule.rules import Every
from windlass._core.schedule.schedule import (
    Schedule,
    ScheduleRun,
    ScheduleState,
    due_firings,
    job_of_slot,
)
from windlass._schedules.edits import ScheduleView, encoded, trim_runs, write_of
from windlass._storage.protocol.schedules import ScheduleWrite

__all__ = [
    "SKIPPED_BREAKER",
    "SKIPPED_KEY",
    "SKIPPED_OVERLAP",
    "FireDecision",
    "decide_firing",
    "hold_schedule",
    "skip_slots",
    "without_held_keys",
]

SKIPPED_OVERLAP = "left out: the run before was still active"
SKIPPED_BREAKER = "left out: the breaker of its task is open"
SKIPPED_KEY = "left out: job {} holds its unique key"
_SOONEST, _LATEST = timedelta(milliseconds=100), timedelta(seconds=5)


class FireDecision(msgspec.Struct, frozen=True):
    """The write for a schedule, and its meaning."""

    known: ScheduleView
    write: ScheduleWrite
    slots: tuple[datetime, ...] = ()
    """Those that get a run."""
    instead: ScheduleWrite | None = None
    """The write if the allowed number of runs is active."""
    state: ScheduleState | None = None
    """The state that ``write`` stores, if it brings jobs."""


def decide_firing(
    known: ScheduleView,
    *,
    at: datetime,
    ended: Mapping[JobId, str],
    last_end: datetime | None = None,
    breaker_open: bool = False,
) -> FireDecision:
    """Fire what is due of a schedule, and move it on to its next slot.

    ``ended`` says how earlier runs have ended; ``last_end`` when the last one did, for a rule that
    waits for it.
    """
    state = known.state.settled(ended)
    plan, next_at = state.plan, known.row.next_at or at
    if plan.follows and state.runs:
        state = _with_end(state, last_end or at)
        waits = _follow(plan, state.runs[-1], at)
        over = plan.ends is not None and waits >= plan.ends
        if waits > at or over:
            state = msgspec.structs.replace(state, ended=over)
            return FireDecision(known, write_of(known, state, waits))
        next_at = waits
    slots, missed, after = due_firings(plan, next_at, at)
    if plan.job is None and not slots and not missed:
        slots = [next_at]  # a schedule without a job that was triggered between its slots
    if plan.follows and after is None:
        after = at + _look_again(plan)
    state = msgspec.structs.replace(
        state, left_out=state.left_out + missed, ended=after is None and not plan.follows
    )
    if plan.on == "every_worker":  # each worker runs it by itself; the next slot is for people
        state = msgspec.structs.replace(state, fired=state.fired + len(slots))
        return FireDecision(known, write_of(known, state, after))
    if breaker_open:
        return FireDecision(
            known, write_of(known, skip_slots(state, slots, SKIPPED_BREAKER), after)
        )
    active = tuple(run.job for run in state.runs if run.active and run.job is not None)
    room = len(slots) if plan.most_active is None else max(0, plan.most_active - len(active))
    fire, rest = slots[:room], slots[room:]
    skipped = write_of(known, skip_slots(state, slots, SKIPPED_OVERLAP), after)
    if not fire:
        return FireDecision(known, skipped)
    jobs = () if plan.job is None else tuple(job_of_slot(known.row.name, plan, s) for s in fire)
    started = skip_slots(_started(state, fire, jobs), rest, SKIPPED_OVERLAP)
    most = None if plan.most_active is None else plan.most_active - len(fire) + 1
    write = msgspec.structs.replace(
        write_of(known, started, after), jobs=jobs, active=active, most_active=most
    )
    return FireDecision(known, write, tuple(fire), skipped, started)


def without_held_keys(one: FireDecision, holders: Mapping[JobId, JobId]) -> FireDecision:
    """Return the same move without the jobs whose unique keys others hold: their slots are left
    out.
    """
    state = one.state or one.known.state
    runs = [
        msgspec.structs.replace(run, job=None, outcome=SKIPPED_KEY.format(holders[run.job]))
        if run.job is not None and run.job in holders
        else run
        for run in state.runs
    ]
    jobs = tuple(job for job in one.write.jobs if job.id not in holders)
    out = len(one.write.jobs) - len(jobs)
    state = msgspec.structs.replace(
        state,
        runs=trim_runs(runs, state.plan),
        fired=state.fired - out,
        left_out=state.left_out + out,
    )
    most = one.write.most_active
    write = msgspec.structs.replace(
        one.write,
        body=encoded(state),
        jobs=jobs,
        most_active=None if most is None or not jobs else most + out,
    )
    pairs = zip(one.slots, one.write.jobs, strict=True)
    slots = tuple(slot for slot, job in pairs if job.id not in holders)
    return msgspec.structs.replace(one, write=write, slots=slots, state=state)


def _with_end(state: ScheduleState, end: datetime) -> ScheduleState:
    """Return the same, with the end of the last run written down: its job may be gone at the next
    look, and one that is already gone has ended by now.
    """
    last = state.runs[-1]
    if last.job is None or last.active or last.ended_at is not None:
        return state
    return msgspec.structs.replace(
        state, runs=(*state.runs[:-1], msgspec.structs.replace(last, ended_at=end))
    )


def _follow(plan: Schedule, last: ScheduleRun, at: datetime) -> datetime:
    """Return when a rule that waits for the end of the last run fires next, or is
    looked at again.
    """
    if last.active or not isinstance(plan.rule, Every):
        return at + _look_again(plan)
    return (last.ended_at or last.slot) + plan.rule.period


def _look_again(plan: Schedule) -> timedelta:
    period = plan.rule.period if isinstance(plan.rule, Every) else _LATEST
    return min(max(period, _SOONEST), _LATEST)


def _started(
    state: ScheduleState, slots: Sequence[datetime], jobs: Sequence[NewJob]
) -> ScheduleState:
    if not jobs:  # a chore says itself how it went
        return msgspec.structs.replace(state, fired=state.fired + len(slots))
    runs = [ScheduleRun(slot, job.id) for slot, job in zip(slots, jobs, strict=True)]
    return msgspec.structs.replace(
        state, runs=trim_runs([*state.runs, *runs], state.plan), fired=state.fired + len(runs)
    )


def skip_slots(state: ScheduleState, slots: Sequence[datetime], why: str) -> ScheduleState:
    """Return the same, with slots that get no run."""
    if not slots:
        return state
    runs = [ScheduleRun(slot, None, why) for slot in slots]
    return msgspec.structs.replace(
        state,
        runs=trim_runs([*state.runs, *runs], state.plan),
        left_out=state.left_out + len(slots),
    )


def hold_schedule(known: ScheduleView, problem: str) -> FireDecision:
    """Hold a schedule: it fires nothing until a process declares it again, or an operator resumes
    it.
    """
    state = msgspec.structs.replace(known.state, problem=problem, held=known.row.next_at)
    return FireDecision(known, write_of(known, state, None))
