"""The log of an app's workers, and its metrics and spans once they are switched on."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from windlass._client.client import Client
from windlass._client.connections import Connections
from windlass._client.inserter import Inserter
from windlass._core.job.job import NewJob
from windlass._settings.settings import Settings
from windlass._storage.protocol.flows import FlowCounts
from windlass._tasks.context import running_job
from windlass._tasks.hooks import Hooks
from windlass._tasks.registry import TaskRegistry
from windlass.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider
    from prometheus_client import CollectorRegistry

    from windlass._observe.backlog import StoreNumbers
    from windlass._observe.otel_metrics import OtelMetrics
    from windlass._observe.otel_tracing import Tracing
    from windlass._observe.prometheus import Metrics
    from windlass._worker.worker import Worker

__all__ = ["EnqueueTracer", "Observability"]

_MOST_FLOWS = 100_000
"""Flows of a state, and blocked jobs, that a scrape counts."""


class EnqueueTracer(Protocol):
    """Gives jobs the trace that they are enqueued in."""

    def around(self, inner: Inserter, /) -> Inserter:
        """Return ``inner``, with a trace for each job that it stores."""
        ...

    def stamp(self, news: Sequence[NewJob], /) -> list[NewJob]:
        """Return jobs for a user's transaction, with their trace."""
        ...


class Observability:
    """One app's log, metrics and spans."""

    def __init__(
        self,
        connections: Connections,
        hooks: Hooks,
        tasks: TaskRegistry,
        start: Callable[[Coroutine[Any, Any, object]], None],
        settings: Settings,
    ) -> None:
        """Start with nothing switched on. ``start`` runs work in the background."""
        self._connections = connections
        self._bus = hooks.bus
        self._layers = hooks.layers
        self._start = start
        self._tasks = tasks
        self._url = settings.url
        self._default_queue = settings.default_queue
        self.working: set[Worker] = set()
        """The workers of this process."""
        self._unlog: Callable[[], None] | None = None
        self.measured: Metrics | None = None
        self._metered: OtelMetrics | None = None
        self._tracing: Tracing | None = None
        self._tracers: list[EnqueueTracer] = []

    def enter(self, worker: Worker) -> None:
        """Log the events of a worker. One log handler serves all workers of this process."""
        from windlass._observe.log import EventLog  # noqa: PLC0415 -- only workers need it

        self.working.add(worker)
        if self._unlog is None and not self._bus.has(EventLog):
            self._unlog = self._bus.subscribe(EventLog(), wants_all=EventLog.wants_all)

    def leave(self, worker: Worker) -> None:
        """Note that a worker has ended."""
        self.working.discard(worker)
        if not self.working and self._unlog is not None:
            self._unlog()
            self._unlog = None

    def metrics(self, registry: CollectorRegistry | None) -> Metrics:
        """Switch metrics on, or find them switched on."""
        from windlass._observe.prometheus import Metrics  # noqa: PLC0415 -- an extra

        if self.measured is None:
            self.measured = Metrics(
                self._bus,
                registry,
                slots=self._slots,
                look=self._look,
                start=self._start,
                tasks=self._registered,
            )
        elif registry is not None and registry is not self.measured.registry:
            raise ConfigError("app.metrics() was called before, with another registry")
        return self.measured

    def trace(self, provider: TracerProvider | None) -> None:
        """Switch tracing on, for clients that are open and all that follow."""
        from windlass._observe.otel_tracing import Tracing  # noqa: PLC0415 -- an extra

        if self._tracing is None:
            self._tracing = Tracing(provider, running_job, self._url)
            self._layers.insert(0, self._tracing.run)  # what other layers do is part of the run
            self.add_tracer(self._tracing)

    def add_tracer(self, tracer: EnqueueTracer) -> None:
        """Let ``tracer`` see the jobs of clients that are open and all that follow."""
        self._tracers.append(tracer)
        for client in self._connections.clients:
            client.surround(tracer.around)

    def meter(self, provider: MeterProvider) -> None:
        """Switch OpenTelemetry's metrics on, or find them switched on. Tracing is on before."""
        from windlass._observe.backlog import Backlog  # noqa: PLC0415
        from windlass._observe.otel_metrics import OtelMetrics  # noqa: PLC0415 -- an extra

        if self._metered is None:
            backlog = Backlog(self._look, self._start)
            self._metered = OtelMetrics(
                self._bus, provider, slots=self._slots, backlog=backlog, url=self._url
            )
            if self._tracing is not None:
                self._tracing.tell_sent(self._metered.sent)

    def surround(self, client: Client) -> None:
        """Trace what ``client`` stores, if tracing is on."""
        for tracer in self._tracers:
            client.surround(tracer.around)

    def stamp(self, news: list[NewJob]) -> list[NewJob]:
        """Add their trace to jobs that go into a user's transaction, if tracing is on."""
        for tracer in self._tracers:
            news = tracer.stamp(news)
        return news

    def _slots(self) -> tuple[int, int]:
        slots = [worker.engine.slots for worker in tuple(self.working)]
        return sum(one.used for one in slots), sum(one.total for one in slots)

    def _registered(self) -> list[tuple[str, str]]:
        return [(task.settings.queue or self._default_queue, task.name) for task in self._tasks]

    async def _look(self) -> StoreNumbers:
        """Read the numbers of every queue, and those of flows."""
        from windlass._observe.backlog import StoreNumbers  # noqa: PLC0415

        storage = await self._connections.storage()
        now = await storage.now()
        known = {record.queue: record for record in await storage.queues.queues()}
        rows = [msgspec.structs.asdict(counts) for counts in await storage.admin.counts()]
        live = await storage.workers.live()
        for row in rows:
            record = known.get(row["queue"])
            cool_until = None if record is None else record.cool_until
            row["cooling"] = cool_until is not None and cool_until > now
            row["max_running"] = None if record is None else record.settings.max_running
            oldest = row["oldest_due"]
            row["lag"] = 0.0 if oldest is None else max((now - oldest).total_seconds(), 0.0)
            row["workers"] = sum(row["queue"] in start.queues for start in live)
        return StoreNumbers(rows, _flow_numbers(await storage.flows.counts(cap=_MOST_FLOWS), now))


def _flow_numbers(counts: FlowCounts, now: datetime) -> dict[str, float]:
    age = timedelta(0) if counts.oldest is None else max(now - counts.oldest, timedelta(0))
    return {
        "running": counts.running,
        "succeeded": counts.succeeded,
        "failed": counts.failed,
        "cancelled": counts.cancelled,
        "blocked": counts.blocked,
        "oldest": age.total_seconds(),
    }
