"""``make walk``: which functions one job passes, from ``enqueue`` to its stored finish.

A worker on a SQLite file runs jobs of a task that does nothing. The third job is traced: by then
the storage is open and what is made once per task is made. The first two are not counted.

**What counts.** Each function of the package that is entered on any thread counts once, from the
call of ``task.enqueue()`` until the outcome is in the file and nothing has moved for a while. So
the store's answer to the finish counts, and the claimer's look for the next job. Methods,
properties, lambdas, nested functions and constructors written in Python are functions. A
comprehension is a part of its function. Compiled code, such as a record's constructor, is no hop.

**What does not count.** Work below a background loop (`BACKGROUND`) is not done for the job:
periodic duties, the heartbeat's thread, the scheduler, the looks for cancel requests, the thread
that watches the file.

``make walk ARGS='--commit NAME'`` traces the package of another commit by the same rule.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import apsw

import windlass
from windlass import Windlass

__all__ = ["Hop", "format_walk", "trace"]

ROOT = Path(__file__).resolve().parents[2]

BACKGROUND = frozenset(
    {
        *("run_every", "every"),  # periodic duties; the second name is older
        "LoopOnThread._run",  # the heartbeat and what runs beside it
        "ChangeWatcher._run",  # the thread that notices commits of other processes
        *("LoopWatchdog._answer", "Watchdog._answer"),  # asks whether the loop is blocked
        *("Scheduler.run", "Scheduler._follow_hints", "Scheduler._run_chore"),
        "CancelPoller.run",  # looks for cancel requests
    }
)
"""Functions below which nothing is counted."""
_PARTS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})
_QUIET = 0.3
"""Seconds without a counted call after which a job has had all its effects."""
_FINISHED = "SELECT count(*) FROM jobs WHERE finished_at IS NOT NULL"

Hop = tuple[str, str]
"""A file, relative to the package, and a function in it."""


class _Recorder:
    """Collects hops, in the order in which they were first made, while it is on."""

    def __init__(self, package: Path) -> None:
        self._package = f"{package}{os.sep}"
        self._hops: dict[CodeType, Hop] = {}
        self._on = False
        self._last = 0.0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Note a call; what `sys.setprofile` is given."""
        code = frame.f_code
        if not self._on or event != "call" or not self._counts(code) or self._is_background(frame):
            return
        self._last = time.monotonic()
        if code not in self._hops:
            self._hops[code] = (code.co_filename[len(self._package) :], code.co_qualname)

    def _counts(self, code: CodeType) -> bool:
        is_function = code.co_flags & inspect.CO_OPTIMIZED and code.co_name not in _PARTS
        return bool(is_function) and code.co_filename.startswith(self._package)

    def _is_background(self, frame: FrameType | None) -> bool:
        while frame is not None:
            code = frame.f_code
            if code.co_qualname in BACKGROUND and code.co_filename.startswith(self._package):
                return True
            frame = frame.f_back
        return False

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record inside the block."""
        self._on = True
        try:
            yield
        finally:
            self._on = False

    async def quiet(self) -> None:
        """Wait until nothing was recorded for a while."""
        while time.monotonic() < self._last + _QUIET:  # noqa: ASYNC110 -- nothing tells
            await asyncio.sleep(_QUIET / 10)

    @property
    def hops(self) -> list[Hop]:
        return list(self._hops.values())


async def _walk(recorder: _Recorder, path: Path) -> None:
    app = Windlass(f"sqlite:///{path}")

    @app.task(name="noop")
    async def noop() -> None:
        pass

    async with app, app.worker():
        stored = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            for finished in (1, 2):
                await noop.enqueue()
                await _until_finished(stored, finished)
            await asyncio.sleep(_QUIET)
            with recorder.recording():
                await noop.enqueue()
                await _until_finished(stored, 3)
                await recorder.quiet()
        finally:
            stored.close()


async def _until_finished(stored: apsw.Connection, many: int) -> None:
    """Read the file beside the package, so that waiting is no part of the walk."""
    while stored.execute(_FINISHED).get < many:  # noqa: ASYNC110 -- nothing tells
        await asyncio.sleep(0.002)


def _trace_here() -> list[Hop]:
    recorder = _Recorder(Path(windlass.__file__).parent)
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    try:
        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(_walk(recorder, Path(folder) / "jobs.db"))
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return recorder.hops


def trace(source: Path) -> list[Hop]:
    """Trace a job in a process that imports the package from ``source``."""
    script = (
        f"import json; from {__spec__.name} import _trace_here; print(json.dumps(_trace_here()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{ROOT}"},
        cwd=source,
        stdout=subprocess.PIPE,
        check=True,
    )
    return [(file, function) for file, function in json.loads(done.stdout)]


@contextmanager
def _sources_of(commit: str | None) -> Iterator[Path]:
    if commit is None:
        yield ROOT / "src"
        return
    with tempfile.TemporaryDirectory(prefix="windlass-walk-") as folder:
        archive = Path(folder) / "src.tar"
        words = ["git", "-C", str(ROOT), "archive", "-o", str(archive), commit, "src"]
        subprocess.run(words, check=True)
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        yield Path(folder) / "src"


def format_walk(hops: Sequence[Hop], *, by_file: bool = False) -> Iterator[str]:
    """Format the hops in order, a line for each change of file, and their number.

    ``by_file``: a line for each file, in the order of its first hop.
    """
    files = [file for file, _ in hops]
    if by_file:
        hops = sorted(hops, key=lambda hop: files.index(hop[0]))
    for file, run in groupby(hops, lambda hop: hop[0]):
        yield f"{file:33} {', '.join(function for _, function in run)}"
    yield f"{len(hops)} functions in {len(set(files))} files"


def main() -> None:
    """Print the walk of this tree, or of a commit."""
    parser = argparse.ArgumentParser(prog="make walk", description="Trace one job on SQLite.")
    parser.add_argument("--commit", help="trace the package of this commit instead")
    parser.add_argument("--by-file", action="store_true", help="print one line for each file")
    parser.add_argument("--count", action="store_true", help="print the numbers alone")
    asked = parser.parse_args()
    with _sources_of(asked.commit) as source:
        lines = list(format_walk(trace(source), by_file=asked.by_file))
    print("\n".join(lines[-1:] if asked.count else lines))  # noqa: T201 -- what it is for


if __name__ == "__main__":
    main()
