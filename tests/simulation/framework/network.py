"""Between a simulated process and its store: calls that take time and fail, and wake-ups."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, cast

from tests.simulation.framework.exact_hints import ExactHints, ExactHub
from tests.simulation.framework.history import Ledger
from tests.simulation.framework.loop import SimLoop
from tests.simulation.framework.process import SimProcess
from tests.simulation.world.faults import Faults, Health
from windlass._core.flows.flow import NewFlow
from windlass._core.job.job import JobId, NewJob
from windlass._core.job.state import TERMINAL, State
from windlass._core.job.unique import OnConflict
from windlass._storage.protocol.actions import (
    ActionResult,
    ActionStore,
    AuditNote,
    Cancel,
    Delete,
    Discard,
    Edit,
    JobAction,
    Requeue,
    RunNow,
)
from windlass._storage.protocol.flows import StartedFlow
from windlass._storage.protocol.jobs import CancelAnswer, ClaimReply, Inserted
from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.wakeups import Topic, WorkHints
from windlass._storage.protocol.workers import WorkerStart, WorkerState
from windlass._storage.shared.heartbeat_channel import SharedHeartbeatChannel
from windlass._storage.shared.subscribers import SharedWorkHints
from windlass.errors import StorageUnavailable

__all__ = ["ECHOING", "READING", "WAKING", "Hub", "Line", "SimStorage", "Surroundings", "away"]

Method = Callable[..., Awaitable[Any]]

# Operations that may come late or twice. The switches of queues are not among them: a late pause
# after its resume is what was asked for, and would keep the world waiting for ever.
ECHOING = frozenset(
    f"{store}.{name}"
    for store, names in {
        "jobs": "insert claim apply report cancel outlook active settled",
        "workers": "register beat bury bury_overdue overdue orphans leave cancel_requests workers"
        " live",
        "leader": "lead resign",
        "maintenance": "promote next_due expire",
        "queues": "queues",
        "schedules": "rows due write declare",
        "admin": "get find counts",
        "orders": "requeue discard cancel run_now delete edit",
        "journal": "append_logs logs events",
        "flows": "start settle act members find graph",
    }.items()
    for name in names.split()
)

# Operations after which others may have something to do.
WAKING = frozenset(
    f"{store}.{name}"
    for store, names in {
        "jobs": "insert apply cancel",
        "workers": "leave",
        "limits": "define reset",
        "maintenance": "promote expire",
        "queues": "change warm",
        "schedules": "write",
        "admin": "resume",
        "orders": "requeue discard cancel run_now delete edit insert",
        "flows": "start settle act",
    }.items()
    for name in names.split()
)

# Operations that change nothing.
READING = frozenset(
    f"{store}.{name}"
    for store, names in {
        "jobs": "outlook active settled",
        "workers": "overdue orphans cancel_requests workers live",
        "limits": "specs states",
        "maintenance": "next_due",
        "queues": "queues",
        "schedules": "rows due",
        "admin": "get find history counts rollups errors",
        "orders": "audits",
        "journal": "logs events",
        "moving": "dump",
        "flows": "members find graph",
        "storage": "now health",
    }.items()
    for name in names.split()
)


_STORES = (
    *("jobs", "workers", "leader", "limits", "maintenance", "queues", "schedules", "admin"),
    *("journal", "moving"),
)
_ORDERS = {
    Requeue: "requeue",
    Discard: "discard",
    Cancel: "cancel",
    RunNow: "run_now",
    Delete: "delete",
    Edit: "edit",
}
_REPLACING = {OnConflict.REPLACE, OnConflict.REPLACE_ARGUMENTS, OnConflict.REPLACE_DUE}


def away(why: str) -> StorageUnavailable:
    """The store did not answer as it should."""
    return StorageUnavailable(f"simulated: {why}")


class Surroundings:
    """What the parts of one simulated world share."""

    def __init__(
        self,
        loop: SimLoop,
        ledger: Ledger,
        faults: Faults,
        health: Health,
        *,
        flows: bool = False,
    ) -> None:
        self.loop = loop
        self.ledger = ledger
        self.faults = faults
        self.health = health
        self.hub: Hub = Hub(loop, faults)
        self.echoes = 0
        """Calls that will still be executed, though nobody waits for them any more."""
        self.identities: dict[SimProcess, str] = {}
        """The id each worker process was last told it goes by."""
        self.flows = flows
        """Whether there are flows in this world."""


class Hub:
    """Tells the processes that something changed; some words get lost, and many become one."""

    def __init__(self, loop: SimLoop, faults: Faults) -> None:
        self._loop = loop
        self._faults = faults
        self._ears: list[_Ear] = []
        self.exact: ExactHub = ExactHub(loop, faults)

    def subscribe(self, process: SimProcess, callback: Callable[[], object]) -> Callable[[], None]:
        """Call back, as this process, after changes."""
        ear = _Ear(process, callback)
        self._ears.append(ear)

        def undo() -> None:
            if ear in self._ears:
                self._ears.remove(ear)

        return undo

    def wake(self) -> None:
        """Something changed."""
        self.exact.wake()
        now = self._loop.time()
        for ear in [*self._ears]:
            if not ear.process.alive:
                self._ears.remove(ear)
            elif not ear.called and self._faults.hears():
                ear.called = True
                self._loop.call_at(
                    now + self._faults.hint_delay(), ear.hear, context=ear.process.context.copy()
                )


class _Ear:
    __slots__ = ("callback", "called", "process")

    def __init__(self, process: SimProcess, callback: Callable[[], object]) -> None:
        self.process = process
        self.callback = callback
        self.called = False

    def hear(self) -> None:
        self.called = False
        self.callback()


class Line(Protocol):
    """How one process's calls reach the store."""

    async def call(self, op: str, method: Method, *args: Any, **options: Any) -> Any:
        """Carry out one call, or fail as the faults will have it."""
        ...


