"""Waiting jobs with their arguments, for assertions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from windlass._app.app import Windlass
from windlass._app.parts import parts_of
from windlass._core.flows.pending import has_pending
from windlass._core.job.job import JobId, JobRecord
from windlass._core.job.state import State
from windlass._core.values.payload import decode_any
from windlass._storage.protocol.admin import AdminStore
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._tasks.task import Task

__all__ = ["Enqueued", "all_jobs", "enqueued", "enqueued_sync"]

_PAGE = 10_000


async def all_jobs(admin: AdminStore, wanted: JobFilter) -> list[JobRecord]:
    """List all jobs, newest first."""
    page = await admin.find(wanted, limit=_PAGE)
    jobs = [*page]
    while page.next is not None:
        page = await admin.find(replace(wanted, before=page.next), limit=_PAGE)
        jobs += page
    return jobs


class Enqueued(msgspec.Struct, frozen=True):
    """One waiting job."""

    id: JobId
    task: str
    arguments: Mapping[str, Any]
    """The arguments by name, without defaults that the call left out. A result of a flow that is
    not known yet is a placeholder.
    """
    job: JobRecord
    """The whole record: queue, priority, due, tags …"""


async def enqueued(app: Windlass, task: Task[..., Any] | None = None) -> list[Enqueued]:
    """List the waiting jobs of one task, or of all, in the order they were enqueued."""
    wanted = JobFilter(states=[State.WAITING], task=None if task is None else task.name)
    jobs = await all_jobs((await parts_of(app).storage()).admin, wanted)
    return [_shown(app, job) for job in reversed(jobs)]


def enqueued_sync(app: Windlass, task: Task[..., Any] | None = None) -> list[Enqueued]:
    """List waiting jobs like `enqueued`, in tests without an event loop."""
    return app.blocking.run(enqueued(app, task), instead="enqueued(app)")


def _shown(app: Windlass, job: JobRecord) -> Enqueued:
    task = app.tasks.find(job.task)
    if task is None:  # enqueued by name: the code is elsewhere
        return Enqueued(job.id, job.task, decode_any(job.payload), job)
    if has_pending(job.payload):
        return Enqueued(job.id, job.task, task.codec.decode_known(job.payload), job)
    args, kwargs = task.codec.decode(job.payload)
    return Enqueued(job.id, job.task, task.codec.named(args, kwargs), job)
