"""Stores that treat jobs that a worker could not run as any other."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from tests.storage.broken.table import fails
from windlass.core.state import Verb
from windlass.core.transition import Transition
from windlass.storage.answers import Outlook
from windlass.storage.memory.claims import Claims
from windlass.storage.memory.database import MemoryDatabase
from windlass.storage.memory.endings import Endings
from windlass.storage.memory.jobs import MemoryJobs
from windlass.storage.memory.row import Row
from windlass.storage.memory.upkeep import MemoryMaintenance
from windlass.testing.conformance import MissConformance


@fails(MissConformance.test_a_miss_says_why_and_leaves_history_and_last_error_alone)
class MissesAreErrors(Endings):
    """Why a job was missed becomes its last error."""

    def remember(self, row: Row, transition: Transition, verb: Verb, now: datetime) -> None:
        super().remember(row, transition, verb, now)
        if transition.missed and transition.error is not None:
            row.blame(transition.error)


@fails(MissConformance.test_why_a_job_was_missed_is_kept_by_a_release_and_by_nothing_else)
class KeepsWhyForEver(Endings):
    """Why a job was missed is never cleared."""

    def missed_why(self, row: Row, transition: Transition, verb: Verb) -> str | None:
        return super().missed_why(row, transition, verb) or row.missed_why


@fails(MissConformance.test_misses_push_nothing_out_of_the_history)
class ForgetsByNumber(Endings):
    """The history is cut by claim numbers, of which misses have their share."""

    def remember(self, row: Row, transition: Transition, verb: Verb, now: datetime) -> None:
        super().remember(row, transition, verb, now)
        row.history[:] = [past for past in row.history if past.claim_number > row.claim_number - 32]


@fails(MissConformance.test_others_have_a_head_start_for_a_missed_job)
class GivesNoHeadStart(Claims):
    """A missed job counts when it is due, for everyone."""

    def promote(self, queue: str, now: datetime) -> None:
        self._db.promote(queue, now)


@fails(MissConformance.test_after_the_head_start_a_missed_job_is_for_everyone)
class NeverComesBack(Claims):
    """A worker that could not run something never gets a missed job again."""

    def promote(self, queue: str, now: datetime) -> None:
        self._db.promote(queue, now, missed_until=now - 2 * self.head_start)


@fails(MissConformance.test_a_head_start_holds_back_no_other_job)
class HoldsBackEverything(Claims):
    """A head start delays every due job of the queue."""

    def promote(self, queue: str, now: datetime) -> None:
        self._db.promote(queue, now - self.head_start)


@fails(MissConformance.test_a_claim_says_when_the_head_start_is_over)
class SpinsDuringTheHeadStart(Claims):
    """The next look is said to be worth it at once."""

    def opens(self, queue: str, now: datetime) -> datetime | None:
        return self._db.next_due(queue)


@fails(MissConformance.test_promotion_leaves_missed_jobs_to_claims)
class PromotesMissedJobs(MemoryMaintenance):
    """A missed job is promoted when it is due."""

    async def promote(self, limit: int) -> int:
        with self._db.moment() as now:
            return sum(self._db.promote(queue, now, limit) for queue in [*self._db.later])


@fails(MissConformance.test_a_missed_job_that_is_cancelled_leaves_its_place)
class KeepsThePlaceOfAMissedJob(MemoryDatabase):
    """A missed job that was cancelled is still waited for."""

    def next_due(self, queue: str, head_start: timedelta = timedelta(0)) -> datetime | None:
        return min((row.due for row in self.rows.values() if row.missed_at), default=None)


@fails(MissConformance.test_a_missed_job_is_worth_a_claim_when_it_is_due)
class OverlooksMissedJobs(MemoryJobs):
    """A missed job is never worth a claim."""

    async def outlook(self, queues: Sequence[str]) -> Outlook:
        missed = any(row.missed_at for row in self._db.rows.values())
        told = await super().outlook(queues)
        return replace(told, claimable=told.claimable and not missed)
