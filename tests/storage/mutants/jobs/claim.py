"""Stores that give the wrong jobs, in the wrong order, or do the wrong thing to them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.job.job import Claim, JobId, NewJob, Progress
from windlass._core.job.state import State
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.io.rows import ClaimSortKey, JobRow
from windlass._storage.memory.jobs.claim import ClaimProgress, ClaimRules
from windlass._storage.memory.jobs.jobs import MemoryJobs
from windlass._storage.memory.maintenance import MemoryMaintenance
from windlass._storage.protocol.jobs import ClaimReply, Want
from windlass.testing.conformance import (
    ClaimConformance,
    ClaimOrderConformance,
    ExpiryConformance,
)

INSTANT = timedelta(microseconds=1)


@fails(ClaimConformance.test_a_claim_returns_the_job_and_marks_it_running)
class ForgetsWhoRunsIt(ClaimRules):
    """The claim does not store its worker."""

    def start(self, visit: ClaimProgress, row: JobRow) -> None:
        super().start(visit, row)
        row.worker = "somebody"


@fails(ClaimConformance.test_a_claimed_job_is_not_claimed_again)
class LeavesClaimedJobsInLine(ClaimRules):
    """A claimed job keeps its place, and the next claim gives it again."""

    def start(self, visit: ClaimProgress, row: JobRow) -> None:
        super().start(visit, row)
        if row.claim_number == 1:
            self._db.stand_ready(row)


@fails(ClaimConformance.test_eight_concurrent_claimers_never_share_a_job)
class ChoosesThenClaims(MemoryJobs):
    """Somebody else may claim a job between its choice and its claim."""

    async def claim(
        self,
        worker: str,
        wants: Sequence[Want],
        *,
        total: int,
        solo: bool = False,
        head_start: timedelta = timedelta(0),
    ) -> ClaimReply:
        waiting = [row for row in self._db.rows.values() if row.state is State.WAITING]
        chosen = waiting[:total]
        await asyncio.sleep(0)
        now = self._db.clock.now()
        visit = ClaimProgress(
            worker=worker, now=now, room=total, solo=solo, usage=self._db.gates.usage(())
        )
        for row in chosen:
            self._claims.start(visit, row)
        return ClaimReply(visit.jobs, now)


@fails(ClaimConformance.test_a_claimed_job_carries_what_its_worker_needs)
class SendsNoTimeout(ClaimRules):
    """A claimed job comes without its time limit."""

    def start(self, visit: ClaimProgress, row: JobRow) -> None:
        super().start(visit, row)
        visit.jobs[-1] = replace(visit.jobs[-1], timeout=None)


@fails(ClaimConformance.test_no_timeout_is_another_answer_than_none_said)
class TakesNoTimeoutForNoneSaid(ClaimRules):
    """A job that has no timeout by order comes as if nothing had been said."""

    def start(self, visit: ClaimProgress, row: JobRow) -> None:
        super().start(visit, row)
        visit.jobs[-1] = replace(visit.jobs[-1], timeout=visit.jobs[-1].timeout or None)


@fails(ClaimConformance.test_the_last_error_comes_with_the_next_claim_without_its_traceback)
class SendsTracebacks(ClaimRules):
    """A claimed job comes with the traceback of its last error."""

    def start(self, visit: ClaimProgress, row: JobRow) -> None:
        super().start(visit, row)
        visit.jobs[-1] = replace(visit.jobs[-1], error=row.error)


@fails(
    ClaimConformance.test_every_claim_raises_the_claim_number_also_when_the_attempt_was_given_back
)
class ReusesTheFence(ClaimRules):
    """The claim number is the attempt, which repeats when it is given back."""

    def start(self, visit: ClaimProgress, row: JobRow) -> None:
        row.claim_number = row.attempt
        super().start(visit, row)


@fails(ClaimConformance.test_a_claim_clears_a_cancel_request_left_from_an_earlier_run)
class KeepsCancelRequests(ClaimRules):
    """A cancel request of an earlier run hits the next one."""

    def start(self, visit: ClaimProgress, row: JobRow) -> None:
        requested = row.cancel_requested
        super().start(visit, row)
        row.cancel_requested = requested


@fails(ClaimConformance.test_a_claim_clears_the_progress_of_an_earlier_run)
class KeepsProgress(ClaimRules):
    """A new run starts with the progress of the last one."""

    def start(self, visit: ClaimProgress, row: JobRow) -> None:
        progress = row.progress
        super().start(visit, row)
        row.progress = progress


@fails(
    ClaimConformance.test_a_worker_that_never_registered_gets_nothing,
    ClaimConformance.test_a_dead_worker_gets_no_jobs,
    ClaimConformance.test_a_worker_that_has_left_gets_nothing,
)
class TrustsEveryWorker(ClaimRules):
    """A claim does not look at its worker's row."""

    def is_live(self, worker: str) -> bool:
        return True


