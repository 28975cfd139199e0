"""Waiting for room in the storage."""

from __future__ import annotations

from collections.abc import Sequence

from windlass._client.inserter import Inserter
from windlass._core.job.job import NewJob
from windlass._storage.protocol.jobs import Inserted
from windlass._storage.shared.errors import CapacityReached

__all__ = ["WaitForRoom"]


class WaitForRoom:
    """An `Inserter` for storages that hold a bounded number of jobs. The caller waits here, and not
    in the storage: a cancelled call stores nothing, and calls behind it are not delayed.
    """

    def __init__(self, inner: Inserter) -> None:
        self._inner = inner

    async def submit(self, items: Sequence[NewJob], /) -> Sequence[Inserted]:
        """Store jobs, all or none, when there is room for them."""
        while True:
            try:
                return await self._inner.submit(items)
            except CapacityReached as error:
                if error.until_room is None:
                    raise
                await error.until_room()

    async def idle(self) -> None:
        """Wait until nothing is under way."""
        await self._inner.idle()
