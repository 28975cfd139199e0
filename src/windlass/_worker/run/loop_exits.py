"""Exceptions that leave the event loop: which job's code raised them, and how the loop is resumed.

asyncio lets ``SystemExit`` and ``KeyboardInterrupt`` out of the loop when they are raised in a task
or callback. A job must not end its worker and its neighbours that way.
"""

from __future__ import annotations

import asyncio
import contextvars
import gc
import inspect
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from windlass._core.job.job import Claim
from windlass._observe.current_run import RUN

if TYPE_CHECKING:
    from windlass._worker.run.runner import Runner

__all__ = [
    "LOOP_ENDING_ERRORS",
    "LoopExits",
    "find_exited_claims",
    "format_jobs",
    "remember_unreferenced",
    "run_to_completion",
]

log = logging.getLogger("windlass")
T = TypeVar("T")

LOOP_ENDING_ERRORS = (SystemExit, KeyboardInterrupt)
"""Exceptions that end an event loop, raised by any task or callback."""
_NAMED = 20
"""Jobs that one log line names at most."""


def run_to_completion(
    loop: asyncio.AbstractEventLoop,
    main: asyncio.Task[T],
    on_escape: Callable[[BaseException | None], None],
) -> T:
    """Run ``main`` to its end, and enter the loop again whenever other code ends it before.

    ``on_escape`` is called in between, with the exception that ended it; None: ``loop.stop()``.
    """
    with remember_unreferenced(loop) as remembering:
        while True:
            try:
                return loop.run_until_complete(main)
            except LOOP_ENDING_ERRORS as error:
                if main.done():
                    return main.result()
                on_escape(error)
            except RuntimeError:
                if main.done() or loop.is_closed():
                    raise
                on_escape(None)
            remembering.seen.clear()


class LoopExits:
    """Marks the job whose code ended the event loop, and logs it."""

    def __init__(self) -> None:
        """Start without escaped exceptions."""
        self._runner: Runner | None = None
        self._told: set[str] = set()

    def watch(self, runner: Runner) -> None:
        """Look for the job among those that ``runner`` runs."""
        self._runner = runner

    def note(self, error: BaseException | None) -> None:
        """Fail the job that ``error`` came from. The others run on."""
        if error is None:
            self._tell_once("loop.stop()", f"loop.stop() was called{self._while_running()}")
            return
        what, runner = _short(error), self._runner
        context = _context_of(error)
        claim = self._ended_by(error) or (None if context is None else _claim_in(context))
        if claim is None:
            by = _source(error) if context is None else "outside any job"
            self._tell_once(what + by, f"{what} was raised {by}{self._while_running()}")
        elif runner is not None and (self._ended_by(error) or runner.crash(claim, error)):
            log.error(
                "job %s raised %s in a task or callback of the event loop: the job crashed, the "
                "worker and its other jobs continue",
                claim.job,
                what,
            )
        else:
            self._tell_once(what, f"{what} was raised by code that job {claim.job} left behind")

    def _ended_by(self, error: BaseException) -> Claim | None:
        """Return the run that has already ended by it: uvloop leaves a little later than it was
        raised.
        """
        crashed = () if self._runner is None else self._runner.crashed
        return next((claim for claim, its_error in crashed if its_error is error), None)

    def _while_running(self) -> str:
        if self._runner is None or not self._runner.active:
            return ""
        return f" while {format_jobs(self._runner.active)} ran"

    def _tell_once(self, what: str, words: str) -> None:
        level = logging.DEBUG if what in self._told else logging.ERROR
        if len(self._told) < _NAMED:
            self._told.add(what)
        log.log(level, "the event loop was stopped and is resumed: %s. Remove that call", words)


class UnreferencedTasks:
    """A loop's exception handler that remembers which task ended the loop, where nothing refers to
    that task any more.

    Under uvloop only such a task's last words to the handler tell. All of them are passed on to the
    handler there was before.
    """

    def __init__(self, before: Callable[[asyncio.AbstractEventLoop, Any], object] | None) -> None:
        self.before = before
        self.seen: deque[tuple[BaseException, contextvars.Context | None]] = deque(maxlen=8)

    def __call__(self, loop: asyncio.AbstractEventLoop, told: dict[str, Any]) -> None:
        error, task = told.get("exception"), told.get("task") or told.get("future")
        if isinstance(error, LOOP_ENDING_ERRORS) and isinstance(task, asyncio.Task):
            self.seen.append((error, _context_of_task(task)))
        if self.before is None:
            loop.default_exception_handler(told)
        else:
            self.before(loop, told)


