"""What watches an app: the log of its workers, and metrics and spans once they are switched on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from windlass._client.client import Client
from windlass._observe.backlog import Backlog
from windlass._observe.bus import Bus
from windlass._observe.log import EventLog
from windlass._storage.protocol.storage import Storage
from windlass._tasks.context import running_job
from windlass._tasks.hooks import Middleware
from windlass._worker.worker import Worker
from windlass.errors import ConfigError

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider
    from prometheus_client import CollectorRegistry

    from windlass._observe.otel_metrics import OtelMetrics
    from windlass._observe.otel_tracing import Tracing
    from windlass._observe.prometheus import Metrics

__all__ = ["Observability"]


class Observability:
    """One app's log, metrics and spans."""

    def __init__(
        self, storage: Callable[[], Awaitable[Storage]], bus: Bus, layers: list[Middleware]
    ) -> None:
        """Nothing is switched on."""
        self._storage = storage
        self._bus = bus
        self._layers = layers
        self.working: set[Worker] = set()
        """The workers of this process."""
        self._unlog: Callable[[], None] | None = None
        self.measured: Metrics | None = None
        self.metered: OtelMetrics | None = None
        self.tracing: Tracing | None = None

    def enter(self, worker: Worker) -> None:
        """A worker begins: what it does is logged, once however many there are."""
        self.working.add(worker)
        if self._unlog is None and not self._bus.has(EventLog):
            self._unlog = self._bus.subscribe(EventLog(), wants_all=EventLog.wants_all)

    def leave(self, worker: Worker) -> None:
        """It has ended."""
        self.working.discard(worker)
        if not self.working and self._unlog is not None:
            self._unlog()
            self._unlog = None

    def metrics(
        self,
        registry: CollectorRegistry | None,
        start: Callable[[Coroutine[Any, Any, object]], None],
    ) -> Metrics:
        """Switch metrics on, or find them switched on. ``start`` runs something in background."""
        from windlass._observe.prometheus import Metrics  # noqa: PLC0415 -- an extra

        if self.measured is None:
            self.measured = Metrics(
                self._bus, registry, slots=self._slots, look=self._look, start=start
            )
        elif registry is not None and registry is not self.measured.registry:
            raise ConfigError("app.metrics() was called before, with another registry")
        return self.measured

    def trace(self, provider: TracerProvider | None, clients: Iterable[Client], url: str) -> None:
        """Switch tracing on, for ``clients`` that are open and all that follow."""
        from windlass._observe.otel_tracing import Tracing  # noqa: PLC0415 -- an extra

        if self.tracing is None:
            self.tracing = Tracing(provider, running_job, url)
            self._layers.insert(0, self.tracing.run)  # what other layers do is part of the run
            for client in clients:
                client.surround(self.tracing.around)

    def meter(
        self,
        provider: MeterProvider,
        start: Callable[[Coroutine[Any, Any, object]], None],
        url: str,
    ) -> None:
        """Switch OpenTelemetry's metrics on, or find them switched on. Tracing is on before."""
        from windlass._observe.otel_metrics import OtelMetrics  # noqa: PLC0415 -- an extra

        if self.metered is None:
            backlog = Backlog(self._look, start)
            self.metered = OtelMetrics(
                self._bus, provider, slots=self._slots, backlog=backlog, url=url
            )
            if self.tracing is not None:
                self.tracing.on_sent = self.metered.sent

    def _slots(self) -> tuple[int, int]:
        slots = [worker.engine.slots for worker in tuple(self.working)]
        return sum(one.used for one in slots), sum(one.total for one in slots)

    async def _look(self) -> list[dict[str, Any]]:
        """Every queue as a row of numbers."""
        storage = await self._storage()
        now = await storage.now()
        known = {record.queue: record for record in await storage.queues.queues()}
        rows = [msgspec.structs.asdict(counts) for counts in await storage.admin.counts()]
        live = await storage.workers.live()
        for row in rows:
            record = known.get(row["queue"])
            cool_until = None if record is None else record.cool_until
            row["cooling"] = cool_until is not None and cool_until > now
            row["max_running"] = None if record is None else record.settings.max_running
            row["workers"] = sum(row["queue"] in start.queues for start in live)
        return rows
