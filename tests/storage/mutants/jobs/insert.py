"""Stores that go wrong when a job comes in, or with its unique key."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.flows.part import MemberEnd
from windlass._core.job.job import NewJob
from windlass._core.job.state import State, Verb
from windlass._core.job.transition import Transition
from windlass._core.job.unique import UniqueKey, Window
from windlass._storage.memory.admin.actions import MemoryActions
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.memory.jobs.apply import ApplyRules
from windlass._storage.memory.jobs.claim import ClaimProgress, ClaimRules
from windlass._storage.memory.jobs.jobs import MemoryJobs
from windlass._storage.protocol.actions import ActionResult
from windlass._storage.protocol.jobs import Inserted
from windlass.errors import StorageError
from windlass.testing.conformance import (
    InsertConformance,
    UniqueConformance,
)


@fails(InsertConformance.test_a_new_job_waits_with_attempt_and_claim_number_zero)
class StartsAtAttemptOne(MemoryDatabase):
    """A new job counts as tried once."""

    def add(self, asked: NewJob, now: datetime) -> JobRow:
        row = super().add(asked, now)
        row.attempt = 1
        return row


@fails(InsertConformance.test_times_beyond_the_calendar_block_no_job)
class StopsAtTheEndOfTime(ClaimRules):
    """A claim cannot look at a job that is never due."""

    def next_at(self, visit: ClaimProgress, queues: Sequence[str]) -> datetime | None:
        at = super().next_at(visit, queues)
        if at is not None and at.year > 8000:
            raise StorageError("date value out of range")
        return at


@fails(InsertConformance.test_a_job_without_a_time_is_due_now)
class DueASecondLate(MemoryDatabase):
    """A job without a time is due a second from now."""

    def add(self, asked: NewJob, now: datetime) -> JobRow:
        if asked.at is None and asked.delay is None:
            asked = replace(asked, delay=timedelta(seconds=1))
        return super().add(asked, now)


@fails(InsertConformance.test_everything_asked_for_is_stored)
class ForgetsWhoAsked(MemoryDatabase):
    """The principal is not stored."""

    def add(self, asked: NewJob, now: datetime) -> JobRow:
        return super().add(replace(asked, principal=None), now)


@fails(InsertConformance.test_answers_come_in_the_order_of_the_batch)
class AnswersBackwards(MemoryJobs):
    """The answers come last job first."""

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        return list(await super().insert(jobs))[::-1]


@fails(InsertConformance.test_the_order_of_insertion_is_the_order_of_the_batch)
class StoresBatchesBackwards(MemoryJobs):
    """The last job of a batch is stored first."""

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        return list(await super().insert(jobs[::-1]))[::-1]


@fails(InsertConformance.test_a_delay_counts_from_the_stores_now)
class IgnoresDelays(MemoryDatabase):
    """A delay is not stored: the job is due at once."""

    def add(self, asked: NewJob, now: datetime) -> JobRow:
        return super().add(replace(asked, delay=None), now)


@fails(InsertConformance.test_a_job_for_an_instant_is_due_then)
class IgnoresInstants(MemoryDatabase):
    """An instant is not stored: the job is due at once."""

    def add(self, asked: NewJob, now: datetime) -> JobRow:
        return super().add(replace(asked, at=None), now)


@fails(InsertConformance.test_an_instant_in_the_past_is_kept_and_orders_the_job)
class ClampsThePast(MemoryDatabase):
    """An instant in the past becomes now."""

    def add(self, asked: NewJob, now: datetime) -> JobRow:
        return super().add(replace(asked, at=asked.at and max(asked.at, now)), now)


@fails(InsertConformance.test_an_id_that_is_stored_is_not_stored_again)
class StoresAnIdTwice(MemoryJobs):
    """A repeated insert makes a second job."""

    def _insert(self, job: NewJob, now: datetime) -> Inserted:
        self._db.by_id.pop(job.id, None)
        return super()._insert(job, now)


@fails(InsertConformance.test_repeating_an_insert_does_not_disturb_the_run_it_led_to)
class StartsRepeatedJobsAfresh(MemoryJobs):
    """A repeated insert makes a running job wait again."""

    def _insert(self, job: NewJob, now: datetime) -> Inserted:
        if (row := self._db.by_id.get(job.id)) is not None:
            self._db.running.pop(row.seq, None)
            self._db.stand(row, now, now)
        return super()._insert(job, now)


@fails(InsertConformance.test_a_repeated_insert_with_a_key_is_not_its_own_duplicate)
class AsksForTheKeyBeforeTheId(MemoryJobs):
    """A repeated insert finds its own key held and calls itself a duplicate."""

    def _insert(self, job: NewJob, now: datetime) -> Inserted:
        if job.unique is not None and (holder := self._db.holder(job.unique.key, now)):
            return Inserted(holder.asked.id, created=False)
        return super()._insert(job, now)


@fails(InsertConformance.test_a_batch_with_an_unknown_limit_stores_nothing)
class StoresBeforeItChecks(MemoryJobs):
    """A batch is refused for an unknown limit, and stored."""

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        with self._db.moment() as now:
            for job in jobs:
                self._insert(job, now)
        return await super().insert(jobs)


@fails(InsertConformance.test_an_empty_batch_is_answered_with_nothing)
class CannotStoreNothing(MemoryJobs):
    """An empty batch is an error."""

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        if not jobs:
            raise StorageError("a batch needs a job")
        return await super().insert(jobs)


# --- unique keys ------------------------------------------------------------------------------


@fails(UniqueConformance.test_a_held_key_answers_with_its_holder)
class IgnoresKeys(MemoryDatabase):
    """Nobody ever holds a key."""

    def holder(self, key: str, now: datetime) -> JobRow | None:
        return None


@fails(UniqueConformance.test_jobs_without_a_key_are_all_stored)
class TakesNoKeyForAKey(MemoryDatabase):
    """All jobs without a key hold the same one."""

    def add(self, asked: NewJob, now: datetime) -> JobRow:
        if asked.unique is None and (row := self.holder("", now)) is not None:
            return row
        return super().add(replace(asked, unique=asked.unique or UniqueKey("")), now)


@fails(UniqueConformance.test_a_key_is_held_within_its_own_batch)
class LooksForHoldersOnce(MemoryJobs):
    """Who holds a key is asked before the batch, not for each job of it."""

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        with self._db.moment() as now:
            held = {job.unique.key for job in jobs if job.unique and not self._is_held(job, now)}
            for key in held:
                self._db.keys.pop(key, None)
            answers = []
            for job in jobs:
                answers.append(self._insert(job, now))
                for key in held:
                    self._db.keys.pop(key, None)
            return answers

    def _is_held(self, job: NewJob, now: datetime) -> bool:
        return job.unique is not None and self._db.holder(job.unique.key, now) is not None


@fails(UniqueConformance.test_a_key_is_held_across_queues)
class KeysBelongToQueues(MemoryJobs):
    """Two queues may hold one key."""

    def _insert(self, job: NewJob, now: datetime) -> Inserted:
        if job.unique is not None:
            unique = replace(job.unique, key=f"{job.queue}/{job.unique.key}")
            job = replace(job, unique=unique)
        return super()._insert(job, now)


@fails(UniqueConformance.test_different_keys_are_different_jobs)
class ComparesKeysLoosely(MemoryJobs):
    """Case and blanks make no difference between keys."""

    def _insert(self, job: NewJob, now: datetime) -> Inserted:
        if job.unique is not None:
            unique = replace(job.unique, key=job.unique.key.strip().lower())
            job = replace(job, unique=unique)
        return super()._insert(job, now)


@fails(UniqueConformance.test_of_fifty_concurrent_inserts_with_one_key_one_is_created)
class ChecksThenInserts(MemoryJobs):
    """Somebody else may take the key between the question and the insert."""

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        now = self._db.clock.now()
        keys = [job.unique.key for job in jobs if job.unique is not None]
        free = not any(self._db.holder(key, now) for key in keys)
        await asyncio.sleep(0)
        if free:
            for key in keys:
                self._db.keys.pop(key, None)
        return await super().insert(jobs)


@fails(UniqueConformance.test_a_running_job_holds_its_key)
class FreesKeysAtTheStart(ClaimRules):
    """A claim frees every key."""

    def start(self, visit: ClaimProgress, row: JobRow) -> None:
        super().start(visit, row)
        self._db.free_key(row)


@fails(UniqueConformance.test_a_retrying_job_holds_its_key)
class FreesKeysAtARetry(ApplyRules):
    """Every ended claim frees the key, also when the job goes on."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().accept(row, transition, verb, now)
        self._db.free_key(row)


