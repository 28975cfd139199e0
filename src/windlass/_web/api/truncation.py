"""Lists whose answers stay small: what is long in a line is shortened, and a page ends in time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from windlass._admin.schedules import ScheduleReport
from windlass._core.job.job import Attempt, AttemptError, JobRecord
from windlass._web.api.endpoint import Part
from windlass._web.api.filters import Size
from windlass._web.api.records import JobBody, ScheduleBody, job_body, schedule_body
from windlass._web.security.cost_limits import ANSWER, PREVIEW, ROWS

__all__ = [
    "Names",
    "attempt_lines",
    "brief_text",
    "fit_answer",
    "job_line",
    "page_by_name",
    "schedule_line",
]

Line = TypeVar("Line")
_TRACEBACKS = (64 * 1024, 16 * 1024, PREVIEW, 512)
"""Characters of a traceback in the history of a job."""


# --- parts of lists -------------------------------------------------------------------------------


class Names(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which part of a list that is ordered by name."""

    after: Annotated[
        str | None,
        Meta(description="The last name of the part before; the header `Link` has the address."),
    ] = None
    size: Size = ROWS


def page_by_name(
    things: Iterable[Line],
    asked: Names,
    *,
    name: Callable[[Line], str],
    line: Callable[[Line], Any] = lambda thing: thing,
) -> Part:
    """Return a part of a list by name. ``line`` formats one item."""
    ordered = sorted(things, key=name)
    ahead = [one for one in ordered if asked.after is None or name(one) > asked.after]
    lines = fit_answer(line(one) for one in ahead[: asked.size])
    return Part(lines, name(ahead[len(lines) - 1]) if len(lines) < len(ahead) else None)


def fit_answer(lines: Iterable[Line], room: int = ANSWER) -> list[Line]:
    """Return as many lines as one answer holds; at least one, so that a client that continues comes
    to an end.
    """
    taken: list[Line] = []
    for line in lines:
        room -= _size(line)
        if taken and room < 0:
            break
        taken.append(line)
    return taken


def _size(told: Any) -> int:
    try:
        return len(msgspec.json.encode(told)) + 1
    except UnicodeEncodeError:  # half a character: it is written out
        return 2 * len(repr(told))


# --- lines ----------------------------------------------------------------------------------------


def job_line(job: JobRecord, now: datetime) -> JobBody:
    """Return a job in a list."""
    cut: list[Literal["arguments", "result", "error"]] = []
    changed: dict[str, Any] = {}
    result = job.result
    if len(job.payload) > PREVIEW:
        cut.append("arguments")
        changed["arguments"] = _beginning(job.payload)
        job = msgspec.structs.replace(job, payload=b"null")
    if result is not None and len(result) > PREVIEW:
        cut.append("result")
        changed["result"] = _beginning(result)
        job = msgspec.structs.replace(job, result=None)
    if job.error is not None and _is_long(job.error):
        cut.append("error")
        changed["error"] = _shortened(job.error, PREVIEW)
    body = job_body(job, now)
    return msgspec.structs.replace(body, shortened=cut, **changed) if cut else body


def attempt_lines(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the attempts of one job, of which there are some thirty: as much of each as there is
    room.
    """
    lines: list[Attempt] = []
    for most in _TRACEBACKS:
        lines = [_attempt_line(attempt, most) for attempt in attempts]
        if _size(lines) <= ANSWER:
            break
    return lines


def _attempt_line(attempt: Attempt, most: int) -> Attempt:
    if attempt.error is None:
        return attempt
    return msgspec.structs.replace(attempt, error=_shortened(attempt.error, most))


def schedule_line(report: ScheduleReport) -> ScheduleBody:
    """Return a schedule in a list."""
    job = None if report.plan is None else report.plan.job
    body = schedule_body(report)
    cut: list[Literal["arguments", "changed"]] = []
    short: dict[str, Any] = {}
    if job is not None and len(job.payload) > PREVIEW:
        cut.append("arguments")
        short["arguments"] = _beginning(job.payload)
    changed = {
        what: (brief_text(before), brief_text(after))
        for what, (before, after) in body.changed.items()
    }
    if changed != body.changed:
        cut.append("changed")
        short["changed"] = changed
    return msgspec.structs.replace(body, shortened=cut, **short) if cut else body


def brief_text(text: str, most: int = PREVIEW) -> str:
    """Return the beginning of a long text."""
    return text if len(text) <= most else f"{text[:most]}…"


def _beginning(stored: bytes) -> str:
    return stored[:PREVIEW].decode("utf-8", "ignore") + "…"


def _is_long(error: AttemptError) -> bool:
    return max(len(error.message), len(error.traceback)) > PREVIEW


def _shortened(error: AttemptError, most: int) -> AttemptError:
    """Shorten an error; of a traceback keep the end, which says where it was raised."""
    told = error.traceback
    told = told if len(told) <= most else f"…{told[-most:]}"
    return AttemptError(error.kind, brief_text(error.message, min(most, PREVIEW)), told)
