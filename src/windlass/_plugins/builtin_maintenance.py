"""The plugin that every app has: retention and maintenance of the storage.

It is installed with grants like any other plugin, and serves as an example: a name, a docstring for
operators, and `register`.
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
"""The service that every worker attaches: maintenance of its storage."""

GRANTS = Grants(chores=True, services=[UPKEEP])
"""It makes no jobs: retention must work even if no worker serves the queue of such jobs."""


@runtime_checkable
class Upkeep(Protocol):
    """Maintenance of a storage. The answers say what was done."""

    async def retention(self) -> str:
        """Delete jobs past their retention, and discard expired ones."""
        ...

    async def tidy(self) -> str:
        """Run checkpoints, vacuum and statistics."""
        ...


class Maintenance:
    """Deletes jobs after their retention, discards expired jobs, and maintains the storage:
    checkpoints, vacuum and statistics.
    """

    name = OURS

    def register(self, registrar: Registrar) -> None:
        """Add two chores that run once a minute each."""
        registrar.service(UPKEEP)

        @registrar.chore(Every(timedelta(minutes=1)))
        async def retention(services: Services) -> str:
            return await services.need(UPKEEP, Upkeep).retention()

        @registrar.chore(Every(timedelta(minutes=1)))
        async def tidy(services: Services) -> str:
            return await services.need(UPKEEP, Upkeep).tidy()
