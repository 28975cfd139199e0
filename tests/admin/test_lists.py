"""Lists of jobs: their usual order, words for states, and what a page says of the rest."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest

from tests.admin.fixtures import a_failed_job, admin_of
from windlass import Every, Windlass
from windlass._admin import overview, schedules
from windlass._admin.overview import Snapshot
from windlass._core.job.outcome import GaveUp
from windlass._core.job.state import Shown, State
from windlass._core.limits.breaker import Breaker, BreakerState
from windlass._core.limits.limit import LimitSpec
from windlass._schedules.edits import decoded as read_schedule
from windlass._storage.memory import MemoryDatabase, MemoryStorage
from windlass._storage.protocol.lists.job_list import JobFilter, ListOrder
from windlass._storage.protocol.lists.list_order import default_order, possible_orders
from windlass._storage.protocol.schedules import ScheduleRow
from windlass._storage.protocol.storage import Storage
from windlass._tasks.limits import breaker_name
from windlass.errors import InvalidArgument, StorageUnavailable
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    HOUR,
    INSTANT,
    MINUTE,
    OOPS,
    a_job,
    add,
    happened,
    keyed,
    started,
    succeeded,
)


def test_states_may_be_given_as_words() -> None:
    words: Any = ("waiting", "failed")
    assert JobFilter(states=words) == JobFilter(states=[State.WAITING, State.FAILED])
    one: Any = "scheduled"
    assert JobFilter(shown=one) == JobFilter(shown=[Shown.SCHEDULED])
    order: Any = "-finished"
    assert JobFilter(order=order).order is ListOrder.FINISHED_LAST


def test_a_word_that_is_no_state_is_refused_with_those_that_are() -> None:
    wrong: Any = ("waiting", "scheduled")
    with pytest.raises(InvalidArgument, match=r"waiting, running, .* use shown="):
        JobFilter(states=wrong)
    wrong = "sideways"
    with pytest.raises(InvalidArgument, match="enqueued, due"):
        JobFilter(order=wrong)


def test_every_usual_order_is_a_possible_one() -> None:
    for shown in [[one] for one in Shown] + [[Shown.FAILED, Shown.READY], list(Shown)]:
        wanted = JobFilter(shown=shown)
        assert default_order(wanted) in possible_orders(wanted)
    assert default_order(JobFilter(states=[State.FAILED])) is ListOrder.FINISHED_LAST
    assert default_order(JobFilter(states=[State.FAILED], key="k")) is ListOrder.NEWEST


async def test_lists_come_in_the_order_that_suits_their_states(
    storage: Storage, clock: VirtualClock
) -> None:
    admin = admin_of(storage)
    soon, late = await add(storage, a_job(delay=HOUR), a_job(delay=2 * HOUR))
    (last,) = await add(storage, a_job(queue="b"))
    first = await a_failed_job(storage, queue="a")
    clock.advance(MINUTE)
    await a_failed_job(storage, queue="b")
    latest = [job.id for job in await admin.jobs.find(JobFilter(states=[State.FAILED]))]
    assert latest[-1] == first
    assert last in latest[:2]
    scheduled = await admin.jobs.find(JobFilter(shown=[Shown.SCHEDULED]))
    assert [job.id for job in scheduled] == [soon, late]
    assert (await admin.jobs.count(JobFilter(states=[State.FAILED], queue="b"))).number == 2


async def test_pages_of_a_snapshot_repeat_no_job_and_say_where_they_end(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overview, "MAX_PAGE", 4)
    jobs = await add(storage, *(a_job() for _ in range(7)))
    admin = admin_of(storage)
    pages = [(await admin.overview.snapshot(page_size=2, enqueued=n)).enqueued for n in range(1, 5)]
    met = [line.id for page in pages for line in page.jobs]
    assert met == jobs[:2:-1]
    assert [(page.total, page.exact, page.beyond) for page in pages] == [
        (4, False, False),
        (4, False, False),
        (4, False, True),
        (4, False, True),
    ]
    rest = await admin.jobs.find(JobFilter(states=[State.WAITING], before=pages[1].next))
    assert [job.id for job in rest] == jobs[2::-1]


def _reads(storage: MemoryStorage, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often which part of a store was read from now on."""
    reads = Counter[str]()
    for store, name in (
        *((storage.schedules, "rows"), (storage.schedules, "page"), (storage.admin, "get")),
        *((storage.jobs, "settled"), (storage.limits, "specs")),
        *((storage.limits, "breakers"), (storage.limits, "states")),
    ):
        asked = getattr(store, name)

        def counted(*given: Any, asked: Any = asked, name: str = name, **named: Any) -> Any:
            reads[name] += 1
            return asked(*given, **named)

        monkeypatch.setattr(store, name, counted)
    return reads


