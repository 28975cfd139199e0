"""How a worker ends: quiet, drain, interrupt, release. Nothing is lost on the way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import Any

from windlass._core.job.job import Claim, ClaimedJob
from windlass._core.job.outcome import Interrupted
from windlass._core.job.state import Verb
from windlass._core.job.transition import Transition, release
from windlass._storage.protocol.jobs import Applied
from windlass._worker.engine import Engine, WorkerDependencies
from windlass._worker.finish.events import transition_event
from windlass._worker.run.execution import RunEnded, StopCause
from windlass._worker.run.loop_exits import format_jobs, remember_unreferenced
from windlass.errors import StorageError, StorageReplaced

__all__ = ["Shutdown", "StopReason"]

log = logging.getLogger("windlass")

_UNWIND = 5.0
"""How long interrupted handlers may take to unwind before their jobs are released anyway."""
_RUSHED = 1.0
"""The same after a second signal."""
_GOODBYE = 10.0
"""Seconds for everything after the drain, at any delay of the store."""
_RUSHED_GOODBYE = 2.0
"""The same after a second signal."""
_UNSAID = "could not sign off in the store; other workers will declare this one dead"


class StopReason(StrEnum):
    """Why a worker ended."""

    ASKED = "asked"
    ORDERED = "ordered"
    """An operator stopped it through the store: ``windlass workers stop``, the dashboard."""
    EMPTY = "empty"
    WORN_OUT = "worn out"
    STORAGE_LOST = "storage lost"
    OUTDATED = "outdated"
    """A newer Windlass has changed the store. What ran could end."""


class Shutdown:
    """The steps after the claimer has gone quiet."""

    def __init__(self, engine: Engine, around: WorkerDependencies) -> None:
        """Make it; it does nothing until asked."""
        self._engine = engine
        self._around = around
        self._own = engine.own
        self._pointless = False
        self._failed: set[Claim] = set()
        """Runs that have not ended and were failed: they are not given back."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Notice inside the block that the task it is entered in is cancelled, and by whom."""
        self._own.enter()
        if not self._own.obeys_cancel:  # the loop is ours, and its driver watches
            yield
            return
        with remember_unreferenced(asyncio.get_running_loop()):
            yield

    def give_up(self) -> None:
        """Say no goodbye: the store is lost for good."""
        self._pointless = True

    async def drain(self, hurry: asyncio.Event) -> None:
        """Let running jobs end, up to the grace period or ``hurry``; then interrupt the rest."""
        grace = self._around.settings.grace.total_seconds()
        if self._engine.runner.active:
            log.info("waiting up to %g s for %s", grace, self._running())
        if await self._all_ended(grace, hurry):
            return
        log.info("interrupting and releasing %s", self._running())
        self._engine.runner.stop_all(StopCause.INTERRUPT)
        if not hurry.is_set() and await self._all_ended(_UNWIND, hurry):
            return
        if hurry.is_set():
            await self._all_ended(_RUSHED, None)

    def _running(self) -> str:
        many = len(self._engine.runner.active)
        return "1 job" if many == 1 else f"{many:,} jobs"

    async def _all_ended(self, seconds: float, hurry: asyncio.Event | None) -> bool:
        """Return whether everything that runs ends in time."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + seconds
        rushed = asyncio.ensure_future(hurry.wait()) if hurry is not None else None
        try:
            while self._engine.runner.active:
                left = deadline - loop.time()
                if left <= 0 or (hurry is not None and hurry.is_set()):
                    return False
                bodies: set[asyncio.Future[Any]] = {
                    body for body in self._engine.runner.bodies.values() if not body.done()
                }
                if rushed is not None:
                    bodies.add(rushed)
                if not bodies:
                    return False  # nothing here will end by itself any more
                await asyncio.wait(bodies, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            return True
        finally:
            if rushed is not None:
                rushed.cancel()

    async def goodbye(self, parts: Sequence[asyncio.Task[None]], hurry: asyncio.Event) -> bool:
        """Wait for ``parts`` to end, then leave; whether the store has heard of it in time."""
        farewell = asyncio.ensure_future(self._farewell(parts))
        rushed = asyncio.ensure_future(hurry.wait())
        try:
            first = asyncio.FIRST_COMPLETED
            await asyncio.wait({farewell, rushed}, timeout=_GOODBYE, return_when=first)
            if rushed.done() and not farewell.done():
                await asyncio.wait({farewell}, timeout=_RUSHED_GOODBYE)
            if farewell.done():
                return farewell.result()
        finally:
            rushed.cancel()
            farewell.cancel()
            for part in parts:
                part.cancel()
        log.error("%s: it does not answer", _UNSAID)
        return False

    async def _farewell(self, parts: Sequence[asyncio.Task[None]]) -> bool:
        await asyncio.wait(parts)
        return not self._pointless and await self.leave()

    async def leave(self) -> bool:
        """Store what is finished, release what is not, end the row: in that order."""
        self._fail_unrepeatable()
        for pause in (0.1, 0.5, 1.0, None):
            try:
                await self._flushed()
                # Only now: what has ended until here is stored, and nothing ends in between.
                await self._release()
            except StorageError as error:
                if pause is None or isinstance(error, StorageReplaced):
                    log.error("%s: %s", _UNSAID, error)  # noqa: TRY400
                    return False
                await asyncio.sleep(pause)
            else:
                return True
        return False

    def _fail_unrepeatable(self) -> None:
        """Fail the runs that have not ended and must not be repeated: given back, they would start
        again. The finisher stores the failures, because each may have an ``on_failure`` job.
        """
        for run in self._engine.runner.active.values():
            outcome = Interrupted(started=run.entered)
            decided = self._engine.decisions.decide(run.job, outcome, by=run.job.worker)
            if decided.verb is Verb.FAIL:
                self._failed.add(run.job.claim)
                self._engine.finisher.add(RunEnded(run.job, outcome))

    async def _release(self) -> None:
        """Give back what runs, end the row, and tell of it."""
        active = self._engine.runner.active
        runs = [run for claim, run in active.items() if claim not in self._failed]
        jobs = [run.job for run in runs]
        releases = [release(run.job, by=run.job.worker, started=run.entered) for run in runs]
        applied = await self._around.storage.workers.leave(self._engine.identity.id, releases)
        self._tell(jobs, releases, applied)

    async def cut_short(self, error: BaseException) -> bool:
        """Leave although nothing is drained; whether the store has heard of it."""
        if self._own.obeys_cancel or isinstance(error, Exception):
            return await self._leave_at_once()
        self._collapse(error)
        return False

    async def _leave_at_once(self) -> bool:
        """Release all claims at once: the worker's own task was cancelled, so there is no time to
        drain.
        """
        self._engine.runner.blame_exits()
        self._engine.runner.stop_all(StopCause.INTERRUPT)
        try:
            async with asyncio.timeout(_RUSHED_GOODBYE):
                await self._stored_and_released()
        except (StorageError, TimeoutError) as error:
            log.warning("%s: %s", _UNSAID, str(error) or "it does not answer")
            return False
        return True

    async def _stored_and_released(self) -> None:
        finisher = self._engine.finisher
        self._fail_unrepeatable()
        for pause in (0.05, 0.2, None):
            try:
                with _but_storage_errors():
                    while not finisher.idle:
                        await finisher.flush()
                await self._release()
            except StorageError as error:
                # The cancellation of this worker may have cancelled tasks of its storage, too.
                if pause is None or isinstance(error, StorageReplaced):
                    raise
                await asyncio.sleep(pause)
            else:
                return

    def tell_unstored(self) -> None:
        """Name the jobs that have ended here without the store knowing it."""
        if self._pointless:
            return  # said already
        unstored = self._engine.finisher.unstored
        log.error(
            "this worker ends before it could store how %s ended: other workers run them again "
            "when they declare this one dead",
            format_jobs(unstored),
        )

    def _collapse(self, error: BaseException) -> None:
        """Say what is lost: code of the app has ended this worker. Nothing is given back, so that
        the reaper counts it against the jobs that ran.
        """
        engine = self._engine
        lost = {*engine.runner.active, *engine.finisher.unstored}
        self._engine.runner.stop_all(StopCause.LOST)
        log.error(
            "code of the app ended this worker's event loop (%s), and it cannot continue. %s; find "
            "what raises SystemExit, stops the loop or cancels all its tasks",
            type(error).__name__,
            f"Lost: {format_jobs(lost)}, which other workers retry" if lost else "No job ran",
        )

    def _tell(
        self, jobs: Sequence[ClaimedJob], releases: Sequence[Transition], applied: Applied
    ) -> None:
        for job, transition, answer in zip(jobs, releases, applied.answers, strict=True):
            if answer.verb is not None:
                self._around.bus.publish(transition_event(job, transition, answer, applied.at))

    async def _flushed(self) -> None:
        """Wait for the finisher, but not for ever: an outage must not keep a process alive."""
        for _ in range(50):
            if self._engine.finisher.idle:
                return
            await asyncio.sleep(0.02)
        message = "outcomes are still waiting to be stored"
        raise StorageError(message)


@contextmanager
def _but_storage_errors() -> Iterator[None]:
    """Let those pass; an outcome that cannot be stored must not keep what runs from its release."""
    try:
        yield
    except StorageError:
        raise
    except Exception as error:  # noqa: BLE001 -- a store may raise anything about an outcome
        log.warning("outcomes could not be stored, their jobs run again: %s", error)
