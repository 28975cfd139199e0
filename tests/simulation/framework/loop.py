"""An event loop with virtual time, whose processes can be killed and frozen from outside.

**Time.** When nothing is ready the loop jumps to the next timer. When there is no timer either,
nothing can ever happen again, and it raises ``Deadlock``.

**Processes.** ``PROCESS`` is a context variable, and asyncio hands contexts on by itself, so every
task, timer and done-callback of a simulated process carries it. The loop looks at it before it
runs anything: what belongs to a dead process is put aside for good, what belongs to a paused one
is held until it is resumed. The code under test needs no change and cannot notice.

**Death without last words.** A killed coroutine must not run its ``finally`` blocks, but Python
runs them when it frees a suspended coroutine. So nothing of a dead process is freed while the
simulation lasts: the loop keeps every unfinished task, every dropped callback and every abandoned
async generator. ``close()`` frees them when the log is sealed and no callback can run any more;
errors and warnings from these blocks go nowhere, as the process that would have had them is dead.
They can still touch plain objects that outlive the loop: judge a run inside its main or by its
log, not by such objects afterwards.

**Determinism.** Callbacks run first in, first out, and so do timers of one instant. Tasks and
futures hash by their number, not their address: asyncio keeps them in sets (a task group cancels
in set order). The cyclic garbage collector is off during ``run``: it would run finalisers at
moments that depend on what the interpreter did before. All disorder comes from ``loop.chance``.
"""

# A loop is built from asyncio's private parts, and a process from its loop's.

from __future__ import annotations

import asyncio
import gc
import hashlib
import itertools
import math
import random
import traceback
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from contextvars import Context, copy_context
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, Generic, NamedTuple, TypeVar, TypeVarTuple

from tests.simulation.framework.errors import (
    Deadlock,
    Livelock,
    NotSimulated,
    Overrun,
    SimulationError,
)
from tests.simulation.framework.forbidden_calls import OUTSIDE, refusal
from tests.simulation.framework.killed_processes import close_coroutine, no_collector, silence
from tests.simulation.framework.process import (
    PROCESS,
    ProcessState,
    SimFuture,
    SimProcess,
    SimTask,
    name_of,
    owner_of,
    place_of,
)

__all__ = [
    "PROCESS",
    "Deadlock",
    "Livelock",
    "NotSimulated",
    "Overrun",
    "ProcessState",
    "Result",
    "SimLoop",
    "SimProcess",
    "SimulationError",
    "TraceLine",
    "run",
]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

PATIENCE = 1_000_000  # callbacks at one instant before time is taken to stand still
AFTERMATH = 3600.0  # virtual seconds for the world's tasks to end after they were cancelled
TAIL = 20  # lines of the log shown with a failure


class TraceLine(NamedTuple):
    """One line of the event log."""

    at: float
    process: str
    line: str


@dataclass(frozen=True, slots=True)
class Result(Generic[T]):
    """A run that went well."""

    value: T
    seed: int
    seconds: float
    digest: str
    log: tuple[TraceLine, ...]


