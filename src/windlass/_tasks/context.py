"""The context of a run: the facts and the calls that a handler has."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

import msgspec

from windlass._core.flows.flow import Addition
from windlass._core.job.control import Snooze
from windlass._core.job.job import ClaimedJob, JobId, Progress
from windlass._core.schedule.previous_run import PreviousRun
from windlass._core.schedule.schedule import slot_of
from windlass._core.values.metadata import Metadata, MetadataValue
from windlass._core.values.payload import decode_any, encode_any
from windlass._observe.current_run import RUN, job_fields
from windlass._storage.protocol.transactions import UserConnection
from windlass._tasks.cancel_token import MOST_ADDED, CancelToken, too_many_added
from windlass._tasks.flows.flow import Flow
from windlass._tasks.services import Services
from windlass.errors import InvalidArgument, WindlassError

if TYPE_CHECKING:
    from windlass._tasks.handle import Job
    from windlass._tasks.task import Call

__all__ = [
    "CallNext",
    "CancelToken",
    "Context",
    "ContextHost",
    "Middleware",
    "SoftTimeout",
    "as_current",
    "current",
    "current_or_none",
    "report_wait",
    "running_job",
    "set_current",
    "with_host",
]

log: logging.Logger = logging.getLogger("windlass.job")
T = TypeVar("T")


_MOST_DATA = 4096


class SoftTimeout(asyncio.CancelledError):
    """Raised inside a coroutine when its ``soft_timeout`` is over. Clean up, then return or raise.

    It is a cancellation, so that ``except Exception`` does not stop it and task groups end.
    """


class ContextHost(Protocol):
    """The calls that a context makes to its worker."""

    @property
    def state(self) -> Any:
        """The application's object."""
        ...

    @property
    def services(self) -> Services:
        """The services that the application lends to handlers."""
        ...

    def note(self, job: ClaimedJob, progress: Progress) -> None:
        """Store a run's progress soon."""
        ...

    def noted(self, job: ClaimedJob, metadata: Metadata) -> None:
        """Hear of all that a run has noted so far."""
        ...

    async def enqueue_from(self, job: ClaimedJob, call: Call[T]) -> Job[T]:
        """Enqueue jobs from inside a job."""
        ...

    def make_jobs(self, job: ClaimedJob, calls: Sequence[Call[Any] | Flow]) -> list[Addition]:
        """Make the jobs that a job adds to its success. Safe from any thread; stores nothing."""
        ...

    def previous_run(self, job: ClaimedJob) -> Coroutine[Any, Any, PreviousRun | None]:
        """Return the run of the job's schedule before this one."""
        ...

    def previous_run_sync(self, job: ClaimedJob) -> PreviousRun | None:
        """Return the same to a thread, which waits for it."""
        ...

    async def finish(self, job: ClaimedJob, result: object, connection: UserConnection) -> None:
        """Write a job's success into the user's transaction."""
        ...

    def finish_sync(self, job: ClaimedJob, result: object, connection: UserConnection) -> None:
        """Write a job's success through a connection that blocks. Safe from any thread."""
        ...


class PreviousRunLookup(msgspec.Struct, frozen=True, eq=False):
    """The answer of `Context.previous_run`: nothing is read before it is awaited."""

    _host: ContextHost
    _job: ClaimedJob

    def __await__(self) -> Generator[Any, None, PreviousRun | None]:
        """Read it on the worker's event loop."""
        return self._host.previous_run(self._job).__await__()

    def wait(self) -> PreviousRun | None:
        """Read it from a thread, which waits for it."""
        return self._host.previous_run_sync(self._job)


