"""How long a program that does not start is left alone."""

from __future__ import annotations

from collections.abc import Callable

from windlass._system.seams import monotonic
from windlass.errors import ChildNotStarted

__all__ = ["StartBackoff"]

_FIRST, _LONGEST = 1.0, 60.0
_DEATHS = 3
"""Processes in a row that died before their first reply. One alone may be the fault of its job."""


class StartBackoff:
    """Counts the failed starts of one program in a row."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        """Start without failures. ``now``: seconds on a clock that never steps."""
        self._now = now
        self._failures = 0
        self._until = 0.0
        self._why = ""

    def check(self) -> None:
        """Raise ChildNotStarted while the program is left alone: its jobs wait at no cost."""
        if self._now() < self._until:
            raise ChildNotStarted(self._why)

    def failed(self, why: str) -> None:
        """Note that the system could not start it."""
        self._failures = max(self._failures + 1, _DEATHS)
        wait = min(_FIRST * 2 ** (self._failures - _DEATHS), _LONGEST)
        self._why = why
        self._until = self._now() + wait

    def died(self, why: str) -> None:
        """Note that it ended before its first reply."""
        if self._failures + 1 >= _DEATHS:
            self.failed(f"{self._failures + 1} times in a row before its first reply, {why}")
        else:
            self._failures += 1

    def worked(self) -> None:
        """Note that it has answered."""
        self._failures, self._until = 0, 0.0
