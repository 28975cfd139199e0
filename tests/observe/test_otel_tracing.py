"""Jobs as OpenTelemetry spans: one trace from whoever enqueues to the last child."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest
from opentelemetry import baggage, propagate
from opentelemetry.context import attach, detach
from opentelemetry.propagators.textmap import (
    TextMapPropagator,
    default_getter,
    default_setter,
)
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    TraceState,
    get_current_span,
    set_span_in_context,
)

from tests.observe import traced_app
from windlass import Backoff, Context, Failure, Snooze, Throttled, Windlass
from windlass._app.parts import parts_of
from windlass._client.client import new_job
from windlass._core.values.trace_context import decode_trace, encode_trace, shown_trace
from windlass._observe.otel_tracing import server_of
from windlass.errors import JobFailed, KeyConflict, MissingDependency
from windlass.testing import drain, inline, isolated


class Spans:
    """A provider of its own, and what it was told."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("test")

    def named(self, name: str) -> list[ReadableSpan]:
        """In the order they ended."""
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def only(self, name: str) -> ReadableSpan:
        (span,) = self.named(name)
        return span

    def text(self) -> str:
        return "".join(span.to_json() for span in self._exporter.get_finished_spans())


def context_of(span: ReadableSpan) -> SpanContext:
    context = span.get_span_context()
    assert context is not None
    return context


def id_of(span: ReadableSpan) -> int:
    return context_of(span).span_id


def parent_of(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


@pytest.fixture
def spans() -> Iterator[Spans]:
    made = Spans()
    yield made
    made.provider.shutdown()


@pytest.fixture
async def app(spans: Spans) -> AsyncIterator[Windlass]:
    app = Windlass("memory://")
    app.tracing(spans.provider)
    yield app
    await app.close()
    parts_of(app).blocking_loop.stop()


async def test_a_job_with_two_retries_and_a_child_is_one_trace(app: Windlass, spans: Spans) -> None:
    children: list[Any] = []

    @app.task(name="shop.mail")
    async def mail(to: str) -> None: ...

    @app.task(name="shop.order", queue="orders", backoff=Backoff.fixed(0))
    async def order(ctx: Context, number: int) -> None:
        if ctx.attempt < 3:
            raise ValueError(f"number {number} is not there yet")
        children.append(await mail.enqueue("ada"))

    async with app.worker():
        with spans.tracer.start_as_current_span("request"):
            job = await order.options(correlation_id="r-1").enqueue(-4711)
        await job.result(timeout=30)
        await children[0].result(timeout=30)

    request, sent = spans.only("request"), spans.only("enqueue orders")
    first, second, third = spans.named("run orders")
    child_sent, child = spans.only("enqueue default"), spans.only("run default")

    every = [request, sent, first, second, third, child_sent, child]
    assert len({context_of(span).trace_id for span in every}) == 1
    assert parent_of(sent) == id_of(request)
    assert [parent_of(run) for run in (first, second, third)] == [id_of(sent)] * 3
    assert parent_of(child_sent) == id_of(third)
    assert parent_of(child) == id_of(child_sent)
    assert [link.context.span_id for link in first.links] == [id_of(sent)]
    assert [link.context.span_id for link in second.links] == [id_of(sent), id_of(first)]
    assert [link.context.span_id for link in third.links] == [id_of(sent), id_of(second)]
    assert [link.context.span_id for link in child.links] == [id_of(child_sent)]

    assert sent.kind is child_sent.kind is SpanKind.PRODUCER
    assert {span.kind for span in (first, second, third, child)} == {SpanKind.CONSUMER}
    assert [attributes(run)["windlass.attempt"] for run in (first, second, third)] == [1, 2, 3]
    outcomes = [attributes(run)["windlass.outcome"] for run in (first, second, third)]
    assert outcomes == ["raised", "raised", "returned"]
    assert first.status.status_code is second.status.status_code is StatusCode.ERROR
    assert third.status.status_code is StatusCode.UNSET
    assert attributes(first)["error.type"] == "ValueError"
    assert "-4711" not in spans.text()


async def test_spans_say_what_the_messaging_conventions_ask_for(
    app: Windlass, spans: Spans
) -> None:
    @app.task(name="shop.mail", queue="mail")
    async def mail() -> None: ...

    async with app.worker() as worker:
        job = await mail.options(correlation_id="r-1").enqueue()
        await job.result(timeout=30)
        name = worker.id
    assert attributes(spans.only("enqueue mail")) == {
        "messaging.system": "windlass",
        "messaging.operation.name": "enqueue",
        "messaging.operation.type": "send",
        "messaging.destination.name": "mail",
        "messaging.message.id": job.id,
        "windlass.task": "shop.mail",
    }
    assert attributes(spans.only("run mail")) == {
        "messaging.system": "windlass",
        "messaging.operation.name": "run",
        "messaging.operation.type": "process",
        "messaging.destination.name": "mail",
        "messaging.message.id": job.id,
        "messaging.message.conversation_id": "r-1",
        "messaging.client.id": name,
        "windlass.task": "shop.mail",
        "windlass.attempt": 1,
        "windlass.max_attempts": 5,
        "windlass.claim_number": 1,
        "windlass.outcome": "returned",
    }


async def test_the_trace_is_stored_as_a_traceparent(app: Windlass, spans: Spans) -> None:
    @app.task(name="shop.mail")
    async def mail() -> None: ...

    job = await mail.enqueue()
    context = context_of(spans.only("enqueue default"))
    flags = context.trace_flags
    expected = f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags:02x}"
    assert (await job.refresh()).trace == expected


