"""Stores that let queues rest too long, too short, or for the wrong reasons."""

from __future__ import annotations

from datetime import datetime, timedelta

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.job.state import Verb
from windlass._core.job.transition import Transition
from windlass._core.limits.cooldown import RESET_AFTER
from windlass._storage.memory.admin.admin import MemoryAdmin
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.memory.jobs.apply import ApplyRules
from windlass._storage.memory.jobs.claim import ClaimProgress, ClaimRules
from windlass._storage.memory.jobs.jobs import MemoryJobs
from windlass._storage.memory.limits.budgets import MemoryBudgets
from windlass._storage.memory.maintenance import MemoryMaintenance
from windlass._storage.memory.queues import start_cooldown
from windlass._storage.protocol.actions import AuditNote
from windlass._storage.protocol.jobs import TransitionAnswer, Verdict, Want
from windlass.testing.conformance import (
    CoolDownConformance,
    ThrottleConformance,
)

INSTANT = timedelta(microseconds=1)


@fails(
    ThrottleConformance.test_a_throttled_job_is_due_after_its_delay_and_has_spent_no_attempt,
    ThrottleConformance.test_the_last_attempt_can_be_throttled_any_number_of_times,
)
class ThrottlesSpendAttempts(ApplyRules):
    """Being turned away costs an attempt."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().accept(row, replace(transition, refund=False), verb, now)


@fails(
    ThrottleConformance.test_every_throttle_is_counted_on_its_job_and_nothing_else_is,
    CoolDownConformance.test_a_repeated_throttle_counts_once,
)
class NeverCountsThrottles(ApplyRules):
    """Nobody can see how often a job was turned away."""

    def tell_gates(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().tell_gates(row, transition, verb, now)
        row.throttled = 0


@fails(ThrottleConformance.test_a_throttle_leaves_the_last_error_as_it_was)
class ThrottlesClearTheError(ApplyRules):
    """Being turned away looks like a success to whoever asks for the last error."""

    def remember(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().remember(row, transition, verb, now)
        row.error = None if verb is Verb.THROTTLE else row.error


@fails(ThrottleConformance.test_a_throttle_that_asks_for_no_rest_cools_nothing)
class EveryThrottleCools(ApplyRules):
    """The queue rests whether that was asked for or not."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        return super().end(replace(transition, cools=transition.cools or (RESET_AFTER,)), now)


@fails(CoolDownConformance.test_a_clock_that_is_set_back_prolongs_no_rest)
class RestsUntilTheClockIsThere(ClaimRules):
    """A rest ends when the clock is where it was."""

    def mend(self, now: datetime) -> None:
        self._db.gates.mend(now)


@fails(CoolDownConformance.test_a_throttle_after_the_clock_was_set_back_cools_for_its_full_length)
class RestsByTheOldClock(MemoryBudgets):
    """What is throttled after the clock was set back is told of the old one."""

    def set_back_by(self, now: datetime) -> timedelta:
        return timedelta(0)


# --- what a rest holds back -------------------------------------------------------------------


@fails(CoolDownConformance.test_no_worker_gets_jobs_of_a_queue_before_its_cool_down_ends)
class RestsAnInstantLonger(ClaimRules):
    """The end of a rest still belongs to it."""

    def room(self, queue: str, now: datetime) -> int:
        return super().room(queue, now - INSTANT)


@fails(CoolDownConformance.test_the_reply_tells_when_the_rest_is_over)
class DoesNotTellWhenItEnds(ClaimRules):
    """Whoever meets a queue that rests has to ask again and again."""

    def opens(self, queue: str, now: datetime) -> datetime | None:
        return self._db.next_due(queue)


@fails(CoolDownConformance.test_other_queues_continue)
class RestsEverywhere(ClaimRules):
    """When one queue rests, all do."""

    def room(self, queue: str, now: datetime) -> int:
        queues = [queue, *self._db.queues]
        return min([super(RestsEverywhere, self).room(one, now) for one in queues])


@fails(CoolDownConformance.test_a_cooling_queue_is_not_claimable_and_still_active)
class RestingIsClaimable(MemoryJobs):
    """A queue that rests is asked like any other."""

    def _claimable(self, queue: str, now: datetime) -> bool:
        return self._has_due(queue, now)


@fails(CoolDownConformance.test_a_solo_job_cools_down_too_and_is_not_announced)
class LonelyJobsDoNotRest(ClaimRules):
    """Jobs that run alone start while their queue rests."""

    def take(self, visit: ClaimProgress, want: Want) -> None:
        row = self._db.queues[want.queue]
        until = row.cool_until
        row.cool_until = None if visit.solo else until
        super().take(visit, want)
        row.cool_until = until


# --- how long, and how often ------------------------------------------------------------------


