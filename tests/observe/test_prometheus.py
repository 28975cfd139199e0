"""Events as Prometheus metrics: what is counted, what a label may say, what a scrape costs."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families

from windlass import Backoff, Snooze, Windlass
from windlass._app.parts import parts_of
from windlass._core.job.event import JobCoalesced, JobEnqueued, JobMoved, QueueCooled
from windlass._core.job.job import AttemptError, JobId
from windlass._core.job.state import Verb
from windlass._observe import backlog
from windlass._observe.bus import Bus
from windlass._observe.label_limits import LabelNames
from windlass._observe.prometheus import OTHER, Metrics
from windlass.errors import ConfigError, MissingDependency, StorageUnavailable

JOB = JobId("0199f00000007000800000000badcafe")
AT = datetime(2025, 3, 4, 5, 6, 7, tzinfo=UTC)
SAMPLES = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(registry: CollectorRegistry) -> SAMPLES:
    """What a scraper reads, as a scraper reads it."""
    return parsed(generate_latest(registry).decode())


def parsed(text: str) -> SAMPLES:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(found: SAMPLES, name: str, **labels: str) -> float | None:
    return found.get((name, frozenset(labels.items())))


def moved(verb: Verb, **changes: Any) -> JobMoved:
    fields: dict[str, Any] = {
        "verb": verb,
        "job": JOB,
        "task": "shop.send",
        "queue": "mail",
        "claim_number": 1,
        "attempt": 1,
        "max_attempts": 5,
        "worker": "w1",
        "at": AT,
    }
    return JobMoved(**(fields | changes))


class Bench:
    """Metrics without an app: events in by hand, and a store that is looked at by hand."""

    def __init__(self) -> None:
        self.bus = Bus()
        self.registry = CollectorRegistry()
        self.rows: Sequence[Mapping[str, Any]] = ()
        self.flows: Mapping[str, float] = {}
        self.looks = 0
        self.down = False
        self.metrics = Metrics(
            self.bus, self.registry, slots=lambda: (3, 10), look=self.look, start=self.start
        )

    async def look(self) -> backlog.StoreNumbers:
        self.looks += 1
        if self.down:
            raise StorageUnavailable("gone")
        return backlog.StoreNumbers(self.rows, self.flows)

    def start(self, work: Coroutine[Any, Any, object]) -> None:
        with pytest.raises(StopIteration):  # it waits for nothing, so it ends at once
            work.send(None)

    def read(self) -> SAMPLES:
        return samples(self.registry)


def row(queue: str, **numbers: int) -> dict[str, Any]:
    states = ("ready", "scheduled", "running", "succeeded", "failed", "cancelled", "discarded")
    none = dict.fromkeys(states, 0)
    held = {"paused": False, "cooling": False, "max_running": None}
    return {"queue": queue, **none, **held, **numbers}


@pytest.fixture
def bench() -> Bench:
    return Bench()


class Tick:
    """A clock for the cache."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def tick(monkeypatch: pytest.MonkeyPatch) -> Tick:
    clock = Tick()
    monkeypatch.setattr(backlog, "monotonic", clock)
    return clock


# --- what is counted ---------------------------------------------------------------------------


def test_a_run_is_counted_when_it_starts_and_by_its_outcome_when_it_ends(bench: Bench) -> None:
    bench.bus.publish(JobEnqueued(job=JOB, task="shop.send", queue="mail"))
    bench.bus.publish(moved(Verb.CLAIM, waited=timedelta(seconds=2)))
    bench.bus.publish(moved(Verb.RETRY, ran=timedelta(seconds=0.02)))
    bench.bus.publish(moved(Verb.CLAIM, waited=timedelta(0)))
    bench.bus.publish(moved(Verb.SUCCEED, ran=timedelta(seconds=40)))
    bench.bus.publish(JobCoalesced(job=JOB, task="shop.send", queue="mail"))
    found, job = bench.read(), {"queue": "mail", "task": "shop.send"}
    assert value(found, "windlass_jobs_enqueued_total", **job) == 1
    assert value(found, "windlass_jobs_coalesced_total", **job) == 1
    assert value(found, "windlass_runs_started_total", **job) == 2
    assert value(found, "windlass_runs_ended_total", **job, outcome="retried") == 1
    assert value(found, "windlass_runs_ended_total", **job, outcome="succeeded") == 1
    assert value(found, "windlass_job_wait_seconds_sum", **job) == 2
    assert value(found, "windlass_job_wait_seconds_bucket", **job, le="1.0") == 1
    assert value(found, "windlass_job_run_seconds_count", **job) == 2
    assert value(found, "windlass_job_run_seconds_bucket", **job, le="60.0") == 2


