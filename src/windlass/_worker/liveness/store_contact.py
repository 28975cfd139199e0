"""How long this worker has had the store without a gap.

A reaper that has just come back from an outage must not judge other workers by time: they were cut
off as well, and their heartbeats are on the way.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

__all__ = ["StoreContact"]


class StoreContact:
    """Fed by the heartbeat, read by the reaper."""

    def __init__(self, *, beat: timedelta, lease: timedelta, clock: Callable[[], float]) -> None:
        """Make it. ``clock`` counts seconds and never steps; it runs during a suspend, too."""
        # A beat that is two intervals late was not merely slow: the store, or we, were away.
        self._gap = beat.total_seconds() * 2
        self._lease = lease.total_seconds()
        self._clock = clock
        self._since: float | None = None
        self._last: float | None = None

    def reached(self) -> None:
        """Record an answered heartbeat."""
        now = self._clock()
        if self._since is None or self._last is None or now - self._last > self._gap:
            self._since = now
        self._last = now

    def missed(self) -> None:
        """Record an unanswered heartbeat."""
        self._since = None

    @property
    def may_judge(self) -> bool:
        """Whether the store was ours for one full lease, up to now."""
        if self._since is None or self._last is None:
            return False
        now = self._clock()
        return now - self._last <= self._gap and now - self._since >= self._lease

    @property
    def cut_off_for(self) -> float:
        """Seconds since the last answered beat; 0 before the first."""
        return 0.0 if self._last is None else self._clock() - self._last
