"""The handle a producer gets back."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from windlass._core.job.job import JobId, JobRecord
from windlass._core.values.payload import decode_any
from windlass._storage.protocol.jobs import CancelAnswer
from windlass.errors import JobNotFound

if TYPE_CHECKING:
    from windlass._tasks.registry import TaskRegistry
    from windlass._tasks.task import Task

__all__ = ["Job", "JobClient"]

R_co = TypeVar("R_co", covariant=True)


class JobClient(Protocol):
    """What a handle asks about its job."""

    async def refresh(self, job: JobId) -> JobRecord:
        """The stored job, or JobNotFound."""
        ...

    async def result(self, job: JobId, timeout: timedelta | float | None) -> bytes | None:
        """The encoded result, once it is there."""
        ...

    async def cancel(self, job: JobId) -> CancelAnswer:
        """Ask for its end."""
        ...

    @property
    def tasks(self) -> TaskRegistry:
        """Every task it knows."""
        ...


class Job(Generic[R_co]):
    """One durable request to run a task. Blocking twins of its methods: ``app.blocking``."""

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
        """Made by enqueueing, or by ``app.job(id)``."""
        self._client = client
        self._task = task
        self.id: JobId = job_id
        """The job's id."""
        self.created: bool = created
        """False when an active job with the same unique key was found and reused."""
        self.replaced: bool = replaced
        """That job was waiting and has taken over what this call asked for: ``on_conflict``."""

    def __repr__(self) -> str:
        name = self._task.name if self._task else "?"
        met = "" if self.created else " (replaced)" if self.replaced else " (reused)"
        return f"<Job {self.id} {name}{met}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    async def refresh(self) -> JobRecord:
        """The job as it is stored now; JobNotFound if it is not (any more)."""
        return await self._client.refresh(self.id)

    async def result(self, timeout: timedelta | float | None = None) -> R_co:
        """Wait for the job to end and return what the function returned.

        Raises JobFailed, JobCancelled, JobExpired, JobDiscarded, JobNotFound, or ResultTimeout
        when ``timeout`` passes first (the job goes on).
        """
        encoded = await self._client.result(self.id, timeout)
        if self._task is None and encoded is not None:
            await self._find_task()
        return self.decode(encoded)

    async def _find_task(self) -> None:
        """Learn from the store which task's job this is: its annotation says what a result is."""
        with suppress(JobNotFound):  # removed in this moment: the result is plain JSON then
            self._task = self._client.tasks.find((await self._client.refresh(self.id)).task)

    def decode(self, encoded: bytes | None) -> R_co:
        """A stored result as the function's own return type; plain JSON values where the task is
        not known here.
        """
        decode = decode_any if self._task is None else self._task.codec.decode_result
        value: R_co = decode(encoded)
        return value

    async def cancel(self) -> CancelAnswer:
        """Ask for the job's end: cancelled, requested (it is running), too_late or unknown."""
        return await self._client.cancel(self.id)