async def test_a_batch_is_one_span_and_its_jobs_share_it(app: Windlass, spans: Spans) -> None:
    @app.task(name="a")
    async def a(number: int) -> None: ...

    @app.task(name="b", queue="other")
    async def b() -> None: ...

    await app.enqueue_many([a.call(1), a.call(2), b.call()])
    sent = spans.only("enqueue")
    assert attributes(sent)["messaging.batch.message_count"] == 3
    assert "messaging.destination.name" not in attributes(sent)
    async with app.worker(until_empty=True) as worker:
        await worker.wait()
    runs = spans.named("run default") + spans.named("run other")
    assert [parent_of(run) for run in runs] == [id_of(sent)] * 3


async def test_a_job_that_is_enqueued_outside_of_any_trace_begins_one(
    app: Windlass, spans: Spans
) -> None:
    @app.task(name="a")
    async def a() -> None: ...

    with spans.tracer.start_as_current_span("whoever started the worker"):
        context = app.worker()
        await context.__aenter__()
    try:
        await (await a.enqueue()).result(timeout=30)
    finally:
        await context.__aexit__(None, None, None)
    sent = spans.only("enqueue default")
    assert sent.parent is None
    assert parent_of(spans.only("run default")) == id_of(sent)


async def test_a_job_without_a_trace_is_the_first_of_one_wherever_its_worker_was_started(
    app: Windlass, spans: Spans
) -> None:
    @app.task(name="a")
    async def a() -> None: ...

    storage = await parts_of(app).storage()
    (new_id,) = parts_of(app).connections.seams.new_job_ids(1)
    await storage.jobs.insert([new_job(a.call(), app.settings, new_id)])  # as a schedule does
    with spans.tracer.start_as_current_span("whoever started the worker"):
        async with app.worker(until_empty=True) as worker:
            await worker.wait()
    assert spans.only("run default").parent is None


def test_code_without_a_loop_and_handlers_on_threads_are_in_the_trace(spans: Spans) -> None:
    app = Windlass("memory://")
    app.tracing(spans.provider)

    @app.task(name="child")
    async def child() -> None: ...

    @app.task(name="parent", queue="parents")
    def parent() -> None:
        child.enqueue_sync()

    with isolated(app), spans.tracer.start_as_current_span("request"):
        parent.enqueue_sync()
        app.blocking.run(drain(app))
    request, sent = spans.only("request"), spans.only("enqueue parents")
    assert parent_of(sent) == id_of(request)
    run = spans.only("run parents")
    assert parent_of(run) == id_of(sent)
    assert parent_of(spans.only("enqueue default")) == id_of(run)
    assert parent_of(spans.only("run default")) == id_of(spans.only("enqueue default"))
    parts_of(app).blocking_loop.stop()


