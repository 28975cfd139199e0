"""One writer to the terminal: lines above, the line that is kept up to date below."""

from __future__ import annotations

import io
import logging
import os
import pty
import sys
from collections.abc import Iterator
from typing import TextIO

import pytest

from windlass._cli.output.terminal import LogHandler, Terminal


class Pipe:
    """A stream that is no terminal."""

    def __init__(self, encoding: str = "utf-8") -> None:
        self.reader, writer = os.pipe()
        self.stream: TextIO = io.TextIOWrapper(os.fdopen(writer, "wb"), encoding=encoding)

    def read(self) -> bytes:
        return os.read(self.reader, 65536)

    def close(self) -> None:
        self.stream.close()
        os.close(self.reader)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    made.close()


@pytest.fixture
def tty(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, TextIO]]:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.delenv("NO_COLOR", raising=False)
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w", encoding="utf-8") as stream:
        yield ours, stream
    os.close(ours)


def test_a_pipe_gets_lines_and_nothing_else(pipe: Pipe) -> None:
    terminal = Terminal(pipe.stream)
    terminal.show("status")
    terminal.write("one\ntwo")
    assert pipe.read() == b"one\ntwo\n"
    assert not terminal.live
    assert not terminal.colour


def test_lines_go_above_the_line_that_is_kept_up_to_date(tty: tuple[int, TextIO]) -> None:
    screen, stream = tty
    terminal = Terminal(stream)
    terminal.show("3 running")
    terminal.write("a line")
    terminal.show("")
    clear, colour, plain = "\r\x1b[2K", "\x1b[36m", "\x1b[0m"
    expected = f"{clear}{colour}3 running{plain}{clear}a line\r\n{colour}3 running{plain}{clear}"
    shown = b""
    while len(shown) < len(expected):  # a terminal hands over what it has in pieces
        shown += os.read(screen, 4096)
    assert shown.decode() == expected


def test_the_kept_line_never_wraps(tty: tuple[int, TextIO]) -> None:
    screen, stream = tty
    Terminal(stream).show("x" * 100)
    assert os.read(screen, 4096).count(b"x") == 19


def test_colour_can_be_declined(tty: tuple[int, TextIO], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert not Terminal(tty[1]).colour
    monkeypatch.setenv("TERM", "dumb")
    assert not Terminal(tty[1]).live


def test_a_terminal_that_shows_only_ascii_gets_plain_signs() -> None:
    pipe = Pipe("latin-1")
    Terminal(pipe.stream).write("✓ done → next · 3 × 4 … ż")
    assert pipe.read() == rb"+ done -> next - 3 x 4 ... \u017c" + b"\n"
    pipe.close()


def test_a_closed_reader_is_no_error(pipe: Pipe) -> None:
    os.close(pipe.reader)
    terminal = Terminal(pipe.stream)
    terminal.write("anybody?")
    terminal.write("no")
    pipe.reader = os.open(os.devnull, os.O_RDONLY)


def test_a_line_that_the_apps_own_handler_prints_is_not_printed_again(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    parent, shop = logging.getLogger("shop_of_lines"), logging.getLogger("shop_of_lines.mail")
    monkeypatch.setattr(parent, "handlers", [LogHandler(Terminal(pipe.stream))])
    monkeypatch.setattr(parent, "propagate", False)
    monkeypatch.setattr(shop, "handlers", [])
    shop.setLevel(logging.INFO)

    shop.info("first")
    console = logging.StreamHandler()
    shop.addHandler(console)
    shop.info("second")
    console.setLevel(logging.WARNING)
    shop.info("third")
    console.setLevel(logging.DEBUG)
    console.addFilter(lambda record: record.msg != "fourth")
    shop.info("fourth")
    shop.info("fifth")
    assert pipe.read().decode().split() == ["first", "third", "fourth"]
