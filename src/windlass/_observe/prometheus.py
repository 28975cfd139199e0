"""Events → Prometheus metrics, with labels that cannot grow without end.

Labels are queue, task and outcome, nothing else: no id, key, tenant or error text. The store is
read when a scraper asks, on a separate thread, and not often.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, assert_never

from windlass._core.job.event import (
    Event,
    JobCoalesced,
    JobEnqueued,
    JobMoved,
    QueueCooled,
    WorkerChanged,
)
from windlass._core.job.state import Verb
from windlass._observe.backlog import FLOW_STATES, STATES, Backlog, Look, Rows
from windlass._observe.bus import Bus
from windlass._observe.label_limits import OTHER, QUEUES, TASKS, LabelNames
from windlass.errors import ConfigError, MissingDependency

try:
    from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
    from prometheus_client.core import GaugeMetricFamily, Metric
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.registry import Collector
except ImportError as error:
    raise MissingDependency("app.metrics()", "windlass[metrics]") from error

__all__ = ["OTHER", "Metrics"]

_PAIRS = 1000

_BUCKETS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0),
)

_ENDS: Mapping[Verb, str] = {
    Verb.SUCCEED: "succeeded",
    Verb.RETRY: "retried",
    Verb.SNOOZE: "snoozed",
    Verb.THROTTLE: "throttled",
    Verb.RELEASE: "released",
    Verb.FAIL: "failed",
    Verb.CANCEL: "cancelled",
}
_ORDERS: Mapping[Verb, str] = {
    Verb.CANCEL: "cancelled",
    Verb.EXPIRE: "expired",
    Verb.REQUEUE: "requeued",
    Verb.DISCARD: "discarded",
}
_EXPECTED = ("succeeded", "failed")
"""Outcomes that a registered task has a series of before its first run."""
_QUEUE_GAUGES: Mapping[str, tuple[str, str]] = {
    "paused": ("paused", "1 while the queue is paused."),
    "cooling": ("cooling", "1 while the queue is cooling down after a throttled job."),
    "max_running": ("max_running", "Jobs of the queue that may run at once, over all workers."),
    "workers": ("workers", "Live workers that serve the queue."),
    "retrying": (
        "retrying",
        "Jobs that wait for another attempt. They are also counted as ready or scheduled.",
    ),
    "lag": ("lag_seconds", "How long the job that is ready for longest has waited; 0: none is."),
}
"""By the name in a row of the backlog: the metric, and its help."""

_FLOW_GAUGES: Mapping[str, tuple[str, str]] = {
    "blocked": (
        "jobs_blocked",
        "Jobs that wait for other jobs of their flow. They are also counted as scheduled.",
    ),
    "oldest": (
        "flow_oldest_seconds",
        "How long the running flow that was started first has run; 0: none runs.",
    ),
}


class Metrics:
    """A listener that counts and times, and what a scrape is answered with."""

    def __init__(
        self,
        bus: Bus,
        registry: CollectorRegistry | None,
        *,
        slots: Callable[[], tuple[int, int]],
        look: Look,
        start: Callable[[Coroutine[Any, Any, object]], None],
        tasks: Callable[[], Iterable[tuple[str, str]]] = tuple,
    ) -> None:
        """``slots``: busy and all. ``look`` reads the store, ``start`` runs that in background.
        ``tasks``: the queue and name of every registered task.
        """
        self.registry: CollectorRegistry = REGISTRY if registry is None else registry
        self._queues, self._tasks = LabelNames(QUEUES), LabelNames(TASKS)
        self._known: dict[tuple[str, str], _TaskMetrics] = {}
        self._backlog = Backlog(look, start)
        self._registered = tasks
        try:
            # First: a scrape collects in this order, and it makes the series of new tasks.
            self.registry.register(
                _ScrapeState(slots, self._backlog, self._queues, self._expect_tasks)
            )
            self._families = _Families(self.registry)
        except ValueError as error:
            message = (
                "this registry holds the metrics of another Windlass app: give each app one of its "
                "own, app.metrics(registry=CollectorRegistry())"
            )
            raise ConfigError(message) from error
        bus.subscribe(self)

    def __call__(self, event: Event) -> None:
        """Count one event."""
        match event:
            case JobMoved(verb=Verb.CLAIM):
                series = self._series(event.queue, event.task)
                series.started.inc()
                if event.waited is not None:
                    series.waited.observe(max(event.waited.total_seconds(), 0.0))
            case JobMoved() if event.verb in _ENDS and (event.worker or event.verb not in _ORDERS):
                series = self._series(event.queue, event.task)
                series.ended(_ENDS[event.verb])
                if event.missed:
                    series.missed()
                if event.ran is not None:
                    series.ran.observe(max(event.ran.total_seconds(), 0.0))
            case JobMoved():
                self._series(event.queue, event.task).ordered(_ORDERS[event.verb])
            case JobEnqueued():
                self._series(event.queue, event.task).enqueued.inc()
            case JobCoalesced():
                self._series(event.queue, event.task).coalesced()
            case QueueCooled():
                self._families.cooled.labels(self._queues(event.queue)).inc()
            case WorkerChanged():
                pass  # said in the log, with names that are no labels
            case _:
                assert_never(event)

    def _expect_tasks(self) -> None:
        """Make the series of registered tasks: a rate needs their zero before the first run."""
        for queue, task in self._registered():
            if (queue, task) not in self._known and len(self._known) < _PAIRS:
                self._series(queue, task).expect()

    def _series(self, queue: str, task: str) -> _TaskMetrics:
        series = self._known.get((queue, task))
        if series is not None:
            return series
        labels = (self._queues(queue), self._tasks(task))
        if len(self._known) < _PAIRS:
            series = self._known[queue, task] = _TaskMetrics(self._families, labels)
            return series
        if labels not in self._known:
            labels = (OTHER, OTHER)
        if labels not in self._known:
            self._known[labels] = _TaskMetrics(self._families, labels)
        return self._known[labels]

    async def page(self, accept: str = "") -> tuple[bytes, str]:
        """Return the page for a scraper, and its content type."""
        await self._backlog.looked_at()
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type


class _Families:
    """The counters and timers."""

    def __init__(self, registry: CollectorRegistry) -> None:
        job = ("queue", "task")

        def counter(name: str, says: str, labels: Sequence[str]) -> Counter:
            return Counter(f"windlass_{name}", says, labels, registry=registry)

        def timer(name: str, says: str) -> Histogram:
            return Histogram(
                f"windlass_{name}_seconds", says, job, registry=registry, buckets=_BUCKETS
            )

        self.enqueued = counter("jobs_enqueued", "Jobs that this process enqueued.", job)
        self.coalesced = counter(
            "jobs_coalesced",
            "Enqueues of this process that a unique key answered with a stored job.",
            job,
        )
        self.started = counter("runs_started", "Runs that started in this process.", job)
        self.ended = counter("runs_ended", "Runs that ended, by outcome.", (*job, "outcome"))
        self.ordered = counter(
            "jobs_ordered",
            "Jobs changed by an operator or a program while they did not run.",
            (*job, "outcome"),
        )
        self.missed = counter(
            "runs_missed",
            "Jobs released because this process lacks the task or their arguments do not fit.",
            job,
        )
        self.cooled = counter(
            "queue_cooled", "Cool-downs that a throttled job started.", ("queue",)
        )
        self.waited = timer("job_wait", "Seconds between due and start.")
        self.ran = timer("job_run", "Seconds between start and end of a run.")


class _TaskMetrics:
    """The metrics of one task on one queue, found once."""

    def __init__(self, families: _Families, labels: tuple[str, str]) -> None:
        self._families = families
        self._labels = labels
        self.enqueued = families.enqueued.labels(*labels)
        self.started = families.started.labels(*labels)
        self.waited = families.waited.labels(*labels)
        self.ran = families.ran.labels(*labels)
        self._ended: dict[str, Counter] = {}

    def expect(self) -> None:
        """Show the outcomes that are counted most at zero."""
        for outcome in _EXPECTED:
            self._outcome(outcome)

    def ended(self, outcome: str) -> None:
        self._outcome(outcome).inc()

    def _outcome(self, outcome: str) -> Counter:
        child = self._ended.get(outcome)
        if child is None:
            child = self._ended[outcome] = self._families.ended.labels(*self._labels, outcome)
        return child

    def coalesced(self) -> None:
        self._families.coalesced.labels(*self._labels).inc()

    def missed(self) -> None:
        self._families.missed.labels(*self._labels).inc()

    def ordered(self, outcome: str) -> None:
        self._families.ordered.labels(*self._labels, outcome).inc()


class _ScrapeState(Collector):
    """How things stand at the moment of a scrape."""

    def __init__(
        self,
        slots: Callable[[], tuple[int, int]],
        backlog: Backlog,
        names: LabelNames,
        before: Callable[[], None],
    ) -> None:
        """``before`` is called at the start of each scrape."""
        self._slots = slots
        self._backlog = backlog
        self._names = names
        self._before = before

    def describe(self) -> Iterator[Metric]:
        """Yield the same without looking anywhere: asked when it is registered."""
        yield from self._of_process(0, 0)
        yield from self._of_queues(())
        yield from self._of_flows({})

    def collect(self) -> Iterator[Metric]:
        self._before()
        yield from self._of_process(*self._slots())
        self._backlog.look_at()
        yield from self._of_queues(self._backlog.rows)
        yield from self._of_flows(self._backlog.flows)

    def _of_process(self, busy: int, total: int) -> Iterator[Metric]:
        yield GaugeMetricFamily("windlass_slots", "Slots of this process's workers.", total)
        yield GaugeMetricFamily("windlass_slots_busy", "Slots with a running job.", busy)

    def _of_queues(self, rows: Rows) -> Iterator[Metric]:
        jobs: dict[tuple[str, str], int] = defaultdict(int)
        holds: dict[str, dict[str, float]] = {what: {} for what in _QUEUE_GAUGES}
        for row in rows:
            queue = self._names(row["queue"])
            for state in STATES:
                jobs[queue, state] += row[state]
            for what, values in holds.items():
                if queue != OTHER and row.get(what) is not None:
                    values[queue] = float(row[what])
        family = GaugeMetricFamily(
            "windlass_jobs", "Jobs in the store, of all processes.", labels=("queue", "state")
        )
        for labels, count in jobs.items():
            family.add_metric(labels, count)
        yield family
        for what, (name, says) in _QUEUE_GAUGES.items():
            family = GaugeMetricFamily(f"windlass_queue_{name}", says, labels=("queue",))
            for queue, value in holds[what].items():
                family.add_metric((queue,), value)
            yield family

    def _of_flows(self, numbers: Mapping[str, float]) -> Iterator[Metric]:
        by_state = GaugeMetricFamily(
            "windlass_flows", "Flows in the store, of all processes.", labels=("state",)
        )
        for state in FLOW_STATES:
            if state in numbers:
                by_state.add_metric((state,), numbers[state])
        yield by_state
        for what, (name, says) in _FLOW_GAUGES.items():
            family = GaugeMetricFamily(f"windlass_{name}", says)
            if what in numbers:
                family.add_metric((), numbers[what])
            yield family