class Context(msgspec.Struct, frozen=True, eq=False):
    """The current run: its job, its attempt, and calls to the worker.

    A handler gets it as its first parameter if that is annotated ``Context``, and everywhere else
    from `current()`. The worker makes one for each run.
    """

    claimed: ClaimedJob
    _host: ContextHost
    cancelled: CancelToken
    """True once the run should end. Handlers on threads should check it now and then."""

    @property
    def state(self) -> Any:
        """``app.state``: an object of your application."""
        return self._host.state

    @property
    def services(self) -> Services:
        """Services of your application, by name: ``ctx.services.need("mailer", Mailer)``."""
        return self._host.services

    @property
    def job_id(self) -> JobId:
        """This job's id."""
        return self.claimed.claim.job

    @property
    def task(self) -> str:
        """The task's name."""
        return self.claimed.task

    @property
    def queue(self) -> str:
        """The queue it came from."""
        return self.claimed.queue

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self.claimed.attempt

    @property
    def max_attempts(self) -> int:
        """The number of attempts after which a failure is final."""
        return self.claimed.max_attempts

    @property
    def slot(self) -> datetime | None:
        """The instant that its schedule fired for, however late the job runs. None: no schedule
        enqueued the job, or an operator triggered it.
        """
        return slot_of(self.claimed.claim.job)

    @property
    def previous_error(self) -> str | None:
        """The error of the last run, as ``Kind: message``. None on a first run."""
        error = self.claimed.error
        return None if error is None else f"{error.kind}: {error.message}"

    @property
    def tenant(self) -> str | None:
        """The tenant given at enqueue."""
        return self.claimed.tenant

    @property
    def principal(self) -> str | None:
        """The principal given at enqueue: the user or service that the job runs for."""
        return self.claimed.principal

    @property
    def correlation_id(self) -> str | None:
        """The correlation id given at enqueue, such as a request id."""
        return self.claimed.correlation_id

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags given at enqueue."""
        return self.claimed.tags

    def progress(
        self, fraction: float, note: str = "", *, data: Mapping[str, Any] | None = None
    ) -> None:
        """Report how far this run is, from 0 to 1.

        It is stored soon, at most a few times a second. The last report is stored with the outcome.
        ``data``: up to 4 KiB of JSON for programs that read the job.
        """
        if not 0.0 <= fraction <= 1.0:
            message = f"progress must be between 0 and 1, got {fraction!r}"
            raise InvalidArgument(message)
        kept = None
        if data is not None:
            what = "the data of ctx.progress"
            kept = decode_any(encode_any(dict(data), limit=_MOST_DATA, what=what))
        self._host.note(self.claimed, Progress(fraction, note[:1000], kept))

    def note(self, **metadata: MetadataValue) -> None:
        """Store small facts about this run: ``ctx.note(rows=120, source="s3")``.

        They are stored with the outcome of the run, also if it fails. A later call adds to them, or
        replaces a value. At most 32 values, 4 KiB of JSON together: text, numbers, booleans, None.
        """
        self._host.noted(self.claimed, self.cancelled.note(metadata))

    def log(self, message: str, *args: object, level: int = logging.INFO) -> None:
        """Log a line with this job's id, task and attempt, and store it with the run.

        It is stored even if your logging configuration does not show the line.
        """
        if log.isEnabledFor(level):
            log.log(level, message, *args, extra=job_fields(self.claimed), stacklevel=2)
        else:
            log.makeRecord(log.name, level, "", 0, message, args, None)  # for the stored log

    def snooze(self, after: timedelta | float) -> None:
        """Run this job again later, once the handler has returned, without using an attempt.

        Use it inside a block such as ``session.begin()``, where ``raise Snooze`` would roll back
        your writes. The handler's return value is not stored. If the handler raises, its error
        counts.
        """
        self.cancelled.put_off(Snooze(after).after)

    async def enqueue(self, call: Call[T]) -> Job[T]:
        """Enqueue a call as a child of this job.

        The new job gets this job's correlation id and tenant, unless the call sets others.
        """
        return await self._host.enqueue_from(self.claimed, call)

    def then(self, *calls: Call[Any] | Flow) -> None:
        """Store jobs and flows together with the success of this run: ``ctx.then(ship.call(7))``.

        Either the success and all of them are stored, or nothing is. A run that raises, is retried,
        snoozed or cancelled, or has lost its job to another worker, adds nothing. A later call adds
        to them, at most 10,000 jobs for one run. They inherit tenant and correlation id like those
        of `enqueue`, and their delays count from the success. A job whose unique key is held then
        is left out, with any ``on_conflict``.

        In a flow, everything that waits for this job waits for them. An added `Flow` counts like
        one job: it is over when all of its jobs are. Elsewhere an added `Flow` starts with the
        success, or is left out if a running flow holds its ``key``.
        """
        number = sum(len(one) if isinstance(one, Flow) else 1 for one in calls)
        if number > MOST_ADDED:
            raise InvalidArgument(too_many_added(number))
        self.cancelled.add(self._host.make_jobs(self.claimed, calls))

    def previous_run(self) -> PreviousRunLookup:
        """Read the run of this job's schedule before this one: when it started and ended, its
        outcome and its result. None: this is the first run, or no schedule made this job.

        ``await ctx.previous_run()`` in coroutines, ``ctx.previous_run().wait()`` in plain
        functions. Each call reads the storage.
        """
        return PreviousRunLookup(self._host, self.claimed)

    @overload
    async def finish(self, *, connection: UserConnection) -> None: ...
    @overload
    async def finish(self, result: T, *, connection: UserConnection) -> T: ...
    async def finish(self, result: Any = None, *, connection: UserConnection) -> Any:
        """Write this job's success, with ``result``, into the transaction open on ``connection``.

        Your writes and the success are committed together or not at all. Commit before the handler
        ends; its return value is not stored any more. Returns ``result``. Raises ClaimLost if
        another run owns the job by now; the transaction then cannot commit.
        """
        await self._host.finish(self.claimed, result, connection)
        return result

    @overload
    def finish_sync(self, *, connection: UserConnection) -> None: ...
    @overload
    def finish_sync(self, result: T, *, connection: UserConnection) -> T: ...
    def finish_sync(self, result: Any = None, *, connection: UserConnection) -> Any:
        """Write this job's success like `finish`, from plain functions with a blocking
        connection.
        """
        self._host.finish_sync(self.claimed, result, connection)
        return result


CallNext = Callable[[], Awaitable[Any]]
Middleware = Callable[[Context, CallNext], Awaitable[Any]]
"""``async def layer(ctx, call_next)``: code around every job."""

_CURRENT: ContextVar[Context] = RUN


def set_current(context: Context) -> None:
    """Make ``context`` the current one for this asyncio task and the tasks it starts."""
    _CURRENT.set(context)


@contextmanager
def as_current(context: Context) -> Iterator[None]:
    """Make ``context`` the current one inside the block."""
    before = _CURRENT.set(context)
    try:
        yield
    finally:
        _CURRENT.reset(before)


def current_or_none() -> Context | None:
    """Return the current context, or None."""
    return _CURRENT.get(None)


def with_host(
    context: Context,
    host: Callable[[ContextHost], ContextHost],
    token: Callable[[CancelToken], CancelToken],
) -> Context:
    """Return the same run with another host: a plugin's code may ask less of it."""
    seen = host(context._host), token(context.cancelled)  # noqa: SLF001 -- one of our own
    return Context(context.claimed, *seen)


def running_job() -> ClaimedJob | None:
    """Return the job that this code is part of, or None."""
    context = _CURRENT.get(None)
    return None if context is None else context.claimed


def report_wait(job: JobId) -> None:
    """Tell the worker that the current handler waits for the result of a job."""
    context = _CURRENT.get(None)
    if context is not None:
        notice = getattr(context._host, "waits_for", None)  # noqa: SLF001 -- only a worker's own host has it
        if notice is not None:
            notice(context.claimed, job)


def current() -> Context:
    """Return the context of the run that this code is part of, also in threads started for it.

    Raises WindlassError outside a run.
    """
    try:
        return _CURRENT.get()
    except LookupError:
        message = (
            "windlass.current() was called outside a running job. Only code that a worker "
            "runs has a context; pass what you need as an argument elsewhere."
        )
        raise WindlassError(message) from None
