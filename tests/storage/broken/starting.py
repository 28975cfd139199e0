"""Stores that take a claim for a start, or a start for nothing."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from tests.storage.broken.table import fails
from windlass.core.state import Verb
from windlass.core.transition import Transition
from windlass.core.unique import Window
from windlass.storage.memory.database import MemoryDatabase
from windlass.storage.memory.endings import Endings
from windlass.storage.memory.moving import MemoryMoving
from windlass.storage.memory.row import Row
from windlass.storage.memory.workers import MemoryWorkers
from windlass.storage.moving import Belonging, StoredJob
from windlass.storage.protocol import Answer, Applied
from windlass.testing.conformance import StartConformance


@fails(StartConformance.test_a_job_that_was_started_in_time_never_expires)
class ReleasesExpire(Endings):
    """A job that was released by the worker that ran it still expires."""

    def accept(self, row: Row, transition: Transition, verb: Verb, now: datetime) -> None:
        expires_at = row.expires_at
        super().accept(row, transition, verb, now)
        if verb is Verb.RELEASE:
            row.expires_at = expires_at


@fails(StartConformance.test_a_job_that_was_lost_has_been_started)
class LostJobsExpire(Endings):
    """A job whose worker was lost still expires."""

    def accept(self, row: Row, transition: Transition, verb: Verb, now: datetime) -> None:
        expires_at = row.expires_at
        super().accept(row, transition, verb, now)
        if transition.lost:
            row.expires_at = expires_at


@fails(StartConformance.test_a_limited_job_that_was_started_in_time_never_expires)
class LimitedJobsExpire(Endings):
    """A job under a limit still expires after it was started."""

    def note_start(self, row: Row, *, started: bool) -> None:
        super().note_start(row, started=started and not row.asked.limits)


@fails(
    StartConformance.test_a_claim_that_was_given_back_before_the_start_keeps_the_expiry,
    StartConformance.test_a_claim_that_was_given_back_before_the_start_takes_its_key_again,
)
class EveryClaimIsAStart(Endings):
    """A claim counts as a start, whether the handler was entered or not."""

    def note_start(self, row: Row, *, started: bool) -> None:
        super().note_start(row, started=True)


@fails(StartConformance.test_what_a_leaving_worker_does_not_mention_was_not_started)
class LeavingEndsRuns(MemoryWorkers):
    """What a leaving worker holds counts as started."""

    async def leave(self, worker: str, releases: Sequence[Transition]) -> Applied:
        left = [replace(self._release(row.claim, row), started=True) for row in self._held(worker)]
        return await super().leave(worker, [*releases, *left])


@fails(StartConformance.test_a_key_that_another_job_holds_by_now_stays_with_that_one)
class TakesKeysAway(MemoryDatabase):
    """A job that is given back takes its key from the one that holds it by now."""

    def stand(self, row: Row, due: datetime, now: datetime) -> None:
        super().stand(row, due, now)
        if row.claim_number and not row.key_spent:
            self.take_key(row, now)


@fails(StartConformance.test_of_several_given_back_together_the_one_that_came_first_takes_the_key)
class TakesKeysAsTheyCome(Endings):
    """Of several jobs that are given back, the first one that is named takes the key."""

    def end(self, transition: Transition, now: datetime) -> Answer:
        answer = super().end(transition, now)
        for row in self._unstarted:
            self.retake_key(row, now)
        return answer


@fails(StartConformance.test_a_job_that_was_started_once_does_not_take_its_key_again)
class ForgetsTheStart(Endings):
    """Only the last claim counts: what was started before is forgotten."""

    def accept(self, row: Row, transition: Transition, verb: Verb, now: datetime) -> None:
        row.key_spent = False
        super().accept(row, transition, verb, now)


@fails(StartConformance.test_a_requeued_job_does_not_take_its_key_again_either)
class RequeuedJobsAreNew(MemoryDatabase):
    """A requeued job counts as one that was never started."""

    def stand(self, row: Row, due: datetime, now: datetime) -> None:
        super().stand(row, due, now)
        if row.max_attempts > row.asked.max_attempts:
            row.key_spent = False


@fails(StartConformance.test_a_copied_job_that_was_started_once_does_not_take_its_key_again)
class CopiesForgetTheStart(MemoryMoving):
    """A copied job counts as one that was never started."""

    async def restore(self, things: Sequence[Belonging]) -> int:
        new = await super().restore(things)
        for thing in things:
            if isinstance(thing, StoredJob) and thing.unique is not None:
                assert thing.unique.window is Window.UNTIL_STARTED
                self._db.by_id[thing.job.id].key_spent = False
        return new
