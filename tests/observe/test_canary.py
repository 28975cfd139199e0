"""Secrets are let loose in a whole app, and every channel that people read is searched for them."""

from __future__ import annotations

import asyncio
import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry

from tests.observe import traced_app
from windlass import Backoff, Context, Every, Failure, Limit, Secret, Unique, Windlass
from windlass._app.parts import parts_of
from windlass._cli.main import main
from windlass._observe.log import EventLog, HumanFormatter, JsonFormatter
from windlass._storage.protocol.actions import RunNow
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass.testing import isolated

ANNOTATED, NAMED, NESTED = "canary-annotated-41", "canary-named-42", "canary-nested-43"
URL, JWT = "canary-in-a-url-44", "eyJjYW5hcnk0NSI6MX0.eyJjYW5hcnkiOjQ1fQ.canary-signature-45"
CANARIES = (ANNOTATED, NAMED, NESTED, URL, JWT, "canary")
shop = logging.getLogger("shop.canary")


def given() -> dict[str, Any]:
    return {
        "card": ANNOTATED,
        "password": NAMED,
        "login": {"api_key": NESTED, "to": "ada"},
        "target": f"postgresql://ada:{URL}@db/shop",
        "note": f"sent with {JWT}",
    }


def blurt(ctx: Context, said: dict[str, Any]) -> None:
    """All that a careless handler does."""
    text = " ".join([said["card"], said["password"], said["login"]["api_key"], said["target"]])
    ctx.log("charging %s with %s", text, said["note"])
    shop.warning("%r", said, extra={"said": said, "card": said["card"]})
    ctx.progress(0.5, text)
    try:
        raise LookupError(f"no card {said['card']}\nat {said['target']}")
    except LookupError as error:
        shop.exception("it went wrong: %s", error)
        raise ValueError(repr(said), json.dumps(said)) from error


def shop_app(url: str) -> Windlass:
    app = Windlass(url, event_log=True, stored_logs="debug")
    by_card = Limit("cards", concurrency=3, key="{card}")

    @app.task(name="told")
    async def told(failure: Failure) -> None:
        shop.error("told of %s", failure.error_message)

    @app.task(
        name="fail",
        max_attempts=2,
        backoff=Backoff.none(),
        limits=[by_card],
        unique=Unique(key="{card}"),
        on_failure=told,
    )
    async def fail(
        ctx: Context,
        *,
        card: Secret[str],
        password: str,
        login: dict[str, str],
        target: str,
        note: str,
    ) -> None:
        blurt(ctx, given())

    @app.task(name="thread", max_attempts=1)
    def thread(
        ctx: Context,
        *,
        card: Secret[str],
        password: str,
        login: dict[str, str],
        target: str,
        note: str,
    ) -> None:
        blurt(ctx, given())

    @app.schedule(Every(3600), args=(ANNOTATED, NAMED))
    @app.task(name="succeed")
    async def succeed(card: Secret[str], password: str) -> dict[str, str]:
        return {"charged": card, "password": password}

    return app


