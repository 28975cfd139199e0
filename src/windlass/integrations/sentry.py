"""Sentry: report failed jobs with their stack, and make a transaction of each run.

Argument values that are secret by type, name or appearance are masked in everything that is sent
from inside a run.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import msgspec

from windlass._app.app import Windlass
from windlass._app.parts import parts_of
from windlass._client.inserter import Inserter
from windlass._core.job.control import Snooze, Throttled
from windlass._core.job.event import Event, JobMoved
from windlass._core.job.job import ClaimedJob, JobId, NewJob
from windlass._core.job.state import Verb
from windlass._core.values.redaction import (
    looks_secret,
    redacted_json,
    redacted_value,
    secret_names,
)
from windlass._core.values.trace_context import decode_trace, encode_trace, merge_traces
from windlass._observe.current_run import job_fields, secrets_of_run
from windlass._storage.protocol.jobs import Inserted
from windlass._tasks.context import CallNext, Context
from windlass.errors import MissingDependency

try:
    import sentry_sdk
    from sentry_sdk.integrations.logging import ignore_logger
    from sentry_sdk.scope import Scope, use_isolation_scope
    from sentry_sdk.utils import event_from_exception
except ImportError as _missing:
    raise MissingDependency("windlass.integrations.sentry", "windlass[sentry]") from _missing

if TYPE_CHECKING:
    from sentry_sdk._types import Event as SentryEvent
    from sentry_sdk._types import Hint
    from sentry_sdk.tracing import Transaction

__all__ = ["init_app"]

_ORIGIN = "auto.queue.windlass"
_REMEMBERED = 1_000
"""Runs that raised and whose outcome is not stored yet."""
_MOST_ITEMS, _MOST_OF_A_VARIABLE = 1_000, 20
"""Items of a container that are sent: of an event's parts, and of a local variable."""
_MASK = "***"
_TEXTS = ("exception", "threads", "logentry", "message", "breadcrumbs", "extra", "contexts")
"""Parts of an event that can hold what a handler was given."""


def init_app(app: Windlass, *, retries: bool = False, arguments: bool = True) -> None:
    """Connect ``app`` to Sentry. Call it beside ``sentry_sdk.init(…)``, in every process.

    A job that fails for good is one event, with the stack of its last attempt. ``retries``: report
    attempts that are retried, too, as warnings. ``arguments``: send the job's arguments, with
    secrets masked.
    """
    parts = parts_of(app)
    if any(isinstance(layer, _SentryRuns) for layer in parts.hooks.layers):
        return
    ignore_logger("windlass.jobs")  # each failure would be two events
    runs = _SentryRuns(retries=retries, arguments=arguments)
    parts.hooks.layers.insert(0, runs)  # around other middleware, whose errors are the job's
    parts.hooks.bus.subscribe(runs.hear)
    parts.observability.add_tracer(_EnqueueTraces())


class _RaisedError(NamedTuple):
    """An exception of a run, and the scope that it was raised in."""

    claim_number: int
    error: BaseException
    scope: Scope


