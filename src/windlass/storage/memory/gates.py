"""The budgets jobs count against. Usage is what the running rows say, so it cannot leak."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from windlass.core.job import LimitUse, NewJob
from windlass.core.limit import Admitted, Closed, LimitSpec, admit
from windlass.errors import LimitUnknown
from windlass.storage.memory.row import Row

__all__ = ["Gates", "Shut", "Usage"]

Usage = Counter[str]
"""How many running jobs count against each gate."""


class Shut(msgspec.Struct, frozen=True):
    """A job may not start now."""

    opens_at: datetime | None
    """When time alone lets it start; None: only the end of another job does."""


class Gates:
    """Limits by name, and for each gate (a limit and a key) when its bucket is full again."""

    def __init__(self) -> None:
        self.specs: dict[str, LimitSpec] = {}
        self.spent: dict[str, datetime | None] = {}

    def require(self, jobs: Sequence[NewJob]) -> None:
        """Refuse jobs that name a limit nobody defined."""
        for job in jobs:
            for use in job.limits:
                if use.name not in self.specs:
                    raise LimitUnknown(use.name, self.specs)

    def usage(self, running: Iterable[Row]) -> Usage:
        # A set: a job that names a gate twice is still one job.
        return Counter(gate for row in running for gate in {use.gate for use in row.asked.limits})

    def shut(self, uses: Sequence[LimitUse], usage: Usage, now: datetime) -> Shut | None:
        """What keeps these uses from starting now; None: every one of them may."""
        opens_at: list[datetime] = []
        for use in uses:
            spec = self.specs[use.name]
            if spec.concurrency is not None and usage[use.gate] >= spec.concurrency:
                return Shut(None)
            verdict = self._admit(spec, use, now)
            if isinstance(verdict, Closed):
                opens_at.append(verdict.open_at)
        return Shut(max(opens_at)) if opens_at else None

    def charge(self, uses: Sequence[LimitUse], usage: Usage, now: datetime) -> None:
        """Take from every gate; none of them is shut."""
        for gate in {use.gate for use in uses}:
            usage[gate] += 1
            self.spent.setdefault(gate, None)
        for use in uses:
            verdict = self._admit(self.specs[use.name], use, now)
            if isinstance(verdict, Admitted):
                self.spent[use.gate] = verdict.spent_until

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