@fails(ClaimConformance.test_a_failed_job_does_not_block_those_behind_it)
class FailedJobsBlock(ClaimRules):
    """A queue gives nothing while its first job has failed."""

    def take(self, visit: ClaimProgress, want: Want) -> None:
        queued = [row for row in self._db.rows.values() if row.asked.queue == want.queue]
        if not queued or queued[0].state is not State.FAILED:
            super().take(visit, want)


@fails(ClaimConformance.test_progress_is_stored_for_a_claim_that_holds)
class StoresNoProgress(MemoryJobs):
    """Progress is thrown away."""

    async def report(self, progress: Sequence[tuple[Claim, Progress]]) -> None:
        await super().report([])


@fails(ClaimConformance.test_progress_of_a_claim_that_is_not_held_changes_nothing)
class BelievesAnyProgress(MemoryJobs):
    """Progress is not fenced."""

    async def report(self, progress: Sequence[tuple[Claim, Progress]]) -> None:
        for claim, done in progress:
            if (row := self._db.by_id.get(claim.job)) is not None:
                row.progress = done


# --- order ------------------------------------------------------------------------------------


class _OrdersBy(MemoryDatabase):
    """Ready jobs stand in another order."""

    def order(self, row: JobRow) -> ClaimSortKey:
        raise AssertionError("say which")

    def stand_ready(self, row: JobRow) -> None:
        asked, due = row.asked, row.due
        priority, row.due, _ = self.order(row)  # type: ignore[misc]
        row.asked = replace(asked, priority=priority)
        super().stand_ready(row)
        row.asked, row.due = asked, due


@fails(ClaimOrderConformance.test_lower_priority_numbers_come_first)
class IgnoresPriority(_OrdersBy):
    """Jobs come by due time alone."""

    def order(self, row: JobRow) -> ClaimSortKey:
        return 0, row.due, row.seq


@fails(ClaimOrderConformance.test_priority_comes_before_due_time)
class DueTimeComesFirst(_OrdersBy):
    """Priority decides only between jobs that are due together."""

    def order(self, row: JobRow) -> ClaimSortKey:
        return 0, row.due + row.asked.priority * INSTANT, row.seq


@fails(
    ClaimOrderConformance.test_within_a_priority_the_longest_due_comes_first,
    ClaimOrderConformance.test_any_mix_of_jobs_comes_in_the_one_order,
)
class IgnoresDueTimes(_OrdersBy):
    """Jobs of one priority come in the order of insertion."""

    def order(self, row: JobRow) -> ClaimSortKey:
        return row.asked.priority, row.created_at, row.seq


@fails(ClaimOrderConformance.test_jobs_due_together_come_in_the_order_of_insertion)
class LastInFirstOut(_OrdersBy):
    """Of jobs that are due together the newest comes first."""

    def order(self, row: JobRow) -> ClaimSortKey:
        return row.asked.priority, row.due - row.seq * INSTANT, row.seq


@fails(ClaimOrderConformance.test_a_retried_job_competes_by_its_new_due_time)
class RetriesComeFirst(_OrdersBy):
    """A job that was tried before overtakes the others."""

    def order(self, row: JobRow) -> ClaimSortKey:
        return row.asked.priority - row.attempt, row.due, row.seq


@fails(ClaimOrderConformance.test_wants_are_served_in_their_order)
class ServesWantsBackwards(ClaimRules):
    """The last want is served first."""

    def claim(
        self, worker: str, wants: Sequence[Want], *, total: int, solo: bool, now: datetime
    ) -> ClaimReply:
        return super().claim(worker, wants[::-1], total=total, solo=solo, now=now)