class _SentryRuns:
    """A middleware that makes a transaction of each run, and a listener that reports failures.

    The middleware sees the exception, and the listener hears whether the job is retried.
    """

    def __init__(self, *, retries: bool, arguments: bool) -> None:
        self._retries = retries
        self._arguments = arguments
        self._raised: OrderedDict[JobId, _RaisedError] = OrderedDict()

    async def __call__(self, ctx: Context, call_next: CallNext) -> Any:
        """Run a job inside a transaction."""
        if not sentry_sdk.get_client().is_active():
            return await call_next()
        job = ctx.claimed
        with sentry_sdk.isolation_scope() as scope:
            scope.clear_breadcrumbs()
            self._describe(scope, job)
            transaction = _transaction_of(job)
            result: Any = None
            failed: BaseException | None = None
            with sentry_sdk.start_transaction(transaction):
                # Raised again below: leaving the block with it would make an error of a snooze.
                try:
                    result = await call_next()
                except BaseException as error:  # noqa: BLE001
                    failed = error
                transaction.set_status(_ending_of(failed))
            if failed is None:
                return result
            self._remember(job, failed, scope)
            raise failed

    def _describe(self, scope: Scope, job: ClaimedJob) -> None:
        scope.set_tags({"windlass.task": job.task, "windlass.queue": job.queue})
        described: dict[str, Any] = {
            **job_fields(job),
            "max_attempts": job.max_attempts,
            "worker": job.worker,
        }
        secrets = secrets_of_run(job)
        if self._arguments and job.payload:
            masked = redacted_json(job.payload, secret_names(job.tags), secrets)
            described["arguments"] = msgspec.json.decode(masked)
        scope.set_context("windlass", described)
        scope.add_event_processor(_EventScrubber(secret_names(job.tags), secrets))

    def _remember(self, job: ClaimedJob, error: BaseException, scope: Scope) -> None:
        if isinstance(error, Snooze | Throttled | asyncio.CancelledError):
            return
        self._raised[job.claim.job] = _RaisedError(job.claim.number, error, scope)
        if len(self._raised) > _REMEMBERED:
            self._raised.popitem(last=False)

    def hear(self, event: Event) -> None:
        """Report a run whose outcome was stored, if it failed."""
        if not isinstance(event, JobMoved) or not event.worker or event.verb is Verb.CLAIM:
            return
        raised = self._raised.pop(event.job, None)
        if event.verb is not Verb.FAIL and not (self._retries and event.verb is Verb.RETRY):
            return
        client = sentry_sdk.get_client()
        if not client.is_active():
            return
        told: SentryEvent
        hint: Hint
        mechanism = {"type": "windlass", "handled": False}
        if raised is not None and raised.claim_number == event.claim_number:
            told, hint = event_from_exception(
                raised.error, client_options=client.options, mechanism=mechanism
            )
            scope = raised.scope
        else:  # a timeout, a worker that died: there is no exception here
            told, hint = _event_without_exception(event, mechanism), {}
            scope = Scope.get_isolation_scope().fork()
            if isinstance(event.record, ClaimedJob):
                self._describe(scope, event.record)
        told["level"] = "error" if event.verb is Verb.FAIL else "warning"
        told["transaction"] = event.task
        with use_isolation_scope(scope):
            sentry_sdk.capture_event(told, hint)


def _event_without_exception(moved: JobMoved, mechanism: dict[str, Any]) -> SentryEvent:
    error = moved.error
    kind, message = ("Failed", "") if error is None else (error.kind, error.message)
    told: SentryEvent = {
        "exception": {"values": [{"type": kind, "value": message, "mechanism": mechanism}]}
    }
    if error is not None and error.traceback:
        told["extra"] = {"traceback": error.traceback}
    return told


def _transaction_of(job: ClaimedJob) -> Transaction:
    transaction = sentry_sdk.continue_trace(
        _headers_of(job), op="queue.process", name=job.task, source="task", origin=_ORIGIN
    )
    transaction.set_data("messaging.system", "windlass")
    transaction.set_data("messaging.destination.name", job.queue)
    transaction.set_data("messaging.message.id", job.claim.job)
    transaction.set_data("messaging.message.retry.count", job.attempt - 1)
    return transaction


def _ending_of(error: BaseException | None) -> str:
    match error:
        case None | Snooze() | Throttled():
            return "ok"
        case asyncio.CancelledError():
            return "cancelled"
        case _:
            return "internal_error"


