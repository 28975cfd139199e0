"""Commands that have commands, and options that come together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from windlass.errors import suggestion

__all__ = ["Command", "SuggestingGroup", "with_options"]

Command = TypeVar("Command", bound=Callable[..., Any])


class SuggestingGroup(click.Group):
    """Names the nearest one to what was mistyped."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            ctx.fail(f"No such command {name!r}.{suggestion(name, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)


def with_options(command: Command, *options: Callable[[Any], Any]) -> Command:
    """The command with these options, in this order in its help."""
    for option in reversed(options):
        command = option(command)
    return command
