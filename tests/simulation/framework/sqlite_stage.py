"""One SQLite file in a simulated world: the production statements, without the thread hop.

Every process has its own connections to the one file. A write runs at one instant on the loop
that asked for it, after the time and with the faults that the seed gives it. Temporary triggers
report what each transaction changed, whatever its caller is told.
"""

# The operating system knows what is inside a process that died, and closes it.

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import apsw

from tests.simulation.framework.history import JobView, QueueView, WorkerView
from tests.simulation.framework.network import (
    READING,
    WAKING,
    Method,
    SimStorage,
    Surroundings,
    away,
)
from tests.simulation.framework.process import SimProcess
from tests.simulation.world.faults import Fate, Verdict
from windlass._core.job.job import FlowId, FlowPlace, JobId
from windlass._core.limits.breaker import BreakerState
from windlass._core.values.instants import EPOCH, from_us
from windlass._storage.protocol.flows import FlowGraph
from windlass._storage.protocol.workers import WorkerState
from windlass._storage.sqlite import SqliteStorage, open_sqlite
from windlass._storage.sqlite.flows.flows import read_graph
from windlass._storage.sqlite.flows.parts import BLOCKED
from windlass._storage.sqlite.io.connection import ConnectionSource
from windlass._storage.sqlite.io.guards import FileGuard
from windlass._storage.sqlite.io.inline_writer import InlineWriter
from windlass._storage.sqlite.io.rows import STATES, WAITING, fetch, limits_of
from windlass._storage.sqlite.io.transactor import FailedOp, Op, Transactor
from windlass._storage.sqlite.io.writer import DEADLINE, Urgency
from windlass._storage.timings import Durations

__all__ = ["SqliteStage"]

T = TypeVar("T")

_STALL = 0.5
_FRESH: list[bytes] = []
"""An empty database: making the tables takes longer than copying them."""
_OP: ContextVar[str] = ContextVar("simulated operation", default="storage.other")

_WATCH = """
CREATE TEMP TRIGGER sim_job_new AFTER INSERT ON main.jobs BEGIN
    SELECT sim_job(NEW.id, NEW.seq, NEW.state, NEW.claim_number, NEW.attempt, NEW.max_attempts,
                   NEW.due, NEW.worker, NEW.started_at, NEW.cancel_requested, NEW.lost, NEW.solo,
                   NEW.ended_number, NEW.ended_verb, NEW.ended_by, NEW.expires_at,
                   NEW.progress_note, NEW.payload, NEW.limits, NEW.part, NEW.flow_state); END;
CREATE TEMP TRIGGER sim_job_changed AFTER UPDATE ON main.jobs BEGIN
    SELECT sim_job(NEW.id, NEW.seq, NEW.state, NEW.claim_number, NEW.attempt, NEW.max_attempts,
                   NEW.due, NEW.worker, NEW.started_at, NEW.cancel_requested, NEW.lost, NEW.solo,
                   NEW.ended_number, NEW.ended_verb, NEW.ended_by, NEW.expires_at,
                   NEW.progress_note, NEW.payload, NEW.limits, NEW.part, NEW.flow_state); END;
CREATE TEMP TRIGGER sim_job_gone AFTER DELETE ON main.jobs BEGIN
    SELECT sim_job_gone(OLD.id); END;
CREATE TEMP TRIGGER sim_worker_new AFTER INSERT ON main.workers BEGIN
    SELECT sim_worker(NEW.id, NEW.state, NEW.beat_since_boot, NEW.lease); END;
CREATE TEMP TRIGGER sim_worker_changed AFTER UPDATE ON main.workers BEGIN
    SELECT sim_worker(NEW.id, NEW.state, NEW.beat_since_boot, NEW.lease); END;
CREATE TEMP TRIGGER sim_queue_new AFTER INSERT ON main.queues BEGIN
    SELECT sim_queue(NEW.name, NEW.paused, NEW.max_running, NEW.cool_until, NEW.cool_downs); END;
CREATE TEMP TRIGGER sim_queue_changed AFTER UPDATE ON main.queues BEGIN
    SELECT sim_queue(NEW.name, NEW.paused, NEW.max_running, NEW.cool_until, NEW.cool_downs); END;
CREATE TEMP TRIGGER sim_queue_gone AFTER DELETE ON main.queues BEGIN
    SELECT sim_queue(OLD.name, 0, NULL, NULL, 0); END;
CREATE TEMP TRIGGER sim_gate_changed AFTER UPDATE OF failures, opened, open_until ON main.gates
BEGIN SELECT sim_gate(NEW.gate, NEW.failures, NEW.opened, NEW.open_until); END;
CREATE TEMP TRIGGER sim_gate_new AFTER INSERT ON main.gates WHEN NEW.failures > 0
BEGIN SELECT sim_gate(NEW.gate, NEW.failures, NEW.opened, NEW.open_until); END;
CREATE TEMP TRIGGER sim_gate_gone AFTER DELETE ON main.gates WHEN OLD.failures > 0
BEGIN SELECT sim_gate(OLD.gate, 0, 0, NULL); END;
CREATE TEMP TRIGGER sim_flow_new AFTER INSERT ON main.flows BEGIN SELECT sim_flow(); END;
CREATE TEMP TRIGGER sim_flow_changed AFTER UPDATE ON main.flows BEGIN SELECT sim_flow(); END;
CREATE TEMP TRIGGER sim_flow_gone AFTER DELETE ON main.flows BEGIN SELECT sim_flow(); END;
CREATE TEMP TRIGGER sim_part_changed AFTER UPDATE ON main.parts BEGIN SELECT sim_flow(); END;
"""
_ALL_JOBS = """
SELECT id, seq, state, claim_number, attempt, max_attempts, due, worker, started_at,
       cancel_requested, lost, solo, ended_number, ended_verb, ended_by, expires_at, progress_note,
       payload, limits, part, flow_state
  FROM jobs
"""
_ALL_PARTS = """
SELECT parts.id, lower(hex(flows.id)), parts.number, coalesce(parts.last_seq, flows.last_seq)
  FROM parts JOIN flows ON flows.number = parts.flow
"""
_ALL_FLOWS = "SELECT lower(hex(id)) FROM flows WHERE going = 0 ORDER BY number"