@fails(
    ClaimOrderConformance.test_a_claim_gives_at_most_the_total,
    ClaimOrderConformance.test_a_claim_without_room_gives_nothing,
)
class IgnoresTheTotal(ClaimRules):
    """Every want is filled, whatever the worker has room for."""

    def claim(
        self, worker: str, wants: Sequence[Want], *, total: int, solo: bool, now: datetime
    ) -> ClaimReply:
        return super().claim(worker, wants, total=1000, solo=solo, now=now)


@fails(ClaimOrderConformance.test_a_claim_gives_at_most_what_each_want_has_room_for)
class IgnoresTheRoomOfAWant(ClaimRules):
    """The first queue may use up the total."""

    def take(self, visit: ClaimProgress, want: Want) -> None:
        super().take(visit, Want(want.queue, visit.room))


@fails(ClaimOrderConformance.test_a_claim_takes_from_no_other_queue)
class TakesFromAnyQueue(ClaimRules):
    """A worker gets jobs of queues it does not serve."""

    def claim(
        self, worker: str, wants: Sequence[Want], *, total: int, solo: bool, now: datetime
    ) -> ClaimReply:
        others = [Want(queue, total) for queue in sorted(self._db.ready)]
        return super().claim(worker, [*wants, *others], total=total, solo=solo, now=now)


@fails(ClaimOrderConformance.test_a_job_due_later_is_not_claimed)
class ClaimsFutureJobs(MemoryDatabase):
    """A job is claimed a second before it is due."""

    def promote(
        self,
        queue: str,
        now: datetime,
        limit: int | None = None,
        *,
        missed_until: datetime | None = None,
    ) -> int:
        return super().promote(queue, now + timedelta(seconds=1), limit, missed_until=missed_until)


@fails(ClaimOrderConformance.test_a_job_is_claimed_at_the_very_instant_it_is_due)
class ClaimsAfterTheInstant(MemoryDatabase):
    """A job is due only when its instant has passed."""

    def promote(
        self,
        queue: str,
        now: datetime,
        limit: int | None = None,
        *,
        missed_until: datetime | None = None,
    ) -> int:
        return super().promote(queue, now - INSTANT, limit, missed_until=missed_until)


@fails(ClaimOrderConformance.test_claims_get_through_any_number_of_jobs_that_fell_due)
class PromotesOneBite(MemoryDatabase):
    """A claim promotes a bite of the due jobs, and forgets the rest."""

    def promote(
        self,
        queue: str,
        now: datetime,
        limit: int | None = None,
        *,
        missed_until: datetime | None = None,
    ) -> int:
        moved = super().promote(queue, now, limit or 500, missed_until=missed_until)
        self.later[queue] = [place for place in self.later[queue] if place[0] != now]
        return moved


class _Replies(ClaimRules):
    """Says something wrong about a claim."""

    def amend(self, reply: ClaimReply) -> ClaimReply:
        raise AssertionError("say what")

    def claim(
        self, worker: str, wants: Sequence[Want], *, total: int, solo: bool, now: datetime
    ) -> ClaimReply:
        return self.amend(super().claim(worker, wants, total=total, solo=solo, now=now))


@fails(ClaimOrderConformance.test_the_reply_tells_the_stores_now)
class TellsTheWrongTime(_Replies):
    """The instant of the reply is not the store's."""

    def amend(self, reply: ClaimReply) -> ClaimReply:
        return replace(reply, at=reply.at - timedelta(hours=1))


@fails(ClaimOrderConformance.test_nothing_to_claim_is_an_empty_reply)
class AlwaysPromisesMore(_Replies):
    """Every reply says that there is something to come."""

    def amend(self, reply: ClaimReply) -> ClaimReply:
        return replace(reply, next_at=reply.next_at or reply.at)


@fails(ClaimOrderConformance.test_the_reply_tells_when_the_next_job_of_its_queues_is_due)
class TellsOfOtherQueues(ClaimRules):
    """The next instant is that of any queue."""

    def next_at(self, visit: ClaimProgress, queues: Sequence[str]) -> datetime | None:
        return super().next_at(visit, list(self._db.later))


