"""One order for everything that matches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from tests.admin.fixtures import a_failed_job, admin_of, fail_all, stored
from windlass._admin.jobs import bulk
from windlass._admin.jobs.bulk import BulkAction, BulkProgress, BulkReport
from windlass._core.job.job import JobId
from windlass._core.job.state import State
from windlass._storage.protocol.actions import (
    Cancel,
    Delete,
    Discard,
    Edit,
    JobAction,
    Requeue,
    RunNow,
)
from windlass._storage.protocol.job_list import JobFilter
from windlass._storage.protocol.storage import Storage
from windlass.errors import InvalidArgument
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    HOUR,
    SECOND,
    a_job,
    add,
    claim,
    enlist,
    keyed,
    started,
)

FAILED = JobFilter(states=[State.FAILED])


async def failed(storage: Storage, number: int, **asked: object) -> None:
    await add(storage, *[a_job(**asked) for _ in range(number)])
    await fail_all(storage, str(asked.get("queue", "default")))


async def test_everything_that_matches_is_requeued_and_nothing_else(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bulk, "CHUNK", 2)
    await failed(storage, 5, queue="mail")
    other = await a_failed_job(storage)
    admin = admin_of(storage).acting("alice")
    seen: list[BulkProgress] = []
    report = await admin.jobs.bulk(Requeue(), JobFilter(queue="mail"), progress=seen.append)
    assert report == BulkReport(matched=5, done=5)
    assert [one.seen for one in seen if one.seen] == [2, 4, 5]
    assert seen[-1] == BulkProgress(seen=5, done=5, total=5, exact=True)
    assert (await stored(storage, other)).state is State.FAILED
    records = await admin.audit.list()
    assert [record.count for record in records] == [1, 2, 2]
    assert {record.note.subject for record in records} == {"jobs with queue mail"}
    assert len({record.note.detail for record in records}) == 1


@pytest.mark.parametrize("order", [Requeue(), RunNow()])
async def test_jobs_run_in_the_order_they_were_stored_in(
    storage: Storage, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, order: JobAction
) -> None:
    monkeypatch.setattr(bulk, "CHUNK", 3)
    wanted = JobFilter(queue="default")
    if isinstance(order, Requeue):
        await failed(storage, 10)
    else:
        await enlist(storage)
        await add(storage, *[a_job(delay=HOUR) for _ in range(10)])
    ids = [job.id for job in reversed(await storage.admin.find(wanted, limit=100))]

    def later(_: BulkProgress) -> None:
        clock.advance(SECOND)  # every bite has an instant of its own

    report = await admin_of(storage).jobs.bulk(order, wanted, progress=later, most=8)
    assert report.done == 8
    assert [job.claim.job for job in await claim(storage, 10)] == ids[2:]


@pytest.mark.parametrize("most", [None, 2])
async def test_a_cursor_of_a_list_by_end_is_refused_with_what_to_say_instead(
    storage: Storage, most: int | None
) -> None:
    await failed(storage, 3)
    admin = admin_of(storage)
    page = await admin.jobs.find(FAILED, limit=2)
    assert isinstance(page.next, str)
    with pytest.raises(InvalidArgument, match="finished_until"):
        await admin.jobs.bulk(Requeue(), msgspec.structs.replace(FAILED, before=page.next))
    newest = max(job.seq for job in await admin.jobs.find(FAILED))  # they may end in one instant
    numbered = msgspec.structs.replace(FAILED, before=newest)
    assert (await admin.jobs.bulk(Requeue(), numbered, most=most)).done == 2


@pytest.mark.parametrize("most", [None, 5])
async def test_an_order_for_many_begins_at_once_and_leaves_what_is_stored_meanwhile(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, most: int | None
) -> None:
    monkeypatch.setattr(bulk, "CHUNK", 2)
    await add(storage, *[a_job(delay=HOUR) for _ in range(7)])
    bite, bites = BulkAction._run_chunk, list[int]()

    find, finds = storage.admin.find, list[int]()

    async def counted(wanted: JobFilter, *, limit: int) -> Any:
        finds.append(limit)
        return await find(wanted, limit=limit)

    async def meanwhile(action: BulkAction, ids: Sequence[JobId], *rest: Any) -> Any:
        bites.append(len(ids))
        assert most or len(finds) <= len(bites) + 1, "all were looked for first"
        await add(storage, a_job(delay=HOUR))
        return await bite(action, ids, *rest)

    monkeypatch.setattr(storage.admin, "find", counted)
    monkeypatch.setattr(BulkAction, "_run_chunk", meanwhile)
    report = await admin_of(storage).jobs.bulk(RunNow(), JobFilter(queue="default"), most=most)
    assert report.done == (most or 7)
    assert [size for size in bites if size] == ([2, 2, 1] if most else [2, 2, 2, 1])
    counts = {queue.queue: queue for queue in await storage.admin.counts()}
    assert counts["default"].ready == (most or 7)


async def test_a_dry_run_counts_and_changes_nothing(storage: Storage) -> None:
    await failed(storage, 3)
    admin = admin_of(storage)
    report = await admin.jobs.bulk(Delete(), FAILED, dry_run=True)
    assert report == BulkReport(matched=3, dry_run=True)
    assert (await admin.jobs.count(FAILED)).number == 3
    assert await admin.audit.list() == []


async def test_jobs_whose_key_is_held_are_left_and_the_others_requeued(storage: Storage) -> None:
    """Forge: a batch skips conflicts instead of giving up."""
    first = keyed("k")
    await add(storage, first, a_job())
    await fail_all(storage)
    await add(storage, keyed("k"))
    report = await admin_of(storage).jobs.bulk(Requeue(), FAILED)
    assert (report.matched, report.done, report.conflicts) == (2, 1, 1)
    assert (await stored(storage, first.id)).state is State.FAILED


async def test_no_more_than_asked_for(storage: Storage) -> None:
    """Forge: 2, 2, 1, 0."""
    await failed(storage, 5)
    admin = admin_of(storage)
    done = [(await admin.jobs.bulk(Delete(), FAILED, most=2)).done for _ in range(4)]
    assert done == [2, 2, 1, 0]


async def test_running_jobs_are_asked(storage: Storage) -> None:
    await enlist(storage)
    running = await started(storage)
    await add(storage, a_job())
    report = await admin_of(storage).jobs.bulk(Delete(), JobFilter(queue="default"))
    assert (report.done, report.requested) == (1, 1)
    assert (await stored(storage, running.claim.job)).cancel_requested


async def test_an_order_looks_only_at_the_states_it_is_for(storage: Storage) -> None:
    await add(storage, a_job())
    admin = admin_of(storage)
    waiting = JobFilter(states=[State.WAITING])
    assert (await admin.jobs.bulk(Requeue(), waiting)).matched == 0
    assert (await admin.jobs.bulk(Discard("old"), waiting)).matched == 0
    assert (await admin.jobs.bulk(Cancel(), waiting)).done == 1


async def test_waiting_jobs_are_moved_and_run_together(
    storage: Storage, clock: VirtualClock
) -> None:
    await add(storage, *[a_job(delay=HOUR) for _ in range(3)])
    admin = admin_of(storage)
    everything = JobFilter(states=[State.WAITING])
    assert (await admin.jobs.bulk(Edit(queue="slow"), everything)).done == 3
    assert (await admin.jobs.bulk(RunNow(), JobFilter(queue="slow"))).done == 3
    (counts,) = await admin.queues.counts()
    assert (counts.queue, counts.ready) == ("slow", 3)


async def test_an_order_for_everything_must_say_so(storage: Storage) -> None:
    with pytest.raises(InvalidArgument, match="every job: give a filter"):
        await admin_of(storage).jobs.bulk(Delete(), JobFilter())
