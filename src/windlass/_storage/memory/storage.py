"""The memory backend as a `Storage`: one view for each event loop."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime

from windlass._storage.memory.admin.actions import MemoryActions
from windlass._storage.memory.admin.admin import MemoryAdmin
from windlass._storage.memory.copy.copy import MemoryCopy
from windlass._storage.memory.flows.added import AddedFlows
from windlass._storage.memory.flows.flows import MemoryFlows
from windlass._storage.memory.flows.settle import FlowRules
from windlass._storage.memory.io.database import MemoryDatabase
from windlass._storage.memory.jobs.apply import ApplyRules
from windlass._storage.memory.jobs.claim import ClaimRules
from windlass._storage.memory.jobs.jobs import MemoryJobs
from windlass._storage.memory.journal import MemoryJournal
from windlass._storage.memory.maintenance import MemoryLimits, MemoryMaintenance
from windlass._storage.memory.queues import MemoryQueues
from windlass._storage.memory.schedules import MemorySchedules
from windlass._storage.memory.workers import MemoryLeader, MemoryWorkers
from windlass._storage.protocol.wakeups import Topic
from windlass._storage.protocol.workers import WorkerStart
from windlass._storage.shared.subscribers import SharedWorkHints, Subscriber
from windlass._storage.timings import Timings

__all__ = ["MemoryStorage", "MemoryWakeups"]


class MemoryWakeups:
    """A `Wakeups`: changes made on any loop or thread reach the subscriber on its own loop."""

    def __init__(self, database: MemoryDatabase) -> None:
        self._db = database
        self._own: set[Subscriber] = set()

    def subscribe(
        self, callback: Callable[[], None], topic: Topic = Topic.ANY
    ) -> Callable[[], None]:
        return self._keep(self._db.subscribers.add(callback, topic=topic))

    def work(self, callback: Callable[[], bool], queues: Collection[str]) -> SharedWorkHints:
        return SharedWorkHints(self._keep(self._db.subscribers.add(callback, queues)))

    def _keep(self, subscriber: Subscriber) -> Callable[[], None]:
        self._own.add(subscriber)

        def unsubscribe() -> None:
            self._own.discard(subscriber)
            self._db.subscribers.remove(subscriber)

        return unsubscribe

    def close(self) -> None:
        for subscriber in self._own:
            self._db.subscribers.remove(subscriber)
        self._own.clear()


class MemoryStorage:
    """A `Storage` on a `MemoryDatabase`; several may share one."""

    def __init__(self, database: MemoryDatabase) -> None:
        flows = FlowRules(database)
        endings = ApplyRules(database, AddedFlows(database, flows))
        self._db = database
        self._wakeups = MemoryWakeups(database)
        self.jobs: MemoryJobs = MemoryJobs(database, ClaimRules(database), endings, flows)
        self.workers: MemoryWorkers = MemoryWorkers(database, endings)
        self.leader: MemoryLeader = MemoryLeader(database)
        self.limits: MemoryLimits = MemoryLimits(database)
        self.maintenance: MemoryMaintenance = MemoryMaintenance(database)
        self.queues: MemoryQueues = MemoryQueues(database)
        self.schedules: MemorySchedules = MemorySchedules(database)
        self.admin: MemoryAdmin = MemoryAdmin(database)
        self.orders: MemoryActions = MemoryActions(database, self.jobs)
        self.flows: MemoryFlows = MemoryFlows(database, flows, self.orders)
        self.journal: MemoryJournal = MemoryJournal(database)
        self.moving: MemoryCopy = MemoryCopy(database)

    @property
    def timings(self) -> Timings:
        return self._db.timings

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
        with self._db.view():
            return {"durability": "none", "jobs": len(self._db.rows)}

    def prove_dead(self, worker: WorkerStart) -> bool:  # noqa: ARG002 -- nothing is ever proven
        return False

    def hold_worker_lock(self, worker: str) -> tuple[str, int, int]:  # noqa: ARG002 -- no lock
        return "", 0, 0

    def release_worker_lock(self, worker: str) -> None:
        """Do nothing: there is no lock."""

    async def now(self) -> datetime:
        return self._db.clock.now()

    async def close(self) -> None:
        self._wakeups.close()
