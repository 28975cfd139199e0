"""One claimed job → one Outcome, handed on as `RunEnded`. Writes nothing, knows no retry rule."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import logging
from collections.abc import Awaitable, Iterable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from windlass._core.flows.pending import has_pending
from windlass._core.job import outcome as core
from windlass._core.job.job import Claim, ClaimedJob
from windlass._core.job.outcome import Outcome
from windlass._observe.current_run import RUN
from windlass._storage.shared.errors import is_retryable
from windlass._tasks.context import Context, ContextHost, current
from windlass._tasks.hooks import Middleware, call_through_middleware
from windlass._tasks.options import Program
from windlass._tasks.task import Task, TaskRegistry
from windlass._worker.program.pools import ProgramPools
from windlass._worker.program.protocol import ProgramCall
from windlass._worker.run.error_outcomes import (
    FARTHEST,
    ErrorOutcomes,
    UnfitArguments,
    stopped_outcome,
)
from windlass._worker.run.error_text import unknown_task_error
from windlass._worker.run.execution import (
    ActiveRuns,
    EndedRuns,
    Execution,
    RunEnded,
    RunLimits,
    StopCause,
    has_begun,
    timed_out,
)
from windlass._worker.run.loop_exits import find_exited_claims
from windlass._worker.run.soft_timeout import call_handler
from windlass._worker.run.threads import ThreadPool

if TYPE_CHECKING:
    from windlass._worker.child_process.pool import ChildPool
    from windlass._worker.runner_parts import WorkerParts

__all__ = ["Runner"]

log = logging.getLogger("windlass")

_PATIENCE = 5.0
"""Seconds that a coroutine may take to clean up after its timeout before that is logged."""

_MOMENT = 1.0
_NOTHING = core.Succeeded()
"""The encoded result of most handlers."""


class Runner:
    """Runs claimed jobs and hands on what happened, always exactly once per run."""

    def __init__(
        self,
        tasks: TaskRegistry,
        host: ContextHost,
        ended: EndedRuns,
        limits: RunLimits,
        *,
        layers: Sequence[Middleware] = (),
        active: ActiveRuns | None = None,
        worker: WorkerParts | None = None,
    ) -> None:
        """``layers`` is the middleware, outermost first; it may still grow. ``active`` is where the
        runs are kept, for others to look at.
        """
        self._tasks = tasks
        self._host = host
        self._ended = ended
        self._limits = limits
        self._layers = layers
        self._worker = worker
        self._children = None if worker is None else worker.children
        self._threads = ThreadPool()
        self._programs = ProgramPools(limits)
        self._errors = ErrorOutcomes(tasks, limits.error_limit, self._leaving)
        self.active: ActiveRuns = {} if active is None else active
        self.bodies: dict[Claim, asyncio.Task[None]] = {}
        """The tasks of the runs. Apart from them, because a task holds its context variables and
        they hold the run: in a circle every job would be left to the garbage collector."""
        self.crashed: list[tuple[Claim, BaseException]] = []
        """The runs that crashed a moment ago, with what they raised."""
        self._crashes: dict[Claim, BaseException] = {}
        """Exceptions of unfinished runs that escaped from the event loop."""
        self._blamed = False

    def start(self, jobs: Iterable[ClaimedJob]) -> None:
        """Run these in the background, each in its own task."""
        create_task, active = asyncio.get_running_loop().create_task, self.active
        for job in jobs:
            active[job.claim] = run = Execution(job=job)
            waits = job.flow is not None and has_pending(job.payload)
            self.bodies[job.claim] = create_task(
                self._live_with_results(run) if waits else self._live(run)
            )

    def stop(self, claim: Claim, why: StopCause) -> bool:
        """Ask a run to end; False when it is not running here."""
        run = self.active.get(claim)
        if run is None:
            return False
        if run.stop(why):  # else cancelling it again would disturb its cleaning up
            self._cancel(run)
        return True

    def crash(self, claim: Claim, error: BaseException) -> bool:
        """End a run because its code let ``error`` out of the event loop; False: not running."""
        run = self.active.get(claim)
        if run is None:
            return False
        run.set()
        body = self.bodies.get(claim)
        if body is not None and body.done():  # what came out was its own end
            self._end(run, self._errors.judge(run, error))
        else:
            self._crashes[claim] = error
            self._cancel(run)
        return True

    def blame_exits(self) -> None:
        """Fail the jobs whose code ended this event loop, if some did: they must not come back at
        no cost. For a loop that is not ours: what ended it has cancelled this worker and its runs.
        """
        if self._blamed or not self.active:
            return
        self._blamed = True
        for claim, error in find_exited_claims():
            self.crash(claim, error)

    def _leaving(self) -> bool:
        """Return whether this worker is itself being cancelled."""
        own = None if self._worker is None else self._worker.own
        if own is None or not own.cancelled:
            return False
        if own.obeys_cancel:
            self.blame_exits()
        return True

    def _cancel(self, run: Execution) -> None:
        task = self._tasks.find(run.job.task)
        # A thread cannot be cancelled, only asked; its body waits for it. A body that has not
        # begun must not be cancelled: it would end without a word. It looks before it begins.
        on_loop = task is None or task.is_async or run.on_loop
        body = self.bodies.get(run.job.claim)
        if body is not None and on_loop and has_begun(body):
            body.cancel()

    def stop_all(self, why: StopCause) -> None:
        """Ask every run to end."""
        for claim in list(self.active):
            self.stop(claim, why)

    async def leave(self) -> None:
        """Let processes without a job end in order."""
        children = () if self._children is None else (self._children.leave(),)
        await asyncio.gather(self._programs.leave(), *children)

    def close(self) -> None:
        """Let idle threads go, and end what runs in other processes."""
        self._threads.close()
        self._programs.close()
        if self._children is not None:
            self._children.close()

    async def _live_with_results(self, run: Execution) -> None:
        """Read the results that the job takes, then run it; give it back if the store is away."""
        try:
            if self._worker is not None:
                filled = await self._worker.arguments.fill(run.job)
                run.take(filled.job)
                filled.check(self._tasks.by_name.get(run.job.task))
        except BaseException as error:  # noqa: BLE001 -- a run must end in every case
            if run.why is None and not is_retryable(error):
                self._end(run, self._errors.judge(run, error))
            else:
                self._end(run, stopped_outcome(run.why or StopCause.INTERRUPT, started=False))
            return
        await self._live(run)

    async def _live(self, run: Execution) -> None:
        job = run.job
        try:
            task = self._tasks.by_name.get(job.task)
            if run.why is not None:
                outcome = stopped_outcome(run.why, started=False)
            elif task is None:
                outcome = core.Missing(unknown_task_error(job, self._tasks.names))
            elif task.in_process and self._children is not None:
                outcome = await self._in_child(run, task, self._children)
            else:
                try:
                    args, kwargs = task.codec.decode(job.payload)
                except Exception as error:  # decoding runs code of the user's types
                    raise UnfitArguments from error
                context = Context(job, self._host, run)
                RUN.set(context)  # in this task's own copy of the variables: nothing to undo
                if task.takes_context:
                    args = (context, *args)
                own = task.settings
                some = job.timeout or own.timeout or own.soft_timeout or self._limits.timeout
                if task.is_async and not some and not self._layers:  # two calls less per job
                    value = await task.function(*args, **kwargs)
                else:
                    value = await self._within_limits(run, task, args, kwargs)
                outcome = _NOTHING if value is None else self._returned(run, task, value)
        except BaseException as error:  # noqa: BLE001 -- a handler may raise anything
            outcome = self._errors.judge(run, error)
            if isinstance(outcome, core.Crashed):
                self.crashed.append((job.claim, error))
                asyncio.get_running_loop().call_later(_MOMENT, self.crashed.clear)
        parts = self._worker
        if (
            outcome is not _NOTHING
            or run.wish is not None
            or self._crashes
            or (parts is not None and parts.transactions.asked)
        ):
            outcome = await self._reconsidered(run, outcome)
        self._end(run, outcome)

    async def _reconsidered(self, run: Execution, outcome: Outcome) -> Outcome:
        """Return the final outcome of a run that asked for more than its handler's end says."""
        claim, parts = run.job.claim, self._worker
        if run.wish is not None and isinstance(outcome, core.Succeeded):
            outcome = core.Snoozed(min(run.wish, FARTHEST))
        if (escaped := self._crashes.pop(claim, None)) is not None:
            outcome = self._errors.judge(run, escaped)
        if parts is None:
            return outcome
        if isinstance(outcome, core.Misfit):
            outcome = await parts.unrunnable.judge(run.job, outcome)
        if claim in parts.transactions.asked:
            outcome = await parts.transactions.resolve(run, outcome)
        return outcome

    def _end(self, run: Execution, outcome: Outcome) -> None:
        """Hand the run on, then free its slot."""
        job, parts = run.job, self._worker
        run.closed = True  # before the look: see `CancelToken.add`
        if run.added is not None:  # a call less per job
            outcome = run.with_added(outcome)
        note = None
        if parts is not None and parts.progress.used:  # a call less per job
            note = parts.progress.take(job.claim)
        try:
            self._ended.add(RunEnded(job, outcome, note, run.metadata))
        except Exception:
            # The next heartbeat finds the claim, and it is given back.
            log.exception("job %s: the end of its run could not be recorded", job.claim.job)
        self.active.pop(job.claim, None)
        self.bodies.pop(job.claim, None)
        if parts is None:
            return
        if run.detached is None:
            parts.slots.give(job.queue)
            if parts.lines.runs:  # a call less per job
                parts.lines.ended(job.claim)
        else:
            # A thread that did not end keeps its slot: the worker must not run more than it may.
            run.detached.add_done_callback(lambda _: self._thread_ended(job, parts))
            parts.slots.log_overstay(job)

    def _thread_ended(self, job: ClaimedJob, parts: WorkerParts) -> None:
        parts.slots.give(job.queue)
        parts.lines.ended(job.claim)

    def _returned(self, run: Execution, task: Task[..., Any], value: object) -> Outcome:
        try:
            return core.Succeeded(task.encode_result(value, limit=self._limits.result_limit))
        except Exception as error:  # noqa: BLE001 -- encoding runs code of the user's types
            # Ran, but what it returned cannot be stored, or read: another run would change nothing.
            return core.GaveUp(self._errors.describe(run, error))

    async def _within_limits(
        self, run: Execution, task: Task[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        limit = self._limits.time_of(run.job, task.settings.timeout)
        if task.program is not None:
            return await self._in_program(run, ProgramCall(current(), task, limit), task.program)
        if self._layers:
            run.move(on_loop=True)
            inner = functools.partial(self._innermost, run, task, args, kwargs)
            work = call_through_middleware(self._layers, current(), inner)
            return await self._in_time(run, limit, work)
        if task.is_async:
            return await self._in_time(run, limit, call_handler(run, task, args, kwargs))
        value = await self._on_thread(run, task, limit, args, kwargs)
        if not inspect.isawaitable(value):
            return value
        # A coroutine function behind a plain one, as some decorators leave it.
        run.move(on_loop=True)
        if run.why is not None:  # asked to end when there was nothing yet that could be cancelled
            self._cancel(run)
        return await self._in_time(run, limit, value)

    async def _innermost(
        self, run: Execution, task: Task[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run the handler inside its middleware; the time limit is around all of it."""
        if task.is_async:
            return await call_handler(run, task, args, kwargs)
        run.move(on_loop=False)  # as without middleware: a thread is asked to end and waited for
        try:
            value = await self._on_thread(run, task, None, args, kwargs)
        finally:
            run.move(on_loop=True)
        return await value if inspect.isawaitable(value) else value

    async def _in_program(self, run: Execution, call: ProgramCall, program: Program) -> Any:
        """Run the job in a process of its program; its middleware runs here, around the call."""
        run.move(on_loop=True)  # cancelling this body ends the program's run
        run.enter(entered=False)
        started = functools.partial(run.enter, entered=True)
        if not program.warm:
            once = functools.partial(self._programs.run_once, program, call, started)
            work = call_through_middleware(self._layers, call.context, once)
            return await self._in_time(run, call.timeout, work)
        async with self._programs.lend(program) as lent:
            started()
            warm = functools.partial(self._programs.run_warm, lent, call)
            work = call_through_middleware(self._layers, call.context, warm)
            return await self._in_time(run, call.timeout, work)

    async def _in_child(self, run: Execution, task: Task[..., Any], children: ChildPool) -> Outcome:
        """Run the handler in a child process; its middleware runs here, around the call."""
        run.move(on_loop=True)  # cancelling this body ends the child's run
        job, limit = run.job, self._limits.time_of(run.job, task.settings.timeout)
        run.enter(entered=False)
        async with children.seat() as seat:
            run.enter(entered=True)
            if not self._layers:
                outcome: Outcome = await self._in_time(run, limit, seat.run(job))
            else:
                context = Context(job, self._host, run)
                RUN.set(context)
                inner = functools.partial(seat.value, job, run.add)
                work = call_through_middleware(self._layers, context, inner)
                value = await self._in_time(run, limit, work)
                outcome = _NOTHING if value is None else self._returned(run, task, value)
        stopped = run.why is not None and run.why is not StopCause.CANCEL
        if run.why is not None and stopped and not isinstance(outcome, core.Succeeded):
            return stopped_outcome(run.why)
        return outcome

    async def _in_time(self, run: Execution, limit: timedelta | None, work: Awaitable[Any]) -> Any:
        if limit is None:
            return await work
        seconds, loop = limit.total_seconds(), asyncio.get_running_loop()
        late = loop.call_later(seconds + _PATIENCE, self._overstays, run.job)
        scope = asyncio.timeout(seconds)
        try:
            async with scope:
                return await work
        except TimeoutError as error:
            raise (timed_out(limit) if scope.expired() else error) from None
        finally:
            late.cancel()

    def _overstays(self, job: ClaimedJob) -> None:
        if self._worker is not None:
            self._worker.slots.log_overstay(job)

    async def _on_thread(
        self,
        run: Execution,
        task: Task[..., Any],
        limit: timedelta | None,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        function = functools.partial(task.function, *args, **kwargs)
        future = self._threads.submit(contextvars.copy_context(), function)
        if (soft := task.settings.soft_timeout) is not None:  # it can only be told
            timer = asyncio.get_running_loop().call_later(soft.total_seconds(), run.set)
            future.add_done_callback(lambda _: timer.cancel())
        try:
            async with asyncio.timeout(None if limit is None else limit.total_seconds()):
                end = await asyncio.shield(future)
        except TimeoutError:
            if future.done():
                return future.result().value()  # just in time
            run.detach(future)
            raise timed_out(limit or timedelta(0)) from None
        except asyncio.CancelledError:
            run.detach(future)
            raise
        return end.value()
