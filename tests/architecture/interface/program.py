"""The program as users start it: found by its entry point, not by the names of its modules."""

from __future__ import annotations

import functools
import importlib
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import click

from tests.architecture.source import ROOT


@functools.cache
def pyproject() -> Mapping[str, Any]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        project: Mapping[str, Any] = tomllib.load(file)["project"]
    return project


def program() -> Callable[[list[str]], int]:
    """The console script ``windlass``."""
    module, _, name = pyproject()["scripts"]["windlass"].partition(":")
    found: Callable[[list[str]], int] = getattr(importlib.import_module(module), name)
    return found


@functools.cache
def commands() -> Mapping[str, click.Command]:
    """Every command and group of commands, by the words one types."""
    module = pyproject()["scripts"]["windlass"].partition(":")[0]
    root = next(
        value
        for value in vars(importlib.import_module(module)).values()
        if isinstance(value, click.Group)
    )
    return dict(_within(root, "windlass"))


def _within(command: click.Command, words: str) -> Iterator[tuple[str, click.Command]]:
    yield words, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None
            yield from _within(found, f"{words} {name}")
