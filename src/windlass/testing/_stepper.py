"""The worker's engine, stepped by hand. Drains and inline mode run jobs with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import msgspec

from windlass._app.app import Windlass
from windlass._app.parts import parts_of
from windlass._client.job_events import publish_expired_events
from windlass._core.flows.flow import Addition, FlowState, NewFlow
from windlass._core.job.event import Event, JobMoved
from windlass._core.job.job import JobId, JobRecord, NewJob
from windlass._core.job.state import State, Verb
from windlass._settings.settings import WorkerSettings
from windlass._storage.protocol.flows import FlowFilter
from windlass._storage.protocol.lists.job_list import JobFilter
from windlass._storage.protocol.storage import Storage
from windlass._worker.dependencies import WorkerDependencies
from windlass._worker.engine import Engine
from windlass._worker.run.execution import StopCause
from windlass.errors import WindlassError
from windlass.testing._enqueued import all_jobs
from windlass.testing._isolation import opener_of

__all__ = ["PATIENCE", "Stepper", "StillRunning", "make_stepper"]

PATIENCE = timedelta(seconds=60)
"""Real time that one job may take: a test that hangs does not say why."""

_UNWIND = 1.0
_PAGE = 500
_DECLARED_DEAD = (
    "the worker that runs this test's jobs was declared dead; declare dead only workers you started"
)


class StillRunning(WindlassError):
    """A job did not end while a test was running it."""


class Stepper:
    """Claims and runs due jobs one at a time, and remembers how every run ended."""

    def __init__(self, around: WorkerDependencies, patience: timedelta) -> None:
        self._around = around
        self._patience = patience
        self._engine: Engine | None = None
        self._served: tuple[str, ...] = ()
        self._workers: set[str] = set()
        self.runs: list[JobMoved] = []

    @property
    def storage(self) -> Storage:
        """The storage of the jobs."""
        return self._around.storage

    def note(self, event: Event) -> None:
        """Record an event of the app, unless it is of another worker's run."""
        match event:
            case JobMoved(worker=worker, verb=verb) if worker in self._workers:
                if verb is not Verb.CLAIM:
                    self.runs.append(event)

    async def expire(self, limit: int) -> int:
        """Discard jobs past their expiry, and return their number."""
        expired = await self.storage.maintenance.expire(limit)
        await publish_expired_events(self.storage, self._around.bus, expired)
        return len(expired)

    async def step(self, queues: Sequence[str]) -> int:
        """Run one due job of these queues to its end; 0 if there is none."""
        if not queues:
            return 0
        engine = await self._serving(queues)
        # Twice: one claim finds that a job may only run alone, and the next one obeys it.
        return await self._step(engine) or await self._step(engine)

    async def _step(self, engine: Engine) -> int:
        scope = asyncio.timeout(self._patience.total_seconds())
        try:
            async with scope:
                took = await engine.step()
        except TimeoutError:
            if not scope.expired():
                raise
            raise StillRunning(_stuck(engine, self._patience)) from None
        if engine.identity.lost.is_set():
            raise WindlassError(_DECLARED_DEAD)
        return took

    async def waiting(self, queues: Sequence[str] | None) -> list[JobRecord]:
        """List the waiting jobs that a drain may run later. Those of paused queues are left out."""
        paused = {count.queue for count in await self.storage.admin.counts() if count.paused}
        wanted = JobFilter(states=[State.WAITING])
        jobs = await all_jobs(self.storage.admin, wanted)
        return [
            job
            for job in jobs
            if job.queue not in paused and (queues is None or job.queue in queues)
        ]

    async def flow_expiries(self) -> list[datetime]:
        """Return when the running flows expire that do."""
        running = FlowFilter(states=[FlowState.RUNNING])
        found: list[datetime] = []
        before: int | None = None
        while page := await self.storage.flows.find(running, before=before, limit=_PAGE):
            found += [flow.expires_at for flow in page if flow.expires_at is not None]
            before = page[-1].number
        return found

    async def waiting_below(self, parents: Sequence[JobId]) -> list[JobRecord]:
        """List the waiting jobs that these jobs have added, in the order they were stored."""
        jobs = await all_jobs(self.storage.admin, JobFilter(states=[State.WAITING]))
        above = set(parents)
        return [job for job in reversed(jobs) if job.parent in above]

    async def _serving(self, queues: Sequence[str]) -> Engine:
        """Return an engine for at least these queues, with a free slot."""
        engine = self._engine
        if engine is not None and set(queues) <= set(self._served) and engine.slots.free:
            return engine
        # A slot stays taken when a thread outlives its timeout; the next job needs another.
        await self.close()
        self._served = tuple(dict.fromkeys((*queues, *self._served)))
        settings = WorkerSettings(shared=self._served, slots=1)
        engine = self._engine = Engine(self._around, settings)
        engine.progress.bind(asyncio.get_running_loop())
        await engine.identity.register()
        self._workers.add(engine.identity.id)
        return engine

    async def close(self) -> None:
        """Interrupt running jobs, release them, and end the worker's row in the store."""
        engine, self._engine = self._engine, None
        if engine is None:
            return
        bodies = list(engine.runner.bodies.values())
        for claim in list(engine.runner.active):
            engine.runner.stop(claim, StopCause.INTERRUPT)
        for body in bodies:
            # A plain function's run waits for its thread, and nothing waits for it here.
            if not body.cancelling():
                body.cancel()
        if bodies:
            await asyncio.wait(bodies, timeout=_UNWIND)
        while not engine.finisher.idle:
            await engine.finisher.flush()
        await self.storage.workers.leave(engine.identity.id, [])
        engine.identity.let_go()
        engine.runner.close()
        await engine.progress.close()


@asynccontextmanager
async def make_stepper(
    app: Windlass,
    patience: timedelta = PATIENCE,
    *,
    change: Callable[[NewJob], NewJob] | None = None,
) -> AsyncIterator[Stepper]:
    """Make a stepper for an isolated app. ``change`` makes other jobs of those that handlers add to
    their success.
    """
    opener_of(app)
    parts = parts_of(app)
    parts.load()
    # In this process with any ``run_in``: a test's patches exist nowhere else.
    around = msgspec.structs.replace(await parts.workers.dependencies(), locate=None)
    if change is not None:
        make, changed = around.make_jobs, change
        around = msgspec.structs.replace(
            around,
            make_jobs=lambda job, calls: [_changed(one, changed) for one in make(job, calls)],
        )
    stepper = Stepper(around, patience)
    deaf = parts.hooks.bus.subscribe(stepper.note)
    try:
        yield stepper
    finally:
        try:
            await stepper.close()
        finally:
            deaf()


def _stuck(engine: Engine, patience: timedelta) -> str:
    active = engine.runner.active
    running = ", ".join(f"{run.job.task} ({claim.job})" for claim, run in active.items())
    return (
        f"{running or 'a job'} is still running after {patience.total_seconds():g} s. Jobs run one "
        f"at a time here, so a handler that waits for another job's result waits forever: use "
        f"`async with app.worker():` for such a test."
    )


def _changed(one: Addition, change: Callable[[NewJob], NewJob]) -> Addition:
    """Return what a handler adds, with other jobs."""
    if isinstance(one, NewFlow):
        jobs = [(part, change(job)) for part, job in one.jobs]
        return msgspec.structs.replace(one, jobs=jobs)
    return change(one)
