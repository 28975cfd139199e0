"""A worker: the engine's parts as nested lifetimes, and the way it stops."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any, Literal

from windlass._core.job.event import WorkerChanged
from windlass._schedules.edits import Schedules
from windlass._settings.settings import WorkerSettings
from windlass._storage.protocol.workers import Duty, HeartbeatAnswer
from windlass._tasks.app_location import child_tasks
from windlass._worker.child_process.pool import ChildPool
from windlass._worker.child_process.spawn import refuse_in_child
from windlass._worker.dependencies import WorkerDependencies
from windlass._worker.engine import Engine
from windlass._worker.liveness.gauges import GaugeReport
from windlass._worker.liveness.heartbeat import Heartbeat
from windlass._worker.liveness.late_plugins import LatePluginWatcher
from windlass._worker.liveness.leader import Leader
from windlass._worker.liveness.loop_watchdog import LoopWatchdog
from windlass._worker.liveness.maintenance import Promoter
from windlass._worker.liveness.reaper import Reaper
from windlass._worker.liveness.recycling import bytes_used, recycle_reason
from windlass._worker.liveness.store_contact import StoreContact
from windlass._worker.periodic import BackgroundLoop, Main, run_every, start_loop_thread
from windlass._worker.run.cancel_requests import CancelPoller
from windlass._worker.run.execution import StopCause
from windlass._worker.scheduler.schedule_sync import DECLARE_INTERVAL, Chores, ScheduleSync
from windlass._worker.scheduler.scheduler import Scheduler
from windlass._worker.shutdown import Shutdown, StopReason
from windlass.errors import SchemaTooNew, StorageError, StorageReplaced

__all__ = ["StopReason", "Worker"]

log = logging.getLogger("windlass")

_LOOK = timedelta(seconds=1)
_LAST_CALL = 2.0
_STRAY = "code of the app cancelled a task of this worker; the worker restarts it"

WorkerLoop = Callable[[], Coroutine[Any, Any, None]]


class Worker:
    """Claims, then drains, and only then stops beating: a job that finishes needs its claim."""

    def __init__(
        self,
        around: WorkerDependencies,
        settings: WorkerSettings,
        *,
        aside: Callable[[str, Main], BackgroundLoop] = start_loop_thread,
        watch_loop: bool = True,
        look: timedelta = _LOOK,
        on_cancel: Literal["leave", "collapse"] = "leave",
        on_live: Callable[[], None] = lambda: None,
    ) -> None:
        """``aside`` runs the heartbeat; a simulation gives another one, and watches neither the
        loop nor the memory of the process that all its workers share. ``look``: how soon it sees
        what others have changed. ``on_cancel``: cancelling `run` is an order to leave at once, or,
        where nothing but a handler could have done it, the loss of what runs. ``on_live`` is called
        after every heartbeat that found it live, on its loop.
        """
        self._around = around
        self._settings = settings
        self._aside = aside
        self._watch_loop = watch_loop
        self._often = look
        self._on_live = on_live
        self.engine: Engine = Engine(around, settings, obeys_cancel=on_cancel == "leave")
        self._shutdown = Shutdown(self.engine, around)
        storage = around.storage
        schedules = Schedules(storage.schedules, storage.now, around.seams.new_job_ids)
        self._declaring = ScheduleSync(schedules, around.plans)
        self._news = LatePluginWatcher(around, settings.served)
        self._asked = False
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._leaving = False
        self.reason: StopReason | None = None
        self.started: asyncio.Event = asyncio.Event()
        self._ended = asyncio.Event()

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

    async def wait(self) -> StopReason:
        """Wait until this worker has ended, for any reason: ``until_empty``, for example."""
        await self._ended.wait()
        return self.reason or StopReason.ASKED

    def _end(self, reason: StopReason) -> None:
        if self.reason is None:
            self.reason = reason
        self._stop.set()

    # --- its life ---

    async def run(self) -> StopReason:
        """Run jobs until stopped, or until the worker has its own reason to stop."""
        refuse_in_child()
        try:
            with self._shutdown.watching():
                async with self._around.living():
                    return await self._run()
        finally:
            self._news.close()
            self._ended.set()

    async def _run(self) -> StopReason:
        engine, around = self.engine, self._around
        settings = around.settings
        loop = asyncio.get_running_loop()
        engine.progress.bind(loop)
        engine.lines.bind(loop)
        children = self._found_by_children()
        await engine.decisions.queues.step()  # before the first job ends by them
        self._news.listen()  # first: what comes from here on rings
        await self._declaring.step()  # before the first check for undeclared schedules
        await engine.identity.register()
        presence = StoreContact(
            beat=settings.heartbeat, lease=settings.lease, clock=around.seams.boot
        )
        presence.reached()
        leader = Leader(around.storage.leader, engine.identity, lease=settings.lease / 2)
        gauges = GaugeReport(around.storage, leader) if self._watch_loop else None
        heart = self._start_heart(presence, gauges)
        finished, said = asyncio.Event(), False
        chores_end = asyncio.Event()
        try:
            async with asyncio.TaskGroup() as group:
                finishing = group.create_task(self._part(partial(engine.finisher.run, finished)))
                chores = self._chores(leader, presence, chores_end)
                chores += [] if gauges is None else [partial(gauges.run, chores_end)]
                running = [group.create_task(self._part(chore)) for chore in chores]
                registered = group.create_task(self._part(self._stay_registered))
                claiming = group.create_task(self._part(engine.claimer.run))
                if children is not None:
                    children.warm()
                self.started.set()
                await self._until_drained()
                chores_end.set()
                said = await self._shutdown.goodbye([claiming, *running], self._hurry)
                registered.cancel()
                finished.set()
                if not engine.finisher.idle:
                    self._shutdown.tell_unstored()
                    finishing.cancel()  # an outage must not keep a process alive
        except BaseException as error:
            if not finished.is_set():
                self._leaving = True
                said = await self._shutdown.cut_short(error)
            raise
        finally:
            await self._put_down(heart, leader, said=said)
        return self.reason or StopReason.ASKED

    async def _until_drained(self) -> None:
        try:
            await self._stop.wait()
            self.engine.claimer.stop()
            await self._shutdown.drain(self._hurry)
            self._news.close()
        finally:
            self._leaving = True

    def _found_by_children(self) -> ChildPool | None:
        """Return the pool, if a task needs it; an app that no child could find is refused here."""
        around = self._around
        if around.locate is None or not child_tasks(around.tasks):
            return None
        around.locate()
        return self.engine.children

    async def _put_down(self, heart: BackgroundLoop, leader: Leader, *, said: bool) -> None:
        """Close what is left after the store was informed, or could not be, without delay."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_CALL):
                await heart.stop()
        if said:
            with suppress(StorageError, TimeoutError):
                async with asyncio.timeout(_LAST_CALL):
                    await leader.resign()
        with suppress(TimeoutError):
            async with asyncio.timeout(_LAST_CALL):
                await self.engine.runner.leave()
        await self.engine.schedules.close()
        self.engine.runner.close()
        await self.engine.progress.close()
        await self.engine.lines.close()
        if said:
            # Else the file is what lets others prove this death instead of waiting for a lease.
            self.engine.identity.let_go()

    async def _part(self, part: WorkerLoop) -> None:
        """Run a part of the worker; one that finds the store replaced, or too new, ends them all.

        In its own task: this one sleeps until the part ends, and is no step of the way of a job.
        """
        while True:
            working = asyncio.get_running_loop().create_task(part())
            while not working.done():
                await self._wait_for(working)
            try:
                return working.result()
            except StorageReplaced as error:
                return self._storage_lost(error)
            except SchemaTooNew as error:
                log.error("upgrade windlass in this process; it takes no more jobs: %s", error)  # noqa: TRY400
                return self._end(StopReason.OUTDATED)
            except asyncio.CancelledError:
                if self._leaving or self.engine.own.cancelled:
                    raise
                log.error(_STRAY)  # noqa: TRY400

    async def _wait_for(self, working: asyncio.Task[None]) -> None:
        try:
            await asyncio.wait([working])
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._leaving or self.engine.own.cancelled or task is None:
                working.cancel()
                await asyncio.wait([working])
                raise
            task.uncancel()  # by code of the app, which most often has cancelled the part as well

    def _storage_lost(self, error: StorageReplaced) -> None:
        if self._lost:
            return
        log.error(
            "this worker ends because its store is lost; restart it once the store is in place: %s",
            error,
        )
        self.reason = StopReason.STORAGE_LOST
        self._shutdown.give_up()
        self._stop.set()
        self._hurry.set()  # no outcome can be stored any more: nothing is worth waiting for

    @property
    def _lost(self) -> bool:
        return self.reason is StopReason.STORAGE_LOST

    def _start_heart(self, presence: StoreContact, gauges: GaugeReport | None) -> BackgroundLoop:
        loop = asyncio.get_running_loop()
        watchdog = None
        if self._watch_loop:
            watchdog = LoopWatchdog(loop, threading.get_ident(), clock=loop.time)
        heartbeat = Heartbeat(
            self._around.storage.workers,
            self.engine.identity,
            presence,
            interval=self._around.settings.heartbeat,
            home=loop,
            on_beat=self._on_beat,
            watchdog=watchdog,
            on_lost=self._storage_lost,
            memory=bytes_used if self._watch_loop else lambda: None,
            gauges=gauges,
        )
        return self._aside("heartbeat", heartbeat.run)

    def _chores(
        self, leader: Leader, presence: StoreContact, end: asyncio.Event
    ) -> list[WorkerLoop]:
        around, settings = self._around, self._around.settings
        reaper = Reaper(
            around.storage,
            self.engine.identity,
            presence,
            decisions=self.engine.decisions,
            bus=around.bus,
        )
        queues = self.engine.decisions.queues
        promoter = Promoter(around.storage, leader)
        scheduler = Scheduler(
            around.storage,
            leader,
            around.bus,
            Chores(around.chores, self.engine.host.services),
            poll=settings.poll,
            token=around.seams.new_job_ids(1)[0],
            declared=self._declaring.names,
        )
        steps: list[tuple[str, timedelta, Callable[[], Awaitable[object]]]] = [
            ("the leader's lease", settings.heartbeat, leader.step),
            ("the reaper", settings.reap_every, reaper.step),
            ("the watch for dead workers", min(settings.reap_every, self._often), reaper.watch),
            ("reading queue settings", min(settings.poll, self._often), queues.step),
            ("the promoter", settings.poll, promoter.step),
            ("the worker's own check", self._often, lambda: self._look(presence)),
        ]
        parts = [partial(run_every, span, step, stop=end, what=what) for what, span, step in steps]

        async def say() -> None:
            if await self._declaring.step():
                scheduler.look()
            self.engine.schedules.serve(self._declaring.on_every_worker, end)

        self.engine.schedules.serve(self._declaring.on_every_worker, end)
        what, bell = "storing schedules", self._news.bell
        saying = partial(run_every, DECLARE_INTERVAL, say, stop=end, what=what, bell=bell)
        said = partial(saying, at_once=False)  # it was said just now
        cancels = CancelPoller(around.storage, self.engine.runner, self.engine.identity)
        return [*parts, said, partial(scheduler.run, end), partial(cancels.run, end)]

    # --- lifecycle ---

    def _on_beat(self, worker: str, beat: HeartbeatAnswer) -> None:
        if worker != self.id:
            return
        if not beat.live:
            self.engine.identity.lost.set()
            return
        self._on_live()
        for claim in beat.cancelled:
            self.engine.runner.stop(claim, StopCause.CANCEL)
        self.engine.claimer.compare(beat.holding)
        self._obey(beat.duty)

    def _obey(self, duty: Duty) -> None:
        """Apply the duty that operators gave this worker."""
        claimer, resting = self.engine.claimer, duty is Duty.QUIET
        if duty is Duty.STOP:
            if not self._stop.is_set():
                log.info("an operator stopped this worker: it takes no new jobs")
            self._end(StopReason.ORDERED)
        elif resting is not claimer.resting:
            claimer.rest(resting=resting)
            log.info(
                "an operator %s",
                "paused this worker: it takes no new jobs" if resting else "resumed this worker",
            )
            what = "quiet" if resting else "resumed"
            self._around.bus.publish(WorkerChanged(worker=self.id, what=what))

    async def _stay_registered(self) -> None:
        """Continue under a new id whenever the store declares this worker dead, without its running
        jobs.
        """
        identity = self.engine.identity
        while True:
            await identity.lost.wait()
            if self._leaving:
                return  # a heartbeat crossed the goodbye
            former = self.id
            log.warning("this worker (%s) was declared dead: it continues with a new id", former)
            self.engine.runner.stop_all(StopCause.LOST)
            while True:
                try:
                    # The duty was given to the process, not to its id.
                    await identity.register(await self._duty_of(former))
                    break
                except StorageReplaced as error:
                    self._storage_lost(error)
                    return
                except StorageError as error:
                    log.debug("cannot register yet: %s", error)
                    await asyncio.sleep(0.1 + self._around.seams.chance())
            self.engine.claimer.hint()
            self._around.bus.publish(WorkerChanged(worker=self.id, what="reborn", detail=former))

    async def _duty_of(self, worker: str) -> Duty:
        """Return the last duty of an id, received or not."""
        for row in await self._around.storage.workers.workers():
            if row.start.id == worker:
                return row.duty
        return Duty.QUIET if self.engine.claimer.resting else Duty.WORK

    async def _look(self, presence: StoreContact) -> None:
        """Check the worker's own reasons to stop, and apply an isolated worker's rules to its
        handlers.
        """
        around = self._around
        lease = around.settings.lease.total_seconds()
        if around.settings.on_isolation == "cancel" and presence.cut_off_for > lease * 0.8:
            self.engine.runner.stop_all(StopCause.LOST)
        why = recycle_reason(self._settings, self.engine.claimer.claimed)
        if why is not None and not self._stop.is_set():
            log.info("this worker stops to be replaced: %s", why)
            self._end(StopReason.WORN_OUT)
        ends_empty = self._settings.until_empty and not self._stop.is_set()
        if ends_empty and await self.engine.nothing_left():
            self._end(StopReason.EMPTY)
