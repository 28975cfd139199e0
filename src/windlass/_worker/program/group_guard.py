"""Ends the programs of a worker that was killed.

A child process of ours sees the end of its line, and ends its group. A program does not do that.
So one small process for each worker knows the groups, and outlives it for that moment.
"""

from __future__ import annotations

import logging
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["GroupGuard"]

_MAIN = Path(__file__).with_name("group_guard_main.py")
_LEAVE = 5.0


log = logging.getLogger("windlass")


class GroupGuard:
    """Knows the process groups to end with the worker."""

    def __init__(self) -> None:
        """Make it; its process starts with the first group."""
        self._process: subprocess.Popen[bytes] | None = None

    def add(self, group: int) -> None:
        """End this group when the worker dies."""
        if self._process is None:
            self._process = _start()
        self._say(f"+ {group}\n")

    def remove(self, group: int) -> None:
        """Forget a group: its number may become another's."""
        self._say(f"- {group}\n")

    def close(self) -> None:
        """Let its process end."""
        process, self._process = self._process, None
        if process is not None and process.stdin is not None:
            process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                process.wait(_LEAVE)

    def _say(self, line: str) -> None:
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):  # it was killed: this worker ends its programs itself
                self._process.stdin.write(line.encode())


def _start() -> subprocess.Popen[bytes] | None:
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(_MAIN)],
            stdin=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
    except OSError as error:
        log.warning("if this worker is killed, its programs may outlive it: %s", error)
        return None
