"""Stores that go wrong with the jobs that come with a schedule."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from tests.storage.mutants.storage import nobody_listens
from tests.storage.mutants.table import fails
from windlass._core.job.job import JobId, NewJob
from windlass._core.job.state import State
from windlass._storage.memory.schedules import MemorySchedules
from windlass._storage.protocol.jobs import Inserted
from windlass._storage.protocol.schedules import ScheduleAnswer, ScheduleRow, ScheduleWrite, Written
from windlass._system.seams import new_job_id
from windlass.testing.conformance import FireConformance, OverlapConformance


@fails(FireConformance.test_jobs_come_with_the_write_in_their_order)
class BringsOneJob(MemorySchedules):
    """A write brings only the first of its jobs."""

    def _write(self, write: ScheduleWrite, now: datetime) -> Written:
        return super()._write(replace(write, jobs=write.jobs[:1]), now)


@fails(FireConformance.test_jobs_of_several_writes_are_in_order)
class WritesByName(MemorySchedules):
    """Writes are done in the order of their names."""

    async def write(self, writes: Sequence[ScheduleWrite]) -> Sequence[ScheduleAnswer]:
        return await super().write(sorted(writes, key=lambda write: write.name))


@fails(FireConformance.test_a_job_that_comes_with_a_write_wakes)
class SilentFiring(MemorySchedules):
    """A job that comes with a schedule wakes nobody."""

    async def write(self, writes: Sequence[ScheduleWrite]) -> Sequence[ScheduleAnswer]:
        with nobody_listens(self._db):
            return await super().write(writes)


class _InsertsFirst(MemorySchedules):
    """Jobs are inserted whatever becomes of the write."""

    def before(self, write: ScheduleWrite, row: ScheduleRow | None) -> bool:
        raise AssertionError("At must be a time")

    def _write(self, write: ScheduleWrite, now: datetime) -> Written:
        if self.before(write, self._db.schedules.get(write.name)):
            for job in write.jobs:
                self._insert(job, now)
        return super()._write(write, now)


@fails(
    FireConformance.test_a_stale_write_brings_no_job,
    FireConformance.test_of_many_who_fire_one_slot_exactly_one_brings_its_job,
)
class InsertsThenWrites(_InsertsFirst):
    """The jobs of a stale write are inserted."""

    def before(self, write: ScheduleWrite, row: ScheduleRow | None) -> bool:
        return row is not None and row.revision != write.revision


@fails(FireConformance.test_a_repeated_write_brings_no_job_again)
class FiresAgain(_InsertsFirst):
    """A repeat brings its jobs again."""

    def before(self, write: ScheduleWrite, row: ScheduleRow | None) -> bool:
        return row is not None and self._repeats(write, row)


@fails(FireConformance.test_a_delete_may_bring_jobs_once)
class DeletesFireAgain(_InsertsFirst):
    """A repeated delete brings its jobs again."""

    def before(self, write: ScheduleWrite, row: ScheduleRow | None) -> bool:
        return row is None and write.body is None


@fails(
    FireConformance.test_a_job_that_is_stored_already_is_not_stored_again,
)
class StoresWithoutALook(MemorySchedules):
    """Jobs are stored without a look at what is there."""

    def _insert(self, job: NewJob, now: datetime) -> Inserted:
        self._db.add(job, now)
        return Inserted(job.id, created=True)


@fails(
    FireConformance.test_a_key_that_is_held_holds_the_write_and_names_the_holder,
    FireConformance.test_of_many_schedules_that_want_one_key_one_gets_it,
    FireConformance.test_a_write_is_held_with_any_on_conflict_of_its_job,
)
class LeavesThemOut(MemorySchedules):
    """A write takes effect without the jobs whose keys are held."""

    def _holders(self, write: ScheduleWrite, now: datetime) -> dict[JobId, JobId]:
        return {}


@fails(FireConformance.test_a_key_is_held_by_the_first_job_of_a_call)
class LooksAtTheStoreAlone(MemorySchedules):
    """Jobs of one write do not meet each other."""

    def _holders(self, write: ScheduleWrite, now: datetime) -> dict[JobId, JobId]:
        mine = {job.id for job in write.jobs}
        held = super()._holders(write, now)
        return {job: holder for job, holder in held.items() if holder not in mine}


@fails(FireConformance.test_a_key_of_a_job_that_is_stored_holds_nothing)
class MeetsItself(MemorySchedules):
    """A job that is stored is in its own way."""

    def _holders(self, write: ScheduleWrite, now: datetime) -> dict[JobId, JobId]:
        stored = {job.id: job.id for job in write.jobs if job.id in self._db.by_id}
        return super()._holders(write, now) | stored


@fails(FireConformance.test_a_repeated_write_does_not_take_its_own_jobs_for_anothers)
class KnowsItsOwn(MemorySchedules):
    """Whatever is stored by the end was there before."""

    def _answer(self, write: ScheduleWrite, now: datetime) -> ScheduleAnswer:
        known = tuple(job.id for job in write.jobs)
        return replace(super()._answer(write, now), known=known)


@fails(FireConformance.test_a_holder_that_waits_past_its_expiry_is_discarded_and_named)
class DiscardsInSilence(MemorySchedules):
    """A write does not say whom it has discarded."""

    def _answer(self, write: ScheduleWrite, now: datetime) -> ScheduleAnswer:
        return replace(super()._answer(write, now), expired=())


@fails(FireConformance.test_a_key_whose_time_is_up_is_taken)
class KeysAreForEver(MemorySchedules):
    """A key that was held once is held."""

    def _insert(self, job: NewJob, now: datetime) -> Inserted:
        if job.unique is None or job.unique.key not in self._db.keys:
            return super()._insert(job, now)
        return Inserted(job.id, created=True)


@fails(FireConformance.test_an_unknown_limit_is_refused_and_nothing_of_the_call_is_written)
class LooksAtLimitsOneByOne(MemorySchedules):
    """What comes before an unknown limit stays written."""

    async def write(self, writes: Sequence[ScheduleWrite]) -> Sequence[ScheduleAnswer]:
        answers: list[ScheduleAnswer] = []
        for write in writes:
            answers += await super().write([write])
        return answers


@fails(FireConformance.test_jobs_with_limits_are_in_their_lane)
class FiresWithoutLimits(MemorySchedules):
    """A job that comes with a schedule counts against nothing."""

    def _insert(self, job: NewJob, now: datetime) -> Inserted:
        return super()._insert(replace(job, limits=()), now)


@fails(FireConformance.test_many_who_fire_one_slot_alike_bring_one_job)
class LooksThenFires(MemorySchedules):
    """Many who look at once all fire, each its own job."""

    async def write(self, writes: Sequence[ScheduleWrite]) -> Sequence[ScheduleAnswer]:
        seen = [self._db.schedules.get(write.name) for write in writes]
        await asyncio.sleep(0)
        for write, row in zip(writes, seen, strict=True):
            if row is None:
                self._db.schedules.pop(write.name, None)
        return await super().write(writes)

    def _insert(self, job: NewJob, now: datetime) -> Inserted:
        return super()._insert(replace(job, id=new_job_id()), now)


# --- how many are active ----------------------------------------------------------------------


class _Counts(MemorySchedules):
    """Other states count as active."""

    active: frozenset[State] = frozenset()

    def _active(self, write: ScheduleWrite) -> int:
        rows = [self._db.by_id.get(job) for job in {*write.active}]
        return sum(row is not None and row.state in self.active for row in rows)


@fails(
    OverlapConformance.test_a_waiting_job_is_active,
    OverlapConformance.test_a_job_that_waits_for_its_retry_is_active,
    OverlapConformance.test_jobs_of_an_earlier_write_of_the_call_are_active,
)
class CountsRunningJobs(_Counts):
    """A job that waits is not active."""

    active = frozenset({State.RUNNING})


@fails(OverlapConformance.test_a_running_job_is_active)
class CountsWaitingJobs(_Counts):
    """A job that runs is not active."""

    active = frozenset({State.WAITING})


@fails(
    OverlapConformance.test_jobs_that_have_ended_are_not_active,
    OverlapConformance.test_a_busy_write_may_be_tried_again,
)
class CountsEndedJobs(_Counts):
    """Whatever is stored is active."""

    active = frozenset(State)


@fails(OverlapConformance.test_jobs_that_are_not_stored_are_not_active)
class CountsTheUnknown(MemorySchedules):
    """A job that is not stored is active."""

    def _active(self, write: ScheduleWrite) -> int:
        return super()._active(write) + sum(job not in self._db.by_id for job in write.active)


@fails(OverlapConformance.test_fewer_than_the_most_may_be_active)
class OneMoreMayBeActive(MemorySchedules):
    """One more may be active than was said."""

    def _active(self, write: ScheduleWrite) -> int:
        return super()._active(write) - 1


@fails(OverlapConformance.test_any_number_may_be_active_where_nothing_is_said)
class NobodyMayBeActive(MemorySchedules):
    """Where nothing is said, none may be active."""

    def _write(self, write: ScheduleWrite, now: datetime) -> Written:
        return super()._write(replace(write, most_active=write.most_active or 1), now)


@fails(OverlapConformance.test_a_job_that_is_named_twice_counts_once)
class CountsEveryName(MemorySchedules):
    """A job counts as often as it is named."""

    def _active(self, write: ScheduleWrite) -> int:
        alone = [replace(write, active=(job,)) for job in write.active]
        return sum(super(CountsEveryName, self)._active(one) for one in alone)


@fails(OverlapConformance.test_nothing_is_written_while_too_many_are_active)
class WritesThenCounts(MemorySchedules):
    """A busy schedule is written, only its jobs are left out."""

    def _write(self, write: ScheduleWrite, now: datetime) -> Written:
        answer = super()._write(write, now)
        if answer is Written.BUSY:
            super()._write(replace(write, most_active=None, jobs=()), now)
        return answer


@fails(OverlapConformance.test_a_repeat_is_known_before_anybody_is_counted)
class CountsFirst(MemorySchedules):
    """A repeat is busy with its own jobs."""

    def _repeats(self, write: ScheduleWrite, row: ScheduleRow | None) -> bool:
        most = write.most_active
        return super()._repeats(write, row) and (most is None or self._active(write) < most)

    def _write(self, write: ScheduleWrite, now: datetime) -> Written:
        answer = super()._write(write, now)
        return Written.BUSY if answer is Written.STALE and write.active else answer


@fails(OverlapConformance.test_a_stale_write_is_stale_however_many_are_active)
class BusyBeforeStale(MemorySchedules):
    """Who is too late is told that too many are active."""

    def _write(self, write: ScheduleWrite, now: datetime) -> Written:
        if write.most_active is not None and self._active(write) >= write.most_active:
            return Written.BUSY
        return super()._write(write, now)
