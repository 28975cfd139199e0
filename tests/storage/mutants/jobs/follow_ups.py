"""Stores that forget what is to follow, or bring it too often."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.job.job import ClaimedJob, FollowUp, NewJob
from windlass._core.job.state import Verb
from windlass._core.job.transition import Transition
from windlass._storage.memory.admin.actions import MemoryActions
from windlass._storage.memory.flows.rows import MemoryPart
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.memory.jobs.apply import ApplyRules
from windlass._storage.memory.jobs.insert import insert
from windlass._storage.memory.jobs.jobs import MemoryJobs
from windlass._storage.memory.workers import MemoryWorkers
from windlass._storage.protocol.actions import ActionResult
from windlass._storage.protocol.jobs import Applied, Inserted, TransitionAnswer, Verdict
from windlass._system.seams import new_job_id
from windlass.testing.conformance import FollowUpConformance, OnFailureConformance


@fails(FollowUpConformance.test_the_job_is_stored_and_ready_when_the_failure_is)
class NeverFollows(ApplyRules):
    """Nothing follows."""

    def follow(self, job: NewJob, part: MemoryPart | None = None) -> None:
        pass


@fails(FollowUpConformance.test_it_is_stored_as_any_other_job)
class FollowsPlainly(ApplyRules):
    """What follows has its task and its arguments, and nothing else."""

    def follow(self, job: NewJob, part: MemoryPart | None = None) -> None:
        plain = NewJob(id=job.id, task=job.task, queue=job.queue, payload=job.payload)
        super().follow(plain, part)


@fails(FollowUpConformance.test_a_failure_that_gives_way_to_a_cancel_request_is_followed_by_nothing)
class FollowsCancelledJobs(ApplyRules):
    """A failure that gives way to a cancel request is followed."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().accept(row, transition, verb, now)
        for job in transition.then:
            self.follow(job)


@fails(
    FollowUpConformance.test_a_refused_failure_is_followed_by_nothing,
    FollowUpConformance.test_a_failure_of_a_job_that_is_gone_is_followed_by_nothing,
    FollowUpConformance.test_a_repeated_failure_is_followed_once,
)
class FollowsRefusals(ApplyRules):
    """A failure that comes too late, or again, is followed."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        answer = super().end(transition, now)
        if answer.verdict is not Verdict.APPLIED:
            for job in transition.then:
                self.follow(job)
        return answer


@fails(FollowUpConformance.test_a_follow_up_that_is_stored_already_is_not_stored_again)
class FollowsAgain(ApplyRules):
    """What is stored already is stored anew."""

    def follow(self, job: NewJob, part: MemoryPart | None = None) -> None:
        if (row := self._db.by_id.get(job.id)) is not None:
            self._db.remove(row)
        super().follow(job, part)


class _Choosing(ApplyRules):
    """Another idea of what is followed."""

    def chooses(self, row: JobRow, transition: Transition) -> bool:
        raise AssertionError("say what")

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        then = transition.then if self.chooses(row, transition) else ()
        super().accept(row, replace(transition, then=then), verb, now)


@fails(FollowUpConformance.test_such_a_limit_is_an_error_also_where_nothing_would_follow)
class LooksAtLimitsLast(ApplyRules):
    """The limits of what follows are looked at when it is inserted."""

    def end_all(self, transitions: Sequence[Transition], now: datetime) -> list[TransitionAnswer]:
        thens = {transition.claim: transition.then for transition in transitions}
        answers = super().end_all([replace(t, then=()) for t in transitions], now)
        for transition, answer in zip(transitions, answers, strict=True):
            for job in thens[transition.claim] if answer.verb is transition.verb else ():
                self._db.gates.require([job])
                insert(self._db, job, now)
        return answers


@fails(FollowUpConformance.test_every_verb_that_takes_effect_is_followed)
class FollowsFailuresOnly(_Choosing):
    """Nothing but a failure is followed."""

    def chooses(self, row: JobRow, transition: Transition) -> bool:
        return transition.verb is Verb.FAIL


@fails(FollowUpConformance.test_a_failure_that_is_not_kept_is_followed_too)
class FollowsKeptFailures(_Choosing):
    """A failure that is not kept is followed by nothing."""

    def chooses(self, row: JobRow, transition: Transition) -> bool:
        return transition.keep


@fails(FollowUpConformance.test_the_reaper_brings_it_too)
class ReapersFollowNothing(_Choosing):
    """Only the worker itself brings what follows."""

    def chooses(self, row: JobRow, transition: Transition) -> bool:
        return transition.by == row.worker


@fails(FollowUpConformance.test_each_failure_of_a_batch_is_followed_by_its_own)
class FollowsOnce(ApplyRules):
    """Of a batch only the first failure is followed."""

    def end_all(self, transitions: Sequence[Transition], now: datetime) -> list[TransitionAnswer]:
        rest = [replace(transition, then=()) for transition in transitions[1:]]
        return super().end_all([*transitions[:1], *rest], now)


@fails(FollowUpConformance.test_its_limits_hold_for_it)
class FollowUpsAreFree(ApplyRules):
    """No limit holds for what follows."""

    def follow(self, job: NewJob, part: MemoryPart | None = None) -> None:
        super().follow(replace(job, limits=()), part)


@fails(FollowUpConformance.test_it_may_take_a_key_that_any_of_the_call_gives_up)
class FollowsInBetween(ApplyRules):
    """What follows a job comes before the end of the next one."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        answer = super().end(transition, now)
        following, self._following = self._following, []
        for job, _ in following:
            insert(self._db, job, now)
        return answer


