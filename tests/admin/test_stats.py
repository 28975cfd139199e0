"""Counts, lags, series, groups of errors, searches, the snapshot."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from tests.admin.fixtures import a_failed_job, admin_of, fail_all
from windlass import Backoff, Windlass
from windlass._admin import queues
from windlass._app.parts import parts_of
from windlass._core.job.state import Shown, State
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.storage import Storage
from windlass.admin import TaskReport
from windlass.errors import InvalidArgument
from windlass.testing import drain, isolated
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    HOUR,
    MINUTE,
    SECOND,
    a_job,
    add,
    claim,
    enlist,
    started,
    succeeded,
)


async def ran(storage: Storage, clock: VirtualClock, seconds: int, **asked: object) -> None:
    job = await started(storage, a_job(**asked))
    clock.advance(seconds * SECOND)
    await succeeded(storage, job)


async def test_a_series_has_a_point_for_every_step_and_merges_what_falls_into_it(
    storage: Storage, clock: VirtualClock
) -> None:
    await enlist(storage)
    begin = clock.now().replace(second=0, microsecond=0)
    for seconds in (1, 2, 40):
        await ran(storage, clock, seconds)
    clock.advance(5 * MINUTE)
    await ran(storage, clock, 1)
    told = await admin_of(storage).stats.series(begin, begin + 10 * MINUTE, step=5 * MINUTE)
    assert told.step == 5 * MINUTE
    assert [point.at for point in told.points] == [begin, begin + 5 * MINUTE]
    first, second = told.points
    assert (first.counts, second.counts) == ({"succeed": 3}, {"succeed": 1})
    assert first.run is not None
    assert 2 * SECOND <= first.run.p50 <= 2.5 * SECOND
    assert 40 * SECOND <= first.run.p99 == first.run.max <= 50 * SECOND
    assert first.run.count == 3
    assert (told.whole.at, told.whole.counts) == (begin, {"succeed": 4})
    assert told.whole.run is not None
    assert told.whole.run.count == 4


async def test_a_series_is_of_one_queue_or_task_where_asked(
    storage: Storage, clock: VirtualClock
) -> None:
    await enlist(storage)
    begin = clock.now()
    await ran(storage, clock, 1, task="shop.mail")
    await ran(storage, clock, 1, task="shop.bill")
    admin = admin_of(storage)
    until = begin + 2 * MINUTE
    mail = await admin.stats.series(begin, until, task="shop.mail")
    assert sum(point.counts.get("succeed", 0) for point in mail.points) == 1
    none = await admin.stats.series(begin, until, queue="elsewhere")
    assert not any(point.counts for point in none.points)
    told = await admin.stats.activity(begin, until, by="task")
    assert [one.name for one in told] == ["shop.bill", "shop.mail"]


async def test_a_series_of_too_many_points_is_refused(storage: Storage) -> None:
    admin = admin_of(storage)
    now = await admin.storage.now()
    with pytest.raises(InvalidArgument, match="widen the step"):
        await admin.stats.series(now - timedelta(hours=40), now, step=MINUTE)
    with pytest.raises(InvalidArgument, match="whole minutes"):
        await admin.stats.series(now - HOUR, now, step=90)


async def test_old_statistics_come_by_the_hour(storage: Storage) -> None:
    admin = admin_of(storage)
    now = await admin.storage.now()
    assert (await admin.stats.series(now - timedelta(days=3), now, step=MINUTE)).step == HOUR


async def test_lag_is_how_long_the_oldest_ready_job_has_been_due(
    storage: Storage, clock: VirtualClock
) -> None:
    """Forge: future jobs are not lag."""
    await add(storage, a_job(delay=HOUR, queue="later"), a_job(queue="mail"))
    clock.advance(30 * SECOND)
    await add(storage, a_job(queue="mail", priority=-9))
    assert await admin_of(storage).queues.lags() == {"mail": 30 * SECOND}


async def test_counting_stops_at_its_cap(storage: Storage) -> None:
    await add(storage, *[a_job(task="t") for _ in range(5)])
    admin = admin_of(storage)
    for wanted in (JobFilter(), JobFilter(task="t"), JobFilter(states=[State.WAITING])):
        all_of_them = await admin.jobs.count(wanted)
        assert (all_of_them.number, all_of_them.exact) == (5, True)
        some = await admin.jobs.count(wanted, most=3)
        assert (some.number, some.exact) == (3, False)
    assert (await admin.jobs.count(JobFilter(shown=[Shown.SCHEDULED]))).number == 0
    hurried = await admin.jobs.count(JobFilter(task="shop.mail"), within=0)
    assert not hurried.exact


async def test_a_group_of_errors_leads_to_its_jobs(storage: Storage) -> None:
    await a_failed_job(storage, task="t")
    await a_failed_job(storage, task="u")
    admin = admin_of(storage)
    (group,) = (await admin.errors.groups()).groups
    assert (group.count, list(group.tasks)) == (2, ["t", "u"])
    jobs = await admin.jobs.find(
        JobFilter(states=[State.FAILED], error=group.kind, frame=group.frame or None)
    )
    assert len(jobs) == 2
    assert (await admin.errors.groups(task="t")).groups[0].count == 1


async def test_text_is_found_in_arguments_and_errors(storage: Storage) -> None:
    (told,) = await add(storage, a_job(payload=b'{"to":"Anna@example.org"}'))
    failed = await a_failed_job(storage, queue="q")
    admin = admin_of(storage)
    assert [job.id for job in await admin.jobs.search("anna@EXAMPLE")] == [told]
    (error,) = (await admin.errors.groups()).groups
    assert [job.id for job in await admin.jobs.search(error.text)] == [failed]
    assert not await admin.jobs.search("anna", JobFilter(queue="q"))
    with pytest.raises(InvalidArgument, match="a text to search for"):
        await admin.jobs.search("")


async def test_a_search_that_finds_nothing_has_gone_through_everything(storage: Storage) -> None:
    await add(storage, *[a_job() for _ in range(30)])
    page = await admin_of(storage).jobs.search("nowhere")
    assert (len(page), page.next) == (0, None)


async def test_tasks_are_known_by_what_ran_and_what_waits(
    storage: Storage, clock: VirtualClock
) -> None:
    await enlist(storage)
    await ran(storage, clock, 1, task="b")
    await add(storage, a_job(task="a", queue="mail"))
    clock.advance(2 * MINUTE)
    admin = admin_of(storage)
    assert await admin.stats.tasks() == ["a", "b"]
    assert await admin.stats.tasks(queue="mail") == ["a"]


async def test_the_snapshot_shows_one_job_of_each_list(
    storage: Storage, clock: VirtualClock
) -> None:
    """A1."""
    await enlist(storage)
    await ran(storage, clock, 1)
    await a_failed_job(storage, principal="42", correlation_id="r-1")
    running = await started(storage)
    (waiting,) = await add(storage, a_job())
    told = await admin_of(storage).overview.snapshot()
    assert [line.id for line in told.enqueued.jobs] == [waiting]
    assert [line.id for line in told.running.jobs] == [running.claim.job]
    assert told.completed.total == told.failed.total == 1
    (failed,) = told.failed.jobs
    assert (failed.principal, failed.correlation_id) == ("42", "r-1")
    assert failed.last_error
    assert failed.finished_at is not None
    assert failed.finished_at.endswith("Z")
    assert "." not in failed.finished_at


async def test_the_pages_of_a_list_are_numbered_and_clamped(storage: Storage) -> None:
    jobs = await add(storage, *[a_job() for _ in range(7)])
    admin = admin_of(storage)
    told = await admin.overview.snapshot(page_size=3, enqueued=2)
    assert [line.id for line in told.enqueued.jobs] == [jobs[3], jobs[2], jobs[1]]
    assert (told.enqueued.pages, told.enqueued.total) == (3, 7)
    beyond = (await admin.overview.snapshot(page_size=3, enqueued=9)).enqueued
    assert (list(beyond.jobs), beyond.total) == ([], 7)
    clamped = await admin.overview.snapshot(page_size=0, enqueued=-4)
    assert (clamped.page_size, clamped.enqueued.page) == (1, 1)
    assert (await admin.overview.snapshot(page_size=1_000)).page_size == 100


async def test_lists_have_a_window(storage: Storage, clock: VirtualClock) -> None:
    await enlist(storage)
    await ran(storage, clock, 1)
    await add(storage, a_job())
    await fail_all(storage)
    clock.advance(timedelta(hours=25))
    told = await admin_of(storage).overview.snapshot()
    assert (told.completed.total, told.failed.total) == (0, 1)
    clock.advance(timedelta(days=6))
    assert (await admin_of(storage).overview.snapshot()).failed.total == 0


async def test_counts_are_capped_by_the_number_of_queues(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "_CAPS", (2, 3, 5))
    monkeypatch.setattr(queues, "_COUNTED", 10)
    admin = admin_of(storage)

    async def ready(**of: int) -> list[int]:
        await add(storage, *(a_job(queue=queue) for queue in of for _ in range(of[queue])))
        return [one.ready for one in await admin.queues.counts()]

    assert await ready(a=1, b=1) == [1, 1]
    assert await ready(a=7) == [5, 1]  # one is cut off, as late as may be
    assert await ready(b=7) == [5, 5]
    assert await ready(c=9) == [3, 3, 3]  # three are, so sooner
    assert await ready(d=9, e=9, f=9, g=9) == [2] * 7
    assert {one.cap for one in await admin.queues.counts()} == {2}
    assert [one.ready for one in await admin.queues.counts(cap=None)] == [8, 8, 9, 9, 9, 9, 9]
    assert [one.ready for one in await admin.queues.counts(cap=4)] == [4] * 7


# --- by task -------------------------------------------------------------------------------------


async def test_a_registered_task_is_listed_with_zeros_before_its_first_job() -> None:  # DEF-7
    app = Windlass("memory://")

    @app.task(name="send", queue="mail")
    async def send() -> None: ...

    async with app:
        assert await app.admin.tasks.list() == [TaskReport(task="send", queue="mail")]
        assert await app.admin.stats.tasks() == ["send"]
        assert await app.admin.stats.tasks(queue="mail") == ["send"]
        assert await app.admin.stats.tasks(queue="default") == []


async def test_a_task_shows_its_jobs_its_outcomes_and_its_last_error() -> None:  # STAT-1
    app = Windlass("memory://", max_attempts=2, backoff=Backoff.fixed(0))

    @app.task(name="add")
    async def fine() -> None: ...

    @app.task(name="pay")
    async def pay(account: str) -> None:
        raise ValueError(f"no money on {account}")

    async with app:
        await fine.enqueue()
        for account in ("a", "b"):
            await pay.enqueue(account)
            await drain(app)
        await fine.enqueue()
        await fine.options(delay=60).enqueue()
        await pay.options(delay=60).enqueue("c")
        storage = await parts_of(app).storage()
        await enlist(storage)
        await claim(storage, 1)
        added, paid = await app.admin.tasks.list()
        assert (added.waiting, added.running, added.succeeded, added.failed) == (1, 1, 1, 0)
        assert (added.last_error, added.last_failed_at) == (None, None)
        assert (paid.waiting, paid.running, paid.succeeded) == (1, 0, 0)
        assert (paid.retried, paid.failed) == (2, 2)
        assert paid.last_error == "ValueError: no money on b"
        assert paid.last_failed_at is not None
        assert not paid.at_least


async def test_a_task_that_only_a_worker_has_is_listed_without_a_queue(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    shop, other = Windlass(url), Windlass(url)

    @shop.task(name="send")
    async def send() -> None: ...

    async with shop, other, shop.worker():
        (report,) = await other.admin.tasks.list()
    assert (report.task, report.queue, report.workers) == ("send", None, 1)


async def test_outcomes_before_the_span_are_not_counted() -> None:
    app = Windlass("memory://")

    @app.task(name="send")
    async def send() -> None: ...

    with isolated(app) as clock:
        await send.enqueue()
        await drain(app)
        clock.advance(timedelta(hours=2))
        (day,) = await app.admin.tasks.list()
        (hour,) = await app.admin.tasks.list(within=3600)
        assert (day.succeeded, hour.succeeded) == (1, 0)
        with pytest.raises(InvalidArgument, match="within"):
            await app.admin.tasks.list(within=-1)


# --- hosts and the storage ------------------------------------------------------------------------


async def measured(storage: Storage, clock: VirtualClock, minutes: int) -> None:
    await enlist(storage)
    for number in range(minutes):
        cpu = 0.25 if number % 2 else 0.75
        readings = {"web-1": {"cpu": cpu}, "web-2": {"cpu": 1.0}, "": {"size": 1000.0 + number}}
        await storage.workers.beat("w1", readings=readings)
        clock.advance(MINUTE)


async def test_hosts_and_the_storage_have_series_of_their_own(
    storage: Storage, clock: VirtualClock
) -> None:  # METR-8, API-3
    begin = clock.now().replace(second=0, microsecond=0)
    await measured(storage, clock, 4)
    stats = admin_of(storage).stats
    one, two = await stats.hosts(begin, clock.now(), step=2 * MINUTE)
    assert (one.source, two.source) == ("web-1", "web-2")
    assert [point.mean for point in one.points][:2] == [{"cpu": 0.5}, {"cpu": 0.5}]
    assert [point.peak for point in one.points][:2] == [{"cpu": 0.75}, {"cpu": 0.75}]
    (only,) = await stats.hosts(begin, clock.now(), host="web-2")
    assert only.whole.mean == {"cpu": 1.0}
    assert await stats.hosts(begin, clock.now(), host="unknown") == []
    size = await stats.storage(begin, clock.now())
    assert size.latest is not None
    assert size.latest.mean == {"size": 1003.0}


async def test_a_storage_that_no_worker_measured_has_an_empty_series(
    storage: Storage, clock: VirtualClock
) -> None:
    told = await admin_of(storage).stats.storage(clock.now() - HOUR, clock.now())
    assert (told.latest, {len(point.mean) for point in told.points}) == (None, {0})


async def test_points_of_old_gauges_are_hours(storage: Storage, clock: VirtualClock) -> None:
    begin = clock.now()
    await measured(storage, clock, 2)
    clock.advance(timedelta(days=3))
    (one, _) = await admin_of(storage).stats.hosts(begin, begin + HOUR, step=MINUTE)
    assert one.step == HOUR
    with pytest.raises(InvalidArgument, match="whole minutes"):
        await admin_of(storage).stats.hosts(clock.now() - HOUR, clock.now(), step=30 * SECOND)
