"""The parts that move jobs, wired together: claimer → runner → finisher, and what they share.

A worker gives an engine a lifetime; ``windlass.testing._drain`` steps one by hand.
"""

from __future__ import annotations

import asyncio
import functools

from windlass._settings.settings import WorkerSettings
from windlass._worker.child_process.pool import ChildPool, reuse_limits
from windlass._worker.claim.claimer import Claimer, ClaimSettings
from windlass._worker.claim.slots import Slots
from windlass._worker.claim.unrunnable_jobs import UnrunnableJobs
from windlass._worker.dependencies import WorkerDependencies
from windlass._worker.finish.decisions import Decisions
from windlass._worker.finish.finisher import Finisher
from windlass._worker.finish.follow_ups import define_limits
from windlass._worker.registration import Registration
from windlass._worker.run.arguments import FlowArguments
from windlass._worker.run.context_host import WorkerContextHost
from windlass._worker.run.execution import ActiveRuns, EndedRuns, OwnTask, RunLimits
from windlass._worker.run.log_store import LogCollector
from windlass._worker.run.progress import ProgressReporter
from windlass._worker.run.runner import Runner
from windlass._worker.run.transaction_finish import FinishInTransaction
from windlass._worker.runner_parts import WorkerParts
from windlass._worker.scheduler.worker_schedules import WorkerSchedules

__all__ = ["Engine", "WorkerDependencies"]


class Engine:
    """One worker's moving parts. Nothing runs until a caller runs or steps them."""

    def __init__(
        self, around: WorkerDependencies, worker: WorkerSettings, *, obeys_cancel: bool = True
    ) -> None:
        """Wire the parts; touches no storage. ``obeys_cancel``: cancelling the worker is an order
        to leave at once.
        """
        self._around, self._served = around, worker.served
        settings, storage, tasks = around.settings, around.storage, around.tasks
        active: ActiveRuns = {}
        quiet = asyncio.Event()
        self.own: OwnTask = OwnTask(obeys_cancel=obeys_cancel)
        self.identity: Registration = Registration(storage, settings, worker, around.seams, tasks)
        self.decisions: Decisions = Decisions(tasks, settings, storage.queues, around.seams)
        self.slots: Slots = Slots(worker, asyncio.Event())
        self.progress: ProgressReporter = ProgressReporter(storage.jobs)
        self.lines: LogCollector = LogCollector(storage, settings.stored_logs, active)
        unrunnable = UnrunnableJobs(storage, tasks, self.identity)
        transactions = self._transactions(active)
        self.host: WorkerContextHost = WorkerContextHost(
            around,
            self.slots,
            self.progress,
            transactions,
            active=active,
            queues=self.decisions.queues,
            quiet=quiet,
        )
        arguments = FlowArguments(storage)
        self.children: ChildPool | None = None
        if around.locate is not None:
            named = around.task_named or tasks.__getitem__
            self.children = ChildPool(
                around.locate, settings, self.host, named, self.lines, read=arguments.read
            )
        self.finisher: Finisher = Finisher(
            storage.jobs,
            around.bus,
            self.slots,
            self.decisions,
            unrunnable,
            define=functools.partial(define_limits, storage.limits, tasks),
            chance=around.seams.chance,
        )
        parts = WorkerParts(
            slots=self.slots,
            progress=self.progress,
            lines=self.lines,
            transactions=transactions,
            unrunnable=unrunnable,
            own=self.own,
            arguments=arguments,
            children=self.children,
        )
        self.runner: Runner = self._runner(self.finisher, active, parts)
        self.claimer: Claimer = self._claimer(worker, unrunnable, quiet)
        self.schedules: WorkerSchedules = WorkerSchedules(
            storage,
            self.identity,
            self._runner,
            may_run=lambda job: job.queue in worker.served and self.claimer.takes_jobs,
            chance=around.seams.chance,
        )

    def _transactions(self, active: ActiveRuns) -> FinishInTransaction:
        settings, storage = self._around.settings, self._around.storage
        return FinishInTransaction(
            storage,
            active,
            self.decisions,
            self.progress,
            self._around.tasks,
            result_limit=settings.result_limit,
            isolated=storage.transactions is None and settings.url.startswith("postgres"),
        )

    def _runner(
        self, ended: EndedRuns, active: ActiveRuns | None = None, parts: WorkerParts | None = None
    ) -> Runner:
        settings = self._around.settings
        limits = RunLimits(
            result_limit=settings.result_limit,
            error_limit=settings.error_limit,
            timeout=settings.timeout,
            memory_limit=settings.child_memory_limit,
            reuse=reuse_limits(settings),
        )
        return Runner(
            self._around.tasks,
            self.host,
            ended,
            limits,
            layers=self._around.layers,
            active=active,
            worker=parts,
        )

    def _claimer(
        self, worker: WorkerSettings, unrunnable: UnrunnableJobs, quiet: asyncio.Event
    ) -> Claimer:
        around = self._around
        settings = ClaimSettings(
            queues=worker.served,
            poll=around.settings.poll,
            most=worker.max_jobs,
            quiet=quiet,
            unrunnable=unrunnable,
            chance=around.seams.chance,
        )
        return Claimer(
            around.storage,
            self.identity,
            self.runner,
            self.finisher,
            self.slots,
            bus=around.bus,
            settings=settings,
        )

    @property
    def idle(self) -> bool:
        """Nothing runs here and every outcome is stored."""
        return not self.runner.active and self.finisher.idle

    async def nothing_left(self) -> bool:
        """Return whether nothing is ready or running on the served queues, here or elsewhere, and
        no schedule is due: what is will be jobs in a moment.
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
            await self.decisions.queues.step()
            took = await self.claimer.step()
            while self.runner.bodies:
                bodies = list(self.runner.bodies.values())
                await asyncio.wait(bodies, return_when=asyncio.FIRST_COMPLETED)
            while not self.finisher.idle:
                await self.finisher.flush()
        finally:
            await self.lines.close()
        return took
