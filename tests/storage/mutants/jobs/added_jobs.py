"""Stores that go wrong with the many jobs of one success."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.job.job import JobId
from windlass._core.job.state import Verb
from windlass._core.job.transition import Transition
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.memory.jobs.apply import ApplyRules
from windlass._storage.memory.jobs.insert import insert
from windlass._storage.memory.jobs.jobs import MemoryJobs
from windlass._storage.protocol.jobs import Applied, TransitionAnswer, Verdict
from windlass.testing.conformance import AddedJobConformance


@fails(
    AddedJobConformance.test_every_job_of_a_success_is_stored_in_order,
    AddedJobConformance.test_a_success_may_bring_thousands_of_jobs,
)
class AddsBackwards(ApplyRules):
    """The last job of a success is stored first."""

    def end_all(self, transitions: Sequence[Transition], now: datetime) -> list[TransitionAnswer]:
        return super().end_all([replace(one, then=one.then[::-1]) for one in transitions], now)


@fails(AddedJobConformance.test_each_success_of_a_batch_brings_its_own_jobs)
class AddsOne(ApplyRules):
    """Of each success in a batch only the first job is stored."""

    def end_all(self, transitions: Sequence[Transition], now: datetime) -> list[TransitionAnswer]:
        return super().end_all([replace(one, then=one.then[:1]) for one in transitions], now)


@fails(AddedJobConformance.test_a_refused_success_stores_none_of_its_jobs)
class AddsBeforeTheFence(ApplyRules):
    """The jobs of a success are stored whether its claim holds or not."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        answer = super().end(transition, now)
        if answer.verdict is Verdict.REFUSED:
            for job in transition.then:
                self.follow(job)
        return answer


@fails(AddedJobConformance.test_a_repeated_success_stores_each_of_its_jobs_once)
class AddsAgain(ApplyRules):
    """A repeated success stores its jobs anew."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        answer = super().end(transition, now)
        if answer.verdict is Verdict.REPEATED:
            for job in transition.then:
                self._db.remove(self._db.by_id[job.id])
                self.follow(job)
        return answer


@fails(AddedJobConformance.test_an_undefined_limit_of_one_job_stops_the_success_and_all_its_jobs)
class LooksAtTheFirstLimitOnly(ApplyRules):
    """Only the first job of a success is looked at before the success is stored."""

    def end_all(self, transitions: Sequence[Transition], now: datetime) -> list[TransitionAnswer]:
        first = [replace(one, then=one.then[:1]) for one in transitions]
        answers = super().end_all(first, now)
        for transition in transitions:
            for job in transition.then[1:]:
                self._db.gates.require([job])
                insert(self._db, job, now)
        return answers


@fails(AddedJobConformance.test_a_held_key_leaves_out_that_job_alone)
class OneKeyStopsAll(ApplyRules):
    """If the key of one job is held, the success brings none."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        keys = [job.unique.key for job in transition.then if job.unique is not None]
        if any(self._db.holder(key, now) is not None for key in keys):
            transition = replace(transition, then=())
        super().accept(row, transition, verb, now)


@fails(AddedJobConformance.test_limits_and_delays_hold_for_each_of_them)
class OnlyTheFirstWaits(ApplyRules):
    """Limits and delays hold for the first job of a success alone."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        first, rest = transition.then[:1], transition.then[1:]
        free = tuple(replace(job, limits=(), delay=None) for job in rest)
        super().accept(row, replace(transition, then=(*first, *free)), verb, now)


@fails(AddedJobConformance.test_a_success_that_is_not_kept_brings_all_its_jobs)
class ForgetsTheJobsOfForgottenOnes(ApplyRules):
    """A success that is not kept brings one job."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        if not transition.keep:
            transition = replace(transition, then=transition.then[:1])
        super().accept(row, transition, verb, now)


@fails(AddedJobConformance.test_workers_of_every_queue_are_woken)
class WakesForTheFirstJob(MemoryJobs):
    """Only the workers of the first job's queue hear of the jobs of a success."""

    async def apply(self, transitions: Sequence[Transition]) -> Applied:
        now = self._db.clock.now()
        answers = self._endings.end_all(transitions, now)
        self._db.wake({one.then[0].queue for one in transitions if one.then})
        return Applied(now, answers)


@fails(AddedJobConformance.test_the_answer_names_the_jobs_that_were_not_stored)
class NamesHeldJobsAlone(ApplyRules):
    """The answer does not name a job whose id was stored before."""

    def take_left_out(self) -> list[JobId]:
        return [job for job in super().take_left_out() if job not in self._db.by_id]
