"""How fast orders may come: from one person, and from all of them together."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from windlass._core.limits.limit import Closed, Rate, admit
from windlass._system.seams import boot_seconds

__all__ = ["DEFAULT_ACTION_RATE", "ActionRateLimit"]

DEFAULT_ACTION_RATE = Rate(10, 1.0, burst=100)
"""Actions of one person. People do not click this fast, and one action can change all matching
jobs.
"""
_CROWD = 5
"""The rate of all people together, as a multiple: one person never takes it from the others."""
_PEOPLE = 10_000
_START = datetime(2000, 1, 1, tzinfo=UTC)


class ActionRateLimit:
    """A bucket for each person and one for all. It lives in this process, as sessions do."""

    def __init__(
        self, rate: Rate = DEFAULT_ACTION_RATE, clock: Callable[[], float] = boot_seconds
    ) -> None:
        """``rate``: of one person; ``clock``: seconds."""
        self._rate = rate
        self._all_rate = Rate(rate.n * _CROWD, rate.per, rate.burst * _CROWD)
        self._clock = clock
        self._all: datetime | None = None
        self._spent: dict[str, datetime] = {}

    def wait(self, who: str) -> float:
        """Seconds until this person may order again; 0: now, and this order is counted. One that
        has to wait costs nothing.
        """
        now = _START + timedelta(seconds=self._clock())
        own = admit(self._rate, self._spent.get(who), cost=1, now=now)
        everybody = admit(self._all_rate, self._all, cost=1, now=now)
        if isinstance(own, Closed) or isinstance(everybody, Closed):
            opens = [one.open_at for one in (own, everybody) if isinstance(one, Closed)]
            return (max(opens) - now).total_seconds()
        if len(self._spent) >= _PEOPLE:
            # A full bucket need not be kept. There are few others: the bound on all of them holds.
            self._spent = {one: until for one, until in self._spent.items() if until > now}
        self._spent[who], self._all = own.spent_until, everybody.spent_until
        return 0.0
