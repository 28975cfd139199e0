"""The pipes of a program: lines of bounded length come out, requests go in."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import IO

__all__ = ["LineReader", "PipeWriter"]

_CHUNK = 64 * 1024


class LineReader:
    """Calls a function with each line, as soon as it is there.

    Not a stream with a task of its own: of lines that were written before a reply to another pipe,
    all are read before the reply wakes a task.
    """

    def __init__(self, pipe: IO[bytes], limit: int, on_line: Callable[[bytes], None]) -> None:
        """Take the pipe; `begin` reads. Of a longer line, ``on_line`` gets the part up to a little
        more than ``limit`` bytes, at once.
        """
        self._pipe = pipe
        self._limit = limit
        self._on_line = on_line
        self._parts: list[bytes] = []
        self._size = 0
        self._skipping = False
        self._loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        """Done once the program, and all that it has started, have closed the pipe."""
        os.set_blocking(pipe.fileno(), False)

    def begin(self) -> None:
        """Read from now on; it may be called again."""
        if not self.ended.done():
            self._loop.add_reader(self._pipe.fileno(), self._read)

    def close(self) -> None:
        """Read no more."""
        if not self.ended.done():
            self._loop.remove_reader(self._pipe.fileno())
            self._pipe.close()
            self.ended.set_result(None)

    def _read(self) -> None:
        try:
            chunk = os.read(self._pipe.fileno(), _CHUNK)
        except (BlockingIOError, InterruptedError):
            return
        if chunk:
            first, *others = chunk.split(b"\n")
            self._add(first)
            for part in others:
                self._end_line()
                self._add(part)
            return
        if self._parts and not self._skipping:
            self._end_line()
        self.close()

    def _add(self, part: bytes) -> None:
        if self._skipping or not part:
            return
        self._parts.append(part)
        self._size += len(part)
        if self._size > self._limit:
            self._tell()
            self._skipping = True

    def _end_line(self) -> None:
        if not self._skipping:
            self._tell()
        self._skipping = False

    def _tell(self) -> None:
        line = b"".join(self._parts)
        self._parts, self._size = [], 0
        if line:
            self._on_line(line)


class PipeWriter:
    """Writes to a pipe as fast as the program reads. One that reads nothing blocks no other job."""

    def __init__(self, pipe: IO[bytes]) -> None:
        """Take the pipe."""
        self._pipe = pipe
        self._waiting = bytearray()
        self._closing = False
        self._loop = asyncio.get_running_loop()
        os.set_blocking(pipe.fileno(), False)

    def write(self, text: bytes) -> None:
        """Write it now, and what does not fit soon."""
        if not self._closing:
            self._waiting += text
            self._write_on()

    def finish(self) -> None:
        """Close the pipe once all is written."""
        self._closing = True
        if not self._waiting:
            self.close()

    def close(self) -> None:
        """Close the pipe now."""
        self._closing = True
        self._waiting.clear()
        if not self._pipe.closed:
            self._loop.remove_writer(self._pipe.fileno())
            self._pipe.close()

    def _write_on(self) -> None:
        try:
            count = os.write(self._pipe.fileno(), self._waiting)
        except (BlockingIOError, InterruptedError):
            count = 0
        except OSError:
            self.close()  # the program has closed its end; its exit or its reply says more
            return
        del self._waiting[:count]
        if self._waiting:
            self._loop.add_writer(self._pipe.fileno(), self._write_on)
            return
        self._loop.remove_writer(self._pipe.fileno())
        if self._closing:
            self.close()
