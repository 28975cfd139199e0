"""A worker: the engine's parts as nested lifetimes, and the way it stops."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from datetime import timedelta
from enum import StrEnum
from typing import Any

from windlass.config import WorkerSettings
from windlass.core.event import WorkerChanged
from windlass.core.job import ClaimedJob
from windlass.core.outcome import Interrupted, decide
from windlass.core.transition import Transition
from windlass.errors import StorageError
from windlass.runtime.chores import Promoter, Pruner
from windlass.runtime.engine import Engine, Surroundings
from windlass.runtime.finisher import moved
from windlass.runtime.heartbeat import Heartbeat
from windlass.runtime.leader import Leader
from windlass.runtime.loop import Aside, Main, every, on_thread
from windlass.runtime.presence import Presence
from windlass.runtime.reaper import Reaper
from windlass.runtime.recycle import worn_out
from windlass.runtime.runner import Why
from windlass.runtime.watchdog import Watchdog
from windlass.storage.protocol import Applied, Beat

__all__ = ["StopReason", "Worker"]

log = logging.getLogger("windlass")

_LOOK = timedelta(seconds=1)
_PRUNE = timedelta(minutes=1)
_CANCEL_PAUSE = 0.1
"""Hints come with every change of a busy store; looking ten times a second is enough."""
_UNWIND = 5.0
"""How long interrupted handlers may take to unwind before their jobs are released anyway."""
_RUSHED = 1.0
"""The same after a second signal."""


class StopReason(StrEnum):
    """Why a worker ended."""

    ASKED = "asked"
    EMPTY = "empty"
    WORN_OUT = "worn out"


class Worker:
    """Claims, then drains, and only then stops beating: a job that finishes needs its claim."""

    def __init__(
        self,
        around: Surroundings,
        settings: WorkerSettings,
        *,
        aside: Callable[[str, Main], Aside] = on_thread,
        watch_loop: bool = True,
    ) -> None:
        """``aside`` runs the heartbeat; a simulation gives another one, and no watchdog."""
        self._around = around
        self._settings = settings
        self._aside = aside
        self._watch_loop = watch_loop
        self.engine = Engine(around, settings, self._buried)
        self._asked = False
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._leaving = False
        self._reborn: asyncio.Task[None] | None = None
        self._cancel_look: asyncio.Task[None] | None = None
        self._changed = False
        self.reason: StopReason | None = None
        self.started = asyncio.Event()

    @property
    def id(self) -> str:
        """The current identity."""
        return self.engine.identity.id

    def stop(self) -> None:
        """Stop in order; a second call shortens the wait. Nothing is lost either way."""
        if self._asked:
            self._hurry.set()
        self._asked = True
        self._end(StopReason.ASKED)

    def _end(self, reason: StopReason) -> None:
        if self.reason is None:
            self.reason = reason
        self._stop.set()

    # --- its life ---

    async def run(self) -> StopReason:
        """Work until told to stop, or until there is a reason of its own."""
        engine, around = self.engine, self._around
        settings = around.settings
        loop = asyncio.get_running_loop()
        engine.progress.bind(loop)
        await engine.identity.register()
        presence = Presence(beat=settings.heartbeat, lease=settings.lease, clock=loop.time)
        presence.reached()
        heart = self._start_heart(presence)
        leader = Leader(around.storage.leader, engine.identity, lease=settings.lease / 2)
        finished = asyncio.Event()
        chores_end = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as group:
                finishing = group.create_task(engine.finisher.run(finished))
                chores = self._chores(leader, presence, chores_end)
                running = [group.create_task(chore) for chore in chores]
                claiming = group.create_task(engine.claimer.run())
                undo = around.storage.wakeups.subscribe(self._look_for_cancels)
                self.started.set()
                await self._stop.wait()
                engine.claimer.stop()
                await self._drain()
                undo()
                chores_end.set()
                await asyncio.wait([claiming, *running])
                await self._leave()
                finished.set()
                if not engine.finisher.idle:
                    finishing.cancel()  # an outage must not keep a process alive
        finally:
            await heart.stop()
            await self._settle_side_tasks()
            with suppress(StorageError):
                await leader.resign()
            engine.runner.close()
            await engine.progress.close()
            engine.identity.let_go()
        return self.reason or StopReason.ASKED

    def _start_heart(self, presence: Presence) -> Aside:
        loop = asyncio.get_running_loop()
        watchdog = None
        if self._watch_loop:
            watchdog = Watchdog(loop, threading.get_ident(), clock=loop.time)
        heartbeat = Heartbeat(
            self._around.storage.workers,
            self.engine.identity,
            presence,
            interval=self._around.settings.heartbeat,
            home=loop,
            on_beat=self._on_beat,
            watchdog=watchdog,
        )
        return self._aside("heartbeat", heartbeat.run)

    def _chores(
        self, leader: Leader, presence: Presence, end: asyncio.Event
    ) -> list[Coroutine[Any, Any, None]]:
        around, settings = self._around, self._around.settings
        store = around.storage.maintenance
        reaper = Reaper(
            around.storage,
            self.engine.identity,
            presence,
            policy=self.engine.policy,
            bus=around.bus,
            chance=around.seams.chance,
        )
        promoter, pruner = Promoter(store, leader), Pruner(store, leader, settings)
        # A proven death on this machine is noticed within a second, whatever the lease.
        reap_every = min(settings.reap_every, _LOOK)
        steps: list[tuple[str, timedelta, Callable[[], Awaitable[object]]]] = [
            ("the leader's lease", settings.heartbeat, leader.step),
            ("the reaper", reap_every, reaper.step),
            ("the promoter", settings.poll, promoter.step),
            ("the pruner", _PRUNE, pruner.step),
            ("the worker's own look", _LOOK, lambda: self._look(presence)),
        ]
        return [every(interval, step, stop=end, what=what) for what, interval, step in steps]

    # --- what befalls it ---

    def _on_beat(self, worker: str, beat: Beat) -> None:
        if worker != self.id:
            return
        if not beat.live:
            self._buried()
            return
        for claim in beat.cancelled:
            self.engine.runner.stop(claim, Why.CANCEL)
        self.engine.claimer.compare(beat.holding)

    def _look_for_cancels(self) -> None:
        """Something changed: a cancel may be among it, and need not wait for the next beat."""
        self._changed = True
        if self.engine.runner.active and self._cancel_look is None:
            self._cancel_look = asyncio.get_running_loop().create_task(self._cancel_soon())

    async def _cancel_soon(self) -> None:
        workers, runner = self._around.storage.workers, self.engine.runner
        try:
            while self._changed and runner.active:
                await asyncio.sleep(_CANCEL_PAUSE)
                self._changed = False  # before the look: what changes during it asks for another
                for claim in await workers.cancel_requests(self.id):
                    runner.stop(claim, Why.CANCEL)
        except StorageError as error:
            log.debug("cannot look for cancel requests now: %s", error)
        finally:
            self._cancel_look = None

    def _buried(self) -> None:
        """Somebody took us for dead: go on under a new name, without what was running."""
        if self._leaving:
            return  # a beat crossed the goodbye
        if self._reborn is None or self._reborn.done():
            self._reborn = asyncio.get_running_loop().create_task(self._be_reborn())

    async def _be_reborn(self) -> None:
        former = self.id
        log.warning("this worker (%s) was buried: it takes a new identity and goes on", former)
        self._drop_all(Why.LOST)
        while True:
            try:
                await self.engine.identity.register()
                break
            except StorageError as error:
                log.debug("cannot register yet: %s", error)
                await asyncio.sleep(0.1 + self._around.seams.chance())
        self.engine.claimer.hint()
        self._around.bus.publish(WorkerChanged(worker=self.id, what="reborn", detail=former))

    async def _look(self, presence: Presence) -> None:
        """Reasons of its own to stop, and what an isolated worker does about its handlers."""
        around = self._around
        lease = around.settings.lease.total_seconds()
        if around.settings.on_isolation == "cancel" and presence.cut_off_for > lease * 0.8:
            self._drop_all(Why.LOST)
        why = worn_out(self._settings, self.engine.claimer.claimed)
        if why is not None and not self._stop.is_set():
            log.info("this worker stops to be replaced: %s", why)
            self._end(StopReason.WORN_OUT)
        if self._settings.until_empty and not self._stop.is_set() and await self._empty():
            self._end(StopReason.EMPTY)

    async def _empty(self) -> bool:
        """Nothing is ready or running on the served queues, here or elsewhere."""
        if not self.engine.idle:
            return False
        if await self._around.storage.jobs.claimable(self._settings.served):
            return False
        served = set(self._settings.served)
        counts = await self._around.storage.admin.counts()
        return not any(count.running for count in counts if count.queue in served)

    def _drop_all(self, why: Why) -> None:
        for claim in list(self.engine.runner.active):
            self.engine.runner.stop(claim, why)

    # --- how it ends: quiet, drain, interrupt, release ---

    async def _drain(self) -> None:
        """Let running jobs end, up to the grace period or a second signal."""
        grace = self._around.settings.grace.total_seconds()
        if self.engine.runner.active:
            log.info("waiting up to %g s for %d jobs", grace, len(self.engine.runner.active))
        if await self._all_ended(grace, self._hurry):
            return
        log.info(
            "interrupting %d jobs; their attempts are given back", len(self.engine.runner.active)
        )
        self._drop_all(Why.INTERRUPT)
        if not self._hurry.is_set() and await self._all_ended(_UNWIND, self._hurry):
            return
        if self._hurry.is_set():
            await self._all_ended(_RUSHED, None)

    async def _all_ended(self, seconds: float, hurry: asyncio.Event | None) -> bool:
        """Whether everything that runs ends in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        rushed = asyncio.ensure_future(hurry.wait()) if hurry is not None else None
        try:
            while self.engine.runner.active:
                left = deadline - loop.time()
                if left <= 0 or (hurry is not None and hurry.is_set()):
                    return False
                bodies: set[asyncio.Future[Any]] = {
                    run.body for run in self.engine.runner.active.values() if run.body is not None
                }
                if rushed is not None:
                    bodies.add(rushed)
                await asyncio.wait(bodies, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            return True
        finally:
            if rushed is not None:
                rushed.cancel()

    async def _leave(self) -> None:
        """Store what is finished, release what is not, end the row: in that order."""
        self._leaving = True
        for pause in (0.1, 0.5, 1.0, None):
            try:
                await self._flushed()
                # Only now: what has ended until here is stored, and nothing ends in between.
                jobs = [run.job for run in self.engine.runner.active.values()]
                releases = [self._release(job) for job in jobs]
                applied = await self._around.storage.workers.leave(self.id, releases)
            except StorageError as error:
                if pause is None:
                    log.error("could not say goodbye to the store: %s; the reaper will", error)  # noqa: TRY400
                    return
                await asyncio.sleep(pause)
            else:
                self._tell(jobs, releases, applied)
                return

    def _tell(
        self, jobs: Sequence[ClaimedJob], releases: Sequence[Transition], applied: Applied
    ) -> None:
        for job, transition, answer in zip(jobs, releases, applied.answers, strict=True):
            if answer.verb is not None:
                self._around.bus.publish(moved(job, transition, answer.verb, applied.at))

    async def _flushed(self) -> None:
        """Wait for the finisher, but not for ever: an outage must not keep a process alive."""
        for _ in range(50):
            if self.engine.finisher.idle:
                return
            await asyncio.sleep(0.02)
        message = "outcomes are still waiting to be stored"
        raise StorageError(message)

    def _release(self, job: ClaimedJob) -> Transition:
        policy = self.engine.policy(job.task)
        return decide(job, Interrupted(), policy, by=job.worker, now=job.started_at, chance=0.0)

    async def _settle_side_tasks(self) -> None:
        for task in (self._reborn, self._cancel_look):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait([task])
