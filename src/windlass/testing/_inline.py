"""Inline mode: a job runs before the call that enqueued it returns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import partial
from typing import Any, Literal, TypeVar

import msgspec

from windlass._app.app import Windlass
from windlass._app.parts import parts_of
from windlass._client.client import Client
from windlass._core.job.job import FlowId, JobId, JobRecord, NewJob
from windlass._core.job.state import TERMINAL, State
from windlass._storage.protocol.actions import AuditNote, RunNow
from windlass._storage.protocol.flows import StartedFlow
from windlass._system.seams import new_job_id
from windlass._tasks.flows.plan import FlowPlan
from windlass._tasks.handle import Job
from windlass._tasks.task import Call
from windlass.errors import JobFailed, WindlassError
from windlass.testing._clock import VirtualClock
from windlass.testing._drain import NeverEmpty
from windlass.testing._isolation import (
    MemoryOpener,
    PlainContext,
    open_isolated_memory,
    opener_of,
    override_storage,
)
from windlass.testing._stepper import Stepper, make_stepper

__all__ = ["TooDeep", "inline"]

R = TypeVar("R")

Errors = Literal["raise", "keep"]

_DEEPEST = 50
_MOST_RUNS = 1000
_DEPTH: ContextVar[int] = ContextVar("windlass_inline_depth", default=0)


_ENDLESS_CHAIN = (
    f"{_MOST_RUNS} inline jobs have followed one another. A task that adds itself with ctx.then "
    f"never ends in inline mode: use windlass.testing.drain for it."
)


class TooDeep(WindlassError):
    """Inline jobs enqueue one another without end."""


def inline(app: Windlass, *, errors: Errors = "raise") -> PlainContext[None]:
    """Run every job of ``app`` to its end before the call that enqueues it returns.

    The job is stored, claimed, decoded, run and finished like any other. Only the waiting is left
    out: delays, backoff, limits, breakers, cool-downs and queues have no effect. A failed job
    raises `JobFailed` from the enqueueing call, after its ``on_failure`` job has run, and so does a
    failed job that ``ctx.then`` added. With ``errors="keep"``, only ``job.result()`` raises it.

    It isolates the app for the same time, unless the app is isolated already. With ``connection=``
    a job runs at once too, without waiting for your transaction to end.
    """
    return PlainContext("inline", lambda: _inline(app, errors))


@contextmanager
def _inline(app: Windlass, errors: Errors) -> Iterator[None]:
    parts = parts_of(app)
    kept = parts.connections.opener.scheme == "memory"
    opener = opener_of(app) if kept else open_isolated_memory(app, VirtualClock())
    make_client = partial(parts.make_client, kind=partial(InlineClient, app, errors))
    at_once = opener.at_once() if isinstance(opener, MemoryOpener) else nullcontext()
    with override_storage(app, opener, make_client), at_once:
        yield


class InlineClient(Client):
    """A client whose jobs have ended when a call returns."""

    def __init__(self, app: Windlass, errors: Errors, *parts: Any) -> None:
        super().__init__(*parts)
        self._app = app
        self._errors = errors

    async def enqueue(self, call: Call[R], job_id: JobId | None = None) -> Job[R]:
        (job,) = await self.enqueue_many([call], None if job_id is None else [job_id])
        return job

    async def enqueue_many(
        self, calls: Sequence[Call[R]], ids: Sequence[JobId] | None = None
    ) -> list[Job[R]]:
        async with self._one_deeper():
            jobs = await super().enqueue_many(calls, ids)
            await self._run([job.id for job in jobs if job.created or job.replaced])
        return jobs

    async def start_flow(
        self, plan: FlowPlan, calls: Sequence[Call[Any]], into: FlowId | None = None
    ) -> StartedFlow:
        async with self._one_deeper():
            started = await super().start_flow(plan, calls, into)
            if started.created:
                await self._run([job for _, job, _ in plan.calls], members=True)
        return started

    async def _run(self, created: Sequence[JobId], *, members: bool = False) -> None:
        """Run jobs, and those that follow them. ``members``: of a flow, in which jobs may wait for
        those that others add.
        """
        async with make_stepper(self._app, change=_unlimited) as stepper:
            added: list[JobId] = []
            before = -1
            while before < len(stepper.runs):
                before = len(stepper.runs)
                await _run_to_their_end(stepper, created)
                added += await _run_what_follows(self._app, stepper, created)
                if not members:
                    break
            if self._errors == "raise":
                await _raise_failures(stepper, [*created, *added])

    @asynccontextmanager
    async def _one_deeper(self) -> AsyncIterator[None]:
        depth = _DEPTH.get()
        if depth >= _DEEPEST:
            message = (
                f"{depth} inline jobs have enqueued one another. A task that enqueues itself "
                f"never ends in inline mode: use windlass.testing.drain for it."
            )
            raise TooDeep(message)
        entered = _DEPTH.set(depth + 1)
        try:
            yield
        finally:
            _DEPTH.reset(entered)

    def _new_many(self, calls: Sequence[Call[Any]], ids: Sequence[JobId]) -> list[NewJob]:
        """Make the jobs without limits: limits delay the start, and here nothing waits."""
        return [_unlimited(new) for new in super()._new_many(calls, ids)]


def _unlimited(new: NewJob) -> NewJob:
    then = new.on_failure
    if then is not None:
        then = msgspec.structs.replace(then, limits=())
    return msgspec.structs.replace(new, limits=(), on_failure=then)


async def _run_to_their_end(stepper: Stepper, ids: Sequence[JobId]) -> None:
    before, changed = len(stepper.runs), asyncio.Event()
    undo = stepper.storage.wakeups.subscribe(changed.set)
    try:
        while unfinished := await _unfinished(stepper, ids):
            changed.clear()
            if await _run_one(stepper, unfinished):
                if len(stepper.runs) - before >= _MOST_RUNS * len(ids):
                    raise NeverEmpty(_endless(stepper))
                continue
            unfinished = await _unfinished(stepper, ids)
            if all(job.state is State.WAITING for job in unfinished):
                return  # held back, by a paused queue or a limit: it stays waiting
            await changed.wait()  # another call of this test claimed it and runs it
    finally:
        undo()


async def _run_what_follows(
    app: Windlass, stepper: Stepper, ids: Sequence[JobId]
) -> Sequence[JobId]:
    """Run the ``on_failure`` and ``on_success`` jobs, those that ``ctx.then`` added, and those that
    follow them. Return the added ones.
    """
    added: list[JobId] = []
    for _ in range(_MOST_RUNS):
        ended = [job for job in await stepper.storage.admin.get(ids) if job]
        if not ended:
            return added
        tasks = {task for job in ended if (task := _next_task(app, job)) is not None}
        following = await stepper.waiting_below(ids)
        ids = [job.id for job in following]
        added += [job.id for job in following if job.task not in tasks]
        await _run_to_their_end(stepper, ids)
    raise TooDeep(_ENDLESS_CHAIN)


def _next_task(app: Windlass, job: JobRecord) -> str | None:
    """Return the task that follows a job that has ended so."""
    if job.state is State.FAILED:
        return None if job.on_failure is None else job.on_failure.task
    task = app.tasks.find(job.task) if job.state is State.SUCCEEDED else None
    then = None if task is None else task.follow_up("on_success", app.settings)
    return None if then is None else then.task


async def _run_one(stepper: Stepper, unfinished: Sequence[JobRecord]) -> int:
    waiting = [job for job in unfinished if job.state is State.WAITING]
    now = await stepper.storage.now()
    later = [job.id for job in waiting if job.due > now]
    if later:
        await stepper.storage.orders.order(RunNow(), later, _note())
    for record in await stepper.storage.queues.queues():
        if record.cool_until is not None:
            await stepper.storage.queues.warm(record.queue)
    return await stepper.step(sorted({job.queue for job in waiting}))


def _note() -> AuditNote:
    return AuditNote(id=new_job_id(), who="inline", what="jobs.run-now")


async def _unfinished(stepper: Stepper, ids: Sequence[JobId]) -> list[JobRecord]:
    jobs = await stepper.storage.admin.get(ids)
    return [job for job in jobs if job is not None and job.state not in TERMINAL]


async def _raise_failures(stepper: Stepper, ids: Sequence[JobId]) -> None:
    for job in await stepper.storage.admin.get(ids):
        if job is not None and job.state is State.FAILED and job.error is not None:
            failure = JobFailed(job.id, job.error.kind, job.error.message)
            failure.add_note(job.error.traceback)
            raise failure


def _endless(stepper: Stepper) -> str:
    return (
        f"{len(stepper.runs)} runs and the job has not ended: {stepper.runs[-1].task} keeps asking "
        f"to be run later. Inline mode does not wait; use windlass.testing.drain for it."
    )
