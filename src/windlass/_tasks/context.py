"""What a handler knows about the run it is part of."""

from __future__ import annotations

import inspect
import logging
import threading
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, overload

import msgspec

from windlass._core.job.control import Snooze
from windlass._core.job.job import ClaimedJob, JobId, Progress
from windlass._core.schedule.schedule import slot_of
from windlass._core.values.payload import decode_any, encode_any
from windlass._observe.current_run import RUN, job_fields
from windlass._storage.protocol.transactions import UserConnection
from windlass._tasks.services import Services
from windlass.errors import DefinitionError, InvalidArgument, WindlassError

if TYPE_CHECKING:
    from windlass._tasks.handle import Job
    from windlass._tasks.task import Call

__all__ = [
    "CallNext",
    "CancelToken",
    "Context",
    "ContextHost",
    "Middleware",
    "as_current",
    "current",
    "current_or_none",
    "report_wait",
    "running_job",
    "set_current",
    "wants_context",
    "with_host",
]

log: logging.Logger = logging.getLogger("windlass.job")
T = TypeVar("T")


_MAKING = threading.Lock()
_MOST_DATA = 4096


class CancelToken(msgspec.Struct, eq=False):
    """Says whether somebody wants this run to end. Safe to read from any thread."""

    _event: threading.Event | None = None
    wish: timedelta | None = None
    """When the run has ended well, its job is to run again after this."""

    def put_off(self, after: timedelta) -> None:
        """Let the job run again after the end of this run."""
        self.wish = after

    def set(self) -> None:
        """Ask the run to end."""
        self._waitable().set()

    def wait(self, timeout: float | None = None) -> bool:
        """Block a thread until the run should end; True when it should."""
        return self._waitable().wait(timeout)

    def __bool__(self) -> bool:
        """Whether the run should end."""
        return self._event is not None and self._event.is_set()

    def _waitable(self) -> threading.Event:
        # Made on demand: an Event costs more than all other bookkeeping of a no-op job. Under a
        # lock: the loop asks for the end while the handler's thread may begin to wait for it.
        if self._event is None:
            with _MAKING:
                if self._event is None:
                    self._event = threading.Event()
        return self._event


class ContextHost(Protocol):
    """What a context needs from the worker it lives in."""

    @property
    def state(self) -> Any:
        """The application's own object."""
        ...

    @property
    def services(self) -> Services:
        """What the application lends to handlers."""
        ...

    def note(self, job: ClaimedJob, progress: Progress) -> None:
        """Store how far a run is, soon."""
        ...

    async def enqueue_from(self, job: ClaimedJob, call: Call[T]) -> Job[T]:
        """Enqueue follow-up work of a job."""
        ...

    async def finish(self, job: ClaimedJob, result: object, connection: UserConnection) -> None:
        """Write a job's success into the user's transaction."""
        ...

    def finish_sync(self, job: ClaimedJob, result: object, connection: UserConnection) -> None:
        """The same on a connection that blocks; from any thread."""
        ...


