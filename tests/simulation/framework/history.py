"""What truly happened in a simulated world: every change of every row, and every handler's run.

The stages (`memory_stage`, `sqlite_stage`) report what the store did at the instant it did it,
whatever the caller was told about it. The invariants listen.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from tests.simulation.framework.loop import SimLoop
from tests.simulation.framework.process import SimProcess
from windlass._core.flows.flow import NewFlow
from windlass._core.job.event import Event
from windlass._core.job.job import FlowId, FlowPlace, JobId, LimitUse, NewJob
from windlass._core.job.state import State
from windlass._core.job.transition import Transition
from windlass._core.limits.breaker import BreakerState
from windlass._storage.protocol.flows import FlowGraph
from windlass._storage.protocol.workers import WorkerState
from windlass.testing._clock import LoopClock

__all__ = [
    "Ask",
    "Body",
    "Change",
    "JobView",
    "Ledger",
    "QueueView",
    "Rule",
    "Violation",
    "WorkerView",
]


Ask = Callable[..., Awaitable[Any]]


class Violation(AssertionError):
    """The system under test broke a promise."""


class JobView(msgspec.Struct, frozen=True):
    """The parts of a stored job that change."""

    seq: int
    state: State
    claim_number: int
    attempt: int
    max_attempts: int
    due: datetime
    worker: str
    started_at: datetime
    cancel_requested: bool
    lost: int
    solo: bool
    ended_number: int
    ended_verb: str
    ended_by: str
    expires_at: datetime | None
    progress: str
    payload: bytes
    limits: tuple[LimitUse, ...]
    flow: FlowPlace | None = None
    blocked: bool = False

    def differs(self, asked: NewJob) -> bool:
        """Whether it would run with anything else than this."""
        return self.payload != asked.payload or self.limits != asked.limits


class WorkerView(msgspec.Struct, frozen=True):
    """The parts of a worker's row that change, and its lease."""

    state: WorkerState
    beat: timedelta
    lease: timedelta


class QueueView(msgspec.Struct, frozen=True):
    """What holds for a whole queue."""

    paused: bool = False
    max_running: int | None = None
    cool_until: datetime | None = None
    cool_downs: int = 0


class Change(msgspec.Struct, frozen=True):
    """One row before and after one operation; None: no such row."""

    job: JobId
    before: JobView | None
    after: JobView | None
    at: datetime
    op: str


class Body:
    """One run of a handler's body."""

    __slots__ = (
        *("added", "began", "cools", "ended", "how", "job", "number", "process", "solo", "told"),
        "worker",
    )

    def __init__(
        self, job: JobId, number: int, worker: str, process: SimProcess, began: float
    ) -> None:
        self.job = job
        self.number = number
        self.worker = worker
        self.process = process
        self.began = began
        self.solo = False
        self.added = 0
        """How many jobs it has added to its success."""
        self.cools = False
        """Whether it ends by sending its queue to rest."""
        self.told: float | None = None
        """When it was asked to end."""
        self.ended: float | None = None
        self.how = ""

    @property
    def runs(self) -> bool:
        """Whether it still does something, or would if its process were not paused."""
        return self.ended is None and self.process.alive


