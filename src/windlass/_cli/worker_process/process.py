"""One worker process, from its options to its exit code."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections import Counter
from contextlib import nullcontext, suppress
from datetime import timedelta
from typing import Any

import msgspec

from windlass._app.app import Windlass
from windlass._app.parts import parts_of
from windlass._cli.app_loader import BrokenModule, load_app
from windlass._cli.exit_codes import (
    COULD_NOT_START,
    COULD_NOT_STOP,
    IN_ORDER,
    OUTDATED,
    STORAGE_LOST,
    UNSTORED,
    WORN_OUT,
)
from windlass._cli.output.handler_output import print_above_last_line
from windlass._cli.output.run_summary import RunCounter, RunSummary
from windlass._cli.output.terminal import Terminal, keep_own_loggers, log_to
from windlass._cli.worker_process.event_loop import fastest_loop, run_to_end, wait_for_start
from windlass._cli.worker_process.health import WorkerHealth
from windlass._cli.worker_process.memory_check import check_memory
from windlass._cli.worker_process.messages import WorkerBanner, banner, log_storage, remaining
from windlass._cli.worker_process.signals import (
    StopBeforeStart,
    StopRequests,
    dump_on_request,
    exit_within,
    signal_name,
)
from windlass._cli.worker_process.start_retries import StartRetries, may_pass
from windlass._cli.worker_process.supervisor_socket import SupervisorConnection
from windlass._cli.worker_process.worker_options import WorkerOptions, check_queues
from windlass._observe.log import brief
from windlass._settings.settings import WorkerSettings
from windlass._storage.protocol.jobs import Verdict
from windlass._worker.run.loop_exits import LOOP_ENDING_ERRORS, LoopExits
from windlass._worker.worker import StopReason, Worker
from windlass.errors import ConfigError, SchemaTooNew, StorageError, WindlassError

__all__ = ["ChildOptions", "serve"]

log = logging.getLogger("windlass")

_ORPHAN_ENDS = 1.6
"""A child whose supervisor died is gone two seconds later; this leaves room to notice."""
_SLACK = 30.0
"""Seconds for a stop beyond the grace period: interrupting, storing, closing."""
_RUSHED = 10.0
"""Seconds for a stop after a second signal."""
_CLOSING = 5.0
"""Seconds for closing once the last outcome is stored."""
_REFRESH = 0.25
_CODES = {StopReason.STORAGE_LOST: STORAGE_LOST, StopReason.OUTDATED: OUTDATED}
_SWITCH = 0.001
"""How long one thread may keep the interpreter while others want it. With Python's default of 5 ms,
a busy event loop delayed the threads for writes and heartbeats by seconds; with this, by 0.1 s."""


class ChildOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Values that a supervisor passes to a child beyond the user's own options."""

    fd: int
    number: int
    colour: bool = False
    introduce: bool = False
    """Print the banner; one child does it for all."""


def serve(plan: WorkerOptions, child: ChildOptions | None = None) -> int:
    """Run a worker until it ends; the exit code."""
    sys.setswitchinterval(_SWITCH)
    return _WorkerProcess(plan, child).run()