@fails(
    UniqueConformance.test_a_succeeded_job_frees_its_key,
    UniqueConformance.test_a_failed_job_frees_its_key_and_still_shows_it,
    UniqueConformance.test_a_cancelled_job_frees_its_key,
    UniqueConformance.test_an_expired_job_frees_its_key,
)
class KeepsKeysForEver(MemoryDatabase):
    """A job that has ended holds its key."""

    def finish(
        self, row: JobRow, state: State, now: datetime, ended: MemberEnd | None = None
    ) -> None:
        super().finish(row, state, now, ended)
        if row.asked.unique is not None:
            self.keys[row.asked.unique.key] = row


@fails(UniqueConformance.test_a_job_whose_retry_gave_way_to_a_cancel_frees_its_key)
class FreesKeysByTheVerbAskedFor(ApplyRules):
    """A retry that gave way to a cancel request holds its key, as a retry would."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().accept(row, transition, verb, now)
        if transition.verb is Verb.RETRY:
            self._db.take_key(row, now)


@fails(
    UniqueConformance.test_a_success_that_is_not_kept_frees_its_key,
    UniqueConformance.test_a_key_held_for_a_time_goes_with_its_row,
)
class DeletedJobsHoldKeys(MemoryDatabase):
    """A job that was deleted holds its key."""

    def remove(self, row: JobRow) -> None:
        super().remove(row)
        if row.asked.unique is not None:
            self.keys[row.asked.unique.key] = row


@fails(UniqueConformance.test_a_key_held_until_started_is_free_once_its_job_runs)
class HoldsStartedKeys(ClaimRules):
    """A key held until started is held until finished."""

    def start(self, visit: ClaimProgress, row: JobRow) -> None:
        held = self._db.holds_key(row, visit.now)
        super().start(visit, row)
        if held:
            self._db.take_key(row, visit.now)


@fails(UniqueConformance.test_a_key_held_until_started_is_not_taken_again_by_a_retry)
class RetakesStartedKeys(ApplyRules):
    """A retry takes a key again that was held until started."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().accept(row, transition, verb, now)
        if verb is Verb.RETRY:
            self._db.take_key(row, now)


