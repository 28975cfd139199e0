"""The schedules of this process's code: brought to the store, and said again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from datetime import timedelta
from functools import partial

from windlass._core.schedule.schedule import Schedule
from windlass._plugins.installation import RunChore
from windlass._schedules.edits import Schedules
from windlass._tasks.services import Services
from windlass._worker.scheduler.scheduler import BoundChore

__all__ = ["DECLARE_INTERVAL", "Chores", "Plans", "ScheduleSync"]

DECLARE_INTERVAL = timedelta(minutes=1)

Plans = Callable[[], Awaitable[Mapping[str, Schedule]]]
"""Returns the plans of the code, with the limits they need in the store; the same object for
unchanged ones.
"""


class ScheduleSync:
    """Says what schedules this process's code has, also when a plugin comes or goes."""

    def __init__(self, schedules: Schedules, plans: Plans) -> None:
        """Make it; nothing is stored before the first step."""
        self._schedules = schedules
        self._plans = plans
        self._said: dict[str, Schedule] = {}

    @property
    def names(self) -> Collection[str]:
        """The schedules of this process; it may still grow and shrink."""
        return self._said.keys()

    @property
    def on_every_worker(self) -> Collection[str]:
        """Those of them that run on every worker."""
        return [name for name, plan in self._said.items() if plan.on == "every_worker"]

    async def step(self) -> bool:
        """Store new plans, and report that the others still exist. Return whether one was new."""
        plans = await self._plans()
        new = {name: plan for name, plan in plans.items() if self._said.get(name) is not plan}
        old = [name for name in plans if name not in new]
        if new:
            await self._schedules.declare(new, by="code")
        if old:
            await self._schedules.still_declared(old)
        # In place, and last: what could not be said is said by the next step.
        for gone in self._said.keys() - plans.keys():
            del self._said[gone]
        self._said.update(new)
        return bool(new)


class Chores(Mapping[str, BoundChore]):
    """The functions of schedules without a job, as this worker runs them."""

    def __init__(self, chores: Mapping[str, RunChore], services: Services) -> None:
        """``chores`` may still grow and shrink."""
        self._chores = chores
        self._services = services

    def __getitem__(self, name: str) -> BoundChore:
        """Return the function of a schedule; for one that this process lacks, a function that logs
        the missed slot.
        """
        chore = self._chores.get(name)
        return partial(_missing, name) if chore is None else partial(chore, self._services)

    def __iter__(self) -> Iterator[str]:
        return iter(self._chores)

    def __len__(self) -> int:
        return len(self._chores)


async def _missing(name: str) -> str:
    plugin = name.partition(".")[0]
    return f"failed: the leading worker has no plugin {plugin!r}: install it in every worker"
