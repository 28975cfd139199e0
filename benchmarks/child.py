"""Processes of their own for what is measured, so that no figure sees its neighbours' memory.

``python -m benchmarks.child module:function '{"argument": …}'`` runs one function, a coroutine
function under the fastest event loop here, and prints its answer as one line of JSON. A function
that lives longer reads requests with `requests` and answers them with `answer`, line by line; it
ends when its standard input does, so it cannot outlive the process that started it.

It imports the standard library only: `benchmarks.peers` runs it in environments without Windlass.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

__all__ = [
    "Child",
    "answer",
    "child",
    "interpreter",
    "loop_factory",
    "processor_seconds",
    "requests",
    "run",
    "sources",
]

PATIENCE = 600.0
"""Seconds that any single answer may take."""
_ROOT = Path(__file__).resolve().parents[1]
_SOURCES: ContextVar[Path | None] = ContextVar("sources of what is measured", default=None)
_PYTHON: ContextVar[Path | None] = ContextVar("interpreter of what is measured", default=None)


def processor_seconds(pid: int, *, with_children: bool = False) -> float:
    """User and system time of all threads of a process; of those it started as well, if asked."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0  # it has just ended; its parent's account has it
    fields = text.rpartition(")")[2].split()
    own = sum(map(int, fields[11:15] if with_children else fields[11:13]))
    seconds = own / os.sysconf("SC_CLK_TCK")
    if with_children:
        seconds += sum(processor_seconds(int(child), with_children=True) for child in children)
    return seconds


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return the event loop that ``windlass worker`` runs on, too."""
    try:
        import uvloop  # noqa: PLC0415 -- optional
    except ImportError:
        return None
    return uvloop.new_event_loop


# --- the parent's side ------------------------------------------------------------------------


@contextmanager
def sources(folder: Path) -> Iterator[None]:
    """Let processes that start within this block import the package from ``folder``."""
    before = _SOURCES.set(folder)
    try:
        yield
    finally:
        _SOURCES.reset(before)


@contextmanager
def interpreter(python: Path) -> Iterator[None]:
    """Start processes within this block by ``python``, which may lack the package."""
    before = _PYTHON.set(python)
    try:
        yield
    finally:
        _PYTHON.reset(before)


class Child:
    """A process that answers."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.pid = process.pid

    async def ask(self, request: Any, *, patience: float = PATIENCE) -> Any:
        """Send a request and wait for its answer."""
        assert self._process.stdin is not None  # noqa: S101
        self._process.stdin.write(_encode(request))
        return await self.hear(patience=patience)

    async def hear(self, *, patience: float = PATIENCE) -> Any:
        """Wait for an answer that was not asked for."""
        assert self._process.stdout is not None  # noqa: S101
        async with asyncio.timeout(patience):
            line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("a measured process ended without an answer; see above")
        return json.loads(line)

    async def end(self) -> None:
        """Let it end; it has a moment for that."""
        assert self._process.stdin is not None  # noqa: S101
        with suppress(ConnectionError):
            self._process.stdin.close()
        try:
            async with asyncio.timeout(15):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


@asynccontextmanager
async def child(function: Callable[..., Any], **arguments: Any) -> AsyncIterator[Child]:
    """Run ``function`` in a separate process, as long as the block lasts."""
    # A user's own settings must not steer what is measured.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("WINDLASS_")}
    if (chosen := _SOURCES.get()) is not None:
        environment["PYTHONPATH"] = os.pathsep.join((str(chosen), str(_ROOT)))
    elif _PYTHON.get() is not None:
        environment["PYTHONPATH"] = str(_ROOT)
    process = await asyncio.create_subprocess_exec(
        _PYTHON.get() or sys.executable,
        "-m",
        "benchmarks.child",
        f"{function.__module__}:{function.__qualname__}",
        json.dumps(arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=2**24,
        env=environment,
    )
    started = Child(process)
    try:
        yield started
    finally:
        await asyncio.shield(started.end())


async def run(function: Callable[..., Any], **arguments: Any) -> Any:
    """Return the answer of ``function``, run in a separate process."""
    async with child(function, **arguments) as process:
        return await process.hear()


# --- the child's side -------------------------------------------------------------------------


def _encode(value: Any) -> bytes:
    return json.dumps(value).encode() + b"\n"


def answer(value: Any) -> None:
    """Tell the parent."""
    sys.stdout.buffer.write(_encode(value))
    sys.stdout.buffer.flush()


async def requests() -> AsyncIterator[Any]:
    """Yield the parent's requests, until there are no more."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    try:
        while line := await reader.readline():
            yield json.loads(line)
    finally:
        transport.close()


def main() -> None:
    """Run what the command line names."""
    target, arguments = sys.argv[1:]
    module, _, name = target.partition(":")
    function = getattr(importlib.import_module(module), name)
    given: dict[str, Any] = json.loads(arguments)
    if inspect.iscoroutinefunction(function):
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            result = runner.run(function(**given))
    else:
        result = function(**given)
    if result is not None:
        answer(result)


if __name__ == "__main__":
    main()
