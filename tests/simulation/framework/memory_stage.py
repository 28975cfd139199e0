"""The memory store in a simulated world: a server that everybody reaches over a bad network."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextvars import Context, copy_context
from typing import Any

from tests.simulation.framework.history import JobView, QueueView, WorkerView
from tests.simulation.framework.network import (
    ECHOING,
    READING,
    WAKING,
    Method,
    SimStorage,
    Surroundings,
    away,
)
from tests.simulation.framework.process import SimProcess
from tests.simulation.world.faults import Fate, Verdict
from windlass._core.job.job import FlowId, JobId
from windlass._core.limits.breaker import BreakerState
from windlass._storage.memory import MemoryDatabase, MemoryStorage
from windlass._storage.memory.io.rows import JobRow, QueueRow, WorkerRow
from windlass._storage.protocol.flows import FlowGraph

__all__ = ["MemoryStage"]

_STALL = 0.5
"""Calls that take longer are a fault of their own."""
_OF_QUEUES = frozenset(
    {
        *("jobs.claim", "jobs.apply"),
        *("queues.change", "queues.warm", "admin.pause", "admin.resume"),
    }
)
"""What may change whole queues, and breakers: a claim moves them after the clock was set back."""


class MemoryStage:
    """Opens storages for processes, carries out what arrives, and reports what it did."""

    proves_death = False

    def __init__(self, around: Surroundings) -> None:
        self.around = around
        self.outside: Context = copy_context()
        self._db = MemoryDatabase(around.ledger.clock)
        self._direct = MemoryStorage(self._db)

    async def begin(self) -> None:
        """There is nothing to make first."""

    async def open(self, process: SimProcess) -> Any:
        """A storage for this process."""
        line = _Network(self, process)
        return SimStorage(MemoryStorage(self._db), line, process, self.around, exact=True)

    async def ask(self, op: str, *args: Any, **options: Any) -> Any:
        """Call the store as the world: at once, and without faults."""
        store, _, name = op.partition(".")
        result = self.perform(op, getattr(getattr(self._direct, store), name), args, options)
        if isinstance(result, Exception):
            raise result
        return result

    def let_go(self, process: SimProcess) -> None:
        """The dead left nothing open."""

    def close(self) -> None:
        """Nothing is left behind."""

    def perform(self, op: str, method: Method, args: tuple[Any, ...], options: Any) -> Any:
        """Carry it out now; the answer is its value or its error."""
        try:
            method(*args, **options).send(None)  # type: ignore[attr-defined]
        except StopIteration as stop:
            result = stop.value
        except Exception as error:  # noqa: BLE001 -- the caller's to hear
            result = error
        else:
            raise RuntimeError(f"{op} waits for something, and the memory store never does")
        self._observe(op, args, result)
        if op in WAKING:
            self.around.hub.wake()
        return result

    def _observe(self, op: str, args: tuple[Any, ...], result: Any) -> None:
        ledger = self.around.ledger
        if op in READING:
            return
        store, _, name = op.partition(".")
        if store == "workers":
            self._observe_workers(name, args)
        elif op in _OF_QUEUES:
            for queue, seen in [*self._db.queues.items()]:
                ledger.queue(queue, _queue_view(seen), name)
            for gate in {**self._db.gates.breakers, **ledger.breakers}:
                ledger.breaker(gate, self._db.gates.breakers.get(gate, BreakerState()), name)
        ledger.see_flows(self._graphs(), name)
        for job in dict.fromkeys([*self._touched(op, args, result), *self._members()]):
            row = self._db.by_id.get(job)
            if row is not None:
                ledger.job(job, _view(row), name)
            elif job in ledger.jobs:
                ledger.job(job, None, name)
        ledger.op_ended(name)

    def _touched(self, op: str, args: tuple[Any, ...], result: Any) -> Iterable[JobId]:
        ledger = self.around.ledger
        store, _, name = op.partition(".")
        match name:
            case _ if store == "orders" and name != "insert":
                return [*args[1]]
            case "insert":
                answers = () if isinstance(result, Exception) else result
                held = [job for one in answers for job in (one.id, one.expired) if job is not None]
                return dict.fromkeys([*(new.id for new in args[0]), *held])
            case "claim":
                jobs = () if isinstance(result, Exception) else result.jobs
                return [*self._expiring(), *(job.claim.job for job in jobs)]
            case "apply":
                return dict.fromkeys(
                    job for one in args[0] for job in (one.claim.job, *(new.id for new in one.then))
                )
            case "write":
                return [new.id for write in args[0] for new in write.jobs]
            case "leave":
                return [job for job, view in ledger.jobs.items() if view.worker == args[0]]
            case "cancel":
                return [*args[0]]
            case "report":
                return [claim.job for claim, _ in args[0]]
            case "expire" | "prune":
                return [*ledger.jobs]
            case _:
                return ()

    def _members(self) -> list[JobId]:
        """Return the jobs of flows: every operation may settle them."""
        return [row.asked.id for row in self._db.rows.values() if row.flow is not None]

    def _graphs(self) -> dict[FlowId, FlowGraph]:
        return {
            flow: FlowGraph(row.to_record(), [part.to_record() for part in row.parts])
            for flow, row in self._db.flows.by_id.items()
        }

    def _expiring(self) -> list[JobId]:
        ledger = self.around.ledger
        return [job for job, view in ledger.jobs.items() if view.expires_at is not None]

    def _observe_workers(self, name: str, args: tuple[Any, ...]) -> None:
        ledger = self.around.ledger
        named: Iterable[str] = [args[0]] if isinstance(args[0], str) else ()
        if name == "register":
            named = [args[0].id]
        elif name in {"bury", "bury_overdue"}:
            named = args[0]
        for worker in named:
            row = self._db.workers.get(worker)
            if row is not None:
                ledger.worker(worker, _worker_view(row))

    async def check_mirror(self) -> None:
        """Whatever changed, changed by an operation that was seen."""
        ledger = self.around.ledger
        for job, row in self._db.by_id.items():
            if ledger.jobs.get(job) != _view(row):
                ledger.object("9 state edges", f"{job} changed outside every operation")


def _view(row: JobRow) -> JobView:
    ended = row.ended
    return JobView(
        row.seq,
        row.state,
        row.claim_number,
        row.attempt,
        row.max_attempts,
        row.due,
        row.worker,
        row.started_at,
        row.cancel_requested,
        row.lost,
        row.solo,
        0 if ended is None else ended.number,
        "" if ended is None else ended.verb.value,
        "" if ended is None else ended.by,
        row.expires_at,
        "" if row.progress is None else row.progress.note,
        row.asked.payload,
        row.asked.limits,
        row.flow,
        row.blocked,
    )


def _queue_view(row: QueueRow) -> QueueView:
    return QueueView(row.paused, row.settings.max_running, row.cool_until, row.cool_downs)


def _worker_view(row: WorkerRow) -> WorkerView:
    return WorkerView(row.state, row.beat_boot, row.start.lease)


class _Network:
    """One process's connection to the server."""

    def __init__(self, stage: MemoryStage, process: SimProcess) -> None:
        self.stage = stage
        self.process = process

    async def call(self, op: str, method: Method, *args: Any, **options: Any) -> Any:
        around = self.stage.around
        around.ledger.wishes(op, args)
        if op in READING and around.faults.quick_read(self.process.name, around.loop.time()):
            result = self.stage.perform(op, method, args, options)
            if isinstance(result, Exception):
                raise result
            return result
        reaps = op == "jobs.apply" and args[0] and args[0][0].by.startswith("reaper:")
        fate = around.faults.fate("reaping" if reaps else op, may_echo=op in ECHOING)
        reply: asyncio.Future[Any] = around.loop.create_future()
        if fate.verdict is not Verdict.FINE or fate.there > _STALL:
            now, span = around.loop.time(), fate.there + fate.back + fate.echo
            around.health.impair(self.process, now, now + span)
        request = _Request(self, op, (method, args, options), fate, reply)
        request.later(fate.there, request.arrive)
        return await reply