@fails(ClaimOrderConformance.test_claimable_is_never_wrong_about_ready_jobs)
class NeverClaimable(MemoryJobs):
    """A claim is never worth it."""

    def _claimable(self, queue: str, now: datetime) -> bool:
        return False


@fails(ClaimOrderConformance.test_claimable_is_never_wrong_about_jobs_that_fell_due)
class ClaimableWhenPromoted(MemoryJobs):
    """Jobs that fell due are not seen before somebody promotes them."""

    def _claimable(self, queue: str, now: datetime) -> bool:
        return any(self._db.ready[queue].values())


# --- expiry -----------------------------------------------------------------------------------


@fails(ExpiryConformance.test_an_expired_head_of_a_closed_lane_is_worth_a_claim)
class ClosedIsClosed(MemoryJobs):
    """What stands behind the first job of a closed lane is not asked for."""

    def _claimable(self, queue: str, now: datetime) -> bool:
        heads = [self._db.head(lane) for lane in self._db.ready[queue].values()]
        usage = self._db.gates.usage(self._db.running.values())
        uses = [head.asked.limits for head in heads if head is not None]
        return any(self._db.gates.shut(use, usage, now) is None for use in uses)


@fails(ExpiryConformance.test_a_claim_names_the_jobs_it_discarded)
class DiscardsInSilence(MemoryJobs):
    """A claim does not say which jobs it discarded."""

    async def claim(
        self,
        worker: str,
        wants: Sequence[Want],
        *,
        total: int,
        solo: bool = False,
        head_start: timedelta = timedelta(0),
    ) -> ClaimReply:
        reply = await super().claim(worker, wants, total=total, solo=solo)
        return replace(reply, expired=())


@fails(ExpiryConformance.test_an_expired_job_is_discarded_and_never_claimed)
class IgnoresExpiry(MemoryDatabase):
    """Jobs never expire."""

    def add(self, asked: NewJob, now: datetime) -> JobRow:
        return super().add(replace(asked, expires=None), now)


@fails(ExpiryConformance.test_a_job_is_claimed_before_its_expiry)
class ExpiresEarly(MemoryDatabase):
    """A job expires a second too soon."""

    def add(self, asked: NewJob, now: datetime) -> JobRow:
        expires = asked.expires and asked.expires - timedelta(seconds=1)
        return super().add(replace(asked, expires=expires), now)


@fails(ExpiryConformance.test_a_job_expires_at_the_very_instant)
class ExpiresAfterTheInstant(MemoryDatabase):
    """A job expires only when its instant has passed."""

    def add(self, asked: NewJob, now: datetime) -> JobRow:
        expires = asked.expires and asked.expires + INSTANT
        return super().add(replace(asked, expires=expires), now)


@fails(ExpiryConformance.test_a_running_job_does_not_expire)
class ExpiresRunningJobs(MemoryMaintenance):
    """A job that runs past its expiry is discarded."""

    async def expire(self, limit: int) -> Sequence[JobId]:
        now = self._db.clock.now()
        late = [row for row in self._db.running.values() if row.is_expired(now)]
        for row in late:
            self._db.expire(row, now)
        return [*(row.asked.id for row in late), *await super().expire(limit)]


@fails(ExpiryConformance.test_one_claim_discards_a_bounded_number_of_expired_jobs)
class DiscardsWithoutBound(ClaimRules):
    """One claim discards every expired job it meets."""

    expired_at_once = 1_000_000


@fails(ExpiryConformance.test_a_claim_that_stopped_at_a_bound_tells_to_ask_again_at_once)
class StopsWithoutAWord(ClaimRules):
    """A claim that stopped at a bound does not say so."""

    def next_at(self, visit: ClaimProgress, queues: Sequence[str]) -> datetime | None:
        visit.opens_at.clear()
        return super().next_at(visit, queues)


@fails(ExpiryConformance.test_claims_get_past_any_number_of_expired_jobs)
class StopsAtAnExpiredJob(ClaimRules):
    """A claim that meets an expired job leaves it there and gives nothing."""

    expired_at_once = 0
