"""The one writer to standard error: log lines, and below them a line that is kept up to date."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, TextIO

from windlass._observe.log import HumanFormatter, JsonFormatter

__all__ = [
    "LogFormat",
    "LogHandler",
    "Terminal",
    "ignore_broken_pipe",
    "keep_own_loggers",
    "log_to",
]

LogFormat = Literal["human", "json"]

# For terminals that show nothing but ASCII.
_PLAIN = str.maketrans(
    {
        "▸": ">",
        "✓": "+",
        "↻": "~",
        "…": "...",
        "↩": "<",
        "✗": "x",
        "⊘": "o",
        "•": "*",
        "·": "-",
        "→": "->",
        "│": "|",
        "×": "x",
    }
)
_CLEAR = "\r\x1b[2K"


@contextmanager
def ignore_broken_pipe() -> Iterator[None]:
    """End quietly when the reader of a pipe has gone: ``windlass top --json | head -1``."""
    try:
        yield
    except BrokenPipeError:
        # Text in the buffer would be written again at the exit, and fail it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Terminal:
    """Writes whole lines at once, from any thread, and survives the end of its reader.

    A reader that has gone away (a closed pipe, a hung-up terminal) must not stop a worker: from
    then on nothing is written.
    """

    def __init__(self, stream: TextIO | None = None, *, colour: bool = False) -> None:
        """Make a writer. ``stream`` defaults to standard error. ``colour``: use colours in a pipe,
        too.
        """
        stream = sys.stderr if stream is None else stream
        # Started with standard error closed, Python has none either.
        self._gone: bool = stream is None
        self._fd = -1 if stream is None else stream.fileno()
        self._encoding = (stream and stream.encoding) or "utf-8"
        self._lock = threading.Lock()
        self._line = ""
        is_terminal = stream is not None and stream.isatty()
        smart = is_terminal and os.environ.get("TERM", "") not in {"", "dumb"}
        self.live = smart
        """Whether a line can be kept up to date."""
        self.colour: bool = colour or (smart and not os.environ.get("NO_COLOR"))
        self._ascii = "utf" not in self._encoding.lower()

    @property
    def width(self) -> int:
        """Columns."""
        return shutil.get_terminal_size().columns

    def write(self, text: str) -> None:
        """Write lines; the last one need not end."""
        if not text.endswith("\n"):
            text += "\n"
        with self._lock:
            self._put(f"{_CLEAR}{text}{self._line}" if self._line else text)

    def show(self, line: str) -> None:
        """Replace the line below all others; nothing where the terminal cannot do that."""
        if not self.live:
            return
        line = line[: self.width - 1]
        if line and self.colour:
            line = f"\x1b[36m{line}\x1b[0m"
        with self._lock:
            if line != self._line:
                self._line = line
                self._put(_CLEAR + line)

    def _put(self, text: str) -> None:
        if self._gone:
            return
        if self._ascii:
            text = text.translate(_PLAIN)
        rest = text.encode(self._encoding, "backslashreplace")
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError:
            self._gone = True


class LogHandler(logging.Handler):
    """Log records → terminal, but for those that a handler of the app's own prints there."""

    def __init__(self, terminal: Terminal) -> None:
        """Give it a formatter."""
        super().__init__()
        self._terminal = terminal

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if not any(_prints(other) and other.filter(record) for other in _others(record)):
                self._terminal.write(self.format(record))
        except Exception:  # noqa: BLE001 -- a line that cannot be formatted must not end a job
            self.handleError(record)


def _others(record: logging.LogRecord) -> Iterator[logging.Handler]:
    """Yield the other handlers that get this record."""
    logger: logging.Logger | None = logging.getLogger(record.name)
    while logger is not None:
        for handler in logger.handlers:
            if record.levelno >= handler.level and not isinstance(handler, LogHandler):
                yield handler
        logger = logger.parent if logger.propagate else None


def _prints(handler: logging.Handler) -> bool:
    """Return whether a handler writes to standard output or standard error."""
    # That of Rich has a console, which has the file.
    stream = getattr(handler, "stream", None) or getattr(
        getattr(handler, "console", None), "file", None
    )
    ends = (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)
    return stream is not None and any(stream is end for end in ends)


def log_to(terminal: Terminal, *, level: str, form: LogFormat, prefix: str = "") -> None:
    """Send everything this process logs to ``terminal``.

    Done before the app is imported. An app that sets up logging itself replaces this: its own
    choice wins, also if it was there first.
    """
    handler = LogHandler(terminal)
    handler.setFormatter(
        JsonFormatter() if form == "json" else HumanFormatter(colour=terminal.colour, prefix=prefix)
    )
    root = logging.getLogger()
    root.addHandler(handler)
    root.setLevel(level.upper())
    logging.captureWarnings(capture=True)


def keep_own_loggers() -> None:
    """Undo what ``dictConfig`` does by default to every logger made before it: silence it."""
    for name in ("windlass", "windlass.job", "windlass.jobs"):
        logging.getLogger(name).disabled = False