@fails(UniqueConformance.test_a_key_held_for_a_time_outlives_its_job)
class FreesTimedKeysAtTheEnd(MemoryDatabase):
    """A key held for a time is freed when its job ends."""

    def finish(
        self, row: JobRow, state: State, now: datetime, ended: MemberEnd | None = None
    ) -> None:
        super().finish(row, state, now, ended)
        self.free_key(row)


@fails(UniqueConformance.test_a_key_held_for_a_time_is_free_when_the_time_is_up)
class HoldsTimedKeysForEver(MemoryDatabase):
    """The time of a key held for a time never ends."""

    def take_key(self, row: JobRow, now: datetime) -> None:
        super().take_key(row, now)
        if row.asked.unique and row.asked.unique.window is Window.FOR_A_TIME:
            row.key_until = None


@fails(UniqueConformance.test_a_requeue_takes_a_key_held_for_a_time_for_a_new_period)
class TimedKeysAreNotRetaken(MemoryActions):
    """A requeued job whose key was held for a time does not hold it again."""

    def requeue_one(self, row: JobRow, now: datetime) -> ActionResult:
        held = self._db.holds_key(row, now)
        answer = super().requeue_one(row, now)
        if not held:
            self._db.free_key(row)
        return answer


@fails(UniqueConformance.test_a_requeue_does_not_prolong_a_key_that_is_still_held)
class RequeueProlongsKeys(MemoryActions):
    """A requeue starts the period of a key anew though it is still held."""

    def requeue_one(self, row: JobRow, now: datetime) -> ActionResult:
        self._db.free_key(row)
        return super().requeue_one(row, now)
