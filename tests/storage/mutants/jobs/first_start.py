"""Stores that take a claim for a start, or a start for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.job.state import Verb
from windlass._core.job.transition import Transition
from windlass._core.job.unique import Window
from windlass._storage.memory.copy.copy import MemoryCopy
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.memory.jobs.apply import ApplyRules
from windlass._storage.memory.workers import MemoryWorkers
from windlass._storage.protocol.copy import CopiedRecord, StoredJob
from windlass._storage.protocol.jobs import Applied, TransitionAnswer
from windlass.testing.conformance import FirstStartConformance


@fails(FirstStartConformance.test_a_job_that_was_started_in_time_never_expires)
class ReleasesExpire(ApplyRules):
    """A job that was released by the worker that ran it still expires."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        expires_at = row.expires_at
        super().accept(row, transition, verb, now)
        if verb is Verb.RELEASE:
            row.expires_at = expires_at


@fails(FirstStartConformance.test_a_job_that_was_lost_has_been_started)
class LostJobsExpire(ApplyRules):
    """A job whose worker was lost still expires."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        expires_at = row.expires_at
        super().accept(row, transition, verb, now)
        if transition.lost:
            row.expires_at = expires_at


@fails(FirstStartConformance.test_a_limited_job_that_was_started_in_time_never_expires)
class LimitedJobsExpire(ApplyRules):
    """A job under a limit still expires after it was started."""

    def note_start(self, row: JobRow, *, started: bool) -> None:
        super().note_start(row, started=started and not row.asked.limits)


@fails(
    FirstStartConformance.test_a_claim_that_was_given_back_before_the_start_keeps_the_expiry,
    FirstStartConformance.test_a_claim_that_was_given_back_before_the_start_takes_its_key_again,
)
class EveryClaimIsAStart(ApplyRules):
    """A claim counts as a start, whether the handler was entered or not."""

    def note_start(self, row: JobRow, *, started: bool) -> None:
        super().note_start(row, started=True)


@fails(FirstStartConformance.test_claims_that_a_leaving_worker_does_not_mention_were_not_started)
class LeavingEndsRuns(MemoryWorkers):
    """What a leaving worker holds counts as started."""

    async def leave(self, worker: str, releases: Sequence[Transition]) -> Applied:
        left = [replace(self._release(row.claim, row), started=True) for row in self._held(worker)]
        return await super().leave(worker, [*releases, *left])


@fails(FirstStartConformance.test_a_key_that_another_job_holds_by_now_stays_with_that_one)
class TakesKeysAway(MemoryDatabase):
    """A job that is given back takes its key from the one that holds it by now."""

    def stand(self, row: JobRow, due: datetime, now: datetime) -> None:
        super().stand(row, due, now)
        if row.claim_number and not row.key_spent:
            self.take_key(row, now)


@fails(
    FirstStartConformance.test_of_several_given_back_together_the_one_that_came_first_takes_the_key
)
class TakesKeysAsTheyCome(ApplyRules):
    """Of several jobs that are given back, the first one that is named takes the key."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        answer = super().end(transition, now)
        for row in self._unstarted:
            self.retake_key(row, now)
        return answer


@fails(FirstStartConformance.test_a_job_that_was_started_once_does_not_take_its_key_again)
class ForgetsTheStart(ApplyRules):
    """Only the last claim counts: what was started before is forgotten."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        row.key_spent = False
        super().accept(row, transition, verb, now)


@fails(FirstStartConformance.test_a_requeued_job_does_not_take_its_key_again_either)
class RequeuedJobsAreNew(MemoryDatabase):
    """A requeued job counts as one that was never started."""

    def stand(self, row: JobRow, due: datetime, now: datetime) -> None:
        super().stand(row, due, now)
        if row.max_attempts > row.asked.max_attempts:
            row.key_spent = False


@fails(FirstStartConformance.test_a_copied_job_that_was_started_once_does_not_take_its_key_again)
class CopiesForgetTheStart(MemoryCopy):
    """A copied job counts as one that was never started."""

    async def restore(self, things: Sequence[CopiedRecord]) -> int:
        new = await super().restore(things)
        for thing in things:
            if isinstance(thing, StoredJob) and thing.unique is not None:
                assert thing.unique.window is Window.UNTIL_STARTED
                self._db.by_id[thing.job.id].key_spent = False
        return new
