"""Stores that treat jobs that a worker could not run as any other."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.job.state import Verb
from windlass._core.job.transition import Transition
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.memory.jobs.apply import ApplyRules
from windlass._storage.memory.jobs.claim import ClaimRules
from windlass._storage.memory.jobs.jobs import MemoryJobs
from windlass._storage.memory.maintenance import MemoryMaintenance
from windlass._storage.protocol.jobs import Outlook
from windlass.testing.conformance import UnknownTaskConformance


@fails(UnknownTaskConformance.test_a_miss_says_why_and_leaves_history_and_last_error_alone)
class MissesAreErrors(ApplyRules):
    """Why a job was missed becomes its last error."""

    def remember(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().remember(row, transition, verb, now)
        if transition.missed and transition.error is not None:
            row.blame(transition.error)


@fails(UnknownTaskConformance.test_why_a_job_was_missed_is_kept_by_a_release_and_by_nothing_else)
class KeepsWhyForEver(ApplyRules):
    """Why a job was missed is never cleared."""

    def missed_why(self, row: JobRow, transition: Transition, verb: Verb) -> str | None:
        return super().missed_why(row, transition, verb) or row.missed_why


@fails(UnknownTaskConformance.test_misses_push_nothing_out_of_the_history)
class ForgetsByNumber(ApplyRules):
    """The history is cut by claim numbers, of which misses have their share."""

    def remember(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().remember(row, transition, verb, now)
        row.history[:] = [past for past in row.history if past.claim_number > row.claim_number - 32]


@fails(UnknownTaskConformance.test_others_have_a_head_start_for_a_missed_job)
class GivesNoHeadStart(ClaimRules):
    """A missed job counts when it is due, for everyone."""

    def promote(self, queue: str, now: datetime) -> None:
        self._db.promote(queue, now)


@fails(UnknownTaskConformance.test_after_the_head_start_a_missed_job_is_for_everyone)
class NeverComesBack(ClaimRules):
    """A worker that could not run something never gets a missed job again."""

    def promote(self, queue: str, now: datetime) -> None:
        self._db.promote(queue, now, missed_until=now - 2 * self.head_start)


@fails(UnknownTaskConformance.test_a_head_start_holds_back_no_other_job)
class HoldsBackEverything(ClaimRules):
    """A head start delays every due job of the queue."""

    def promote(self, queue: str, now: datetime) -> None:
        self._db.promote(queue, now - self.head_start)


@fails(UnknownTaskConformance.test_a_claim_says_when_the_head_start_is_over)
class SpinsDuringTheHeadStart(ClaimRules):
    """The next look is said to be worth it at once."""

    def opens(self, queue: str, now: datetime) -> datetime | None:
        return self._db.next_due(queue)


@fails(UnknownTaskConformance.test_promotion_leaves_missed_jobs_to_claims)
class PromotesMissedJobs(MemoryMaintenance):
    """A missed job is promoted when it is due."""

    async def promote(self, limit: int) -> int:
        with self._db.moment() as now:
            return sum(self._db.promote(queue, now, limit) for queue in [*self._db.later])


@fails(UnknownTaskConformance.test_a_missed_job_that_is_cancelled_leaves_its_place)
class KeepsThePlaceOfAMissedJob(MemoryDatabase):
    """A missed job that was cancelled is still waited for."""

    def next_due(self, queue: str, head_start: timedelta = timedelta(0)) -> datetime | None:
        return min((row.due for row in self.rows.values() if row.missed_at), default=None)


@fails(UnknownTaskConformance.test_a_missed_job_is_worth_a_claim_when_it_is_due)
class OverlooksMissedJobs(MemoryJobs):
    """A missed job is never worth a claim."""

    async def outlook(self, queues: Sequence[str]) -> Outlook:
        missed = any(row.missed_at for row in self._db.rows.values())
        told = await super().outlook(queues)
        return replace(told, claimable=told.claimable and not missed)