@fails(CoolDownConformance.test_job_queue_and_answer_tell_one_instant)
class AnswersNothingOfTheRest(ApplyRules):
    """Whoever sent a queue to rest does not hear of it."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        answer = super().end(transition, now)
        return TransitionAnswer(answer.verdict, answer.verb)


@fails(CoolDownConformance.test_a_hint_longer_than_the_curve_holds_for_the_whole_queue)
class IgnoresHints(ApplyRules):
    """The curve decides, whatever the other side said."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        hint = timedelta(0) if transition.cools else transition.delay
        return super().end(replace(transition, delay=hint), now)


@fails(CoolDownConformance.test_a_hint_shorter_than_the_curve_gives_way_to_it)
class HintsDecide(ApplyRules):
    """What the other side said decides, whatever the curve."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        if transition.cools and transition.delay:
            transition = replace(transition, cools=(transition.delay,))
        return super().end(transition, now)


@fails(CoolDownConformance.test_a_hit_at_the_very_end_of_a_rest_is_a_new_one)
class RestsNeverGrow(ApplyRules):
    """Every rest is the first one."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        return super().end(replace(transition, cools=transition.cools[:1]), now)


@fails(CoolDownConformance.test_no_more_than_thirty_hits_in_a_row_are_counted)
class CountsForEver(ApplyRules):
    """The number of rests in a row has no end."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        counts = {queue: row.cool_downs for queue, row in self._db.queues.items()}
        answer = super().end(transition, now)
        for queue, row in self._db.queues.items():
            if answer.cooled and row.cool_downs == counts.get(queue):
                row.cool_downs += 1
        return answer


@fails(
    CoolDownConformance.test_those_who_hit_one_limiter_together_are_one_hit,
    CoolDownConformance.test_of_many_concurrent_hits_one_counts,
)
class EveryHitCounts(ApplyRules):
    """Ten workers that meet one limiter are ten hits."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        if transition.cools:
            for row in self._db.queues.values():
                row.cool_until = row.cool_until and min(row.cool_until, now)
        return super().end(transition, now)


@fails(CoolDownConformance.test_a_hit_during_a_cool_down_delays_only_its_own_job)
class LateHitsProlong(ApplyRules):
    """A hit while the queue rests makes the rest longer."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().accept(row, transition, verb, now)
        queue = self._db.queues[row.asked.queue]
        if transition.cools and queue.cool_until is not None:
            queue.cool_until = max(queue.cool_until, row.due)


@fails(CoolDownConformance.test_cool_downs_grow_with_the_hits_in_a_row_up_to_the_last_of_the_curve)
class TheEndIsStillARest(ApplyRules):
    """A hit at the very end of a rest is taken for one within it."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        for row in self._db.queues.values():
            if transition.cools and row.cool_until == now:
                row.cool_until = now + INSTANT
        return super().end(transition, now)


@fails(CoolDownConformance.test_every_queue_cools_down_separately)
class QueuesCountTogether(ApplyRules):
    """A hit in one queue makes the rests of all others longer."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        answer = super().end(transition, now)
        most = max((row.cool_downs for row in self._db.queues.values()), default=0)
        for queue in ("a", "b"):
            self._db.queues[queue].cool_downs = most
        return answer


@fails(CoolDownConformance.test_a_refused_throttle_changes_neither_row_nor_queue)
class RefusedThrottlesCool(ApplyRules):
    """A finish that is refused sends the queue to rest all the same."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        answer = super().end(transition, now)
        row = self._db.rows.get(transition.claim.seq)
        if row is not None and transition.cools and answer.verdict is not Verdict.APPLIED:
            start_cooldown(self._db, row.asked.queue, transition.cools, transition.delay, now)
        return answer


@fails(CoolDownConformance.test_a_throttle_that_gives_way_to_a_cancel_request_cools_nothing)
class CancelledThrottlesCool(ApplyRules):
    """A throttle that gives way to a cancel sends the queue to rest all the same."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().accept(row, transition, verb, now)
        if verb is not transition.verb and transition.cools:
            start_cooldown(self._db, row.asked.queue, transition.cools, transition.delay, now)


@fails(CoolDownConformance.test_neither_resuming_nor_run_now_ends_a_cool_down)
class ResumingWarms(MemoryAdmin):
    """A queue that is resumed is awake, too."""

    async def resume(self, queue: str, *, audit: AuditNote | None = None) -> None:
        await super().resume(queue)
        self._db.queues[queue].cool_until = None


@fails(CoolDownConformance.test_a_rest_beyond_the_calendar_ends_within_it)
class RestsAHundredYears(ApplyRules):
    """No rest is longer than a life."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        most = timedelta(days=36_525)
        cools = tuple(min(wait, most) for wait in transition.cools)
        return super().end(replace(transition, cools=cools), now)


@fails(CoolDownConformance.test_tidying_forgets_no_rest)
class TidyingWarms(MemoryMaintenance):
    """Tidying takes rests along."""

    async def tidy(self) -> None:
        await super().tidy()
        self._db.queues.clear()
