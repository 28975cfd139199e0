"""Stores whose buckets cannot be emptied, filled or changed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from math import ceil

from msgspec.structs import replace

from tests.storage.mutants.table import fails
from windlass._core.job.job import LimitUse
from windlass._core.job.state import Verb
from windlass._core.job.transition import Transition
from windlass._core.limits.limit import LimitSpec
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.memory.jobs.apply import ApplyRules
from windlass._storage.memory.limits.budgets import MemoryBudgets, Usage
from windlass._storage.memory.maintenance import MemoryLimits
from windlass._storage.protocol.actions import AuditNote
from windlass._storage.protocol.jobs import TransitionAnswer
from windlass.errors import LimitUnknown
from windlass.testing.conformance import (
    ChangedRateConformance,
    DrainConformance,
    RateWindowConformance,
)


@fails(DrainConformance.test_a_drained_bucket_has_nothing_left_and_fills_as_ever)
class NeverDrains(MemoryBudgets):
    """A bucket keeps what is in it."""

    def drain(self, uses: Sequence[LimitUse], now: datetime) -> None:
        pass


@fails(DrainConformance.test_draining_takes_what_is_left_and_no_more)
class DrainsMoreThanThereIs(MemoryBudgets):
    """A drained bucket owes a whole burst."""

    def drain(self, uses: Sequence[LimitUse], now: datetime) -> None:
        for use in uses:
            rate = self.specs[use.name].rate
            if rate is not None:
                before = self.spent.get(use.gate) or now
                self.spent[use.gate] = max(before, now) + rate.span(rate.burst)


@fails(DrainConformance.test_a_debt_is_not_forgiven_by_draining)
class DrainingForgivesDebts(MemoryBudgets):
    """A bucket that owes is as if it were just empty."""

    def drain(self, uses: Sequence[LimitUse], now: datetime) -> None:
        for use in uses:
            self.spent.pop(use.gate, None)
        super().drain(uses, now)


@fails(DrainConformance.test_only_the_bucket_of_that_key_is_drained)
class DrainsEveryKey(MemoryBudgets):
    """Draining one budget drains those of all keys."""

    def drain(self, uses: Sequence[LimitUse], now: datetime) -> None:
        super().drain([*uses, *(replace(use, key=key) for use in uses for key in "ab")], now)


@fails(DrainConformance.test_draining_a_limit_without_a_rate_changes_nothing)
class OnlyRatesDrain(MemoryLimits):
    """Draining a limit without a rate is an error."""

    async def drain(self, name: str, key: str = "", *, audit: AuditNote | None = None) -> None:
        spec = self._db.gates.specs.get(name)
        if spec is None or spec.rate is None:
            raise LimitUnknown(name, [])
        await super().drain(name, key)


@fails(DrainConformance.test_draining_an_undefined_limit_is_an_error)
class DrainsUnknownLimits(MemoryLimits):
    """Draining what nobody defined does nothing."""

    async def drain(self, name: str, key: str = "", *, audit: AuditNote | None = None) -> None:
        if name in self._db.gates.specs:
            await super().drain(name, key)


@fails(DrainConformance.test_a_drained_bucket_outlives_tidying)
class TidyingFills(MemoryBudgets):
    """Tidying fills the buckets that nobody uses."""

    def forget(self, usage: Usage, now: datetime) -> None:
        self.spent = {gate: until for gate, until in self.spent.items() if usage[gate]}


@fails(DrainConformance.test_a_throttled_job_drains_every_rate_it_draws_on)
class DrainsTheFirstRate(MemoryBudgets):
    """Of the rates of a job only the first is drained."""

    def drain(self, uses: Sequence[LimitUse], now: datetime) -> None:
        super().drain(uses[:1], now)


@fails(DrainConformance.test_a_throttled_job_that_does_not_say_so_drains_nothing)
class EveryThrottleDrains(ApplyRules):
    """Whoever is turned away drains his rates."""

    def tell_gates(self, row: JobRow, transition: Transition, verb: Verb, now: datetime) -> None:
        super().tell_gates(row, replace(transition, drains=True), verb, now)


@fails(DrainConformance.test_a_drain_comes_to_no_more_than_its_finish)
class DrainsBeforeItJudges(ApplyRules):
    """A finish that is refused drains all the same."""

    def end(self, transition: Transition, now: datetime) -> TransitionAnswer:
        row = self._db.rows.get(transition.claim.seq)
        if row is not None and transition.drains:
            self._db.gates.drain(row.asked.limits, now)
        return super().end(transition, now)


# --- filling ----------------------------------------------------------------------------------


@fails(DrainConformance.test_a_reset_bucket_is_full)
class NeverFills(MemoryBudgets):
    """A reset leaves buckets as they are."""

    def reset(self, gate: str) -> None:
        spent = self.spent.get(gate)
        super().reset(gate)
        if gate in self.spent:
            self.spent[gate] = spent


@fails(DrainConformance.test_a_reset_forgives_a_debt)
class DebtsStay(MemoryLimits):
    """A reset forgives no debt."""

    async def reset(self, name: str, key: str = "", *, audit: AuditNote | None = None) -> None:
        gate, rate = self._use(name, key).gate, self._db.gates.specs[name].rate
        owed, now = self._db.gates.spent.get(gate), self._db.clock.now()
        if rate is None or owed is None or owed - now <= rate.span(rate.burst):
            await super().reset(name, key)


@fails(DrainConformance.test_only_the_bucket_of_that_key_is_reset)
class FillsEveryKey(MemoryBudgets):
    """A reset fills the buckets of all keys."""

    def reset(self, gate: str) -> None:
        for other in [one for one in self.spent if one.partition(":")[0] == gate.partition(":")[0]]:
            super().reset(other)


@fails(DrainConformance.test_a_reset_gives_no_running_job_back)
class ResetsWhatRuns(MemoryLimits):
    """After a reset nothing that runs counts."""

    async def reset(self, name: str, key: str = "", *, audit: AuditNote | None = None) -> None:
        await super().reset(name, key)
        for row in self._db.running.values():
            row.asked = replace(row.asked, limits=())


@fails(DrainConformance.test_resetting_what_was_never_used_is_harmless)
class ResetsUsedKeysOnly(MemoryLimits):
    """Resetting what was never used is an error."""

    async def reset(self, name: str, key: str = "", *, audit: AuditNote | None = None) -> None:
        if self._use(name, key).gate not in self._db.gates.spent:
            raise LimitUnknown(name, [])
        await super().reset(name, key)


@fails(DrainConformance.test_a_reset_wakes)
class FillsSilently(MemoryLimits):
    """Nobody is told of a filled bucket."""

    async def reset(self, name: str, key: str = "", *, audit: AuditNote | None = None) -> None:
        self._db.gates.reset(self._use(name, key).gate)


# --- changing ---------------------------------------------------------------------------------


@fails(
    ChangedRateConformance.test_under_a_slower_rate_what_is_owed_is_paid_later,
    ChangedRateConformance.test_jobs_that_wait_at_home_are_judged_by_the_new_rate,
)
class OwesTime(MemoryBudgets):
    """A changed rate leaves debts as long as they were."""

    def define(self, spec: LimitSpec, now: datetime) -> None:
        spent = dict(self.spent)
        super().define(spec, now)
        self.spent = spent


@fails(ChangedRateConformance.test_part_of_a_token_is_owed_in_part)
class OwesWholeTokens(MemoryBudgets):
    """Part of a token is owed as a whole one."""

    def define(self, spec: LimitSpec, now: datetime) -> None:
        super().define(spec, now)
        for gate, until in self.spent.items():
            if spec.rate is not None and until is not None and until > now:
                owed = ceil((until - now) / spec.rate.spacing)
                self.spent[gate] = now + owed * spec.rate.spacing


@fails(ChangedRateConformance.test_every_key_of_the_limit_and_no_other_limit_is_changed)
class ChangesTheFirstKey(MemoryBudgets):
    """Debts of keys stay as they were."""

    def define(self, spec: LimitSpec, now: datetime) -> None:
        keyed = {gate: until for gate, until in self.spent.items() if ":" in gate}
        super().define(spec, now)
        self.spent.update(keyed)


@fails(ChangedRateConformance.test_under_a_faster_rate_what_is_owed_is_paid_sooner)
class DefiningFills(MemoryBudgets):
    """Whoever defines a limit again fills its buckets."""

    def define(self, spec: LimitSpec, now: datetime) -> None:
        super().define(spec, now)
        self.spent = dict.fromkeys(self.spent)


@fails(
    ChangedRateConformance.test_a_rate_that_is_defined_again_as_it_is_changes_nothing,
    ChangedRateConformance.test_a_larger_burst_alone_changes_nothing_that_is_owed,
)
class DefiningDrains(MemoryBudgets):
    """Whoever changes a rate empties its buckets."""

    def define(self, spec: LimitSpec, now: datetime) -> None:
        changed = spec.name in self.specs and spec != self.specs[spec.name]
        super().define(spec, now)
        if changed:
            self.drain([LimitUse(spec.name)], now)


@fails(RateWindowConformance.test_from_the_change_on_a_changed_rate_is_what_holds)
class RatesNeverChange(MemoryBudgets):
    """A rate keeps its first numbers."""

    def define(self, spec: LimitSpec, now: datetime) -> None:
        super().define(self.specs.get(spec.name, spec), now)


@fails(ChangedRateConformance.test_a_changed_rate_wakes)
class DefinesSilently(MemoryLimits):
    """Nobody is told of a changed rate."""

    async def define(self, specs: Sequence[LimitSpec], *, audit: AuditNote | None = None) -> None:
        for spec in specs:
            self._db.gates.define(spec, self._db.clock.now())


# --- windows ----------------------------------------------------------------------------------


class _Bucket(MemoryBudgets):
    """Another way to spend tokens."""

    share = 1.0

    def charge(self, uses: Sequence[LimitUse], usage: Usage, now: datetime) -> None:
        super().charge([replace(use, cost=use.cost * self.share) for use in uses], usage, now)


@fails(
    RateWindowConformance.test_a_fractional_rate_holds_for_the_next_whole_one,
    RateWindowConformance.test_keys_are_measured_apart,
)
class SpendsTooLittle(_Bucket):
    """Twice as many start as may."""

    share = 0.5


@fails(
    ChangedRateConformance.test_a_full_bucket_stays_full,
    RateWindowConformance.test_several_workers_at_once_never_overspend,
    RateWindowConformance.test_a_fractional_rate_with_a_burst_and_costs_never_overspends,
    RateWindowConformance.test_costs_above_the_burst_are_paid_for_by_those_behind,
    RateWindowConformance.test_asking_at_next_at_gets_the_whole_rate,
)
class SpendsTooMuch(_Bucket):
    """A tenth more is spent, and nothing at all where that does not fit."""

    share = 1.1
