"""Processes of the simulated world, and the tasks and futures that belong to them."""

# A process is the part of its loop that can die: the two share their private parts.

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextvars import Context, ContextVar
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

if TYPE_CHECKING:
    from tests.simulation.framework.loop import SimLoop

__all__ = [
    "PROCESS",
    "ProcessState",
    "SimFuture",
    "SimProcess",
    "SimTask",
    "name_of",
    "owner_of",
    "place_of",
]

T = TypeVar("T")

# Inherited by every task, timer and callback of a process; None in the world around them.
PROCESS: ContextVar[SimProcess | None] = ContextVar("simulated process", default=None)


def owner_of(handle: asyncio.Handle) -> SimProcess | None:
    """Whose callback it is."""
    context: Context = handle._context  # type: ignore[attr-defined] # public from 3.12 on
    return context.get(PROCESS)


def name_of(process: SimProcess | None) -> str:
    """The name in the log."""
    return "world" if process is None else process.name


class ProcessState(StrEnum):
    """Where a simulated process stands."""

    RUNNING = "running"
    PAUSED = "paused"
    EXITED = "exited"
    KILLED = "killed"


class SimProcess:
    """A process of the simulated world; ``SimLoop.spawn_process`` starts it.

    It ends like a program under ``asyncio.run``: when main returns or raises, the tasks it left
    are cancelled and awaited, and then nothing of it runs any more.
    """

    def __init__(self, name: str, loop: SimLoop, context: Context) -> None:
        self.name = name
        self.state: ProcessState = ProcessState.RUNNING
        self.error: BaseException | None = None
        self.context = context
        self._loop = loop
        self._held: list[asyncio.Handle] = []
        self._at_end: list[Callable[[], object]] = []
        self._waiters: list[asyncio.Future[None]] = []
        self._joined = False

    @property
    def alive(self) -> bool:
        return self.state is ProcessState.RUNNING or self.state is ProcessState.PAUSED

    @property
    def paused(self) -> bool:
        return self.state is ProcessState.PAUSED

    def kill(self) -> None:
        """``kill -9`` from outside: nothing of it runs again, no ``except``, no ``finally``."""
        if PROCESS.get() is self:
            raise RuntimeError(
                f"{self.name} called kill() on itself, and this call would return: "
                "await crash() instead, which does not."
            )
        if self.alive:
            self._loop.trace(f"kill {self.name}")
            self._end(ProcessState.KILLED)

    async def crash(self) -> NoReturn:
        """``kill -9`` from inside, at exactly this ``await``."""
        if PROCESS.get() is not self:
            raise RuntimeError(f"crash() is called from inside {self.name}; outside it is kill().")
        self._loop.trace(f"crash {self.name}")
        self._end(ProcessState.KILLED)
        await self._loop.create_future()
        raise AssertionError("a dead process went on")

    def pause(self) -> None:
        """SIGSTOP: hold what becomes ready and the timers that come due. Time goes on."""
        if self.state is ProcessState.RUNNING:
            self._loop.trace(f"pause {self.name}")
            self.state = ProcessState.PAUSED

    def resume(self) -> None:
        """SIGCONT: run what was held, in the order in which it would have run."""
        if self.state is ProcessState.PAUSED:
            self._loop.trace(f"resume {self.name}")
            self.state = ProcessState.RUNNING
            # In front: whatever is still in the queue came after all that was held.
            self._loop._ready.extendleft(reversed(self._held))
            self._held.clear()

    async def join(self) -> None:
        """Wait for the end and raise what main raised; it does not surface a second time then."""
        if self.alive:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter
        self._joined = True
        if self.error is not None:
            raise self.error

    def at_end(self, callback: Callable[[], object]) -> None:
        """Call back, as the world, the moment it is gone, however it went.

        For what an operating system does then: close its files, free its locks.
        """
        self._at_end.append(callback)

    async def _live(self, main: Callable[[], Coroutine[Any, Any, object]]) -> None:
        try:
            await main()
        except (KeyboardInterrupt, SystemExit):
            raise  # ends the whole run, and the whole process: more than a failed main
        except BaseException as error:
            if not self.alive:
                raise  # the loop is being closed, and frees what this process left behind
            self.error = error  # surfaces at the end of the run
        me = asyncio.current_task()
        left = [task for task in self._loop._open_tasks(self) if task is not me]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
        self._loop.trace("exit" if self.error is None else f"exit: {self.error!r}")
        self._end(ProcessState.EXITED)

    def _exit(self, stop: SystemExit) -> None:
        """``sys.exit`` in one of its callbacks ends this process and no other."""
        self._loop.trace(f"exit {self.name}: {stop!r}")
        if stop.code not in {None, 0}:
            self.error = stop
        self._end(ProcessState.EXITED)

    def _end(self, state: ProcessState) -> None:
        self.state = state
        for callback in self._at_end:
            try:
                self._loop._world.copy().run(callback)
            except Exception as error:  # noqa: BLE001 -- it surfaces; the others have their turn
                self._loop.failures.append(error)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


class _Owned:
    """Hashes by number, not by address: asyncio keeps tasks in sets and walks through them."""

    order: int
    process: SimProcess | None

    def __hash__(self) -> int:
        return self.order


class SimFuture(_Owned, asyncio.Future[Any]):
    """A future with a number and an owner."""

    def __init__(self, loop: SimLoop) -> None:
        self.order: int = next(loop._order)
        self.process: SimProcess | None = PROCESS.get()
        super().__init__(loop=loop)


class SimTask(_Owned, asyncio.Task[T]):
    """A task with a number, an owner and a name that is the same in every run."""

    def __init__(self, coro: Any, loop: SimLoop, context: Context | None, **options: Any) -> None:
        self.order: int = next(loop._order)
        self.process: SimProcess | None = PROCESS.get() if context is None else context.get(PROCESS)
        if options.get("name") is None:
            # asyncio numbers tasks per interpreter: a name in a log would differ from run to run.
            options["name"] = f"{name_of(self.process)}-{self.order}"
        super().__init__(coro, loop=loop, context=context, **options)


def place_of(task: asyncio.Task[Any]) -> str:
    """Where a task is suspended, from its own coroutine to the innermost one."""
    inner: Any = task.get_coro()
    places = []
    while (frame := getattr(inner, "cr_frame", None)) is not None:
        file = frame.f_code.co_filename.rpartition("/")[2]
        places.append(f"{frame.f_code.co_qualname} ({file}:{frame.f_lineno})")
        inner = inner.cr_await
    return " > ".join(places)
