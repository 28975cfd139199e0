"""The parts that move jobs, wired together: slots, claimer, runner, finisher, one identity.

A worker gives an engine a lifetime; ``windlass.testing._drain`` steps one by hand.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import timedelta
from typing import Any

import msgspec

from windlass._client.job_events import publish_expired_events
from windlass._core.job.event import claimed_event
from windlass._core.job.job import Claim, ClaimedJob, JobId, Progress
from windlass._core.job.outcome import Misfit, Missing, Outcome, Succeeded, Throttled
from windlass._core.job.transition import Transition
from windlass._core.schedule.schedule import Schedule
from windlass._observe.bus import Bus
from windlass._plugins.builtin_maintenance import UPKEEP
from windlass._plugins.installation import RunChore
from windlass._settings.settings import Settings, WorkerSettings
from windlass._storage.protocol.jobs import Applied
from windlass._storage.protocol.journal import LogLine
from windlass._storage.protocol.storage import Storage
from windlass._storage.protocol.transactions import UserConnection
from windlass._system.seams import Seams
from windlass._tasks.app_location import AppLocation
from windlass._tasks.hooks import Middleware
from windlass._tasks.propagation import inherit_options
from windlass._tasks.services import AttachedServices, Services
from windlass._tasks.task import Call, TaskRegistry
from windlass._worker.child_process.pool import ChildPool
from windlass._worker.claim.claimer import Claimer
from windlass._worker.claim.slots import Slots
from windlass._worker.claim.unrunnable_jobs import UnrunnableJobs
from windlass._worker.finish.decide_safely import decide_safely
from windlass._worker.finish.finisher import Finisher, transition_event
from windlass._worker.finish.follow_ups import FailureJobs
from windlass._worker.finish.policies import Policies, Throttles
from windlass._worker.liveness.maintenance import Pruner
from windlass._worker.registration import Registration
from windlass._worker.run.log_store import LogCollector
from windlass._worker.run.progress import ProgressReporter
from windlass._worker.run.runner import Execution, Runner
from windlass._worker.run.transaction_finish import (
    CommittedFinish,
    FinishInTransaction,
    UndecidedFinish,
)
from windlass._worker.scheduler.schedule_sync import Plans

__all__ = ["Engine", "WorkerDependencies"]

log = logging.getLogger("windlass")

_TOLD = 1000
"""Tasks that are remembered as warned about."""
_UNDECIDED = 1000
"""Runs that are remembered because their outcome was not known when they ended."""


async def _no_plans() -> Mapping[str, Schedule]:
    return {}


class WorkerDependencies(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker needs from the app it works for."""

    storage: Storage
    tasks: TaskRegistry
    settings: Settings
    seams: Seams
    bus: Bus
    enqueue: Callable[[Call[Any]], Awaitable[Any]]
    state: Callable[[], Any] = lambda: None
    """The application's own object, as it is now."""
    layers: Sequence[Middleware] = ()
    """The middleware, outermost first; it may still grow."""
    living: Callable[[], AbstractAsyncContextManager[None]] = nullcontext
    """What surrounds a worker's life."""
    plans: Plans = _no_plans
    """The schedules of the app's code, as they are now."""
    chores: Mapping[str, RunChore] = {}
    """What those without a job do; it may still grow."""
    on_change: Callable[[Callable[[], None]], Callable[[], None]] = lambda _: lambda: None
    """Tells when tasks or schedules come or go, from any thread; the answer ends it."""
    services: AttachedServices = msgspec.field(default_factory=AttachedServices)
    """What the application lends to handlers."""
    locate: Callable[[], AppLocation] | None = None
    """Where child processes find the app; None: tasks that ask for one run in this process."""


