"""What has been enqueued and not run yet, with its arguments as they were given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.app import Windlass
from windlass.core.job import Job, JobId
from windlass.core.state import State
from windlass.storage.protocol import JobFilter
from windlass.task import Task
from windlass.testing.everything import every_job

__all__ = ["Enqueued", "enqueued", "enqueued_sync"]


class Enqueued(msgspec.Struct, frozen=True):
    """One waiting job."""

    id: JobId
    task: str
    arguments: Mapping[str, Any]
    """By name; what was left to its default is left out."""
    job: Job
    """The whole record: queue, priority, due, tags …"""


async def enqueued(app: Windlass, task: Task[..., Any] | None = None) -> list[Enqueued]:
    """The waiting jobs, in the order they were enqueued; of one task, or of all."""
    wanted = JobFilter(states=[State.WAITING], task=None if task is None else task.name)
    jobs = await every_job((await app.storage()).admin, wanted)
    return [_shown(app, job) for job in reversed(jobs)]


def enqueued_sync(app: Windlass, task: Task[..., Any] | None = None) -> list[Enqueued]:
    """`enqueued`, for tests without an event loop."""
    return app.blocking.run(enqueued(app, task), instead="enqueued(app)")


def _shown(app: Windlass, job: Job) -> Enqueued:
    codec = app.tasks[job.task].codec
    args, kwargs = codec.decode(job.payload)
    return Enqueued(job.id, job.task, codec.named(args, kwargs), job)
