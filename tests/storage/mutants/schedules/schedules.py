"""Stores that go wrong with schedules: their fence, and when they are due."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._storage.memory.schedules import MemorySchedules
from windlass._storage.protocol.schedules import (
    DueSchedules,
    ScheduleAnswer,
    ScheduleRow,
    ScheduleWrite,
    Written,
)
from windlass.errors import StorageError
from windlass.testing.conformance import DueConformance, ScheduleConformance

INSTANT = timedelta(microseconds=1)


# --- the fence --------------------------------------------------------------------------------


@fails(ScheduleConformance.test_a_new_schedule_has_revision_one)
class CountsFromTwo(MemorySchedules):
    """A new schedule has revision 2."""

    def _store(self, write: ScheduleWrite, row: ScheduleRow | None) -> None:
        super()._store(replace(write, revision=write.revision + (row is None)), row)


@fails(ScheduleConformance.test_a_write_by_its_revision_replaces_body_and_due_time)
class KeepsTheDueTime(MemorySchedules):
    """A write without a due time leaves the one before."""

    def _store(self, write: ScheduleWrite, row: ScheduleRow | None) -> None:
        before = None if row is None else row.next_at
        super()._store(replace(write, next_at=write.next_at or before), row)


class _Judges(MemorySchedules):
    """Another revision is taken for the right one."""

    def right(self, write: ScheduleWrite, row: ScheduleRow | None) -> bool:
        raise AssertionError("say which")

    def _write(self, write: ScheduleWrite, now: datetime) -> Written:
        row = self._db.schedules.get(write.name)
        if self.right(write, row) and not self._repeats(write, row):
            write = replace(write, revision=0 if row is None else row.revision)
        return super()._write(write, now)


@fails(ScheduleConformance.test_a_write_by_another_revision_is_stale_and_changes_nothing)
class AcceptsNewerRevisions(_Judges):
    """A revision that has not been yet is accepted."""

    def right(self, write: ScheduleWrite, row: ScheduleRow | None) -> bool:
        return row is not None and write.revision > row.revision


@fails(ScheduleConformance.test_a_change_of_what_is_not_there_is_stale)
class MakesWhatWasDeleted(_Judges):
    """A change of what is not there makes it."""

    def right(self, write: ScheduleWrite, row: ScheduleRow | None) -> bool:
        return row is None


@fails(
    ScheduleConformance.test_a_delete_by_another_revision_is_stale,
)
class DeletesWhateverIsThere(_Judges):
    """A delete needs no revision."""

    def right(self, write: ScheduleWrite, row: ScheduleRow | None) -> bool:
        return write.body is None


@fails(
    ScheduleConformance.test_a_repeated_write_is_answered_again_and_changes_nothing,
    ScheduleConformance.test_writers_of_the_very_same_are_all_answered_written,
)
class KnowsNoRepeats(MemorySchedules):
    """A repeat is stale."""

    def _repeats(self, write: ScheduleWrite, row: ScheduleRow | None) -> bool:
        return False


@fails(ScheduleConformance.test_a_delete_of_what_is_not_there_is_written)
class DeletesWhatIsThere(MemorySchedules):
    """A delete of what is not there is stale."""

    def _write(self, write: ScheduleWrite, now: datetime) -> Written:
        if write.body is None and write.name not in self._db.schedules:
            return Written.STALE
        return super()._write(write, now)


@fails(ScheduleConformance.test_a_repeat_of_what_has_been_overwritten_is_stale)
class KnowsRepeatsByTheirBody(MemorySchedules):
    """Whatever has the same body is a repeat."""

    def _repeats(self, write: ScheduleWrite, row: ScheduleRow | None) -> bool:
        return row is not None and row.revision > write.revision and row.body == write.body


@fails(ScheduleConformance.test_a_delete_by_its_revision_removes_the_schedule)
class DeletesEverything(MemorySchedules):
    """A delete removes every schedule."""

    def _store(self, write: ScheduleWrite, row: ScheduleRow | None) -> None:
        super()._store(write, row)
        if write.body is None:
            self._db.schedules.clear()


@fails(ScheduleConformance.test_a_name_that_was_deleted_begins_anew)
class RemembersDeclarations(MemorySchedules):
    """A deleted schedule leaves its declaration to the next one of its name."""

    def _store(self, write: ScheduleWrite, row: ScheduleRow | None) -> None:
        graves: dict[str, ScheduleRow] = self.__dict__.setdefault("graves", {})
        if write.body is None and row is not None:
            graves[write.name] = row
        super()._store(write, row or graves.get(write.name))


@fails(ScheduleConformance.test_schedules_are_listed_by_name)
class ListsByAge(MemorySchedules):
    """Schedules are listed as they were made."""

    async def rows(self, names: Sequence[str] | None = None) -> Sequence[ScheduleRow]:
        return list(self._db.schedules.values())


@fails(ScheduleConformance.test_every_name_is_a_separate_schedule)
class FoldsNames(MemorySchedules):
    """Large letters are small ones."""

    def _write(self, write: ScheduleWrite, now: datetime) -> Written:
        return super()._write(replace(write, name=write.name.lower()), now)


@fails(ScheduleConformance.test_a_body_is_kept_to_the_byte)
class StripsBodies(MemorySchedules):
    """Space around a body is lost."""

    def _store(self, write: ScheduleWrite, row: ScheduleRow | None) -> None:
        super()._store(replace(write, body=write.body and write.body.strip()), row)


@fails(ScheduleConformance.test_a_due_time_beyond_the_calendar_becomes_its_last)
class KnowsNoEndOfTime(MemorySchedules):
    """An instant that others cannot read is stored."""

    def _store(self, write: ScheduleWrite, row: ScheduleRow | None) -> None:
        super()._store(write, row)
        if write.body is not None:
            stored = self._db.schedules[write.name]
            self._db.schedules[write.name] = replace(stored, next_at=write.next_at)


@fails(ScheduleConformance.test_writes_of_one_call_happen_in_order)
class JudgesBeforeItWrites(MemorySchedules):
    """Every write of a call is judged by what was there before it."""

    async def write(self, writes: Sequence[ScheduleWrite]) -> Sequence[ScheduleAnswer]:
        before = {name: row.revision for name, row in self._db.schedules.items()}
        stale = [write.revision != before.get(write.name, 0) for write in writes]
        answers = await super().write(
            [w for w, late in zip(writes, stale, strict=True) if not late]
        )
        rest = iter(answers)
        return [ScheduleAnswer(Written.STALE) if late else next(rest) for late in stale]


@fails(ScheduleConformance.test_a_stale_write_does_not_stop_the_others)
class StopsAtTheFirstStale(MemorySchedules):
    """What follows a stale write is stale."""

    async def write(self, writes: Sequence[ScheduleWrite]) -> Sequence[ScheduleAnswer]:
        answers: list[ScheduleAnswer] = []
        for write in writes:
            if ScheduleAnswer(Written.STALE) in answers:
                answers.append(ScheduleAnswer(Written.STALE))
            else:
                answers += await super().write([write])
        return answers


@fails(ScheduleConformance.test_of_many_who_write_by_one_revision_exactly_one_succeeds)
class LooksThenWrites(MemorySchedules):
    """Somebody else may write between the look at the revision and the write."""

    async def write(self, writes: Sequence[ScheduleWrite]) -> Sequence[ScheduleAnswer]:
        seen = [self._db.schedules.get(write.name) for write in writes]
        await asyncio.sleep(0)
        for write, row in zip(writes, seen, strict=True):
            if row is not None and row.revision == write.revision:
                self._db.schedules[write.name] = row
        return await super().write(writes)


@fails(
    ScheduleConformance.test_writers_of_several_schedules_never_lock_each_other_out,
)
class GivesUpWhenOthersWrite(MemorySchedules):
    """Two calls at once that name the same schedules end one of them."""

    writing = 0

    async def write(self, writes: Sequence[ScheduleWrite]) -> Sequence[ScheduleAnswer]:
        if self.writing:
            raise StorageError("deadlock detected")
        self.writing += 1
        await asyncio.sleep(0)
        try:
            return await super().write(writes)
        finally:
            self.writing -= 1


@fails(ScheduleConformance.test_a_call_without_writes_is_answered_without_answers)
class AnswersNobody(MemorySchedules):
    """A call without writes is an error."""

    async def write(self, writes: Sequence[ScheduleWrite]) -> Sequence[ScheduleAnswer]:
        if not writes:
            raise StorageError("nothing to write")
        return await super().write(writes)


# --- declarations -----------------------------------------------------------------------------


@fails(ScheduleConformance.test_declared_schedules_are_stamped_and_nothing_else_of_them)
class DeclaresByWriting(MemorySchedules):
    """A declaration is a write, which raises the revision."""

    async def declare(self, names: Sequence[str]) -> None:
        await super().declare(names)
        for name in names:
            row = self._db.schedules[name]
            self._db.schedules[name] = replace(row, revision=row.revision + 1)


@fails(ScheduleConformance.test_a_declared_schedule_that_is_not_stored_is_left_out)
class DeclarationsMakeSchedules(MemorySchedules):
    """A declared schedule that is not stored is made."""

    async def declare(self, names: Sequence[str]) -> None:
        await super().write([ScheduleWrite(name=name, revision=0, body=b"{}") for name in names])
        await super().declare(names)


@fails(ScheduleConformance.test_a_write_leaves_the_declaration_as_it_is)
class WritesForgetDeclarations(MemorySchedules):
    """A write takes the declaration away."""

    def _store(self, write: ScheduleWrite, row: ScheduleRow | None) -> None:
        super()._store(write, None)


# --- what is due ------------------------------------------------------------------------------


class _Shows(MemorySchedules):
    """Something else is shown as due."""

    def shown(self, due: DueSchedules, limit: int) -> DueSchedules:
        raise AssertionError("say what")

    async def due(self, limit: int) -> DueSchedules:
        return self.shown(await super().due(1000), limit)


@fails(DueConformance.test_a_schedule_is_due_from_the_very_instant)
class DueAfterTheInstant(_Shows):
    """A schedule is due after its due time only."""

    def shown(self, due: DueSchedules, limit: int) -> DueSchedules:
        rows = [row for row in due.rows if row.next_at is not None and row.next_at < due.at]
        return DueSchedules(due.at, rows[:limit], due.next_at)


@fails(DueConformance.test_the_longest_due_come_first_and_equals_by_name)
class ShowsTheNewestFirst(_Shows):
    """What became due last is shown first."""

    def shown(self, due: DueSchedules, limit: int) -> DueSchedules:
        return DueSchedules(due.at, due.rows[::-1][:limit], due.next_at)


@fails(DueConformance.test_no_more_than_asked_for_are_shown)
class ShowsAll(_Shows):
    """All that is due is shown, however few were asked for."""

    def shown(self, due: DueSchedules, limit: int) -> DueSchedules:
        return due


@fails(DueConformance.test_the_next_is_the_first_that_is_not_due_yet)
class TheNextIsDue(_Shows):
    """The next is the first of all, due or not."""

    def shown(self, due: DueSchedules, limit: int) -> DueSchedules:
        following = due.rows[0].next_at if due.rows else due.next_at
        return DueSchedules(due.at, due.rows[:limit], following)


@fails(DueConformance.test_one_without_a_due_time_is_never_due)
class AlwaysDue(_Shows):
    """A schedule without a due time is always due."""

    def shown(self, due: DueSchedules, limit: int) -> DueSchedules:
        idle = [row for row in self._db.schedules.values() if row.next_at is None]
        return DueSchedules(due.at, [*idle, *due.rows][:limit], due.next_at)


@fails(DueConformance.test_a_due_schedule_is_shown_whole)
class ShowsNoDeclaration(_Shows):
    """What is due is shown without its declaration."""

    def shown(self, due: DueSchedules, limit: int) -> DueSchedules:
        rows = [replace(row, declared_at=None) for row in due.rows[:limit]]
        return DueSchedules(due.at, rows, due.next_at)


@fails(DueConformance.test_one_that_was_moved_on_is_due_at_its_new_time)
class StaysDue(MemorySchedules):
    """A due time can be made sooner, never later."""

    def _store(self, write: ScheduleWrite, row: ScheduleRow | None) -> None:
        if row is not None and row.next_at is not None and write.next_at is not None:
            write = replace(write, next_at=min(row.next_at, write.next_at))
        super()._store(write, row)


@fails(DueConformance.test_a_deleted_schedule_is_neither_due_nor_the_next)
class DeletedOnesStayPlanned(MemorySchedules):
    """Deleted schedules are still waited for."""

    def _store(self, write: ScheduleWrite, row: ScheduleRow | None) -> None:
        if write.body is not None or row is None:
            super()._store(write, row)


@fails(DueConformance.test_a_due_time_long_past_is_kept)
class TimeBeginsWithTheEpoch(MemorySchedules):
    """What is due before the epoch is due at it."""

    def _store(self, write: ScheduleWrite, row: ScheduleRow | None) -> None:
        epoch = datetime(1970, 1, 1, tzinfo=UTC)
        super()._store(replace(write, next_at=write.next_at and max(write.next_at, epoch)), row)


@fails(ScheduleConformance.test_some_are_read_by_name_and_the_others_page_by_page)
class BeginsAPageWithTheLastName(MemorySchedules):
    """A page begins with the last one of the page before, unless that was all."""

    async def page(self, after: str, limit: int) -> Sequence[ScheduleRow]:
        rows = [row for row in await self.rows() if row.name >= after]
        return rows[:limit] if len(rows) > 1 else []
