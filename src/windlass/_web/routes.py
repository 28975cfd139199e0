"""Every address of the dashboard, who may use it, and what answers. The tests walk this table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

import msgspec
from starlette.responses import Response

from windlass._web.api.endpoints import ENDPOINTS
from windlass._web.api.openapi import openapi
from windlass._web.live import stream
from windlass._web.live.changes import ReadLiveItem, ReadLiveState
from windlass._web.pages import (
    audit,
    errors,
    events,
    hosts,
    login,
    plugins,
    storage,
    tasks,
    workers,
)
from windlass._web.pages.flows import flow_list, flow_page
from windlass._web.pages.jobs import job_actions, job_list, job_page
from windlass._web.pages.limits import limit_change, limit_list
from windlass._web.pages.overview import overview
from windlass._web.pages.queues import queue_list, queue_page
from windlass._web.pages.schedules import schedule_edit, schedule_list, schedule_page
from windlass._web.request import MAX_BODY_BYTES, PageRequest
from windlass._web.security.roles import Role

__all__ = ["LOOKS", "LOOKS_AT", "ROUTES", "PageRoute"]


class PageRoute(msgspec.Struct, frozen=True):
    """One line of the table."""

    path: str
    page: Callable[[PageRequest], Awaitable[Response]]
    role: Role | None = Role.VIEWER
    """The least role that may use it. None: anybody, also anonymous clients."""
    methods: tuple[str, ...] = ("GET",)
    answers: Literal["page", "json", "stream", "file"] = "page"
    """How it says that something is wrong. Only pages may be opened from another site."""
    heavy: tuple[str, ...] = ()
    """Methods by which it counts, searches or sums up: few of these are answered at a time."""
    paced: bool = True
    """Whether requests here count as actions, which are rate limited."""
    most_bytes: int = MAX_BODY_BYTES
    """Of what is sent here."""


_BOTH = ("GET", "POST")
"""GET asks, POST does."""
_READ = ("GET",)
_SMALL = 8 * 1024
"""Bytes of a form with a few short fields. Anonymous clients may send it, a thousand at the same
time.
"""

ROUTES: tuple[PageRoute, ...] = (
    # --- for anybody: how to come in, and files that hold no secret ---
    PageRoute("/login", login.login, role=None, methods=("POST",), most_bytes=_SMALL),
    PageRoute("/enter", login.login_by_link, role=None),
    PageRoute("/assets/{name}", stream.asset, role=None, answers="file"),
    # --- for everybody who was let in ---
    PageRoute("/", login.home),
    PageRoute("/logout", login.logout, methods=("POST",), paced=False, most_bytes=_SMALL),
    PageRoute("/live", stream.live, answers="stream"),
    PageRoute("/overview", overview.overview, heavy=_READ),
    PageRoute("/jobs", job_list.jobs, heavy=_READ),
    PageRoute("/flows", flow_list.flows, heavy=_READ),
    PageRoute("/errors", errors.errors, heavy=_READ),
    PageRoute("/tasks", tasks.tasks, heavy=_READ),
    PageRoute("/queues", queue_list.queues, heavy=_READ),
    PageRoute("/queues/one", queue_page.queue, heavy=_READ),
    PageRoute("/schedules", schedule_list.schedules, heavy=_READ),
    PageRoute("/schedules/one", schedule_page.schedule, heavy=_READ),
    PageRoute("/workers", workers.workers),
    PageRoute("/workers/one", workers.worker, heavy=_READ),
    PageRoute("/hosts", hosts.hosts, heavy=_READ),
    PageRoute("/limits", limit_list.limits, heavy=_READ),
    PageRoute("/limits/holders", limit_change.holders, heavy=_READ),
    PageRoute("/events", events.events, heavy=_READ),
    PageRoute("/audit", audit.audit),
    PageRoute("/storage", storage.storage, heavy=_READ),
    PageRoute("/plugins", plugins.plugins),
    # --- orders ---
    PageRoute("/jobs/requeue", job_actions.REQUEUE, Role.OPERATOR, _BOTH, heavy=_READ),
    PageRoute("/jobs/discard", job_actions.DISCARD, Role.OPERATOR, _BOTH, heavy=_READ),
    PageRoute("/jobs/cancel", job_actions.CANCEL, Role.OPERATOR, _BOTH, heavy=_READ),
    PageRoute("/jobs/run-now", job_actions.RUN_NOW, Role.OPERATOR, _BOTH, heavy=_READ),
    PageRoute("/jobs/delete", job_actions.DELETE, Role.OPERATOR, _BOTH, heavy=_READ),
    PageRoute("/jobs/edit", job_actions.EDIT, Role.OPERATOR, _BOTH, heavy=_READ),
    PageRoute("/jobs/copy", job_actions.COPY, Role.OPERATOR, _BOTH),
    PageRoute("/flows/cancel", flow_page.CANCEL, Role.OPERATOR, _BOTH),
    PageRoute("/flows/retry", flow_page.RETRY, Role.OPERATOR, _BOTH),
    PageRoute("/flows/recount", flow_page.RECOUNT, Role.OPERATOR, _BOTH),
    PageRoute("/errors/requeue", errors.REQUEUE, Role.OPERATOR, _BOTH, heavy=_READ),
    PageRoute("/errors/discard", errors.DISCARD, Role.OPERATOR, _BOTH, heavy=_READ),
    PageRoute("/queues/pause", queue_list.PAUSE, Role.OPERATOR, _BOTH),
    PageRoute("/queues/resume", queue_list.RESUME, Role.OPERATOR, _BOTH),
    PageRoute("/queues/warm", queue_list.WARM, Role.OPERATOR, _BOTH),
    PageRoute("/queues/settings", queue_page.SETTINGS, Role.ADMIN, _BOTH),
    PageRoute("/workers/quiet", workers.QUIET, Role.OPERATOR, _BOTH),
    PageRoute("/workers/resume", workers.RESUME, Role.OPERATOR, _BOTH),
    PageRoute("/workers/stop", workers.STOP, Role.OPERATOR, _BOTH),
    PageRoute("/workers/sweep", workers.SWEEP, Role.OPERATOR, _BOTH),
    PageRoute("/schedules/run", schedule_list.RUN, Role.OPERATOR, _BOTH),
    PageRoute("/schedules/pause", schedule_list.PAUSE, Role.OPERATOR, _BOTH),
    PageRoute("/schedules/resume", schedule_list.RESUME, Role.OPERATOR, _BOTH),
    PageRoute("/schedules/pause-all", schedule_list.PAUSE_ALL, Role.OPERATOR, _BOTH),
    PageRoute("/schedules/resume-all", schedule_list.RESUME_ALL, Role.OPERATOR, _BOTH),
    PageRoute("/schedules/reset", schedule_list.RESET, Role.ADMIN, _BOTH),
    PageRoute("/schedules/remove", schedule_list.REMOVE, Role.ADMIN, _BOTH),
    PageRoute("/schedules/forget", schedule_list.FORGET, Role.ADMIN, _BOTH),
    PageRoute("/schedules/edit", schedule_edit.edit, Role.ADMIN, _BOTH),
    PageRoute("/limits/fill", limit_list.FILL, Role.OPERATOR, _BOTH),
    PageRoute("/limits/empty", limit_list.EMPTY, Role.OPERATOR, _BOTH),
    PageRoute("/limits/set", limit_change.SET_LIMIT, Role.ADMIN, _BOTH),
    PageRoute("/breakers/close", limit_list.CLOSE, Role.OPERATOR, _BOTH),
    PageRoute("/breakers/set", limit_change.SET_BREAKER, Role.ADMIN, _BOTH),
    PageRoute("/storage/checks", storage.checks, Role.OPERATOR, _BOTH, heavy=("POST",)),
    # --- one flow or job, whose id is none of the words above ---
    PageRoute("/flows/{flow}", flow_page.flow, heavy=_READ),
    PageRoute("/flows/{flow}/parts/{part}", flow_page.part, heavy=_READ),
    PageRoute("/jobs/{job}", job_page.job, heavy=_READ),
    PageRoute("/jobs/{job}/arguments.json", job_page.arguments, Role.OPERATOR, answers="json"),
    PageRoute("/jobs/{job}/result.json", job_page.result, Role.OPERATOR, answers="json"),
    # --- for machines: a table of their own, which OpenAPI reads, too ---
    PageRoute("/api/openapi.json", openapi, answers="json"),
    *(
        PageRoute(
            line.address,
            line,
            line.role,
            (line.method,),
            answers="json",
            heavy=(line.method,) if line.heavy else (),
        )
        for line in ENDPOINTS
    ),
)

LOOKS: Mapping[str, ReadLiveState] = {
    "queues": queue_list.read_live_state,
    "workers": workers.read_live_state,
    "limits": limit_list.read_live_state,
    "errors": errors.read_live_state,
    "schedules": schedule_list.read_live_state,
    "tasks": tasks.read_live_state,
    "events": events.read_live_state,
    "audit": audit.read_live_state,
    "overview": overview.read_live_state,
    "jobs": overview.read_live_jobs,
    "flows": flow_list.read_live_state,
    "minutes": overview.read_live_minutes,
}
"""The parts that pages show live: what to compare, to know that one has changed."""

LOOKS_AT: Mapping[str, ReadLiveItem] = {
    "flow": flow_page.read_live_item,
    "job": job_page.read_live_item,
}
"""The same for parts of one thing of many, such as ``job-`` and its id."""