class _Flows:
    """All flows after an operation."""

    def __init__(self, connection: apsw.Connection | None = None) -> None:
        self.graphs: dict[FlowId, FlowGraph] = {}
        self._places: dict[int, tuple[FlowId, int, int]] = {}
        if connection is None:
            return
        for (flow,) in fetch(connection, _ALL_FLOWS):
            graph = read_graph(connection, FlowId(flow))
            if graph is not None:
                self.graphs[FlowId(flow)] = graph
        for part, flow, number, last in fetch(connection, _ALL_PARTS):
            self._places[part] = FlowId(flow), number, last

    def place(self, part: int, seq: int) -> FlowPlace:
        """Return the place of a job."""
        flow, number, last = self._places[part]
        return FlowPlace(flow, number, added=seq > last)


def _view(row: tuple[Any, ...], flows: _Flows) -> JobView:
    seq, state, number, attempt, most, due, worker, started_at, cancel, lost, solo = row[:11]
    ended_number, ended_verb, ended_by, expires_at, note, payload, limits = row[11:18]
    part, flow_state = row[18:]
    return JobView(
        seq,
        STATES[state],
        number,
        attempt,
        most,
        from_us(due),
        worker or "",
        EPOCH if started_at is None else from_us(started_at),
        bool(cancel),
        lost,
        bool(solo),
        ended_number or 0,
        ended_verb or "",
        ended_by or "",
        None if expires_at is None else from_us(expires_at),
        note or "",
        payload,
        () if limits is None else limits_of(limits),
        None if part is None else flows.place(part, seq),
        flow_state == BLOCKED,
    )


class _Notes:
    """What one operation changed, each row as it was left."""

    __slots__ = (
        *("breakers", "flows", "flows_changed", "jobs", "op", "placed", "queues", "workers"),
    )

    def __init__(self, op: str) -> None:
        self.op = op
        self.jobs: dict[bytes, tuple[Any, ...] | None] = {}
        self.placed: dict[bytes, tuple[Any, ...]] = {}
        """Members as they were placed: a claim may start them at once."""
        self.workers: dict[str, WorkerView] = {}
        self.queues: dict[str, QueueView] = {}
        self.breakers: dict[str, BreakerState] = {}
        self.flows_changed = False
        self.flows: _Flows | None = None
        """As they are after the operation; None: as before it."""


