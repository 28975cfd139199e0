"""Output of handlers, above the line that is kept up to date."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import TextIO

from windlass._cli.output.terminal import Terminal

__all__ = ["print_above_last_line"]

_LONGEST = 2**16
"""Of a text without a line end: more is not kept back."""


class _AboveLastLine(io.TextIOBase):
    """Replaces a standard stream. Whole lines go to the terminal's one writer: written past it they
    would run into its last line.
    """

    def __init__(self, terminal: Terminal, stream: TextIO) -> None:
        self._terminal = terminal
        self._stream = stream
        self._held = ""
        self._lock = threading.RLock()

    def write(self, text: str) -> int:
        """Whole lines at once; the rest waits for its end."""
        with self._lock:
            lines, end, self._held = (self._held + text).rpartition("\n")
            if end:
                self._terminal.write(lines)
            if len(self._held) > _LONGEST:
                self.flush()
        return len(text)

    def flush(self) -> None:
        """End an unfinished line: a prompt must be seen, and must not be overwritten."""
        with self._lock:
            held, self._held = self._held, ""
            if held:
                self._terminal.write(held)

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    @property
    def buffer(self) -> object:
        """For those who write bytes: the stream's own."""
        return self._stream.buffer

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        return self._stream.errors


@contextmanager
def print_above_last_line(terminal: Terminal) -> Iterator[None]:
    """While this lasts, what is printed to a screen stays clear of the terminal's last line.

    A stream that is redirected to a file or a pipe is left alone: it is no part of the screen.
    """
    before = sys.stdout, sys.stderr
    ours = [_AboveLastLine(terminal, s) if s is not None and s.isatty() else s for s in before]
    try:
        with redirect_stdout(ours[0]), redirect_stderr(ours[1]):
            yield
    finally:
        for stream in ours:
            if isinstance(stream, _AboveLastLine):
                stream.flush()
