"""Failed jobs and runs as Sentry receives them: the real SDK, with a transport that keeps them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import msgspec
import pytest
import sentry_sdk
from opentelemetry import baggage
from opentelemetry.context import attach, detach
from opentelemetry.sdk.trace import TracerProvider
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from windlass import Backoff, GiveUp, Secret, Snooze, Windlass
from windlass._app.parts import parts_of
from windlass._core.job.job import JobId
from windlass._core.values.trace_context import decode_trace, encode_trace, shown_trace
from windlass.integrations.sentry import init_app
from windlass.testing import drain, isolated


class Sentry(Transport):
    """Keeps what would be sent, as its server would read it."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[dict[str, Any]] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        for item in envelope.items:
            self.sent.append(msgspec.json.decode(item.get_bytes()))

    @property
    def errors(self) -> list[dict[str, Any]]:
        return [event for event in self.sent if event.get("type") != "transaction"]

    @property
    def transactions(self) -> list[dict[str, Any]]:
        return [event for event in self.sent if event.get("type") == "transaction"]


@pytest.fixture
def sentry() -> Iterator[Sentry]:
    transport = Sentry()
    before = sentry_sdk.get_client()
    sentry_sdk.init(
        "https://key@sentry.invalid/1",
        transport=transport,
        traces_sample_rate=1.0,
        auto_enabling_integrations=False,
        shutdown_timeout=0,
    )
    yield transport
    sentry_sdk.get_client().close(timeout=0)
    sentry_sdk.get_global_scope().set_client(before)


@pytest.fixture
def app() -> Iterator[Windlass]:
    app = Windlass("memory://")
    init_app(app)
    with isolated(app):
        yield app


async def carried(app: Windlass, job: str) -> dict[str, str]:
    """The trace that is stored with a job."""
    storage = await parts_of(app).connections.storage()
    (stored,) = await storage.admin.get([JobId(job)])
    assert stored is not None
    return decode_trace(stored.trace)


async def test_a_job_that_fails_for_good_is_one_event_with_stack_and_job(
    app: Windlass, sentry: Sentry
) -> None:
    @app.task(name="charge", max_attempts=3, backoff=Backoff.waits([1, 1]))
    async def charge(order: int) -> None:
        message = f"order {order} has no card"
        raise ValueError(message)

    job = await charge.enqueue(7)
    await drain(app, until=timedelta(minutes=1))

    (event,) = sentry.errors
    (raised,) = event["exception"]["values"]
    assert (raised["type"], raised["value"]) == ("ValueError", "order 7 has no card")
    assert raised["mechanism"]["handled"] is False
    frame = raised["stacktrace"]["frames"][-1]
    assert (frame["function"], frame["vars"]["order"]) == ("charge", "7")
    assert event["level"] == "error"
    assert event["transaction"] == "charge"
    assert event["tags"] == {"windlass.task": "charge", "windlass.queue": "default"}
    told = event["contexts"]["windlass"]
    assert (told["job_id"], told["attempt"], told["max_attempts"]) == (job.id, 3, 3)
    assert told["arguments"] == {"order": 7}


async def test_retried_attempts_are_warnings_if_you_ask_for_them(sentry: Sentry) -> None:
    app = Windlass("memory://")
    init_app(app, retries=True, arguments=False)

    @app.task(name="charge", max_attempts=2, backoff=Backoff.waits([1]))
    async def charge() -> None:
        raise ValueError

    with isolated(app):
        await charge.enqueue()
        await drain(app, until=timedelta(minutes=1))
    assert [event["level"] for event in sentry.errors] == ["warning", "error"]
    assert "arguments" not in sentry.errors[0]["contexts"]["windlass"]


async def test_each_run_is_a_transaction_in_the_trace_that_enqueued_it(
    app: Windlass, sentry: Sentry
) -> None:
    @app.task(name="resize")
    async def resize() -> None:
        with sentry_sdk.start_span(op="image", name="shrink"):
            pass

    with sentry_sdk.start_transaction(op="http.server", name="POST /upload"):
        job = await resize.enqueue()
    await drain(app)

    sent, run = sentry.transactions
    assert (run["transaction"], run["transaction_info"]) == ("resize", {"source": "task"})
    trace = run["contexts"]["trace"]
    assert (trace["op"], trace["status"]) == ("queue.process", "ok")
    assert trace["trace_id"] == sent["contexts"]["trace"]["trace_id"]
    (publish,) = sent["spans"]
    assert (publish["op"], publish["data"]["messaging.destination.name"]) == (
        *("queue.publish", "default"),
    )
    assert trace["parent_span_id"] == publish["span_id"]
    assert trace["data"]["messaging.message.id"] == job.id
    assert [span["description"] for span in run["spans"]] == ["shrink"]


