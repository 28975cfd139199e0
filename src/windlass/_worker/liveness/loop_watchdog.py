"""Sees when a handler blocks the event loop, and says which job and where."""

from __future__ import annotations

import asyncio
import logging
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from types import CodeType, FrameType

from windlass._worker.periodic import run_every
from windlass._worker.run.execution import Execution
from windlass._worker.run.runner import Runner

__all__ = ["LoopWatchdog"]

log = logging.getLogger("windlass")

_LOOK = timedelta(milliseconds=250)
_FRAMES = 3
_RUN_CODE: CodeType = Runner._live.__code__  # noqa: SLF001
"""The frame that every handler on the loop runs under; its ``run`` says which job."""


class LoopWatchdog:
    """Pings the worker's loop from another thread; no answer for a second is a blockage."""

    def __init__(
        self,
        home: asyncio.AbstractEventLoop,
        home_thread: int,
        *,
        clock: Callable[[], float],
        patience: timedelta = timedelta(seconds=1),
    ) -> None:
        """``home_thread`` is the ident of the thread that runs ``home``."""
        self._home = home
        self._thread = home_thread
        self._clock = clock
        self._patience = patience.total_seconds()
        self._sent: float | None = None
        self._told = False
        self.blockages: int = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Look a few times a second."""
        await run_every(_LOOK, self.step, stop=stop, what="the loop watchdog")

    async def step(self) -> None:
        """Check once; a blockage is reported once."""
        if self._sent is None:
            self._told = False
            self._sent = self._clock()
            with suppress(RuntimeError):  # the loop is closing
                self._home.call_soon_threadsafe(self._answer)
            return
        blocked = self._clock() - self._sent
        if blocked >= self._patience and not self._told:
            self._told = True
            self.blockages += 1
            self._report(blocked)

    def _answer(self) -> None:
        self._sent = None

    def _report(self, blocked: float) -> None:
        frame = sys._current_frames().get(self._thread)  # noqa: SLF001 -- the only door there is
        run, inner = _find_run(frame)
        where = _where(inner)
        if run is None:
            log.warning("the event loop has been blocked for %.1f s, at:\n%s", blocked, where)
            return
        log.warning(
            "job %s (%s) has blocked the event loop for %.1f s; other jobs of this worker wait. "
            "Make it a plain function (it then runs on a thread) or await inside it. It is at:\n%s",
            run.job.claim.job,
            run.job.task,
            blocked,
            where,
        )


def _where(frame: FrameType | None) -> str:
    """Return the innermost frames of the handler, without those of ours it runs under."""
    frames: list[tuple[FrameType, int]] = []
    while frame is not None and frame.f_code is not _RUN_CODE and len(frames) < _FRAMES:
        if not frame.f_globals.get("__name__", "").startswith("windlass._worker"):
            frames.append((frame, frame.f_lineno))
        frame = frame.f_back
    return "".join(traceback.StackSummary.extract(iter(frames[::-1])).format()) or "unknown"


def _find_run(frame: FrameType | None) -> tuple[Execution | None, FrameType | None]:
    """Return the run whose handler is on this stack, and the innermost frame."""
    inner = frame
    while frame is not None:
        if frame.f_code is _RUN_CODE:
            return frame.f_locals.get("run"), inner
        frame = frame.f_back
    return None, inner