class Engine:
    """One worker's moving parts. Nothing moves until somebody runs or steps them."""

    identity: Registration
    lines: LogCollector

    def __init__(
        self, around: WorkerDependencies, worker: WorkerSettings, on_buried: Callable[[], None]
    ) -> None:
        """Wire the parts; touches no storage."""
        self._around, self._served, self._on_buried = around, worker.served, on_buried
        # Runs that ended and left it open how: few, if any.
        self._undecided: deque[Claim] = deque(maxlen=_UNDECIDED)
        settings, storage = around.settings, around.storage
        self.policy: Policies = Policies(around.tasks, settings, storage.queues)
        """The rules that outcomes are decided by."""
        self.following: FailureJobs = FailureJobs(around.seams.new_job_ids, settings, around.tasks)
        self.identity = Registration(storage, settings, worker, around.seams, around.tasks)
        self.misses: UnrunnableJobs = UnrunnableJobs(storage, around.tasks, self.identity)
        self._chance = around.seams.chance
        self.slots: Slots = Slots(worker, on_free=self._slot_freed)
        self.finisher: Finisher = Finisher(
            storage.jobs,
            around.bus,
            around.seams.chance,
            on_taken=self._slot_freed,
            follow=self.following,
        )
        self.progress: ProgressReporter = ProgressReporter(storage.jobs)
        self.children: ChildPool | None = None
        if around.locate is not None:
            self.children = ChildPool(around.locate, settings, self, around.tasks, self._keep)
        self.runner: Runner = Runner(
            around.tasks,
            self,
            self._ended,
            result_limit=settings.result_limit,
            error_limit=settings.error_limit,
            timeout=settings.timeout,
            on_overstay=self._overstays,
            layers=around.layers,
            resolve=self._resolve,
            judge=self.misses.judge,
            children=self.children,
        )
        self.lines = LogCollector(storage, settings.stored_logs, self.runner.active.keys())
        self.finishing: FinishInTransaction = FinishInTransaction(
            storage,
            self.runner.active,
            self._settle,
            self.progress,
            around.tasks,
            result_limit=settings.result_limit,
            isolated=storage.transactions is None and settings.url.startswith("postgres"),
        )
        self.runner.finishing = self.finishing.asked
        self.claimer: Claimer = Claimer(
            storage,
            self.slots,
            self.identity,
            self,
            queues=worker.served,
            poll=settings.poll,
            chance=around.seams.chance,
            most=worker.max_jobs,
        )
        self.slots.on_free = self.claimer.slot_freed  # a call less per job

    @property
    def idle(self) -> bool:
        """Nothing runs here and every outcome is stored."""
        return not self.runner.active and self.finisher.idle

    async def nothing_left(self) -> bool:
        """Whether nothing is ready or running on the served queues, here or elsewhere, and no
        schedule is due: what is will be jobs in a moment.
        """
        storage = self._around.storage
        if not self.idle or (await storage.schedules.due(1)).rows:
            return False
        return not await storage.jobs.active(self._served)

    async def step(self) -> int:
        """Claim once, run what was claimed to its end, store the outcomes; how many were run."""
        for part in (self.progress, self.lines):
            part.bind(asyncio.get_running_loop())  # threads cannot ask which loop is theirs
        try:
            await self.policy.queues.step()
            took = await self.claimer.step()
            while self.runner.active:
                bodies = [run.body for run in self.runner.active.values() if run.body is not None]
                await asyncio.wait(bodies, return_when=asyncio.FIRST_COMPLETED)
            while not self.finisher.idle:
                await self.finisher.flush()
        finally:
            await self.lines.close()
        return took

    def _slot_freed(self) -> None:
        self.claimer.slot_freed()

    # --- what the claimer needs (`windlass._worker.claim.claimer.ClaimerHost`) ---

    def buried(self) -> None:
        """The store takes this worker for dead."""
        self._on_buried()

    def given_back(
        self, jobs: Sequence[ClaimedJob], releases: Sequence[Transition], applied: Applied
    ) -> None:
        """Tell of claims that were given back: first that they were taken, unless they ran here.

        Not before the store has answered: an apply that fails is tried again, and a claim is one
        event.
        """
        for job, ended, answer in zip(jobs, releases, applied.answers, strict=True):
            ran_here = job.claim in self._undecided
            if self._around.bus.heard and answer.verb is not None:
                if not ran_here:
                    self._around.bus.publish(claimed_event(job))
                self._around.bus.publish(transition_event(job, ended, answer, applied.at))

    async def expired(self, jobs: Sequence[JobId]) -> None:
        """Tell of jobs that a claim discarded because their time had passed."""
        await publish_expired_events(self._around.storage, self._around.bus, jobs)

    @property
    def head_start(self) -> timedelta:
        """How long jobs that a worker could not run are left to the others."""
        return self.misses.head_start

    def has_room(self) -> bool:
        """Whether outcomes are being stored as fast as they come."""
        return self.finisher.backlog < self.slots.total

    def all_stored(self, then: Callable[[], None]) -> bool:
        """Whether every outcome is stored; if not, call ``then`` once when they are."""
        return self.finisher.all_stored(then)

    def holds(self, claim: Claim) -> bool:
        """Whether this claim runs, or waits to be stored, in this process."""
        return claim in self.runner.active or self.finisher.holds(claim)

    def start(self, jobs: Sequence[ClaimedJob]) -> None:
        """Run what was just claimed."""
        if self._around.bus.heard:
            for job in jobs:
                self._around.bus.publish(claimed_event(job))
        self.runner.start(jobs)

    # --- what a handler's context needs (`windlass._tasks.context.ContextHost`) ---

    @property
    def state(self) -> Any:
        """The application's own object."""
        return self._around.state()

    @functools.cached_property
    def services(self) -> Services:
        """What the application lends, and the upkeep of the storage; plugins get what is granted
        to them.
        """
        around, queues = self._around, self.policy.queues
        upkeep = Pruner(around.storage, around.settings, queues, around.bus)
        return around.services.with_own({UPKEEP: upkeep}, lambda: self.claimer.quiet)

    @functools.cached_property
    def _waiting(self) -> set[str]:
        """Tasks whose handlers were seen waiting for other jobs."""
        return set()

    def waits_for(self, job: ClaimedJob, other: JobId) -> None:
        """Warn, once for each task, of a handler that waits for another job while no slot is free;
        safe from any thread.
        """
        if self.slots.free > 0 or job.task in self._waiting or len(self._waiting) >= _TOLD:
            return
        self._waiting.add(job.task)
        log.warning(
            "job %s (%s) waits for the result of job %s, and no slot of this worker is free: if no "
            "other worker runs that job, both wait forever. End the handler and continue in a job "
            "that the other one enqueues, or give that queue its own slots. Logged once for each "
            "task.",
            job.claim.job,
            job.task,
            other,
        )

    def note(self, job: ClaimedJob, progress: Progress) -> None:
        """Store how far a run is, soon; safe from any thread."""
        self.progress.note(job, progress)

    def _keep(self, claim: Claim, lines: Sequence[LogLine]) -> None:
        self.lines.keep(claim, lines)

    async def enqueue_from(self, job: ClaimedJob, call: Call[Any]) -> Any:
        """Enqueue follow-up work that remembers where it came from."""
        return await self._around.enqueue(inherit_options(call, job))

    async def finish(self, job: ClaimedJob, result: object, connection: UserConnection) -> None:
        """Write a job's success into the user's transaction."""
        await self.finishing.finish(job, result, connection)

    def finish_sync(self, job: ClaimedJob, result: object, connection: UserConnection) -> None:
        """The same from a thread."""
        self.finishing.finish_sync(job, result, connection)

    async def _resolve(self, run: Execution, outcome: Outcome) -> Outcome:
        return await self.finishing.resolve(run, outcome)

    @functools.cached_property
    def _throttles(self) -> Throttles:
        return Throttles(self._around.settings.max_throttle)

    def _settle(self, job: ClaimedJob, outcome: Outcome) -> Transition:
        ended = decide_safely(job, outcome, self.policy, by=job.worker, chance=self._chance)
        return ended if job.on_failure is None else self.following(job, ended)

    def _ended(self, run: Execution, outcome: Outcome) -> None:
        job = run.job
        try:
            if type(outcome) is Succeeded:  # most are, and need no other look
                self.finisher.add(job, self._settle(job, outcome))
            else:
                self._ended_otherwise(job, outcome)
        finally:
            self._free(run)

    def _ended_otherwise(self, job: ClaimedJob, outcome: Outcome) -> None:
        if isinstance(outcome, Missing | Misfit):
            outcome = self.misses.met(job, outcome, self.policy(job))
        if isinstance(outcome, Throttled):
            outcome = self._throttles(job, outcome)
        if isinstance(outcome, UndecidedFinish):
            self._undecided.append(job.claim)
            return
        transition = self._settle(job, outcome)
        if isinstance(outcome, CommittedFinish):
            self.finisher.tell(job, transition, outcome.at)
        else:
            self.finisher.add(job, transition)

    def _free(self, run: Execution) -> None:
        job = run.job
        del self.runner.active[job.claim]
        if self.progress.used:  # a call less per job
            note = self.progress.take(job.claim)
            if note is not None and self.finisher.holds(job.claim):
                self.finisher.note(job.claim, note)
        if job.solo:
            self.claimer.ended(job.claim)
        if run.detached is None:
            self.slots.give(job.queue)
            if self.lines.runs:  # a call less per job
                self.lines.ended(job.claim)
        else:
            # A thread that did not end keeps its slot: the worker must not run more than it may.
            run.detached.add_done_callback(lambda _: self._let_go(job))
            self._overstays(run)

    def _let_go(self, job: ClaimedJob) -> None:
        self.slots.give(job.queue)
        self.lines.ended(job.claim)

    def _overstays(self, run: Execution) -> None:
        """A run goes on although its time is up; nothing can stop it, but somebody should know."""
        full = self.slots.free == 0
        log.log(
            logging.ERROR if full else logging.WARNING,
            "job %s (%s) was asked to stop and is still running; it keeps its slot until it "
            "ends%s. Check ctx.cancelled in the handler, or give its calls timeouts",
            run.job.claim.job,
            run.job.task,
            ", and no slot is free: this worker takes no more jobs" if full else "",
        )
