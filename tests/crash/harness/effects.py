"""What handlers did, as they say themselves: one line per effect, appended to a file.

It is the world outside the database. A handler that was killed has left what it wrote; a claim
that was never run has left nothing.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from windlass import Context

START, END = "start", "end"
_COMPLETE = "."


class Effect(NamedTuple):
    """A handler began or ended."""

    what: str
    job: str
    claim: int
    attempt: int
    pid: int

    @property
    def run(self) -> tuple[str, int]:
        """Which run it belongs to."""
        return self.job, self.claim


class Effects:
    """The writing end, one per process. A line is one write, so that lines never mix.

    A process that is killed in the midst of one leaves half a line, if it crosses a page: so a
    line begins on a fresh one, and says when it is complete.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1

    def write(self, what: str, context: Context) -> None:
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        claim = context.claimed.claim
        fields = (what, claim.job, claim.number, context.attempt, os.getpid())
        os.write(self._fd, f"\n{' '.join(map(str, fields))} {_COMPLETE}\n".encode())


class EffectLog:
    """The reading end; it reads on from where it was."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0
        self._all: list[Effect] = []
        self._by_pid: dict[int, list[Effect]] = defaultdict(list)

    def read(self) -> list[Effect]:
        """Every effect so far."""
        if self._path.exists():
            with self._path.open("rb") as file:
                file.seek(self._offset)
                *lines, rest = file.read().split(b"\n")
                self._offset = file.tell() - len(rest)
            for line in lines:
                effect = _parse(line.decode())
                if effect is not None:
                    self._all.append(effect)
                    self._by_pid[effect.pid].append(effect)
        return self._all

    def of(self, pid: int) -> list[Effect]:
        """Those of one process."""
        self.read()
        return self._by_pid[pid]


def _parse(line: str) -> Effect | None:
    if not line.endswith(f" {_COMPLETE}"):
        return None
    what, job, claim, attempt, pid, _ = line.split(" ")
    return Effect(what, job, int(claim), int(attempt), int(pid))