class _Recorder:
    """Takes notes inside the transactions, and passes on what was committed."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self._group: list[_Notes] = []
        self._notes = _Notes("")
        self.flows: _Flows = _Flows()

    def watch(self, connection: apsw.Connection) -> None:
        """Hear of everything this connection changes."""
        hearers: list[tuple[str, int, Any]] = [
            ("sim_job", 21, self._job),
            ("sim_job_gone", 1, self._job_gone),
            ("sim_worker", 4, self._worker),
            ("sim_queue", 5, self._queue),
            ("sim_gate", 4, self._gate),
            ("sim_flow", 0, self._flow),
        ]
        for name, arguments, hear in hearers:
            connection.create_scalar_function(name, hear, arguments)
        connection.execute(_WATCH).fetchall()

    def _job(self, job: bytes, *row: Any) -> None:
        self._notes.jobs[job] = row
        state, part, flow_state = row[1], row[-2], row[-1]
        if part is not None and (state, flow_state) == (WAITING, None):
            self._notes.placed[job] = row

    def _job_gone(self, job: bytes) -> None:
        self._notes.jobs[job] = None

    def _worker(self, worker: str, state: str, beat: int, lease: int) -> None:
        self._notes.workers[worker] = WorkerView(
            WorkerState(state), timedelta(microseconds=beat), timedelta(microseconds=lease)
        )

    def _queue(
        self, queue: str, paused: int, most: int | None, until: int | None, cool_downs: int
    ) -> None:
        cool_until = None if until is None else from_us(until)
        self._notes.queues[queue] = QueueView(bool(paused), most, cool_until, cool_downs)

    def _gate(self, gate: str, failures: int, opened: int, until: int | None) -> None:
        open_until = None if until is None else from_us(until)
        self._notes.breakers[gate] = BreakerState(failures, opened, open_until)

    def _flow(self) -> None:
        self._notes.flows_changed = True

    def noted(self, op: Op, name: str) -> Op:
        """The same op, with notes taken of what it does; one that fails did nothing."""

        def run(connection: apsw.Connection, now: int) -> Any:
            self._notes = _Notes(name)
            result = op(connection, now)
            if self._notes.flows_changed:
                self._notes.flows = _Flows(connection)
            self._group.append(self._notes)
            return result

        return run

    def begin(self) -> None:
        """A transaction begins."""
        self._group = []

    def commit(self) -> None:
        """It is committed: tell."""
        ledger, group = self._around.ledger, self._group
        for notes in group:
            name = notes.op.partition(".")[2]
            for worker, seen in notes.workers.items():
                ledger.worker(worker, seen)
            for queue, held in notes.queues.items():
                ledger.queue(queue, held, name)
            for gate, state in notes.breakers.items():
                ledger.breaker(gate, state, name)
            self.flows = notes.flows or self.flows
            ledger.see_flows(self.flows.graphs, name)
            for uid, row in [*notes.placed.items(), *notes.jobs.items()]:
                job = JobId(uid.hex())
                if row is not None or job in ledger.jobs:
                    ledger.job(job, None if row is None else _view(row, self.flows), name)
            ledger.op_ended(name)
        if any(notes.op in WAKING for notes in group):
            self._around.hub.wake()


class _Writer:
    """The inline writer, with notes taken of what it does."""

    def __init__(
        self,
        transactor: Transactor,
        timings: Durations,
        disk: _Disk | None,
        recorder: _Recorder,
    ) -> None:
        self._recorder = recorder
        self._inner = InlineWriter(_WatchedTransactor(transactor, recorder), timings, disk)
        self.transactor = self._inner.transactor
        self.run_here = self._inner.run_here
        self.close = self._inner.close

    def submit(
        self,
        op: Callable[[apsw.Connection, int], T],
        urgency: Urgency = Urgency.NORMAL,
        *,
        timeout: timedelta = DEADLINE,
        told: Callable[[T], None] | None = None,
    ) -> asyncio.Future[T]:
        noted = self._recorder.noted(op, _OP.get())
        return self._inner.submit(noted, urgency, timeout=timeout, told=told)


class _WatchedTransactor(Transactor):
    """Runs groups on a source whose connections report what they change."""

    def __init__(self, inner: Transactor, recorder: _Recorder) -> None:
        super().__init__(_Watched(inner.source, recorder), inner.clock)
        self._recorder = recorder

    def run(self, ops: Iterable[Op], *, patience: float = 30.0) -> list[Any]:
        self._recorder.begin()
        results = super().run(ops, patience=patience)
        if any(type(result) is not FailedOp for result in results):
            self._recorder.commit()
        return results


class _Watched:
    """A source whose connections report what they change."""

    def __init__(self, source: ConnectionSource, recorder: _Recorder) -> None:
        self._source, self._recorder = source, recorder
        self.path, self.turn, self.close = source.path, source.turn, source.close
        self.checkpoints = source.checkpoints

    @property
    def guard(self) -> FileGuard | None:
        return self._source.guard

    def open(self) -> apsw.Connection:
        connection = self._source.open()
        self._recorder.watch(connection)
        return connection


class _Disk:
    """What one process's groups of writes suffer."""

    def __init__(self, process: SimProcess, around: Surroundings) -> None:
        self._process = process
        self._around = around
        self._fate = Fate(Verdict.FINE, 0.0, 0.0)

    async def before(self, op_count: int) -> None:
        around, loop = self._around, self._around.loop
        asked = loop.time()
        while (cut := around.faults.cut(self._process.name, loop.time())) is not None:
            if cut.victim:
                around.health.impair(self._process, asked, cut.end)
            if not cut.hangs:
                raise self._trouble("no disk")
            await asyncio.sleep(cut.end - loop.time())
        self._fate = fate = around.faults.fate("", may_echo=False)
        if fate.verdict is not Verdict.FINE or fate.there > _STALL:
            now = loop.time()
            around.health.impair(self._process, now, now + fate.there + fate.back)
        await asyncio.sleep(fate.there)
        if fate.verdict is Verdict.REFUSED:
            raise self._trouble("refused")

    async def after(self, op_count: int) -> None:
        if self._fate.back:
            await asyncio.sleep(self._fate.back)
        if self._fate.verdict is Verdict.LOST:
            raise self._trouble("answer lost")

    def _trouble(self, why: str) -> Exception:
        self._around.loop.trace(f"{self._process.name} write: {why}")
        self._around.ledger.count(why)
        return away(why)


