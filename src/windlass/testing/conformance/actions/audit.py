"""`ActionStore.audits`: who ordered what, stored with what was ordered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from windlass._core.job.job import NewJob
from windlass._core.job.state import State
from windlass._core.job.unique import OnConflict, UniqueKey
from windlass._core.limits.limit import LimitSpec, Rate
from windlass._core.limits.queue_settings import QueueSettings
from windlass._storage.protocol.actions import ActionResult, AuditNote, AuditRecord, Cancel, Requeue
from windlass._storage.protocol.schedules import ScheduleWrite, Written
from windlass._storage.protocol.storage import Storage
from windlass._system.seams import new_job_id
from windlass.errors import KeyConflict, LimitUnknown
from windlass.testing._clock import VirtualClock
from windlass.testing.conformance.schedules.schedules import written
from windlass.testing.conformance.steps import (
    DAY,
    HOUR,
    MINUTE,
    SECOND,
    a_job,
    a_note,
    add,
    failed,
    keyed,
    limited,
    obeyed,
    started,
    total,
)
from windlass.testing.conformance.storage import woken

__all__ = ["AuditConformance"]

PLAIN = QueueSettings()
NARROW = QueueSettings(max_running=1)


async def records(storage: Storage) -> list[AuditRecord]:
    """Return all of them, the newest first."""
    return list(await storage.orders.audits(limit=100))


async def ordered(storage: Storage, count: int) -> list[AuditNote]:
    """Orders that took effect, one after the other."""
    notes = [a_note(subject=f"queue {number % 2}") for number in range(count)]
    for note in notes:
        await storage.admin.pause("q", audit=note)
    return notes


class AuditConformance:
    """One record for each order that took effect."""

    async def test_a_record_has_operator_action_time_and_count(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # ADMIN-20
        running = await started(storage)
        (waiting,) = await add(storage, a_job(delay=DAY))
        clock.advance(MINUTE)
        note = a_note(
            who="Zoë <z@example.org>", what="jobs.cancel", subject="夜 'x'", detail='a\n"b" \\'
        )
        asked = [waiting, running.claim.job, new_job_id(), waiting]
        await obeyed(storage, Cancel(), *asked, note=note)
        (record,) = await records(storage)
        assert (record.note, record.at, record.count) == (note, clock.now(), 2)

    async def test_an_action_without_effect_leaves_no_audit(self, storage: Storage) -> None:
        (waiting,) = await add(storage, a_job())
        assert await obeyed(storage, Requeue(), waiting, new_job_id()) == [
            *(ActionResult.WRONG_STATE, ActionResult.UNKNOWN)
        ]
        assert await records(storage) == []

    async def test_records_come_newest_first_and_in_pages(self, storage: Storage) -> None:
        notes = await ordered(storage, 5)
        assert [record.note for record in await records(storage)] == notes[::-1]
        seen: list[AuditNote] = []
        before: int | None = None
        for size in (2, 2, 1, 0):
            page = await storage.orders.audits(limit=2, before=before)
            assert len(page) == size
            seen += [record.note for record in page]
            before = page[-1].number if page else before
        assert seen == notes[::-1]

    async def test_records_are_found_by_their_subject(self, storage: Storage) -> None:
        notes = await ordered(storage, 4)
        found = await storage.orders.audits(limit=10, subject="queue 1")
        assert [record.note for record in found] == [notes[3], notes[1]]
        older = await storage.orders.audits(limit=10, before=found[0].number, subject="queue 1")
        assert [record.note for record in older] == [notes[1]]
        assert list(await storage.orders.audits(limit=10, subject="queue")) == []

    async def test_a_record_is_stored_alone_and_once(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        note = a_note(what="workers.sweep")
        await storage.orders.record(note, 3)
        first = clock.now()
        clock.advance(MINUTE)
        await storage.orders.record(note, 4)
        (record,) = await records(storage)
        assert (record.note, record.at, record.count) == (note, first, 3)

    async def test_the_switches_of_queues_are_recorded(self, storage: Storage) -> None:
        def changed(audit: AuditNote | None) -> Awaitable[bool]:
            return storage.queues.change("q", NARROW, old=PLAIN, audit=audit)

        switches: list[Callable[[AuditNote | None], Awaitable[object]]] = [
            lambda audit: storage.admin.pause("q", audit=audit),
            lambda audit: storage.admin.resume("q", audit=audit),
            lambda audit: storage.queues.warm("q", audit=audit),
            changed,
        ]
        await self._each_leaves_one(storage, switches)

    async def test_actions_on_limits_are_recorded(self, storage: Storage) -> None:
        spec = LimitSpec(name="l", rate=Rate(1, SECOND))
        orders: list[Callable[[AuditNote | None], Awaitable[object]]] = [
            lambda audit: storage.limits.define([spec], audit=audit),
            lambda audit: storage.limits.drain("l", audit=audit),
            lambda audit: storage.limits.reset("l", "k", audit=audit),
        ]
        await self._each_leaves_one(storage, orders)

    async def _each_leaves_one(
        self,
        storage: Storage,
        orders: list[Callable[[AuditNote | None], Awaitable[object]]],
    ) -> None:
        notes = [a_note() for _ in orders]
        for note, order in zip(notes, orders, strict=True):
            await order(note)
        told = [(record.note, record.count) for record in await records(storage)]
        assert told[::-1] == [(note, 1) for note in notes]

    async def test_a_change_without_a_note_leaves_no_record(self, storage: Storage) -> None:
        await storage.admin.pause("q")
        await storage.admin.resume("q")
        await storage.queues.change("q", NARROW, old=PLAIN)
        await storage.queues.warm("q")
        await storage.limits.define([LimitSpec(name="l", rate=Rate(1, SECOND))])
        await storage.limits.drain("l")
        await storage.limits.reset("l")
        assert await records(storage) == []

    async def test_the_same_note_is_recorded_once(
        self, storage: Storage, clock: VirtualClock
    ) -> None:  # guarantee 8
        note, first = a_note(), clock.now()
        await storage.admin.pause("q", audit=note)
        clock.advance(MINUTE)
        await storage.admin.pause("q", audit=note)
        await storage.queues.warm("q", audit=note)
        assert [record.at for record in await records(storage)] == [first]

    async def test_a_change_that_is_refused_leaves_none(self, storage: Storage) -> None:
        assert not await storage.queues.change("q", NARROW, old=NARROW, audit=a_note())
        await storage.limits.define([LimitSpec(name="l", concurrency=1)])
        for refused in (storage.limits.drain, storage.limits.reset):
            with pytest.raises(LimitUnknown):
                await refused("nobody", audit=a_note())
        await storage.limits.drain("l", audit=a_note())  # it has no rate
        assert await records(storage) == []

    async def test_a_written_schedule_is_recorded_once_and_a_stale_one_is_not(
        self, storage: Storage
    ) -> None:
        note = a_note(subject="schedule s")
        write = ScheduleWrite(name="s", revision=0, body=b"{}", audit=note)
        stale = ScheduleWrite(name="s", revision=7, body=b"[]", audit=a_note())
        assert await written(storage, write, stale) == [*(Written.WRITTEN, Written.STALE)]
        assert await written(storage, write) == [Written.WRITTEN]
        assert [(one.note, one.count) for one in await records(storage)] == [(note, 1)]

    async def test_a_schedule_that_is_busy_leaves_none(self, storage: Storage) -> None:
        running = await started(storage)
        write = ScheduleWrite(
            name="s",
            revision=0,
            body=b"{}",
            active=(running.claim.job,),
            most_active=1,
            audit=a_note(),
        )
        assert await written(storage, write) == [Written.BUSY]
        assert await records(storage) == []

    async def test_inserted_jobs_are_recorded(self, storage: Storage, clock: VirtualClock) -> None:
        (holder,) = await add(storage, keyed("k", delay=DAY))
        new, note = a_job(), a_note(what="jobs.enqueue")
        async with woken(storage):
            answers = await storage.orders.insert([new, keyed("k")], note)
        assert [(one.id, one.created) for one in answers] == [(new.id, True), (holder, False)]
        (record,) = await records(storage)
        assert (record.note, record.at, record.count) == (note, clock.now(), 1)

    async def test_a_repeated_insert_is_recorded_once_and_stores_nothing_twice(
        self, storage: Storage
    ) -> None:
        jobs, note = [a_job(), a_job()], a_note()
        for _ in range(2):
            answers = await storage.orders.insert(jobs, note)
            assert [(one.id, one.created) for one in answers] == [(job.id, True) for job in jobs]
        assert await total(storage) == 2
        assert [record.count for record in await records(storage)] == [2]

    async def test_an_insert_that_stores_nothing_leaves_none(self, storage: Storage) -> None:
        await add(storage, keyed("k"))
        await storage.orders.insert([keyed("k")], a_note())
        refused: list[tuple[NewJob, type[Exception]]] = [
            (a_job(unique=UniqueKey("k", on_conflict=OnConflict.RAISE)), KeyConflict),
            (limited("nobody"), LimitUnknown),
        ]
        for job, error in refused:
            with pytest.raises(error):
                await storage.orders.insert([a_job(), job], a_note())
        assert await total(storage) == 1
        assert await records(storage) == []

    async def test_old_records_are_pruned_in_chunks(
        self, storage: Storage, clock: VirtualClock
    ) -> None:
        await ordered(storage, 3)
        clock.advance(HOUR)
        (newest,) = await ordered(storage, 1)
        prune = storage.maintenance.prune_audits
        assert await prune(older_than=DAY, limit=10) == 0
        assert [await prune(older_than=MINUTE, limit=2) for _ in range(3)] == [2, 1, 0]
        assert [record.note for record in await records(storage)] == [newest]

    async def test_a_record_outlives_its_job(self, storage: Storage, clock: VirtualClock) -> None:
        job, note = await failed(storage), a_note()
        await obeyed(storage, Requeue(), job, note=note)
        await storage.jobs.cancel([job])
        clock.advance(HOUR)
        await storage.maintenance.prune(state=State.CANCELLED, older_than=MINUTE, limit=10)
        assert await total(storage) == 0
        assert [record.note for record in await records(storage)] == [note]