@fails(FollowUpConformance.test_it_may_take_the_key_of_the_job_it_follows)
class FollowsTooSoon(ApplyRules):
    """What follows a job comes before its end."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        if self._db.held(transition.claim) is not None:
            for job in transition.then:
                insert(self._db, job, now)
        return super().end(replace(transition, then=()), now)


@fails(FollowUpConformance.test_while_its_key_is_held_it_is_left_out_with_any_on_conflict)
class FollowUpsReplace(ApplyRules):
    """What follows may replace who holds its key."""

    def follow(self, job: NewJob, part: MemoryPart | None = None) -> None:
        self._following.append((job, part))


@fails(FollowUpConformance.test_of_two_with_one_key_the_first_of_the_call_is_stored)
class FollowUpsHoldNoKey(ApplyRules):
    """What follows is stored without its key."""

    def follow(self, job: NewJob, part: MemoryPart | None = None) -> None:
        super().follow(replace(job, unique=None), part)


@fails(FollowUpConformance.test_it_may_take_the_unit_that_the_failed_job_gave_back)
class FailedJobsCount(ApplyRules):
    """A failed job goes on counting against its limits."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().accept(row, transition, verb, now)
        if verb is Verb.FAIL:
            ghost = JobRow.of(row.asked, seq=-row.seq, now=now)
            self._db.running[ghost.seq] = ghost


@fails(FollowUpConformance.test_an_undefined_limit_is_an_error_and_changes_nothing)
class ChecksLimitsTooLate(ApplyRules):
    """That a limit is unknown comes out when half is done."""

    def end_all(self, transitions: Sequence[Transition], now: datetime) -> list[TransitionAnswer]:
        return [
            answer
            for one in transitions
            for answer in super(ChecksLimitsTooLate, self).end_all([one], now)
        ]


@fails(FollowUpConformance.test_it_wakes_who_waits_for_work)
class FollowsSilently(MemoryJobs):
    """Nobody is told of what follows."""

    async def apply(self, transitions: Sequence[Transition]) -> Applied:
        now = self._db.clock.now()
        return Applied(now, self._endings.end_all(transitions, now))


# --- what is kept with the job ----------------------------------------------------------------


class _Storing(MemoryJobs):
    """Another follow-up than the one that was asked for."""

    def instead(self, job: NewJob) -> FollowUp | None:
        raise AssertionError("say which")

    def _insert(self, job: NewJob, now: datetime) -> Inserted:
        return super()._insert(replace(job, on_failure=self.instead(job)), now)


@fails(OnFailureConformance.test_it_comes_back_by_claim_and_by_every_look)
class LosesFollowUps(_Storing):
    """What is to follow is not kept."""

    def instead(self, job: NewJob) -> FollowUp | None:
        return job.on_failure and FollowUp(task=job.on_failure.task)


@fails(OnFailureConformance.test_omitted_fields_of_a_follow_up_come_back_as_defaults)
class FollowsInItsQueue(_Storing):
    """What is to follow waits in the queue of the failed job."""

    def instead(self, job: NewJob) -> FollowUp | None:
        return job.on_failure and replace(job.on_failure, queue="its own")


@fails(OnFailureConformance.test_most_jobs_have_none)
class EverybodyIsFollowed(_Storing):
    """Jobs that nothing is to follow have something."""

    def instead(self, job: NewJob) -> FollowUp | None:
        return job.on_failure or FollowUp(task=job.task)


@fails(OnFailureConformance.test_the_reaper_gets_the_follow_up_with_the_orphan)
class OrphansHaveNone(MemoryWorkers):
    """Whoever buries a worker does not hear what is to follow."""

    async def orphans(self, limit: int) -> Sequence[ClaimedJob]:
        return [replace(job, on_failure=None) for job in await super().orphans(limit)]


@fails(OnFailureConformance.test_it_survives_retries_and_losses)
class RetriesHaveNone(ApplyRules):
    """What is to follow is forgotten with the first attempt."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().accept(row, transition, verb, now)
        if verb is Verb.RETRY:
            row.asked = replace(row.asked, on_failure=None)


@fails(OnFailureConformance.test_it_survives_the_end_and_a_requeue)
class RequeuedHaveNone(MemoryActions):
    """What is to follow is forgotten by a requeue."""

    def requeue_one(self, row: JobRow, now: datetime) -> ActionResult:
        row.asked = replace(row.asked, on_failure=None)
        return super().requeue_one(row, now)


@fails(OnFailureConformance.test_storing_it_inserts_nothing)
class FollowsByItself(ApplyRules):
    """The store brings what is to follow, too."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().accept(row, transition, verb, now)
        follow_up = row.asked.on_failure
        if verb is Verb.FAIL and follow_up is not None:
            self.follow(NewJob(id=new_job_id(), task=follow_up.task))


@fails(OnFailureConformance.test_its_limits_need_not_be_defined_when_it_is_stored)
class RequiresItsLimits(MemoryJobs):
    """A limit that only the follow-up needs must be defined already."""

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        later = [job.on_failure for job in jobs if job.on_failure is not None]
        self._db.gates.require([replace(jobs[0], limits=one.limits) for one in later])
        return await super().insert(jobs)
