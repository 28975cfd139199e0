"""Stores that cancel too much, too little, or at the wrong time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta

from tests.storage.mutants.table import fails
from windlass._core.flows.part import MemberEnd
from windlass._core.job.job import Claim, JobId
from windlass._core.job.state import State, Verb
from windlass._core.job.transition import Transition
from windlass._core.stats.gauges import Readings
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.memory.jobs.apply import ApplyRules
from windlass._storage.memory.jobs.jobs import MemoryJobs
from windlass._storage.memory.workers import MemoryWorkers
from windlass._storage.protocol.jobs import CancelAnswer, TransitionAnswer, Verdict
from windlass._storage.protocol.workers import HeartbeatAnswer
from windlass.testing.conformance import (
    CancelConformance,
    ClaimOrderConformance,
    WorkerLeaveConformance,
)


@fails(
    CancelConformance.test_a_waiting_job_is_cancelled_at_once_and_never_runs,
    CancelConformance.test_a_retrying_job_is_cancelled_at_once,
    CancelConformance.test_a_scheduled_job_is_cancelled_at_once,
    ClaimOrderConformance.test_the_reply_forgets_a_due_time_that_was_cancelled,
)
class CancelledJobsStayInLine(MemoryDatabase):
    """A cancelled job keeps its place, and is claimed in its turn."""

    def finish(
        self, row: JobRow, state: State, now: datetime, ended: MemberEnd | None = None
    ) -> None:
        place = row.place
        super().finish(row, state, now, ended)
        row.place = place


@fails(CancelConformance.test_a_running_job_is_asked_and_keeps_running)
class CancelsRunningJobsAtOnce(MemoryJobs):
    """A running job is cancelled though its worker runs it."""

    def _cancel(self, job: JobId, now: datetime) -> CancelAnswer:
        row = self._db.by_id.get(job)
        if row is not None and row.state is State.RUNNING:
            self._db.running.pop(row.seq)
            row.state = State.WAITING
        return super()._cancel(job, now)


@fails(CancelConformance.test_the_worker_gets_the_request_with_its_next_heartbeat)
class TellsNobody(MemoryWorkers):
    """A beat does not tell of cancel requests."""

    async def beat(
        self, worker: str, *, memory: int | None = None, readings: Readings | None = None
    ) -> HeartbeatAnswer:
        beat = await super().beat(worker, memory=memory, readings=readings)
        return HeartbeatAnswer(beat.live, beat.at, (), beat.holding)


@fails(CancelConformance.test_the_worker_may_read_cancel_requests_between_heartbeats)
class TellsOfForeignRequests(MemoryWorkers):
    """A worker is told to cancel what others run."""

    async def cancel_requests(self, worker: str) -> Sequence[Claim]:
        return [row.claim for row in self._db.running.values() if row.cancel_requested]


@fails(CancelConformance.test_asking_what_is_to_be_cancelled_is_no_sign_of_life)
class AskingRenewsTheLease(MemoryWorkers):
    """A worker that asks for requests counts as alive."""

    async def cancel_requests(self, worker: str) -> Sequence[Claim]:
        return (await self.beat(worker)).cancelled


@fails(CancelConformance.test_a_job_that_has_ended_is_too_late_to_cancel)
class CancelsWhatHasEnded(MemoryJobs):
    """A job that succeeded can still be cancelled."""

    def _cancel(self, job: JobId, now: datetime) -> CancelAnswer:
        row = self._db.by_id.get(job)
        if row is not None and row.is_terminal():
            self._db.finish(row, State.CANCELLED, now)
        return super()._cancel(job, now)


@fails(CancelConformance.test_a_job_that_is_not_stored_is_unknown)
class StrangersAreTooLate(MemoryJobs):
    """An id that is not stored is answered like a job that has ended."""

    def _cancel(self, job: JobId, now: datetime) -> CancelAnswer:
        return super()._cancel(job, now) if job in self._db.by_id else CancelAnswer.TOO_LATE


@fails(CancelConformance.test_answers_come_in_the_order_of_the_ids)
class CancelAnswersInTheirOwnOrder(MemoryJobs):
    """The answers are sorted."""

    async def cancel(self, ids: Sequence[JobId]) -> Sequence[CancelAnswer]:
        return sorted(await super().cancel(ids))


@fails(CancelConformance.test_repeating_a_cancel_changes_nothing)
class RepeatsTakeTheRequestBack(MemoryJobs):
    """A repeated cancel of a running job takes the request back."""

    def _cancel(self, job: JobId, now: datetime) -> CancelAnswer:
        row = self._db.by_id.get(job)
        requested = row is not None and row.cancel_requested
        answer = super()._cancel(job, now)
        if row is not None and requested:
            row.cancel_requested = False
        return answer


@fails(CancelConformance.test_success_wins_over_a_request)
class RequestsWinOverSuccess(ApplyRules):
    """A success gives way to a cancel request."""

    def verb(self, row: JobRow, transition: Transition) -> Verb:
        return Verb.CANCEL if row.cancel_requested else transition.verb


@fails(
    CancelConformance.test_every_other_outcome_gives_way_to_a_request,
    CancelConformance.test_a_repeated_finish_is_answered_with_the_cancel_that_won,
    WorkerLeaveConformance.test_a_forgotten_claim_with_a_cancel_request_is_cancelled,
)
class IgnoresRequests(ApplyRules):
    """A cancel request changes nothing about how a claim ends."""

    def verb(self, row: JobRow, transition: Transition) -> Verb:
        return transition.verb


@fails(
    CancelConformance.test_a_request_that_comes_after_the_finish_is_too_late,
    CancelConformance.test_a_success_after_a_request_is_repeated_as_success,
)
class RepeatsHearOfTheCancel(ApplyRules):
    """A repeated finish is answered with a cancel that came after it."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        answer = super().end(transition, now)
        row = self._db.by_id.get(transition.claim.job)
        if answer.verdict is Verdict.REPEATED and row is not None and row.is_terminal():
            return TransitionAnswer(Verdict.REPEATED, Verb.CANCEL)
        return answer


@fails(CancelConformance.test_of_a_cancel_and_a_claim_exactly_one_comes_first)
class LooksThenCancels(MemoryJobs):
    """A job may be claimed between the look at its state and its cancellation."""

    async def cancel(self, ids: Sequence[JobId]) -> Sequence[CancelAnswer]:
        waiting = [job for job in ids if self._db.by_id[job].state is State.WAITING]
        await asyncio.sleep(0)
        for job in waiting:
            self._db.finish(self._db.by_id[job], State.CANCELLED, self._db.clock.now())
        others = await super().cancel([job for job in ids if job not in waiting])
        return [CancelAnswer.CANCELLED] * len(waiting) + list(others)


@fails(CancelConformance.test_cancelling_costs_no_other_job_its_run)
class CancelsTheNeighbour(MemoryJobs):
    """The job after a cancelled one is cancelled with it."""

    def _cancel(self, job: JobId, now: datetime) -> CancelAnswer:
        answer = super()._cancel(job, now)
        neighbour = self._db.rows.get(self._db.by_id[job].seq + 1)
        if neighbour is not None:
            self._db.finish(neighbour, State.CANCELLED, now + timedelta(0))
        return answer
