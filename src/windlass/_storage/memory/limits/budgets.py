"""The budgets jobs count against. Usage is what the running rows say, so it cannot leak."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

from windlass._core.job.job import LimitUse, NewJob
from windlass._core.limits.breaker import BreakerState, record_failure, record_success
from windlass._core.limits.limit import (
    CLOCK_SLACK,
    Admitted,
    Closed,
    LimitSpec,
    admit,
    drained,
    rescale_debt,
)
from windlass._storage.memory.io.rows import JobRow
from windlass._storage.protocol.limits import LimitState
from windlass.errors import LimitUnknown

__all__ = ["MemoryBudgets", "StartBlocked", "Usage"]

Usage = Counter[str]
"""How many running jobs count against each gate."""


class StartBlocked(msgspec.Struct, frozen=True):
    """A job may not start now."""

    opens_at: datetime | None
    """When time alone lets it start; None: only the end of another job does."""


class MemoryBudgets:
    """Limits by name, and for each gate (a limit and a key) when its bucket is full again."""

    def __init__(self) -> None:
        self.specs: dict[str, LimitSpec] = {}
        self.spent: dict[str, datetime | None] = {}
        self.breakers: dict[str, BreakerState] = {}
        self.charged: datetime | None = None
        """When something was taken last, a gate was shut, or a queue began to rest."""

    def define(self, spec: LimitSpec, now: datetime) -> None:
        """Store a new limit, or new numbers for an old one."""
        old = self.specs.get(spec.name)
        self.specs[spec.name] = spec
        if old is None or old.rate is None or spec.rate is None or spec.rate == old.rate:
            return
        for gate, until in self.spent.items():
            if gate.partition(":")[0] == spec.name:
                self.spent[gate] = rescale_debt(spec.rate, until, before=old.rate, now=now)

    def require(self, jobs: Sequence[NewJob]) -> None:
        """Refuse jobs that name an undefined limit."""
        for job in jobs:
            for use in job.limits:
                if use.name not in self.specs:
                    raise LimitUnknown(use.name, self.specs)

    def usage(self, running: Iterable[JobRow]) -> Usage:
        # A set: a job that names a gate twice is still one job.
        return Counter(gate for row in running for gate in {use.gate for use in row.asked.limits})

    def is_ahead(self, now: datetime) -> bool:
        """Return whether the clock was set back since something was taken."""
        return self.charged is not None and self.charged - now > CLOCK_SLACK

    def set_back_by(self, now: datetime) -> timedelta:
        """Return how far the clock was set back since something was taken."""
        return self.charged - now if self.charged and self.is_ahead(now) else timedelta(0)

    def mend(self, now: datetime) -> None:
        """Reset every gate to the state of its last use, after the clock was set back."""
        back = self.set_back_by(now)
        if not back:
            return
        self.charged = now
        self.spent = {gate: until and until - back for gate, until in self.spent.items()}
        for gate, state in self.breakers.items():
            until = state.open_until and state.open_until - back
            self.breakers[gate] = msgspec.structs.replace(state, open_until=until)

    def reckon(self, now: datetime) -> datetime:
        """Return the instant from which a wait counts that begins now. By a clock that was set back
        it is the last one that counted: `mend` moves it with all others.
        """
        self.charged = now if self.charged is None else max(self.charged, now)
        return self.charged

    def shut(self, uses: Sequence[LimitUse], usage: Usage, now: datetime) -> StartBlocked | None:
        """Return the gate that keeps these uses from starting now; None: all may start."""
        opens_at: list[datetime] = []
        for use in uses:
            spec = self.specs[use.name]
            if spec.concurrency is not None and usage[use.gate] >= spec.concurrency:
                return StartBlocked(None)
            if spec.breaker is not None and (state := self._holding(spec, use)) is not None:
                if state.open_until is not None and state.open_until > now:
                    opens_at.append(state.open_until)
                elif usage[use.gate]:
                    return StartBlocked(None)
            verdict = self._admit(spec, use, now)
            if isinstance(verdict, Closed):
                opens_at.append(verdict.open_at)
        return StartBlocked(max(opens_at)) if opens_at else None

    def charge(self, uses: Sequence[LimitUse], usage: Usage, now: datetime) -> None:
        """Take from every gate; none of them is shut."""
        self.charged = now
        for gate in {use.gate for use in uses}:
            usage[gate] += 1
            self.spent.setdefault(gate, None)
        for use in uses:
            verdict = self._admit(self.specs[use.name], use, now)
            if isinstance(verdict, Admitted):
                self.spent[use.gate] = verdict.spent_until

    def _holding(self, spec: LimitSpec, use: LimitUse) -> BreakerState | None:
        """Return the state of a breaker that is not closed."""
        state = self.breakers.get(use.gate)
        if state is None or spec.breaker is None or not state.holds(spec.breaker):
            return None
        return state

    def state(self, name: str, gate: str) -> BreakerState | None:
        """Return the public state of a breaker."""
        if name not in self.specs or self.specs[name].breaker is None:
            return None
        return self.breakers.get(gate, record_success())

    def trip(self, uses: Sequence[LimitUse], now: datetime) -> None:
        """Count a failure for these breakers: once, however often the run names one of them."""
        for gate, name in {use.gate: use.name for use in uses}.items():
            breaker = self.specs[name].breaker
            if breaker is not None:
                state = self.breakers.get(gate, record_success())
                self.breakers[gate] = record_failure(breaker, state, self.reckon(now))

    def close_breakers(self, uses: Sequence[LimitUse]) -> None:
        """Close the breakers of a run that succeeded."""
        for use in uses:
            self.breakers.pop(use.gate, None)

    def drain(self, uses: Sequence[LimitUse], now: datetime) -> None:
        """Empty the buckets of these gates."""
        for use in uses:
            rate = self.specs[use.name].rate
            if rate is not None:
                self.spent[use.gate] = drained(rate, self.spent.get(use.gate), self.reckon(now))

    def reset(self, gate: str) -> None:
        """Reset a budget, as if nothing had been taken and nothing had failed."""
        self.breakers.pop(gate, None)
        if gate in self.spent:
            self.spent[gate] = None

    def restore(self, state: LimitState) -> bool:
        """Take over what another store had spent; False: it is the same here."""
        gate = LimitUse(state.name, state.key).gate
        breaker = state.breaker or record_success()
        here = (self.spent.get(gate), self.breakers.get(gate, record_success()))
        if gate in self.spent and here == (state.spent_until, breaker):
            return False
        self.spent[gate] = state.spent_until
        self.breakers.pop(gate, None)
        if breaker != record_success():
            self.breakers[gate] = breaker
        return True

    def _admit(self, spec: LimitSpec, use: LimitUse, now: datetime) -> Admitted | Closed | None:
        if spec.rate is None:
            return None
        return admit(spec.rate, self.spent.get(use.gate), cost=use.cost, now=now)

    def forget(self, usage: Usage, now: datetime) -> None:
        """Drop gates that are as if they had never been used."""
        self.spent = {
            gate: until
            for gate, until in self.spent.items()
            if usage[gate] or (until is not None and until > now)
        }
