"""The memory backend as a `Storage`: one view for each event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import datetime

from windlass.storage.memory.admin import MemoryAdmin
from windlass.storage.memory.claims import Claims
from windlass.storage.memory.database import MemoryDatabase
from windlass.storage.memory.endings import Endings
from windlass.storage.memory.jobs import MemoryJobs
from windlass.storage.memory.journal import MemoryJournal
from windlass.storage.memory.moving import MemoryMoving
from windlass.storage.memory.orders import MemoryOrders
from windlass.storage.memory.queues import MemoryQueues
from windlass.storage.memory.schedules import MemorySchedules
from windlass.storage.memory.upkeep import MemoryLimits, MemoryMaintenance
from windlass.storage.memory.workers import MemoryLeader, MemoryWorkers
from windlass.storage.protocol import WorkerStart
from windlass.storage.sleepers import Sleeper

__all__ = ["MemoryStorage", "MemoryWakeups"]


class MemoryWakeups:
    """A `Wakeups`: changes made on any loop or thread reach the subscriber on its own loop."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database
        self._sleepers: set[_Sleeper] = set()

    def subscribe(
        self, callback: Callable[[], None], queues: Collection[str] | None = None
    ) -> Callable[[], None]:
        sleeper = _Sleeper(asyncio.get_running_loop(), callback, queues)
        self._sleepers.add(sleeper)
        self._db.add_sleeper(sleeper)

        def unsubscribe() -> None:
            self._sleepers.discard(sleeper)
            self._db.remove_sleeper(sleeper)
            sleeper.callback = None

        return unsubscribe

    def close(self) -> None:
        for sleeper in self._sleepers:
            self._db.remove_sleeper(sleeper)
            sleeper.callback = None
        self._sleepers.clear()


class _Sleeper(Sleeper):
    """A subscription that is called from any thread."""

    def __call__(self) -> None:
        if self._called or self._loop.is_closed():
            return
        self._called = True
        # The loop may close between the question and the call: then there is nobody to wake, and
        # whoever made the change must not hear of it.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self.wake)


class MemoryStorage:
    """A `Storage` on a `MemoryDatabase`; several may share one."""

    def __init__(self, database: MemoryDatabase) -> None:
        endings = Endings(database)
        self._db = database
        self._wakeups = MemoryWakeups(database)
        self.jobs: MemoryJobs = MemoryJobs(database, Claims(database), endings)
        self.workers: MemoryWorkers = MemoryWorkers(database, endings)
        self.leader: MemoryLeader = MemoryLeader(database)
        self.limits: MemoryLimits = MemoryLimits(database)
        self.maintenance: MemoryMaintenance = MemoryMaintenance(database)
        self.queues: MemoryQueues = MemoryQueues(database)
        self.schedules: MemorySchedules = MemorySchedules(database)
        self.admin: MemoryAdmin = MemoryAdmin(database)
        self.orders: MemoryOrders = MemoryOrders(database, self.jobs)
        self.journal: MemoryJournal = MemoryJournal(database)
        self.moving: MemoryMoving = MemoryMoving(database)

    @property
    def transactions(self) -> None:
        return None

    @property
    def wakeups(self) -> MemoryWakeups:
        return self._wakeups

    @property
    def shared(self) -> bool:
        return False

    def describe(self) -> str:
        return "memory (nothing survives the process)"

    async def health(self) -> Mapping[str, float | str]:
        with self._db.moment():
            return {"durability": "none", "jobs": len(self._db.rows)}

    def prove_dead(self, worker: WorkerStart) -> bool:  # noqa: ARG002 -- nothing is ever proven
        return False

    def hold_worker_lock(self, worker: str) -> tuple[str, int, int]:  # noqa: ARG002 -- no lock
        return "", 0, 0

    def release_worker_lock(self, worker: str) -> None:
        """There is none."""

    async def now(self) -> datetime:
        return self._db.clock.now()

    async def close(self) -> None:
        self._wakeups.close()
