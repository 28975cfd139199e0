"""Jobs → OpenTelemetry spans: one where a job is enqueued, one for every run of it.

The trace travels with the job, as the propagator that is set globally writes it. Names and
attributes follow the messaging conventions. No argument, result or error text goes into a span.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, Literal, Protocol, TypeVar
from urllib.parse import urlsplit

import msgspec

from windlass._core.job.control import Snooze, Throttled
from windlass._core.job.job import ClaimedJob, JobId, NewJob
from windlass._core.values.trace_context import decode_trace, encode_trace, merge_traces
from windlass._observe.current_run import CARRIED
from windlass._system.seams import monotonic
from windlass._version import __version__
from windlass.errors import ChildError, MissingDependency

try:
    from opentelemetry import propagate, trace
    from opentelemetry.context import Context, attach, detach, get_current
    from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode
except ImportError as error:
    raise MissingDependency("app.tracing()", "windlass[otel]") from error

__all__ = [
    "Tracing",
    "attach_context",
    "error_type",
    "extract_context",
    "inject_context",
    "server_of",
]

_REMEMBERED = 10_000
"""Jobs whose last run is known here, for the link from the next one."""

Sent = Callable[[Sequence[NewJob], float, BaseException | None], None]
"""Hears of every attempt to store jobs: which, the seconds it took, and the error if it failed."""


class _InsertAnswer(Protocol):
    @property
    def id(self) -> JobId: ...
    @property
    def created(self) -> bool: ...


R = TypeVar("R", bound=_InsertAnswer)
R_co = TypeVar("R_co", bound=_InsertAnswer, covariant=True)


class _JobInserts(Protocol[R_co]):
    async def submit(self, items: Sequence[NewJob], /) -> Sequence[R_co]: ...
    async def idle(self) -> None: ...


class _TracedRun(Protocol):
    """The values that middleware gets."""

    @property
    def claimed(self) -> ClaimedJob: ...


class Tracing:
    """Makes the spans of one app. It is a middleware (`run`) and a way to the store (`around`)."""

    def __init__(
        self,
        provider: trace.TracerProvider | None,
        running: Callable[[], ClaimedJob | None],
        url: str,
    ) -> None:
        """Make it. ``provider``: None is the one that is set globally. ``running``: the job that
        the calling code is part of. ``url``: of the storage.
        """
        self._server = server_of(url)
        self._tracer = trace.get_tracer("windlass", __version__, provider)
        self._running = running
        self._sent: Sent | None = None
        self._now: dict[JobId, Context] = {}
        """Runs under way: handlers in child processes enqueue from outside of their span."""
        self._before: OrderedDict[JobId, SpanContext] = OrderedDict()
        """The last run of jobs that may be run again."""

    def tell_sent(self, sent: Sent) -> None:
        """Tell ``sent`` of every attempt to store jobs."""
        self._sent = sent

    # --- enqueueing ---

    def around(self, inner: _JobInserts[R]) -> _JobInserts[R]:
        """``inner`` with a span around every call."""
        return _Traced(self, inner)

    def stamp(self, news: Sequence[NewJob]) -> list[NewJob]:
        """Return jobs for a transaction of the user's, with their trace. The span ends before the
        transaction: its end is not known here.
        """
        with self.sending(news, "create") as (_, stamped):
            return stamped

    @contextmanager
    def sending(
        self, news: Sequence[NewJob], operation: Literal["send", "create"] = "send"
    ) -> Iterator[tuple[Span, list[NewJob]]]:
        """Open a span around the storing of ``news``, which carry it."""
        tasks, queues = {new.task for new in news}, {new.queue for new in news}
        attributes: dict[str, str | int] = {
            "messaging.system": "windlass",
            "messaging.operation.name": "enqueue",
            "messaging.operation.type": operation,
            **self._server,
        }
        if len(queues) == 1:
            attributes["messaging.destination.name"] = news[0].queue
        if len(tasks) == 1:
            attributes["windlass.task"] = news[0].task
        if len(news) > 1:
            attributes["messaging.batch.message_count"] = len(news)
        around = self._around(news[0])
        began = monotonic()
        span = self._tracer.start_span(
            f"enqueue {news[0].queue}" if len(queues) == 1 else "enqueue",
            context=around,
            kind=SpanKind.PRODUCER,
            attributes=attributes,
        )
        failed: BaseException | None = None
        # Not the current one: what is stored here is stored together with what others enqueue.
        try:
            text = inject_context(trace.set_span_in_context(span, around))
            yield (
                span,
                list(news)
                if text is None
                else [
                    msgspec.structs.replace(new, trace=merge_traces(new.trace, text))
                    for new in news
                ],
            )
        except BaseException as error:
            failed = error
            _blame(span, error)
            raise
        finally:
            span.end()
            if self._sent is not None and operation == "send":
                self._sent(news, monotonic() - began, failed)

    def _around(self, new: NewJob) -> Context:
        """Return the context that a job is enqueued in."""
        current = get_current()
        if trace.get_current_span(current).get_span_context().is_valid:
            return current
        if new.parent is not None and (run := self._now.get(new.parent)) is not None:
            return run
        job = self._running()
        return current if job is None else extract_context(job.trace)

    # --- running ---

    async def run(self, ctx: _TracedRun, call_next: Callable[[], Awaitable[Any]]) -> Any:
        """Trace one run of a job, as a part of the trace that it was enqueued in, or the first of
        one.
        """
        job = ctx.claimed
        made = extract_context(job.trace)  # not the worker's own, which belongs to no trace
        token = attach(made)
        try:
            return await self._run(job, made, call_next)
        finally:
            detach(token)

    async def _run(
        self, job: ClaimedJob, made: Context, call_next: Callable[[], Awaitable[Any]]
    ) -> Any:
        before = self._before.pop(job.claim.job, None)
        creation = trace.get_current_span(made).get_span_context()
        links = [Link(creation)] if creation.is_valid else []
        if before is not None:
            links.append(Link(before, {"windlass.link": "previous run"}))
        with self._tracer.start_as_current_span(
            f"run {job.queue}",
            kind=SpanKind.CONSUMER,
            attributes={**_attributes(job), **self._server},
            links=links,
            record_exception=False,  # its text may hold what a handler was given
            set_status_on_exception=False,
        ) as span:
            self._now[job.claim.job] = get_current()
            carrying = CARRIED.set(inject_context)
            try:
                value = await call_next()
            except BaseException as error:
                span.set_attribute("windlass.outcome", _outcome(error))
                if not isinstance(error, Snooze | Throttled | asyncio.CancelledError):
                    _blame(span, error)
                self._remember(job.claim.job, span.get_span_context())
                raise
            else:
                span.set_attribute("windlass.outcome", "returned")
                return value
            finally:
                CARRIED.reset(carrying)
                self._now.pop(job.claim.job, None)

    def _remember(self, job: JobId, run: SpanContext) -> None:
        if run.is_valid:
            self._before[job] = run
            if len(self._before) > _REMEMBERED:
                self._before.popitem(last=False)


class _Traced(Generic[R]):
    """A way to the store that is seen."""

    def __init__(self, tracing: Tracing, inner: _JobInserts[R]) -> None:
        self._tracing = tracing
        self._inner = inner

    async def submit(self, items: Sequence[NewJob], /) -> Sequence[R]:
        if not items:
            return await self._inner.submit(items)
        with self._tracing.sending(items) as (span, stamped):
            replies = await self._inner.submit(stamped)
            if len(replies) == 1:
                span.set_attribute("messaging.message.id", replies[0].id)
                if not replies[0].created:
                    span.set_attribute("windlass.reused", True)  # noqa: FBT003 -- their signature
            return replies

    async def idle(self) -> None:
        await self._inner.idle()


def _attributes(job: ClaimedJob) -> dict[str, str | int]:
    attributes: dict[str, str | int] = {
        "messaging.system": "windlass",
        "messaging.operation.name": "run",
        "messaging.operation.type": "process",
        "messaging.destination.name": job.queue,
        "messaging.message.id": job.claim.job,
        "messaging.client.id": job.worker,
        "windlass.task": job.task,
        "windlass.attempt": job.attempt,
        "windlass.max_attempts": job.max_attempts,
        "windlass.claim_number": job.claim.number,
    }
    if job.correlation_id is not None:
        attributes["messaging.message.conversation_id"] = job.correlation_id
    return attributes


def _outcome(error: BaseException) -> str:
    match error:
        case Snooze():
            return "snoozed"
        case Throttled():
            return "throttled"
        case asyncio.CancelledError():
            return "interrupted"
        case _:
            return "raised"


def _blame(span: Span, error: BaseException) -> None:
    """Set the kind of an error alone: its text is with the job, where it is redacted."""
    kind = error_type(error)
    span.set_attribute("error.type", kind)
    span.add_event("exception", {"exception.type": kind})
    span.set_status(Status(StatusCode.ERROR, kind))


def error_type(error: BaseException) -> str:
    """Return the full name of its class, the child's word for one that was raised there."""
    if isinstance(error, ChildError):
        return error.kind
    module, kind = type(error).__module__, type(error).__qualname__
    return kind if module == "builtins" else f"{module}.{kind}"


def server_of(url: str) -> dict[str, str | int]:
    """``server.address`` and ``server.port`` of a storage that is one server of a network."""
    parts = urlsplit(url)
    if parts.scheme in {"memory", "sqlite", "unix"} or "," in parts.netloc:
        return {}
    try:
        host, port = parts.hostname, parts.port
    except ValueError:  # no port: opening says so
        return {}
    told: dict[str, str | int] = {}
    if host:
        told["server.address"] = host
        if port:
            told["server.port"] = port
    return told


def inject_context(context: Context | None = None) -> str | None:
    """Return a context, by default the current one, as a job or a child process can carry it."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier, context)
    return encode_trace(carrier)


def extract_context(text: str | None) -> Context:
    """Return the context that `inject_context` made a text of. Empty, not the current one, for
    None.
    """
    carrier = decode_trace(text)
    return propagate.extract(carrier, Context()) if carrier else Context()


def attach_context(text: str) -> None:
    """Make the context of ``text`` the current one, in a context of contextvars that ends with
    what it is made for.
    """
    attach(extract_context(text))
    CARRIED.set(inject_context)