class SimLoop(asyncio.BaseEventLoop):
    """The loop of one simulated world. ``run`` makes it, drives it and closes it."""

    # asyncio's own, unknown to its stubs.
    _ready: deque[asyncio.Handle]
    _stopping: bool
    _check_closed: Callable[[], None]
    _check_thread: Callable[[], None]

    def __init__(self, seed: int = 0, limit: float = math.inf) -> None:
        super().__init__()
        self.set_debug(False)
        self.seed = seed
        self.limit: float = limit
        self.chance: random.Random = random.Random(seed)
        self.log: list[TraceLine] = []
        self.processes: list[SimProcess] = []
        self.failures: list[BaseException] = []
        self._now = 0.0
        self._still = 0  # callbacks since time last moved
        self._order = itertools.count()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._tasks: list[SimTask[Any]] = []
        self._crowded = 1000
        self._dead: list[object] = []
        self._generators: dict[int, SimProcess | None] = {}
        self._world = copy_context()
        self._world.run(PROCESS.set, None)
        self._sealed = False
        self._deaf = False

    # --- time and callbacks ------------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        self._check_closed()
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        # Real clocks hardly ever show one instant twice, so real timers fire in the order they
        # were set; a heap of instants alone would shuffle those of one virtual instant.
        heappush(self._timers, (when, next(self._order), timer))
        return timer

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        self._check_thread()  # refuses other threads: their moments do not come from the seed
        return self.call_soon(callback, *args, context=context)

    def call_as(
        self, process: SimProcess | None, callback: Callable[[*Ts], object], *args: *Ts
    ) -> asyncio.Handle:
        """Schedule a callback that belongs to another process, or (None) to the world."""
        context = self._world if process is None else process.context
        return self.call_soon(callback, *args, context=context.copy())

    def _run_once(self) -> None:
        if not self._ready and not self._stopping:
            self._jump()
        while self._timers and self._timers[0][0] <= self._now:
            self._ready.append(heappop(self._timers)[2])
        for _ in range(len(self._ready)):
            self._step(self._ready.popleft())

    def _jump(self) -> None:
        """Move time to the next timer that can still fire."""
        while self._timers:
            when, _, timer = self._timers[0]
            owner = owner_of(timer)
            if timer.cancelled() or (owner is not None and not owner.alive):
                self._step(heappop(self._timers)[2])  # which drops it
                continue
            if when > self.limit:
                self._now = self.limit
                raise Overrun(f"main has not ended after {self.limit} s. {self._standstill()}")
            self._now = max(self._now, when)
            self._still = 0
            return
        raise Deadlock(f"Nothing is ready and no timer is set. {self._standstill()}")

    def _step(self, handle: asyncio.Handle) -> None:
        if handle.cancelled():
            return
        owner = owner_of(handle)
        if owner is None:
            handle._run()
        elif not owner.alive:
            self._dead.append(handle)
        elif owner.paused:
            owner._held.append(handle)
        else:
            try:
                handle._run()
            except SystemExit as stop:
                owner._exit(stop)
        self._still += 1
        if self._still > PATIENCE:
            raise Livelock(f"{PATIENCE} callbacks and no time has passed. {self._standstill()}")

    def _standstill(self) -> str:
        alive = [process for process in self.processes if process.alive]
        states = [
            f"{process.name} {process.state} ({len(process._held)} held)" for process in alive
        ]
        waiting = [
            f"  {task.get_name()} in {place_of(task)}"
            for owner in (None, *alive)
            for task in self._open_tasks(owner)
        ]
        return "\n".join([f"Alive: {', '.join(states) or 'no process'}. Waiting:", *waiting])

    # --- tasks, futures and generators ---------------------------------------------------------

    def create_future(self) -> asyncio.Future[Any]:
        return SimFuture(self)

    def create_task(
        self,
        coro: Coroutine[Any, Any, T] | Generator[Any, None, T],
        *,
        name: object = None,
        context: Context | None = None,
        **options: Any,
    ) -> asyncio.Task[T]:
        self._check_closed()
        task: SimTask[T] = SimTask(coro, self, context, name=name, **options)
        self._tasks.append(task)
        if len(self._tasks) > self._crowded:
            # A failure nobody has looked at stays in the list: it surfaces at the end.
            self._tasks = [kept for kept in self._tasks if not kept.done() or kept._log_traceback]
            self._crowded = 1000 + 2 * len(self._tasks)
        return task

    def _open_tasks(self, process: SimProcess | None) -> list[SimTask[Any]]:
        """The unfinished tasks of one process, in the order of their making."""
        return [task for task in self._tasks if task.process is process and not task.done()]

    def _asyncgen_firstiter_hook(self, agen: AsyncGenerator[Any, Any]) -> None:
        # By address: weak references are gone by the time a finaliser asks.
        self._generators[id(agen)] = owner = PROCESS.get()
        if owner is None:
            super()._asyncgen_firstiter_hook(agen)  # type: ignore[misc]

    def _asyncgen_finalizer_hook(self, agen: AsyncGenerator[Any, Any]) -> None:
        owner = self._generators.pop(id(agen), None)
        if self._deaf:
            self._dead.append(agen)  # revived; Python finalises nothing twice
        else:
            self.call_as(owner, lambda: self.create_task(agen.aclose()))

    # --- processes and the log -----------------------------------------------------------------

    def spawn_process(
        self, name: str, main: Callable[[], Coroutine[Any, Any, object]]
    ) -> SimProcess:
        """Start a process. It inherits the caller's context variables, as an environment."""
        context = copy_context()
        process = SimProcess(name, self, context)
        context.run(PROCESS.set, process)
        self.processes.append(process)
        self.trace(f"spawn {name}")
        context.run(self.create_task, process._live(main))
        return process

    def trace(self, line: str) -> None:
        """Add a line to the event log."""
        if not self._sealed:
            self.log.append(TraceLine(self._now, name_of(PROCESS.get()), line))

    def digest(self) -> str:
        """The SHA-256 of the event log: equal for equal seeds, or the run was not deterministic."""
        digest = hashlib.sha256()
        for entry in self.log:
            digest.update(repr(tuple(entry)).encode())
        return digest.hexdigest()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        source = context.get("task", context.get("future"))
        owner = getattr(source, "process", None)
        killed = owner is not None and owner.state is ProcessState.KILLED
        if not killed and not self._deaf:
            super().call_exception_handler(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Collect what asyncio would only write to a log that nobody reads."""
        self.failures.append(context.get("exception") or RuntimeError(context["message"]))

    # --- the end -------------------------------------------------------------------------------

    def close(self) -> None:
        """Kill the processes, end the world's tasks as ``asyncio.run`` would, free the dead."""
        if self.is_closed():
            return
        self._sealed = True
        self._power_off()
        self.limit = self._now + AFTERMATH
        try:
            while tasks := self._open_tasks(None):
                for task in tasks:
                    task.cancel()
                self.run_until_complete(asyncio.wait(tasks))
            self.run_until_complete(self.shutdown_asyncgens())
        except SimulationError as error:
            self.failures.append(error)
        self._power_off()  # what the world's last words may have started
        for task in self._tasks:
            self._look_at(task)
        self._free_the_dead()
        super().close()

    def _power_off(self) -> None:
        for process in self.processes:
            if process.alive:
                process._end(ProcessState.KILLED)

    def _look_at(self, task: SimTask[Any]) -> None:
        """Take note of a failure that nobody has asked for."""
        if not (task.done() and task._log_traceback):
            return
        error = task.exception()
        owner = task.process
        killed = owner is not None and owner.state is ProcessState.KILLED
        if error is not None and not killed and not isinstance(error, SystemExit):
            self.failures.append(error)

    def _free_the_dead(self) -> None:
        self._deaf = True
        with silence():
            while self._tasks:  # the blocks that run here may make more
                tasks, self._tasks = self._tasks, []
                for task in filter(_open, tasks):
                    close_coroutine(task.get_coro())
                del tasks
            for process in self.processes:
                process._held.clear()
            for kept in (self._ready, self._timers, self._dead, self._generators):
                kept.clear()
            # With the collector off all that this run has made is in the youngest generation.
            gc.collect(0)

    def _unseen(self) -> list[BaseException]:
        """Every failure that nobody was told of, once."""
        mains = [p.error for p in self.processes if p.error is not None and not p._joined]
        return list({id(error): error for error in [*mains, *self.failures]}.values())

    def _circumstances(self) -> str:
        tail = [f"  {at:12.6f} {process}: {line}" for at, process, line in self.log[-TAIL:]]
        head = f"seed {self.seed}, virtual second {self._now}; the log ends with:"
        return "\n".join([head, *tail])


def run(main: Callable[[SimLoop], Coroutine[Any, Any, T]], *, seed: int, limit: float) -> Result[T]:
    """Run ``main`` in a fresh world to its end, for at most ``limit`` virtual seconds.

    Raises what main raises. When main is content but a process, a task or a callback failed and
    nobody was told, raises those errors as a group. Afterwards nothing of the world is left.
    """
    if asyncio._get_running_loop() is not None:
        raise RuntimeError("A simulation cannot run inside a running event loop.")
    with no_collector():
        return _run(main, SimLoop(seed, limit))


def _run(main: Callable[[SimLoop], Coroutine[Any, Any, T]], loop: SimLoop) -> Result[T]:
    try:
        value = loop.run_until_complete(main(loop))
    except BaseException as error:
        loop.close()
        error.add_note(loop._circumstances())
        for other in loop._unseen():
            if other is not error:
                error.add_note("And before: " + "".join(traceback.format_exception(other)))
        raise
    seconds = loop.time()
    loop.close()
    if unseen := loop._unseen():
        failure = BaseExceptionGroup("main ended well, but in the simulated world", unseen)
        failure.add_note(loop._circumstances())
        raise failure
    return Result(value, loop.seed, seconds, loop.digest(), tuple(loop.log))


def _open(task: asyncio.Task[Any]) -> bool:
    return not task.done()


for _name in OUTSIDE:
    setattr(SimLoop, _name, refusal(_name))
