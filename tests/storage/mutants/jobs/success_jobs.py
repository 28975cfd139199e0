"""Stores that go wrong with what follows a success, or with its unique key."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.job.job import NewJob
from windlass._core.job.state import Verb
from windlass._core.job.transition import Transition
from windlass._storage.memory.flows.rows import MemoryPart
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.memory.jobs.apply import ApplyRules
from windlass._storage.memory.jobs.insert import insert
from windlass._storage.protocol.jobs import TransitionAnswer, Verdict
from windlass.testing.conformance import SuccessJobConformance


@fails(SuccessJobConformance.test_a_success_is_followed_in_the_same_step)
class FollowsAtOnce(ApplyRules):
    """What follows a success is due at once."""

    def follow(self, job: NewJob, part: MemoryPart | None = None) -> None:
        super().follow(replace(job, delay=None), part)


@fails(SuccessJobConformance.test_a_success_wins_over_a_cancel_request_and_is_followed)
class FollowsNothingThatWasToBeCancelled(ApplyRules):
    """A job that was to be cancelled is followed by nothing, also if it succeeded."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        if row.cancel_requested:
            transition = replace(transition, then=())
        super().accept(row, transition, verb, now)


@fails(SuccessJobConformance.test_a_transition_replaced_by_a_cancel_inserts_no_follow_up)
class FollowsWhatWasCancelled(ApplyRules):
    """What gives way to a cancel request is followed all the same."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().accept(row, transition, verb, now)
        if verb is not transition.verb:
            for job in transition.then:
                self.follow(job)


@fails(SuccessJobConformance.test_many_successes_alike_are_each_followed)
class TakesSuccessesForAlike(ApplyRules):
    """Successes that are otherwise alike are followed by what the last one says."""

    def end_all(self, transitions: Sequence[Transition], now: datetime) -> list[TransitionAnswer]:
        last = transitions[-1].then
        alike = [replace(one, then=last) for one in transitions]
        return super().end_all(alike, now)


@fails(SuccessJobConformance.test_a_repeated_success_is_followed_once)
class FollowsRepeats(ApplyRules):
    """A repeated success is followed again."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        answer = super().end(transition, now)
        if answer.verdict is Verdict.REPEATED:
            for job in transition.then:
                self.follow(job)
        return answer


@fails(
    SuccessJobConformance.test_it_takes_the_key_that_the_success_gave_back,
    SuccessJobConformance.test_it_takes_the_key_and_the_unit_of_a_success_that_is_not_kept,
)
class FollowsBeforeTheEnd(ApplyRules):
    """What follows is inserted before the key is given back."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        if verb is transition.verb:
            for job in transition.then:
                insert(self._db, job, now)
        super().accept(row, replace(transition, then=()), verb, now)


@fails(SuccessJobConformance.test_it_takes_a_key_that_another_end_of_the_call_gave_back)
class FollowsOneByOne(ApplyRules):
    """What follows does not wait for the other ends of the call."""

    def end_all(self, transitions: Sequence[Transition], now: datetime) -> list[TransitionAnswer]:
        answers: list[TransitionAnswer] = []
        for transition in transitions:
            answers += super().end_all([transition], now)
        return answers


@fails(
    SuccessJobConformance.test_it_is_left_out_while_its_key_is_held,
    SuccessJobConformance.test_a_run_that_continues_keeps_its_key_from_its_follow_up,
)
class StealsTheKey(ApplyRules):
    """What follows takes its key from whoever holds it."""

    def follow(self, job: NewJob, part: MemoryPart | None = None) -> None:
        if job.unique is not None:
            self._db.keys.pop(job.unique.key, None)
        super().follow(job, part)


@fails(SuccessJobConformance.test_a_held_key_stops_no_end_with_any_on_conflict)
class FollowsAsItIsToldTo(ApplyRules):
    """What follows replaces the holder of its key if it says so."""

    def follow(self, job: NewJob, part: MemoryPart | None = None) -> None:
        self._following.append((job, part))