class _WorkerProcess:
    def __init__(self, plan: WorkerOptions, child: ChildOptions | None) -> None:
        self._plan = plan
        self._child = child
        self._terminal = Terminal(colour=child is not None and child.colour)
        self._line = SupervisorConnection(child.fd) if child is not None else None
        self._stops = StopRequests(supervised=child is not None)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening: asyncio.Task[Any] | None = None
        self._worker: Worker | None = None
        self._escapes = LoopExits()
        self._asked = False
        self._grace = timedelta(0)
        self._ready = False
        self._patience = StartRetries(plan.store_patience())
        self._tally = RunSummary()
        self._deeds = RunCounter()

    # --- from start to exit code ---

    def run(self) -> int:
        """Everything that can go wrong ends as a line and a code."""
        plan, terminal = self._plan, self._terminal
        # Before the app is imported: what it logs to is often chosen then.
        shown = terminal.live and plan.summary and self._child is None
        with print_above_last_line(terminal) if shown else nullcontext():
            return self._told()

    def _told(self) -> int:
        plan = self._plan
        prefix = f"[{self._child.number}]" if self._child is not None else ""
        log_to(self._terminal, level=plan.log_level, form=plan.log_format, prefix=prefix)
        try:
            self._stops.install()
            dump_on_request(self._tasks)
            if self._line is not None:
                self._line.watch(self._orphaned)
            return self._run()
        except StopBeforeStart:
            log.info("stopped before it started")
            return IN_ORDER
        except BrokenModule as error:
            return self._failed(error, f"{error}\n{error.trace}")
        except WindlassError as error:
            return self._failed(error, str(error))
        except Exception:
            log.exception("the worker ended because of an internal error")
            return COULD_NOT_STOP

    def _run(self) -> int:
        app = load_app(self._plan.target)
        keep_own_loggers()
        settings = parts_of(app).workers.settings(**self._plan.worker_options())
        chosen = self._plan.grace_period()
        self._grace = app.settings.grace if chosen is None else chosen
        check_queues(settings, app)
        factory, loop_name = fastest_loop()
        # From here on: an event loop swallows what a signal raises in one of its callbacks, and
        # with it the answer that this callback was to deliver.
        self._stops.tell(self._on_signal)
        try:
            code = run_to_end(factory, self._work(app, settings, loop_name), self._escapes)
        except (*LOOP_ENDING_ERRORS, asyncio.CancelledError) as error:
            code = self._collapsed(error)
        if parts_of(app).observability.measured is not None:
            app.blocking.close()  # where scrapes have looked at the store
        return code

    def _collapsed(self, error: BaseException) -> int:
        """Code of the app has ended the event loop for good; the worker has said what is lost."""
        if self._ready or (self._worker is not None and self._worker.started.is_set()):
            return COULD_NOT_STOP
        words = f"code of the app raised {type(error).__name__} while the worker was starting"
        return self._failed(WindlassError(words), words)

    def _failed(self, error: WindlassError, words: str) -> int:
        if self._ready:
            log.error("the worker ended: %s", words)
            return COULD_NOT_STOP
        may_heal = isinstance(error, BrokenModule) and error.may_heal
        final = isinstance(error, StorageError) and (self._patience.over or not may_pass(error))
        hopeless = (final or isinstance(error, ConfigError)) and not may_heal
        words += self._patience.waited
        if self._line is not None:
            failed = f"{error}{self._patience.waited}"
            self._line.report({"failed": failed, "hopeless": hopeless})
        if self._line is None or not hopeless:
            log.error("%s", words)  # else the supervisor says it
        return OUTDATED if isinstance(error, SchemaTooNew) else COULD_NOT_START

    # --- the worker's life ---

    async def _work(self, app: Windlass, settings: WorkerSettings, loop_name: str) -> int:
        code = COULD_NOT_START
        health = WorkerHealth(self._plan, app, None if self._child is None else self._child.number)
        try:
            try:
                await health.open()
                parts_of(app).hooks.bus.subscribe(self._deeds)
                worker, running = await self._begin(app, settings, health)
            except asyncio.CancelledError:
                if not self._asked:  # by a handler of the first job
                    code = COULD_NOT_STOP
                    raise
                code = IN_ORDER
                raise StopBeforeStart from None
            if not running.done():
                health.beaten()  # it has registered
                self._introduce(await self._start(app, settings, loop_name))
                code = COULD_NOT_STOP
            reason = await self._until_ended(running, worker)
            left = ""
            if reason is StopReason.EMPTY:
                left = await remaining(await parts_of(app).storage(), settings.served)
            self._farewell(worker, reason, left)
            code = self._code_of(worker, reason)
        finally:
            # Objects that user code left behind must not keep the process from ending.
            exit_within(_CLOSING, code)
            await health.close()
            await app.close()
        return code

    async def _begin(
        self, app: Windlass, settings: WorkerSettings, health: WorkerHealth
    ) -> tuple[Worker, asyncio.Task[StopReason]]:
        """Open the storage and start a worker on it; a storage that is away or full is awaited."""
        self._loop, self._opening = asyncio.get_running_loop(), asyncio.current_task()
        self._patience.begin()
        while True:
            try:
                worker = await self._make(app, settings, health)
                running = asyncio.create_task(worker.run(), name="windlass-worker")
                await wait_for_start(running, worker.started)
                if running.done() and not worker.started.is_set():
                    running.result()  # what kept it from starting
            except StorageError as error:
                if self._worker is not None:
                    parts_of(app).observability.leave(self._worker)
                    self._worker = None
                health.wait_for_storage()
                await self._patience.bear(error)
            else:
                self._patience.rewarded()
                return worker, running

    async def _make(self, app: Windlass, settings: WorkerSettings, health: WorkerHealth) -> Worker:
        if self._asked:
            raise asyncio.CancelledError
        await check_memory(
            app,
            await parts_of(app).storage(),
            supervised=self._child is not None,
            allowed=self._plan.allow_memory,
        )
        around = await parts_of(app).workers.dependencies()
        chosen = msgspec.structs.replace(around.settings, grace=self._grace)
        around = msgspec.structs.replace(around, settings=chosen)
        worker = Worker(around, settings, on_cancel="collapse", on_live=health.beaten)
        health.watch(worker)
        self._escapes.watch(worker.engine.runner)
        parts_of(app).observability.enter(worker)
        self._worker = worker
        return worker

    async def _start(self, app: Windlass, settings: WorkerSettings, loop_name: str) -> WorkerBanner:
        await log_storage(await parts_of(app).storage())
        return WorkerBanner.of(
            app,
            settings,
            target=self._plan.target,
            worker=self._worker.id if self._worker is not None else "",
            pid=os.getpid(),
            storage=(await parts_of(app).storage()).describe(),
            grace=self._grace,
            loop=loop_name,
        )

    async def _until_ended(self, running: asyncio.Task[StopReason], worker: Worker) -> StopReason:
        keeping = asyncio.create_task(self._keep_tally(worker), name="windlass-summary")
        try:
            return await running
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])
            self._terminal.show("")

    def _introduce(self, start: WorkerBanner) -> None:
        self._ready = True
        if self._line is not None:
            self._line.report({"ready": start.worker})
        wanted = self._child is None or self._child.introduce
        if log.isEnabledFor(logging.INFO):
            if self._plan.log_format == "json":
                log.info("worker %s started", start.worker, extra=start.fields())
            elif wanted:
                self._terminal.write(banner(start, self._terminal))
            else:
                log.info("worker %s started, pid %d", start.worker, start.pid)

    def _code_of(self, worker: Worker, reason: StopReason) -> int:
        if reason in _CODES or worker.engine.finisher.unstored:
            return _CODES.get(reason, UNSTORED)
        return WORN_OUT if reason is StopReason.WORN_OUT and self._child else IN_ORDER

    def _farewell(self, worker: Worker, reason: StopReason, left: str) -> None:
        self._sample(worker)
        if self._line is not None:
            counts = dict(self._counts(worker))
            self._line.report({"ended": reason.value, "left": left, "counts": counts})
        why = {
            StopReason.ASKED: "stopped",
            StopReason.ORDERED: "stopped by an operator",
            StopReason.EMPTY: left,
            StopReason.WORN_OUT: "stopped to be replaced",
            StopReason.STORAGE_LOST: "ended because its database was deleted or replaced",
            StopReason.OUTDATED: "ended because windlass is too old here: upgrade it",
        }[reason]
        if self._code_of(worker, reason) == UNSTORED:
            why = "ended before every outcome was stored"
        last = self._tally.last() if self._plan.summary else ""
        log.info("%s", f"{why}: {last}" if last else why)
        if reason is StopReason.WORN_OUT and self._child is None:
            log.info("no supervisor replaces this worker: that needs --processes 2 or more")

    # --- the summary ---

    def _counts(self, worker: Worker) -> Counter[str]:
        """Add refused outcomes to the counts: they are no events."""
        refused = worker.engine.finisher.counts[Verdict.REFUSED]
        return self._deeds.counts + Counter({str(Verdict.REFUSED): refused})

    def _sample(self, worker: Worker) -> None:
        slots = worker.engine.slots
        self._tally.take(self._counts(worker), running=slots.used, slots=slots.total)

    async def _keep_tally(self, worker: Worker) -> None:
        reported: object = None
        while True:
            self._sample(worker)
            if self._line is not None:
                standing = self._standing(worker)
                if standing != reported and self._line.flush():
                    self._line.report(standing)
                    reported = standing
            elif self._plan.summary:
                self._terminal.show(self._tally.live())
                if not self._terminal.live and (news := self._tally.news()):
                    log.info("%s", news)
            await asyncio.sleep(_REFRESH)

    def _standing(self, worker: Worker) -> dict[str, Any]:
        slots = worker.engine.slots
        counts = dict(self._counts(worker))
        return {"counts": counts, "running": slots.used, "slots": slots.total}

    # --- how it ends ---

    def _on_signal(self, number: int, count: int) -> None:
        """Handle a signal. Called on a thread: the loop may be blocked."""
        level = logging.DEBUG if self._child is not None else logging.INFO
        if count == 1:
            log.log(
                level,
                "%s: taking no new jobs; running jobs may finish, up to %s, the rest is released. "
                "Send it again to interrupt them.",
                signal_name(number),
                brief(self._grace),
            )
            self._stop()
            exit_within(self._grace.total_seconds() + _SLACK, COULD_NOT_STOP, _cut_short)
        elif count == 2:
            log.log(level, "%s again: interrupting running jobs", signal_name(number))
            self._stop()
            exit_within(_RUSHED, COULD_NOT_STOP, _cut_short)
        else:
            log.log(level, "%s: already interrupting running jobs", signal_name(number))

    def _stop(self) -> None:
        """Stop the worker. Called on a thread."""
        self._asked = True  # before the look for a loop, which looks for it in its turn
        if self._loop is not None:
            with suppress(RuntimeError):  # it has just ended
                self._loop.call_soon_threadsafe(self._stop_on_loop)

    def _stop_on_loop(self) -> None:
        if self._worker is not None:
            self._worker.stop()
        elif self._opening is not None:
            self._opening.cancel()

    def _orphaned(self) -> None:
        """Stop: the supervisor is dead."""
        if self._worker is None:
            os._exit(COULD_NOT_STOP)
        exit_within(_ORPHAN_ENDS, COULD_NOT_STOP)
        self._stop()
        self._stop()
        log.warning("the supervisor is gone: stopping now")

    def _tasks(self) -> set[asyncio.Task[Any]]:
        return asyncio.all_tasks(self._loop) if self._loop is not None else set()


def _cut_short() -> None:
    log.error("the worker did not stop in time and is killed; other workers run its jobs again")
