"""Where a job is that does not wait: at work, or at its end."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

from windlass._admin.explain.cause import Cause, shell_command, since, when
from windlass._admin.explain.facts import JobFacts
from windlass._admin.explain.flows import ended_by_flow
from windlass._core.job.state import State
from windlass._core.values.names import shown
from windlass._observe.log import brief, error_in_one_line, printable
from windlass._storage.protocol.workers import WorkerState

__all__ = ["end_causes", "run_causes", "unique_key_causes"]


def run_causes(facts: JobFacts) -> Iterator[Cause]:
    """Say since when and where it runs, whether it was cancelled, and whether its worker lives."""
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
        far = f" It reports {job.progress.fraction:.0%} done{note}."
        evidence |= {"progress": job.progress.fraction, "note": job.progress.note}
    limit = started + job.timeout if job.timeout else None
    stops = "" if limit is None else f" It times out {when(limit, now)}."
    yield Cause(
        code="running",
        sentence=f"It has run {since(started, now)}, on {where}, attempt {job.attempt} of "
        f"{job.max_attempts}.{far}{stops}",
        evidence={**evidence, "timeout_at": limit},
        until=limit,
        fix=f"You need not do anything. To stop the job, cancel it: "
        f"{shell_command('jobs', 'cancel', job.id)}",
    )
    yield from _worker(facts)
    if job.cancel_requested:
        yield Cause(
            code="cancel_requested",
            sentence="Its cancellation was requested: its worker gets the request with its next "
            "heartbeat. A handler that ignores it keeps running.",
            evidence={"cancel_requested": True},
            fix="Wait; a handler on a thread must check ctx.cancelled itself",
        )


def _worker(facts: JobFacts) -> Iterator[Cause]:
    job, now, worker = facts.job, facts.now, facts.worker
    fix = "You need not do anything: another worker runs it again. Find out why the worker is gone"
    if worker is None or worker.state is not WorkerState.LIVE:
        became = "is not stored any more" if worker is None else f"is {worker.state.value}"
        yield Cause(
            code="worker_gone",
            sentence=f"Its worker {job.worker} {became}: a live worker will return the job to the "
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
            sentence=f"Its worker {job.worker} sent no heartbeat for {brief(quiet)}, and its lease "
            f"is {brief(lease)}: other workers will declare it dead and run the job again.",
            evidence={
                "worker": job.worker,
                "beat_at": worker.beat_at,
                "lease": lease.total_seconds(),
            },
            fix=fix,
        )


def end_causes(facts: JobFacts) -> Iterator[Cause]:
    """Say how and when it ended."""
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
            said += f"{job.max_attempts}{f',{error}' if error else ''}."
            fix = again
        case State.CANCELLED | State.DISCARDED if ended_by_flow(job):
            said = (
                f"Its flow {job.state.value} it {when(ended, now)}: {printable(job.reason or '')}."
            )
            flow = job.flow.flow if job.flow is not None else ""
            evidence["flow"] = flow
            fix = f"It runs again with its flow: {shell_command('flows', 'retry', flow)}"
        case State.CANCELLED:
            said, fix = f"It was cancelled {when(ended, now)}{error}.", again
        case _:
            why = f": {printable(job.reason)}" if job.reason else ""
            said, fix = f"It was discarded {when(ended, now)}{why}.", again
    if job.on_failure is not None and job.state is State.FAILED:
        said += f" Its on_failure job (task {job.on_failure.task}) was enqueued."
        evidence["on_failure"] = job.on_failure.task
    yield Cause(code=job.state.value, sentence=said, evidence=evidence, fix=fix)


def unique_key_causes(facts: JobFacts) -> Iterator[Cause]:
    """Say why calls return this job, in any state."""
    job = facts.job
    if not job.key_held or job.key is None:
        return
    yield Cause(
        code="key_held",
        sentence=f"It holds unique key {shown(job.key)}: calls with this key return this job and "
        f"enqueue no new one.",
        evidence={"key": job.key, "holder": job.id},
        fix="You need not do anything: the key is free when the job ends, or when its time is over",
    )
