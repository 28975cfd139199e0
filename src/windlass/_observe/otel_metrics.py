"""Events → OpenTelemetry metrics: the messaging conventions where they fit, our own beside them.

Attributes are queue, task, outcome and the kind of an error, each with an end to its values: no
id, key, tenant or error text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import assert_never

from windlass._core.job.event import (
    Event,
    JobCoalesced,
    JobEnqueued,
    JobMoved,
    QueueCooled,
    WorkerChanged,
)
from windlass._core.job.job import NewJob
from windlass._core.job.state import Verb
from windlass._observe.backlog import FLOW_STATES, STATES, Backlog
from windlass._observe.bus import Bus
from windlass._observe.label_limits import QUEUES, TASKS, LabelNames
from windlass._observe.otel_tracing import error_type, server_of
from windlass._version import __version__
from windlass.errors import MissingDependency

try:
    from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation, get_meter
except ImportError as error:
    raise MissingDependency("app.tracing(meters=...)", "windlass[otel]") from error

__all__ = ["OtelMetrics"]

_KINDS = 100
"""Kinds of errors that have their names."""

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)
"""Seconds, as the conventions want them."""

_ENDS: Mapping[Verb, str] = {
    Verb.SUCCEED: "succeeded",
    Verb.RETRY: "retried",
    Verb.SNOOZE: "snoozed",
    Verb.THROTTLE: "throttled",
    Verb.RELEASE: "released",
    Verb.FAIL: "failed",
    Verb.CANCEL: "cancelled",
}

Attributes = dict[str, str | int]


class OtelMetrics:
    """A listener that counts and times, and what is observed whenever metrics are collected."""

    def __init__(
        self,
        bus: Bus,
        provider: MeterProvider,
        *,
        slots: Callable[[], tuple[int, int]],
        backlog: Backlog,
        url: str,
    ) -> None:
        """``slots``: busy and all, of the workers in this process. ``url``: of the storage."""
        self._server = server_of(url)
        meter = get_meter("windlass", __version__, provider)
        self._queues, self._tasks, self._kinds = (
            LabelNames(QUEUES),
            LabelNames(TASKS),
            LabelNames(_KINDS),
        )
        self._sent = meter.create_counter(
            "messaging.client.sent.messages",
            "{message}",
            "Jobs that this process enqueued, or tried to.",
        )
        self._coalesced = meter.create_counter(
            "windlass.job.coalesced",
            "{job}",
            "Enqueues of this process that a unique key answered with a stored job.",
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", "{message}", "Runs that started in this process."
        )
        self._stored = meter.create_histogram(
            "messaging.client.operation.duration",
            "s",
            "Time to enqueue jobs.",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )
        self._ran = meter.create_histogram(
            "messaging.process.duration",
            "s",
            "Time between start and end of a run.",
            explicit_bucket_boundaries_advisory=_BUCKETS,
        )
        self._waited = meter.create_histogram(
            "windlass.job.wait", "s", "Time between due and start."
        )
        self._ended = meter.create_counter(
            "windlass.run.ended", "{run}", "Runs that ended, by outcome."
        )
        self._missed = meter.create_counter(
            "windlass.run.missed",
            "{run}",
            "Jobs released because this process lacks the task or their arguments do not fit.",
        )
        self._cooled = meter.create_counter(
            "windlass.queue.cooled", "{time}", "Cool-downs that a throttled job started."
        )
        self._observe(meter, slots, backlog)
        bus.subscribe(self)

    def _observe(
        self, meter: Meter, slots: Callable[[], tuple[int, int]], backlog: Backlog
    ) -> None:
        def busy(_: CallbackOptions) -> Iterable[Observation]:
            return [Observation(slots()[0])]

        def total(_: CallbackOptions) -> Iterable[Observation]:
            return [Observation(slots()[1])]

        def jobs(_: CallbackOptions) -> Iterable[Observation]:
            backlog.look_at()
            counts: defaultdict[tuple[str, str], int] = defaultdict(int)
            for row in backlog.rows:
                for state in STATES:
                    counts[self._queues(row["queue"]), state] += row[state]
            return [
                Observation(count, {"messaging.destination.name": queue, "windlass.state": state})
                for (queue, state), count in counts.items()
            ]

        def flows(_: CallbackOptions) -> Iterable[Observation]:
            backlog.look_at()
            numbers = backlog.flows
            return [
                Observation(numbers[state], {"windlass.state": state})
                for state in FLOW_STATES
                if state in numbers
            ]

        def one_of(name: str) -> Callable[[CallbackOptions], Iterable[Observation]]:
            def observed(_: CallbackOptions) -> Iterable[Observation]:
                backlog.look_at()
                return [Observation(backlog.flows[name])] if name in backlog.flows else []

            return observed

        gauge = meter.create_observable_gauge
        gauge("windlass.slots", [total], "{slot}", "Slots of this process's workers.")
        gauge("windlass.slots.busy", [busy], "{slot}", "Slots with a running job.")
        gauge("windlass.jobs", [jobs], "{job}", "Jobs in the store, of all processes.")
        gauge("windlass.flows", [flows], "{flow}", "Flows in the store, of all processes.")
        gauge(
            *("windlass.jobs.blocked", [one_of("blocked")], "{job}"),
            "Jobs that wait for other jobs of their flow.",
        )
        gauge(
            *("windlass.flow.oldest", [one_of("oldest")], "s"),
            "How long the running flow that was started first has run.",
        )

    def __call__(self, event: Event) -> None:
        """Count one event."""
        match event:
            case JobEnqueued():
                self._sent.add(1, self._of(event.queue, event.task, "enqueue"))
            case JobCoalesced():
                self._coalesced.add(1, self._of(event.queue, event.task, "enqueue"))
            case JobMoved(verb=Verb.CLAIM):
                told = self._of(event.queue, event.task, "run")
                self._consumed.add(1, told)
                if event.waited is not None:
                    self._waited.record(max(event.waited.total_seconds(), 0.0), told)
            case JobMoved() if event.worker and event.verb in _ENDS:
                self._run_ended(event)
            case QueueCooled():
                self._cooled.add(1, {"messaging.destination.name": self._queues(event.queue)})
            case JobMoved() | WorkerChanged():
                pass  # an order, which no run answers for, or said in the log
            case _:
                assert_never(event)

    def sent(self, news: Sequence[NewJob], seconds: float, error: BaseException | None) -> None:
        """Time one attempt to store jobs, and count those that it failed to store."""
        told: Attributes = {**_operation("enqueue"), **self._server}
        if len({new.queue for new in news}) == 1:
            told["messaging.destination.name"] = self._queues(news[0].queue)
        failed = {} if error is None else {"error.type": self._kinds(error_type(error))}
        self._stored.record(seconds, {**told, **failed})
        if error is not None:
            for new in news:
                self._sent.add(1, {**self._of(new.queue, new.task, "enqueue"), **failed})

    def _run_ended(self, event: JobMoved) -> None:
        told = self._of(event.queue, event.task, "run")
        self._ended.add(1, {**told, "windlass.outcome": _ENDS[event.verb]})
        if event.missed:
            self._missed.add(1, told)
        if event.error is not None and event.verb in (Verb.RETRY, Verb.FAIL):
            told["error.type"] = self._kinds(event.error.kind)
        if event.ran is not None:
            self._ran.record(max(event.ran.total_seconds(), 0.0), told)

    def _of(self, queue: str, task: str, operation: str) -> Attributes:
        return {
            **_operation(operation),
            **self._server,
            "messaging.destination.name": self._queues(queue),
            "windlass.task": self._tasks(task),
        }


def _operation(name: str) -> Attributes:
    return {
        "messaging.system": "windlass",
        "messaging.operation.name": name,
        "messaging.operation.type": "send" if name == "enqueue" else "process",
    }
