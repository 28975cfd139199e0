"""Commands that have commands."""

from __future__ import annotations

import click

from windlass.errors import suggestion

__all__ = ["Commands"]


class Commands(click.Group):
    """Names the nearest one to what was mistyped."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            ctx.fail(f"No such command {name!r}.{suggestion(name, self.list_commands(ctx))}")
        return super().resolve_command(ctx, args)