@pytest.mark.parametrize(("turn", "outcome"), [(Snooze, "snoozed"), (Throttled, "throttled")])
async def test_to_ask_for_more_time_is_no_error(
    app: Windlass, spans: Spans, turn: type[Exception], outcome: str
) -> None:
    @app.task(name="a")
    async def a(ctx: Context) -> None:
        if not spans.named("run default"):
            raise turn(0)

    with inline(app):
        await a.enqueue()
    first, second = spans.named("run default")
    assert attributes(first)["windlass.outcome"] == outcome
    assert first.status.status_code is StatusCode.UNSET
    assert not first.events
    assert [link.context.span_id for link in second.links][1:] == [id_of(first)]


async def test_an_error_is_recorded_by_its_kind_without_its_text(
    app: Windlass, spans: Spans
) -> None:
    @app.task(name="a", max_attempts=1)
    async def a(card: str) -> None:
        raise LookupError(card)

    with inline(app), pytest.raises(JobFailed):
        await a.enqueue("4111 1111")
    run = spans.only("run default")
    assert run.status.status_code is StatusCode.ERROR
    (event,) = run.events
    assert dict(event.attributes or {}) == {"exception.type": "LookupError"}
    assert "4111" not in spans.text()


async def test_the_on_failure_job_is_in_the_trace_of_the_failed_job(
    app: Windlass, spans: Spans
) -> None:
    @app.task(name="told", queue="told")
    async def told(failure: Failure) -> None: ...

    @app.task(name="a", max_attempts=1, on_failure=told)
    async def a() -> None:
        raise ValueError

    await a.enqueue()
    async with app.worker(until_empty=True) as worker:
        await worker.wait()
    assert parent_of(spans.only("run told")) == id_of(spans.only("enqueue default"))


async def test_a_refused_enqueue_is_an_error_of_its_span(app: Windlass, spans: Spans) -> None:
    @app.task(name="a")
    async def a() -> None: ...

    await a.options(key="key").enqueue()
    with pytest.raises(KeyConflict):
        await a.options(key="key", on_conflict="raise").enqueue()
    sent = spans.named("enqueue default")[-1]
    assert sent.status.status_code is StatusCode.ERROR
    assert attributes(sent)["error.type"].endswith("KeyConflict")


async def test_a_job_that_was_there_already_is_marked(app: Windlass, spans: Spans) -> None:
    @app.task(name="a")
    async def a() -> None: ...

    first = await a.options(key="key").enqueue()
    await a.options(key="key").enqueue()
    sent = attributes(spans.named("enqueue default")[-1])
    assert (sent["messaging.message.id"], sent["windlass.reused"]) == (first.id, True)


async def test_tracing_can_be_switched_on_while_the_app_is_open(spans: Spans) -> None:
    app = Windlass("memory://")

    @app.task(name="a")
    async def a() -> None: ...

    async with app:
        await a.enqueue()
        app.tracing(spans.provider)
        app.tracing(spans.provider)
        await a.enqueue()
    assert len(spans.named("enqueue default")) == 1
    assert len(parts_of(app).hooks.layers) == 1


async def test_without_an_sdk_nothing_is_stored(app: Windlass) -> None:
    silent = Windlass("memory://")
    silent.tracing()

    @silent.task(name="a")
    async def a() -> None: ...

    async with silent:
        assert (await (await a.enqueue()).refresh()).trace is None


async def test_handlers_in_child_processes_are_in_the_trace(
    spans: Spans,
) -> None:
    app = traced_app.app
    with isolated(app):
        app.tracing(spans.provider)
        async with app, app.worker(slots=2):
            token = attach(baggage.set_baggage("city", "Ghent"))
            job = await traced_app.heavy.enqueue()
            detach(token)
            follow, inner, around, city = await job.result(timeout=30)
            await app.job(follow).result(timeout=30)
            with pytest.raises(JobFailed):
                await (await traced_app.failing.enqueue("4111")).result(timeout=30)
    run, sent = spans.only("run heavy"), spans.only("enqueue follow")
    assert parent_of(run) == id_of(spans.only("enqueue heavy"))
    assert around == f"{context_of(run).trace_id:032x}-{id_of(run):016x}"
    assert sent.parent is not None
    assert inner == f"{sent.parent.trace_id:032x}-{sent.parent.span_id:016x}"
    assert parent_of(spans.only("run follow")) == id_of(sent)
    assert city == "Ghent"
    assert attributes(spans.only("run failing"))["error.type"] == "LookupError"
    assert "4111" not in spans.text()


