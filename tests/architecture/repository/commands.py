"""Whether a command line of ours would be understood: its commands and options exist."""

from __future__ import annotations

import re
import shlex

import click

from windlass._cli.main import cli

__all__ = ["command_lines", "problems_of"]


def problems_of(line: str) -> list[str]:
    """Return the commands and options of ``windlass …`` that do not exist."""
    words = shlex.split(re.split(r" [|>]|&&", line)[0], comments=True)
    command: click.Command = cli
    context = click.Context(cli)
    rest = words[1:]
    while isinstance(command, click.Group):
        if not rest or rest[0].startswith("-"):
            return [] if rest and rest[0] in {"--version", "--help"} else [f"{line}: no command"]
        found = command.get_command(context, rest[0])
        if found is None:
            return [f"{line}: no command {rest[0]!r}"]
        command, rest = found, rest[1:]
    known = {
        name for option in command.params for name in (*option.opts, *option.secondary_opts)
    } | {"--help"}
    given = [word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)]
    return [f"{line}: no option {name}" for name in given if name not in known]


def command_lines(page: str) -> list[str]:
    """Return the lines ``windlass …`` in the blocks of a page, joined where they go on."""
    blocks = re.findall(r"^```\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    joined = [re.sub(r"\\\n\s*", " ", block) for block in blocks]
    return [
        line.removeprefix("$ ")
        for block in joined
        for line in block.splitlines()
        if re.match(r"(\$ )?windlass [a-z]", line)
    ]
