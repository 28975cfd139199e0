"""Stores that lose something when everything is moved."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.job.state import State
from windlass._core.stats.rollup import Rollup
from windlass._storage.memory.copy.copy import MemoryCopy
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.memory.limits.budgets import MemoryBudgets
from windlass._storage.protocol.copy import CopiedRecord, StoredJob
from windlass._storage.protocol.journal import EventRecord
from windlass._storage.protocol.limits import LimitState
from windlass.testing.conformance import DumpConformance, RestoreConformance

# --- out --------------------------------------------------------------------------------------


@fails(DumpConformance.test_jobs_come_out_in_order_and_in_pages)
class DumpsFromThere(MemoryCopy):
    """A page begins with the last job of the page before."""

    async def dump(self, *, after: int, limit: int) -> Sequence[StoredJob]:
        return [*await super().dump(after=max(after - 1, 0), limit=limit + 1)][-limit:]


class _Dumps(MemoryCopy):
    """Something is missing of a job that comes out."""

    def spoiled(self, stored: StoredJob, row: JobRow) -> StoredJob:
        raise AssertionError("say what")

    def _dumped(self, row: JobRow, now: datetime) -> StoredJob:
        return self.spoiled(super()._dumped(row, now), row)


@fails(DumpConformance.test_history_and_logs_of_a_job_are_dumped_with_it)
class DumpsPastKeys(_Dumps):
    """How long a key was held comes out when it is not held any more."""

    def spoiled(self, stored: StoredJob, row: JobRow) -> StoredJob:
        return replace(stored, key_until=row.key_until)


@fails(DumpConformance.test_claim_numbers_continue_where_they_were)
class DumpsNoHistory(_Dumps):
    """The history stays behind."""

    def spoiled(self, stored: StoredJob, row: JobRow) -> StoredJob:
        return replace(stored, history=())


@fails(DumpConformance.test_logs_are_copied_and_continue)
class DumpsNoLogs(_Dumps):
    """The log lines stay behind."""

    def spoiled(self, stored: StoredJob, row: JobRow) -> StoredJob:
        return replace(stored, logs=())


# --- in ---------------------------------------------------------------------------------------


class _Restores(MemoryCopy):
    """Something is different about a job that was restored."""

    def spoil(self, row: JobRow, now: datetime) -> None:
        raise AssertionError("say what")

    def _restore_job(self, stored: StoredJob, now: datetime) -> bool:
        new = super()._restore_job(stored, now)
        if new:
            self.spoil(self._db.by_id[stored.job.id], now)
        return new


@fails(DumpConformance.test_jobs_are_elsewhere_what_they_were_here)
class RestoresAsNew(_Restores):
    """A restored job was made now."""

    def spoil(self, row: JobRow, now: datetime) -> None:
        row.created_at = now


@fails(DumpConformance.test_jobs_are_found_elsewhere_by_all_they_are)
class RestoresWithoutFrames(_Restores):
    """Where errors were raised is forgotten."""

    def spoil(self, row: JobRow, now: datetime) -> None:
        row.frame = ""


@fails(DumpConformance.test_ready_jobs_are_claimed_elsewhere_in_the_same_order)
class RestoresWithoutPriorities(_Restores):
    """Restored jobs are ready in the order they came."""

    def spoil(self, row: JobRow, now: datetime) -> None:
        if row.state is State.WAITING:
            row.asked = replace(row.asked, priority=0)
            self._db.stand(row, row.due, now)


@fails(
    DumpConformance.test_later_jobs_are_due_elsewhere_when_they_were_here,
    RestoreConformance.test_a_restored_job_can_be_changed_by_actions,
)
class RestoresNobodyInLine(_Restores):
    """A restored job that waits stands nowhere."""

    def spoil(self, row: JobRow, now: datetime) -> None:
        row.place = None
        row.state = State.CANCELLED


@fails(DumpConformance.test_keys_are_held_elsewhere_as_they_were)
class RestoresWithoutKeys(MemoryCopy):
    """Keys are free elsewhere."""

    def _restore_key(self, row: JobRow, stored: StoredJob, now: datetime) -> None:
        pass


@fails(DumpConformance.test_running_jobs_count_elsewhere_until_the_reaper_ends_them)
class RestoresRunsInNameOnly(_Restores):
    """A running job runs nowhere."""

    def spoil(self, row: JobRow, now: datetime) -> None:
        self._db.running.pop(row.seq, None)


@fails(
    RestoreConformance.test_restored_twice_jobs_are_stored_once,
    RestoreConformance.test_a_job_that_went_on_is_not_set_back,
)
class RestoresAgain(MemoryCopy):
    """What is there is replaced."""

    def _restore_job(self, stored: StoredJob, now: datetime) -> bool:
        row = self._db.by_id.get(stored.job.id)
        if row is not None:
            self._db.remove(row)
        return super()._restore_job(stored, now)


@fails(RestoreConformance.test_jobs_whose_limits_are_not_defined_are_refused_all_together)
class RestoresOneByOne(MemoryCopy):
    """What comes before an error is stored."""

    async def restore(self, things: Sequence[CopiedRecord]) -> int:
        return sum([await super(RestoresOneByOne, self).restore([thing]) for thing in things])


@fails(RestoreConformance.test_rollups_add_to_what_was_counted_there)
class ReplacesCounts(MemoryCopy):
    """What was counted there is forgotten."""

    def _restore_rollup(self, rollup: Rollup) -> bool:
        self._db.tallies.pop((rollup.minute, rollup.queue, rollup.task), None)
        return super()._restore_rollup(rollup)


@fails(RestoreConformance.test_a_later_copy_of_a_rollup_replaces_the_earlier_one)
class AddsCopies(MemoryCopy):
    """A second copy adds to the first."""

    def _restore_rollup(self, rollup: Rollup) -> bool:
        key = (rollup.minute, rollup.queue, rollup.task)
        earlier = self._db.copied.get(key)
        new = super()._restore_rollup(rollup)
        if earlier is not None:
            self._db.copied[key].add(earlier)
        return new


@fails(RestoreConformance.test_queues_and_budgets_are_there_as_they_were_here)
class RestoresClosedBreakers(MemoryBudgets):
    """Breakers are closed elsewhere."""

    def restore(self, state: LimitState) -> bool:
        return super().restore(replace(state, breaker=None))


@fails(RestoreConformance.test_records_and_events_are_there_once)
class RestoresEventsAgain(MemoryCopy):
    """Events that are there are stored again."""

    def _restore_event(self, event: EventRecord) -> bool:
        row = self._db.by_id[event.job]
        self._db.diary.keep_event(row.seq, event)
        return True


@fails(RestoreConformance.test_nothing_at_all_is_nothing_new)
class CountsOneTooMany(MemoryCopy):
    """There is always something new."""

    async def restore(self, things: Sequence[CopiedRecord]) -> int:
        return await super().restore(things) + 1
