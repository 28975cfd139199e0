"""Every address of the dashboard, who may use it, and what answers. The tests walk this table."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Literal

import msgspec
from starlette.responses import Response

from windlass.web.live import Look, LookAt
from windlass.web.pages import (
    entrance,
    job,
    jobs,
    jobs_orders,
    limits,
    overview,
    queues,
    streams,
    workers,
)
from windlass.web.people import Role
from windlass.web.visit import Visit

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


_BOTH = ("GET", "POST")
"""GET asks, POST does."""

ROUTES: tuple[PageRoute, ...] = (
    # --- for anybody: how to come in, and files that hold no secret ---
    PageRoute("/login", entrance.login, role=None, methods=("POST",)),
    PageRoute("/enter", entrance.enter, role=None),
    PageRoute("/assets/{name}", streams.asset, role=None, answers="file"),
    # --- for everybody who was let in ---
    PageRoute("/", entrance.home),
    PageRoute("/logout", entrance.logout, methods=("POST",)),
    PageRoute("/live", streams.live, answers="stream"),
    PageRoute("/overview", overview.overview),
    PageRoute("/jobs", jobs.jobs),
    PageRoute("/queues", queues.queues),
    PageRoute("/workers", workers.workers),
    PageRoute("/limits", limits.limits),
    # --- orders ---
    PageRoute("/jobs/requeue", jobs_orders.REQUEUE, Role.OPERATOR, _BOTH),
    PageRoute("/jobs/discard", jobs_orders.DISCARD, Role.OPERATOR, _BOTH),
    PageRoute("/jobs/cancel", jobs_orders.CANCEL, Role.OPERATOR, _BOTH),
    PageRoute("/jobs/run-now", jobs_orders.RUN_NOW, Role.OPERATOR, _BOTH),
    PageRoute("/jobs/delete", jobs_orders.DELETE, Role.OPERATOR, _BOTH),
    PageRoute("/jobs/edit", jobs_orders.EDIT, Role.OPERATOR, _BOTH),
    PageRoute("/jobs/copy", jobs_orders.COPY, Role.OPERATOR, _BOTH),
    PageRoute("/queues/pause", queues.PAUSE, Role.OPERATOR, _BOTH),
    PageRoute("/queues/resume", queues.RESUME, Role.OPERATOR, _BOTH),
    PageRoute("/queues/warm", queues.WARM, Role.OPERATOR, _BOTH),
    PageRoute("/limits/fill", limits.FILL, Role.OPERATOR, _BOTH),
    PageRoute("/limits/empty", limits.EMPTY, Role.OPERATOR, _BOTH),
    PageRoute("/breakers/close", limits.CLOSE, Role.OPERATOR, _BOTH),
    # --- one job, whose id is none of the words above ---
    PageRoute("/jobs/{job}", job.job),
    PageRoute("/jobs/{job}/arguments.json", job.arguments, Role.OPERATOR, answers="json"),
    PageRoute("/jobs/{job}/result.json", job.result, Role.OPERATOR, answers="json"),
)

LOOKS: Mapping[str, Look] = {
    "queues": queues.look,
    "workers": workers.look,
    "limits": limits.look,
    "overview": overview.look,
    "jobs": overview.look,
    "minutes": overview.look_minutes,
}
"""The parts that pages show live: what to compare, to know that one has changed."""

LOOKS_AT: Mapping[str, LookAt] = {"job": job.look_at}
"""The same for parts of one thing of many, such as ``job-`` and its id."""