class SimStorage:
    """A storage as one simulated process sees it."""

    def __init__(
        self,
        real: Storage,
        line: Line,
        process: SimProcess,
        around: Surroundings,
        *,
        exact: bool = False,
    ) -> None:
        """``exact``: each hint about jobs goes to one worker, as on a server; else to all."""
        self.real = real
        self._exact = exact
        self._process = process
        self._around = around
        for name in _STORES:
            setattr(self, name, _Store(getattr(real, name), name, line))
        # What the caller was told, noted when it was told.
        self.jobs: Any = _Told(
            self.jobs, insert=self._inserted, claim=self._claimed, cancel=self._cancelled
        )
        self.workers: Any = _Told(self.workers, register=self._registered)
        self.orders: _Orders = _Orders(real.orders, "orders", line)
        self.flows: Any = NoFlows()
        if around.flows:
            self.flows = _Told(_Store(real.flows, "flows", line), start=self._flows_started)
        self._line = line

    def _flows_started(self, flows: Sequence[NewFlow], answers: Sequence[StartedFlow]) -> None:
        ledger = self._around.ledger
        for flow, answer in zip(flows, answers, strict=True):
            if answer.id not in ledger.asked_flows:
                ledger.object("F3 flows", f"{flow.id} was refused for the unknown {answer.id}")
            elif answer.created:
                ledger.acknowledged_flows.add(answer.id)

    def _inserted(self, jobs: Sequence[NewJob], answers: Sequence[Inserted]) -> None:
        ledger = self._around.ledger
        ledger.acknowledged.update(answer.id for answer in answers)
        for job, answer in zip(jobs, answers, strict=True):
            if answer.created:
                continue
            if answer.replaced and (job.unique is None or job.unique.on_conflict not in _REPLACING):
                ledger.object("17 unique", f"{answer.id} took over {job.id}, which asked for none")
            key, holder = job.unique and job.unique.key, ledger.asked.get(answer.id)
            if holder is None or holder.unique is None or holder.unique.key != key:
                ledger.object("17 unique", f"{job.id} was refused for {answer.id} without {key!r}")

    def _claimed(self, worker: str, reply: ClaimReply) -> None:
        """14: what a claim brings comes in the order in which it is to be run."""
        asked = self._around.ledger.asked
        places = [(asked[one.claim.job].priority, one.due, one.claim.seq) for one in reply.jobs]
        queues = [one.queue for one in reply.jobs]
        for n in range(1, len(places)):
            if queues[n] == queues[n - 1] and places[n] < places[n - 1]:
                self._around.ledger.object("14 order", f"{worker} was given {places}")

    def _cancelled(self, ids: Sequence[JobId], answers: Sequence[CancelAnswer]) -> None:
        """19: who is told that a job is cancelled, or has ended, can rely on it."""
        ledger = self._around.ledger
        for job, answer in zip(ids, answers, strict=True):
            view = ledger.jobs.get(job)
            # A member may have come back with its flow.
            if view is None or view.flow or ledger.last_op.get(job) == "requeue":
                continue
            if (answer is CancelAnswer.CANCELLED and view.state is not State.CANCELLED) or (
                answer is CancelAnswer.TOO_LATE and view.state not in TERMINAL
            ):
                ledger.object("19 cancel", f"{job} is {view.state}, and the answer was {answer}")

    def _registered(self, start: WorkerStart, _: datetime) -> None:
        self._around.identities[self._process] = start.id

    @property
    def transactions(self) -> None:
        return None

    @property
    def wakeups(self) -> SimStorage:
        return self

    def subscribe(
        self, callback: Callable[[], None], _topic: Topic = Topic.ANY
    ) -> Callable[[], None]:
        """As in a file that is watched: hints do not say what they are about."""
        return self._around.hub.subscribe(self._process, callback)

    def work(self, callback: Callable[[], bool], _queues: Collection[str]) -> WorkHints:
        """The same: a hint does not say which queues it is about."""
        if self._exact:
            return ExactHints(self._around.hub.exact, self._process, callback)
        return SharedWorkHints(self._around.hub.subscribe(self._process, callback))

    @property
    def shared(self) -> bool:
        return True

    def describe(self) -> str:
        return f"simulated {self.real.describe()}"

    def prove_dead(self, worker: WorkerStart) -> bool:
        return self.real.prove_dead(worker)

    def hold_worker_lock(self, worker: str) -> tuple[str, int, int]:
        ledger, former = self._around.ledger, self._around.identities.get(self._process, "")
        row = ledger.workers.get(former)
        if row is not None and row.state is WorkerState.GONE:
            ledger.object("9 worker edges", f"{former} said goodbye and comes back as {worker}")
        return self.real.hold_worker_lock(worker)

    def release_worker_lock(self, worker: str) -> None:
        self.real.release_worker_lock(worker)

    async def health(self) -> Mapping[str, float | str]:
        health: Mapping[str, float | str] = await self._line.call(
            "storage.health", self.real.health
        )
        return health

    async def now(self) -> datetime:
        now: datetime = await self._line.call("storage.now", self.real.now)
        return now

    async def close(self) -> None:
        await self.real.close()


