"""Stores whose limits leak, block others, or hold nobody back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.job.job import JobId, LimitUse, NewJob
from windlass._core.job.state import State, Verb
from windlass._core.job.transition import Transition
from windlass._core.limits.limit import LimitSpec
from windlass._storage.memory.admin.actions import MemoryActions
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.memory.jobs.apply import ApplyRules
from windlass._storage.memory.jobs.claim import ClaimProgress, ClaimRules, LaneHeads
from windlass._storage.memory.jobs.jobs import MemoryJobs
from windlass._storage.memory.limits.budgets import MemoryBudgets, StartBlocked, Usage
from windlass._storage.memory.maintenance import MemoryLimits
from windlass._storage.protocol.actions import ActionResult, AuditNote
from windlass._storage.protocol.jobs import CancelAnswer, Inserted, Want
from windlass._storage.protocol.limits import LimitState
from windlass.testing.conformance import (
    BreakerTrialConformance,
    ConcurrencyConformance,
    LaneConformance,
    MaintenanceConformance,
    RateConformance,
)


@fails(
    ConcurrencyConformance.test_no_more_than_the_limit_run_at_once,
    ConcurrencyConformance.test_a_limit_holds_across_queues_and_workers,
    LaneConformance.test_limits_in_another_order_are_the_same_limits,
    LaneConformance.test_a_requeued_job_counts_again,
)
class CountsNobody(MemoryBudgets):
    """Nobody counts against a limit."""

    def usage(self, running: Iterable[JobRow]) -> Usage:
        return super().usage(())

    def charge(self, uses: Sequence[LimitUse], usage: Usage, now: datetime) -> None:
        super().charge(uses, Usage(), now)


@fails(
    ConcurrencyConformance.test_every_ending_gives_the_unit_back,
    ConcurrencyConformance.test_no_mix_of_operations_exceeds_a_limit_or_leaks_a_unit,
)
class LeaksConcurrency(ApplyRules):
    """A retried job goes on counting against its limits."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().accept(row, transition, verb, now)
        if verb is Verb.RETRY:
            ghost = JobRow.of(row.asked, seq=-row.seq, now=now)
            self._db.running[ghost.seq] = ghost


@fails(ConcurrencyConformance.test_a_success_that_is_not_kept_gives_the_unit_back)
class DeletedJobsCount(MemoryDatabase):
    """A job that was deleted goes on counting."""

    def remove(self, row: JobRow) -> None:
        super().remove(row)
        self.running[row.seq] = row


@fails(ConcurrencyConformance.test_a_cancel_request_gives_nothing_back_until_the_claim_ends)
class RequestsGiveBack(MemoryBudgets):
    """A job whose cancellation is requested does not count any more."""

    def usage(self, running: Iterable[JobRow]) -> Usage:
        return super().usage(row for row in running if not row.cancel_requested)


@fails(ConcurrencyConformance.test_declaring_a_worker_dead_frees_no_unit_and_reaping_does)
class BurialGivesBack(ClaimRules):
    """Jobs of dead workers do not count, though they may still run."""

    def admit(self, visit: ClaimProgress, row: JobRow) -> bool:
        live = [row for row in self._db.running.values() if self.is_live(row.worker)]
        visit.usage = self._db.gates.usage(live)
        return super().admit(visit, row)