@contextmanager
def remember_unreferenced(loop: asyncio.AbstractEventLoop) -> Iterator[UnreferencedTasks]:
    """Install `UnreferencedTasks` on a loop inside the block."""
    remembering = UnreferencedTasks(loop.get_exception_handler())
    loop.set_exception_handler(remembering)
    try:
        yield remembering
    finally:
        remembering.seen.clear()
        if loop.get_exception_handler() is remembering:
            loop.set_exception_handler(remembering.before)


def _short(error: BaseException) -> str:
    """Name it. Its text may hold a secret; a number is an exit code."""
    codes = [repr(arg) for arg in error.args if isinstance(arg, int)]
    return f"{type(error).__name__}({', '.join(codes)})"


def format_jobs(claims: Iterable[Claim]) -> str:
    """Name jobs in a log line."""
    ids = [claim.job for claim in claims]
    more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
    return f"job{'s' if len(ids) > 1 else ''} {', '.join(ids[:_NAMED])}{more}"


def find_exited_claims() -> Iterator[tuple[Claim, BaseException]]:
    """Find the runs whose code has ended this process's event loop, with what they raised.

    For a loop that is not ours. Looks at every object: only for a worker that is being cancelled.
    """
    found: list[tuple[BaseException, contextvars.Context | None]] = []
    for one in gc.get_objects():
        # By type: `isinstance` asks for ``__class__``, and a lazy object of another library may
        # load something then, or raise.
        if issubclass(type(one), LOOP_ENDING_ERRORS):
            found.append((one, _context_of_callback(one.__traceback__)))
        elif issubclass(type(one), UnreferencedTasks):
            found += one.seen
        elif issubclass(type(one), asyncio.Task) and (error := _end_of(one)) is not None:
            found.append((error, _context_of_task(one)))
    for error, context in found:
        claim = None if context is None else _claim_in(context)
        if claim is not None:
            yield claim, error


def _source(error: BaseException) -> str:
    """Say what raised it where nothing leads to its job: that is so under uvloop."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_flags & inspect.CO_COROUTINE:
            return "in a task that other code awaits"
        trace = trace.tb_next
    return "by a callback"


def _claim_in(context: contextvars.Context) -> Claim | None:
    run = context.get(RUN)
    return None if run is None else run.claimed.claim


def _context_of(error: BaseException) -> contextvars.Context | None:
    """Return the context of the task or callback that ``error`` came out of."""
    found = _context_of_callback(error.__traceback__)
    if found is not None:
        return found
    remembered: list[tuple[BaseException, contextvars.Context | None]] = []
    for one in gc.get_objects():
        if issubclass(type(one), asyncio.Task) and _end_of(one) is error:
            return _context_of_task(one)
        if issubclass(type(one), UnreferencedTasks):
            remembered += one.seen
    return next((context for dead, context in remembered if dead is error), None)


def _context_of_callback(trace: TracebackType | None) -> contextvars.Context | None:
    """asyncio's own loop calls everything through `asyncio.Handle._run`, tasks included."""
    while trace is not None:
        if trace.tb_frame.f_code is asyncio.Handle._run.__code__:  # noqa: SLF001
            context = getattr(trace.tb_frame.f_locals.get("self"), "_context", None)
            return context if isinstance(context, contextvars.Context) else None
        trace = trace.tb_next
    return None


def _end_of(task: asyncio.Task[Any]) -> BaseException | None:
    if not task.done() or task.cancelled():
        return None
    error = getattr(task, "_exception", None)  # `exception()` would count as having looked at it
    return error if isinstance(error, LOOP_ENDING_ERRORS) else None


def _context_of_task(task: asyncio.Task[Any]) -> contextvars.Context | None:
    ask = getattr(task, "get_context", None)  # from Python 3.12 on
    if ask is not None:
        context: contextvars.Context = ask()
        return context
    held = gc.get_referents(task)
    return next((one for one in held if isinstance(one, contextvars.Context)), None)
