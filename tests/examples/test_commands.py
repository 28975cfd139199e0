"""Every ``windlass …`` command line in the documentation names commands and options that exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.architecture.source import ROOT
from windlass._cli.main import cli

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
FENCED = re.compile(r"^```(?!python|toml)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
QUOTED = re.compile(r"`(windlass [^`\n]+)`")
LINE = re.compile(r"^(?:\$ )?(?:\w+=\S+ )*(windlass .*)$", re.MULTILINE)


def command_lines(text: str) -> Iterator[str]:
    """Yield the command lines of fenced blocks and of quoted text."""
    for block in FENCED.findall(text):
        yield from LINE.findall(block.replace("\\\n", " "))
    yield from QUOTED.findall(text)


def problem(line: str) -> str | None:
    """Return the first word that the command line does not know."""
    words = shlex.split(
        re.split(r" (?:[|]|&&|[|][|]|>|→) ", line.replace("…", ""))[0], comments=True
    )
    command: click.Command = cli
    context = click.Context(cli)
    for word in words[1:]:
        if isinstance(command, click.Group):
            found = command.get_command(context, word)
            if found is None:
                return None if word.isupper() or "|" in word or word.startswith("--") else word
            command = found
            continue
        known = {name for one in command.params for name in (*one.opts, *one.secondary_opts)}
        option = word.partition("=")[0]
        if option.startswith("--") and option != "--help" and option not in known:
            return word
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_the_commands_of_a_page_exist(page: Path) -> None:
    lines = command_lines(page.read_text(encoding="utf-8"))
    assert {line: bad for line in lines if (bad := problem(line)) is not None} == {}


def test_a_wrong_command_or_option_is_noticed() -> None:
    assert problem("windlass jobs explane shop:app ID") == "explane"
    assert problem("windlass doctor shop:app --quite") == "--quite"
    assert problem("windlass doctor shop:app --quiet || page-the-operator") is None
