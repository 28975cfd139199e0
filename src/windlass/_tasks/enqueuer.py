"""What a task needs from its app."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from windlass._core.job.job import JobId

if TYPE_CHECKING:
    from uuid import UUID

    from windlass._tasks.handle import Job
    from windlass._tasks.registry import TaskRegistry
    from windlass._tasks.task import Call, Task

__all__ = ["Enqueuer"]

R = TypeVar("R")


class Enqueuer(Protocol):
    """What a task needs from its app."""

    async def enqueue_call(self, call: Call[R], *, job_id: JobId | None = None) -> Job[R]:
        """Store one call, under this id if one is given."""
        ...

    def enqueue_call_sync(self, call: Call[R], *, job_id: JobId | None = None) -> Job[R]:
        """Store one call from code without an event loop."""
        ...

    def job_of(self, job_id: str | UUID, task: Task[..., R]) -> Job[R]:
        """A handle for a job of ``task``."""
        ...

    @property
    def payload_limit(self) -> int:
        """Largest payload in bytes."""
        ...

    @property
    def tasks(self) -> TaskRegistry:
        """Every task it knows."""
        ...

    @property
    def tenant_of(self) -> Callable[[], str | None] | None:
        """Says whose calls are made here and now, if anybody has said how to know."""
        ...
