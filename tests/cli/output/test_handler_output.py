"""What handlers print stays clear of the line that is kept up to date."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.processes import PATIENCE, environment
from tests.cli.shop import Shop
from windlass._cli.output.handler_output import print_above_last_line
from windlass._cli.output.terminal import Terminal

CLEAR = "\r\x1b[2K"


class Screen(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        return 99


class Shown(Terminal):
    """Keeps what is written."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def write(self, text: str) -> None:
        self.lines.append(text)


def test_whole_lines_go_to_the_terminal_and_a_prompt_is_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    screen, terminal = Screen(), Shown()
    monkeypatch.setattr(sys, "stdout", screen)
    with print_above_last_line(terminal):
        assert sys.stdout.isatty()
        assert sys.stdout.fileno() == 99
        sys.stdout.write("one two\n")
        sys.stdout.write("half")
        assert terminal.lines == ["one two"]
        sys.stdout.write(" a line\nand a ")
        assert terminal.lines == ["one two", "half a line"]
        sys.stdout.flush()
        assert terminal.lines[2:] == ["and a "]
        sys.stdout.write("rest")
    assert terminal.lines[3:] == ["rest"]
    assert sys.stdout is screen
    assert screen.getvalue() == ""


def test_a_stream_that_is_no_terminal_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    file = io.StringIO()
    monkeypatch.setattr(sys, "stdout", file)
    with print_above_last_line(Shown()):
        assert sys.stdout is file


def test_on_a_terminal_a_print_and_the_summary_do_not_share_a_line(shop: Shop) -> None:
    (shop.folder / "loud.py").write_text(
        "import asyncio, logging\n"
        "from shop import app\n"
        "own = logging.getLogger('own')\n"
        "own.propagate = False\n"
        "own.addHandler(logging.StreamHandler())\n"
        "@app.task(name='loud.loud')\n"
        "async def loud() -> None:\n"
        "    await asyncio.sleep(1.2)\n"  # the summary is shown by then
        "    print('printed', 'here')\n"
        "    own.warning('logged here')\n"
    )

    @shop.app.task(name="loud.loud")
    async def loud() -> None: ...

    loud.enqueue_sync()
    shown = on_a_terminal(shop.folder, "worker", "loud:app", "--until-empty")
    for text in ("printed here", "logged here"):
        assert f"{CLEAR}{text}\r\n" in shown, shown
    # Every line of the summary was wiped away before another was begun on its row.
    for rest in re.split(r"\x1b\[36m\d+/\d+ running[^\x1b]*\x1b\[0m", shown)[1:]:
        assert rest.startswith(CLEAR), shown


def on_a_terminal(folder: Path, *arguments: str) -> str:
    ours, theirs = pty.openpty()
    worker = subprocess.Popen(
        [sys.executable, "-m", "windlass", *arguments],
        cwd=folder,
        env=environment({"TERM": "xterm"}),
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    try:
        while chunk := os.read(ours, 65536):
            shown += chunk
    except OSError:
        pass  # how Linux says that nobody is at the other end any more
    finally:
        os.close(ours)
        assert worker.wait(PATIENCE) == 0, shown.decode()
    return shown.decode()
