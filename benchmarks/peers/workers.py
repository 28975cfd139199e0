"""Worker processes of a measured system, and what can be seen of them from outside."""

from __future__ import annotations

import asyncio
import ctypes
import os
import re
import signal
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from benchmarks.peers import probe
from benchmarks.peers.environments import ROOT
from benchmarks.peers.protocol import Command

__all__ = ["Crew", "Failed", "Runs", "started"]

_LOOK = 0.002
_PR_SET_PDEATHSIG = 1


class Failed(Exception):
    """A system did not do what was measured: the text says what was missing."""


class Runs:
    """The runs that worker processes have recorded so far, see `benchmarks.peers.probe`."""

    def __init__(self, file: Path) -> None:
        self.file = file
        file.touch()

    def __len__(self) -> int:
        return self.file.stat().st_size // probe.RECORD.size

    def read(self) -> list[tuple[float, float]]:
        """Return the number and the instant of each run."""
        whole = len(self) * probe.RECORD.size
        return [*probe.RECORD.iter_unpack(self.file.read_bytes()[:whole])]


class Crew:
    """The worker processes of one step."""

    def __init__(self, processes: Sequence[subprocess.Popen[bytes]], runs: Runs, log: Path) -> None:
        self._processes, self.runs, self._log = processes, runs, log

    async def until(self, reached: Callable[[], bool], patience: float) -> bool:
        """Wait until ``reached``; say whether that was within ``patience`` seconds."""
        deadline = time.monotonic() + patience
        while not reached():
            self.check()
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(_LOOK)
        return True

    def check(self) -> None:
        """Raise `Failed` when a worker has ended by itself."""
        for process in self._processes:
            if process.poll() is not None:
                raise Failed(f"a worker ended with {process.returncode}: {self.last_words}")

    @property
    def last_words(self) -> str:
        """Return the end of the workers' log."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-1500:].strip()

    def megabytes(self) -> float:
        """Return the resident memory of the workers, plus what their children do not share."""
        total = 0
        for process in self._processes:
            worker, *children = _tree(process.pid)
            total += _memory(worker, "Rss")
            total += sum(_memory(pid, "Private_Clean", "Private_Dirty") for pid in children)
        return total / 1e6

    def kill(self) -> None:
        """End the workers and all that they have started, at once: their store is dropped next."""
        for process in self._processes:
            process.send_signal(signal.SIGSTOP)  # so that it starts no more
        pids = [pid for process in self._processes for pid in _tree(process.pid)]
        for pid in pids:
            _kill(pid)
        for process in self._processes:
            process.wait()


@contextmanager
def started(python: Path, commands: Sequence[Command], url: str, folder: Path) -> Iterator[Crew]:
    """Run worker processes, one per command, as long as the block lasts."""
    runs, log = Runs(folder / "runs"), folder / "log"
    environment = {
        **{name: text for name, text in os.environ.items() if not name.startswith("WINDLASS_")},
        "PATH": f"{python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "PYTHONPATH": str(ROOT),
        probe.URL: url,
        probe.RUNS: str(runs.file),
    }
    processes = []
    try:
        with log.open("ab") as words:
            for command in commands:
                environment[probe.SLOTS] = str(command.slots)
                processes.append(_start(python, command.words, environment, words))
        yield Crew(processes, runs, log)
    finally:
        Crew(processes, runs, log).kill()


def _start(
    python: Path, words: Sequence[str], environment: dict[str, str], log: Any
) -> subprocess.Popen[bytes]:
    with warnings.catch_warnings():
        # Newer Pythons warn of forks where there are threads; nothing happens here before exec.
        warnings.simplefilter("ignore", DeprecationWarning)
        return subprocess.Popen(
            # By full path: a bare name would be looked up in this process's own PATH.
            [str(python.parent / words[0]), *words[1:]],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 -- one call into the kernel
        )


def _die_with_parent() -> None:
    """Leave no worker behind when the benchmark is killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def _tree(pid: int) -> Iterator[int]:
    """Yield a process and all that it has started."""
    yield pid
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = thread.read_text(encoding="ascii").split()
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has just ended
        for child in children:
            yield from _tree(int(child))


def _memory(pid: int, *kinds: str) -> int:
    """Return the bytes that the kernel counts under these names."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii")
    except (FileNotFoundError, ProcessLookupError):
        return 0  # it has just ended
    counted = dict(re.findall(r"^(\w+):\s+(\d+) kB", text, re.MULTILINE))
    return sum(int(counted[kind]) * 1024 for kind in kinds)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):  # it has just ended
        os.kill(pid, signal.SIGKILL)
