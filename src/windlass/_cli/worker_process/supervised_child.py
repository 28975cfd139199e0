"""One place under a supervisor: the process in it, how it died, and when the next one starts."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

from windlass._cli.exit_codes import (
    COULD_NOT_START,
    COULD_NOT_STOP,
    IN_ORDER,
    OUTDATED,
    STORAGE_LOST,
    UNSTORED,
    WORN_OUT,
)
from windlass._cli.worker_process.signals import STOPPING, signal_name
from windlass._cli.worker_process.supervisor_socket import Report, parse_reports
from windlass._observe.log import brief, printable

__all__ = ["GIVE_UP_AFTER", "SIGKILL_HINT", "Restarts", "SupervisedChild", "exit_in_words"]

_FIRST, _LONGEST = 0.5, 30.0
_HEALTHY = 60.0
_LONGEST_LINE = 2**16
SIGKILL_HINT = "out of memory, or kill -9"
GIVE_UP_AFTER = 5
"""Deaths in a row before a child was ever ready."""


class Restarts:
    """Decides when to start again. Knows no clock: the caller passes the durations."""

    def __init__(self) -> None:
        """Start without failures."""
        self._deaths = 0
        self.never_ready: int = 0
        """Deaths in a row before the child was ready."""

    def ready(self) -> None:
        """Mark the child as ready."""
        self.never_ready = 0

    def died(self, *, ready_for: float | None) -> float:
        """Seconds until the next start. ``ready_for`` is None if it never was ready."""
        if ready_for is None:
            self.never_ready += 1
        elif ready_for >= _HEALTHY:
            self._deaths = 0
        pause = min(_FIRST * 2.0 ** min(self._deaths, 16), _LONGEST)
        self._deaths += 1
        return pause

    @property
    def hopeless(self) -> bool:
        """Whether starting it again makes no sense."""
        return self.never_ready >= GIVE_UP_AFTER


def exit_in_words(code: int) -> str:
    """Say how a process ended, from its return code."""
    if code < 0:
        hints: dict[int, str] = {
            signal.SIGKILL: f" ({SIGKILL_HINT})",
            signal.SIGSEGV: " (a crash in native code)",
        }
        return f"was killed by {signal_name(-code)}{hints.get(-code, '')}"
    known = {
        IN_ORDER: "stopped",
        COULD_NOT_START: "could not start",
        COULD_NOT_STOP: "crashed",
        UNSTORED: "ended before it could store every outcome",
        STORAGE_LOST: "lost its database, which was deleted or replaced",
        WORN_OUT: "stopped to be replaced",
        OUTDATED: "is too old for its storage",
    }
    return known.get(code, f"ended with exit code {code}")


class SupervisedChild:
    """A numbered place for one worker process at a time."""

    def __init__(self, number: int) -> None:
        """Empty; due at once."""
        self.number = number
        self.restarts: Restarts = Restarts()
        self.due: float | None = 0.0
        """When to start the next process; None while one runs, or none is wanted."""
        self.pid: int | None = None
        self.started_at: float = 0.0
        self.ready_at: float | None = None
        self.told_to_stop: int = 0
        self.reason: str | None = None
        """Why it ended, in its own word."""
        self.left: str = ""
        """The jobs it left behind, in its own words."""
        self.last_error: str = ""
        self.hopeless: bool = False
        self.running: int = 0
        self.slots: int = 0
        self.counts: Counter[str] = Counter()
        """Of the process that runs now, or ran last."""
        self.line: socket.socket | None = None
        self.output: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._reports = self._text = b""

    def start(self, arguments: Sequence[str], now: float, *, own_output: bool) -> None:
        """Start a process by exec: it shares nothing with us but the socket.

        ``own_output``: what it prints comes through a pipe, so that the terminal has one writer.
        """
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "windlass", *arguments]
        command += ["--child-fd", str(theirs.fileno()), "--child-number", str(self.number)]
        reader, writer = os.pipe() if own_output else (None, None)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=writer,
            stderr=writer,
            pass_fds=[theirs.fileno()],
            # Away from the terminal's signals: Ctrl+C reaches us, and we pass it on once.
            start_new_session=True,
        )
        theirs.close()
        if writer is not None:
            os.close(writer)
        ours.settimeout(0)
        if reader is not None:
            os.set_blocking(reader, False)
        self.pid, self.line, self.output = self._process.pid, ours, reader
        self.started_at, self.ready_at, self.due = now, None, None
        self.told_to_stop, self.reason, self.last_error, self.hopeless = 0, None, "", False
        self.counts = Counter()
        self._reports = self._text = b""

    def stop(self, times: int) -> None:
        """Pass on a stop; ``times`` is how many were asked for so far, at most two."""
        while self.pid is not None and self.told_to_stop < times:
            # Another signal the second time: two of a kind in quick succession arrive as one.
            os.kill(self.pid, STOPPING[self.told_to_stop])
            self.told_to_stop += 1

    def interrupt(self) -> None:
        """End it without asking."""
        if self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)

    def read(self, now: float) -> None:
        """Take in what it reports."""
        if self.line is None:
            return
        try:
            while chunk := self.line.recv(65536):
                self._reports += chunk
        except OSError:
            pass  # nothing more for now, or it is dead: its end tells
        reports, self._reports = parse_reports(self._reports)
        for report in reports:
            self._learn(report, now)

    def _learn(self, report: Report, now: float) -> None:
        if "ready" in report and self.ready_at is None:
            self.ready_at = now
            self.restarts.ready()
        if "failed" in report:
            self.last_error = printable(str(report["failed"]))
            self.hopeless = bool(report.get("hopeless"))
        if "ended" in report:
            self.reason = str(report["ended"])
            self.left = printable(str(report.get("left") or ""))
        counts = report.get("counts")
        if isinstance(counts, dict):
            self.counts = Counter({key: n for key, n in counts.items() if isinstance(n, int)})
            self.running = int(report.get("running") or 0)
            self.slots = int(report.get("slots") or self.slots)

    def printed(self) -> bytes:
        """Whole lines it has printed since the last time; all there is once it is dead, or when
        no line end comes.
        """
        if self.output is None:
            return b""
        try:
            while chunk := os.read(self.output, 65536):
                self._text += chunk
        except OSError:
            pass
        everything = self.pid is None or len(self._text) > _LONGEST_LINE
        end = len(self._text) if everything else self._text.rfind(b"\n") + 1
        text, self._text = self._text[:end], self._text[end:]
        return text

    def start_at(self, due: float | None) -> None:
        """Start the next process then; None: start none."""
        self.due = due

    def ended(self, code: int) -> None:
        """Its process was reaped."""
        if self._process is not None:
            self._process.returncode = code  # ours to wait for, and done: it must not try again
        self._process = None
        self.pid = None
        self.running = 0

    def close(self) -> None:
        """Let go of what led to the dead process."""
        if self.line is not None:
            self.line.close()
        if self.output is not None:
            os.close(self.output)
        self.line = self.output = None

    def lived(self, now: float) -> str:
        """Return how long it lived, in words."""
        return brief(timedelta(seconds=now - self.started_at))

    def ready_for(self, now: float) -> float | None:
        """Seconds since it was ready."""
        return None if self.ready_at is None else now - self.ready_at
