"""Stores that make too much of a loss, or too little."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.job.job import ClaimedJob, NewJob
from windlass._core.job.state import Verb
from windlass._core.job.transition import Transition
from windlass._storage.memory.copy.copy import MemoryCopy
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.memory.jobs.apply import ApplyRules
from windlass._storage.memory.workers import MemoryWorkers
from windlass._storage.protocol.copy import StoredJob
from windlass.testing.conformance import LostJobConformance


@fails(LostJobConformance.test_a_loss_never_spends_the_last_attempt)
class RetriesAlwaysCost(ApplyRules):
    """A retry gives no attempt back."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        if verb is Verb.RETRY:
            transition = replace(transition, refund=False)
        super().accept(row, transition, verb, now)


@fails(LostJobConformance.test_the_third_loss_in_a_row_ends_a_job_with_one_attempt)
class ForgetsLosses(ApplyRules):
    """Losses are not counted."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().accept(row, replace(transition, lost=0, solo=False), verb, now)


@fails(
    LostJobConformance.test_interrupted_snoozed_and_throttled_runs_keep_the_losses_and_the_solo_mark
)
class SnoozesClearSuspicion(ApplyRules):
    """A snooze or a throttle clears the marks of suspicion."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        if verb in {Verb.SNOOZE, Verb.THROTTLE}:
            transition = replace(transition, lost=0, solo=False)
        super().accept(row, transition, verb, now)


@fails(LostJobConformance.test_a_job_that_asks_for_it_fails_at_its_first_loss)
class OrphansAreRetried(MemoryWorkers):
    """Who ends an orphan does not learn what is to follow."""

    async def orphans(self, limit: int) -> Sequence[ClaimedJob]:
        return [replace(job, on_lost="retry") for job in await super().orphans(limit)]


@fails(LostJobConformance.test_the_rule_for_a_loss_is_stored_with_the_job)
class ForgetsWhatFollowsALoss(MemoryDatabase):
    """What is to follow a loss is not stored."""

    def add(self, asked: NewJob, now: datetime) -> JobRow:
        return super().add(replace(asked, on_lost="retry"), now)


@fails(LostJobConformance.test_the_rule_for_a_loss_is_copied_to_another_store)
class CopiesForgetWhatFollowsALoss(MemoryCopy):
    """What is to follow a loss does not come out."""

    async def dump(self, *, after: int, limit: int) -> Sequence[StoredJob]:
        return [
            replace(stored, job=replace(stored.job, on_lost="retry"))
            for stored in await super().dump(after=after, limit=limit)
        ]
