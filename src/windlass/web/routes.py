"""Every address of the dashboard, who may use it, and what answers. The tests walk this table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

import msgspec
from starlette.responses import Response

from windlass.web.api.openapi import openapi
from windlass.web.api.table import ENDPOINTS
from windlass.web.live import Look, LookAt
from windlass.web.pages import (
    audit,
    entrance,
    errors,
    job,
    jobs,
    jobs_orders,
    limits,
    limits_change,
    overview,
    plugins,
    queue,
    queues,
    schedule,
    schedule_edit,
    schedules,
    storage,
    streams,
    workers,
)
from windlass.web.people import Role
from windlass.web.visit import MOST_BYTES, Visit

__all__ = ["LOOKS", "LOOKS_AT", "ROUTES", "PageRoute"]


class PageRoute(msgspec.Struct, frozen=True):
    """One line of the table."""

    path: str
    page: Callable[[Visit], Awaitable[Response]]
    role: Role | None = Role.VIEWER
    """Who may use it, at least. None: anybody, also strangers."""
    methods: tuple[str, ...] = ("GET",)
    answers: Literal["page", "json", "stream", "file"] = "page"
    """How it says that something is wrong. Only pages may be opened from another site."""
    heavy: tuple[str, ...] = ()
    """Methods by which it counts, searches or sums up: few of these are answered at a time."""
    paced: bool = True
    """Whether what is sent here counts as an order, of which there may be so many a second."""
    most_bytes: int = MOST_BYTES
    """Of what is sent here."""


_BOTH = ("GET", "POST")
"""GET asks, POST does."""
_READ = ("GET",)
_SMALL = 8 * 1024
"""Bytes of a form with a few short fields. Strangers may send it, a thousand at the same time."""

ROUTES: tuple[PageRoute, ...] = (
    # --- for anybody: how to come in, and files that hold no secret ---
    PageRoute("/login", entrance.login, role=None, methods=("POST",), most_bytes=_SMALL),
    PageRoute("/enter", entrance.enter, role=None),
    PageRoute("/assets/{name}", streams.asset, role=None, answers="file"),
    # --- for everybody who was let in ---
    PageRoute("/", entrance.home),
    PageRoute("/logout", entrance.logout, methods=("POST",), paced=False, most_bytes=_SMALL),
    PageRoute("/live", streams.live, answers="stream"),
    PageRoute("/overview", overview.overview, heavy=_READ),
    PageRoute("/jobs", jobs.jobs, heavy=_READ),
    PageRoute("/errors", errors.errors, heavy=_READ),
    PageRoute("/queues", queues.queues, heavy=_READ),
    PageRoute("/queues/one", queue.queue, heavy=_READ),
    PageRoute("/schedules", schedules.schedules, heavy=_READ),
    PageRoute("/schedules/one", schedule.schedule, heavy=_READ),
    PageRoute("/workers", workers.workers),
    PageRoute("/workers/one", workers.worker, heavy=_READ),
    PageRoute("/limits", limits.limits, heavy=_READ),
    PageRoute("/limits/holders", limits_change.holders, heavy=_READ),
    PageRoute("/audit", audit.audit),
    PageRoute("/storage", storage.storage),
    PageRoute("/plugins", plugins.plugins),
    # --- orders ---
    PageRoute("/jobs/requeue", jobs_orders.REQUEUE, Role.OPERATOR, _BOTH, heavy=_READ),
    PageRoute("/jobs/discard", jobs_orders.DISCARD, Role.OPERATOR, _BOTH, heavy=_READ),
    PageRoute("/jobs/cancel", jobs_orders.CANCEL, Role.OPERATOR, _BOTH, heavy=_READ),
    PageRoute("/jobs/run-now", jobs_orders.RUN_NOW, Role.OPERATOR, _BOTH, heavy=_READ),
    PageRoute("/jobs/delete", jobs_orders.DELETE, Role.OPERATOR, _BOTH, heavy=_READ),
    PageRoute("/jobs/edit", jobs_orders.EDIT, Role.OPERATOR, _BOTH, heavy=_READ),
    PageRoute("/jobs/copy", jobs_orders.COPY, Role.OPERATOR, _BOTH),
    PageRoute("/errors/requeue", errors.REQUEUE, Role.OPERATOR, _BOTH, heavy=_READ),
    PageRoute("/errors/discard", errors.DISCARD, Role.OPERATOR, _BOTH, heavy=_READ),
    PageRoute("/queues/pause", queues.PAUSE, Role.OPERATOR, _BOTH),
    PageRoute("/queues/resume", queues.RESUME, Role.OPERATOR, _BOTH),
    PageRoute("/queues/warm", queues.WARM, Role.OPERATOR, _BOTH),
    PageRoute("/queues/settings", queue.SETTINGS, Role.ADMIN, _BOTH),
    PageRoute("/workers/quiet", workers.QUIET, Role.OPERATOR, _BOTH),
    PageRoute("/workers/resume", workers.RESUME, Role.OPERATOR, _BOTH),
    PageRoute("/workers/stop", workers.STOP, Role.OPERATOR, _BOTH),
    PageRoute("/schedules/run", schedules.RUN, Role.OPERATOR, _BOTH),
    PageRoute("/schedules/pause", schedules.PAUSE, Role.OPERATOR, _BOTH),
    PageRoute("/schedules/resume", schedules.RESUME, Role.OPERATOR, _BOTH),
    PageRoute("/schedules/reset", schedules.RESET, Role.ADMIN, _BOTH),
    PageRoute("/schedules/remove", schedules.REMOVE, Role.ADMIN, _BOTH),
    PageRoute("/schedules/forget", schedules.FORGET, Role.ADMIN, _BOTH),
    PageRoute("/schedules/edit", schedule_edit.edit, Role.ADMIN, _BOTH),
    PageRoute("/limits/fill", limits.FILL, Role.OPERATOR, _BOTH),
    PageRoute("/limits/empty", limits.EMPTY, Role.OPERATOR, _BOTH),
    PageRoute("/limits/set", limits_change.SET_LIMIT, Role.ADMIN, _BOTH),
    PageRoute("/breakers/close", limits.CLOSE, Role.OPERATOR, _BOTH),
    PageRoute("/breakers/set", limits_change.SET_BREAKER, Role.ADMIN, _BOTH),
    PageRoute("/storage/checks", storage.checks, Role.OPERATOR, _BOTH, heavy=("POST",)),
    # --- one job, whose id is none of the words above ---
    PageRoute("/jobs/{job}", job.job, heavy=_READ),
    PageRoute("/jobs/{job}/arguments.json", job.arguments, Role.OPERATOR, answers="json"),
    PageRoute("/jobs/{job}/result.json", job.result, Role.OPERATOR, answers="json"),
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

LOOKS: Mapping[str, Look] = {
    "queues": queues.look,
    "workers": workers.look,
    "limits": limits.look,
    "errors": errors.look,
    "schedules": schedules.look,
    "audit": audit.look,
    "overview": overview.look,
    "jobs": overview.look_jobs,
    "minutes": overview.look_minutes,
}
"""The parts that pages show live: what to compare, to know that one has changed."""

LOOKS_AT: Mapping[str, LookAt] = {"job": job.look_at}
"""The same for parts of one thing of many, such as ``job-`` and its id."""
