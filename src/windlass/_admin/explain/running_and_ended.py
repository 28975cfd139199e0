"""Where a job is that does not wait: at work, or at its end."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from windlass._admin.explain.cause import Cause, shell_command, since, when
from windlass._admin.explain.facts import JobFacts
from windlass._core.job.state import State
from windlass._core.values.names import shown
from windlass._observe.log import brief, error_in_one_line, printable
from windlass._storage.protocol.workers import WorkerState

__all__ = ["end_causes", "run_causes", "unique_key_causes"]


def run_causes(facts: JobFacts) -> Iterator[Cause]:
    """Since when and where; whether somebody wants its end; whether its worker is still there."""
    job, now, worker = facts.job, facts.now, facts.worker
    started = job.started_at or now
    where = f"worker {job.worker}"
    evidence: dict[str, Any] = {
        "started_at": started,
        "worker": job.worker,
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
    }
    if worker is not None:
        where += f" ({worker.start.host}, process {worker.start.pid})"
        evidence |= {"host": worker.start.host, "pid": worker.start.pid}
    far = ""
    if job.progress is not None:
        note = f", {printable(job.progress.note)}" if job.progress.note else ""
        far = f" It says it is {job.progress.fraction:.0%} done{note}."
        evidence |= {"progress": job.progress.fraction, "note": job.progress.note}
    limit = started + job.timeout if job.timeout else None
    stops = "" if limit is None else f" It is stopped {when(limit, now)}."
    yield Cause(
        code="running",
        sentence=f"It runs {since(started, now)}, on {where}, attempt {job.attempt} of "
        f"{job.max_attempts}.{far}{stops}",
        evidence={**evidence, "timeout_at": limit},
        until=limit,
        fix=f"You need not do anything. Cancel the job to stop it: "
        f"{shell_command('jobs', 'cancel', job.id)}",
    )
    yield from _worker(facts)
    if job.cancel_requested:
        yield Cause(
            code="cancel_requested",
            sentence="Somebody asked for its end: its worker is told with its next heartbeat, and "
            "a handler that never gives way runs on.",
            evidence={"cancel_requested": True},
            fix="Wait; a handler in a thread must look at ctx.cancelled itself",
        )


def _worker(facts: JobFacts) -> Iterator[Cause]:
    job, now, worker = facts.job, facts.now, facts.worker
    fix = "Nothing: other workers notice and run it again. Look why the worker is gone"
    if worker is None or worker.state is not WorkerState.LIVE:
        became = "is not known any more" if worker is None else f"is {worker.state.value}"
        yield Cause(
            code="worker_gone",
            sentence=f"Its worker {job.worker} {became}: any live worker gives it back to the "
            f"queue.",
            evidence={
                "worker": job.worker,
                "worker_state": None if worker is None else worker.state.value,
                "ended_at": None if worker is None else worker.ended_at,
            },
            fix=fix,
        )
        return
    quiet, lease = now - worker.beat_at, worker.start.lease
    if quiet > lease:
        yield Cause(
            code="worker_silent",
            sentence=f"Its worker {job.worker} has not been heard of for {brief(quiet)}, and its "
            f"lease is {brief(lease)}: it is taken for dead, and the job is run again.",
            evidence={
                "worker": job.worker,
                "beat_at": worker.beat_at,
                "lease": lease.total_seconds(),
            },
            fix=fix,
        )


def end_causes(facts: JobFacts) -> Iterator[Cause]:
    """How and when it ended."""
    job, now = facts.job, facts.now
    ended = job.finished_at or now
    evidence: dict[str, Any] = {
        "finished_at": ended,
        "attempt": job.attempt,
        "max_attempts": job.max_attempts,
        "worker": job.worker,
        "reason": job.reason,
    }
    error = ""
    if job.error is not None and job.state is not State.SUCCEEDED:
        error = f" with {error_in_one_line(job.error)}"
        evidence |= {"error_kind": job.error.kind, "error_message": job.error.message}
    again = f"To run it again: {shell_command('jobs', 'requeue', job.id)}"
    match job.state:
        case State.SUCCEEDED:
            ran = ended - job.started_at if job.started_at is not None else timedelta(0)
            said, fix = f"It succeeded {when(ended, now)}, after {brief(ran)}.", ""
        case State.FAILED:
            said = f"It failed for good {when(ended, now)}, attempt {job.attempt} of "
            said += f"{job.max_attempts},{error or ' without a word'}."
            fix = again
        case State.CANCELLED:
            said, fix = f"It was cancelled {when(ended, now)}{error}.", again
        case _:
            why = f": {printable(job.reason)}" if job.reason else ""
            said, fix = f"It was discarded {when(ended, now)}{why}.", again
    if job.on_failure is not None and job.state is State.FAILED:
        said += f" A job of task {job.on_failure.task} was stored for that."
        evidence["on_failure"] = job.on_failure.task
    yield Cause(code=job.state.value, sentence=said, evidence=evidence, fix=fix)


def unique_key_causes(facts: JobFacts) -> Iterator[Cause]:
    """Why a call was answered with this job, whatever its state."""
    job = facts.job
    if not job.key_held or job.key is None:
        return
    yield Cause(
        code="key_held",
        sentence=f"It holds unique key {shown(job.key)}: calls that ask for this key are answered "
        f"with this job, and make no new one.",
        evidence={"key": job.key, "holder": job.id},
        fix="You need not do anything: a key is free when its job ends, or when its time is up",
    )
