"""``manage.py windlass_worker``: ``windlass worker`` of this project's app."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click
from django.core.management.base import BaseCommand, CommandParser

from windlass._cli.commands.worker import worker
from windlass._cli.main import main
from windlass.integrations.django import TARGET

__all__ = ["Command"]


class Command(BaseCommand):
    """A worker. The options are those of ``windlass worker``."""

    help = "Run the jobs of settings.WINDLASS until stopped, as `windlass worker` does."
    requires_system_checks: list[str] = []  # noqa: RUF012 -- Django's declaration

    def add_arguments(self, parser: CommandParser) -> None:
        for option in _options():
            told = (option.help or "").replace("%", "%%")
            for names, name in _spellings(option):
                if option.is_flag:
                    parser.add_argument(*names, dest=name, action="store_true", help=told)
                else:
                    keep = "append" if option.multiple else "store"
                    parser.add_argument(*names, dest=name, action=keep, help=told)

    def handle(self, *_args: str, **options: Any) -> None:
        """Run until the worker ends; its exit code is the program's."""
        sys.exit(main(["worker", TARGET, *_written(options)]))


def _options() -> Iterator[click.Option]:
    for option in worker.params:
        if isinstance(option, click.Option) and not option.hidden:
            yield option


def _spellings(option: click.Option) -> Iterator[tuple[list[str], str]]:
    """Yield the spelling of an option and the name it is kept under: ``--no-summary`` has its
    own.
    """
    name = option.name or ""
    if option.secondary_opts:
        yield option.secondary_opts, f"no_{name}"
    else:
        yield option.opts, name


def _written(given: dict[str, Any]) -> list[str]:
    """Return the given options as a command line."""
    words: list[str] = []
    for option in _options():
        for names, name in _spellings(option):
            value = given.get(name)
            if value is True:
                words.append(names[-1])
            elif value is not None and value is not False:
                for one in value if isinstance(value, list) else [value]:
                    words += [names[-1], str(one)]
    return words
