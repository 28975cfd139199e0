"""Groups of commands, and what several commands share in their help."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from windlass.errors import suggestion

__all__ = ["Command", "SuggestingGroup", "examples", "with_options"]

Command = TypeVar("Command", bound=Callable[..., Any])


class SuggestingGroup(click.Group):
    """A group that suggests the nearest command for a mistyped one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            ctx.fail(f"No such command {name!r}.{suggestion(name, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)


def examples(*lines: str) -> str:
    """Return an epilog with these command lines. `tests/cli/test_examples.py` runs them."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines)])


def with_options(command: Command, *options: Callable[[Any], Any]) -> Command:
    """Add options to a command. Its help lists them in this order."""
    for option in reversed(options):
        command = option(command)
    return command