@contextmanager
def logging_to(*forms: logging.Formatter) -> Iterator[list[io.StringIO]]:
    root, before = logging.getLogger(), logging.getLogger().level
    handlers = []
    for form in forms:
        handler = logging.StreamHandler(io.StringIO())
        handler.setFormatter(form)
        root.addHandler(handler)
        handlers.append(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield [handler.stream for handler in handlers]
    finally:
        root.setLevel(before)
        for handler in handlers:
            root.removeHandler(handler)


async def run_it_all(app: Windlass) -> dict[str, str]:
    """Live through everything, and collect what a program can see."""
    seen: dict[str, str] = {}
    fail, succeed = app.tasks["fail"], app.tasks["succeed"]
    async with app:
        jobs = [
            await fail.enqueue(**given()),
            await app.tasks["thread"].enqueue(**given()),
            await succeed.enqueue(ANNOTATED, NAMED),
        ]
        async with app.worker(until_empty=True) as worker:
            await worker.wait()
        jobs.append(await fail.options(delay=3600).enqueue(**given()))
        seen["handles"] = repr(jobs)
        seen["app"] = repr(app) + repr(app.settings) + (await parts_of(app).storage()).describe()
        raw = await parts_of(app).producer.refresh(jobs[0].id)
        assert ANNOTATED.encode() in raw.payload  # the store has what workers need …
        assert raw.error is not None
        seen["stored error"] = repr(raw.error)  # … and no error, not even there
        seen["stored history"] = repr(
            await (await parts_of(app).storage()).admin.history(jobs[0].id)
        )
        admin = app.admin
        for job in jobs:
            for read in (admin.jobs.get, admin.jobs.history, admin.jobs.logs, admin.jobs.explain):
                seen[f"admin {read.__name__} {job.id}"] = repr(await read(job.id))
        seen["find"] = repr(await admin.jobs.find(JobFilter(), limit=50))
        seen["search"] = repr(await admin.jobs.search("canary", limit=50))
        seen["errors"] = repr(await admin.errors.groups())
        seen["schedules"] = repr(await admin.schedules.list())
        seen["limits"] = repr(await admin.limits.list())
        now = await (await parts_of(app).storage()).now()
        hour = timedelta(hours=1)
        await parts_of(app).connections.settle()
        seen["events"] = repr(await admin.storage.events(now - hour, now + hour))
        assert "started" in seen["events"]
        seen["ids"] = " ".join(job.id for job in jobs)
    return seen


def test_no_channel_shows_a_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    app, spans, reader = shop_app(url), InMemorySpanExporter(), InMemoryMetricReader()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    app.tracing(provider, meters=MeterProvider(metric_readers=[reader]))
    metrics = app.metrics(CollectorRegistry())
    parts_of(app).hooks.bus.subscribe(EventLog())

    with logging_to(HumanFormatter(), JsonFormatter()) as (human, machine):
        seen = asyncio.run(run_it_all(app))
        seen["metrics"] = asyncio.run(metrics.page())[0].decode()
        seen["meters"] = str(reader.get_metrics_data())
    seen["log for people"], seen["log as JSON"] = human.getvalue(), machine.getvalue()
    seen["spans"] = "".join(span.to_json() for span in spans.get_finished_spans())
    parts_of(app).blocking_loop.stop()

    ids = seen["ids"].split()
    commands = [
        *(("jobs", what, job) for job in ids for what in ("show", "explain", "logs")),
        *((first, "list") for first in ("jobs", "errors", "schedules", "limits", "workers")),
    ]
    for words in commands:
        for form in ([], ["--json"]):
            capsys.readouterr()
            assert main([*words, *form, "--url", url]) == 0, words
            said = capsys.readouterr()
            seen[" ".join([*words, *form])] = said.out + said.err

    # The channels were really used:
    assert "charging" in seen["log for people"]
    assert '"said": {"card": "***"' in seen["log as JSON"].replace("\\", "")
    assert "ValueError" in seen["spans"]
    assert any("***" in text for text in seen.values())
    found = {
        name: next(canary for canary in CANARIES if canary in text)
        for name, text in seen.items()
        if "canary" in text.replace("shop.canary", "").replace("test_canary", "")
    }
    assert found == {}


async def test_a_child_process_gives_none_away() -> None:
    app = traced_app.app
    with isolated(app), logging_to(HumanFormatter(), JsonFormatter()) as logs:
        async with app, app.worker():
            job = await traced_app.careless.enqueue(ANNOTATED, {"token": NAMED})
            with pytest.raises(Exception, match="careless") as failed:
                await job.result(timeout=20)
        stored = repr(await (await parts_of(app).storage()).admin.history(job.id))
        kept = repr(await (await parts_of(app).storage()).journal.logs(job.id))
    told = [stored, kept, str(failed.value), *(log.getvalue() for log in logs)]
    assert all("***" in text for text in told)
    assert not any("canary-" in text for text in told)


async def test_a_search_tells_no_secret_letter_by_letter() -> None:
    app = Windlass("memory://")

    @app.task
    async def pay(amount: int, card: Secret[str], password: str) -> None: ...

    with isolated(app):
        await pay.enqueue(41, ANNOTATED, NAMED)
        for guess in (ANNOTATED, NAMED[:3], f'"password":"{NAMED[:1]}'):
            assert list(await app.admin.jobs.search(guess)) == []
            wanted = JobFilter(text=guess)
            assert (await app.admin.jobs.count(wanted)).number == 0
            assert (await app.admin.jobs.bulk(RunNow(), wanted)).matched == 0
        for seen in ('"AMOUNT":41', "password"):
            assert len(await app.admin.jobs.search(seen)) == 1
            assert (await app.admin.jobs.bulk(RunNow(), JobFilter(text=seen))).matched == 1