class Context(msgspec.Struct, frozen=True, eq=False):
    """The run a handler is part of: its first parameter if it is annotated so, or `current()`.

    The worker builds one for each run.
    """

    claimed: ClaimedJob
    _host: ContextHost
    cancelled: CancelToken
    """True once somebody wants this run to end; threads should look now and then."""

    @property
    def state(self) -> Any:
        """``app.state``: whatever your application put there."""
        return self._host.state

    @property
    def services(self) -> Services:
        """What your application lends by name: ``ctx.services.need("mailer", Mailer)``."""
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
        """Which attempt this is, from 1."""
        return self.claimed.attempt

    @property
    def max_attempts(self) -> int:
        """The attempt after which a failure is final."""
        return self.claimed.max_attempts

    @property
    def slot(self) -> datetime | None:
        """The instant its schedule made it for, however late it runs; None: no schedule did, or
        somebody triggered it by hand.
        """
        return slot_of(self.claimed.claim.job)

    @property
    def previous_error(self) -> str | None:
        """What went wrong last time, as ``Kind: message``; None on a first run."""
        error = self.claimed.error
        return None if error is None else f"{error.kind}: {error.message}"

    @property
    def tenant(self) -> str | None:
        """The tenant given at enqueue."""
        return self.claimed.tenant

    @property
    def principal(self) -> str | None:
        """Who asked for it."""
        return self.claimed.principal

    @property
    def correlation_id(self) -> str | None:
        """The request it belongs to."""
        return self.claimed.correlation_id

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags given at enqueue."""
        return self.claimed.tags

    def progress(
        self, fraction: float, note: str = "", *, data: Mapping[str, Any] | None = None
    ) -> None:
        """Say how far this run is, from 0 to 1. Stored soon, at most a few times a second;
        what a run says last is stored with its outcome. ``data``: for programs that look at the
        job, as JSON, up to 4 KiB.
        """
        if not 0.0 <= fraction <= 1.0:
            message = f"progress must be between 0 and 1, got {fraction!r}"
            raise InvalidArgument(message)
        kept = None
        if data is not None:
            what = "the data of ctx.progress"
            kept = decode_any(encode_any(dict(data), limit=_MOST_DATA, what=what))
        self._host.note(self.claimed, Progress(fraction, note[:1000], kept))

    def log(self, message: str, *args: object, level: int = logging.INFO) -> None:
        """Log a line that carries this job's id, task and attempt, and is kept with the run:
        also where the program's own logging does not show it.
        """
        if log.isEnabledFor(level):
            log.log(level, message, *args, extra=job_fields(self.claimed), stacklevel=2)
        else:
            log.makeRecord(log.name, level, "", 0, message, args, None)  # for whoever keeps lines

    def snooze(self, after: timedelta | float) -> None:
        """Run this job again later, at no cost, once the handler has returned: ``raise Snooze`` in
        a block such as ``session.begin()`` would roll back what was written there.

        What the handler returns is not stored. If it raises, the error counts.
        """
        self.cancelled.put_off(Snooze(after).after)

    async def enqueue(self, call: Call[T]) -> Job[T]:
        """Enqueue follow-up work that remembers this job as its parent and keeps its
        correlation id and tenant, unless the call says otherwise.
        """
        return await self._host.enqueue_from(self.claimed, call)

    @overload
    async def finish(self, *, connection: UserConnection) -> None: ...
    @overload
    async def finish(self, result: T, *, connection: UserConnection) -> T: ...
    async def finish(self, result: Any = None, *, connection: UserConnection) -> Any:
        """Write this job's success, with ``result``, into the transaction open on ``connection``.

        Your writes there and the success are committed together or not at all. Commit before the
        handler ends; what it returns is not stored any more. Raises ClaimLost, and no commit is
        possible, if the job is not this run's any more. The answer is ``result``.
        """
        await self._host.finish(self.claimed, result, connection)
        return result

    @overload
    def finish_sync(self, *, connection: UserConnection) -> None: ...
    @overload
    def finish_sync(self, result: T, *, connection: UserConnection) -> T: ...
    def finish_sync(self, result: Any = None, *, connection: UserConnection) -> Any:
        """The same for plain functions, and connections that block."""
        self._host.finish_sync(self.claimed, result, connection)
        return result


CallNext = Callable[[], Awaitable[Any]]
Middleware = Callable[[Context, CallNext], Awaitable[Any]]
"""Middleware."""

_CURRENT: ContextVar[Context] = RUN


def set_current(context: Context) -> None:
    """Make ``context`` the current one, for this asyncio task and what it starts."""
    _CURRENT.set(context)


@contextmanager
def as_current(context: Context) -> Iterator[None]:
    """``context`` is the current one inside the block, and what was current is so again after."""
    before = _CURRENT.set(context)
    try:
        yield
    finally:
        _CURRENT.reset(before)


def current_or_none() -> Context | None:
    """The current context, if there is one."""
    return _CURRENT.get(None)


def with_host(
    context: Context,
    host: Callable[[ContextHost], ContextHost],
    token: Callable[[CancelToken], CancelToken],
) -> Context:
    """The same run, seen by somebody who has less to ask of its host, and less to say."""
    seen = host(context._host), token(context.cancelled)  # noqa: SLF001 -- one of our own
    return Context(context.claimed, *seen)


def running_job() -> ClaimedJob | None:
    """The job this code is part of, if it is part of one."""
    context = _CURRENT.get(None)
    return None if context is None else context.claimed


def report_wait(job: JobId) -> None:
    """Let the worker know that the handler this code is part of waits for the result of a job."""
    context = _CURRENT.get(None)
    if context is not None:
        notice = getattr(context._host, "waits_for", None)  # noqa: SLF001 -- a worker's own has it
        if notice is not None:
            notice(context.claimed, job)


def current() -> Context:
    """The context of the run this code is part of, also in threads started for it."""
    try:
        return _CURRENT.get()
    except LookupError:
        message = (
            "windlass.current() was called outside a running job. Only code that a worker "
            "runs has a context; pass what you need as an argument elsewhere."
        )
        raise WindlassError(message) from None


def wants_context(function: Callable[..., Any]) -> bool:
    """Whether the first parameter is annotated as a Context, also as a string; DefinitionError
    where another one is, which nobody could fill.
    """
    parameters = list(inspect.signature(function).parameters.values())
    by_position = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    first = by_position[0] if by_position else None
    for other in parameters:
        if other is not first and other.annotation in (Context, "Context", "windlass.Context"):
            message = (
                f"{function.__qualname__} takes its context as {other.name!r}, in the wrong place: "
                f"make it the first parameter, ({other.name}: Context, …)"
            )
            raise DefinitionError(message)
    if first is None:
        return False
    annotation = first.annotation
    if not isinstance(annotation, str):
        return annotation is Context
    path = annotation.strip("'\" ").split(".")
    if path[-1] != "Context":
        return False
    # The name may be imported for type checkers only; then its last part has to do.
    found: Any = getattr(function, "__globals__", {}).get(path[0])
    for part in path[1:]:
        found = getattr(found, part, None)
    return found is None or found is Context
