"""`AsyncResult` and `GroupResult`: Celery's questions about jobs, answered by the storage."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, cast

from windlass._app.app import Windlass
from windlass._client.flow_run import FlowRun
from windlass._core.flows.flow import PartRecord
from windlass._core.job.job import JobRecord
from windlass._core.job.state import TERMINAL, State
from windlass._tasks.flows.flow import Group
from windlass._tasks.handle import Job
from windlass.errors import FlowNotFound, InvalidArgument, JobNotFound, ResultError
from windlass.integrations.celery._instead import (
    OF_GROUP_RESULTS,
    OF_RESULTS,
    refuse_attribute,
)

if TYPE_CHECKING:
    from uuid import UUID

__all__ = ["AsyncResult", "GroupResult"]

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)

_STATES: Mapping[State, str] = {
    State.RUNNING: "STARTED",
    State.SUCCEEDED: "SUCCESS",
    State.FAILED: "FAILURE",
    State.CANCELLED: "REVOKED",
    State.DISCARDED: "REVOKED",
}


class AsyncResult(Generic[R_co]):
    """A job, with the methods of Celery's class. Each of them reads the storage and blocks."""

    def __init__(
        self,
        id: str | UUID,  # noqa: A002 -- Celery's name
        *,
        app: Windlass,
        parent: AsyncResult[Any] | GroupResult[Any] | None = None,
    ) -> None:
        """Make one for the id of a job. It reads nothing yet."""
        self._app = app
        self._job: Job[R_co] = app.job(id)
        self.parent: AsyncResult[Any] | GroupResult[Any] | None = parent
        """The step before this one in a chain."""

    @property
    def id(self) -> str:
        """The job's id."""
        return self._job.id

    @property
    def task_id(self) -> str:
        """The job's id."""
        return self._job.id

    def __repr__(self) -> str:
        return f"<AsyncResult: {self.id}>"

    def __str__(self) -> str:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AsyncResult) and other.id == self.id

    def __hash__(self) -> int:
        return hash(self.id)

    def get(
        self, timeout: timedelta | float | None = None, *, propagate: bool = True, **others: Any
    ) -> R_co:
        """Wait for the end of the job and return its result.

        Raises JobFailed, JobCancelled, JobExpired or JobDiscarded if it did not succeed, and
        ResultTimeout, a TimeoutError, after ``timeout``. ``propagate=False`` returns the error of a
        job that has ended.
        """
        _refuse_waiting_options(others)
        try:
            return self._app.blocking.result(self._job, timeout)
        except TimeoutError:
            raise
        except JobNotFound as error:
            raise self._not_found(error) from None
        except ResultError as error:
            if propagate:
                raise
            return cast("R_co", error)

    def ready(self) -> bool:
        """Return whether the job has ended."""
        return self._record().state in TERMINAL

    def successful(self) -> bool:
        """Return whether the job has succeeded."""
        return self._record().state is State.SUCCEEDED

    def failed(self) -> bool:
        """Return whether the job has failed for good."""
        return self._record().state is State.FAILED

    @property
    def state(self) -> str:
        """PENDING, STARTED, RETRY, SUCCESS, FAILURE or REVOKED. JobNotFound for an unknown id."""
        job = self._record()
        if job.state is not State.WAITING:
            return _STATES[job.state]
        return "RETRY" if job.attempt > job.max_attempts - job.budget else "PENDING"

    @property
    def status(self) -> str:
        """The same as `state`."""
        return self.state

    @property
    def result(self) -> R_co | ResultError | None:
        """The result, the error of a job that did not succeed, or None before the end."""
        return self.get(propagate=False) if self.ready() else None

    @property
    def traceback(self) -> str | None:
        """The traceback of the last error."""
        error = self._record().error
        return None if error is None else error.traceback

    @property
    def name(self) -> str:
        """The name of the task."""
        return self._record().task

    @property
    def date_done(self) -> datetime | None:
        """When the job ended."""
        return self._record().finished_at

    def revoke(self, *, terminate: bool = False, **others: Any) -> None:
        """Cancel the job if it waits. ``terminate``: ask it to stop if it runs."""
        for name in others:
            message = (
                f"revoke({name}=…) of Celery is not imitated; revoke(terminate=True) stops a run "
                f"in every executor, and app.blocking.cancel(job) tells what it did"
            )
            raise InvalidArgument(message)
        if terminate or self._record().state is not State.RUNNING:
            self._app.blocking.cancel(self._job)

    def forget(self) -> None:
        """Delete the job, its result and its history. It must have ended."""
        if not self.ready():
            message = f"job {self.id} has not ended: wait for it, or cancel it with revoke()"
            raise InvalidArgument(message)
        self._app.blocking.admin.jobs.delete(self.id)

    def _record(self) -> JobRecord:
        try:
            return self._app.blocking.refresh(self._job)
        except JobNotFound as error:
            raise self._not_found(error) from None

    def _not_found(self, error: JobNotFound) -> JobNotFound:
        """Say if the id is that of a flow, which a group or a chain starts."""
        try:
            self._app.blocking.admin.flows.get(self.id)
        except FlowNotFound:
            return error
        message = f"{self.id} is the id of a flow, not of a job: read app.flow_run({self.id!r})"
        return JobNotFound(self.id, message)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            refuse_attribute(self, name, OF_RESULTS)


