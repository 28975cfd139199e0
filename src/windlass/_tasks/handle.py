"""`Job`, the handle of an enqueued job, and the producer as tasks and handles use it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from windlass._core.flows.flow import Addition
from windlass._core.job.job import ClaimedJob, JobId, JobRecord
from windlass._core.values.payload import decode_any
from windlass._storage.protocol.jobs import CancelAnswer
from windlass.errors import JobNotFound

if TYPE_CHECKING:
    from windlass._tasks.call import Call
    from windlass._tasks.flows.flow import Flow
    from windlass._tasks.hooks import Hooks
    from windlass._tasks.registry import TaskRegistry
    from windlass._tasks.task import Task

__all__ = ["Enqueuer", "Job", "JobClient"]

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class JobClient(Protocol):
    """The calls that a handle makes about its job."""

    async def refresh(self, job: JobId) -> JobRecord:
        """Read the stored job; JobNotFound."""
        ...

    async def result(self, job: JobId, timeout: timedelta | float | None) -> bytes | None:
        """Wait for the encoded result."""
        ...

    async def cancel(self, job: JobId, *, children: bool = False) -> CancelAnswer:
        """Cancel the job, or ask its run to end."""
        ...

    @property
    def tasks(self) -> TaskRegistry:
        """Every task of this app."""
        ...


class Enqueuer(JobClient, Protocol):
    """Stores the calls of tasks, and answers the handles of their jobs."""

    async def enqueue_call(self, call: Call[R], *, job_id: JobId | None = None) -> Job[R]:
        """Store one call, under this id if one is given."""
        ...

    def enqueue_call_sync(self, call: Call[R], *, job_id: JobId | None = None) -> Job[R]:
        """Store one call from code without an event loop."""
        ...

    def make_jobs(self, job: ClaimedJob, calls: Sequence[Call[Any] | Flow]) -> list[Addition]:
        """Make the jobs that a job adds to its success."""
        ...

    @property
    def payload_limit(self) -> int:
        """Largest payload in bytes."""
        ...

    @property
    def hooks(self) -> Hooks:
        """The app's hooks, one of which returns the current tenant."""
        ...


class Job(Generic[R_co]):
    """The handle of a job: read it, wait for its result, cancel it.

    ``app.blocking`` has the same methods for code without an event loop.
    """

    __slots__ = ("_client", "_task", "created", "id", "replaced")

    def __init__(
        self,
        client: JobClient,
        job_id: JobId,
        *,
        created: bool,
        task: Task[..., Any] | None,
        replaced: bool = False,
    ) -> None:
        """Make a handle. Users get one by enqueueing, or from ``app.job(id)``."""
        self._client = client
        self._task = task
        self.id: JobId = job_id
        """The job's id."""
        self.created: bool = created
        """False if the call found an earlier job with the same unique key and returned it."""
        self.replaced: bool = replaced
        """True if that earlier job was waiting and took the new values of this call:
        ``on_conflict``.
        """

    def __repr__(self) -> str:
        name = self._task.name if self._task else "?"
        met = "" if self.created else " (replaced)" if self.replaced else " (reused)"
        return f"<Job {self.id} {name}{met}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    async def refresh(self) -> JobRecord:
        """Read the stored job. JobNotFound if it never existed, or has been deleted."""
        return await self._client.refresh(self.id)

    async def result(self, timeout: timedelta | float | None = None) -> R_co:
        """Wait for the job to end, and return the function's result.

        ``timeout``: seconds or a timedelta; ResultTimeout after that, and the job is not stopped.

        Raises JobFailed, JobCancelled, JobExpired or JobDiscarded if the job did not succeed, and
        JobNotFound if it is not stored.
        """
        encoded = await self._client.result(self.id, timeout)
        if self._task is None and encoded is not None:
            await self._find_task()
        return self.decode(encoded)

    async def _find_task(self) -> None:
        """Find the job's task in the store: its return annotation decodes the result."""
        with suppress(JobNotFound):  # deleted just now: the result is plain JSON then
            self._task = self._client.tasks.find((await self._client.refresh(self.id)).task)

    def decode(self, encoded: bytes | None) -> R_co:
        """Decode a stored result by the return annotation. Plain JSON values if the task is not
        known here.
        """
        decode = decode_any if self._task is None else self._task.codec.decode_result
        value: R_co = decode(encoded)
        return value

    async def cancel(self, *, children: bool = False) -> CancelAnswer:
        """Cancel a waiting job. A running one is asked to stop.

        ``children``: cancel also the jobs that it has enqueued, and those that they have.

        Returns "cancelled", "requested" (it is running), "too_late" or "unknown".
        """
        return await self._client.cancel(self.id, children=children)
