"""What one types: commands, options, arguments, exit codes, and the JSON that comes back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import click

from tests.architecture.interface import internals
from tests.architecture.interface.program import commands
from tests.architecture.interface.shop import shop
from tests.architecture.source import PACKAGE
from windlass.admin import Cause


def command_line() -> Iterator[str]:
    for words, command in commands().items():
        yield words
        for parameter in command.params:
            yield f"{words} {_parameter(parameter)}"


def _parameter(parameter: click.Parameter) -> str:
    """As a help text would show it, with all that changes what one may type."""
    kind = parameter.type
    shown = "|".join(map(str, kind.choices)) if isinstance(kind, click.Choice) else ""
    if isinstance(parameter, click.Argument):
        name = parameter.metavar or f"{(parameter.name or '').upper()} {shown}"
        many = " many" if parameter.nargs == -1 else ""
        return f"argument {name}{many}{'' if parameter.required else ' optional'}"
    assert isinstance(parameter, click.Option)
    parts = ["/".join([*parameter.opts, *parameter.secondary_opts])]
    if not parameter.is_flag:
        parts.append(parameter.metavar or shown or kind.name.upper())
    parts += [word for word in ("required", "multiple", "hidden") if getattr(parameter, word)]
    default = parameter.to_info_dict().get("default")
    if not parameter.is_flag and isinstance(default, str | int | float):
        parts.append(f"default={default}")
    if parameter.envvar:
        parts.append(f"envvar={parameter.envvar}")
    return " ".join(parts)


def exit_codes() -> Iterator[str]:
    for name in internals.codes.__all__:
        yield f"{getattr(internals.codes, name)} {name.lower()}"


def json_answers() -> Iterator[str]:
    """The fields of each command's answer. A list is written ``[]``."""
    seen = {words for words, _ in shop().said}
    for words, command in commands().items():
        if any("--json" in parameter.opts for parameter in command.params):
            assert words in seen or words == BENCH, f"no test types {words} --json: add it to shop"
    for words, answer in shop().said:
        for path in paths(answer):
            yield f"{words}: {path}"
    for name in (*internals.BenchResult.__struct_fields__, "jobs", "loop"):
        yield f"{BENCH}: {name}"


def answer_codes() -> Iterator[str]:
    """Words for programs: why a job does not run, and what the doctor looked at."""
    for file in PACKAGE.rglob("*.py"):
        text = file.read_text("utf-8")
        yield from (f"jobs explain {code}" for code in CAUSE.findall(text))
        yield from (f"doctor {name}" for name in FINDING.findall(text))


CAUSE = re.compile(rf"\b{Cause.__name__}\(\s*code=\"(\w+)\"")
FINDING = re.compile(r"\b(?:ok|warn|bad)\(\s*\"(\w+)\"")
BENCH = "windlass bench"
"""Takes ten seconds: the record that it prints is asked instead."""


def paths(value: Any, above: str = "") -> Iterator[str]:
    """The names within ``value``: ``a``, ``a.b``, ``rows[].c``."""
    match value:
        case dict():
            for name, part in value.items():
                path = f"{above}.{name}" if above else name
                yield path
                yield from paths(part, path)
        case list():
            for part in value:
                yield from paths(part, f"{above}[]")
        case _:
            pass