@pytest.mark.parametrize("verb", [verb for verb in Verb if verb is not Verb.CLAIM])
def test_every_job_event_is_counted_exactly_once(bench: Bench, verb: Verb) -> None:
    by_order = verb in {Verb.REQUEUE, Verb.DISCARD, Verb.EXPIRE}
    bench.bus.publish(moved(verb, worker="" if by_order else "w1"))
    totals = {
        name: count
        for (name, labels), count in bench.read().items()
        if name.endswith("_total") and count
    }
    name = "windlass_jobs_ordered_total" if by_order else "windlass_runs_ended_total"
    assert totals == {name: 1}


def test_the_cancel_of_a_waiting_job_ends_no_run(bench: Bench) -> None:
    bench.bus.publish(moved(Verb.CANCEL, worker=""))
    bench.bus.publish(moved(Verb.CANCEL, worker="w1"))
    found = bench.read()
    job = {"queue": "mail", "task": "shop.send", "outcome": "cancelled"}
    assert value(found, "windlass_jobs_ordered_total", **job) == 1
    assert value(found, "windlass_runs_ended_total", **job) == 1


def test_a_clock_that_was_set_back_makes_no_negative_time(bench: Bench) -> None:
    bench.bus.publish(moved(Verb.CLAIM, waited=timedelta(seconds=-5)))
    found = bench.read()
    assert value(found, "windlass_job_wait_seconds_sum", queue="mail", task="shop.send") == 0


def test_a_cool_down_is_counted_by_its_queue(bench: Bench) -> None:
    event = QueueCooled(queue="mail", until=AT, at=AT, job=JOB, task="shop.send", worker="w1")
    bench.bus.publish(event)
    assert value(bench.read(), "windlass_queue_cooled_total", queue="mail") == 1


# --- labels ------------------------------------------------------------------------------------


def test_a_long_name_keeps_its_label_when_there_is_room_for_no_other() -> None:
    names = LabelNames(1)
    assert names("a" * 300) == names("a" * 300) == "a" * 200
    assert names("b") == OTHER


def test_labels_are_queue_task_outcome_and_state_and_never_what_a_job_brings_along(
    bench: Bench,
) -> None:
    bench.rows = [row("mail", ready=1)]
    error = AttemptError("ValueError", "card 4111", "Traceback card 4111")
    secret = {"tenant": "acme", "correlation_id": "r-17", "error": error}
    bench.bus.publish(moved(Verb.CLAIM, waited=timedelta(0), **secret))
    bench.bus.publish(moved(Verb.FAIL, ran=timedelta(0), **secret))
    text = generate_latest(bench.registry).decode()
    for word in (JOB, "4111", "acme", "r-17", "w1", "ValueError"):
        assert word not in text
    assert set(re.findall(r'(\w+)="', text)) == {"queue", "task", "outcome", "state", "le"}


def test_tasks_and_queues_beyond_the_room_there_is_become_other(bench: Bench) -> None:
    for number in range(400):
        event = JobEnqueued(job=JOB, task=f"task{number}", queue=f"queue{number}")
        bench.bus.publish(event)
    found = bench.read()
    name = "windlass_jobs_enqueued_total"
    labels = [dict(pairs) for found_name, pairs in found if found_name == name]
    assert len({one["task"] for one in labels}) == 201
    assert len({one["queue"] for one in labels}) == 51
    assert value(found, name, queue=OTHER, task=OTHER) == 200
    assert sum(count for (found_name, _), count in found.items() if found_name == name) == 400


def test_no_mixture_of_names_makes_more_series_than_there_is_room_for(bench: Bench) -> None:
    for number in range(5000):
        event = JobEnqueued(job=JOB, task=f"t{number % 199}", queue=f"q{number % 49}")
        bench.bus.publish(event)
    counted = [
        count for (name, _), count in bench.read().items() if name == "windlass_jobs_enqueued_total"
    ]
    assert len(counted) <= 1001
    assert sum(counted) == 5000


def test_a_name_may_hold_anything(bench: Bench) -> None:
    for name in ('qu"o\\te\nline', "läng" * 100, "lone \ud800"):
        bench.bus.publish(JobEnqueued(job=JOB, task=name, queue="mail"))
    found = bench.read()
    assert value(found, "windlass_jobs_enqueued_total", queue="mail", task='qu"o\\te\nline') == 1
    assert len([name for name, _ in found if name == "windlass_jobs_enqueued_total"]) == 3


# --- what is read when somebody scrapes ----------------------------------------------------------


def test_slots_and_backlog_are_as_they_are_at_the_scrape(bench: Bench) -> None:
    bench.rows = [row("mail", ready=7, running=2, paused=1, max_running=4)]
    found = bench.read()
    assert value(found, "windlass_slots") == 10
    assert value(found, "windlass_slots_busy") == 3
    assert value(found, "windlass_jobs", queue="mail", state="ready") == 7
    assert value(found, "windlass_jobs", queue="mail", state="running") == 2
    assert value(found, "windlass_queue_paused", queue="mail") == 1
    assert value(found, "windlass_queue_cooling", queue="mail") == 0
    assert value(found, "windlass_queue_max_running", queue="mail") == 4


