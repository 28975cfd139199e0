"""The run of a schedule before the current one."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from windlass._core.job.job import JobId, JobRecord
from windlass._core.schedule.schedule import ScheduleRun, ScheduleState
from windlass._core.values.payload import decode_any

__all__ = ["PreviousRun", "describe_run", "run_before"]


class PreviousRun(msgspec.Struct, frozen=True, kw_only=True):
    """The job that the same schedule made before this one."""

    job_id: JobId
    slot: datetime
    """The instant that the schedule fired for, or at which an operator triggered it."""
    outcome: str
    """``succeeded``, ``failed``, ``cancelled`` or ``discarded``; ``waiting`` or ``running`` if it
    has not ended; ``gone`` if the job was deleted before its schedule knew its end."""
    started_at: datetime | None = None
    """The start of its last attempt. None: it never started, or the job was deleted."""
    ended_at: datetime | None = None
    """None: it has not ended, or the job was deleted."""
    result: Any = None
    """The value that its handler returned, as plain JSON values; None if the job was deleted."""
    error: str | None = None
    """Its last error, as ``Kind: message``."""


def run_before(state: ScheduleState, job: JobId) -> ScheduleRun | None:
    """Return the run that made a job before ``job``; None: there was none, or ``job`` is not of
    this schedule. Slots that were left out made no job.
    """
    before: ScheduleRun | None = None
    for run in state.runs:
        if run.job == job:
            return before
        if run.job is not None:
            before = run
    return None


def describe_run(run: ScheduleRun, job_id: JobId, job: JobRecord | None) -> PreviousRun:
    """Return what is known of a run. ``job``: None if it is not stored any more."""
    if job is None:
        outcome = run.outcome or "gone"
        return PreviousRun(job_id=job_id, slot=run.slot, outcome=outcome, ended_at=run.ended_at)
    return PreviousRun(
        job_id=job_id,
        slot=run.slot,
        outcome=job.state.value,
        started_at=job.started_at,
        ended_at=job.finished_at,
        result=decode_any(job.result),
        error=None if job.error is None else f"{job.error.kind}: {job.error.message}",
    )
