"""One order for everything that matches, and for the jobs below a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from tests.admin.fixtures import a_failed_job, admin_of, fail_all, stored
from windlass import Context, Windlass
from windlass._admin.jobs import bulk
from windlass._admin.jobs.bulk import BulkAction, BulkProgress, BulkReport
from windlass._core.job.job import JobId, NewJob
from windlass._core.job.state import State
from windlass._core.job.transition import succeed
from windlass._storage.protocol.actions import (
    Cancel,
    Delete,
    Discard,
    Edit,
    JobAction,
    Requeue,
    RunNow,
)
from windlass._storage.protocol.jobs import CancelAnswer
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.storage import Storage
from windlass.errors import InvalidArgument, JobNotFound
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    HOUR,
    SECOND,
    a_job,
    add,
    claim,
    enlist,
    keyed,
    look,
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
async def test_a_bulk_action_leaves_jobs_that_are_stored_meanwhile(
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


async def test_a_bulk_action_reads_only_the_states_it_applies_to(storage: Storage) -> None:
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


async def test_a_bulk_action_on_everything_must_be_explicit(storage: Storage) -> None:
    with pytest.raises(InvalidArgument, match="every job: give a filter"):
        await admin_of(storage).jobs.bulk(Delete(), JobFilter())


# --- the jobs below a job ------------------------------------------------------------------------


def below(parent: JobId | NewJob, **asked: object) -> NewJob:
    return a_job(parent=parent.id if isinstance(parent, NewJob) else parent, **asked)


async def states_of(storage: Storage, *jobs: JobId | NewJob) -> list[State]:
    return [(await look(storage, job)).state for job in jobs]


async def test_the_jobs_below_are_cancelled_at_any_depth_and_no_others(storage: Storage) -> None:
    await enlist(storage)
    stranger = a_job()
    (root,) = await add(storage, a_job())
    child, other = below(root), below(root, delay=HOUR)
    grandchild = below(child)
    lonely = below(JobId("0" * 32))
    strangers_child = below(stranger)
    await add(storage, stranger, child, other, grandchild, lonely, strangers_child)
    admin = admin_of(storage)
    assert await admin.jobs.cancel(root, children=True) is CancelAnswer.CANCELLED
    cancelled = await states_of(storage, root, child, other, grandchild)
    assert cancelled == [State.CANCELLED] * 4
    left = await states_of(storage, stranger, lonely, strangers_child)
    assert left == [State.WAITING] * 3
    (note, own) = [one for one in await admin.audit.list() if one.note.what == "jobs.cancel"]
    assert (note.note.subject, own.note.subject) == (f"jobs below job {root}", f"job {root}")


async def test_jobs_below_a_job_that_has_ended_are_found(storage: Storage) -> None:
    root = await started(storage)
    (child,) = await add(storage, below(root.claim.job))
    (running,) = await claim(storage, 1)
    (grandchild,) = await add(storage, below(child))
    for job in (root, running):
        await storage.jobs.apply([succeed(job, by="w1", result=None)])
    admin = admin_of(storage)
    assert await admin.jobs.cancel(root.claim.job, children=True) is CancelAnswer.TOO_LATE
    assert await states_of(storage, child, grandchild) == [State.SUCCEEDED, State.CANCELLED]


async def test_running_jobs_are_asked_and_everything_may_be_repeated(storage: Storage) -> None:
    root = await started(storage)
    (child,) = await add(storage, below(root.claim.job))
    await claim(storage, 1)
    await add(storage, below(child), below(child))
    admin = admin_of(storage)
    report = await admin.jobs.cancel_children(root.claim.job)
    assert (report.matched, report.done, report.requested) == (3, 2, 1)
    assert (await look(storage, child)).cancel_requested
    assert not (await stored(storage, root.claim.job)).cancel_requested
    (late,) = await add(storage, below(child))
    report = await admin.jobs.cancel_children(root.claim.job)
    assert (report.done, report.requested) == (1, 1)
    assert await states_of(storage, late) == [State.CANCELLED]


async def test_many_jobs_are_cancelled_page_by_page(storage: Storage) -> None:
    await enlist(storage)
    (root,) = await add(storage, a_job(delay=HOUR))
    others = [a_job() for _ in range(150)]
    children = [below(root) for _ in range(250)]
    mixed = [job for pair in zip(children, [*others, *others], strict=False) for job in pair]
    await storage.jobs.insert(list({job.id: job for job in mixed}.values()))
    report = await admin_of(storage).jobs.cancel_children(root)
    assert report.done == 250
    page = await storage.admin.find(JobFilter(states=[State.WAITING]), limit=500)
    assert {job.parent for job in page} == {None}


async def test_a_job_that_does_not_exist_has_no_children(storage: Storage) -> None:
    admin = admin_of(storage)
    assert await admin.jobs.cancel("0" * 32, children=True) is CancelAnswer.UNKNOWN
    with pytest.raises(JobNotFound):
        await admin.jobs.cancel_children("0" * 32)


async def test_a_handle_cancels_what_its_handler_enqueued() -> None:
    async with Windlass("memory://") as app:

        @app.task(name="leaf")
        async def leaf() -> None: ...

        @app.task(name="tree")
        async def tree(ctx: Context) -> None:
            await ctx.enqueue(leaf.options(delay=3600).call())
            await leaf.options(delay=3600).enqueue()

        job = await tree.enqueue()
        async with app.worker():
            await job.result(timeout=30)
        assert await job.cancel(children=True) is CancelAnswer.TOO_LATE
        leaves = await app.admin.jobs.find(JobFilter(task="leaf"))
        assert [one.state for one in leaves] == [State.CANCELLED] * 2
