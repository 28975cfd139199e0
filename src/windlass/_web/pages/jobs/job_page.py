"""One job: what became of it, why, and what it has to do with others."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

from windlass._admin.explain.flows import ended_by_flow
from windlass._admin.jobs.read import Count
from windlass._core.job.error_origin import frame_of
from windlass._core.job.job import AttemptError, JobId, JobRecord
from windlass._core.job.state import TERMINAL, State
from windlass._core.stats.rollup import count_runs
from windlass._core.values.redaction import secret_tags_in
from windlass._core.values.trace_context import shown_trace
from windlass._storage.protocol.journal import LogChunk
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._web.jobs import resolve_job
from windlass._web.pages.flows.flow_page import place_of
from windlass._web.pages.flows.pending_results import name_pending_results
from windlass._web.pages.jobs.causes import shown_causes_of
from windlass._web.pages.jobs.job_list import JobListRow, job_rows
from windlass._web.pages.jobs.timeline import timeline_of
from windlass._web.request import PageRequest
from windlass.errors import JobNotFound

if TYPE_CHECKING:
    from windlass.admin import Admin

__all__ = [
    "LogRun",
    "ShortenedText",
    "arguments",
    "format_json",
    "job",
    "log_runs",
    "read_live_item",
    "result",
    "shorten",
]

_CHILDREN = 10
_COUNTED_WITHIN = 0.15
"""Seconds for each state of the children of a job that has many."""
_DAY = timedelta(days=1)
_STEP = timedelta(minutes=30)
_TRACE = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")

_MOST = 16_384
_LINES = 500
_LOG = 100_000
"""Characters of all runs together: a job that is tried for ever logs for ever."""
_AROUND = 100
"""Characters that the page says of a line beside its text."""


class ShortenedText(msgspec.Struct, frozen=True):
    """A text, or its beginning."""

    text: str
    size: int
    """Of the whole, in bytes."""
    cut: bool


class LogLineView(msgspec.Struct, frozen=True):
    """One line of a log."""

    at: datetime
    level: str
    text: str


class LogRun(msgspec.Struct, frozen=True):
    """The log lines of one claim."""

    claim_number: int
    lines: Sequence[LogLineView]
    left_out: int
    """Lines before these that are not shown."""


def format_json(stored: bytes) -> ShortenedText:
    """Return stored JSON with a line for each part; invalid JSON as it is."""
    if len(stored) > 4 * _MOST:  # not worth reading whole, for its beginning
        return shorten(stored[:_MOST].decode("utf-8", "replace"), len(stored))
    try:
        return shorten(msgspec.json.format(stored, indent=2).decode(), len(stored))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return shorten(stored.decode("utf-8", "replace"), len(stored))


def shorten(text: str, size: int | None = None) -> ShortenedText:
    """Return no more of a text than fits on a page. ``size``: of the whole, if this is a part of
    it.
    """
    whole = len(text.encode(errors="replace")) if size is None else size
    cut = len(text) > _MOST or whole > 4 * _MOST
    return ShortenedText(f"{text[:_MOST]}…" if cut else text, whole, cut)


def log_runs(chunks: Sequence[LogChunk]) -> list[LogRun]:
    """Return the lines of each claim, the newest claim first, its last lines only where there are
    many. Where that is too much for a page, the oldest claims are left out.
    """
    runs: dict[int, list[LogLineView]] = {}
    for chunk in chunks:
        runs.setdefault(chunk.claim.number, []).extend(
            LogLineView(line.at, logging.getLevelName(line.level).lower(), line.text)
            for line in chunk.lines
        )
    shown: list[LogRun] = []
    room = _LOG
    for number, lines in sorted(runs.items(), reverse=True):
        kept: list[LogLineView] = []
        for line in reversed(lines[-_LINES:]):
            room -= len(line.text) + _AROUND
            if room < 0 and (shown or kept):
                break
            kept.insert(0, msgspec.structs.replace(line, text=line.text[:_MOST]))
        if not kept:
            break
        shown.append(LogRun(number, kept, len(lines) - len(kept)))
    return shown


class LastError(msgspec.Struct, frozen=True):
    """The last error, and which other jobs have the same."""

    error: AttemptError
    traceback: ShortenedText
    frame: str


class RelatedJobs(msgspec.Struct, frozen=True):
    """Other jobs that have to do with this one. Asked once: not when a part is fetched again."""

    parent: JobRecord | None
    children: Sequence[JobListRow]
    more: bool
    states: Mapping[str, Count]
    """How many jobs that it enqueued are in which state, where there are any."""
    spark: Sequence[int]
    ran: int
    failed: int


def _beside_note(job: JobRecord) -> str:
    """Return the run's progress apart from the note."""
    progress = job.progress
    if progress is None or not progress.data:
        return ""
    return msgspec.json.encode(progress.data).decode()