async def test_the_trace_of_opentelemetry_stays_with_the_job(sentry: Sentry) -> None:
    app = Windlass("memory://")
    app.tracing(TracerProvider())
    init_app(app)

    @app.task
    async def greet() -> None: ...

    token = attach(baggage.set_baggage("shop", "7"))
    try:
        job = await greet.enqueue()
    finally:
        detach(token)
    carrier = await carried(app, job.id)
    assert carrier.keys() == {"traceparent", "baggage", "sentry-trace", "sentry-baggage"}
    assert carrier["baggage"] == "shop=7"
    assert shown_trace(encode_trace(carrier)) == carrier["traceparent"]


async def test_snoozing_and_stopping_are_no_errors(app: Windlass, sentry: Sentry) -> None:
    runs: list[int] = []

    @app.task(name="poll")
    async def poll() -> None:
        runs.append(1)
        if len(runs) == 1:
            raise Snooze(5)

    await poll.enqueue()
    await drain(app, until=timedelta(minutes=1))
    assert sentry.errors == []
    assert len(runs) == 2
    assert {run["contexts"]["trace"]["status"] for run in sentry.transactions} == {"ok"}


async def test_giving_up_is_reported_at_once(app: Windlass, sentry: Sentry) -> None:
    @app.task(name="charge", max_attempts=5)
    async def charge() -> None:
        raise GiveUp("the card was stolen")

    await charge.enqueue()
    await drain(app)
    (event,) = sentry.errors
    assert "the card was stolen" in event["exception"]["values"][-1]["value"]


async def test_secrets_are_masked_wherever_they_appear(app: Windlass, sentry: Sentry) -> None:
    @app.task(name="login", max_attempts=1)
    async def login(user: str, pin: Secret[str], url: str) -> None:
        holder = {"nested": [pin], "bytes": pin.encode(), "long": "x" * 995 + pin}
        sentry_sdk.add_breadcrumb(message=f"pin is {pin}", data={"holder": holder})
        sentry_sdk.set_extra("holder", (pin, url))
        with sentry_sdk.start_span(op="db", name=f"SELECT '{pin}'"):
            pass
        sentry_sdk.capture_message(f"about to use {pin}")
        message = f"{user}: wrong pin {pin} for {url}"
        raise ValueError(message)

    await login.enqueue("ada", "hunter2x", "https://ada:tr0ub4dor@example.org/")
    await drain(app)
    told = msgspec.json.encode(sentry.sent).decode()
    assert len(sentry.errors) == 2
    assert "ada: wrong pin ***" in told
    assert "hunter2x" not in told
    assert "tr0ub4dor" not in told


async def test_what_cannot_be_masked_is_not_sent(app: Windlass, sentry: Sentry) -> None:
    class Trap(dict[str, Any]):
        def items(self) -> Any:
            raise RuntimeError

    @app.task(name="login", max_attempts=1)
    async def login(password: str) -> None:
        sentry_sdk.set_extra("trap", Trap(a=password))
        raise ValueError(password)

    await login.enqueue("hunter2x")
    await drain(app)
    (event,) = sentry.errors
    assert "masking raised RuntimeError" in msgspec.json.encode(event).decode()
    assert "hunter2x" not in msgspec.json.encode(sentry.sent).decode()


async def test_a_timeout_has_no_exception_and_is_reported(sentry: Sentry) -> None:
    app = Windlass("memory://")
    init_app(app)

    @app.task(name="wait", timeout=timedelta(milliseconds=20), max_attempts=1)
    async def wait(order: int) -> None:
        await asyncio.Event().wait()

    job = await wait.enqueue(7)
    async with app.worker():
        with pytest.raises(Exception, match="failed"):
            await job.result(timeout=20)
    (event,) = sentry.errors
    (raised,) = event["exception"]["values"]
    assert "imeout" in raised["type"] + raised["value"]
    assert event["contexts"]["windlass"]["arguments"] == {"order": 7}


async def test_connecting_twice_reports_once(app: Windlass, sentry: Sentry) -> None:
    init_app(app)

    @app.task(name="charge", max_attempts=1)
    async def charge() -> None:
        raise ValueError

    await charge.enqueue()
    await drain(app)
    assert len(sentry.errors) == 1
    assert len(sentry.transactions) == 1


async def test_without_a_client_jobs_run_as_before(app: Windlass) -> None:
    @app.task
    async def greet(name: str) -> str:
        return f"Hello {name}"

    job = await greet.enqueue("Ada")
    await drain(app)
    assert await job.result(timeout=30) == "Hello Ada"
    assert await carried(app, job.id) == {}
