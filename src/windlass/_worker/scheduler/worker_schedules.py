"""Schedules that run on every worker: this worker's runs of them, without jobs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from datetime import datetime, timedelta

from windlass._core.job.job import Claim, ClaimedJob, NewJob
from windlass._core.job.outcome import Interrupted, Succeeded
from windlass._core.schedule.rules import latest_slots
from windlass._core.schedule.schedule import (
    MISSED_AFTER,
    Schedule,
    WorkerRun,
    first_slot,
    job_of_slot,
)
from windlass._schedules.edits import ScheduleView, decoded, write_of
from windlass._storage.protocol.schedules import Written
from windlass._storage.protocol.storage import Storage
from windlass._worker.periodic import run_every, rung_at
from windlass._worker.registration import Registration
from windlass._worker.run.execution import RunEnded, StopCause
from windlass._worker.run.runner import Runner
from windlass.errors import StorageError, StorageReplaced

__all__ = ["WorkerSchedules"]

log = logging.getLogger("windlass")

_LOOK = timedelta(seconds=10)
"""How soon a worker sees a schedule that was edited or resumed. A pause is seen at each slot."""
_TELL_AGAIN = 30.0
"""Seconds between two stored runs with the same outcome: many workers write to one schedule."""
_TRIES = 5
_LAST_CALL = 0.5


class WorkerSchedules:
    """Runs the task of a schedule in this worker at each slot.

    At most once per slot, at best effort: a slot that passes while the worker is busy elsewhere,
    pauses or cannot reach the storage is not made up. No slot of the worker's queues is taken.
    """

    def __init__(
        self,
        storage: Storage,
        identity: Registration,
        make_runner: Callable[[WorkerSchedules], Runner],
        *,
        may_run: Callable[[NewJob], bool],
        chance: Callable[[], float],
    ) -> None:
        """``make_runner`` makes a runner that hands its ended runs on to here. ``may_run``: whether
        this worker serves the queue and takes new work.
        """
        self._storage, self._store = storage, storage.schedules
        self._identity = identity
        self._runner = make_runner(self)
        self._may_run = may_run
        self._chance = chance
        self._planned: dict[str, tuple[Schedule, datetime | None]] = {}
        """The plan of each schedule when it was last read, and its next slot."""
        self._running: dict[Claim, tuple[str, datetime]] = {}
        self._told: dict[str, tuple[str, float]] = {}
        self._telling: set[asyncio.Task[None]] = set()
        self._names: Collection[str] = ()
        self._bell = asyncio.Event()
        self._loop: asyncio.Task[None] | None = None
        self.pause: timedelta = _LOOK

    def serve(self, names: Collection[str], end: asyncio.Event) -> None:
        """Run these from now on, until ``end``. Without any, nothing is started."""
        self._names = names
        self._bell.set()
        if names and self._loop is None:
            self._loop = asyncio.get_running_loop().create_task(self._run(end))

    async def _run(self, end: asyncio.Event) -> None:
        with rung_at(end, self._bell):
            what = "running schedules of every worker"
            try:
                await run_every(lambda: self.pause, self.step, stop=end, what=what, bell=self._bell)
            except StorageReplaced as error:
                log.debug("%s ends: %s", what, error)  # the other parts of the worker end it

    async def step(self) -> None:
        """Start what is due in this worker."""
        names = sorted(self._names)
        self.pause = _LOOK
        if not names:
            return
        due = await self._store.due(1)
        stored = map(decoded, await self._store.rows(names))
        views = {one.row.name: one for one in stored if isinstance(one, ScheduleView)}
        planned = self._planned
        self._planned = {}
        for name, view in views.items():
            plan = view.state.plan
            runs = not due.paused and view.state.fires and plan.on == "every_worker"
            if not runs or plan.job is None or not self._may_run(plan.job):
                continue  # what passes meanwhile is not made up
            before, next_at = planned.get(name, (None, None))
            if before == plan and next_at is not None and next_at <= due.at:
                self._start(name, plan, next_at, due.at)
            elif before == plan and next_at is not None:
                self._planned[name] = (plan, next_at)
                continue
            self._planned[name] = (plan, first_slot(plan, due.at))
        waits = [at - due.at for _, at in self._planned.values() if at is not None]
        self.pause = min([_LOOK, *waits])

    def _start(self, name: str, plan: Schedule, next_at: datetime, now: datetime) -> None:
        if any(running == name for running, _ in self._running.values()):
            log.info("schedule %s skips a slot on this worker: its run is still active", name)
            return
        slots = latest_slots(plan.rule, next_at, now, 1)
        if slots and now - slots[-1] <= MISSED_AFTER:
            job = job_of_slot(name, plan, slots[-1])
            run = _run_of(job, slots[-1], now, self._identity.id)
            self._running[run.claim] = (name, slots[-1])
            self._runner.start([run])

    # --- ended runs ---

    def add(self, ended: RunEnded) -> None:
        """Log how a run has ended, and store it for people."""
        name, slot = self._running.pop(ended.job.claim)
        outcome = _describe(ended)
        error = getattr(ended.outcome, "error", None)
        if error is not None:
            log.error("schedule %s failed on this worker: %s", name, error.traceback or outcome)
        else:
            log.debug("schedule %s ran on this worker: %s", name, outcome)
        before, at = self._told.get(name, ("", 0.0))
        now = asyncio.get_running_loop().time()
        if outcome != before or now - at >= _TELL_AGAIN:
            self._told[name] = (outcome, now)
            task = asyncio.get_running_loop().create_task(self._tell(name, slot, outcome))
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def _tell(self, name: str, slot: datetime, outcome: str) -> None:
        try:
            for _ in range(_TRIES):
                found = [decoded(row) for row in await self._store.rows([name])]
                known = found[0] if found else None
                if not isinstance(known, ScheduleView):
                    return
                now = await self._storage.now()
                run = WorkerRun(self._identity.id, slot, outcome[:500], now)
                write = write_of(known, known.state.ran_on(run), known.row.next_at)
                (answer,) = await self._store.write([write])
                if answer.what is Written.WRITTEN:
                    return
                await asyncio.sleep(self._chance())  # all workers run it at the same instant
        except StorageError as error:
            log.debug("cannot store the last run of schedule %s: %s", name, error)

    async def close(self) -> None:
        """End the runs under way, but not late: the worker leaves."""
        if self._loop is None:
            return
        self._loop.cancel()
        self._runner.stop_all(StopCause.INTERRUPT)
        ending = [self._loop, *self._runner.bodies.values()]
        await asyncio.wait(ending, timeout=_LAST_CALL)
        if self._telling:
            await asyncio.wait(self._telling, timeout=_LAST_CALL)
        self._runner.close()


def _run_of(job: NewJob, slot: datetime, now: datetime, worker: str) -> ClaimedJob:
    """Return the run of a slot in this worker. Its claim is of no stored job."""
    return ClaimedJob(
        claim=Claim(job.id, 1, -1),
        task=job.task,
        queue=job.queue,
        payload=job.payload,
        attempt=1,
        max_attempts=1,
        budget=1,
        due=slot,
        started_at=now,
        worker=worker,
        timeout=job.timeout,
        tenant=job.tenant,
        principal=job.principal,
        correlation_id=job.correlation_id,
        tags=job.tags,
    )


def _describe(ended: RunEnded) -> str:
    match ended.outcome:
        case Succeeded():
            return "succeeded"
        case Interrupted():
            return "interrupted: the worker stopped"
        case _:
            error = getattr(ended.outcome, "error", None)
            what = type(ended.outcome).__name__.lower()
            return what if error is None else f"failed: {error.kind}: {error.message}"
