"""One job: what became of it, why, and what it has to do with others."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.responses import Response

from windlass.admin.jobs import Count
from windlass.core.fault import frame_of
from windlass.core.job import AttemptError, Job, JobId
from windlass.core.redact import marks_in
from windlass.core.state import TERMINAL, State
from windlass.core.trace import shown_trace
from windlass.errors import JobNotFound
from windlass.storage.protocol import JobFilter
from windlass.web.naming import asked_job
from windlass.web.pages.job_causes import told_of
from windlass.web.pages.job_texts import Shortened, log_runs, pretty, shortened
from windlass.web.pages.job_timeline import stretches
from windlass.web.pages.jobs import JobRow, job_rows
from windlass.web.visit import Visit

if TYPE_CHECKING:
    from windlass.admin import Admin

__all__ = ["arguments", "job", "look_at", "result"]

_CHILDREN = 10
_COUNTED_WITHIN = 0.15
"""Seconds for each state of the children of a job that has many."""
_DAY = timedelta(days=1)
_STEP = timedelta(minutes=30)
_TRACE = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


class Fault(msgspec.Struct, frozen=True):
    """The last error, and which other jobs have the same."""

    error: AttemptError
    traceback: Shortened
    frame: str


class Kin(msgspec.Struct, frozen=True):
    """Other jobs that have to do with this one. Asked once: not when a part is fetched again."""

    parent: Job | None
    children: Sequence[JobRow]
    more: bool
    states: Mapping[str, Count]
    """How many jobs that it enqueued are in which state, where there are any."""
    spark: Sequence[int]
    ran: int
    failed: int


def _beside_note(job: Job) -> str:
    """What its run says of its progress beside the note."""
    progress = job.progress
    if progress is None or not progress.data:
        return ""
    return msgspec.json.encode(progress.data).decode()


async def job(visit: Visit) -> Response:
    """The page."""
    admin, job_id = visit.admin, await asked_job(visit)
    if visit.request.path_params["job"] != job_id:
        return visit.go(f"/jobs/{job_id}")
    told = await admin.explain(job_id)
    found, now = told.job, told.at
    history, logs = await admin.history(job_id), await admin.logs(job_id)
    runs = log_runs(logs)
    return await visit.render(
        "job.html",
        now=now,
        row=JobRow(found, now),
        job=found,
        explanation=told,
        causes=told_of(visit, found.id, told.causes),
        line=stretches(found, history, now),
        runs=runs,
        older_runs=len({chunk.claim.number for chunk in logs}) - len(runs),
        arguments=pretty(found.payload),
        progress_data=_beside_note(found),
        result=None if found.result is None else pretty(found.result),
        fault=_fault(found),
        kin=None if visit.partial else await _kin(admin, found, now),
        tags=[tag for tag in found.tags if tag not in marks_in(found.tags)],
        trace=_trace_id(found.trace),
        verbs=_verbs(found, now),
    )


async def look_at(admin: Admin, job_id: str) -> object:
    """The job itself, with how far it is, and how much it has logged."""
    try:
        found = await admin.get(job_id)
    except JobNotFound:
        return None
    logged = [(chunk.claim.number, chunk.number) for chunk in await admin.logs(job_id)]
    # What keeps it waiting lies elsewhere and may end at any time: then its page looks again.
    waits = await admin.now() if found.state is State.WAITING else None
    return found, logged, waits


async def arguments(visit: Visit) -> Response:
    """All of them, as a file; without secrets, as everywhere."""
    found = await visit.admin.get(await asked_job(visit))
    return _file(found.payload, f"windlass-{found.id}-arguments.json")


async def result(visit: Visit) -> Response:
    """The whole result, as a file; ``null`` where there is none."""
    found = await visit.admin.get(await asked_job(visit))
    return _file(found.result or b"null", f"windlass-{found.id}-result.json")


def _file(content: bytes, name: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(content, media_type="application/json", headers=headers)


def _fault(found: Job) -> Fault | None:
    if found.error is None:
        return None
    error = found.error
    return Fault(error, shortened(error.traceback), frame_of(error.traceback))


def _trace_id(trace: str | None) -> str | None:
    """The id that tracing tools search by, out of what W3C calls traceparent."""
    found = _TRACE.search(trace or "")
    return found[1] if found else shown_trace(trace)


async def _kin(admin: Admin, found: Job, now: datetime) -> Kin:
    children = await admin.find(JobFilter(parent=found.id), limit=_CHILDREN)
    series = await admin.series(now - _DAY, now, step=_STEP, task=found.task)
    more = children.next is not None and len(children) == _CHILDREN
    return Kin(
        parent=await _parent(admin, found.parent),
        children=job_rows(children, now),
        more=more,
        states=await _children(admin, found.id) if more else _states(children),
        spark=[sum(point.counts.values()) for point in series.points],
        ran=sum(series.whole.counts.values()),
        failed=series.whole.counts.get("fail", 0),
    )


def _states(children: Sequence[Job]) -> Mapping[str, Count]:
    found = Counter(child.state for child in children)
    return {state.value: Count(found[state], exact=True) for state in State if found[state]}


async def _children(admin: Admin, parent: JobId) -> Mapping[str, Count]:
    """The same of more than are shown. Counting reads them: each state has its time."""
    counts = {
        state.value: await admin.count(
            JobFilter(parent=parent, states=[state]), within=_COUNTED_WITHIN
        )
        for state in State
    }
    return {state: count for state, count in counts.items() if count.number}


async def _parent(admin: Admin, parent: JobId | None) -> Job | None:
    if parent is None:
        return None
    try:
        return await admin.get(parent)
    except JobNotFound:
        return None  # it was pruned or deleted; its id is shown all the same


def _verbs(found: Job, now: datetime) -> list[tuple[str, str, dict[str, Any]]]:
    """What can be ordered of it as it is."""
    state, wanted = found.state, []
    if state in {State.FAILED, State.CANCELLED, State.DISCARDED}:
        wanted.append(("Requeue", "requeue"))
    if state is State.FAILED:
        wanted.append(("Discard", "discard"))
    if state is State.WAITING and found.due > now:
        wanted.append(("Run now", "run-now"))
    if state is State.WAITING:
        wanted.append(("Edit", "edit"))
    if state in {State.WAITING, State.RUNNING}:
        wanted.append(("Cancel", "cancel"))
    if state in TERMINAL:
        wanted += [("Run a copy", "copy"), ("Delete", "delete")]
    return [(title, f"/jobs/{verb}", {"job": found.id, "from": "job"}) for title, verb in wanted]
