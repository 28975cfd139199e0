"""Why a waiting job does not start: its time, its queue, and who would have to run it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

from windlass._admin.explain.capabilities import capability_causes, missing_task_advice
from windlass._admin.explain.cause import Cause, few, plural, shell_command, since, when
from windlass._admin.explain.facts import SAMPLE_SIZE, JobFacts, QueueAhead, QueueWorkers
from windlass._core.job.job import JobRecord
from windlass._core.job.state import Verb
from windlass._observe.log import brief, error_in_one_line, printable
from windlass._plugins.names import plugin_of
from windlass._storage.protocol.workers import Duty, WorkerRecord

__all__ = ["before", "due_time_causes", "queue_causes", "worker_causes"]

_SOON = timedelta(minutes=10)
_NAMED = 20


def _run_now(job: JobRecord) -> str:
    return f"Wait, or start it now: {shell_command('jobs', 'run-now', job.id)}"


# --- its time -------------------------------------------------------------------------------------


def due_time_causes(facts: JobFacts) -> Iterator[Cause]:
    """Say that it is not due yet, expires soon, or cannot be run by the workers."""
    job, now = facts.job, facts.now
    if job.missed_at is not None:
        misfit = job.missed_why is not None and job.missed_why.startswith("Misfit:")
        yield _misfit(facts) if misfit else _unknown_task(facts)
    elif job.due > now:
        yield _not_due(facts)
    expires = job.expires_at
    if expires is None:
        return
    evidence = {"expires_at": expires, "due": job.due}
    if expires <= now:
        yield Cause(
            code="expired",
            sentence=f"It expired {when(expires, now)}: the next worker discards it.",
            evidence=evidence,
            fix="Enqueue it again, with a longer expires=",
        )
    elif expires - now <= _SOON or expires <= job.due:
        yield Cause(
            code="expires_soon",
            sentence=f"It expires {when(expires, now)}; if it has not started by then, it is "
            f"discarded.",
            evidence=evidence,
            until=expires,
            fix="Remove the other causes before then",
        )


def _not_due(facts: JobFacts) -> Cause:
    job, now = facts.job, facts.now
    last = facts.last
    verb = None if last is None else last.verb
    evidence: dict[str, Any] = {"due": job.due, "created_at": job.created_at}
    match verb:
        case Verb.RETRY if _tries(job) > 0:
            code = "retry_due"
            why = "" if job.error is None else f" after {error_in_one_line(job.error)}"
            said = (
                f"Attempt {job.attempt} of {job.max_attempts} failed{why}. The next one is due "
                f"{when(job.due, now)}."
            )
            evidence |= {"attempt": job.attempt, "max_attempts": job.max_attempts}
        case Verb.SNOOZE:
            code = "snoozed"
            said = f"Its handler snoozed it: it is due again {when(job.due, now)}."
        case Verb.THROTTLE:
            code = "throttled"
            said = (
                f"It was throttled {plural(job.throttled, 'time')} so far: it is due again "
                f"{when(job.due, now)}."
            )
            evidence["throttled"] = job.throttled
        case _:
            code = "scheduled"
            said = f"It is scheduled: due {when(job.due, now)}."
    if job.error is not None and code != "scheduled":
        evidence |= {"error_kind": job.error.kind, "error_message": job.error.message}
    return Cause(code=code, sentence=said, evidence=evidence, until=job.due, fix=_run_now(job))


def _tries(job: JobRecord) -> int:
    """Return the attempts spent since the last requeue."""
    return job.attempt - (job.max_attempts - job.budget)


def _unknown_task(facts: JobFacts) -> Cause:
    """Say that workers claimed it and released it, because they lack its task."""
    job = facts.job
    return Cause(
        code="unknown_task",
        sentence=f"Workers of queue {job.queue} claimed it and do not have task {job.task}: "
        f"{_released(facts)}",
        evidence=_missed(facts),
        fix=f"Start workers of queue {job.queue} with the code that defines {job.task}: "
        f"{missing_task_advice(facts)}",
    )


def _misfit(facts: JobFacts) -> Cause:
    """Say that workers claimed it and released it, because its arguments do not fit."""
    job = facts.job
    return Cause(
        code="misfit",
        sentence=f"Its arguments do not fit task {job.task} on the workers of queue {job.queue}: "
        f"{_released(facts)}",
        evidence=_missed(facts),
        fix=f"Finish the deploy: start workers of queue {job.queue} with the code that the "
        f"producer runs. Next time deploy workers before producers",
    )


def _released(facts: JobFacts) -> str:
    job, now = facts.job, facts.now
    why = "" if not job.missed_why else f" ({printable(job.missed_why)})"
    times = f"they have released it {since(job.missed_at or now, now)}{why}"
    return f"{times}. The next try is {when(job.due, now)}."


def _missed(facts: JobFacts) -> dict[str, Any]:
    job = facts.job
    return {
        "task": job.task,
        "plugin": plugin_of(job.tags),
        "missed_at": job.missed_at,
        "missed_why": job.missed_why,
        "due": job.due,
        "last_met_by": job.worker,
        "workers": _names(facts.crew.serving),
    }


# --- its queue ------------------------------------------------------------------------------------


def queue_causes(facts: JobFacts) -> Iterator[Cause]:
    """Say that its queue is paused, cooling down or full."""
    job, now, queue = facts.job, facts.now, facts.queue
    if queue.paused:
        yield _paused(facts)
    cool = queue.cool_until
    if cool is not None and cool > max(now, job.due):
        yield Cause(
            code="queue_cooling",
            sentence=f"Queue {job.queue} was throttled and is cooling down: its next job may start "
            f"{when(cool, now)}.",
            evidence={"queue": job.queue, "cool_until": cool, "cool_downs": queue.cool_downs},
            until=cool,
            fix=f"Wait, or end the cool-down: {shell_command('queues', 'warm', job.queue)}",
        )
    most = queue.settings.max_running
    if most is not None and job.due <= now and facts.queue_running >= most:
        yield _queue_full(facts, most)


def _paused(facts: JobFacts) -> Cause:
    job, order = facts.job, facts.paused_by
    who = "" if order is None else f", by {printable(order.note.who)} {when(order.at, facts.now)}"
    return Cause(
        code="queue_paused",
        sentence=f"Queue {job.queue} is paused{who}: no job of it starts until it is resumed.",
        evidence={
            "queue": job.queue,
            "paused": True,
            "by": None if order is None else order.note.who,
            "since": None if order is None else order.at,
        },
        fix=f"Resume it: {shell_command('queues', 'resume', job.queue)}",
    )


def _queue_full(facts: JobFacts, most: int) -> Cause:
    job, line = facts.job, facts.line
    holders = [one.id for one in facts.running if one.queue == job.queue]
    held = f": {few(holders, None if len(holders) >= SAMPLE_SIZE else 0)}" if holders else ""
    wait = line.wait()
    return Cause(
        code="queue_full",
        sentence=f"Queue {job.queue} is full: it runs {facts.queue_running:,} of at most {most:,} "
        f"jobs{held}.",
        evidence={
            "queue": job.queue,
            "running": facts.queue_running,
            "max_running": most,
            "held_by": holders[:_NAMED],
            **_in_line(facts),
        },
        until=None if wait is None else facts.now + wait,
        fix=f"Wait for one of them, or allow more: "
        f"{shell_command('queues', 'set', job.queue, '--max-running', str(most + 1))}",
    )


# --- who would run it -----------------------------------------------------------------------------


def worker_causes(facts: JobFacts) -> Iterator[Cause]:
    """Say that no worker serves it, that all are busy, or that they cannot run it."""
    job, crew = facts.job, facts.crew
    if not crew.serving:
        yield _told_to_be_quiet(facts) if crew.quiet else _no_worker(facts)
        return
    if job.due <= facts.now:
        if job.solo:
            yield _solo(facts)
        elif crew.busy:
            yield _slots_busy(facts)
    yield from capability_causes(facts)


def _no_worker(facts: JobFacts) -> Cause:
    job, crew, now = facts.job, facts.crew, facts.now
    silent = [_silent(worker, facts) for worker in crew.silent]
    if silent:
        beat = max(worker.beat_at for worker in crew.silent)
        said = (
            f"No live worker serves queue {job.queue}: its last worker has sent no heartbeat "
            f"{since(beat, now)}."
        )
    elif crew.elsewhere:
        others = sorted({queue for worker in crew.elsewhere for queue in worker.start.queues})
        said = f"No live worker serves queue {job.queue}: the live workers serve {few(others)}."
    else:
        said = f"No live worker serves queue {job.queue}: no worker is live."
    return Cause(
        code="no_worker",
        sentence=said,
        evidence={
            "queue": job.queue,
            "silent": silent,
            "elsewhere": {
                worker.start.id: list(worker.start.queues) for worker in crew.elsewhere[:_NAMED]
            },
        },
        fix=f"Start one: {shell_command('worker', 'MODULE:APP', '--queue', job.queue)}",
    )


def _told_to_be_quiet(facts: JobFacts) -> Cause:
    job, quiet = facts.job, facts.crew.quiet
    resting = [worker.start.id for worker in quiet if worker.duty is Duty.QUIET]
    who = "The worker" if len(quiet) == 1 else f"All {len(quiet):,} workers"
    return Cause(
        code="workers_quiet",
        sentence=f"{who} of queue {job.queue} {'is' if len(quiet) == 1 else 'are'} paused or "
        f"stopping: {few([worker.start.id for worker in quiet])}.",
        evidence={
            "queue": job.queue,
            "workers": {worker.start.id: worker.duty.value for worker in quiet[:_NAMED]},
        },
        fix=f"Resume it: {shell_command('workers', 'resume', resting[0])}"
        if resting
        else f"Start another: {shell_command('worker', 'MODULE:APP', '--queue', job.queue)}",
    )


def _silent(worker: WorkerRecord, facts: JobFacts) -> dict[str, Any]:
    return {
        "worker": worker.start.id,
        "host": worker.start.host,
        "pid": worker.start.pid,
        "silent_for": (facts.now - worker.beat_at).total_seconds(),
    }


def _solo(facts: JobFacts) -> Cause:
    job, crew = facts.job, facts.crew
    empty = [worker.start.id for worker in crew.serving if not worker.running]
    waits = (
        f"worker {empty[0]} is idle and runs it next"
        if empty
        else "it waits for an idle worker, and all of them are busy"
    )
    return Cause(
        code="solo",
        sentence=f"It must run alone, because workers died while they ran it, "
        f"{plural(job.lost, 'time')} in a row: {waits}.",
        evidence={"lost": job.lost, "empty": empty[:_NAMED], "workers": _loads(crew)},
        until=facts.now if empty else None,
        fix=f"Wait, or start a worker for it: "
        f"{shell_command('worker', 'MODULE:APP', '--queue', job.queue)}",
    )


def _slots_busy(facts: JobFacts) -> Cause:
    job, crew, line = facts.job, facts.crew, facts.line
    wait, least = line.wait(), line.least()
    pace = "No run of this queue has ended recently, so the wait is unknown"
    if least is not None:
        starts = "not before" if wait is None else "in about"
        pace = (
            f"At the recent pace ({line.ended:,} runs in {brief(line.within)}) it starts "
            f"{starts} {brief(least)}{' from now' if wait is None else ''}"
        )
    return Cause(
        code="slots_busy",
        sentence=f"No slot is free: {plural(len(crew.serving), 'worker')} of queue {job.queue} "
        f"with {plural(crew.slots, 'slot')}, all busy. Ahead of it: {before(line)}. {pace}.",
        evidence={
            "slots": crew.slots,
            "running": crew.running,
            "workers": _loads(crew),
            **_in_line(facts),
        },
        until=None if wait is None else facts.now + wait,
        fix="Wait, or start more workers, or workers with more --slots",
    )


def before(line: QueueAhead) -> str:
    """Count the jobs ahead of it."""
    count = plural(len(line.ahead), "ready job")
    return f"{count} or more" if line.more else count


def _in_line(facts: JobFacts) -> dict[str, Any]:
    line, wait, least = facts.line, facts.line.wait(), facts.line.least()
    return {
        "ahead": len(line.ahead),
        "ahead_is_exact": not line.more,
        "recently_ended": line.ended,
        "within": line.within.total_seconds(),
        "estimated_wait": None if wait is None else wait.total_seconds(),
        "least_wait": None if least is None else least.total_seconds(),
    }


def _loads(crew: QueueWorkers) -> dict[str, dict[str, int]]:
    return {
        worker.start.id: {"slots": crew.slots_of(worker), "running": crew.load_of(worker)}
        for worker in crew.serving[:_NAMED]
    }


def _names(workers: Sequence[WorkerRecord]) -> list[str]:
    return [worker.start.id for worker in workers[:_NAMED]]