class Rule:
    """An invariant: hears of everything, and objects."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger

    def job_changed(self, change: Change) -> None: ...

    def worker_changed(
        self, worker: str, before: WorkerView | None, after: WorkerView | None
    ) -> None: ...

    def queue_changed(self, queue: str, before: QueueView, after: QueueView, op: str) -> None: ...

    def op_ended(self, op: str, changes: Sequence[Change]) -> None: ...

    def body_began(self, body: Body) -> None: ...

    def body_ended(self, body: Body) -> None: ...

    def death(self, process: SimProcess) -> None: ...

    def clock_stepped(self) -> None: ...

    def event_told(self, event: Event) -> None: ...

    async def close(self, ask: Ask) -> None:
        """The world is at rest. ``ask`` calls a store of the real storage by name."""


class Ledger:
    """The rows as they are, who asked for what, and what runs where."""

    def __init__(self, loop: SimLoop, clock: LoopClock) -> None:
        self.loop = loop
        self.clock = clock
        self.asked: dict[JobId, NewJob] = {}
        """Every job anybody ever tried to insert."""
        self.causes: dict[JobId, tuple[JobId, int]] = {}
        """The claims whose ends carried a job, by the id of that job."""
        self.acknowledged: set[JobId] = set()
        """Those whose producer was told that they are stored."""
        self.unheard: set[JobId] = set()
        """Those that were put into the store itself, where no listener is."""
        self.jobs: dict[JobId, JobView] = {}
        self.deleted: set[JobId] = set()
        self.asked_flows: dict[FlowId, NewFlow] = {}
        """Every flow that a process tried to start."""
        self.added_to: dict[JobId, tuple[FlowId, int]] = {}
        """Jobs of flows that runs added: the added flow, and the number of their part in it."""
        self.acknowledged_flows: set[FlowId] = set()
        self.flows: dict[FlowId, FlowGraph] = {}
        """As they are stored."""
        self.flows_before: dict[FlowId, FlowGraph] = {}
        """As they were before the operation that just ended."""
        self.last_op: dict[JobId, str] = {}
        """What changed each job last."""
        self.workers: dict[str, WorkerView] = {}
        self.owners: dict[str, SimProcess] = {}
        """Which process goes, or went, by a worker's id."""
        self.queues: defaultdict[str, QueueView] = defaultdict(QueueView)
        self.breakers: defaultdict[str, BreakerState] = defaultdict(BreakerState)
        self.latest: datetime = clock.now()
        """The latest instant the clock had shown when it was set to another."""
        self.bodies: dict[tuple[JobId, int], Body] = {}
        self.open_bodies: dict[SimProcess, list[Body]] = {}
        self.violations: list[str] = []
        self.alarm: asyncio.Event = asyncio.Event()
        self.sealed = False
        self.counts: dict[str, int] = {}
        self._first: dict[JobId, NewJob] = {}
        self._changes: list[Change] = []
        self._stirred = False
        self.flows_touched: set[FlowId] = set()
        """Those that the operation has changed, and those whose members it has changed."""
        self.rules: list[Rule] = []
        self._listeners: dict[str, list[Callable[..., None]]] = {}

    # --- judging ------------------------------------------------------------------------------

    def obey(self, rules: Sequence[Rule]) -> None:
        """Hold the world to these."""
        self.rules = [*rules]
        for event in [name for name in vars(Rule) if not name.startswith("_")]:
            self._listeners[event] = self._listening(event)

    def _listening(self, event: str) -> list[Callable[..., None]]:
        return [
            getattr(rule, event)
            for rule in self.rules
            if getattr(type(rule), event) is not getattr(Rule, event)
        ]

    def _tell(self, event: str, *told: Any) -> None:
        for listener in self._listeners.get(event, ()):
            listener(*told)

    def object(self, rule: str, what: str) -> None:
        """A promise was broken."""
        if not self.sealed:
            self.loop.trace(f"VIOLATION of {rule}: {what}")
            self.violations.append(f"{rule}: {what}")
            self.alarm.set()

    def count(self, what: str, more: int = 1) -> None:
        """Count something for the report."""
        self.counts[what] = self.counts.get(what, 0) + more

    def step_clock(self, seconds: float) -> None:
        """Set the store's wall clock forwards or backwards; no time passes."""
        self.loop.trace(f"the clock is set by {seconds} s")
        self.count("clock set")
        now = self.clock.now()
        self.latest = max(self.latest, now)
        self.clock.jump(now + timedelta(seconds=seconds))
        self._tell("clock_stepped")

    # --- what the stages report ---------------------------------------------------------------

    def wishes(self, op: str, args: tuple[Any, ...]) -> None:
        """Somebody is about to ask the store for this."""
        if op in {"jobs.insert", "orders.insert"}:
            for new in args[0]:
                self._wish(new)
        elif op == "schedules.write":
            for write in args[0]:
                for new in write.jobs:
                    self._wish(new)
        elif op == "flows.start":
            for flow in args[0]:
                self.asked_flows.setdefault(flow.id, flow)
                self._wish_all(flow.new_jobs)
        elif op == "flows.add":
            self._wish_all(args[1].new_jobs)
        elif op == "jobs.apply":
            for one in args[0]:
                self._wish_to_end(one)

    def _wish_to_end(self, one: Transition) -> None:
        for new in one.new_jobs:
            self._wish(new)
            self.causes[new.id] = (one.claim.job, one.claim.number)
        for flow in one.flows:
            self.asked_flows.setdefault(flow.id, flow)
            self.added_to.update({new.id: (flow.id, part) for part, new in flow.jobs})

    def _wish_all(self, jobs: Iterable[NewJob]) -> None:
        for new in jobs:
            self._wish(new)

    def _wish(self, new: NewJob) -> None:
        # A repeat asks for what it asked for at first, whatever the job has taken over since.
        self.asked.setdefault(new.id, new)
        self._first.setdefault(new.id, new)

    def job(self, job: JobId, after: JobView | None, op: str) -> None:
        """A job's row may have changed."""
        before = self.jobs.get(job)
        if before == after:
            return
        if after is None:
            del self.jobs[job]
            self.deleted.add(job)
        else:
            self.jobs[job] = after
            if before is None and job in self.deleted:
                # Kept for no time at all, so that a late repeat is taken for the first. It is
                # another job, which counts from one again.
                self.bodies = {key: body for key, body in self.bodies.items() if key[0] != job}
                self.asked[job] = self._first[job]
        self.last_op[job] = op
        change = Change(job, before, after, self.clock.now(), op)
        self._changes.append(change)
        self.flows_touched.update(view.flow.flow for view in (before, after) if view and view.flow)
        self.loop.trace(_told(change))
        self._tell("job_changed", change)
        asked = self.asked.get(job)
        if after is not None and asked is not None and after.differs(asked):
            # From now on it is held to what it took over in the place of what it asked for.
            self.asked[job] = msgspec.structs.replace(
                asked, payload=after.payload, limits=after.limits
            )

    def op_ended(self, op: str) -> None:
        """The rows are as the operation left them."""
        if self._changes or self._stirred:
            changes, self._changes, self._stirred = self._changes, [], False
            self._tell("op_ended", op, changes)
            self.flows_touched = set()

    def see_flows(self, flows: Mapping[FlowId, FlowGraph], op: str) -> None:
        """Flows may have changed."""
        self.flows_before, self.flows = self.flows, {**flows}
        for flow in {**self.flows_before, **self.flows}:  # a set has another order in each run
            before, after = self.flows_before.get(flow), self.flows.get(flow)
            if before != after:
                self._stirred = True
                self.flows_touched.add(flow)
                state = "deleted" if after is None else after.flow.state.value
                if before is None or after is None or before.flow.state is not after.flow.state:
                    self.loop.trace(f"{op}: flow {flow[-6:]} {state}")

    def worker(self, worker: str, after: WorkerView | None) -> None:
        """A worker's row may have changed."""
        before = self.workers.get(worker)
        if before == after:
            return
        if after is None:
            del self.workers[worker]
        else:
            self.workers[worker] = after
        if before is None or after is None or before.state is not after.state:
            state = "no row" if after is None else after.state.value
            self.loop.trace(f"worker {worker} {state}")
        self._tell("worker_changed", worker, before, after)

    def queue(self, queue: str, after: QueueView, op: str) -> None:
        """What holds for a queue may have changed."""
        before = self.queues[queue]
        if before != after:
            self.queues[queue] = after
            self._stirred = True
            self.loop.trace(f"{op}: queue {queue} {after}")
            self._tell("queue_changed", queue, before, after, op)

    def breaker(self, gate: str, after: BreakerState, op: str) -> None:
        """What is stored of a breaker may have changed."""
        if self.breakers[gate] != after:
            self.breakers[gate] = after
            self._stirred = True
            self.loop.trace(f"{op}: {gate} {after}")

    # --- what the handlers and the processes report -------------------------------------------

    def began(self, body: Body) -> None:
        """A handler's first line runs."""
        if self.sealed:
            return
        self.loop.trace(f"start {body.job[-6:]}/{body.number} as {body.worker}")
        self._tell("body_began", body)
        self.bodies[body.job, body.number] = body
        self.open_bodies.setdefault(body.process, []).append(body)

    def told(self, event: Event) -> None:
        """A listener in some process was called."""
        if not self.sealed:
            self._tell("event_told", event)

    def heard(self, job: JobId, failed: JobId, task: str, attempt: int) -> None:
        """A follow-up job was told of a failure."""
        cause, asked = self.causes.get(job), self.asked.get(failed)
        if cause is None or asked is None or (cause[0], asked.task) != (failed, task):
            self.object("20 follow-ups", f"{job} heard of {failed}/{attempt} of {task}: {cause}")

    def ended(self, body: Body, how: str) -> None:
        """A handler's last line ran."""
        if self.sealed or not body.process.alive:
            return
        body.ended, body.how = self.loop.time(), how
        self.open_bodies[body.process].remove(body)
        self.loop.trace(f"end {body.job[-6:]}/{body.number}: {how}")
        self._tell("body_ended", body)

    def death(self, process: SimProcess) -> None:
        """A process is gone, however it went."""
        if not self.sealed:
            self._tell("death", process)
            self.open_bodies.pop(process, None)

    def running_in(self, process: SimProcess) -> Sequence[Body]:
        """The bodies this process is in the middle of."""
        return self.open_bodies.get(process, ())


def _told(change: Change) -> str:
    after = change.after
    if after is None:
        return f"{change.op}: {change.job[-6:]} deleted"
    words = f"{change.op}: {change.job[-6:]} {after.state.value} #{after.claim_number}"
    words += f" attempt {after.attempt}/{after.max_attempts}"
    if after.state is State.RUNNING:
        return f"{words} at {after.worker}{' CANCEL' if after.cancel_requested else ''}"
    if after.ended_number == after.claim_number and after.claim_number:
        words += f" by {after.ended_verb} of {after.ended_by}"
    return words