def test_a_queue_shows_how_late_it_is_and_how_many_jobs_wait_for_another_attempt(
    bench: Bench,
) -> None:
    bench.rows = [row("mail", ready=2, retrying=1, lag=90), row("idle", lag=0)]
    found = bench.read()
    assert value(found, "windlass_queue_lag_seconds", queue="mail") == 90
    assert value(found, "windlass_queue_retrying", queue="mail") == 1
    assert value(found, "windlass_queue_lag_seconds", queue="idle") == 0


def test_flows_are_shown_by_state_with_their_blocked_jobs_and_the_age_of_the_oldest(
    bench: Bench,
) -> None:
    bench.flows = dict.fromkeys(backlog.FLOW_STATES, 2.0) | {"blocked": 40.0, "oldest": 90.0}
    found = bench.read()
    assert value(found, "windlass_flows", state="running") == 2
    assert value(found, "windlass_flows", state="cancelled") == 2
    assert value(found, "windlass_jobs_blocked") == 40
    assert value(found, "windlass_flow_oldest_seconds") == 90


def test_a_queue_that_no_worker_serves_has_no_workers(bench: Bench) -> None:
    bench.rows = [row("mail", ready=7, workers=0), row("default", workers=2)]
    found = bench.read()
    assert value(found, "windlass_queue_workers", queue="mail") == 0
    assert value(found, "windlass_queue_workers", queue="default") == 2


def test_jobs_that_this_process_cannot_run_are_counted_by_task(bench: Bench) -> None:
    for _ in range(3):
        bench.bus.publish(msgspec.structs.replace(moved(Verb.RELEASE), missed=True))
    bench.bus.publish(moved(Verb.RELEASE))
    (count,) = [n for (name, _), n in bench.read().items() if name == "windlass_runs_missed_total"]
    assert count == 3


def test_the_store_is_not_read_before_a_scrape(bench: Bench) -> None:
    bench.bus.publish(moved(Verb.SUCCEED))
    assert bench.looks == 0


def test_scrapes_in_a_row_share_one_look(bench: Bench, tick: Tick) -> None:
    for _ in range(10):
        bench.read()
    assert bench.looks == 1
    tick.now += 6
    bench.read()
    assert bench.looks == 2


def test_a_look_that_takes_long_is_repeated_less_often(bench: Bench, tick: Tick) -> None:
    async def slow() -> backlog.StoreNumbers:
        tick.now += 2
        bench.looks += 1
        return backlog.StoreNumbers((), {})

    Metrics(
        bench.bus, registry := CollectorRegistry(), slots=lambda: (0, 0), look=slow,
        start=bench.start,
    )  # fmt: skip
    samples(registry)
    tick.now += 39
    samples(registry)
    assert bench.looks == 1
    tick.now += 2
    samples(registry)
    assert bench.looks == 2


def test_numbers_of_a_store_that_cannot_be_read_end_instead_of_standing_still(
    bench: Bench, tick: Tick
) -> None:
    bench.rows = [row("mail", ready=7)]
    bench.read()
    bench.down = True
    tick.now += 30
    assert value(bench.read(), "windlass_jobs", queue="mail", state="ready") == 7
    tick.now += 31
    found = bench.read()
    assert value(found, "windlass_jobs", queue="mail", state="ready") is None
    assert value(found, "windlass_slots") == 10


def test_queues_beyond_the_room_there_is_are_added_up(bench: Bench) -> None:
    bench.rows = [row(f"queue{number}", ready=1) for number in range(60)]
    assert value(bench.read(), "windlass_jobs", queue=OTHER, state="ready") == 10


# --- an app --------------------------------------------------------------------------------------


@pytest.fixture
async def app() -> AsyncIterator[Windlass]:
    app = Windlass("memory://")
    yield app
    await app.close()
    parts_of(app).blocking_loop.stop()


async def test_an_app_counts_what_its_worker_does(app: Windlass) -> None:
    tries: list[int] = []

    @app.task(name="shop.send", queue="mail", backoff=Backoff.fixed(0))
    async def send() -> None:
        tries.append(len(tries))
        if len(tries) == 1:
            raise ValueError("no")
        if len(tries) == 2:
            raise Snooze(0)

    registry = CollectorRegistry()
    metrics = app.metrics(registry)
    async with app.worker():
        await (await send.enqueue()).result(timeout=30)
        page, content_type = await metrics.page()
    assert content_type.startswith("text/plain")
    found, job = parsed(page.decode()), {"queue": "mail", "task": "shop.send"}
    assert value(found, "windlass_jobs_enqueued_total", **job) == 1
    assert value(found, "windlass_runs_started_total", **job) == 3
    for outcome in ("retried", "snoozed", "succeeded"):
        assert value(found, "windlass_runs_ended_total", **job, outcome=outcome) == 1
    assert value(found, "windlass_slots") == 10
    assert value(found, "windlass_jobs", queue="mail", state="succeeded") == 1
    assert value(found, "windlass_flows", state="running") == 0
    assert value(samples(registry), "windlass_slots") == 0  # the worker has ended


