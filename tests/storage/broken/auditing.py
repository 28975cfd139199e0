"""Stores that remember wrongly who ordered what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec.structs import replace

from tests.storage.broken.table import fails
from windlass.core.job import NewJob
from windlass.core.queue import QueueSettings
from windlass.storage.memory.admin import MemoryAdmin
from windlass.storage.memory.audits import Audits
from windlass.storage.memory.orders import MemoryOrders
from windlass.storage.memory.queues import MemoryQueues
from windlass.storage.memory.row import Row
from windlass.storage.memory.schedules import MemorySchedules
from windlass.storage.memory.upkeep import MemoryLimits
from windlass.storage.ordering import AuditNote, AuditRecord, Ordered
from windlass.storage.protocol import Inserted, ScheduleWrite, Written
from windlass.testing.conformance import AuditConformance


@fails(AuditConformance.test_a_record_says_who_ordered_what_when_and_for_how_many)
class CountsWhatWasAsked(Audits):
    """A record counts the jobs that were named."""

    def keep(
        self, note: AuditNote | None, count: int, now: datetime, answers: Sequence[Ordered] = ()
    ) -> None:
        super().keep(note, len(answers) or count, now, answers)


@fails(AuditConformance.test_an_order_without_effect_leaves_none)
class RecordsRefusals(MemoryOrders):
    """What was refused is recorded, too."""

    def _requeue(self, row: Row, now: datetime) -> Ordered:
        answer = super()._requeue(row, now)
        self._db.audits.keep(AuditNote(id=row.asked.id, who="", what=""), 0, now)
        return answer


@fails(
    AuditConformance.test_records_come_newest_first_and_in_pages,
    AuditConformance.test_records_are_found_by_their_subject,
)
class OldestFirst(Audits):
    """Records come oldest first."""

    def newest(self) -> Iterable[AuditRecord]:
        return [*super().newest()][::-1]


@fails(AuditConformance.test_the_switches_of_queues_are_recorded)
class ResumesInSilence(MemoryAdmin):
    """Who resumed a queue is not recorded."""

    async def resume(self, queue: str, *, audit: AuditNote | None = None) -> None:
        await super().resume(queue)


@fails(AuditConformance.test_orders_for_limits_are_recorded)
class ResetsInSilence(MemoryLimits):
    """Who filled a bucket is not recorded."""

    async def reset(self, name: str, key: str = "", *, audit: AuditNote | None = None) -> None:
        await super().reset(name, key)


@fails(AuditConformance.test_what_is_said_without_a_note_leaves_no_record)
class RecordsNobody(Audits):
    """What nobody signed is recorded as nobody's."""

    def keep(
        self, note: AuditNote | None, count: int, now: datetime, answers: Sequence[Ordered] = ()
    ) -> None:
        super().keep(note or AuditNote(id="", who="nobody", what=""), count, now, answers)


@fails(
    AuditConformance.test_the_same_note_is_recorded_once,
    AuditConformance.test_a_repeated_insert_is_recorded_once_and_stores_nothing_twice,
)
class RecordsRepeats(Audits):
    """A note that comes again is recorded again."""

    def keep(
        self, note: AuditNote | None, count: int, now: datetime, answers: Sequence[Ordered] = ()
    ) -> None:
        if note is not None and note.id in self._records:
            note = replace(note, id=f"{note.id}+")
        super().keep(note, count, now, answers)


@fails(AuditConformance.test_a_change_that_is_refused_leaves_none)
class RecordsStaleChanges(MemoryQueues):
    """A change that came too late is recorded."""

    async def change(
        self,
        queue: str,
        new: QueueSettings,
        *,
        old: QueueSettings,
        audit: AuditNote | None = None,
    ) -> bool:
        with self._db.moment() as now:
            self._db.audits.keep(audit, 1, now)
        return await super().change(queue, new, old=old, audit=audit)


@fails(
    AuditConformance.test_a_written_schedule_is_recorded_once_and_a_stale_one_is_not,
    AuditConformance.test_a_schedule_that_is_busy_leaves_none,
)
class RecordsEveryWrite(MemorySchedules):
    """A write that was refused is recorded."""

    def _write(self, write: ScheduleWrite, now: datetime) -> Written:
        self._db.audits.keep(write.audit, 1, now)
        return super()._write(write, now)


@fails(AuditConformance.test_inserted_jobs_are_recorded)
class CountsReusedJobs(MemoryOrders):
    """Jobs that were not stored because of their key are counted."""

    async def insert(self, jobs: Sequence[NewJob], note: AuditNote) -> Sequence[Inserted]:
        with self._db.moment() as now:
            self._db.audits.keep(note, len(jobs), now)
        return await super().insert(jobs, note)


@fails(AuditConformance.test_an_insert_that_stores_nothing_leaves_none)
class RecordsEveryInsert(MemoryOrders):
    """An insert that stored nothing is recorded."""

    async def insert(self, jobs: Sequence[NewJob], note: AuditNote) -> Sequence[Inserted]:
        answers = await super().insert(jobs, note)
        with self._db.moment() as now:
            self._db.audits.keep(note, 0, now)
        return answers


@fails(AuditConformance.test_old_records_are_pruned_in_bites)
class PrunesAllAtOnce(Audits):
    """Pruning knows no bounds."""

    def prune(self, before: datetime, limit: int) -> int:
        return super().prune(before, 1000)


@fails(AuditConformance.test_a_record_outlives_its_job)
class ForgetsWithTheJob(MemoryOrders):
    """A record that names no stored job is not shown."""

    async def audits(
        self, *, limit: int, before: int | None = None, subject: str | None = None
    ) -> Sequence[AuditRecord]:
        found = await super().audits(limit=limit, before=before, subject=subject)
        return found if self._db.rows else []
