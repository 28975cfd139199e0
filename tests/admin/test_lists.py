"""Lists of jobs: their usual order, words for states, and what a page says of the rest."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.admin.desk import a_failed_job, admin_of
from windlass import Every, Windlass
from windlass.admin import snapshot
from windlass.core.breaker import BreakerState
from windlass.core.state import Shown, State
from windlass.errors import InvalidArgument
from windlass.storage.looks import JobFilter, ListOrder
from windlass.storage.memory import MemoryDatabase, MemoryStorage
from windlass.storage.protocol import Storage
from windlass.storage.sorting import possible_orders, usual_order
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.steps import HOUR, MINUTE, a_job, add


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
        assert usual_order(wanted) in possible_orders(wanted)
    assert usual_order(JobFilter(states=[State.FAILED])) is ListOrder.FINISHED_LAST
    assert usual_order(JobFilter(states=[State.FAILED], key="k")) is ListOrder.NEWEST


async def test_lists_come_in_the_order_that_suits_their_states(
    storage: Storage, clock: VirtualClock
) -> None:
    admin = admin_of(storage)
    soon, late = await add(storage, a_job(delay=HOUR), a_job(delay=2 * HOUR))
    (last,) = await add(storage, a_job(queue="b"))
    first = await a_failed_job(storage, queue="a")
    clock.advance(MINUTE)
    await a_failed_job(storage, queue="b")
    latest = [job.id for job in await admin.find(JobFilter(states=[State.FAILED]))]
    assert latest[-1] == first
    assert last in latest[:2]
    scheduled = await admin.find(JobFilter(shown=[Shown.SCHEDULED]))
    assert [job.id for job in scheduled] == [soon, late]
    assert (await admin.count(JobFilter(states=[State.FAILED], queue="b"))).number == 2


async def test_pages_of_a_snapshot_repeat_no_job_and_say_where_they_end(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot, "MOST", 4)
    jobs = await add(storage, *(a_job() for _ in range(7)))
    admin = admin_of(storage)
    pages = [(await admin.snapshot(page_size=2, enqueued=n)).enqueued for n in range(1, 5)]
    met = [line.id for page in pages for line in page.jobs]
    assert met == jobs[:2:-1]
    assert [(page.total, page.exact, page.beyond) for page in pages] == [
        (4, False, False),
        (4, False, False),
        (4, False, True),
        (4, False, True),
    ]
    rest = await admin.find(JobFilter(states=[State.WAITING], before=pages[1].next))
    assert [job.id for job in rest] == jobs[2::-1]


async def test_a_page_of_schedules_takes_as_many_reads_as_one_schedule(
    clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = MemoryStorage(MemoryDatabase(clock))
    app = Windlass("memory://")

    @app.task(breaker=True)
    async def report() -> None: ...

    admin, reads = admin_of(storage), Counter[str]()
    for store, name in (
        *((storage.schedules, "rows"), (storage.admin, "get")),
        *((storage.limits, "breakers"), (storage.limits, "states")),
    ):
        asked = getattr(store, name)

        def counted(*given: Any, asked: Any = asked, name: str = name, **named: Any) -> Any:
            reads[name] += 1
            return asked(*given, **named)

        monkeypatch.setattr(store, name, counted)
    seen = []
    for n in range(130):
        await admin.create_schedule(f"s{n:03}", Every(3600), report.call())
        await admin.trigger_schedule(f"s{n:03}")
        if n in {0, 129}:
            reads.clear()
            reports = await admin.schedules()
            assert [one.runs[0].outcome for one in reports] == ["waiting"] * (n + 1)
            assert reports[0].breaker == BreakerState()
            seen.append(dict(reads))
    assert seen[0] == seen[1] == {"rows": 1, "get": 1, "breakers": 1}
    told = await admin.snapshot()
    assert [one.name for one in told.schedules] == [f"s{n:03}" for n in range(100)]
    assert told.schedules_after == "s099"
    rest, after = await admin.schedule_page(after="s099")
    assert ([one.name for one in rest], after) == ([f"s{n}" for n in range(100, 130)], None)
    await admin.remove_schedule("s001")
    some, after = await admin.schedule_page(limit=2)
    assert ([one.name for one in some], after) == (["s000", "s002"], "s002")
    assert [name for name, state in await admin.schedule_states() if state == "active"][
        -1
    ] == "s129"