async def test_registered_tasks_are_at_zero_before_their_first_run(app: Windlass) -> None:
    registry = CollectorRegistry()
    app.metrics(registry)

    @app.task(name="shop.send", queue="mail")
    async def send() -> None: ...

    found, job = samples(registry), {"queue": "mail", "task": "shop.send"}
    assert value(found, "windlass_jobs_enqueued_total", **job) == 0
    assert value(found, "windlass_runs_started_total", **job) == 0
    assert value(found, "windlass_job_run_seconds_count", **job) == 0
    for outcome in ("succeeded", "failed"):
        assert value(found, "windlass_runs_ended_total", **job, outcome=outcome) == 0
    assert value(found, "windlass_runs_ended_total", **job, outcome="snoozed") is None


async def test_an_app_shows_the_lag_of_its_oldest_ready_job(app: Windlass) -> None:
    @app.task(name="shop.send", queue="mail", backoff=Backoff.fixed(0))
    async def send() -> None:
        raise ValueError("no")

    metrics = app.metrics(CollectorRegistry())
    await send.options(at=datetime.now(UTC) - timedelta(minutes=5)).enqueue()
    found = parsed((await metrics.page())[0].decode())
    assert 300 <= (value(found, "windlass_queue_lag_seconds", queue="mail") or 0) < 400
    assert value(found, "windlass_queue_retrying", queue="mail") == 0


async def test_a_scraper_that_asks_for_openmetrics_gets_it(bench: Bench) -> None:
    bench.rows = [row("mail", ready=7)]
    for verb in Verb:
        bench.bus.publish(moved(verb, waited=timedelta(0), ran=timedelta(0)))
    page, content_type = await bench.metrics.page("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    families = {family.name: family.type for family in openmetrics(page.decode())}  # type: ignore[no-untyped-call]
    assert families["windlass_runs_ended"] == "counter"
    assert families["windlass_job_run_seconds"] == "histogram"
    assert families["windlass_jobs"] == "gauge"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not on this machine")
async def test_promtool_has_nothing_to_say(bench: Bench) -> None:
    bench.rows = [row("mail", ready=7)]
    for verb in Verb:
        bench.bus.publish(moved(verb, waited=timedelta(0), ran=timedelta(0)))
    page, _ = await bench.metrics.page("text/plain")
    done = subprocess.run(
        ["promtool", "check", "metrics"],
        input=page,
        capture_output=True,
        check=False,
        timeout=30,
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


async def test_busy_slots_are_those_that_hold_a_job(app: Windlass) -> None:
    begun, end = asyncio.Event(), asyncio.Event()

    @app.task
    async def hold() -> None:
        begun.set()
        await end.wait()

    registry = CollectorRegistry()
    app.metrics(registry)
    async with app.worker(slots=4):
        await hold.enqueue()
        await begun.wait()
        found = samples(registry)
        end.set()
    assert value(found, "windlass_slots_busy") == 1
    assert value(found, "windlass_slots") == 4


def test_a_scrape_from_a_thread_waits_for_the_backlog() -> None:
    app, registry = Windlass("memory://"), CollectorRegistry()

    @app.task
    async def later() -> None: ...

    app.metrics(registry)
    later.enqueue_sync()
    assert value(samples(registry), "windlass_jobs", queue="default", state="ready") == 1
    app.blocking.close()


def test_metrics_asked_for_again_are_the_same() -> None:
    app, registry = Windlass("memory://"), CollectorRegistry()
    metrics = app.metrics(registry)
    assert app.metrics() is app.metrics(registry) is metrics
    with pytest.raises(ConfigError, match="with another registry"):
        app.metrics(CollectorRegistry())


def test_two_apps_cannot_share_a_registry() -> None:
    registry = CollectorRegistry()
    Windlass("memory://").metrics(registry)
    with pytest.raises(ConfigError, match="give each app one of its own"):
        Windlass("memory://").metrics(registry)


def test_an_app_without_metrics_has_no_listener() -> None:
    assert not parts_of(Windlass("memory://")).hooks.bus.heard


def test_without_the_library_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "windlass._observe.prometheus")
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(MissingDependency, match=re.escape("pip install 'windlass[metrics]'")):
        Windlass("memory://").metrics()
