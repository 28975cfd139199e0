"""Stores that remember wrongly who ordered what."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.job.job import NewJob
from windlass._core.limits.queue_settings import QueueSettings
from windlass._storage.memory.admin.actions import MemoryActions
from windlass._storage.memory.admin.admin import MemoryAdmin
from windlass._storage.memory.admin.audit import AuditRows
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.memory.maintenance import MemoryLimits
from windlass._storage.memory.queues import MemoryQueues
from windlass._storage.memory.schedules import MemorySchedules
from windlass._storage.protocol.actions import ActionResult, AuditNote, AuditRecord
from windlass._storage.protocol.jobs import Inserted
from windlass._storage.protocol.schedules import ScheduleWrite, Written
from windlass.testing.conformance import AuditConformance


@fails(AuditConformance.test_a_record_has_operator_action_time_and_count)
class CountsWhatWasAsked(AuditRows):
    """A record counts the jobs that were named."""

    def keep(
        self,
        note: AuditNote | None,
        count: int,
        now: datetime,
        answers: Sequence[ActionResult] = (),
    ) -> None:
        super().keep(note, len(answers) or count, now, answers)


@fails(AuditConformance.test_an_action_without_effect_leaves_no_audit)
class RecordsRefusals(MemoryActions):
    """What was refused is recorded, too."""

    def requeue_one(self, row: JobRow, now: datetime) -> ActionResult:
        answer = super().requeue_one(row, now)
        self._db.audits.keep(AuditNote(id=row.asked.id, who="", what=""), 0, now)
        return answer


@fails(
    AuditConformance.test_records_come_newest_first_and_in_pages,
    AuditConformance.test_records_are_found_by_their_subject,
)
class OldestFirst(AuditRows):
    """Records come oldest first."""

    def newest(self) -> Iterable[AuditRecord]:
        return [*super().newest()][::-1]


@fails(AuditConformance.test_a_record_is_stored_alone_and_once)
class RecordsOne(MemoryActions):
    """A record that is stored alone counts one, whatever it says."""

    async def record(self, note: AuditNote, count: int) -> None:
        await super().record(note, min(count, 1))


@fails(AuditConformance.test_the_switches_of_queues_are_recorded)
class ResumesInSilence(MemoryAdmin):
    """Who resumed a queue is not recorded."""

    async def resume(self, queue: str, *, audit: AuditNote | None = None) -> None:
        await super().resume(queue)


@fails(AuditConformance.test_actions_on_limits_are_recorded)
class ResetsInSilence(MemoryLimits):
    """Who filled a bucket is not recorded."""

    async def reset(self, name: str, key: str = "", *, audit: AuditNote | None = None) -> None:
        await super().reset(name, key)


@fails(AuditConformance.test_a_change_without_a_note_leaves_no_record)
class RecordsNobody(AuditRows):
    """What nobody signed is recorded as nobody's."""

    def keep(
        self,
        note: AuditNote | None,
        count: int,
        now: datetime,
        answers: Sequence[ActionResult] = (),
    ) -> None:
        super().keep(note or AuditNote(id="", who="nobody", what=""), count, now, answers)


@fails(
    AuditConformance.test_the_same_note_is_recorded_once,
    AuditConformance.test_a_repeated_insert_is_recorded_once_and_stores_nothing_twice,
)
class RecordsRepeats(AuditRows):
    """A note that comes again is recorded again."""

    def keep(
        self,
        note: AuditNote | None,
        count: int,
        now: datetime,
        answers: Sequence[ActionResult] = (),
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
class CountsReusedJobs(MemoryActions):
    """Jobs that were not stored because of their key are counted."""

    async def insert(self, jobs: Sequence[NewJob], note: AuditNote) -> Sequence[Inserted]:
        with self._db.moment() as now:
            self._db.audits.keep(note, len(jobs), now)
        return await super().insert(jobs, note)


@fails(AuditConformance.test_an_insert_that_stores_nothing_leaves_none)
class RecordsEveryInsert(MemoryActions):
    """An insert that stored nothing is recorded."""

    async def insert(self, jobs: Sequence[NewJob], note: AuditNote) -> Sequence[Inserted]:
        answers = await super().insert(jobs, note)
        with self._db.moment() as now:
            self._db.audits.keep(note, 0, now)
        return answers


@fails(AuditConformance.test_old_records_are_pruned_in_chunks)
class PrunesAllAtOnce(AuditRows):
    """Pruning knows no bounds."""

    def prune(self, before: datetime, limit: int) -> int:
        return super().prune(before, 1000)


@fails(AuditConformance.test_a_record_outlives_its_job)
class ForgetsWithTheJob(MemoryActions):
    """A record that names no stored job is not shown."""

    async def audits(
        self, *, limit: int, before: int | None = None, subject: str | None = None
    ) -> Sequence[AuditRecord]:
        found = await super().audits(limit=limit, before=before, subject=subject)
        return found if self._db.rows else []