class _EventScrubber:
    """Masks the secrets of one job in each event that is sent from inside its run."""

    def __init__(self, names: frozenset[str], values: Sequence[str]) -> None:
        self._names = names
        self._values = values

    def __call__(self, event: SentryEvent, _hint: Hint) -> SentryEvent:
        parts = cast("dict[str, Any]", event)
        try:
            self._scrub(parts)
        except Exception as error:  # noqa: BLE001 -- Sentry would send the event as it was
            for part in (*_TEXTS, "spans"):
                parts.pop(part, None)
            parts["message"] = f"Windlass removed this text: masking raised {type(error).__name__}"
        return event

    def _scrub(self, parts: dict[str, Any]) -> None:
        for kind in ("exception", "threads"):
            for one in _items(parts.get(kind)):
                for frame in (one.get("stacktrace") or {}).get("frames", ()):
                    if isinstance(frame.get("vars"), dict):
                        frame["vars"] = self._variables(frame["vars"])
        for part in (*_TEXTS, "spans"):
            if part in parts:
                parts[part] = redacted_value(_plain(parts[part]), self._values)

    def _variables(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return local variables as plain values: an object could hide a secret anywhere."""
        return {
            name: _MASK
            if name in self._names or looks_secret(name)
            else redacted_value(_plain(value, _MOST_OF_A_VARIABLE), self._values)
            for name, value in variables.items()
        }


def _items(part: Any) -> list[dict[str, Any]]:
    found = part.get("values") if isinstance(part, dict) else part
    return list(found or ())


def _plain(value: Any, most: int = _MOST_ITEMS) -> Any:
    """Return the same as values of JSON and instants; any other object as text.

    Of a container, the first ``most`` items. Texts keep their whole length: a secret that is cut
    would not be found.
    """
    match value:
        case None | str() | bool() | int() | float() | datetime():
            return value
        case dict():
            return {str(name): _plain(part, most) for name, part in islice(value.items(), most)}
        case list() | tuple() | set() | frozenset():
            return [_plain(part, most) for part in islice(value, most)]
        case _:
            try:
                return repr(value)
            except Exception as error:  # noqa: BLE001 -- a user's __repr__
                return f"<{type(value).__name__}: its repr raised {type(error).__name__}>"


# --- enqueueing ---


class _EnqueueTraces:
    """Gives jobs the Sentry trace that they are enqueued in, so that their runs are part of it."""

    def around(self, inner: Inserter, /) -> Inserter:
        return _SentryInserter(self, inner)

    def stamp(self, news: Sequence[NewJob], /) -> list[NewJob]:
        if not sentry_sdk.get_client().is_active():
            return list(news)
        trace, baggage = sentry_sdk.get_traceparent(), sentry_sdk.get_baggage()
        if not trace:
            return list(news)
        mine = encode_trace({"sentry-trace": trace} | ({_BAGGAGE: baggage} if baggage else {}))
        if mine is None:
            return list(news)
        return [msgspec.structs.replace(new, trace=merge_traces(new.trace, mine)) for new in news]


_BAGGAGE = "sentry-baggage"
"""Not ``baggage``: OpenTelemetry writes that one."""


def _headers_of(job: ClaimedJob) -> dict[str, str]:
    carrier = decode_trace(job.trace)
    return {
        **{name: carrier[name] for name in ("sentry-trace",) if name in carrier},
        **({"baggage": carrier[_BAGGAGE]} if _BAGGAGE in carrier else {}),
    }


class _SentryInserter:
    """A way to the store with a span around it, if the caller is inside one."""

    def __init__(self, traces: _EnqueueTraces, inner: Inserter) -> None:
        self._traces = traces
        self._inner = inner

    async def submit(self, items: Sequence[NewJob], /) -> Sequence[Inserted]:
        if not items or sentry_sdk.get_current_span() is None:
            return await self._inner.submit(self._traces.stamp(items))
        queues = {new.queue for new in items}
        with sentry_sdk.start_span(op="queue.publish", name=items[0].task, origin=_ORIGIN) as span:
            span.set_data("messaging.system", "windlass")
            span.set_data("messaging.batch.message_count", len(items))
            if len(queues) == 1:
                span.set_data("messaging.destination.name", items[0].queue)
            return await self._inner.submit(self._traces.stamp(items))

    async def idle(self) -> None:
        await self._inner.idle()
