"""``windlass worker --reload``: a worker that starts again when the app's code has changed."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType

from windlass._cli.output.terminal import Terminal, log_to
from windlass._cli.worker_process.file_changes import FileChanges, source_folders
from windlass._cli.worker_process.signals import STOPPING
from windlass._cli.worker_process.worker_options import WorkerOptions
from windlass._system.seams import sleep

__all__ = ["run_with_reload"]

log = logging.getLogger("windlass")

_LOOK = 0.3
"""Seconds between two looks at the files."""
_SHOWN = 3


def run_with_reload(plan: WorkerOptions) -> int:
    """Run a worker, and another one after each change, until a signal; the last one's exit code."""
    log_to(Terminal(), level=plan.log_level, form=plan.log_format)
    return _Reloader(plan).run()


class _Reloader:
    def __init__(self, plan: WorkerOptions) -> None:
        self._command = [sys.executable, "-m", "windlass", *plan.arguments()]
        if not plan.summary:
            self._command.append("--no-summary")
        if plan.allow_memory:
            self._command.append("--allow-memory")
        self._folders = source_folders(plan.target)
        self._worker: subprocess.Popen[bytes] | None = None
        self._stopping = False

    def run(self) -> int:
        for number in STOPPING:
            signal.signal(number, self._pass_on)
        # Before the worker imports them: a file that is saved meanwhile has changed.
        changes = FileChanges(self._folders)
        while True:
            code = self._run_until_change(changes)
            if code is not None:
                return code

    def _run_until_change(self, changes: FileChanges) -> int | None:
        """Run one worker. The answer is its exit code if it is the last one."""
        worker = self._worker = subprocess.Popen(self._command)
        if self._stopping:  # the signal came before there was a worker to pass it on to
            worker.terminate()
        changed: list[Path] = []
        while not changed:
            try:
                code = worker.wait(_LOOK)
            except subprocess.TimeoutExpired:
                changed = [] if self._stopping else changes.since()
                continue
            if self._stopping or code == 0:
                return _exit_code(code)
            log.info("the worker ended with code %d and starts again when a file has changed", code)
            changed = self._wait_for_change(changes)
            if not changed:
                return _exit_code(code)
        if worker.poll() is None:
            log.info("%s changed: the worker stops and starts again", _names(changed))
            worker.terminate()
        code = worker.wait()
        return _exit_code(code) if self._stopping else None

    def _wait_for_change(self, changes: FileChanges) -> list[Path]:
        """Return the changed files; none: it was asked to stop."""
        while not self._stopping:
            if changed := changes.since():
                log.info("%s changed: the worker starts again", _names(changed))
                return changed
            sleep(_LOOK)
        return []

    def _pass_on(self, number: int, _: FrameType | None) -> None:
        # A terminal has signalled the worker, too: it takes signals that come together for one.
        self._stopping = True
        if self._worker is not None and self._worker.poll() is None:
            self._worker.send_signal(number)


def _exit_code(code: int) -> int:
    """Return the code of a process as a shell does: 128 and the signal that ended it."""
    return code if code >= 0 else 128 - code


def _names(files: list[Path]) -> str:
    shown = ", ".join(os.path.relpath(file) for file in files[:_SHOWN])
    more = len(files) - _SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