@fails(ConcurrencyConformance.test_leaving_gives_the_units_back)
class ReleasesCount(ApplyRules):
    """A job that was given back goes on counting."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().accept(row, transition, verb, now)
        if verb is Verb.RELEASE:
            ghost = JobRow.of(row.asked, seq=-row.seq, now=now)
            self._db.running[ghost.seq] = ghost


@fails(ConcurrencyConformance.test_cancelling_a_waiting_job_frees_nothing_and_blocks_nothing)
class CancelsFreeUnits(MemoryJobs):
    """A cancelled waiting job gives back what it never had."""

    def _cancel(self, job: JobId, now: datetime) -> CancelAnswer:
        answer = super()._cancel(job, now)
        if answer is CancelAnswer.CANCELLED:
            for row in list(self._db.running.values())[:1]:
                row.asked = replace(row.asked, limits=())
        return answer


@fails(
    ConcurrencyConformance.test_every_key_has_its_own_budget,
    RateConformance.test_every_key_has_its_own_bucket,
)
class IgnoresLimitKeys(MemoryJobs):
    """All keys of a limit share one budget."""

    def _insert(self, job: NewJob, now: datetime) -> Inserted:
        uses = tuple(replace(use, key="") for use in job.limits)
        return super()._insert(replace(job, limits=uses), now)


@fails(ConcurrencyConformance.test_a_limit_holds_within_one_claim_of_several_queues)
class CountsBetweenQueuesOnly(ClaimRules):
    """What a claim took from one queue is not seen when it comes to the next."""

    def take(self, visit: ClaimProgress, want: Want) -> None:
        before = visit.usage.copy()
        super().take(visit, want)
        visit.usage = before


@fails(ConcurrencyConformance.test_cost_does_not_count_where_jobs_are_counted)
class CostsUnits(MemoryBudgets):
    """A job that costs more counts as more jobs."""

    def charge(self, uses: Sequence[LimitUse], usage: Usage, now: datetime) -> None:
        super().charge(uses, usage, now)
        for use in uses:
            usage[use.gate] += int(use.cost) - 1


@fails(ConcurrencyConformance.test_the_state_of_a_limit_tells_who_uses_it)
class StatesWithoutUse(MemoryLimits):
    """The state of a limit does not say how many run."""

    async def states(self, name: str) -> Sequence[LimitState]:
        return [replace(state, running=0) for state in await super().states(name)]


@fails(ConcurrencyConformance.test_a_budget_that_was_used_is_still_shown)
class ShowsBudgetsInUse(MemoryLimits):
    """Only budgets that are in use are shown."""

    async def states(self, name: str) -> Sequence[LimitState]:
        return [state for state in await super().states(name) if state.running]


# --- lanes ------------------------------------------------------------------------------------


@fails(
    LaneConformance.test_a_closed_lane_does_not_block_jobs_without_limits,
    LaneConformance.test_a_closed_lane_does_not_block_other_lanes,
    RateConformance.test_a_lane_without_tokens_does_not_block_jobs_without_limits,
)
class ClosedLanesBlock(ClaimRules):
    """A job that its limits hold back holds back everything behind it."""

    def admit(self, visit: ClaimProgress, row: JobRow) -> bool:
        admitted = super().admit(visit, row)
        if not admitted:
            visit.room = 0
        return admitted

    def take(self, visit: ClaimProgress, want: Want) -> None:
        lanes = self._db.ready[want.queue]
        heads = sorted(self.heads(lanes, solo=visit.solo))
        if heads and not self._first_is_admitted(visit, heads):
            return
        super().take(visit, want)

    def _first_is_admitted(self, visit: ClaimProgress, heads: LaneHeads) -> bool:
        uses = self._db.rows[heads[0][0][-1]].asked.limits
        return self._db.gates.shut(uses, visit.usage, visit.now) is None


@fails(LaneConformance.test_a_refused_job_does_not_change_the_order_of_those_behind_it)
class LanesFollowRefusedOnes(ClaimRules):
    """Where the first job is refused, those of other lanes overtake jobs without limits."""

    def take(self, visit: ClaimProgress, want: Want) -> None:
        lanes = self._db.ready[want.queue]
        first = min(self.heads(lanes, solo=visit.solo), default=None)
        if first is not None:
            uses = self._db.rows[first[0][-1]].asked.limits
            if self._db.gates.shut(uses, visit.usage, visit.now) is not None:
                unlimited = {lane: lanes.pop(lane) for lane in list(lanes) if not lane.limits}
                super().take(visit, want)
                lanes.update(unlimited)
        super().take(visit, want)


@fails(LaneConformance.test_limited_and_unlimited_jobs_share_one_order)
class UnlimitedJobsFirst(ClaimRules):
    """Jobs without limits overtake all others."""

    def take(self, visit: ClaimProgress, want: Want) -> None:
        lanes = self._db.ready[want.queue]
        limited = {lane: lanes.pop(lane) for lane in list(lanes) if lane.limits}
        super().take(visit, want)
        lanes.update(limited)
        super().take(visit, want)


@fails(LaneConformance.test_within_a_lane_the_order_holds)
class LanesAreInsertionOrdered(MemoryDatabase):
    """Within a lane jobs come in the order of insertion."""

    def stand_ready(self, row: JobRow) -> None:
        asked = row.asked
        if asked.limits:
            row.asked = replace(asked, priority=0)
        super().stand_ready(row)
        row.asked = asked


@fails(LaneConformance.test_a_job_with_several_limits_takes_from_all_of_them)
class TakesFromTheFirstLimit(MemoryBudgets):
    """Of several limits only the first is charged."""

    def usage(self, running: Iterable[JobRow]) -> Usage:
        return Usage(row.asked.limits[0].gate for row in running if row.asked.limits)

    def charge(self, uses: Sequence[LimitUse], usage: Usage, now: datetime) -> None:
        super().charge(uses[:1], usage, now)


@fails(
    LaneConformance.test_a_job_with_several_limits_takes_all_or_none,
    RateConformance.test_no_token_is_spent_when_another_limit_is_closed,
)
class ChargesBeforeItAsks(ClaimRules):
    """A job takes from limits that admit it though others do not."""

    def admit(self, visit: ClaimProgress, row: JobRow) -> bool:
        gates, uses = self._db.gates, row.asked.limits
        if gates.shut(uses, visit.usage, visit.now) is not None:
            for use in uses:
                if gates.shut([use], visit.usage, visit.now) is None:
                    gates.charge([use], visit.usage, visit.now)
        return super().admit(visit, row)


@fails(
    LaneConformance.test_a_retry_counts_again_and_waits_in_its_lane,
    RateConformance.test_a_retry_needs_another_token,
)
class RetriesHaveNoLimits(ClaimRules):
    """A job that was admitted once is not asked again."""

    def admit(self, visit: ClaimProgress, row: JobRow) -> bool:
        return row.attempt > 0 or super().admit(visit, row)


@fails(
    LaneConformance.test_a_scheduled_job_is_limited_once_it_is_due,
    MaintenanceConformance.test_a_limited_job_is_promoted_into_its_lane,
)
class PromotionForgetsLimits(MemoryDatabase):
    """A job that fell due stands among those without limits."""

    def promote(
        self,
        queue: str,
        now: datetime,
        limit: int | None = None,
        *,
        missed_until: datetime | None = None,
    ) -> int:
        for place in self.later[queue]:
            row = self._standing(place)
            if row is not None and row.due <= now:
                row.asked, row.lane_limits = replace(row.asked, limits=()), ""
        return super().promote(queue, now, limit, missed_until=missed_until)


@fails(LaneConformance.test_a_job_made_due_now_waits_in_its_lane)
class RunNowForgetsLimits(MemoryActions):
    """A job that is made due now has no limits any more."""

    def _run_now(self, row: JobRow, now: datetime) -> ActionResult:
        row.asked, row.lane_limits = replace(row.asked, limits=()), ""
        return super()._run_now(row, now)


@fails(
    LaneConformance.test_raising_a_limit_lets_waiting_jobs_through,
    LaneConformance.test_lowering_a_limit_stops_new_starts_and_no_running_ones,
    LaneConformance.test_limits_are_listed_by_name,
    RateConformance.test_a_larger_burst_lets_waiting_jobs_through,
)
class LimitsNeverChange(MemoryLimits):
    """A limit keeps its first definition."""

    async def define(self, specs: Sequence[LimitSpec], *, audit: AuditNote | None = None) -> None:
        known = self._db.gates.specs
        await super().define([spec for spec in specs if spec.name not in known])


@fails(LaneConformance.test_a_lane_closed_by_running_jobs_has_no_next_instant)
class GuessesWhenJobsEnd(MemoryBudgets):
    """A lane that waits for a running job says that it opens now."""

    def shut(self, uses: Sequence[LimitUse], usage: Usage, now: datetime) -> StartBlocked | None:
        shut = super().shut(uses, usage, now)
        return shut and StartBlocked(shut.opens_at or now)


@fails(
    LaneConformance.test_claimable_is_never_wrong_about_a_lane_that_opened,
    RateConformance.test_claimable_is_never_wrong_about_a_token_that_came_back,
)
class ClaimableWithoutLimits(MemoryJobs):
    """Jobs with limits are not seen by the look before a claim."""

    def _claimable(self, queue: str, now: datetime) -> bool:
        return any(heap for lane, heap in self._db.ready[queue].items() if not lane.limits)


# --- rates ------------------------------------------------------------------------------------


class _Bucket(MemoryBudgets):
    """Another way to spend tokens."""

    def cost(self, use: LimitUse) -> float:
        raise AssertionError("say which")

    def charge(self, uses: Sequence[LimitUse], usage: Usage, now: datetime) -> None:
        super().charge([replace(use, cost=self.cost(use)) for use in uses], usage, now)


@fails(
    RateConformance.test_no_window_holds_more_starts_than_the_rate_allows,
    RateConformance.test_the_reply_tells_when_a_token_is_back_and_then_it_is,
)
class SpendsHalfATokenOnly(_Bucket):
    """Twice as many start as may."""

    def cost(self, use: LimitUse) -> float:
        return use.cost / 2


@fails(
    RateConformance.test_a_burst_starts_together_and_not_one_more,
    RateConformance.test_a_limit_may_bound_both_how_often_and_how_many,
    RateConformance.test_the_state_of_a_limit_tells_when_its_bucket_is_full,
)
class NeverSpends(_Bucket):
    """A start costs nothing."""

    def cost(self, use: LimitUse) -> float:
        return 0.0


@fails(
    RateConformance.test_a_job_spends_what_it_costs,
    RateConformance.test_a_cost_above_the_burst_starts_on_a_full_bucket_and_leaves_a_debt,
)
class EveryJobCostsOne(_Bucket):
    """A costly job spends one token."""

    def cost(self, use: LimitUse) -> float:
        return 1.0


@fails(RateConformance.test_an_ended_claim_gives_no_token_back)
class ReleasesRefundTokens(ApplyRules):
    """A job that is given back gives its token back."""

    def accept(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().accept(row, transition, verb, now)
        if verb is Verb.RELEASE:
            self._db.gates.spent.clear()


@fails(RateConformance.test_a_costly_head_is_not_overtaken_within_its_lane)
class CheapJobsOvertake(MemoryDatabase):
    """A job behind a costly one may start while the costly one waits."""

    def stand_ready(self, row: JobRow) -> None:
        before = row.lane_limits
        row.lane_limits += "".join(f"/{use.cost}" for use in row.asked.limits)
        super().stand_ready(row)
        row.lane_limits = before


@fails(RateConformance.test_a_cancelled_head_spends_nothing)
class CancelsSpend(MemoryJobs):
    """A cancelled job spends the token it would have taken."""

    def _cancel(self, job: JobId, now: datetime) -> CancelAnswer:
        row = self._db.by_id[job]
        if row.state is State.WAITING:
            self._db.gates.spent = {
                gate: until and until + timedelta(seconds=1)
                for gate, until in self._db.gates.spent.items()
            }
        return super()._cancel(job, now)


@fails(RateConformance.test_an_expired_head_spends_nothing)
class ExpiredJobsSpend(MemoryDatabase):
    """An expired job spends the token it would have taken."""

    def expire(self, row: JobRow, now: datetime) -> None:
        super().expire(row, now)
        self.gates.charge(row.asked.limits, Usage(), now)


# --- clocks that are set back -----------------------------------------------------------------


@fails(RateConformance.test_a_clock_that_is_set_back_keeps_no_token_waiting)
class WaitsForTheClock(MemoryBudgets):
    """Tokens come when the clock is where it was."""

    def is_ahead(self, now: datetime) -> bool:
        return False


@fails(
    RateConformance.test_a_clock_that_is_set_back_keeps_no_drained_bucket_waiting,
    BreakerTrialConformance.test_a_clock_that_is_set_back_keeps_no_trial_waiting,
)
class RemembersWhatWasTakenAlone(MemoryBudgets):
    """What was shut since the last job started is not moved with the clock."""

    def reckon(self, now: datetime) -> datetime:
        return now


@fails(
    BreakerTrialConformance.test_a_failure_after_the_clock_was_set_back_opens_it_for_the_whole_rest
)
class ForgetsThatTheClockWasSetBack(MemoryBudgets):
    """A failure by the new clock is taken for one by the old clock."""

    def trip(self, uses: Sequence[LimitUse], now: datetime) -> None:
        charged = self.charged
        self.charged = None
        super().trip(uses, now)
        self.charged = charged


@fails(RateConformance.test_a_clock_that_is_set_back_forgives_no_debt)
class ForgivesWhenTheClockIsSetBack(MemoryBudgets):
    """Every bucket is full when the clock was set back."""

    def mend(self, now: datetime) -> None:
        if self.is_ahead(now):
            self.charged, self.spent = now, dict.fromkeys(self.spent)
