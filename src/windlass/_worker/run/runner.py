"""One claimed job → one Outcome. Writes nothing, knows no retry rule."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from windlass._core.job import outcome as core
from windlass._core.job.control import GiveUp, Retry, Snooze, Throttled
from windlass._core.job.job import AttemptError, Claim, ClaimedJob
from windlass._core.job.outcome import Outcome
from windlass._core.values.payload import is_json
from windlass._core.values.redaction import secret_names, secret_values
from windlass._tasks.context import Context, ContextHost, current, set_current
from windlass._tasks.hooks import Middleware, call_through_middleware
from windlass._tasks.task import Task, TaskRegistry
from windlass._worker.child_process.pool import ChildPool, outcome_of_error
from windlass._worker.run.error_text import attempt_error_of, unknown_task_error
from windlass._worker.run.exception_groups import deciding_error, group_forbids_retry
from windlass._worker.run.threads import Execution, StopCause, ThreadPool
from windlass.errors import ChildNotStarted, DefinitionError, JobTimeout, PayloadError

__all__ = ["Execution", "Runner", "StopCause"]

log = logging.getLogger("windlass")


class _UnfitArguments(Exception):
    """The stored arguments do not fit the function; the cause says why."""


OnEnd = Callable[[Execution, Outcome], None]
Resolve = Callable[[Execution, Outcome], Awaitable[Outcome]]
Judge = Callable[[ClaimedJob, core.Misfit], Awaitable[Outcome]]

_NO_TIME, _FARTHEST = timedelta(0), timedelta(days=3650)
"""Whoever asks for more time is asked again then; beyond the calendar no store could keep it."""

_PATIENCE = 5.0
"""What a coroutine may take to clean up after its timeout before it is spoken of."""

_MOMENT = 1.0
_CUT_OFF = AttemptError("RunCancelled", "other code on the worker's event loop cancelled its task")

_NOTHING = core.Succeeded()
"""What most handlers return."""


class Runner:
    """Runs claimed jobs and reports what happened, always exactly once per run."""

    def __init__(
        self,
        tasks: TaskRegistry,
        host: ContextHost,
        on_end: OnEnd,
        *,
        result_limit: int,
        error_limit: int,
        timeout: timedelta | None = None,
        on_overstay: Callable[[Execution], None] | None = None,
        resolve: Resolve | None = None,
        judge: Judge | None = None,
        layers: Sequence[Middleware] = (),
        children: ChildPool | None = None,
    ) -> None:
        """``on_end`` is called once for every started run. ``timeout``: the app's.

        ``on_overstay`` for a coroutine that its timeout has cancelled and that goes on. ``layers``
        is the middleware, outermost first; it may still grow. Without ``children`` tasks that ask
        for a process of their own run in this one.
        """
        self._tasks = tasks
        self._host = host
        self._on_end = on_end
        self._result_limit = result_limit
        self._error_limit = error_limit
        self._timeout = timeout
        self._on_overstay = on_overstay
        self._layers = layers
        self._children = children
        self._threads = ThreadPool()
        self._resolve = resolve
        self._judge = judge
        self.active: dict[Claim, Execution] = {}
        self.finishing: Mapping[Claim, object] = {}
        """Runs that were finished in a transaction of their handlers'."""
        self.leaving: Callable[[], bool] = lambda: False
        """Whether this worker is itself being cancelled: then a cancelled run is released."""
        self.crashed: list[tuple[Claim, BaseException]] = []
        """The runs that crashed a moment ago, with what they raised."""
        self._crashes: dict[Claim, BaseException] = {}
        """What runs that have not ended yet let out of the event loop."""

    def start(self, jobs: Iterable[ClaimedJob]) -> None:
        """Run these in the background, each in a task of its own."""
        create_task, active = asyncio.get_running_loop().create_task, self.active
        for job in jobs:
            active[job.claim] = run = Execution(job)
            run.body = create_task(self._live(run))

    def stop(self, claim: Claim, why: StopCause) -> bool:
        """Ask a run to end; False when it is not running here."""
        run = self.active.get(claim)
        if run is None:
            return False
        run.set()  # every time: a thread that makes its own event at this moment hears the next
        if run.why is not None and run.why >= why:
            return True  # asked already: cancelling it again would disturb its cleaning up
        run.why = why
        self._cancel(run)
        return True

    def crash(self, claim: Claim, error: BaseException) -> bool:
        """End a run because its code let ``error`` out of the event loop; False: not running."""
        run = self.active.get(claim)
        if run is None:
            return False
        run.set()
        if run.body is not None and run.body.done():  # what came out was its own end
            self._end(run, self._judged(run, error))
        else:
            self._crashes[claim] = error
            self._cancel(run)
        return True

    def _cancel(self, run: Execution) -> None:
        task = self._tasks.find(run.job.task)
        # A thread cannot be cancelled, only asked; its body waits for it. A body that has not
        # begun must not be cancelled: it would end without a word. It looks before it begins.
        on_loop = task is None or task.is_async or run.on_loop
        if run.body is not None and on_loop and _has_begun(run.body):
            run.body.cancel()

    def stop_all(self, why: StopCause) -> None:
        """Ask every run to end."""
        for claim in list(self.active):
            self.stop(claim, why)

    def close(self) -> None:
        """Let idle threads go, and end what runs in child processes."""
        self._threads.close()
        if self._children is not None:
            self._children.close()

    async def _live(self, run: Execution) -> None:
        job = run.job
        try:
            task = self._tasks.find(job.task)
            if run.why is not None:
                outcome = _stopped(run.why, started=False)
            elif task is None:
                outcome = core.Missing(unknown_task_error(job, self._tasks.names))
            elif task.in_process and self._children is not None:
                outcome = await self._in_child(run, task, self._children)
            else:
                args, kwargs = self._arguments(run, task)
                some = job.timeout or task.settings.timeout or self._timeout
                if task.is_async and not some and not self._layers:  # two calls less per job
                    value = await task.function(*args, **kwargs)
                else:
                    value = await self._within_limits(run, task, args, kwargs)
                outcome = _NOTHING if value is None else self._returned(run, task, value)
        except BaseException as error:  # noqa: BLE001 -- a handler may raise anything
            outcome = self._judged(run, error)
            if isinstance(outcome, core.Crashed):
                self.crashed.append((job.claim, error))
                asyncio.get_running_loop().call_later(_MOMENT, self.crashed.clear)
        if run.wish is not None and isinstance(outcome, core.Succeeded):
            outcome = core.Snoozed(min(run.wish, _FARTHEST))
        if self._crashes and (escaped := self._crashes.pop(job.claim, None)) is not None:
            outcome = self._judged(run, escaped)
        if outcome is not _NOTHING and isinstance(outcome, core.Misfit) and self._judge is not None:
            outcome = await self._judge(job, outcome)
        if self.finishing and job.claim in self.finishing and self._resolve is not None:
            outcome = await self._resolve(run, outcome)
        self._end(run, outcome)

    def _end(self, run: Execution, outcome: Outcome) -> None:
        # The task holds its context variables, they hold the run: cut here, or every job would
        # be left to the garbage collector.
        run.body = None
        try:
            self._on_end(run, outcome)
        except Exception:
            log.exception("job %s: the end of its run could not be recorded", run.job.claim.job)
            # Not ours any more: the next beat finds the claim, and it is given back.
            self.active.pop(run.job.claim, None)

    def _limit(self, job: ClaimedJob, task: Task[..., Any]) -> timedelta | None:
        """What a run may take: the job's own time, then the task's, then the app's."""
        limit = job.timeout
        if limit is None:
            limit = task.settings.timeout
        if limit is None:
            limit = self._timeout
        return limit or None  # no time at all says: no limit

    def _arguments(
        self, run: Execution, task: Task[..., Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """What the handler is called with, in the context it can ask for."""
        try:
            args, kwargs = task.codec.decode(run.job.payload)
        except Exception as error:  # decoding runs code of the user's types
            raise _UnfitArguments from error
        context = Context(run.job, self._host, run)
        if task.takes_context:
            args = (context, *args)
        set_current(context)  # in this task's own copy of the variables: nothing to undo
        return args, kwargs

    def _returned(self, run: Execution, task: Task[..., Any], value: object) -> Outcome:
        try:
            what = f"the result of {task.name}"
            limit = self._result_limit
            return core.Succeeded(task.codec.encode_result(value, limit=limit, what=what))
        except Exception as error:  # noqa: BLE001 -- encoding runs code of the user's types
            # Ran, but what it returned cannot be stored, or read: another run would change nothing.
            return core.GaveUp(self._describe(run, error))

    async def _within_limits(
        self, run: Execution, task: Task[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        limit = self._limit(run.job, task)
        if self._layers:
            run.on_loop = True
            inner = functools.partial(self._innermost, run, task, args, kwargs)
            return await self._in_time(
                run, limit, call_through_middleware(self._layers, current(), inner)
            )
        if task.is_async:
            return await self._in_time(run, limit, task.function(*args, **kwargs))
        value = await self._on_thread(run, limit, functools.partial(task.function, *args, **kwargs))
        if not inspect.isawaitable(value):
            return value
        # A coroutine function behind a plain one, as some decorators leave it.
        run.on_loop = True
        if run.why is not None and run.body is not None:
            run.body.cancel()  # asked to end when there was nothing yet that could be cancelled
        return await self._in_time(run, limit, value)

    async def _innermost(
        self, run: Execution, task: Task[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The handler inside its middleware; the time limit is around all of it."""
        if task.is_async:
            return await task.function(*args, **kwargs)
        run.on_loop = False  # as without middleware: a thread is asked to end and waited for
        try:
            function = functools.partial(task.function, *args, **kwargs)
            value = await self._on_thread(run, None, function)
        finally:
            run.on_loop = True
        return await value if inspect.isawaitable(value) else value

    async def _in_child(self, run: Execution, task: Task[..., Any], children: ChildPool) -> Outcome:
        """The handler in a child process; its middleware runs here, around the call."""
        run.on_loop = True  # cancelling this body ends the child's run
        job, limit = run.job, self._limit(run.job, task)
        run.entered = False
        async with children.seat() as seat:
            run.entered = True
            if not self._layers:
                outcome: Outcome = await self._in_time(run, limit, seat.run(job))
            else:
                context = Context(job, self._host, run)
                set_current(context)
                inner = functools.partial(seat.value, job)
                value = await self._in_time(
                    run, limit, call_through_middleware(self._layers, context, inner)
                )
                outcome = _NOTHING if value is None else self._returned(run, task, value)
        stopped = run.why is not None and run.why is not StopCause.CANCEL
        if run.why is not None and stopped and not isinstance(outcome, core.Succeeded):
            return _stopped(run.why)
        return outcome

    async def _in_time(self, run: Execution, limit: timedelta | None, work: Awaitable[Any]) -> Any:
        if limit is None:
            return await work
        seconds, loop = limit.total_seconds(), asyncio.get_running_loop()
        late = loop.call_later(seconds + _PATIENCE, self._overstays, run)
        scope = asyncio.timeout(seconds)
        try:
            async with scope:
                return await work
        except TimeoutError as error:
            raise (_timed_out(limit) if scope.expired() else error) from None
        finally:
            late.cancel()

    def _overstays(self, run: Execution) -> None:
        if self._on_overstay is not None:
            self._on_overstay(run)

    async def _on_thread(
        self, run: Execution, limit: timedelta | None, function: Callable[[], Any]
    ) -> Any:
        future = self._threads.submit(contextvars.copy_context(), function)
        try:
            async with asyncio.timeout(None if limit is None else limit.total_seconds()):
                end = await asyncio.shield(future)
        except TimeoutError:
            if future.done():
                return future.result().value()  # just in time
            run.set()
            run.detached = future
            raise _timed_out(limit or timedelta(0)) from None
        except asyncio.CancelledError:
            run.set()
            run.detached = future
            raise
        return end.value()

    def _judged(self, run: Execution, error: BaseException) -> Outcome:
        try:
            return self._ended_badly(run, error)
        except BaseException as worse:  # noqa: BLE001 -- an unreported run would hold its slot
            return self._ended_badly(run, worse)

    def _ended_badly(self, run: Execution, error: BaseException) -> Outcome:
        if run.why is not None and run.why is not StopCause.CANCEL:
            return _stopped(run.why, started=run.entered)
        match deciding_error(error, functools.partial(self._bars, run)):
            case Exception() as said if (kept := outcome_of_error(said)) is not None:
                return kept
            case ChildNotStarted():
                return core.Missing(self._describe(run, error))
            case _UnfitArguments(__cause__=Exception() as cause):
                told = self._describe(run, cause, trace=not isinstance(cause, PayloadError))
                hopeless = isinstance(cause, DefinitionError) or not is_json(run.job.payload)
                return core.GaveUp(told) if hopeless else core.Misfit(told)
            case asyncio.CancelledError():
                return self._cancelled(run, error)
            case Retry(after=wish):
                after = None if wish is None else min(wish, _FARTHEST)
                return core.Raised(self._describe(run, error), after)
            case Snooze(after=wish):
                return core.Snoozed(min(wish, _FARTHEST))
            case Throttled() as said:
                after = min(said.after or _NO_TIME, _FARTHEST)
                return core.Throttled(after, said.cool_queue, said.drain, said.odd)
            case GiveUp():
                return core.GaveUp(self._describe(run, error))
            case Exception():
                return self._raised(run, error)
            case _:
                return core.Crashed(self._describe(run, error))

    def _cancelled(self, run: Execution, error: BaseException) -> Outcome:
        if run.why is not None:
            return _stopped(run.why)
        if run.body is None or not run.body.cancelling():
            return self._raised(run, error)  # of something that the handler awaited
        # By code that had no order to: one of its neighbours, perhaps.
        return core.Interrupted() if self.leaving() else core.CutOff(_CUT_OFF)

    def _raised(self, run: Execution, error: BaseException) -> Outcome:
        """Its class is looked at here: what is stored of it, or sent to a worker, is text."""
        return core.Raised(self._describe(run, error), barred=self._bars(run, error))

    def _bars(self, run: Execution, error: BaseException) -> bool:
        """Whether the task's lists rule out another attempt."""
        task = self._tasks.find(run.job.task)
        lists = None if task is None else (task.settings.retry_on, task.settings.give_up_on)
        return lists is not None and group_forbids_retry(error, *lists)

    def _describe(
        self, run: Execution, error: BaseException, *, trace: bool = True
    ) -> AttemptError:
        """Without the secrets that the handler was given: errors are read by many."""
        values = secret_values(run.job.payload, secret_names(run.job.tags))
        return attempt_error_of(error, limit=self._error_limit, secrets=values, trace=trace)


def _stopped(why: StopCause, *, started: bool = True) -> Outcome:
    """What the end of a run means that was asked for."""
    if why is StopCause.CANCEL:
        return core.Cancelled(AttemptError("Cancelled", "cancelled on request"))
    return core.Interrupted(started)


def _has_begun(body: asyncio.Task[None]) -> bool:
    coroutine = body.get_coro()
    return not inspect.iscoroutine(coroutine) or (
        inspect.getcoroutinestate(coroutine) != inspect.CORO_CREATED
    )


def _timed_out(limit: timedelta) -> JobTimeout:
    return JobTimeout(f"ran longer than its timeout of {limit.total_seconds():g} s")
