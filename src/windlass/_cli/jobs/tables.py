"""Print jobs: tables for people, fields for machines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from windlass._cli.exit_codes import COULD_NOT_START, IN_ORDER

if TYPE_CHECKING:
    from windlass._cli.options.target import Target
    from windlass._core.job.job import Attempt, JobRecord
    from windlass._core.values.metadata import Metadata
    from windlass.admin import Explanation

__all__ = [
    "ShownActionResult",
    "all_fields",
    "fields",
    "json_of",
    "print_action_results",
    "print_explanation",
    "print_job",
    "print_jobs",
    "state_text",
]


class ShownActionResult(NamedTuple):
    """The result of one action."""

    job: str
    done: bool
    said: str


def print_jobs(found: Sequence[JobRecord], now: datetime) -> None:
    """Print one line for each job."""
    from windlass._cli.output.tables import NUMBER, print_table

    titles = ("job", "task", "queue", "state", f"{NUMBER}attempt", "when", "error")
    rows = (_row(job, now) for job in found)
    print_table(titles, rows, cut=("task", "queue", "error"), going=("attempt", "queue", "error"))


def _row(job: JobRecord, now: datetime) -> tuple[str, ...]:
    from windlass._observe.log import error_in_one_line

    error = "" if job.error is None else error_in_one_line(job.error, limit=60)
    attempt = f"{job.attempt} of {job.max_attempts}"
    return job.id, job.task, job.queue, state_text(job, now), attempt, _when(job, now), error


def state_text(job: JobRecord, now: datetime) -> str:
    """Return the state of a job as people see it."""
    from windlass._core.job.state import shown_state

    spent = job.attempt > job.max_attempts - job.budget
    return shown_state(job.state, due=job.due, now=now, failed_before=spent, blocked=job.blocked)


def _when(job: JobRecord, now: datetime) -> str:
    """Return the time that matters in the job's state: its end, its start or its due time."""
    if job.finished_at is not None:
        return f"ended {_ago(job.finished_at, now)}"
    if job.state.value == "running" and job.started_at is not None:
        return f"started {_ago(job.started_at, now)}"
    if job.blocked:
        return f"since {_ago(job.created_at, now)}"
    return f"due {_ago(job.due, now)}"


def _ago(at: datetime, now: datetime) -> str:
    from windlass._cli.output.tables import left

    return f"in {left(at, now)}" if at > now else f"{left(now, at)} ago"


def _instant(at: datetime, now: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S} UTC, {_ago(at, now)}"


# --- one of them ----------------------------------------------------------------------------------


def print_job(job: JobRecord, history: Sequence[Attempt], now: datetime) -> None:
    """Print everything about one job."""
    from windlass._cli.output.tables import print_pairs

    print_pairs(job.id, [*_head(job, now), *_marks(job), *_body(job), *_past(job, history, now)])


def _head(job: JobRecord, now: datetime) -> Iterator[tuple[str, str]]:
    yield "task", f"{job.task} on queue {job.queue}, priority {job.priority}"
    yield "state", state_text(job, now) + (f": {job.reason}" if job.reason else "")
    yield "attempt", f"{job.attempt} of {job.max_attempts}"
    yield "created", _instant(job.created_at, now)
    if job.blocked:
        yield "due", "after other jobs of its flow"
    else:
        yield "due", _instant(job.due, now)
    if job.flow is not None:
        added = ", added by another job" if job.flow.added else ""
        yield "flow", f"{job.flow.flow}, part {job.flow.part}{added}"
    for name in ("started", "finished", "expires"):
        at = getattr(job, f"{name}_at")
        if at is not None:
            yield name, _instant(at, now)
    if job.worker is not None:
        yield "worker", job.worker
    if job.progress is not None:
        yield "progress", f"{job.progress.fraction:.0%} {job.progress.note}".strip()
        if job.progress.data is not None:
            yield "", json.dumps(job.progress.data, ensure_ascii=False)
    if job.metadata:
        yield "metadata", _facts(job.metadata)
    if job.cancel_requested:
        yield "cancel", "requested"


def _facts(metadata: Metadata) -> str:
    return " ".join(
        f"{name}={json.dumps(value, ensure_ascii=False)}" for name, value in metadata.items()
    )


def _marks(job: JobRecord) -> Iterator[tuple[str, str]]:
    if job.key is not None:
        yield "unique key", f"{job.key} ({'held' if job.key_held else 'released'})"
    for use in job.limits:
        yield "limit", f"{use.gate}, cost {use.cost:g}"
    for name in ("tenant", "principal", "correlation_id", "parent"):
        value = getattr(job, name)
        if value is not None:
            yield name.replace("_", " "), value
    if job.tags:
        yield "tags", ", ".join(job.tags)
    if job.lost:
        alone = ", runs alone" if job.solo else ""
        yield "lost", f"{job.lost:,} in a row{alone}"
    if job.on_lost == "fail":
        yield "if lost", "fails at once"
    if job.throttled:
        yield "throttled", f"{job.throttled:,}"
    if job.missed_at is not None:
        yield "not run", job.missed_why or "a worker could not run it"


def _body(job: JobRecord) -> Iterator[tuple[str, str]]:
    yield "arguments", job.payload.decode(errors="replace")
    if job.result is not None:
        yield "result", job.result.decode(errors="replace")


