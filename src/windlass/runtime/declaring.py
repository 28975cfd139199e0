"""The schedules of this process's code, and our own: brought to the store, and said again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta

from windlass.core.rules import Every
from windlass.core.schedule import Schedule
from windlass.runtime.pruner import Pruner
from windlass.runtime.scheduler import Chore
from windlass.schedules import Schedules

__all__ = ["OUR_OWN", "SAY_AGAIN", "Declaring", "our_chores"]

SAY_AGAIN = timedelta(minutes=1)
RETENTION, TIDY = "windlass.retention", "windlass.tidy"

OUR_OWN: Mapping[str, Schedule] = {
    RETENTION: Schedule(rule=Every(timedelta(minutes=1))),
    TIDY: Schedule(rule=Every(timedelta(minutes=1))),
}
"""Chores that every cluster needs: schedules like any other, to be looked at and paused."""


def our_chores(pruner: Pruner) -> Mapping[str, Chore]:
    """What they do."""
    return {RETENTION: pruner.retention, TIDY: pruner.tidy}


class Declaring:
    """Says what schedules this process's code has."""

    def __init__(self, schedules: Schedules, plans: Mapping[str, Schedule]) -> None:
        """Nothing is said before the first step."""
        self._schedules = schedules
        self._plans = {**OUR_OWN, **plans}
        self._said = False

    @property
    def names(self) -> Collection[str]:
        """What this process has."""
        return self._plans.keys()

    async def step(self) -> None:
        """The first time what they are, then that they are still there."""
        if self._said:
            await self._schedules.still_declared(self._plans)
        else:
            await self._schedules.declare(self._plans, by="code")
            self._said = True
