"""The producer of an app, as its tasks use it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from windlass._core.job.job import JobId
from windlass._tasks.handle import Job, JobClient

if TYPE_CHECKING:
    from windlass._tasks.hooks import Hooks
    from windlass._tasks.task import Call

__all__ = ["Enqueuer"]

R = TypeVar("R")


class Enqueuer(JobClient, Protocol):
    """Stores the calls of tasks, and answers the handles of their jobs."""

    async def enqueue_call(self, call: Call[R], *, job_id: JobId | None = None) -> Job[R]:
        """Store one call, under this id if one is given."""
        ...

    def enqueue_call_sync(self, call: Call[R], *, job_id: JobId | None = None) -> Job[R]:
        """Store one call from code without an event loop."""
        ...

    @property
    def payload_limit(self) -> int:
        """Largest payload in bytes."""
        ...

    @property
    def hooks(self) -> Hooks:
        """The app's hooks, one of which returns the current tenant."""
        ...
