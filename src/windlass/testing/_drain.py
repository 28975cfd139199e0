"""Draining: run due jobs in the test's own process, with the real claimer, codec and outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Self

import msgspec

from windlass._app.app import Windlass
from windlass._core.job.event import JobMoved
from windlass._core.job.job import JobRecord, LimitUse
from windlass._core.job.outcome import HEAD_START
from windlass._core.job.state import Verb
from windlass._core.limits.limit import Closed, LimitSpec, admit
from windlass._core.values.instants import aware, duration
from windlass._storage.protocol.limits import LimitState
from windlass._tasks.task import Task
from windlass.errors import WindlassError
from windlass.testing._clock import VirtualClock
from windlass.testing._isolation import virtual_clock
from windlass.testing._stepper import PATIENCE, Stepper, make_stepper

__all__ = [
    "Drained",
    "NeverEmpty",
    "RunsFailed",
    "drain",
    "drain_all",
    "drain_all_sync",
    "drain_sync",
]

_CHUNK_SIZE = 1000


class RunsFailed(WindlassError, AssertionError):
    """Runs of a drain ended in an error. The text holds every traceback."""

    def __init__(self, runs: Sequence[JobMoved]) -> None:
        super().__init__("\n\n".join([f"{len(runs)} runs ended in an error:", *map(_told, runs)]))
        self.runs: tuple[JobMoved, ...] = tuple(runs)


class NeverEmpty(WindlassError):
    """A drain ran many jobs and still more are waiting."""


class Drained(msgspec.Struct, frozen=True):
    """The runs of a drain: one event for each, in the order they ended."""

    runs: tuple[JobMoved, ...]

    @property
    def ran(self) -> int:
        """The number of runs. A retried job counts once for each attempt."""
        return len(self.runs)

    @property
    def succeeded(self) -> int:
        """Runs whose job succeeded."""
        return self._count(Verb.SUCCEED)

    @property
    def failed(self) -> int:
        """Runs after which the job failed for good."""
        return self._count(Verb.FAIL)

    @property
    def retried(self) -> int:
        """Runs that failed, with another attempt to come."""
        return self._count(Verb.RETRY)

    @property
    def postponed(self) -> int:
        """Runs that used no attempt: snoozed, throttled, or of a task that is not registered."""
        return self._count(Verb.SNOOZE) + self._count(Verb.THROTTLE) + self._count(Verb.RELEASE)

    @property
    def cancelled(self) -> int:
        """Runs that ended because of a cancel request."""
        return self._count(Verb.CANCEL)

    @property
    def errors(self) -> tuple[JobMoved, ...]:
        """The runs that ended in an error, retried ones included."""
        return tuple(run for run in self.runs if run.verb in (Verb.FAIL, Verb.RETRY))

    def of(self, task: Task[..., Any]) -> Drained:
        """List the runs of one task."""
        return Drained(tuple(run for run in self.runs if run.task == task.name))

    def raise_errors(self) -> Self:
        """Raise `RunsFailed` if any run ended in an error; else return this object, for
        chaining.
        """
        if self.errors:
            raise RunsFailed(self.errors)
        return self

    def _count(self, verb: Verb) -> int:
        return sum(run.verb is verb for run in self.runs)


async def drain(
    app: Windlass,
    *,
    queues: Sequence[str] | None = None,
    until: timedelta | float | datetime | None = None,
    patience: timedelta | float = PATIENCE,
) -> Drained:
    """Run every due job, and those they enqueue, until none is left.

    Jobs run one at a time, queue by queue, in the order a worker would claim them. Jobs that are
    due later, retries included, stay waiting. To run them, move the clock and drain again, or give
    ``until``, a duration or an instant: the clock then moves from one due time to the next.

    ``limit``: NeverEmpty after this number of runs.
    """
    async with make_stepper(app, duration(patience, "patience")) as stepper:
        await _run_due(stepper, queues)
        if until is not None:
            await _live_until(stepper, queues, virtual_clock(app), until)
        return Drained(tuple(stepper.runs))


async def drain_all(
    app: Windlass,
    *,
    queues: Sequence[str] | None = None,
    limit: int = 1000,
    patience: timedelta | float = PATIENCE,
) -> Drained:
    """Drain, moving the clock to the next due time again and again, until nothing is waiting.

    More than ``limit`` runs raise `NeverEmpty`: a job enqueues or snoozes itself without end.
    """
    clock = virtual_clock(app)
    async with make_stepper(app, duration(patience, "patience")) as stepper:
        while True:
            await _run_due(stepper, queues, limit)
            due = await _next_due(stepper, queues, clock)
            if due is None:
                return Drained(tuple(stepper.runs))
            clock.set(due)


def drain_sync(
    app: Windlass,
    *,
    queues: Sequence[str] | None = None,
    until: timedelta | float | datetime | None = None,
    patience: timedelta | float = PATIENCE,
) -> Drained:
    """Drain like `drain`, in tests without an event loop."""
    work = drain(app, queues=queues, until=until, patience=patience)
    return app.blocking.run(work, instead="drain(app)")


def drain_all_sync(
    app: Windlass,
    *,
    queues: Sequence[str] | None = None,
    limit: int = 1000,
    patience: timedelta | float = PATIENCE,
) -> Drained:
    """Drain like `drain_all`, in tests without an event loop."""
    work = drain_all(app, queues=queues, limit=limit, patience=patience)
    return app.blocking.run(work, instead="drain_all(app)")


async def _run_due(
    stepper: Stepper, queues: Sequence[str] | None, limit: int | None = None
) -> None:
    while await stepper.expire(_CHUNK_SIZE) == _CHUNK_SIZE:
        pass
    while await stepper.storage.flows.settle(_CHUNK_SIZE):
        pass
    while True:
        now = await stepper.storage.now()
        due = {job.queue for job in await stepper.waiting(queues) if job.due <= now}
        served = sorted(due) if queues is None else [queue for queue in queues if queue in due]
        if not await _empty(stepper, served, limit):
            return


async def _empty(stepper: Stepper, queues: Sequence[str], limit: int | None) -> int:
    """Run the jobs of these queues, and return the number of runs."""
    before = len(stepper.runs)
    while await stepper.step(queues):
        if limit is not None and len(stepper.runs) >= limit:
            raise NeverEmpty(_still_waiting(stepper))
    return len(stepper.runs) - before


async def _live_until(
    stepper: Stepper,
    queues: Sequence[str] | None,
    clock: VirtualClock,
    until: timedelta | float | datetime,
) -> None:
    if isinstance(until, datetime):
        end = aware(until, "until")
    else:
        end = clock.now() + duration(until, "until")
    while (due := await _next_due(stepper, queues, clock)) is not None and due <= end:
        clock.set(due)
        await _run_due(stepper, queues)
    if end > clock.now():  # a handler may have moved the clock itself
        clock.set(end)


async def _next_due(
    stepper: Stepper, queues: Sequence[str] | None, clock: VirtualClock
) -> datetime | None:
    """Return when the next job is due, its queue's cool-down ends, its limits have room, or a flow
    expires.
    """
    now = clock.now()
    waiting = await stepper.waiting(queues)
    records = await stepper.storage.queues.queues()
    rests = {one.queue: one.cool_until for one in records if one.cool_until is not None}
    starts = [(max(_counts_from(job), rests.get(job.queue, job.due)), job) for job in waiting]
    later = [start for start, job in starts if start > now and not job.blocked]
    later += [at for at in await stepper.flow_expiries() if at > now]
    held = [job for start, job in starts if start <= now and job.limits]
    return min(later + await _openings(stepper, held, now), default=None)


def _counts_from(job: JobRecord) -> datetime:
    """Return when a job counts as due. One that could not be run is left to other workers for a
    while.
    """
    return job.due if job.missed_at is None else job.due + HEAD_START


async def _openings(stepper: Stepper, held: Sequence[JobRecord], now: datetime) -> list[datetime]:
    """Yield the instants at which limits let one of these jobs start. No running job frees them."""
    names = {use.name for job in held for use in job.limits}
    store = stepper.storage.limits
    specs = {spec.name: spec for spec in await store.specs()}
    budgets = [state for name in sorted(names) for state in await store.states(name)]
    states = {(state.name, state.key): state for state in budgets}
    openings = []
    for job in held:
        uses = [(specs[use.name], states.get((use.name, use.key)), use) for use in job.limits]
        closed = [at for use in uses if (at := _opening(*use, now)) is not None]
        openings += [max(closed)] if closed else []
    return openings


def _opening(
    spec: LimitSpec, state: LimitState | None, use: LimitUse, now: datetime
) -> datetime | None:
    """Return when a closed limit admits this job by itself."""
    if spec.rate is not None:
        spent_until = None if state is None else state.spent_until
        verdict = admit(spec.rate, spent_until, cost=use.cost, now=now)
        return verdict.open_at if isinstance(verdict, Closed) else None
    if spec.breaker is None or state is None or state.breaker is None:
        return None
    until = state.breaker.open_until
    shut = state.breaker.holds(spec.breaker) and until is not None and until > now
    return until if shut else None


def _still_waiting(stepper: Stepper) -> str:
    last = stepper.runs[-1]
    return (
        f"{len(stepper.runs)} runs and still not empty; the last was {last.task} ({last.verb}). A "
        f"task that enqueues or snoozes itself never ends: drain(app, until=...) instead, or give "
        f"drain_all a higher limit."
    )


def _told(run: JobMoved) -> str:
    error = run.error
    what = "no error was recorded" if error is None else f"{error.kind}: {error.message}"
    told = f"{run.task}, attempt {run.attempt} of {run.max_attempts}: {what}"
    return f"{told}\n{error.traceback}" if error is not None and error.traceback else told