async def test_tracestate_and_baggage_reach_the_handler_and_what_it_enqueues(
    app: Windlass, spans: Spans
) -> None:
    seen: list[tuple[str | None, object]] = []

    @app.task(name="a")
    async def a(*, again: bool) -> None:
        state = get_current_span().get_span_context().trace_state
        seen.append((state.get("vendor"), baggage.get_baggage("city")))
        if again:
            await a.enqueue(again=False)

    remote = SpanContext(
        7, 8, is_remote=True, trace_flags=TraceFlags(1), trace_state=TraceState([("vendor", "x")])
    )
    around = baggage.set_baggage("city", "Ghent", set_span_in_context(NonRecordingSpan(remote)))
    token = attach(around)
    job = await a.enqueue(again=True)
    detach(token)
    async with app.worker(until_empty=True) as worker:
        await worker.wait()
    assert seen == [("x", "Ghent"), ("x", "Ghent")]
    stored = (await job.refresh()).trace
    assert decode_trace(stored).keys() == {"traceparent", "tracestate", "baggage"}
    shown = shown_trace(stored)
    assert shown is not None
    assert "Ghent" not in shown
    assert shown.startswith(f"00-{7:032x}-")


async def test_the_propagator_that_is_set_writes_and_reads(
    app: Windlass, spans: Spans, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Own(TextMapPropagator):
        def inject(self, carrier: Any, context: Any = None, setter: Any = default_setter) -> None:
            found = get_current_span(context).get_span_context()
            setter.set(carrier, "own", f"{found.trace_id} {found.span_id}")

        def extract(self, carrier: Any, context: Any = None, getter: Any = default_getter) -> Any:
            trace_id, span_id = map(int, carrier["own"].split())
            remote = SpanContext(trace_id, span_id, is_remote=True, trace_flags=TraceFlags(1))
            return set_span_in_context(NonRecordingSpan(remote), context)

        @property
        def fields(self) -> set[str]:
            return {"own"}

    monkeypatch.setattr(propagate, "propagator", Own())

    @app.task(name="a")
    async def a() -> None: ...

    await a.enqueue()
    async with app.worker(until_empty=True) as worker:
        await worker.wait()
    assert parent_of(spans.only("run default")) == id_of(spans.only("enqueue default"))


def test_baggage_that_is_too_large_is_left_out() -> None:
    parent = f"00-{7:032x}-{8:016x}-01"
    assert encode_trace({"traceparent": parent, "baggage": "x" * 9000}) == parent
    assert decode_trace("{not json") == decode_trace(None) == {}


@pytest.mark.parametrize(
    ("url", "server"),
    [
        (
            "redis://:pw@cache.example:6380/0",
            {"server.address": "cache.example", "server.port": 6380},
        ),
        ("postgresql://ada:pw@db.example/shop", {"server.address": "db.example"}),
        ("postgresql://a:1,b:2/shop", {}),
        ("sqlite:///jobs.db", {}),
    ],
)
def test_spans_name_the_server_and_no_password(url: str, server: dict[str, str | int]) -> None:
    assert server_of(url) == server


async def test_jobs_of_your_own_transactions_carry_the_trace(
    spans: Spans, postgres_url: str
) -> None:
    app = Windlass(postgres_url)
    app.tracing(spans.provider)

    @app.task(name="a")
    async def a() -> None: ...

    async with app:
        line = await asyncpg.connect(postgres_url)
        try:
            with spans.tracer.start_as_current_span("request"):
                async with line.transaction():
                    job = await a.options(connection=line).enqueue()
        finally:
            await line.close()
        sent = spans.only("enqueue default")
        assert parent_of(sent) == id_of(spans.only("request"))
        stored = (await job.refresh()).trace
        assert stored is not None
        assert f"{id_of(sent):016x}" in stored


def test_nothing_is_imported_before_it_is_switched_on() -> None:
    code = (
        "import sys, windlass, windlass._cli.commands.worker\n"
        "import windlass._cli.worker_process.process\n"
        "windlass.Windlass('memory://')\n"
        "print([m for m in sys.modules if m.startswith(('opentelemetry', 'prometheus_client'))])"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stdout.strip() == "[]"


def test_without_the_library_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "windlass._observe.otel_tracing", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(MissingDependency, match=re.escape("pip install 'windlass[otel]'")):
        Windlass("memory://").tracing()