class GroupResult(Generic[R]):
    """The jobs of a group, with the methods of Celery's class."""

    def __init__(
        self,
        run: FlowRun,
        group: Group[R],
        *,
        app: Windlass,
        parent: AsyncResult[Any] | GroupResult[Any] | None = None,
    ) -> None:
        """Made by ``group(…).apply_async()``."""
        self._app = app
        self._run = run
        self._group = group
        self.parent: AsyncResult[Any] | GroupResult[Any] | None = parent
        """The step before this one in a chain."""

    @functools.cached_property
    def results(self) -> list[AsyncResult[R]]:
        """One for each job, in their order."""
        return [AsyncResult(job, app=self._app) for job in self._group.ids]

    @property
    def id(self) -> str:
        """The id of the flow: ``app.flow_run(id)`` finds it again."""
        return self._run.id

    def __repr__(self) -> str:
        return f"<GroupResult: {self.id}, {len(self)} jobs>"

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[AsyncResult[R]]:
        return iter(self.results)

    def __getitem__(self, index: int) -> AsyncResult[R]:
        return self.results[index]

    def get(
        self, timeout: timedelta | float | None = None, *, propagate: bool = True, **others: Any
    ) -> list[R]:
        """Wait for the end of all jobs and return their results in order.

        Raises the error of the first one that did not succeed, and FlowTimeout, a TimeoutError,
        after ``timeout``. ``propagate=False`` puts errors in the places of their results.
        """
        _refuse_waiting_options(others)
        self._app.blocking.wait(self._run, timeout)
        if propagate:
            return list(self._run.results(self._group))
        return [one.get(propagate=False) for one in self.results]

    def join(
        self, timeout: timedelta | float | None = None, *, propagate: bool = True, **others: Any
    ) -> list[R]:
        """Call `get`."""
        return self.get(timeout, propagate=propagate, **others)

    def ready(self) -> bool:
        """Return whether all jobs have ended."""
        return not any(part.open for part in self._parts())

    def successful(self) -> bool:
        """Return whether all jobs have succeeded."""
        return self.completed_count() == len(self)

    def failed(self) -> bool:
        """Return whether a job has failed for good."""
        return any(part.failed for part in self._parts())

    def completed_count(self) -> int:
        """Count the jobs that have succeeded."""
        return sum(part.succeeded for part in self._parts())

    def revoke(self, *, terminate: bool = False) -> None:
        """Cancel the jobs that wait. ``terminate``: ask those that run to stop."""
        for one in self.results:
            one.revoke(terminate=terminate)

    def _parts(self) -> Sequence[PartRecord]:
        graph = self._app.blocking.run(self._run.graph(), instead="run.graph()")
        return [part for part in graph.parts if part.number in self._group.parts]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            refuse_attribute(self, name, OF_GROUP_RESULTS)


def _refuse_waiting_options(others: Mapping[str, Any]) -> None:
    for name in others:
        message = (
            f"get({name}=…) of Celery is not imitated; leave it out. The call waits for a "
            f"notification, and takes timeout= and propagate="
        )
        raise InvalidArgument(message)
