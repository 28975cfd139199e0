"""OpenTelemetry metrics: the messaging conventions, with attributes that have an end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider

from tests.integrations.programs import run
from windlass import Backoff, Context, Flow, Secret, Throttled, Windlass
from windlass._app.parts import parts_of
from windlass._core.job.event import QueueCooled
from windlass.errors import KeyConflict


class Read:
    """A provider of its own, and what it has measured."""

    def __init__(self) -> None:
        self._reader = InMemoryMetricReader()
        self.provider = MeterProvider(metric_readers=[self._reader])

    def points(self) -> dict[str, list[tuple[dict[str, Any], Any]]]:
        told = self._reader.get_metrics_data()
        return {
            metric.name: [
                (dict(point.attributes or {}), point) for point in metric.data.data_points
            ]
            for resource in (told.resource_metrics if told is not None else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


@pytest.fixture
async def read() -> AsyncIterator[Read]:
    made = Read()
    yield made
    made.provider.shutdown()


async def test_a_job_that_is_retried_is_counted_and_timed_without_its_texts(read: Read) -> None:
    app = Windlass("memory://")
    app.tracing(TracerProvider(), meters=read.provider)
    app.tracing(TracerProvider(), meters=read.provider)  # asked again, nothing is counted twice

    @app.task(name="pay", queue="money", backoff=Backoff.none())
    async def pay(ctx: Context, card: Secret[str]) -> None:
        if ctx.attempt == 1:
            raise ValueError(card)

    @app.task(name="late", queue="money")
    async def late() -> None:
        raise Throttled(60)

    async with app, app.worker(slots=4):
        await (await pay.options(tenant="acme").enqueue("canary-4111")).result(timeout=30)
        cooled = asyncio.Event()
        parts_of(app).hooks.bus.subscribe(
            lambda event: cooled.set() if isinstance(event, QueueCooled) else None
        )
        await late.options(key="k").enqueue()
        await late.options(key="k").enqueue()
        await asyncio.wait_for(cooled.wait(), 10)
        points = await asyncio.to_thread(read.points)
    parts_of(app).blocking_loop.stop()

    about = {
        "messaging.system": "windlass",
        "messaging.operation.name": "run",
        "messaging.operation.type": "process",
        "messaging.destination.name": "money",
        "windlass.task": "pay",
    }

    def of(name: str, task: str = "pay") -> list[tuple[dict[str, Any], Any]]:
        return [pair for pair in points[name] if pair[0].get("windlass.task") == task]

    ((sent, count),) = of("messaging.client.sent.messages")
    enqueue = {"messaging.operation.name": "enqueue", "messaging.operation.type": "send"}
    assert (sent, count.value) == ({**about, **enqueue}, 1)
    ((stored, point),) = points["messaging.client.operation.duration"]
    assert stored == {k: v for k, v in {**about, **enqueue}.items() if k != "windlass.task"}
    assert (point.count, point.explicit_bounds[0], point.explicit_bounds[-1]) == (3, 0.005, 10)
    assert [count.value for _, count in of("windlass.job.coalesced", "late")] == [1]
    ((consumed, count),) = of("messaging.client.consumed.messages")
    assert (consumed, count.value) == (about, 2)
    ended = {told["windlass.outcome"]: point.value for told, point in of("windlass.run.ended")}
    assert ended == {"retried": 1, "succeeded": 1}
    ran = {told.get("error.type"): point.count for told, point in of("messaging.process.duration")}
    assert ran == {"ValueError": 1, None: 1}
    assert of("windlass.job.wait")[0][1].count == 2
    assert [point.value for _, point in points["windlass.slots"]] == [4]
    assert points["windlass.queue.cooled"][0][1].value == 1
    jobs = {told["windlass.state"]: point.value for told, point in points["windlass.jobs"]}
    assert jobs["succeeded"] == 1
    assert "canary" not in str(points)
    assert "acme" not in str(points)


async def test_flows_are_observed_by_state_with_their_blocked_jobs(read: Read) -> None:
    app = Windlass("memory://")
    app.tracing(TracerProvider(), meters=read.provider)

    @app.task(name="work")
    async def work() -> None: ...

    async with app:
        flow = Flow("two in a row")
        flow.add(work.call(), after=flow.add(work.call()))
        await app.start(flow)
        points = await asyncio.to_thread(read.points)
    parts_of(app).blocking_loop.stop()
    flows = {told["windlass.state"]: point.value for told, point in points["windlass.flows"]}
    assert flows == {"running": 1, "succeeded": 0, "failed": 0, "cancelled": 0}
    assert [point.value for _, point in points["windlass.jobs.blocked"]] == [1]
    assert points["windlass.flow.oldest"][0][1].value > 0


async def test_names_have_an_end(read: Read) -> None:
    app = Windlass("memory://")
    app.tracing(TracerProvider(), meters=read.provider)

    @app.task(name="work")
    async def work() -> None: ...

    async with app:
        for number in range(60):
            await work.options(queue=f"q{number}").enqueue()
    sent = read.points()["messaging.client.sent.messages"]
    assert len(sent) == 51
    others = [p.value for told, p in sent if told["messaging.destination.name"] == "other"]
    assert others == [10]
    parts_of(app).blocking_loop.stop()


async def test_an_enqueue_that_fails_is_counted_and_timed_by_its_kind(read: Read) -> None:
    app = Windlass("memory://")
    app.tracing(TracerProvider(), meters=read.provider)

    @app.task(name="work")
    async def work() -> None: ...

    async with app:
        await work.options(key="k").enqueue()
        with pytest.raises(KeyConflict):
            await work.options(key="k", on_conflict="raise").enqueue()
    points = read.points()
    for name in ("messaging.client.sent.messages", "messaging.client.operation.duration"):
        kinds = {told.get("error.type") for told, _ in points[name]}
        assert kinds == {None, "windlass.errors.KeyConflict"}
    parts_of(app).blocking_loop.stop()


def test_a_program_that_ends_prints_nothing_and_asks_the_store_nothing(tmp_path: Path) -> None:
    program = """
import io
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
from windlass import Windlass

reader = PeriodicExportingMetricReader(ConsoleMetricExporter(out=io.StringIO()))
Windlass("sqlite:///jobs.db").tracing(meters=MeterProvider(metric_readers=[reader]))
"""
    ran = run(tmp_path, "-c", program)
    assert (ran.stdout, ran.stderr, ran.returncode) == ("", "", 0)
    assert not (tmp_path / "jobs.db").exists()