class SqliteStage:
    """One file, and the storages that processes have opened on it."""

    proves_death = True

    def __init__(self, around: Surroundings) -> None:
        self.around = around
        memory = Path("/dev/shm")  # noqa: S108 -- a private folder there; syncs cost nothing
        self._folder = tempfile.mkdtemp(prefix="windlass-", dir=memory if memory.is_dir() else None)
        self._recorder = _Recorder(around)
        self._opened: dict[SimProcess | None, list[tuple[SqliteStorage, _Writer]]] = {}
        self._direct: SqliteStorage | None = None

    async def begin(self) -> None:
        """Make the file, and open it for the world itself."""
        file = Path(self._path)
        if not _FRESH:
            plain = await open_sqlite(self._path, make_writer=InlineWriter)
            await plain.close()
            _FRESH.append(file.read_bytes())
        else:
            file.write_bytes(_FRESH[0])
        self._direct = await self._open(None, None)

    @property
    def _path(self) -> str:
        return f"{self._folder}/jobs.db"

    async def _open(self, process: SimProcess | None, disk: _Disk | None) -> SqliteStorage:
        writers: list[_Writer] = []

        def make_writer(transactor: Transactor, timings: Durations) -> _Writer:
            writers.append(_Writer(transactor, timings, disk, self._recorder))
            return writers[0]

        storage = await open_sqlite(
            self._path,
            clock=self.around.ledger.clock,
            durability="normal",
            make_writer=make_writer,
        )
        self._opened.setdefault(process, []).append((storage, writers[0]))
        return storage

    async def open(self, process: SimProcess) -> Any:
        """A storage for this process."""
        storage = await self._open(process, _Disk(process, self.around))
        return SimStorage(storage, _InProcess(process, self.around), process, self.around)

    async def ask(self, op: str, *args: Any, **options: Any) -> Any:
        """Call the store as the world: at once, and without faults."""
        store, _, name = op.partition(".")
        _OP.set(op)
        return await getattr(getattr(self._direct, store), name)(*args, **options)

    def let_go(self, process: SimProcess | None) -> None:
        """Close the files of the dead, which frees their locks; the files stay."""
        for storage, writer in self._opened.pop(process, ()):
            writer.transactor.close()
            storage._db._near.close()
            storage._place.close()  # abandons the locks, which is what a death does

    def close(self) -> None:
        """Leave nothing behind."""
        for process in [*self._opened]:
            self.let_go(process)
        shutil.rmtree(self._folder, ignore_errors=True)

    async def check_mirror(self) -> None:
        """Whatever changed, changed by an operation that was seen."""
        if self._direct is None:
            return
        ledger = self.around.ledger
        rows = self._direct._db.read(lambda connection, _: [*connection.execute(_ALL_JOBS)])
        flows = self._recorder.flows
        for uid, *row in rows:
            job = JobId(uid.hex())
            if ledger.jobs.get(job) != _view(tuple(row), flows):
                ledger.object("9 state edges", f"{job} changed outside every operation")


class _InProcess:
    """Calls of the store in the caller's own process: what is slow or fails is the disk."""

    def __init__(self, process: SimProcess, around: Surroundings) -> None:
        self._process = process
        self._around = around

    async def call(self, op: str, method: Method, *args: Any, **options: Any) -> Any:
        around = self._around
        around.ledger.wishes(op, args)
        if op == "maintenance.tidy":
            return None  # a checkpoint on a thread of its own, which changes nothing anybody sees
        if op in READING:
            # Reading takes no lock and no time; only a missing disk keeps anybody from it.
            cut = around.faults.cut(self._process.name, around.loop.time())
            if cut is not None and not cut.hangs:
                raise away(f"{op}: no disk")
        _OP.set(op)
        return await method(*args, **options)
