"""The way from a call to the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from windlass._core.job.job import NewJob
from windlass._storage.protocol.jobs import Inserted

__all__ = ["Inserter"]


class Inserter(Protocol):
    """The way from a call to the store. What surrounds it, such as tracing, looks the same."""

    async def submit(self, items: Sequence[NewJob], /) -> Sequence[Inserted]:
        """Store jobs, all or none."""
        ...

    async def idle(self) -> None:
        """Wait until nothing is under way."""
        ...
