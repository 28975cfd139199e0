"""Stores that replace too much, too little, or the wrong job."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.job.job import NewJob
from windlass._core.job.state import State
from windlass._core.job.unique import OnConflict
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.memory.jobs.jobs import MemoryJobs
from windlass._storage.memory.limits.budgets import MemoryBudgets
from windlass._storage.protocol.jobs import Inserted
from windlass.errors import KeyConflict
from windlass.testing.conformance import (
    KeyConflictConformance,
    KeyHolderConformance,
    ReplaceConformance,
)

REPLACING = frozenset({OnConflict.REPLACE, OnConflict.REPLACE_ARGUMENTS, OnConflict.REPLACE_DUE})


@fails(KeyHolderConformance.test_of_fifty_concurrent_producers_one_creates_and_the_rest_replace)
class ReplacersHoldNoKey(MemoryJobs):
    """A job that would replace another one holds no key itself."""

    def _insert(self, job: NewJob, now: datetime) -> Inserted:
        answer = super()._insert(job, now)
        if answer.created and job.unique is not None and job.unique.on_conflict in REPLACING:
            self._db.free_key(self._db.by_id[job.id])
        return answer


# --- what is taken over -----------------------------------------------------------------------


@fails(
    KeyHolderConformance.test_a_claim_at_the_same_time_runs_what_was_taken_over_or_replaces_nothing
)
class KeepsArguments(MemoryDatabase):
    """Only the due time is taken over."""

    def replace(self, row: JobRow, new: NewJob, what: OnConflict, now: datetime) -> None:
        super().replace(row, new, OnConflict.REPLACE_DUE, now)


@fails(
    ReplaceConformance.test_the_due_time_is_that_of_a_new_job,
    ReplaceConformance.test_a_job_that_is_put_off_again_and_again_runs_after_the_last_time,
    ReplaceConformance.test_a_new_due_time_orders_the_job,
)
class KeepsDueTimes(MemoryDatabase):
    """Only the arguments are taken over."""

    def replace(self, row: JobRow, new: NewJob, what: OnConflict, now: datetime) -> None:
        super().replace(row, new, OnConflict.REPLACE_ARGUMENTS, now)


@fails(ReplaceConformance.test_replacing_arguments_leaves_the_due_time)
class TakesOverBoth(MemoryDatabase):
    """Arguments and due time are taken over, whatever was asked."""

    def replace(self, row: JobRow, new: NewJob, what: OnConflict, now: datetime) -> None:
        super().replace(row, new, OnConflict.REPLACE, now)


@fails(
    ReplaceConformance.test_replacing_takes_over_arguments_and_due_time,
    ReplaceConformance.test_the_claim_brings_what_was_taken_over,
)
class KeepsTheCaller(MemoryDatabase):
    """Who asks, and why, stays as it was."""

    def replace(self, row: JobRow, new: NewJob, what: OnConflict, now: datetime) -> None:
        old = row.asked
        super().replace(row, new, what, now)
        row.asked = replace(row.asked, principal=old.principal, trace=old.trace)


@fails(
    ReplaceConformance.test_replacing_the_due_time_leaves_the_arguments,
    KeyHolderConformance.test_in_one_batch_the_later_job_replaces_the_earlier_one,
)
class TakesOverEverything(MemoryDatabase):
    """The job becomes the other one but for its id."""

    def replace(self, row: JobRow, new: NewJob, what: OnConflict, now: datetime) -> None:
        row.asked = replace(new, id=row.asked.id, queue=row.asked.queue)
        super().replace(row, new, what, now)


@fails(
    ReplaceConformance.test_every_replace_sets_the_expiry_of_the_new_job,
    ReplaceConformance.test_one_that_is_past_its_expiry_and_was_not_met_yet_is_wanted_again,
)
class KeepsTheExpiry(MemoryDatabase):
    """What is asked for again expires when it would have before."""

    def replace(self, row: JobRow, new: NewJob, what: OnConflict, now: datetime) -> None:
        until = row.expires_at
        super().replace(row, new, what, now)
        row.expires_at = until


@fails(
    ReplaceConformance.test_the_job_waits_in_the_lane_of_its_new_limits,
    ReplaceConformance.test_limits_that_are_dropped_or_new_count_at_the_claim,
    ReplaceConformance.test_a_new_cost_is_what_the_claim_spends,
)
class KeepsLimits(MemoryDatabase):
    """The limits are those of the first job."""

    def replace(self, row: JobRow, new: NewJob, what: OnConflict, now: datetime) -> None:
        super().replace(row, replace(new, limits=row.asked.limits), what, now)


@fails(ReplaceConformance.test_a_ready_job_that_is_put_off_is_claimed_once_when_it_is_due)
class LeavesTheOldPlace(MemoryDatabase):
    """A job that is put off stands where it stood, too."""

    def replace(self, row: JobRow, new: NewJob, what: OnConflict, now: datetime) -> None:
        was_ready = row.due <= now
        super().replace(row, new, what, now)
        if was_ready and row.due > now:
            self.stand_ready(row)


@fails(
    ReplaceConformance.test_everything_else_of_the_holder_stays,
    ReplaceConformance.test_new_arguments_leave_the_job_in_its_place,
)
class ReplacedGoBehind(MemoryDatabase):
    """A job that is replaced stands behind all others."""

    def replace(self, row: JobRow, new: NewJob, what: OnConflict, now: datetime) -> None:
        del self.rows[row.seq]
        self._last_seq += 1
        row.seq = self._last_seq
        self.rows[row.seq] = row
        super().replace(row, new, what, now)


# --- who is replaced --------------------------------------------------------------------------


class _Choosing(MemoryJobs):
    """Another idea of who can be replaced."""

    def chooses(self, row: JobRow, now: datetime) -> bool:
        raise AssertionError("say whom")

    def _insert(self, job: NewJob, now: datetime) -> Inserted:
        holder = None if job.unique is None else self._db.holder(job.unique.key, now)
        met = holder is not None and job.id not in self._db.by_id
        if holder is not None and met and not self.chooses(holder, now):
            return Inserted(holder.asked.id, created=False)
        return super()._insert(job, now)


@fails(KeyHolderConformance.test_a_retrying_job_is_replaced_and_keeps_what_it_has_behind_it)
class ReplacesFreshJobs(_Choosing):
    """A job that has run is not replaced."""

    def chooses(self, row: JobRow, now: datetime) -> bool:
        return row.claim_number == 0


@fails(ReplaceConformance.test_a_later_job_that_is_brought_forward_is_claimed_once)
class ReplacesOlderJobs(_Choosing):
    """A job of the same batch is not replaced."""

    def chooses(self, row: JobRow, now: datetime) -> bool:
        return row.created_at < now


@fails(KeyHolderConformance.test_a_job_to_run_alone_is_replaced_and_still_runs_alone)
class ReplacedAreTrusted(MemoryDatabase):
    """A suspected job that is replaced is suspected no longer."""

    def replace(self, row: JobRow, new: NewJob, what: OnConflict, now: datetime) -> None:
        row.solo = False
        super().replace(row, new, what, now)


class _Anybody(MemoryJobs):
    """Holders that do not wait are replaced, too."""

    states: frozenset[State] = frozenset()

    def _insert(self, job: NewJob, now: datetime) -> Inserted:
        holder = None if job.unique is None else self._db.holder(job.unique.key, now)
        answer = super()._insert(job, now)
        if holder is not None and holder.state in self.states and not answer.created:
            holder.asked = replace(holder.asked, payload=job.payload)
        return answer


class _Lapsing(MemoryJobs):
    """Another idea of who holds a key no longer."""

    def lapsed(self, holder: JobRow, now: datetime) -> bool:
        raise AssertionError("say who")

    def _insert(self, job: NewJob, now: datetime) -> Inserted:
        holder = None if job.unique is None else self._db.holder(job.unique.key, now)
        if holder is not None and self.lapsed(holder, now):
            self._db.running.pop(holder.seq, None)
            self._db.expire(holder, now)
            self._db.free_key(holder)
        return super()._insert(job, now)


@fails(
    KeyHolderConformance.test_one_that_waits_past_its_expiry_is_discarded_and_not_reused,
    KeyConflictConformance.test_an_expired_holder_refuses_no_job,
)
class ReusesTheExpired(MemoryDatabase):
    """A job that will not run is reused."""

    def expire(self, row: JobRow, now: datetime) -> None:
        pass


@fails(KeyHolderConformance.test_the_answer_names_a_holder_that_was_discarded)
class DiscardsUnsaid(MemoryJobs):
    """Who takes a key is not told whose it was."""

    def _insert(self, job: NewJob, now: datetime) -> Inserted:
        return replace(super()._insert(job, now), expired=None)


@fails(KeyHolderConformance.test_a_key_held_for_a_time_is_held_past_the_expiry_of_its_job)
class ExpiredHoldNothing(_Lapsing):
    """The key of a job that has expired is free, whatever it was held for."""

    def lapsed(self, holder: JobRow, now: datetime) -> bool:
        return holder.is_expired(now) and holder.state is State.WAITING


@fails(KeyHolderConformance.test_a_running_job_is_reused_past_its_expiry)
class RunningJobsExpire(_Lapsing):
    """A job that runs past its expiry is taken for one that waits."""

    def lapsed(self, holder: JobRow, now: datetime) -> bool:
        return holder.is_expired(now) and holder.state is State.RUNNING


@fails(KeyHolderConformance.test_a_running_job_stays_as_it_is)
class ReplacesRunningJobs(_Anybody):
    """A running job gets new arguments under its hands."""

    states = frozenset({State.RUNNING})


@fails(KeyHolderConformance.test_a_job_that_has_ended_and_still_holds_its_key_stays_as_it_is)
class ReplacesEndedJobs(_Anybody):
    """A job that has ended gets new arguments."""

    states = frozenset({State.SUCCEEDED})


@fails(KeyHolderConformance.test_a_key_held_for_a_time_is_not_held_longer_by_being_replaced)
class ReplacingHoldsLonger(MemoryDatabase):
    """A key is held for a new period whenever its job is replaced."""

    def replace(self, row: JobRow, new: NewJob, what: OnConflict, now: datetime) -> None:
        super().replace(row, new, what, now)
        self.take_key(row, now)


@fails(KeyHolderConformance.test_a_job_that_freed_its_key_is_not_replaced)
class ReplacesFormerHolders(MemoryJobs):
    """A job that has freed its key is taken for its holder."""

    def _insert(self, job: NewJob, now: datetime) -> Inserted:
        for row in self._db.rows.values():
            former = row.asked.unique
            if former is not None and job.unique is not None and former.key == job.unique.key:
                return Inserted(row.asked.id, created=row.asked.id == job.id)
        return super()._insert(job, now)


@fails(KeyHolderConformance.test_a_repeated_call_finds_its_job_and_undoes_nothing)
class RepeatsReplace(MemoryJobs):
    """A repeated call puts back what was replaced since."""

    def _insert(self, job: NewJob, now: datetime) -> Inserted:
        row = self._db.by_id.get(job.id)
        if row is not None and job.unique is not None and row.state is State.WAITING:
            self._db.replace(row, job, job.unique.on_conflict, now)
        return super()._insert(job, now)


@fails(KeyHolderConformance.test_an_undefined_limit_replaces_nothing)
class KnowsEveryLimit(MemoryBudgets):
    """A limit nobody defined is taken for one."""

    def require(self, jobs: Sequence[NewJob]) -> None:
        pass


@fails(ReplaceConformance.test_a_free_key_is_taken_as_ever)
class ReplacersAreStored(MemoryJobs):
    """A job that would replace another one is stored beside it."""

    def _insert(self, job: NewJob, now: datetime) -> Inserted:
        if job.unique is not None and job.unique.on_conflict in REPLACING:
            return super()._insert(replace(job, unique=None), now)
        return super()._insert(job, now)


@fails(KeyHolderConformance.test_a_job_that_is_brought_forward_wakes)
class ReplacesSilently(MemoryJobs):
    """Nobody is told of a job that was brought forward."""

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        return [self._insert(job, self._db.clock.now()) for job in jobs]


# --- who is refused ---------------------------------------------------------------------------


@fails(
    KeyConflictConformance.test_a_held_key_is_an_error_that_names_the_holder,
    KeyConflictConformance.test_of_fifty_concurrent_producers_one_creates_and_the_rest_are_refused,
)
class RefusesNobody(MemoryJobs):
    """Whoever may not meet another job meets it all the same."""

    def _require_keys(self, jobs: Sequence[NewJob], now: datetime) -> None:
        pass


@fails(KeyConflictConformance.test_any_holder_of_the_key_is_an_error)
class WaitingJobsAreRefused(MemoryJobs):
    """Only who meets a waiting job is refused."""

    def _require_keys(self, jobs: Sequence[NewJob], now: datetime) -> None:
        keys = [job.unique.key for job in jobs if job.unique is not None]
        holders = [self._db.holder(key, now) for key in keys]
        if all(row is None or row.state is State.WAITING for row in holders):
            super()._require_keys(jobs, now)


@fails(KeyConflictConformance.test_nothing_of_the_batch_is_stored_or_replaced)
class RefusesHalfway(MemoryJobs):
    """What comes before a refused job in its batch is stored."""

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        return [
            answer for job in jobs for answer in await super(RefusesHalfway, self).insert([job])
        ]


@fails(
    KeyConflictConformance.test_two_of_one_batch_may_not_meet_either,
    KeyConflictConformance.test_nor_are_they_within_one_batch,
)
class BatchesMeet(MemoryJobs):
    """Jobs of one batch may meet each other."""

    def _require_keys(self, jobs: Sequence[NewJob], now: datetime) -> None:
        for job in jobs:
            super()._require_keys([job], now)


@fails(KeyConflictConformance.test_a_repeated_call_does_not_meet_itself)
class RepeatsAreRefused(MemoryJobs):
    """A repeated call meets itself."""

    def _require_keys(self, jobs: Sequence[NewJob], now: datetime) -> None:
        super()._require_keys(jobs, now)
        for job in jobs:
            if job.unique is not None and job.unique.on_conflict is OnConflict.RAISE:
                row = self._db.holder(job.unique.key, now)
                if row is not None:
                    raise KeyConflict(job.unique.key, row.asked.id)


@fails(KeyConflictConformance.test_the_same_id_twice_in_one_batch_is_a_repeat_as_well)
class RepeatsInABatchAreRefused(MemoryJobs):
    """A job that comes twice in one batch meets itself."""

    def _require_keys(self, jobs: Sequence[NewJob], now: datetime) -> None:
        super()._require_keys(jobs, now)
        seen: set[str] = set()
        for job in jobs:
            if job.unique is not None and job.unique.on_conflict is OnConflict.RAISE:
                if job.id in seen:
                    raise KeyConflict(job.unique.key, job.id)
                seen.add(job.id)


@fails(KeyConflictConformance.test_arguments_of_one_task_are_not_given_to_another)
class AnyTaskReplaces(MemoryJobs):
    """A job of one task gets the arguments of another."""

    def _require_keys(self, jobs: Sequence[NewJob], now: datetime) -> None:
        super()._require_keys([replace(job, task="conform") for job in jobs], now)

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        return await super().insert([replace(job, task="conform") for job in jobs])
