"""Jobs → OpenTelemetry spans: one where a job is enqueued, one for every run of it.

The trace travels with the job, as a W3C ``traceparent``. Attributes follow the messaging
conventions where there is one that fits. No argument, result or error text goes into a span.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from windlass._version import __version__
from windlass.control import Snooze, Throttled
from windlass.core.job import ClaimedJob, JobId, NewJob
from windlass.errors import ChildError, MissingDependency

try:
    from opentelemetry import trace
    from opentelemetry.context import Context
    from opentelemetry.trace import Link, Span, SpanContext, SpanKind, Status, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError as error:
    raise MissingDependency("app.tracing()", "windlass[otel]") from error

__all__ = ["Tracing"]

_REMEMBERED = 10_000
"""Jobs whose last run is known here, for the link from the next one."""

_W3C = TraceContextTextMapPropagator()


class _Inserted(Protocol):
    @property
    def id(self) -> JobId: ...
    @property
    def created(self) -> bool: ...


R = TypeVar("R", bound=_Inserted)
R_co = TypeVar("R_co", bound=_Inserted, covariant=True)


class _Inserts(Protocol[R_co]):
    async def submit(self, items: Sequence[NewJob], /) -> Sequence[R_co]: ...
    async def idle(self) -> None: ...


class _Run(Protocol):
    """What middleware is given."""

    claimed: ClaimedJob


class Tracing:
    """Makes the spans of one app. It is a middleware (`run`) and a way to the store (`around`)."""

    def __init__(
        self, provider: trace.TracerProvider | None, running: Callable[[], ClaimedJob | None]
    ) -> None:
        """``provider``: None is the one that is set globally. ``running``: the job that the
        calling code is part of.
        """
        self._tracer = trace.get_tracer("windlass", __version__, provider)
        self._running = running
        self._now: dict[JobId, SpanContext] = {}
        """Runs under way: handlers in child processes enqueue from outside of their span."""
        self._before: OrderedDict[JobId, SpanContext] = OrderedDict()
        """The last run of jobs that may be run again."""

    # --- enqueueing ---

    def around(self, inner: _Inserts[R]) -> _Inserts[R]:
        """``inner`` with a span around every call."""
        return _Traced(self, inner)

    def stamp(self, news: Sequence[NewJob]) -> list[NewJob]:
        """Jobs that go into a transaction of the user's, with their trace. The span is of their
        making: how the transaction ends is not known here.
        """
        with self.sending(news) as (_, stamped):
            return stamped

    @contextmanager
    def sending(self, news: Sequence[NewJob]) -> Iterator[tuple[Span, list[NewJob]]]:
        """A span around the storing of ``news``, which carry it."""
        tasks, queues = {new.task for new in news}, {new.queue for new in news}
        attributes: dict[str, str | int] = {
            "messaging.system": "windlass",
            "messaging.operation.name": "enqueue",
            "messaging.operation.type": "send",
        }
        if len(queues) == 1:
            attributes["messaging.destination.name"] = news[0].queue
        if len(tasks) == 1:
            attributes["windlass.task"] = news[0].task
        if len(news) > 1:
            attributes["messaging.batch.message_count"] = len(news)
        span = self._tracer.start_span(
            f"enqueue {news[0].task}" if len(tasks) == 1 else "enqueue",
            context=self._parent(news[0]),
            kind=SpanKind.PRODUCER,
            attributes=attributes,
        )
        # Not the current one: what is stored here is stored together with what others enqueue.
        try:
            carried = _written(span)
            yield (
                span,
                list(news)
                if carried is None
                else [msgspec.structs.replace(new, trace=carried) for new in news],
            )
        except BaseException as error:
            _blame(span, error)
            raise
        finally:
            span.end()

    def _parent(self, new: NewJob) -> Context | None:
        """None: whatever is current, which may be nothing."""
        if trace.get_current_span().get_span_context().is_valid:
            return None
        if new.parent is not None and (run := self._now.get(new.parent)) is not None:
            return trace.set_span_in_context(trace.NonRecordingSpan(run), Context())
        job = self._running()
        return None if job is None else _read(job.trace)

    # --- running ---

    async def run(self, ctx: _Run, call_next: Callable[[], Awaitable[Any]]) -> Any:
        """One run of a job. A part of the trace that it was enqueued in, or the first of one."""
        job = ctx.claimed
        before = self._before.pop(job.claim.job, None)
        with self._tracer.start_as_current_span(
            f"run {job.task}",
            context=_read(job.trace),
            kind=SpanKind.CONSUMER,
            attributes=_attributes(job),
            links=() if before is None else (Link(before, {"windlass.link": "previous run"}),),
            record_exception=False,  # its text may hold what a handler was given
            set_status_on_exception=False,
        ) as span:
            self._now[job.claim.job] = span.get_span_context()
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
                self._now.pop(job.claim.job, None)

    def _remember(self, job: JobId, run: SpanContext) -> None:
        if run.is_valid:
            self._before[job] = run
            if len(self._before) > _REMEMBERED:
                self._before.popitem(last=False)


class _Traced(Generic[R]):
    """A way to the store that is seen."""

    def __init__(self, tracing: Tracing, inner: _Inserts[R]) -> None:
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
    """The kind of an error alone: its text is with the job, where it is looked after."""
    if isinstance(error, ChildError):
        kind = error.kind
    else:
        module = type(error).__module__
        kind = type(error).__qualname__
        kind = kind if module == "builtins" else f"{module}.{kind}"
    span.set_attribute("error.type", kind)
    span.add_event("exception", {"exception.type": kind})
    span.set_status(Status(StatusCode.ERROR, kind))


def _written(span: Span) -> str | None:
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, trace.set_span_in_context(span, Context()))
    return carrier.get("traceparent")


def _read(traceparent: str | None) -> Context:
    """Empty, not the current one, for a job without a trace: a worker belongs to no trace."""
    if traceparent is None:
        return Context()
    return _W3C.extract({"traceparent": traceparent}, Context())