class _Request:
    """One call on its way. It goes on when its caller is dead: it is in the network's hands."""

    __slots__ = ("_call", "_fate", "_invoked", "_loop", "_net", "_op", "_reply")

    def __init__(
        self,
        net: _Network,
        op: str,
        call: tuple[Method, tuple[Any, ...], dict[str, Any]],
        fate: Fate,
        reply: asyncio.Future[Any],
    ) -> None:
        self._net = net
        self._op = op
        self._call = call
        self._fate = fate
        self._reply = reply
        self._loop = net.stage.around.loop
        self._invoked = self._loop.time()

    def later(self, seconds: float, step: Any, *args: Any) -> None:
        if seconds:
            self._loop.call_at(
                self._loop.time() + seconds, step, *args, context=self._net.stage.outside
            )
        else:
            step(*args)

    def arrive(self) -> None:
        around, process, fate = self._net.stage.around, self._net.process, self._fate
        now = self._loop.time()
        cut = around.faults.cut(process.name, now)
        if cut is not None:
            # What hangs in an outage of all sets out anew after it, and may stall once more.
            if cut.victim or (cut.hangs and fate.there > _STALL):
                around.health.impair(process, self._invoked, cut.end + fate.there + fate.back)
            if cut.hangs:
                self.later(cut.end - now + fate.there, self.arrive)
            else:
                self._fail("no connection")
            return
        match fate.verdict:
            case Verdict.REFUSED:
                self._fail("refused")
            case Verdict.LOST:
                self._execute()
                self._fail("answer lost")
            case Verdict.LATE:
                self._echo()
                self._fail("timed out")
            case Verdict.TWICE:
                self._echo()
                self.later(fate.back, self._answer, self._execute())
            case Verdict.FINE:
                self.later(fate.back, self._answer, self._execute())

    def _execute(self) -> Any:
        method, args, options = self._call
        return self._net.stage.perform(self._op, method, args, options)

    def _echo(self) -> None:
        around = self._net.stage.around

        def execute() -> None:
            around.echoes -= 1
            self._execute()

        around.echoes += 1
        self.later(self._fate.echo, execute)

    def _fail(self, why: str) -> None:
        self._loop.trace(f"{self._net.process.name} {self._op}: {why}")
        self._net.stage.around.ledger.count(why)
        self.later(self._fate.back, self._answer, away(f"{self._op}: {why}"))

    def _answer(self, result: Any) -> None:
        if self._reply.done():
            return
        if isinstance(result, Exception):
            self._reply.set_exception(result)
        else:
            self._reply.set_result(result)
