"""The event log by pages and filters."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import pytest

from tests.admin.fixtures import admin_of
from windlass._admin.jobs import events as events_module
from windlass._core.job.job import JobId
from windlass._storage.protocol.journal import EventRecord
from windlass._storage.protocol.storage import Storage
from windlass.admin import Admin, EventFilter
from windlass.errors import InvalidArgument, JobNotFound
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import HOUR, SECOND, a_job, add

KINDS = ("enqueued", "started", "succeeded")


async def logged(storage: Storage, clock: VirtualClock, count: int) -> Sequence[JobId]:
    """Jobs with three events each; the events of a job have the same instant."""
    jobs = await add(storage, *(a_job() for _ in range(count)))
    for number, job in enumerate(jobs):
        task, queue = f"t{number % 2}", f"q{number % 3}"
        await storage.journal.append_events(
            [
                EventRecord(at=clock.now(), kind=kind, job=job, task=task, queue=queue, worker="w1")
                for kind in KINDS
            ]
        )
        clock.advance(SECOND)
    return jobs


async def pages(
    admin: Admin, wanted: EventFilter, *, limit: int, newest_first: bool
) -> list[EventRecord]:
    """Read page after page to the end."""
    found: list[EventRecord] = []
    after: str | None = None
    for _ in range(100):
        page = await admin.storage.timeline(
            wanted, limit=limit, newest_first=newest_first, after=after
        )
        assert len(page.events) <= limit
        found += page.events
        after = page.next
        if after is None:
            return found
    raise AssertionError("there is no end of it")


@pytest.mark.parametrize("limit", [1, 2, 4, 100])
@pytest.mark.parametrize("newest_first", [True, False])
async def test_pages_leave_out_and_repeat_no_event_of_the_same_instant(
    storage: Storage, clock: VirtualClock, limit: int, *, newest_first: bool
) -> None:  # API-3
    jobs = await logged(storage, clock, 5)
    found = await pages(admin_of(storage), EventFilter(), limit=limit, newest_first=newest_first)
    told = [(event.job, event.kind) for event in found]
    expected = [(job, kind) for job in jobs for kind in KINDS]
    assert told == (expected[::-1] if newest_first else expected)


async def test_filters_combine(storage: Storage, clock: VirtualClock) -> None:
    jobs = await logged(storage, clock, 7)
    admin = admin_of(storage)

    async def asked(**fields: object) -> list[tuple[JobId, str]]:
        page = await admin.storage.timeline(EventFilter(**fields), newest_first=False)  # type: ignore[arg-type]
        return [(event.job, event.kind) for event in page.events]

    failed = await asked(kinds=["failed"])
    assert failed == []
    ends = await asked(kinds=["started", "succeeded"], task="t0", queue="q0")
    assert ends == [(jobs[n], kind) for n in (0, 6) for kind in ("started", "succeeded")]
    assert await asked(job=jobs[3][:16] + "…" + jobs[3][-6:], kinds=["enqueued"]) == [
        (jobs[3], "enqueued")
    ]
    assert await asked(worker="w2") == []
    assert len(await asked(worker="w1")) == 21
    with pytest.raises(JobNotFound):
        await asked(job="ffff…ffff")


async def test_a_span_is_half_open(storage: Storage, clock: VirtualClock) -> None:
    start = clock.now()
    jobs = await logged(storage, clock, 4)
    page = await admin_of(storage).storage.timeline(
        EventFilter(kinds=["started"]), since=start + SECOND, until=start + 3 * SECOND
    )
    assert [event.job for event in page.events] == [jobs[2], jobs[1]]
    assert page.next is None


async def test_a_rare_event_is_found_page_by_page_in_bounded_reads(
    storage: Storage, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_module, "_CHUNK", 4)
    monkeypatch.setattr(events_module, "_LOOK", 8)
    (rare,) = await add(storage, a_job())
    await storage.journal.append_events(
        [EventRecord(at=clock.now(), kind="rare", job=rare, task="t", queue="q")]
    )
    clock.advance(HOUR)
    await logged(storage, clock, 10)
    admin, wanted = admin_of(storage), EventFilter(kinds=["rare"])
    first = await admin.storage.timeline(wanted, limit=5)
    assert (first.events, first.reached is None) == ([], False)
    found = await pages(admin, wanted, limit=5, newest_first=True)
    assert [event.job for event in found] == [rare]


@pytest.mark.parametrize("after", ["", "x", "1", "-5.1", "1.2.3", "1" * 30 + ".1", "\uff11.1"])
async def test_a_cursor_that_is_none_is_refused(storage: Storage, after: str) -> None:
    with pytest.raises(InvalidArgument, match="after takes"):
        await admin_of(storage).storage.timeline(after=after)


async def test_the_end_of_a_span_needs_a_time_zone(storage: Storage, clock: VirtualClock) -> None:
    naive = clock.now().replace(tzinfo=None) - timedelta(hours=1)
    with pytest.raises(InvalidArgument, match="since"):
        await admin_of(storage).storage.timeline(since=naive)
