"""The plugin that every app has: it keeps the storage small and quick.

It is a plugin like any other, installed with grants like any other, and may be taken for a model:
a name, a docstring that operators read, and `register`, which says what it brings.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Protocol, runtime_checkable

from windlass._core.schedule.rules import Every
from windlass._core.values.grants import Grants
from windlass._plugins.names import OURS
from windlass._plugins.registrar import Registrar
from windlass._tasks.services import Services

__all__ = ["GRANTS", "UPKEEP", "Maintenance", "Upkeep"]

UPKEEP = "windlass.upkeep"
"""The service that every worker lends: the storage's own maintenance."""

GRANTS = Grants(chores=True, services=[UPKEEP])
"""It makes no jobs: retention must go on when no worker serves the queue they would wait in."""


@runtime_checkable
class Upkeep(Protocol):
    """What a storage needs now and then. The answers say what was done."""

    async def retention(self) -> str:
        """Delete what is old enough, and discard what has expired."""
        ...

    async def tidy(self) -> str:
        """Checkpoints, vacuum, statistics."""
        ...


class Maintenance:
    """Deletes jobs after their retention, discards expired jobs, and maintains the storage:
    checkpoints, vacuum and statistics.
    """

    name = OURS

    def register(self, registrar: Registrar) -> None:
        """Two chores, once a minute each."""
        registrar.service(UPKEEP)

        @registrar.chore(Every(timedelta(minutes=1)))
        async def retention(services: Services) -> str:
            return await services.need(UPKEEP, Upkeep).retention()

        @registrar.chore(Every(timedelta(minutes=1)))
        async def tidy(services: Services) -> str:
            return await services.need(UPKEEP, Upkeep).tidy()