def _past(job: JobRecord, history: Sequence[Attempt], now: datetime) -> Iterator[tuple[str, str]]:
    from windlass._cli.output.tables import left
    from windlass._observe.log import error_in_one_line

    for ended in history:
        error = "" if ended.error is None else f": {error_in_one_line(ended.error)}"
        ran = left(ended.ended_at, ended.started_at)
        began = _instant(ended.started_at, now)
        what = f"attempt {ended.attempt}, ran {ran} on worker {ended.worker}, then {ended.verb}"
        yield f"claim {ended.claim_number}", f"{began}, {what}{error}"
        if ended.metadata:
            yield "", _facts(ended.metadata)
    if job.error is None:
        return
    name = "last error"
    for text in (f"{job.error.kind}: {job.error.message}", job.error.traceback):
        for line in text.expandtabs(4).splitlines():
            yield name, line  # one cell each: no line can break out of its cell
            name = ""


# --- why ------------------------------------------------------------------------------------------


def print_explanation(told: Explanation, where: Target, *, as_json: bool) -> None:
    """Print the causes. Commands in them name the app or storage of this command."""
    from windlass._admin.explain.cause import with_target
    from windlass._cli.output.tables import print_json, print_pairs

    job = told.job
    if as_json:
        import msgspec

        print_json(
            {
                "id": job.id,
                "task": job.task,
                "queue": job.queue,
                "state": told.state,
                "at": told.at,
                "expected_at": told.expected_at,
                "causes": [msgspec.structs.asdict(cause) for cause in told.causes],
            }
        )
        return
    pairs = [("task", f"{job.task} on queue {job.queue}"), ("state", told.state)]
    for number, cause in enumerate(told.causes):
        pairs.append(("why" if number == 0 else "also", cause.sentence))
        if cause.fix:
            pairs.append(("", f"→ {with_target(cause.fix, where.target, where.url)}"))
    if told.expected_at is not None:
        pairs.append(("expected", _instant(told.expected_at, told.at)))
    elif job.state.value == "waiting":
        pairs.append(("expected", "unknown"))
    print_pairs(job.id, pairs)


# --- actions --------------------------------------------------------------------------------------


def print_action_results(
    answers: Sequence[ShownActionResult], where: Target, *, as_json: bool
) -> int:
    """Print each result. Return the exit code: 0 if all actions were carried out."""
    from windlass._admin.explain.cause import with_target
    from windlass._cli.output.tables import print_json
    from windlass._observe.log import printable

    if as_json:
        print_json(
            [
                {"id": one.job, "done": one.done, "problem": None if one.done else one.said}
                for one in answers
            ]
        )
    else:
        for one in answers:
            said = printable(with_target(one.said, where.target, where.url))
            click.echo(said if one.done else f"Error: {said}", err=not one.done)
    return IN_ORDER if all(one.done for one in answers) else COULD_NOT_START


# --- for machines ---------------------------------------------------------------------------------

_PLAIN = (
    "id",
    "seq",
    "task",
    "queue",
    "priority",
    "created_at",
    "due",
    "attempt",
    "max_attempts",
    "started_at",
    "finished_at",
    "expires_at",
    "worker",
    "reason",
    "cancel_requested",
    "key",
    "key_held",
    "lost",
    "solo",
    "missed_at",
    "missed_why",
    "throttled",
    "tags",
    "tenant",
    "principal",
    "correlation_id",
    "parent",
)


def fields(job: JobRecord, now: datetime) -> dict[str, Any]:
    """Return the fields of a job in a list, without large ones. Never rename them."""
    found: dict[str, Any] = {name: getattr(job, name) for name in _PLAIN}
    found["state"] = state_text(job, now)
    found["timeout"] = None if job.timeout is None else job.timeout.total_seconds()
    found["limits"] = [{"name": use.name, "key": use.key, "cost": use.cost} for use in job.limits]
    progress = job.progress
    said = ("fraction", "note", "data")
    found["metadata"] = job.metadata
    found["progress"] = progress and {name: getattr(progress, name) for name in said}
    error = job.error
    found["error"] = None if error is None else {"kind": error.kind, "message": error.message}
    return found


def all_fields(job: JobRecord, history: Sequence[Attempt], now: datetime) -> dict[str, Any]:
    """Return all fields of a job: also arguments, result, traceback and history."""
    return {
        **fields(job, now),
        "traceback": None if job.error is None else job.error.traceback,
        "arguments": json_of(job.payload),
        "result": None if job.result is None else json_of(job.result),
        "history": [_attempt(ended) for ended in history],
    }


def json_of(stored: bytes) -> Any:
    """Return stored JSON unchanged. A damaged record must not damage the whole answer."""
    import msgspec

    try:
        msgspec.json.decode(stored)
        return msgspec.Raw(msgspec.json.format(stored, indent=-1))
    except (msgspec.DecodeError, RecursionError):
        return {"damaged": stored.decode(errors="replace")}


def _attempt(ended: Attempt) -> dict[str, Any]:
    error = ended.error
    return {
        "claim_number": ended.claim_number,
        "attempt": ended.attempt,
        "verb": str(ended.verb),
        "worker": ended.worker,
        "started_at": ended.started_at,
        "ended_at": ended.ended_at,
        "metadata": ended.metadata,
        "error": None
        if error is None
        else {"kind": error.kind, "message": error.message, "traceback": error.traceback},
    }
