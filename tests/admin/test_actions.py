"""Orders for one job: done or refused, and recorded with what they did."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta

import pytest

from tests.admin.fixtures import a_failed_job, admin_of, stored
from windlass._core.job.event import Event, JobEnqueued, JobMoved
from windlass._core.job.job import JobId
from windlass._core.job.state import State, Verb
from windlass._core.job.unique import Window
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._observe.bus import Bus
from windlass._storage.protocol.jobs import CancelAnswer
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import new_job_id
from windlass.errors import InvalidArgument, JobNotFound, KeyConflict, WindlassError, WrongState
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.steps import (
    HOUR,
    a_job,
    add,
    claim,
    claim_one,
    enlist,
    keyed,
    started,
    succeeded,
)


async def test_a_failed_job_is_requeued_with_a_fresh_budget(storage: Storage) -> None:
    job = await a_failed_job(storage, max_attempts=2)
    again = await admin_of(storage).jobs.requeue(job)
    assert (again.state, again.max_attempts) == (State.WAITING, 3)


async def test_of_several_who_requeue_one_job_at_once_exactly_one_succeeds(
    storage: Storage,
) -> None:
    """A4, A5."""
    job = await a_failed_job(storage)
    admin = admin_of(storage)
    answers = await asyncio.gather(
        *(admin.jobs.requeue(job) for _ in range(5)), return_exceptions=True
    )
    refused = [answer for answer in answers if isinstance(answer, BaseException)]
    assert [type(error) for error in refused] == [WrongState] * 4
    await enlist(storage)
    await claim_one(storage)
    assert (await admin.jobs.count()).number == 1


async def test_an_action_on_an_unknown_job_raises(storage: Storage) -> None:
    admin, nobody = admin_of(storage), new_job_id()
    for order in (admin.jobs.requeue, admin.jobs.discard, admin.jobs.delete, admin.jobs.get):
        with pytest.raises(JobNotFound, match=nobody):
            await order(nobody)
    assert await admin.jobs.cancel(nobody) is CancelAnswer.UNKNOWN
    assert not await admin.jobs.run_now(nobody)


async def test_an_action_in_the_wrong_state_names_the_right_states(storage: Storage) -> None:
    (job,) = await add(storage, a_job())
    admin = admin_of(storage)
    with pytest.raises(WrongState, match="failed, cancelled or discarded"):
        await admin.jobs.requeue(job)
    with pytest.raises(WrongState, match="failed"):
        await admin.jobs.discard(job)
    await admin.jobs.cancel(job)
    with pytest.raises(WrongState, match="waiting"):
        await admin.jobs.edit(job, priority=1)


async def test_a_requeue_against_a_held_key_names_the_holder(storage: Storage) -> None:
    job = await a_failed_job(storage)
    first = keyed("k")
    await add(storage, first)
    await admin_of(storage).jobs.cancel(first.id)
    (holder,) = await add(storage, keyed("k"))
    with pytest.raises(KeyConflict, match=holder):
        await admin_of(storage).jobs.requeue(first.id)
    assert (await stored(storage, job)).state is State.FAILED


async def test_a_holder_that_has_ended_is_named_while_its_time_lasts(storage: Storage) -> None:
    first = keyed("k")
    await add(storage, first)
    await admin_of(storage).jobs.cancel(first.id)
    (holder,) = await add(storage, keyed("k", Window.FOR_A_TIME, queue="mail"))
    await admin_of(storage).jobs.cancel(holder)
    with pytest.raises(KeyConflict, match=holder):
        await admin_of(storage).jobs.requeue(first.id)


async def test_a_job_is_run_again_as_a_new_one_and_stays_as_it_ended(storage: Storage) -> None:
    """A2, and also of one that succeeded."""
    await enlist(storage)
    done = await started(storage, a_job(payload=b'{"n":1}', tags=("a",), max_attempts=7))
    await succeeded(storage, done)
    new = await admin_of(storage).jobs.requeue(done.claim.job, as_new=True)
    assert new.id != done.claim.job
    assert (new.state, new.attempt, new.max_attempts) == (State.WAITING, 0, 7)
    assert (new.payload, new.tags) == (b'{"n":1}', ("a",))
    assert (await stored(storage, done.claim.job)).state is State.SUCCEEDED


async def test_as_new_is_for_jobs_at_an_end_whose_key_is_free(storage: Storage) -> None:
    admin = admin_of(storage)
    (first,) = await add(storage, keyed("k"))
    with pytest.raises(WrongState, match="copy needs one that has ended"):
        await admin.jobs.requeue(first, as_new=True)
    await admin.jobs.cancel(first)
    await add(storage, keyed("k"))
    with pytest.raises(KeyConflict):
        await admin.jobs.requeue(first, as_new=True)
    with pytest.raises(JobNotFound):
        await admin.jobs.requeue(new_job_id(), as_new=True)


async def test_concurrent_requests_for_one_copy_make_one(storage: Storage) -> None:
    bus, seen = Bus(), list[Event]()
    bus.subscribe(seen.append)
    admin, others = admin_of(storage, bus), admin_of(storage, bus)  # another process's
    job = await a_failed_job(storage)
    seen.clear()
    desks = (admin, others, admin, others, admin)
    both = await asyncio.gather(*(desk.jobs.requeue(job, as_new=True) for desk in desks))
    again = await admin.jobs.requeue(job, as_new=True)
    assert {new.id for new in (*both, again)} == {again.id}
    assert len([event for event in seen if isinstance(event, JobEnqueued)]) == 1
    assert len(await admin.audit.list()) == 1
    assert sum(queue.ready for queue in await storage.admin.counts()) == 1


async def test_after_a_copy_has_ended_there_may_be_another(storage: Storage) -> None:
    admin = admin_of(storage)
    job = await a_failed_job(storage)
    ids: list[JobId] = []
    for _ in range(4):
        new = await admin.jobs.requeue(job, as_new=True)
        await admin.jobs.cancel(new.id)
        ids.append(new.id)
    assert len({job, *ids}) == 5
    await admin.jobs.delete(ids[0])  # a gap, as retention leaves them
    running = await admin.jobs.requeue(job, as_new=True)
    assert running.id not in ids
    assert (await admin.jobs.requeue(job, as_new=True)).id == running.id


async def test_a_copy_of_one_that_holds_its_key_is_the_answer_too(storage: Storage) -> None:
    admin = admin_of(storage)
    (job,) = await add(storage, keyed("k"))
    await admin.jobs.cancel(job)
    new = await admin.jobs.requeue(job, as_new=True)
    assert (await admin.jobs.requeue(job, as_new=True)).id == new.id


async def test_one_copy_is_made_for_each_key_however_often_it_is_asked_for(
    storage: Storage,
) -> None:
    admin = admin_of(storage)
    job = await a_failed_job(storage)
    other = await a_failed_job(storage)
    both = await asyncio.gather(*(admin.jobs.requeue(job, as_new=True, key="a") for _ in range(5)))
    (first,) = {new.id for new in both}
    await admin.jobs.cancel(first)
    await admin.jobs.requeue(job)
    assert (await admin.jobs.requeue(job, as_new=True, key="a")).id == first  # also at a later time
    with pytest.raises(WrongState):
        await admin.jobs.requeue(job, as_new=True, key="b")
    await admin.jobs.cancel(job)
    second = await admin.jobs.requeue(job, as_new=True, key="b")
    elsewhere = await admin.jobs.requeue(other, as_new=True, key="a")
    assert len({first, second.id, elsewhere.id}) == 3


async def test_a_key_is_for_copies_only(storage: Storage) -> None:
    job = await a_failed_job(storage)
    with pytest.raises(InvalidArgument, match="as_new"):
        await admin_of(storage).jobs.requeue(job, key="a")
    with pytest.raises(InvalidArgument, match="key"):
        await admin_of(storage).jobs.requeue(job, as_new=True, key="a\x00")


async def test_a_copy_holds_its_key_as_long_as_the_job_it_was_made_of(
    storage: Storage, clock: VirtualClock
) -> None:
    admin = admin_of(storage)
    await enlist(storage)
    brief, timed = keyed("s", Window.UNTIL_STARTED), keyed("t", Window.FOR_A_TIME, queue="mail")
    await add(storage, brief, timed)
    for job in (brief, timed):
        await admin.jobs.cancel(job.id)
    clock.advance(HOUR)  # that of the second one is over
    copies = [await admin.jobs.requeue(job.id, as_new=True) for job in (brief, timed)]
    assert [copy.unique for copy in copies] == [brief.unique, timed.unique]
    (running,) = await claim(storage)
    assert running.claim.job == copies[0].id
    # It runs, and swallows nothing: a new call is a new job.
    (answer,) = await storage.jobs.insert([keyed("s", Window.UNTIL_STARTED)])
    assert answer.created
    await admin.jobs.cancel(copies[1].id)
    (answer,) = await storage.jobs.insert([keyed("t", queue="mail")])
    assert not answer.created  # held past its end, for its time
    clock.advance(HOUR)
    (answer,) = await storage.jobs.insert([keyed("t", queue="mail")])
    assert answer.created


async def test_a_running_job_is_asked_to_end_and_deleted_when_it_has(storage: Storage) -> None:
    await enlist(storage)
    job = await started(storage)
    admin = admin_of(storage)
    assert not await admin.jobs.delete(job.claim.job)
    assert (await stored(storage, job.claim.job)).cancel_requested
    await succeeded(storage, job)
    assert await admin.jobs.delete(job.claim.job)
    with pytest.raises(JobNotFound):
        await admin.jobs.get(job.claim.job)


async def test_a_waiting_job_is_edited(storage: Storage, clock: VirtualClock) -> None:
    (job,) = await add(storage, a_job())
    later = clock.now() + HOUR
    edited = await admin_of(storage).jobs.edit(job, due=later, priority=-5, queue="mail")
    assert (edited.due, edited.priority, edited.queue) == (later, -5, "mail")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, "nothing to change"),
        ({"due": datetime(2026, 1, 1)}, "naive"),  # noqa: DTZ001 -- that is the point
        ({"priority": 100_000}, "16 bits"),
        ({"queue": ""}, "queue"),
    ],
)
async def test_an_edit_that_makes_no_sense_is_refused(
    storage: Storage, change: dict[str, object], says: str
) -> None:
    (job,) = await add(storage, a_job())
    with pytest.raises(InvalidArgument, match=says):
        await admin_of(storage).jobs.edit(job, **change)  # type: ignore[arg-type]


async def test_a_copy_is_shown_without_secrets_also_when_it_is_there_already(
    storage: Storage,
) -> None:
    job = await a_failed_job(storage, payload=b'{"password":"canary-4111"}')
    admin = admin_of(storage)
    made, found = [await admin.jobs.requeue(job, as_new=True) for _ in range(2)]
    assert made == found
    assert b"canary" not in made.payload
    assert b"canary" in (await stored(storage, made.id)).payload


async def test_every_action_leaves_one_audit_record(storage: Storage) -> None:
    admin = admin_of(storage).acting("alice")
    job = await a_failed_job(storage)
    await admin.jobs.requeue(job)
    await admin.jobs.run_now(job)
    await admin.jobs.edit(job, priority=3)
    await admin.jobs.cancel(job)
    new = await admin.jobs.requeue(job, as_new=True)
    await admin.jobs.delete(job)
    await admin.queues.pause("mail")
    await admin.queues.resume("mail")
    records = await admin.audit.list()
    assert [record.note.what for record in reversed(records)] == [
        "jobs.requeue",
        "jobs.run-now",
        "jobs.edit",
        "jobs.cancel",
        "jobs.requeue",
        "jobs.delete",
        "queues.pause",
        "queues.resume",
    ]
    assert {(record.note.who, record.count) for record in records} == {("alice", 1)}
    about = await admin.audit.list(subject=f"job {job}")
    assert len(about) == 6
    assert f"as job {new.id}" in [record.note.detail for record in about]


async def test_an_action_that_changes_nothing_leaves_no_record(storage: Storage) -> None:
    (job,) = await add(storage, a_job())
    admin = admin_of(storage)
    for order in (admin.jobs.requeue, admin.jobs.discard):
        with pytest.raises(WindlassError):
            await order(job)
    assert await admin.audit.list() == []


async def test_actions_are_published_to_listeners(storage: Storage) -> None:
    bus, seen = Bus(), list[tuple[str, str]]()

    def note(event: Event) -> None:
        match event:
            case JobMoved(verb=verb, job=job):
                seen.append((verb, job))
            case JobEnqueued(job=job):
                seen.append(("enqueued", job))
            case _:
                pass

    bus.subscribe(note)
    admin = admin_of(storage, bus)
    job = await a_failed_job(storage)
    new = await admin.jobs.requeue(job, as_new=True)
    await admin.jobs.requeue(job)
    await admin.jobs.cancel(job)
    assert seen == [("enqueued", new.id), (Verb.REQUEUE, job), (Verb.CANCEL, job)]


async def test_the_audit_is_read_page_by_page(storage: Storage) -> None:
    admin = admin_of(storage)
    for number in range(5):
        await admin.queues.pause(f"q{number}")
    first = await admin.audit.list(limit=3)
    rest = await admin.audit.list(limit=3, before=first[-1].number)
    assert [record.note.subject for record in (*first, *rest)] == [
        f"queue q{number}" for number in (4, 3, 2, 1, 0)
    ]


async def test_settings_limits_and_schedules_are_recorded_too(
    storage: Storage, clock: VirtualClock
) -> None:
    await storage.limits.define([LimitSpec(name="api", rate=Rate(1, timedelta(seconds=1)))])
    admin = admin_of(storage).acting("bob")
    await admin.queues.set("mail", max_running=3)
    await admin.limits.set("api", rate=Rate(5, timedelta(seconds=1)))
    await admin.limits.drain("api")
    await admin.limits.reset("api")
    assert [record.note.what for record in await admin.audit.list()] == [
        "limits.reset",
        "limits.drain",
        "limits.set",
        "queues.set",
    ]
    assert "max_running=3" in (await admin.audit.list(subject="queue mail"))[0].note.detail