async def job(visit: PageRequest) -> Response:
    """Return the page."""
    admin, job_id = visit.admin, await resolve_job(visit)
    if visit.request.path_params["job"] != job_id:
        return visit.go(f"/jobs/{job_id}")
    told = await admin.jobs.explain(job_id)
    found, now = told.job, told.at
    history, logs = await admin.jobs.history(job_id), await admin.jobs.logs(job_id)
    runs, place = log_runs(logs), await place_of(admin, found)
    return await visit.render(
        "job.html",
        now=now,
        row=JobListRow(found, now),
        job=found,
        explanation=told,
        causes=shown_causes_of(visit, found.id, told.causes),
        line=(line := timeline_of(found, history, now)),
        noted=[one for one in line if one.metadata],
        runs=runs,
        older_runs=len({chunk.claim.number for chunk in logs}) - len(runs),
        arguments=format_json(name_pending_results(found.payload, place)),
        progress_data=_beside_note(found),
        result=None if found.result is None else format_json(found.result),
        fault=_fault(found),
        kin=None if visit.partial else await _kin(admin, found, now),
        tags=[tag for tag in found.tags if tag not in secret_tags_in(found.tags)],
        trace=_trace_id(found.trace),
        place=place,
        verbs=_verbs(found, now),
    )


async def read_live_item(admin: Admin, job_id: str) -> object:
    """Return the job itself, with how far it is, and how much it has logged."""
    try:
        found = await admin.jobs.get(job_id)
    except JobNotFound:
        return None
    logged = [(chunk.claim.number, chunk.number) for chunk in await admin.jobs.logs(job_id)]
    # The reason for its wait is elsewhere and may end at any time: then its page reads again.
    waits = await admin.storage.now() if found.state is State.WAITING else None
    return found, logged, waits


async def arguments(visit: PageRequest) -> Response:
    """Return all arguments as a file; without secrets, as everywhere."""
    found = await visit.admin.jobs.get(await resolve_job(visit))
    return _file(found.payload, f"windlass-{found.id}-arguments.json")


async def result(visit: PageRequest) -> Response:
    """Return the whole result, as a file; ``null`` where there is none."""
    found = await visit.admin.jobs.get(await resolve_job(visit))
    return _file(found.result or b"null", f"windlass-{found.id}-result.json")


def _file(content: bytes, name: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type="application/json", headers=headers)


def _fault(found: JobRecord) -> LastError | None:
    if found.error is None:
        return None
    error = found.error
    return LastError(error, shorten(error.traceback), frame_of(error.traceback))


def _trace_id(trace: str | None) -> str | None:
    """Return the id that tracing tools search by, out of what W3C calls traceparent."""
    found = _TRACE.search(trace or "")
    return found[1] if found else shown_trace(trace)


async def _kin(admin: Admin, found: JobRecord, now: datetime) -> RelatedJobs:
    children = await admin.jobs.find(JobFilter(parent=found.id), limit=_CHILDREN)
    series = await admin.stats.series(now - _DAY, now, step=_STEP, task=found.task)
    more = children.next is not None and len(children) == _CHILDREN
    return RelatedJobs(
        parent=await _parent(admin, found.parent),
        children=job_rows(children, now),
        more=more,
        states=await _children(admin, found.id) if more else _states(children),
        spark=[count_runs(point.counts) for point in series.points],
        ran=count_runs(series.whole.counts),
        failed=series.whole.counts.get("fail", 0),
    )


def _states(children: Sequence[JobRecord]) -> Mapping[str, Count]:
    found = Counter(child.state for child in children)
    return {state.value: Count(found[state], exact=True) for state in State if found[state]}


async def _children(admin: Admin, parent: JobId) -> Mapping[str, Count]:
    """Return the same of more than are shown. Counting reads them: each state has its time."""
    counts = {
        state.value: await admin.jobs.count(
            JobFilter(parent=parent, states=[state]), within=_COUNTED_WITHIN
        )
        for state in State
    }
    return {state: count for state, count in counts.items() if count.number}


async def _parent(admin: Admin, parent: JobId | None) -> JobRecord | None:
    if parent is None:
        return None
    try:
        return await admin.jobs.get(parent)
    except JobNotFound:
        return None  # it was pruned or deleted; its id is shown all the same


def _verbs(found: JobRecord, now: datetime) -> list[tuple[str, str, dict[str, Any]]]:
    """Return the actions that are possible in its state."""
    state, wanted = found.state, []
    by_flow = ended_by_flow(found)  # it runs again with its flow, or with the job that failed
    if state in {State.FAILED, State.CANCELLED, State.DISCARDED} and not by_flow:
        wanted.append(("Requeue", "requeue"))
    if state is State.FAILED:
        wanted.append(("Discard", "discard"))
    if state is State.WAITING and found.due > now and not found.blocked:
        wanted.append(("Run now", "run-now"))
    if state is State.WAITING:
        wanted.append(("Edit", "edit"))
    if state in {State.WAITING, State.RUNNING}:
        wanted.append(("Cancel", "cancel"))
    if state in TERMINAL:
        wanted.append(("Run again", "copy"))
    if state in TERMINAL and found.flow is None:  # a flow is deleted as a whole
        wanted.append(("Delete", "delete"))
    return [(title, f"/jobs/{verb}", {"job": found.id, "from": "job"}) for title, verb in wanted]
