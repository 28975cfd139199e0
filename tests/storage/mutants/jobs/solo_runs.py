"""Stores that do not keep suspected jobs apart."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from tests.storage.mutants.table import fails
from windlass._core.job.state import Verb
from windlass._core.job.transition import Transition
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.memory.jobs.apply import ApplyRules
from windlass._storage.memory.jobs.claim import ClaimProgress, ClaimRules
from windlass._storage.memory.limits.budgets import MemoryBudgets, Usage
from windlass._storage.protocol.jobs import ClaimReply, Want
from windlass.testing.conformance import SoloConformance, WorkerLeaveConformance


@fails(SoloConformance.test_a_job_marked_solo_is_not_claimed_with_others)
class IgnoresTheSoloMark(MemoryDatabase):
    """Suspected jobs stand among the others."""

    def stand_ready(self, row: JobRow) -> None:
        solo, row.solo = row.solo, False
        super().stand_ready(row)
        row.solo = solo


@fails(SoloConformance.test_callers_learn_that_a_solo_job_waits)
class NeverTellsOfSoloJobs(ClaimRules):
    """Nobody hears that a job waits to run alone."""

    def solo_due(self, visit: ClaimProgress, queues: Sequence[str]) -> bool:
        return False


@fails(SoloConformance.test_a_solo_claim_returns_exactly_one_such_job)
class GivesManyAlone(ClaimRules):
    """A solo claim fills every slot."""

    def take(self, visit: ClaimProgress, want: Want) -> None:
        visit.room = want.limit
        super().take(visit, want)


@fails(SoloConformance.test_a_solo_claim_brings_no_ordinary_job)
class GivesOrdinaryJobsAlone(ClaimRules):
    """A solo claim that finds no suspected job brings another."""

    def claim(
        self, worker: str, wants: Sequence[Want], *, total: int, solo: bool, now: datetime
    ) -> ClaimReply:
        reply = super().claim(worker, wants, total=total, solo=solo, now=now)
        if solo and not reply.jobs:
            return super().claim(worker, wants, total=1, solo=False, now=now)
        return reply


@fails(SoloConformance.test_a_job_marked_solo_waits_for_its_due_time)
class SoloJobsAreAlwaysDue(MemoryDatabase):
    """A suspected job need not wait for its due time."""

    def stand(self, row: JobRow, due: datetime, now: datetime) -> None:
        super().stand(row, min(due, now) if row.solo else due, now)


@fails(SoloConformance.test_limits_hold_for_jobs_that_run_alone)
class SoloJobsHaveNoLimits(ClaimRules):
    """Limits do not hold for solo claims."""

    def admit(self, visit: ClaimProgress, row: JobRow) -> bool:
        return visit.solo or super().admit(visit, row)


@fails(SoloConformance.test_a_solo_job_with_closed_limits_is_not_announced)
class TellsOfClosedSoloJobs(ClaimRules):
    """Workers drain for a suspected job that its limits hold back."""

    def solo_due(self, visit: ClaimProgress, queues: Sequence[str]) -> bool:
        return any(lane.solo for queue in queues for lane in self._db.ready[queue])


@fails(SoloConformance.test_a_job_that_runs_alone_counts_against_its_limits)
class SoloJobsCountNothing(MemoryBudgets):
    """Jobs that run alone do not count against their limits."""

    def usage(self, running: Iterable[JobRow]) -> Usage:
        return super().usage(row for row in running if not row.solo)


@fails(
    SoloConformance.test_after_two_losses_in_a_row_a_job_runs_alone,
    SoloConformance.test_a_third_loss_alone_fails_the_job,
)
class ForgetsLosses(ApplyRules):
    """The count of losses is not stored."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().accept(row, transition, verb, now)
        row.lost = 0


@fails(SoloConformance.test_an_ordinary_error_clears_the_suspicion)
class SuspectsForEver(ApplyRules):
    """A job that was suspected once stays so."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        lost, solo = row.lost, row.solo
        super().accept(row, transition, verb, now)
        row.lost, row.solo = max(lost, row.lost), solo or row.solo
        if verb is Verb.RETRY:
            self._db.stand(row, row.due, now)


@fails(
    SoloConformance.test_a_release_keeps_the_suspicion,
    WorkerLeaveConformance.test_a_forgotten_claim_keeps_its_suspicion,
)
class ReleaseClearsSuspicion(ApplyRules):
    """A job that was given back is not suspected any more."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().accept(row, transition, verb, now)
        if verb is Verb.RELEASE:
            row.lost, row.solo = 0, False
            self._db.stand(row, row.due, now)
