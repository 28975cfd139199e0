"""Commands as real processes, whose output can be waited for."""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from windlass._cli.worker_process.signals import TOGETHER

PATIENCE = 30.0
"""Nothing here takes that long unless it is broken."""


def windlass(
    *arguments: str, cwd: Path, env: Mapping[str, str] | None = None, timeout: float = PATIENCE
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [sys.executable, "-m", "windlass", *arguments],
        cwd=cwd,
        env=environment(env),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    return {**clean, "COLUMNS": "120", **(extra or {})}


class Running:
    """A command that runs in the background. Leaving the block ends it and what it started."""

    def __init__(
        self,
        *arguments: str,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        instead: Sequence[str] = (sys.executable, "-m", "windlass"),
    ) -> None:
        self.process = subprocess.Popen(
            [*prefix, *instead, *arguments],
            cwd=cwd,
            env=environment(env),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self.lines: list[str] = []
        self._seen = 0
        self._arrived: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                self._arrived.put(line.rstrip("\n"))
        self._arrived.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(PATIENCE)
        for pid in self.pids():
            assert gone_within(pid, PATIENCE), f"process {pid} is still alive"
        self._reader.join(PATIENCE)

    def wait_for(self, pattern: str, timeout: float = PATIENCE) -> re.Match[str]:
        """The next line that matches; what was read before is not looked at again."""
        deadline = time.monotonic() + timeout
        while True:
            while self._seen < len(self.lines):
                self._seen += 1
                if found := re.search(pattern, self.lines[self._seen - 1]):
                    return found
            try:
                line = self._arrived.get(timeout=max(deadline - time.monotonic(), 0.01))
            except queue.Empty:
                line = None
            if line is None:
                raise AssertionError("\n".join([f"no line matched {pattern!r}:", *self.lines]))
            self.lines.append(line)

    def wait(self, timeout: float = PATIENCE) -> int:
        """The exit code, once it has ended by itself."""
        code = self.process.wait(timeout)
        while (line := self._arrived.get(timeout=PATIENCE)) is not None:
            self.lines.append(line)
        return code

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def signal_again(self, number: int) -> None:
        """Send it late enough to be another request than the one before."""
        time.sleep(TOGETHER + 0.1)
        self.process.send_signal(number)

    def pids(self) -> list[int]:
        """Every worker process that has said its pid."""
        return [int(pid) for pid in re.findall(r"\bworker \w+ · pid (\d+)", self.text)] + [
            int(pid) for pid in re.findall(r"started, pid (\d+)", self.text)
        ]


@contextmanager
def ending(process: subprocess.Popen[str]) -> Iterator[None]:
    """Whatever happens, the process does not outlive the block."""
    try:
        yield
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(PATIENCE)


def alive(pid: int) -> bool:
    """A process that runs; one that is dead and not yet reaped is not alive."""
    if not Path("/proc/self").exists():
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        return True
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in {"Z", "X"}


def gone_within(pid: int, seconds: float) -> bool:
    return until(lambda: not alive(pid), seconds)


def until(condition: object, seconds: float = PATIENCE) -> bool:
    """Look again and again, for at most so long."""
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
