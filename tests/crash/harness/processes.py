"""Children for tests: started by role, signalled, waited for, and never left behind."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

ROOT = Path(__file__).parents[3]
PATIENCE = 60.0
"""Nothing here takes that long unless it is broken."""


def until(
    condition: Callable[[], bool], what: str, seconds: float = PATIENCE, *, every: float = 0.005
) -> float:
    """Look again and again, for at most so long; how long it took."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, f"{what}: not within {seconds:g} s"
        time.sleep(every)
    return time.monotonic() - began


def stand_still(seconds: float) -> None:
    """Let a fault last: it is part of what is tested, not a wait for something to happen."""
    time.sleep(seconds)


class Process:
    """One child of the zygote."""

    def __init__(self, processes: Processes, pid: int, log: Path) -> None:
        self._processes = processes
        self.pid = pid
        self.log = log

    def signal(self, number: signal.Signals) -> None:
        self._processes.order({"pid": self.pid, "signal": number})

    def kill(self) -> None:
        """SIGKILL, and wait until it is dead."""
        self.signal(signal.SIGKILL)
        assert self.wait() == -signal.SIGKILL, self.text

    def wait(self, seconds: float = PATIENCE) -> int:
        """The exit code, once it has ended."""
        self._processes.expect("ended", self.pid, seconds, self.log)
        return self._processes.codes[self.pid]

    def wait_until_stopped(self, seconds: float = PATIENCE) -> None:
        """Until a SIGSTOP has taken effect."""
        self._processes.expect("stopped", self.pid, seconds, self.log)

    @property
    def ended(self) -> bool:
        self._processes.listen(0)
        return self.pid in self._processes.codes

    @property
    def text(self) -> str:
        """Everything it has printed."""
        return self.log.read_text(encoding="utf-8", errors="replace")


class Processes:
    """The test's end of the line to a zygote. Leaving the block ends every child."""

    def __init__(self, *, prefix: Sequence[str] = ()) -> None:
        """``prefix`` stands before the command: a wrapper that execs what follows it."""
        ours, theirs = socket.socketpair()
        command = [
            *prefix,
            sys.executable,
            "-m",
            "tests.crash.harness.zygote",
            str(theirs.fileno()),
        ]
        # Without a developer's own settings: the scene gives the ones that count.
        env = {name: text for name, text in os.environ.items() if not name.startswith("WINDLASS_")}
        self._zygote = subprocess.Popen(
            command, cwd=ROOT, env=env, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL
        )
        theirs.close()
        self._line = ours
        self._unread = b""
        self._reports: dict[str, dict[int, int]] = defaultdict(dict)
        self._last_started = 0
        self._count = 0
        self.codes: dict[int, int] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the zygote, which ends everything it has started."""
        self._line.close()
        try:
            self._zygote.wait(PATIENCE)
        finally:
            self._zygote.kill()
            self._zygote.wait()

    def start(
        self, role: str, folder: Path, *, env: Mapping[str, str] | None = None, **given: Any
    ) -> Process:
        """Play ``role`` (a function in `tests.crash.harness.roles`) in a process of its own."""
        self._count += 1
        log = folder / f"{role}-{self._count}.log"
        self._last_started = 0
        order = {"role": role, "given": given, "env": dict(env or {}), "log": str(log)}
        self.order(order)
        deadline = time.monotonic() + PATIENCE
        while not self._last_started:
            assert time.monotonic() < deadline, "the zygote does not answer"
            self.listen(PATIENCE)
        return Process(self, self._last_started, log)

    def end_all(self) -> None:
        """End what still runs, stopped or not; nobody waits for the next test."""
        for pid in [pid for pid in self._reports["started"] if pid not in self.codes]:
            self.order({"pid": pid, "signal": signal.SIGKILL})
            self.expect("ended", pid, PATIENCE, Path(os.devnull))
        self._reports["started"].clear()
        self.codes.clear()

    def order(self, order: Mapping[str, Any]) -> None:
        self._line.sendall(json.dumps(order).encode() + b"\n")

    def expect(self, what: str, pid: int, seconds: float, log: Path) -> None:
        """Wait for a report about ``pid``, and take it."""
        deadline = time.monotonic() + seconds
        while pid not in self._reports[what]:
            left = deadline - time.monotonic()
            if left <= 0:
                text = log.read_text(encoding="utf-8", errors="replace") if log.exists() else ""
                raise AssertionError(f"{pid} has not {what} within {seconds:g} s:\n{text}")
            self.listen(left)
        if what != "ended":
            del self._reports[what][pid]

    def listen(self, seconds: float) -> None:
        """Take in what the zygote reports, waiting at most so long for the first word."""
        self._line.settimeout(max(seconds, 0.0))
        try:
            received = self._line.recv(65536)
        except (BlockingIOError, TimeoutError):
            return
        assert received, "the zygote is dead"
        *reports, self._unread = (self._unread + received).split(b"\n")
        for report in map(json.loads, reports):
            what, pid = report["what"], report["pid"]
            self._reports[what][pid] = 1
            if what == "started":
                self._forget(pid)
                self._last_started = pid
            elif what == "ended":
                self.codes[pid] = report["code"]

    def _forget(self, pid: int) -> None:
        """A number that was used before belongs to somebody else now."""
        self.codes.pop(pid, None)
        for what in ("ended", "stopped", "continued"):
            self._reports[what].pop(pid, None)


def running(pid: int) -> bool:
    """Whether a process that is nobody's child here still runs; a zombie does not."""
    try:
        os.kill(pid, 0)
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return text.rpartition(")")[2].split()[0] not in {"Z", "X"}