class NoFlows:
    """The flows of a world that has none. Looking for them takes no time there, so that its story
    does not depend on how often a worker looks.
    """

    async def settle(self, limit: int) -> int:
        return 0

    async def prune(self, **wanted: Any) -> int:
        return 0


class _Store:
    """A store whose methods go down a line."""

    def __init__(self, real: Any, name: str, line: Line) -> None:
        self._real = real
        self._name = name
        self._line = line

    def pulse(self) -> SharedHeartbeatChannel:
        """A heartbeat goes down the same line: in a world without threads there is one loop."""
        return SharedHeartbeatChannel(cast("Any", self))

    def __getattr__(self, name: str) -> Method:
        call = functools.partial(self._line.call, f"{self._name}.{name}", getattr(self._real, name))
        setattr(self, name, call)
        return call


class _Orders(_Store):
    """Orders go down the line under the name of what is ordered."""

    async def order(
        self, order: JobAction, ids: Sequence[JobId], note: AuditNote
    ) -> Sequence[ActionResult]:
        op = f"orders.{_ORDERS[type(order)]}"
        orders: ActionStore = self._real
        answers: Sequence[ActionResult] = await self._line.call(op, orders.order, order, ids, note)
        return answers


class _Told:
    """A store that takes note of the answers to some of its methods."""

    def __init__(self, store: Any, **notes: Callable[[Any, Any], None]) -> None:
        self._store = store
        for name, note in notes.items():
            setattr(self, name, self._noting(getattr(store, name), note))

    def _noting(self, method: Method, note: Callable[[Any, Any], None]) -> Method:
        async def call(*args: Any, **options: Any) -> Any:
            answer = await method(*args, **options)
            note(args[0], answer)
            return answer

        return call

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        setattr(self, name, found)
        return found
