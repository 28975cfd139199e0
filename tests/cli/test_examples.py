"""The examples in the help of every command."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest

from windlass._cli.exit_codes import COULD_NOT_START, IN_ORDER, UNHEALTHY
from windlass._cli.main import cli, main

SHOP = """
from windlass import Cron, Limit, Rate, Windlass

app = Windlass("sqlite:///jobs.db")
crm = Limit("crm-api", rate=Rate(10, per=1, burst=5))
tenant = Limit("tenant", rate=Rate(10, per=1), key="{tenant}")

@app.task(name="send_email", queue="mail", limits=[crm, tenant])
async def send_email(to: str, *, tenant: str) -> None: ...

@app.task(name="charge_card", breaker=True)
async def charge_card(order: int) -> None: ...

@app.schedule(Cron("0 8 * * *"), name="report")
@app.task(name="send_report")
async def send_report(region: str = "all") -> None: ...
"""
LONG_OR_ELSEWHERE = {"worker", "dashboard", "demo", "bench", "top", "copy", "completion"}
"""Commands that run until stopped, or write to storages and files outside the shop."""
MISSING = ("0198c3a7…9c4e07", "5b1f03ac", "workers quiet", "workers resume", "workers stop")
"""Examples about a job, an error group or live workers: the shop has none of them."""


class Example(NamedTuple):
    path: str
    line: str

    @property
    def words(self) -> list[str]:
        """What the shell hands to the program: without its variables, comments and files."""
        words = shlex.split(self.line, comments=True)
        begins = words.index("windlass") + 1
        ends = words.index(">") if ">" in words else len(words)
        return words[begins:ends]


def commands(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    if context.parent is not None:
        yield context.command_path.removeprefix("windlass "), command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            yield from commands(child, click.Context(child, parent=context, info_name=name))


def examples_of(command: click.Command) -> list[str]:
    _, _, text = (command.epilog or "").partition("Examples:\n")
    lines = text.partition("\n\n")[0].splitlines()
    return [line.strip() for line in lines]


COMMANDS = dict(commands(cli, click.Context(cli, info_name="windlass")))
EXAMPLES = [Example(path, line) for path in COMMANDS for line in examples_of(COMMANDS[path])]


@pytest.mark.parametrize("path", COMMANDS)
def test_the_help_of_each_command_shows_at_least_two_examples(path: str) -> None:
    lines = examples_of(COMMANDS[path])
    assert len(lines) >= 2
    assert len(set(lines)) == len(lines)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: one.line)
def test_each_example_is_a_line_that_its_command_accepts(example: Example) -> None:
    words, path = example.words, list[str]()
    command: click.Command = cli
    while isinstance(command, click.Group):
        path.append(words[0])
        words = words[1:]
        command = COMMANDS[" ".join(path)]
    command.make_context(path[-1], words)
    shown_by = example.path.split()
    assert path[: len(shown_by)] == shown_by


def run(folder: Path, *arguments: str) -> None:
    """Run Python in the shop's folder."""
    ended = subprocess.run(
        [sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shop after its first worker: its limits, breakers and schedules are stored."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop.py").write_text(SHOP, encoding="utf-8")
    enqueue = "import shop; shop.send_email.enqueue_sync('ada@example.org', tenant='acme')"
    run(folder, "-c", enqueue)
    run(folder, "-m", "windlass", "worker", "shop:app", "--until-empty")
    return folder


@pytest.fixture
def in_the_shop(prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A fresh copy of the shop as the current directory."""
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("shop", None)


def runnable() -> list[Example]:
    return [one for one in EXAMPLES if not LONG_OR_ELSEWHERE & set(one.words[:2])]


@pytest.mark.usefixtures("in_the_shop")
@pytest.mark.parametrize("example", runnable(), ids=lambda one: one.line)
def test_each_example_runs(example: Example, capsys: pytest.CaptureFixture[str]) -> None:
    asks = "--yes" in COMMANDS[example.path].get_help(click.Context(COMMANDS[example.path]))
    words = example.words if "--yes" in example.words or not asks else [*example.words, "--yes"]
    code = main(words)
    told = capsys.readouterr()
    assert "Usage:" not in told.err
    missing = any(one in example.line for one in MISSING)
    assert code in ({COULD_NOT_START} if missing else {IN_ORDER, UNHEALTHY}), told.err
