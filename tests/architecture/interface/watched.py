"""What those who watch see: events, log lines, metrics and spans, from a few runs in memory."""

from __future__ import annotations

import asyncio
import functools
import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, get_args

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, MetricsData
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, Metric

from tests.architecture.interface import internals
from tests.architecture.interface.shop import own_environment
from tests.architecture.source import PACKAGE
from windlass import Backoff, Context, Snooze, Throttled, Windlass
from windlass._app.parts import parts_of

Kinds = {kind.__name__: kind for kind in get_args(internals.Event)}


class Watched(NamedTuple):
    """Of runs that returned, raised, were put off or throttled, and an event of every kind."""

    spans: Sequence[ReadableSpan]
    metrics: MetricsData
    families: Sequence[Metric]
    lines: Sequence[Mapping[str, Any]]


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(internals.JsonFormatter())
        self.lines: list[Mapping[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(self.format(record)))


@functools.cache
def watched() -> Watched:
    """Everything, once in a process."""
    log, lines = logging.getLogger("windlass"), _Lines()
    before = log.level, log.propagate
    log.addHandler(lines)
    log.setLevel(logging.DEBUG)
    log.propagate = False
    try:
        with own_environment():
            return asyncio.run(_watch(lines))
    finally:
        log.removeHandler(lines)
        log.level, log.propagate = before


async def _watch(lines: _Lines) -> Watched:
    app, registry, reader = _app(), CollectorRegistry(), InMemoryMetricReader()
    exporter, tracers, meters = InMemorySpanExporter(), TracerProvider(), MeterProvider([reader])
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    app.tracing(tracers, meters=meters)
    page = app.metrics(registry)
    async with app:
        for name in ("work", "fail", "refuse", "snooze"):
            await app.tasks[name].options(correlation_id="c", key=name).enqueue()
        await app.tasks["work"].options(key="twice", delay=60).enqueue()
        await app.tasks["work"].options(key="twice", delay=60).enqueue()
        await app.enqueue_many([app.tasks["work"].call(), app.tasks["fail"].call()])
        await app.admin.queues.set("default", max_running=9)
        async with app.worker(until_empty=True) as worker:
            for event in _events():
                parts_of(app).hooks.bus.publish(event)
            await worker.wait()
        logging.getLogger("windlass").info("stack", stack_info=True)
        await page.page()
        families = list(registry.collect())
        seen = await asyncio.to_thread(reader.get_metrics_data)
    await asyncio.to_thread(app.blocking.close)
    meters.shutdown()
    assert seen is not None
    return Watched(exporter.get_finished_spans(), seen, families, lines.lines)


def _app() -> Windlass:
    app = Windlass("memory://", backoff=Backoff.fixed(0), max_attempts=2)

    @app.task(name="work")
    async def work(ctx: Context) -> None:
        ctx.log("working")

    @app.task(name="fail")
    async def fail(ctx: Context) -> None:
        logging.getLogger("windlass").info("own", exc_info=ValueError("no"))
        raise ValueError("no")

    @app.task(name="refuse", queue="api")
    async def refuse() -> None:
        raise Throttled(600)

    @app.task(name="snooze")
    async def snooze() -> None:
        raise Snooze(600)

    return app


def _events() -> Iterator[Any]:
    """One of every verb, by a worker and by order, and the other kinds."""
    now, span = datetime.now(UTC), timedelta(seconds=1)
    job = {"job": "0" * 32, "task": "work", "queue": "default"}
    yield Kinds["JobEnqueued"](**job)
    yield Kinds["JobCoalesced"](**job)
    yield Kinds["QueueCooled"](**job, until=now, at=now, worker="w")
    yield Kinds["WorkerChanged"](worker="w", what="buried")
    for verb in internals.Verb:
        for worker in ("", "w"):
            ran = {"waited": span, "ran": span, "delay": span, "missed": bool(worker)}
            numbers = {"claim_number": 1, "attempt": 1, "max_attempts": 1}
            yield Kinds["JobMoved"](**job, **numbers, **ran, verb=verb, worker=worker, at=now)


def events() -> Iterator[str]:
    for name, kind in Kinds.items():
        yield name
        yield from (f"{name}.{field}" for field in kind.__struct_fields__)


def prometheus() -> Iterator[str]:
    for family in watched().families:
        yield f"{family.name} {family.type}"
        for sample in family.samples:
            if sample.name.endswith("_created"):
                continue  # the library's own, and can be turned off
            yield f"{sample.name} {' '.join(sorted(sample.labels))}".rstrip()
            for label in ("outcome", "state"):
                if label in sample.labels:
                    yield f"{sample.name} {label}={sample.labels[label]}"


def otel_metrics() -> Iterator[str]:
    for resource in watched().metrics.resource_metrics:
        for scope in resource.scope_metrics:
            yield f"scope {scope.scope.name}"
            for metric in scope.metrics:
                yield f"{metric.name} in {metric.unit}"
                for point in metric.data.data_points:
                    yield from _attributes(metric.name, point.attributes)
    yield from (f"server attribute {name}" for name in internals.server_of("redis://host:1/0"))


def otel_spans() -> Iterator[str]:
    for span in watched().spans:
        yield f"{span.name} {span.kind.name.lower()}"
        yield from _attributes(span.name, span.attributes)
        for event in span.events:
            yield f"{span.name} event {event.name}"
            yield from _attributes(f"{span.name} event {event.name}", event.attributes)
        for link in span.links:
            yield from _attributes(f"{span.name} link", link.attributes)


NAMED = {"messaging.operation.name", "messaging.operation.type", "messaging.system"}


def _attributes(of: str, attributes: Mapping[str, Any] | None) -> Iterator[str]:
    for name, value in (attributes or {}).items():
        yield f"{of} {name}"
        if name in NAMED or name in {"windlass.outcome", "windlass.state", "windlass.link"}:
            yield f"{of} {name}={value}"


def log_fields() -> Iterator[str]:
    """By the event that a line is about; lines in words have none."""
    for line in watched().lines:
        about = line.get("event", "words")
        yield from (f"{about}: {name}" for name in line)
        if "event" in line:
            yield f"{about}: {line['logger']} {line['level']}"
    yield from (f"start: {name}" for name in internals.started_fields())


def loggers() -> Iterator[str]:
    """Those that modules make for themselves; the name of a module is none of them."""
    for file in PACKAGE.rglob("*.py"):
        yield from re.findall(r"getLogger\(\"?(__name__|\w[\w.]*(?=\"))", file.read_text("utf-8"))
