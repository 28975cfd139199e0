"""The socket between a supervisor and each of its children.

The child reports through it, one JSON object per line. The supervisor says nothing: what counts
is that its end is open. The kernel closes it when the supervisor dies, however it dies.
"""

from __future__ import annotations

import json
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from typing import Any

from windlass._system.seams import start_thread

__all__ = ["Counts", "Report", "SupervisorConnection", "parse_reports"]

Counts = Mapping[str, int]
Report = dict[str, Any]

_PR_SET_PDEATHSIG = 1


class SupervisorConnection:
    """A child's end of the connection to its supervisor."""

    def __init__(self, fd: int) -> None:
        """``fd`` was passed on by the supervisor."""
        self._socket = socket.socket(fileno=fd)
        self._socket.set_inheritable(False)
        self._unsent = b""

    def watch(self, orphaned: Callable[[], None]) -> None:
        """Call ``orphaned`` on another thread once the supervisor is dead."""

        def wait() -> None:
            try:
                while self._socket.recv(4096):
                    pass
            except OSError:
                pass  # a connection that broke means the same
            orphaned()

        _ask_for_a_signal()
        start_thread("lifeline", wait)

    def report(self, report: Report) -> None:
        """Tell the supervisor. Never blocks: a supervisor that is stopped must not stop us."""
        self._unsent += json.dumps(report).encode() + b"\n"
        self.flush()

    def flush(self) -> bool:
        """Send what could not be sent before; whether everything is sent."""
        try:
            while self._unsent:
                sent = self._socket.send(self._unsent, socket.MSG_DONTWAIT)
                self._unsent = self._unsent[sent:]
        except BlockingIOError:
            return False
        except OSError:
            self._unsent = b""  # it is dead, and the other thread knows
        return True


def _ask_for_a_signal() -> None:
    """Ask the kernel, where it can, for a SIGTERM on the supervisor's death. Only a hint: the
    socket is relied on.
    """
    if sys.platform != "linux":
        return
    import ctypes

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def parse_reports(buffer: bytes) -> tuple[list[Report], bytes]:
    """Return the whole lines in ``buffer`` as reports, and what is left. Anything else is dropped:
    user code runs in the child and may write to any descriptor.
    """
    *lines, rest = buffer.split(b"\n")
    reports = []
    for line in lines:
        try:
            report = json.loads(line)
        except ValueError:
            continue
        if isinstance(report, dict):
            reports.append(report)
    return reports, rest