async def test_many_breakers_take_as_many_reads_as_one(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = MemoryStorage(MemoryDatabase(clock))
    admin, reads = admin_of(storage), _reads(storage, monkeypatch)
    for n in (1, 30):
        tasks = [f"t{at:02}" for at in range(n)]
        await storage.limits.define(
            [LimitSpec(name=breaker_name(task), breaker=Breaker()) for task in tasks]
        )
        reads.clear()
        assert [one.task for one in await admin.breakers.list()] == tasks
        assert reads == {"specs": 1, "breakers": 1}


async def test_a_page_of_schedules_takes_as_many_reads_as_one_schedule(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = MemoryStorage(MemoryDatabase(clock))
    app = Windlass("memory://")

    @app.task(breaker=True)
    async def report() -> None: ...

    admin, reads = admin_of(storage), _reads(storage, monkeypatch)
    seen = []
    for n in range(130):
        await admin.schedules.create(f"s{n:03}", Every(3600), report.call())
        await admin.schedules.trigger(f"s{n:03}")
        if n in {0, 129}:
            reads.clear()
            reports = await admin.schedules.list()
            assert [one.runs[0].outcome for one in reports] == ["waiting"] * (n + 1)
            assert reports[0].breaker == BreakerState()
            seen.append(dict(reads))
    assert seen[0] == seen[1] == {"rows": 1, "get": 1, "breakers": 1}
    told = await admin.overview.snapshot()
    assert [one.name for one in told.schedules] == [f"s{n:03}" for n in range(100)]
    assert told.schedules_after == "s099"
    rest, after = await admin.schedules.page(after="s099")
    assert ([one.name for one in rest], after) == ([f"s{n}" for n in range(100, 130)], None)
    await admin.schedules.remove("s001")
    some, after = await admin.schedules.page(limit=2)
    assert ([one.name for one in some], after) == (["s000", "s002"], "s002")
    assert [name for name, state in await admin.schedules.states() if state == "active"][
        -1
    ] == "s129"


async def test_a_key_without_its_task_is_refused_with_how_it_is_written(storage: Storage) -> None:
    await add(storage, keyed("send/42"), keyed("/42"))
    admin = admin_of(storage)
    for ask in (admin.jobs.find, admin.jobs.count):
        with pytest.raises(InvalidArgument, match=r"TASK/KEY, such as send_digest/42, or /KEY"):
            await ask(JobFilter(key="42"))
    for key in ("send/42", "/42"):
        assert [job.key for job in await admin.jobs.find(JobFilter(key=key))] == [key]


async def test_repeated_reads_of_schedules_decode_only_changed_ones(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    app, decoded = Windlass("memory://"), Counter[str]()

    @app.task
    async def report() -> None: ...

    admin = admin_of(storage)
    for n in range(3):
        await admin.schedules.create(f"s{n}", Every(3600), report.call())

    def counting(row: ScheduleRow) -> Any:
        decoded[row.name] += 1
        return read_schedule(row)

    monkeypatch.setattr(schedules, "decoded", counting)
    first = await admin.schedules.fingerprint()
    assert decoded == {"s0": 1, "s1": 1, "s2": 1}
    assert await admin.schedules.fingerprint() == first
    assert decoded.total() == 3
    await admin.schedules.trigger("s1")
    decoded.clear()
    assert await admin.schedules.fingerprint() != first
    assert decoded == {"s1": 1}


async def test_a_job_is_listed_up_to_the_end_of_its_window(
    storage: Storage, clock: VirtualClock
) -> None:
    done, lost = await started(storage), await started(storage)
    await succeeded(storage, done)
    await happened(storage, lost, GaveUp(OOPS))

    async def listed(after: timedelta) -> tuple[int, int]:
        clock.advance(after)
        snapshot = await admin_of(storage).overview.snapshot()
        return snapshot.completed.total, snapshot.failed.total

    assert await listed(timedelta(hours=24)) == (1, 1)
    assert await listed(INSTANT) == (0, 1)
    assert await listed(timedelta(days=6) - INSTANT) == (0, 1)
    assert await listed(INSTANT) == (0, 0)


async def test_a_store_that_cannot_be_read_gives_an_empty_snapshot() -> None:
    async def away() -> Storage:
        raise StorageUnavailable("The database does not answer.")

    admin = admin_of(away)
    assert await admin.overview.snapshot() == Snapshot()
    assert await admin.overview.snapshot(page_size=3) == Snapshot(page_size=3)
